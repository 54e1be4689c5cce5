//! What fabric.p4 promises, packet by packet: paths, failures, levels, TTL, checksum, CPU port.

use std::collections::{BTreeMap, BTreeSet};

use switch::{CounterData, Device, KeyField, MatchKey};

use crate::frames::{roce, tcp};
use crate::support::{
    ByName, CPU, FLOW, Flow, HERE, LEAF, THERE, call, exact, index, internet_checksum, ip_header,
    leaf, pin_key, program, ternary, unranked,
};

/// The leaf with the flow pinned to path 3: port 11, or 12 if that is down.
fn pinned() -> Device {
    let mut leaf = leaf();
    leaf.add("path", &[KeyField::Exact(LEAF), exact(3)], "to_uplink", &[11, 12]);
    leaf.add("flow_pin", &pin_key(FLOW), "pin", &[3, 42]);
    leaf
}

/// The ports that 1024 flows, each with another source port, leave through.
fn ports_of_many_flows(leaf: &mut Device) -> Vec<u16> {
    let flows = (0xc000..0xc400).map(|sport| Flow { sport, ..FLOW }.packet(100));
    flows.map(|packet| leaf.send_one(1, &packet).port).collect()
}

/// A packet of the flow whose IPv4 header has this many words, with a correct checksum.
fn with_options(flow: Flow, words: u8) -> Vec<u8> {
    let mut packet = flow.packet(100);
    let length = 4 * usize::from(words);
    let options = (0..length - 20).map(|at| at as u8 + 1);
    packet.splice(34..34, options);
    packet[14] = 0x40 | words;
    let total = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&total.to_be_bytes());
    packet[24..26].fill(0);
    let sum = internet_checksum(&packet[14..14 + length]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn the_checksum_covers_the_options() {
    for flow in [FLOW, Flow { src: THERE, dst: HERE, dscp: 24, ..FLOW }] {
        for words in 6..=15 {
            let packet = with_options(flow, words);
            let out = leaf().send_one(if flow.src == HERE { 1 } else { 10 }, &packet);
            let header = &out.packet[14..14 + 4 * usize::from(words)];
            assert_eq!((internet_checksum(header), header[8]), (0, flow.ttl - 1), "{words} words");
            assert_eq!(out.packet[14 + 20..], packet[14 + 20..], "{words} words");
        }
    }
}

#[test]
fn a_header_that_is_not_whole_is_dropped() {
    let mut short = FLOW.packet(100);
    for words in 0..5 {
        short[14] = 0x40 | words;
        assert_eq!(leaf().send(1, &short), [], "{words} words");
    }
    let whole = with_options(FLOW, 15);
    for length in 34..whole.len() {
        assert_eq!(leaf().send(1, &whole[..length]), [], "{length} bytes");
    }
    assert_eq!(leaf().send(1, &whole).len(), 1);
}

#[test]
fn a_local_host_gets_the_packet_with_its_own_address() {
    let flow = Flow { src: THERE, dst: HERE, ..FLOW };
    let out = leaf().send_one(10, &flow.packet(100));
    assert_eq!((out.port, out.level), (1, 0));
    assert_eq!(out.packet[..6], [2, 0, 0, 0, 0, 1]);
    assert_eq!(out.packet.len(), 100);
}

#[test]
fn ecmp_spreads_flows_and_keeps_each_on_its_path() {
    let mut leaf = leaf();
    let ports = ports_of_many_flows(&mut leaf);
    for port in 10..14 {
        let flows = ports.iter().filter(|to| **to == port).count();
        // 1024 flows on 4 ports: 256 each; four standard deviations are 4 sqrt(1024 3/16) = 55.
        assert!(flows.abs_diff(256) <= 55, "{flows} flows through port {port}");
    }
    assert_eq!(ports_of_many_flows(&mut leaf), ports);
    let salted = call("switch_salt", "set_salt", &[0x1234_5678, 0]);
    leaf.set_default_action(index("switch_salt"), salted).unwrap();
    assert_ne!(ports_of_many_flows(&mut leaf), ports);
}

/// How many of 4096 flows take which port of a leaf and which of a spine that chooses by the hash
/// from bit `shift` on.
fn flows_by_ports(shift: u128) -> BTreeMap<[u16; 2], u32> {
    let salted = |salt, shift| {
        let mut switch = leaf();
        let action = call("switch_salt", "set_salt", &[salt, shift]);
        switch.set_default_action(index("switch_salt"), action).unwrap();
        switch
    };
    let (mut leaf, mut spine) = (salted(0x1234_5678, 0), salted(0x9abc_def0, shift));
    let mut flows = BTreeMap::new();
    for sport in 0xc000..0xd000 {
        let packet = Flow { sport, ..FLOW }.packet(100);
        let ports = [&mut leaf, &mut spine].map(|switch| switch.send_one(1, &packet).port);
        *flows.entry(ports).or_insert(0) += 1;
    }
    flows
}

#[test]
fn hashes_of_leaf_and_spine_are_independent() {
    // By the same bits, different salts or not, the spine has one port for each of the leaf's.
    assert_eq!(flows_by_ports(0).len(), 4);
    for shift in [8, 16] {
        let flows = flows_by_ports(shift);
        // 4096 flows in 16 pairs of ports: 256 each; four standard deviations are 62.
        assert_eq!(flows.len(), 16, "{flows:?}");
        let even = |flows: &u32| flows.abs_diff(256) <= 62;
        assert!(flows.values().all(even), "{flows:?}");
    }
}

/// A RoCEv2 packet of a connection, by its number.
fn numbered(flow: Flow, psn: u32) -> Vec<u8> {
    let mut packet = roce(flow, 10, 7, 100);
    packet[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
    packet
}

fn spraying(stride: u128) -> Device {
    let mut switch = leaf();
    switch.set_default_action(index("spraying"), call("spraying", "spray", &[stride])).unwrap();
    switch
}

#[test]
fn a_leaf_that_sprays_sends_the_packets_of_a_connection_over_all_links_in_turn() {
    let mut leaf = spraying(1 << 16);
    let mut port_of = |psn| leaf.send_one(1, &numbered(FLOW, psn)).port;
    let ports: Vec<u16> = (0..64).map(&mut port_of).collect();
    for turn in ports.windows(4) {
        assert_eq!(turn.iter().collect::<BTreeSet<_>>().len(), 4, "{ports:?}");
    }
    // One that is sent again goes where it went.
    assert_eq!(port_of(5), ports[5]);
}

#[test]
fn what_is_no_roce_and_what_has_a_pin_is_not_sprayed() {
    let mut leaf = spraying(1 << 16);
    let segment = |at: u8| {
        let mut packet = tcp(FLOW, 100);
        packet[53] = at;
        packet
    };
    let ports: BTreeSet<u16> = (0..16).map(|at| leaf.send_one(1, &segment(at)).port).collect();
    assert_eq!(ports.len(), 1);
    let mut leaf = pinned();
    leaf.set_default_action(index("spraying"), call("spraying", "spray", &[1 << 16])).unwrap();
    let ports: BTreeSet<u16> =
        (0..16).map(|psn| leaf.send_one(1, &numbered(FLOW, psn)).port).collect();
    assert_eq!(ports, BTreeSet::from([11]));
}

/// Each of its links gets an equal share of every fourth packet of a connection, which is what comes
/// over one of four links from a leaf: over any 64 of them within a quarter.
#[test]
fn a_spine_that_sprays_spreads_what_a_leaf_sends_it() {
    let mut spine = spraying(0x9e37_79b9);
    for first in [0, 1, 2, 3, 1 << 20] {
        let packets = (0..64).map(|step| first + 4 * step);
        let mut sent: BTreeMap<u16, u32> = BTreeMap::new();
        for psn in packets {
            *sent.entry(spine.send_one(1, &numbered(FLOW, psn)).port).or_default() += 1;
        }
        assert!(sent.len() == 4 && sent.values().all(|sent| sent.abs_diff(16) <= 4), "{sent:?}");
    }
}

#[test]
fn the_ecmp_choice_is_crc32_of_salt_and_flow() {
    // RoCE: the destination queue pair is the 24 bits after six bytes of the BTH.
    let packet = FLOW.packet(100);
    let mut input = vec![0; 4];
    input.extend(FLOW.src.to_be_bytes());
    input.extend(FLOW.dst.to_be_bytes());
    input.push(17);
    input.extend(FLOW.sport.to_be_bytes());
    input.extend(FLOW.dport.to_be_bytes());
    input.extend(&packet[47..50]);
    let mut crc = u32::MAX;
    for byte in input {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    assert_eq!(leaf().send_one(1, &packet).port, 10 + (!crc % 4) as u16);
}

#[test]
fn a_pin_chooses_the_path_and_counts() {
    let mut leaf = pinned();
    for _ in 0..3 {
        assert_eq!(leaf.send_one(1, &FLOW.packet(200)).port, 11);
    }
    let entry = leaf.entry(index("flow_pin"), &unranked(&pin_key(FLOW))).unwrap();
    assert_eq!(entry.count, CounterData { packets: 3, bytes: 600 });
}

#[test]
fn a_down_port_gives_way_to_the_backup_and_then_to_ecmp() {
    let ecmp_port = leaf().send_one(1, &FLOW.packet(100)).port;
    let mut leaf = pinned();
    leaf.add("port_down", &[exact(11)], "mark_down", &[]);
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).port, 12);
    leaf.add("backup_down", &[exact(12)], "mark_down", &[]);
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).port, ecmp_port);
    leaf.delete_entry(index("port_down"), &unranked(&[exact(11)])).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).port, 11);
}

