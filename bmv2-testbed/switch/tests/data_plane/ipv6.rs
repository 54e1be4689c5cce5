//! IPv6 through the fabric: what a packet keeps, and which rows choose its path and its level.

use switch::{CounterData, Device, KeyField, MatchKey};

use crate::frames::{FLOW6, HERE6, Ipv6Flow, THERE6, dscp_of, roce6};
use crate::support::{ByName, CPU, LEAF, exact, index, leaf, ternary, unranked};

const DATA: u8 = 0x06;
/// The uplink of the pins below, and the port from the fabric.
const UPLINK: u16 = 11;
const FABRIC_PORT: u16 = 20;

/// `HERE6` at port 1, `THERE6` behind the uplinks; path 3 leads to port 11, job 42 has level 5.
fn leaf6() -> Device {
    let mut leaf = leaf();
    leaf.add("source_guard6", &[exact(1), KeyField::Exact(HERE6)], "admit", &[]);
    leaf.add("local_host6", &[KeyField::Exact(HERE6)], "to_host", &[1, 0x0200_0000_0001]);
    let to_there = KeyField::Lpm { value: THERE6 & !0xffff, prefix: 112 };
    leaf.add("dst_leaf6", &[to_there], "set_dst_leaf", &[LEAF]);
    leaf.add("path", &[KeyField::Exact(LEAF), exact(3)], "to_uplink", &[u128::from(UPLINK), 12]);
    leaf.add("job_qos", &[exact(42)], "set_class", &[5, 40]);
    leaf.add("fabric_port", &[exact(u32::from(FABRIC_PORT))], "trust_dscp", &[]);
    leaf
}

/// A source port whose flow the hash sends through another port than the pins.
fn unlike_the_pin(leaf: &mut Device, from: u16) -> Ipv6Flow {
    let flows = (0xc000..0xc100).map(|sport| Ipv6Flow { sport, ..FLOW6 });
    let mut others =
        flows.filter(|flow| leaf.send_one(from, &roce6(*flow, DATA, 5, 200)).port != UPLINK);
    others.next().expect("the hash chooses among four ports")
}

#[test]
fn a_local_host_gets_the_packet_with_its_own_address() {
    let flow = Ipv6Flow { src: THERE6, dst: HERE6, ..FLOW6 };
    let out = leaf6().send_one(FABRIC_PORT, &flow.packet(100));
    assert_eq!((out.port, out.level), (1, 0));
    assert_eq!(out.packet[..6], [2, 0, 0, 0, 0, 1]);
    assert_eq!(out.packet[6..21], flow.packet(100)[6..21]);
}

#[test]
fn only_dscp_and_hop_limit_change() {
    let mut leaf = leaf6();
    leaf.add("flow_pin6", &FLOW6.edge_key(1), "pin6", &[3, 42]);
    for (ecn, flow_label) in [(0, 0), (1, 0xf_ffff), (2, 0xa_5a5a), (3, 1)] {
        let flow = Ipv6Flow { traffic_class: 63 << 2 | ecn, flow_label, ..FLOW6 };
        let expected = Ipv6Flow { traffic_class: 40 << 2 | ecn, hop_limit: 63, ..flow };
        for bytes in [62, 63, 100, 1500, 9000] {
            let out = leaf.send_one(1, &flow.packet(bytes));
            assert_eq!((out.port, out.level), (UPLINK, 5));
            assert_eq!(out.packet, expected.packet(bytes));
        }
    }
}

#[test]
fn a_hop_limit_that_ends_here_drops_the_packet() {
    let mut leaf = leaf6();
    for hop_limit in [0, 1] {
        assert_eq!(leaf.send(1, &Ipv6Flow { hop_limit, ..FLOW6 }.packet(100)), []);
    }
    assert_eq!(leaf.send_one(1, &Ipv6Flow { hop_limit: 2, ..FLOW6 }.packet(100)).packet[21], 1);
}

#[test]
fn a_pin_holds_at_the_port_of_its_host() {
    let mut leaf = leaf6();
    let flow = unlike_the_pin(&mut leaf, 1);
    leaf.add("flow_pin6", &flow.edge_key(1), "pin6", &[3, 42]);
    for packet in [flow.packet(200), roce6(flow, DATA, 6, 200)] {
        assert_eq!(leaf.send_one(1, &packet).port, UPLINK);
        // The same addresses at other ports: no pin, whether from a host or from the fabric.
        for port in [2, FABRIC_PORT] {
            assert_eq!(leaf.send_one(port, &packet).level, 0);
        }
    }
    let counted = leaf.entry(index("flow_pin6"), &unranked(&flow.edge_key(1))).unwrap().count;
    assert_eq!(counted, CounterData { packets: 2, bytes: 400 });
}

