//! The leaf answers ARP requests and neighbour solicitations of the hosts that its guard knows.

use switch::{Device, KeyField, MatchKey};

use crate::frames::{
    FLOW6, HERE6, HOST_MAC, Ipv6Flow, LEAF_MAC, LEAF_MAC_BYTES, LINK_LOCAL, NeighbourSolicitation,
    SOLICITATION, THERE6, arp, icmpv6_checksum,
};
use crate::support::{ByName, CPU, HERE, THERE, exact, leaf, prefix, ternary};

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const SOLICITATION_TYPE: u8 = 135;

/// A leaf that answers for all addresses and punts what is left of both protocols.
fn answering() -> Device {
    let mut leaf = leaf();
    leaf.add("source_guard6", &[exact(1), KeyField::Exact(HERE6)], "admit", &[]);
    leaf.add("arp_answer", &[prefix(0, 0)], "answer_arp", &[LEAF_MAC]);
    let every = KeyField::Lpm { value: 0, prefix: 0 };
    leaf.add("nd_answer", &[every], "answer_nd", &[LEAF_MAC]);
    let any = ternary(0, 0);
    let arp = MatchKey { fields: vec![ternary(0x0806, 0xffff), any, any, any, any], priority: 5 };
    leaf.try_add("acl_punt", arp, "punt", &[]).unwrap();
    let types = [ternary(58, 0xff), ternary(u32::from(SOLICITATION_TYPE), 0xff)];
    let solicitation = MatchKey { fields: vec![any, types[0], types[1], any], priority: 5 };
    leaf.try_add("acl_punt6", solicitation, "punt", &[]).unwrap();
    leaf
}

/// The packet goes to the controller, behind its header.
fn assert_punted(leaf: &mut Device, port: u16, packet: &[u8]) {
    let out = leaf.send_one(port, packet);
    assert_eq!((out.port, &out.packet[2..]), (CPU, packet));
}

#[test]
fn an_arp_request_of_a_guarded_host_is_answered_for_any_address() {
    for target in [THERE, 0x0a00_00fe, 0xc0a8_0001] {
        let out = answering().send_one(1, &arp(REQUEST, HERE, target));
        assert_eq!((out.port, out.level), (1, 0));
        let mut expected = HOST_MAC.to_vec();
        expected.extend(LEAF_MAC_BYTES);
        expected.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, REPLY]);
        expected.extend(LEAF_MAC_BYTES);
        expected.extend(target.to_be_bytes());
        expected.extend(HOST_MAC);
        expected.extend(HERE.to_be_bytes());
        expected.resize(60, 0);
        assert_eq!(out.packet, expected);
    }
}

#[test]
fn the_longest_prefix_gives_the_address_of_the_answer() {
    let mut leaf = answering();
    leaf.add("arp_answer", &[prefix(THERE, 32)], "answer_arp", &[0x02aa_0000_0007]);
    let out = leaf.send_one(1, &arp(REQUEST, HERE, THERE));
    assert_eq!(out.packet[22..28], [2, 0xaa, 0, 0, 0, 7]);
    assert_eq!(leaf.send_one(1, &arp(REQUEST, HERE, THERE + 1)).packet[22..28], LEAF_MAC_BYTES);
}

#[test]
fn other_arp_packets_are_for_the_controller() {
    let mut leaf = answering();
    let gratuitous = arp(REQUEST, HERE, HERE);
    let probe = arp(REQUEST, 0, HERE);
    for (port, packet) in [
        (1, gratuitous),
        (1, probe),
        (1, arp(REPLY, HERE, THERE)),
        (1, arp(REQUEST, HERE + 1, THERE)),
        (2, arp(REQUEST, HERE, THERE)),
    ] {
        assert_punted(&mut leaf, port, &packet);
    }
}

#[test]
fn arp_packets_that_nobody_wants_are_dropped() {
    let mut leaf = leaf();
    leaf.add("arp_answer", &[prefix(THERE, 32)], "answer_arp", &[LEAF_MAC]);
    for target in [HERE, THERE + 1] {
        assert_eq!(leaf.send(1, &arp(REQUEST, HERE, target)), []);
    }
    assert_eq!(leaf.send(2, &arp(REQUEST, HERE, THERE)), []);
}

#[test]
fn an_arp_request_from_the_fabric_is_not_answered() {
    let mut leaf = answering();
    leaf.add("fabric_port", &[exact(10)], "trust_dscp", &[]);
    leaf.add("source_guard", &[exact(10), exact(HERE)], "admit", &[]);
    assert_punted(&mut leaf, 10, &arp(REQUEST, HERE, THERE));
}

#[test]
fn a_solicitation_is_answered_also_from_a_link_local_address() {
    for src in [HERE6, LINK_LOCAL] {
        let out = answering().send_one(1, &NeighbourSolicitation { src, ..SOLICITATION }.packet());
        assert_eq!((out.port, out.level), (1, 0));
        // Router, solicited, override.
        let mut message = vec![136, 0, 0, 0, 0xe0, 0, 0, 0];
        message.extend(THERE6.to_be_bytes());
        message.extend([2, 1]);
        message.extend(LEAF_MAC_BYTES);
        let sum = icmpv6_checksum(THERE6, src, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let answer = Ipv6Flow { src: THERE6, dst: src, hop_limit: 255, ..FLOW6 };
        let mut expected = answer.carry(58, &message);
        expected[..6].copy_from_slice(&HOST_MAC);
        expected[6..12].copy_from_slice(&LEAF_MAC_BYTES);
        assert_eq!(out.packet, expected);
    }
}

#[test]
fn other_solicitations_are_for_the_controller() {
    let mut leaf = answering();
    let foreign = HERE6 + 1;
    for (port, asked) in [
        (1, NeighbourSolicitation { hop_limit: 254, ..SOLICITATION }),
        (1, NeighbourSolicitation { option: 2, ..SOLICITATION }),
        (1, NeighbourSolicitation { target: HERE6, ..SOLICITATION }),
        (1, NeighbourSolicitation { src: foreign, ..SOLICITATION }),
        (1, NeighbourSolicitation { src: 0, target: HERE6, ..SOLICITATION }),
        (2, SOLICITATION),
    ] {
        assert_punted(&mut leaf, port, &asked.packet());
    }
    // Without its option, it is what detects duplicate addresses.
    let mut short = SOLICITATION.packet();
    short.truncate(short.len() - 8);
    short[18..20].copy_from_slice(&24_u16.to_be_bytes());
    assert_punted(&mut leaf, 1, &short);
    leaf.add("fabric_port", &[exact(10)], "trust_dscp", &[]);
    let from_fabric = NeighbourSolicitation { src: LINK_LOCAL, ..SOLICITATION };
    assert_punted(&mut leaf, 10, &from_fabric.packet());
}