#[test]
fn a_jobs_class_sets_level_and_dscp_at_the_edge() {
    let mut leaf = pinned();
    leaf.add("job_qos", &[exact(42)], "set_class", &[5, 5 << 3]);
    let out = leaf.send_one(1, &FLOW.packet(100));
    assert_eq!((out.port, out.level), (11, 5));
    assert_eq!(ip_header(&out.packet)[1] >> 2, 5 << 3);
}

#[test]
fn a_host_without_a_job_cannot_change_its_level() {
    let mut leaf = leaf();
    leaf.add("fabric_port", &[exact(20)], "trust_dscp", &[]);
    leaf.add("dscp_level", &[exact(48)], "set_level", &[6]);
    let urgent = Flow { dscp: 48, ..FLOW }.packet(100);
    let out = leaf.send_one(1, &urgent);
    assert_eq!((out.level, ip_header(&out.packet)[1]), (0, 0));
    assert_eq!(internet_checksum(ip_header(&out.packet)), 0);
    let out = leaf.send_one(20, &urgent);
    assert_eq!((out.level, ip_header(&out.packet)[1] >> 2), (6, 48));
}

#[test]
fn unpinned_traffic_is_classified_by_the_best_rule() {
    let mut leaf = leaf();
    leaf.add("job_qos", &[exact(8)], "set_class", &[2, 16]);
    leaf.add("job_qos", &[exact(9)], "set_class", &[6, 48]);
    let any = ternary(0, 0);
    let rule = |dport, priority| MatchKey { fields: vec![any, any, dport, any, any], priority };
    leaf.try_add("job_classify", rule(any, 1), "set_job", &[8]).unwrap();
    leaf.try_add("job_classify", rule(ternary(4791, 0xffff), 2), "set_job", &[9]).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).level, 6);
    let other = Flow { dport: 80, ..FLOW };
    assert_eq!(leaf.send_one(1, &other.packet(100)).level, 2);
    assert_eq!(leaf.send_one(1, &other.packet(50)).level, 2);
    // Each rule counts what it was the best one for.
    let entries = leaf.entries(index("job_classify")).unwrap();
    let counted: Vec<(u32, u64)> =
        entries.map(|entry| (entry.key.priority, entry.count.packets)).collect();
    assert_eq!(counted, [(1, 2), (2, 1)]);
}