#[test]
fn a_pin_of_a_port_needs_the_address_of_its_host() {
    let mut leaf = leaf6();
    leaf.add("flow_pin6", &FLOW6.edge_key(1), "pin6", &[3, 42]);
    let foreign = Ipv6Flow { src: HERE6 + 1, ..FLOW6 };
    assert_eq!(leaf.send_one(1, &foreign.packet(200)).level, 0);
    let counted = leaf.entry(index("flow_pin6"), &unranked(&FLOW6.edge_key(1))).unwrap().count;
    assert_eq!(counted.packets, 0);
}

#[test]
fn a_transit_pin_chooses_the_path_and_the_dscp_the_level() {
    let mut spine = leaf6();
    let flow = unlike_the_pin(&mut spine, FABRIC_PORT);
    spine.add("dscp_level", &[exact(48)], "set_level", &[6]);
    spine.add("transit_pin6", &flow.transit_key(), "pin_transit", &[3]);
    let urgent = Ipv6Flow { traffic_class: 48 << 2, ..flow };
    let out = spine.send_one(FABRIC_PORT, &roce6(urgent, DATA, 5, 200));
    assert_eq!((out.port, out.level, dscp_of(&out.packet)), (UPLINK, 6, 48));
    // At the edge it holds for nobody.
    assert_ne!(spine.send_one(1, &roce6(flow, DATA, 5, 200)).port, UPLINK);
}

#[test]
fn pins_by_queue_pair_hold_at_the_edge_and_in_transit() {
    let mut leaf = leaf6();
    let flow = unlike_the_pin(&mut leaf, 1);
    let key = |first| [first, flow.dst, u128::from(flow.sport), 5].map(KeyField::Exact);
    leaf.add("qp_pin6", &key(1), "pin6_qp", &[3, 42]);
    leaf.add("transit_qp_pin6", &key(flow.src), "pin_transit", &[3]);
    let packet = |qp| roce6(flow, DATA, qp, 200);
    let out = leaf.send_one(1, &packet(5));
    assert_eq!((out.port, out.level), (UPLINK, 5));
    assert_eq!(leaf.send_one(1, &packet(6)).level, 0);
    let out = leaf.send_one(FABRIC_PORT, &packet(5));
    assert_eq!((out.port, out.level), (UPLINK, 0));
    let counted = leaf.entry(index("qp_pin6"), &unranked(&key(1))).unwrap().count;
    assert_eq!(counted.packets, 1);
}

#[test]
fn unpinned_traffic_is_classified_by_the_best_rule() {
    let mut leaf = leaf6();
    leaf.add("job_qos", &[exact(9)], "set_class", &[6, 48]);
    let (any, dport) = (ternary(0, 0), ternary(4791, 0xffff));
    let rule = |dport, priority| MatchKey { fields: vec![any, any, dport, any, any], priority };
    leaf.try_add("job_classify6", rule(any, 1), "set_job6", &[42]).unwrap();
    leaf.try_add("job_classify6", rule(dport, 2), "set_job6", &[9]).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW6.packet(100)).level, 6);
    assert_eq!(leaf.send_one(1, &Ipv6Flow { dport: 80, ..FLOW6 }.packet(100)).level, 5);
    let foreign = Ipv6Flow { src: HERE6 + 1, ..FLOW6 };
    assert_eq!(leaf.send_one(1, &foreign.packet(100)).level, 0);
    // Behind an extension header nothing is known of the flow.
    assert_eq!(leaf.send_one(1, &FLOW6.carry(0, &[17, 0, 0, 0, 0, 0, 0, 0])).level, 0);
}

#[test]
fn a_down_port_gives_way_to_the_backup() {
    let mut leaf = leaf6();
    leaf.add("flow_pin6", &FLOW6.edge_key(1), "pin6", &[3, 42]);
    leaf.add("port_down", &[exact(u32::from(UPLINK))], "mark_down", &[]);
    assert_eq!(leaf.send_one(1, &FLOW6.packet(100)).port, 12);
}

#[test]
fn an_address_without_a_leaf_drops_the_packet() {
    assert_eq!(leaf6().send(1, &Ipv6Flow { dst: 1, ..FLOW6 }.packet(100)), []);
}

#[test]
fn the_controller_can_ask_for_packets_by_header_type_and_hop_limit() {
    let any = ternary(0, 0);
    for (fields, port) in [
        ([ternary(1, 0x1ff), any, any, any], CPU),
        ([any, ternary(17, 0xff), any, any], CPU),
        ([any, any, any, ternary(64, 0xff)], CPU),
        ([ternary(2, 0x1ff), any, any, any], UPLINK),
    ] {
        let mut leaf = leaf6();
        leaf.add("flow_pin6", &FLOW6.edge_key(1), "pin6", &[3, 42]);
        let row = MatchKey { fields: fields.to_vec(), priority: 1 };
        leaf.try_add("acl_punt6", row, "punt", &[]).unwrap();
        assert_eq!(leaf.send_one(1, &FLOW6.packet(100)).port, port);
    }
}