#[test]
fn inside_the_fabric_the_level_comes_from_the_dscp() {
    let mut spine = pinned();
    spine.add("fabric_port", &[exact(20)], "trust_dscp", &[]);
    spine.add("dscp_level", &[exact(48)], "set_level", &[6]);
    spine.add("job_qos", &[exact(42)], "set_class", &[1, 8]);
    spine.add("source_guard", &[exact(21), exact(HERE)], "admit", &[]);
    let out = spine.send_one(20, &Flow { dscp: 48, ..FLOW }.packet(100));
    assert_eq!((out.level, ip_header(&out.packet)[1] >> 2), (6, 48));
    let out = spine.send_one(21, &Flow { dscp: 48, ..FLOW }.packet(100));
    assert_eq!((out.level, ip_header(&out.packet)[1] >> 2), (1, 8));
}

#[test]
fn ttl_counts_down_and_the_checksum_follows() {
    let mut leaf = leaf();
    for bytes in [54, 55, 100, 1500, 9000] {
        let out = leaf.send_one(1, &FLOW.packet(bytes));
        assert_eq!(ip_header(&out.packet)[8], 63);
        assert_eq!(internet_checksum(ip_header(&out.packet)), 0);
        assert_eq!(out.packet[34..], FLOW.packet(bytes)[34..]);
    }
    assert_eq!(leaf.send(1, &Flow { ttl: 1, ..FLOW }.packet(100)), []);
    assert_eq!(leaf.counts().dropped_by_program, 1);
}

#[test]
fn packet_out_leaves_through_the_port_it_names_or_goes_through_ingress() {
    let mut leaf = leaf();
    let frame = FLOW.packet(100);
    // 9 bits of port, 1 of submit_to_ingress, 6 of padding.
    let mut direct = (12_u16 << 7).to_be_bytes().to_vec();
    direct.extend(&frame);
    let out = leaf.send_one(CPU, &direct);
    assert_eq!((out.port, out.packet), (12, frame.clone()));
    let mut submitted = (12_u16 << 7 | 1 << 6).to_be_bytes().to_vec();
    submitted.extend(&frame);
    let out = leaf.send_one(CPU, &submitted);
    assert_eq!(ip_header(&out.packet)[8], 63);
    assert_eq!(out.packet.len(), 100);
}

#[test]
fn packet_in_carries_the_ingress_port() {
    let mut leaf = leaf();
    let any = ternary(0, 0);
    let lldp = MatchKey { fields: vec![ternary(0x88cc, 0xffff), any, any, any, any], priority: 5 };
    leaf.try_add("acl_punt", lldp, "punt", &[]).unwrap();
    let mut frame = vec![1; 12];
    frame.extend([0x88, 0xcc, 0xde, 0xad]);
    let out = leaf.send_one(300, &frame);
    assert_eq!((out.port, out.level), (CPU, 0));
    assert_eq!(out.packet[..2], (300_u16 << 7).to_be_bytes());
    assert_eq!(out.packet[2..], frame);
}

#[test]
fn egress_counts_by_port_and_level() {
    let mut leaf = pinned();
    leaf.add("job_qos", &[exact(42)], "set_class", &[5, 40]);
    leaf.send_one(1, &FLOW.packet(300));
    let counter = program().counter_named("EgressImpl.port_level").unwrap();
    let cells = leaf.counter_cells(counter).unwrap();
    assert_eq!(cells.len(), 4096);
    assert_eq!(cells[11 * 8 + 5], CounterData { packets: 1, bytes: 300 });
    assert_eq!(cells.iter().filter(|cell| **cell != CounterData::default()).count(), 1);
}

#[test]
fn a_priority_without_a_queue_drops_the_packet_as_bmv2_does() {
    let mut leaf = Device::new(switch::DeviceConfig { levels: 2, ..crate::support::config(1) });
    leaf.load_program(program());
    leaf.add("local_host", &[exact(THERE)], "to_host", &[1, 0]);
    leaf.add("fabric_port", &[exact(20)], "trust_dscp", &[]);
    leaf.add("dscp_level", &[exact(8)], "set_level", &[1]);
    leaf.add("dscp_level", &[exact(16)], "set_level", &[2]);
    assert_eq!(leaf.send_one(20, &Flow { dscp: 8, ..FLOW }.packet(100)).level, 1);
    assert_eq!(leaf.send(20, &Flow { dscp: 16, ..FLOW }.packet(100)), []);
    assert_eq!(leaf.counts().dropped_by_priority, 1);
}

/// `shapes.p4` gives packets no level; a level without a queue becomes the highest there is.
#[test]
fn packets_have_the_level_of_their_dscp_where_ports_trust_it() {
    let json = include_bytes!("../programs/shapes.json");
    for (levels, trusts_dscp, expected) in [(8, true, 3), (2, true, 1), (8, false, 0)] {
        let config = switch::DeviceConfig { levels, trusts_dscp, ..crate::support::config(1) };
        let mut device = Device::new(config);
        device.load_program(std::sync::Arc::new(switch::Program::from_json(json).unwrap()));
        let packet = Flow { dscp: 24, ..FLOW }.packet(100);
        assert_eq!(device.send_one(20, &packet).level, expected);
    }
}
