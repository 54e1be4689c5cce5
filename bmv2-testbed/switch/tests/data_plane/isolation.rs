//! What a host cannot do: take the path, the level or the answers of another one.

use switch::{Device, KeyField, MatchKey, MeterConfig, OutputPacket};

use crate::frames::{FLOW6, HERE6, Ipv6Flow, THERE6, dscp_of, roce, roce6, tcp};
use crate::support::{
    ByName, CPU, FLOW, Flow, HERE, LEAF, THERE, exact, finish_header, index, ip_header, leaf,
    pin_key, prefix, program, ternary, unranked,
};

/// The opcodes of a RoCEv2 acknowledgment and of data, the first packet of a write.
const ACK: u8 = 0x11;
const DATA: u8 = 0x06;
/// The longest answer, as `fabric.p4` has it.
const ANSWER_BYTES: usize = 96;
/// The job of `HERE`, its level, and the level of answers.
const JOB: u128 = 42;
const JOB_LEVEL: u8 = 2;
const ANSWERS: (u8, u8) = (7, 7 << 3 | 1);
const OTHER: u32 = HERE + 1;
const OTHER6: u128 = HERE6 + 1;

/// `HERE` at port 1, `OTHER` at port 2, both guarded; the flow of `HERE` is pinned to port 11.
fn isolating() -> Device {
    let mut leaf = leaf();
    leaf.add("source_guard", &[exact(2), exact(OTHER)], "admit", &[]);
    for (port, address) in [(1, HERE6), (2, OTHER6)] {
        leaf.add("source_guard6", &[exact(port), KeyField::Exact(address)], "admit", &[]);
    }
    leaf.add("path", &[KeyField::Exact(LEAF), exact(3)], "to_uplink", &[11, 12]);
    leaf.add("flow_pin", &pin_key(FLOW), "pin", &[3, JOB]);
    leaf.add("flow_pin6", &FLOW6.edge_key(1), "pin6", &[3, JOB]);
    let level = u128::from(JOB_LEVEL);
    leaf.add("job_qos", &[KeyField::Exact(JOB)], "set_class", &[level, level << 3]);
    let to_there = KeyField::Lpm { value: THERE6, prefix: 128 };
    leaf.add("dst_leaf6", &[to_there], "set_dst_leaf", &[LEAF]);
    let answers = [ANSWERS.0, ANSWERS.1].map(u128::from);
    leaf.add("roce_answer", &[exact(u32::from(ACK))], "set_answer", &answers);
    leaf
}

/// Where a packet goes: the port, the level, the DSCP.
fn sent(leaf: &mut Device, port: u16, packet: &[u8]) -> (u16, u8, u8) {
    let OutputPacket { port, level, packet } = leaf.send_one(port, packet);
    (port, level, dscp_of(&packet))
}

/// A row whose meter lets so much through and never fills again.
fn limit(leaf: &mut Device, table: &str, action: &str, rows: (u32, u64)) {
    limit_key(leaf, table, action, (&unranked(&[exact(rows.0)]), rows.1));
}

fn limit_key(leaf: &mut Device, table: &str, action: &str, (key, burst): (&MatchKey, u64)) {
    leaf.try_add(table, key.clone(), action, &[]).unwrap();
    let rates = MeterConfig { cir: 0, cburst: burst, pir: 0, pburst: burst };
    leaf.set_direct_meter(index(table), key, Some(rates)).unwrap();
}

const DATA_OF_JOB: (u8, u8) = (JOB_LEVEL, JOB_LEVEL << 3);

#[test]
fn the_address_of_another_host_gives_no_pin_level_or_answer_level() {
    let mut leaf = isolating();
    for (data, answer) in [
        (roce(FLOW, DATA, 5, 200), roce(FLOW, ACK, 5, 74)),
        (roce6(FLOW6, DATA, 5, 200), roce6(FLOW6, ACK, 5, 94)),
    ] {
        let (port, level, dscp) = sent(&mut leaf, 1, &data);
        assert_eq!((port, (level, dscp)), (11, DATA_OF_JOB));
        let (_, level, dscp) = sent(&mut leaf, 1, &answer);
        assert_eq!((level, dscp), ANSWERS);
        for forged in [data, answer] {
            let (_, level, dscp) = sent(&mut leaf, 2, &forged);
            assert_eq!((level, dscp), (0, 0));
        }
    }
    let counted = leaf.entry(index("flow_pin"), &unranked(&pin_key(FLOW))).unwrap().count;
    assert_eq!(counted.packets, 2, "only what the host itself sent");
}

#[test]
fn the_path_of_another_hosts_pin_is_not_taken() {
    let mut unpinned = leaf();
    let by_hash = |leaf: &mut Device, sport| leaf.send_one(2, &Flow { sport, ..FLOW }.packet(200));
    let other_way = (0xc000..0xc100).find(|sport| by_hash(&mut unpinned, *sport).port != 11);
    let flow = Flow { sport: other_way.unwrap(), ..FLOW };
    let mut leaf = isolating();
    leaf.add("flow_pin", &pin_key(flow), "pin", &[3, JOB]);
    assert_eq!(sent(&mut leaf, 1, &flow.packet(200)).0, 11);
    assert_ne!(sent(&mut leaf, 2, &flow.packet(200)).0, 11);
}

#[test]
fn a_job_class_of_another_hosts_address_is_not_given() {
    let mut leaf = isolating();
    let any = ternary(0, 0);
    let from = |field| MatchKey { fields: vec![field, any, any, any, any], priority: 1 };
    let here = ternary(HERE, u32::MAX);
    leaf.try_add("job_classify", from(here), "set_job", &[JOB]).unwrap();
    let here6 = KeyField::Ternary { value: HERE6, mask: u128::MAX };
    leaf.try_add("job_classify6", from(here6), "set_job6", &[JOB]).unwrap();
    let other_port = Flow { dport: 80, ..FLOW }.packet(200);
    for packet in [other_port, Ipv6Flow { dport: 80, ..FLOW6 }.packet(200), tcp(FLOW, 200)] {
        assert_eq!(sent(&mut leaf, 1, &packet).1, JOB_LEVEL);
        assert_eq!(sent(&mut leaf, 2, &packet).1, 0);
    }
}

#[test]
fn an_answer_with_the_length_of_data_travels_as_data() {
    let mut leaf = isolating();
    // The host lies in both its opcode and its total length: 48 bytes, as an answer has.
    let mut forged = roce(FLOW, ACK, 5, 8_894);
    forged[16..18].copy_from_slice(&48_u16.to_be_bytes());
    finish_header(&mut forged);
    let (_, level, dscp) = sent(&mut leaf, 1, &forged);
    assert_eq!((level, dscp), DATA_OF_JOB);
    forged.truncate(ANSWER_BYTES + 1);
    assert_eq!(sent(&mut leaf, 1, &forged).1, JOB_LEVEL);
    forged.truncate(ANSWER_BYTES);
    assert_eq!(sent(&mut leaf, 1, &forged).1, ANSWERS.0);
    assert_eq!(sent(&mut leaf, 1, &roce(FLOW, DATA, 5, 74)).1, JOB_LEVEL);
}

#[test]
fn answers_above_the_rate_of_their_host_travel_with_its_job() {
    let mut leaf = isolating();
    limit(&mut leaf, "answer_rate", "limit_answers", (1, 200));
    let answer = roce(FLOW, ACK, 5, 74);
    let levels = [0; 4].map(|_| sent(&mut leaf, 1, &answer).1);
    assert_eq!(levels, [ANSWERS.0, ANSWERS.0, JOB_LEVEL, JOB_LEVEL]);
    let other = Flow { src: OTHER, ..FLOW };
    assert_eq!(sent(&mut leaf, 2, &roce(other, ACK, 5, 74)).1, ANSWERS.0, "has a rate of its own");
}

#[test]
fn answers_above_the_share_of_a_link_travel_below_all_jobs() {
    let mut leaf = isolating();
    limit(&mut leaf, "answer_share", "limit_answer_share", (11, 74));
    let answer = roce(FLOW, ACK, 5, 74);
    let (_, level, dscp) = sent(&mut leaf, 1, &answer);
    assert_eq!((level, dscp), ANSWERS);
    assert_eq!(sent(&mut leaf, 1, &answer), (11, 0, 0));
    assert_eq!(sent(&mut leaf, 1, &roce(FLOW, DATA, 5, 74)).1, JOB_LEVEL, "is no answer");
}

#[test]
fn a_spine_limits_the_answers_of_a_link_too() {
    let mut spine = leaf();
    spine.add("fabric_port", &[exact(20)], "trust_dscp", &[]);
    let (level, dscp) = ANSWERS;
    let key = [exact(u32::from(dscp))];
    spine.add("dscp_level", &key, "set_answer_level", &[u128::from(level)]);
    spine.add("local_host", &[exact(THERE)], "to_host", &[5, 9]);
    limit(&mut spine, "answer_share", "limit_answer_share", (5, 74));
    let answer = roce(Flow { dscp, ..FLOW }, ACK, 5, 74);
    assert_eq!(sent(&mut spine, 20, &answer), (5, level, dscp));
    assert_eq!(sent(&mut spine, 20, &answer), (5, 0, 0));
}

#[test]
fn punts_above_the_rate_of_a_port_are_dropped() {
    let mut leaf = leaf();
    let any = ternary(0, 0);
    let arp = MatchKey { fields: vec![ternary(0x0806, 0xffff), any, any, any, any], priority: 5 };
    leaf.try_add("acl_punt", arp, "punt", &[]).unwrap();
    let port_one = MatchKey { fields: vec![ternary(1, 0x1ff)], priority: 2 };
    limit_key(&mut leaf, "punt_rate", "limit_punts", (&port_one, 2));
    let frame = crate::frames::arp(1, HERE, THERE);
    let sent =
        |leaf: &mut Device, port| leaf.send(port, &frame).iter().map(|out| out.port).collect();
    let ports: Vec<Vec<u16>> = [1, 1, 1, 1].map(|port| sent(&mut leaf, port)).to_vec();
    assert_eq!(ports, [vec![CPU], vec![CPU], vec![], vec![]]);
    assert_eq!([0; 4].map(|_| sent(&mut leaf, 3)), [(); 4].map(|()| vec![CPU]), "has no row");
    // All ports without a row of their own share the rate of the row without a key.
    let others = MatchKey { fields: vec![ternary(0, 0)], priority: 1 };
    limit_key(&mut leaf, "punt_rate", "limit_punts", (&others, 3));
    let ports: Vec<Vec<u16>> = [2, 80, 510, 80, 511].map(|port| sent(&mut leaf, port)).to_vec();
    assert_eq!(ports, [vec![CPU], vec![CPU], vec![CPU], vec![], vec![]]);
    assert_eq!(sent(&mut leaf, 1), [0; 0]);
}

#[test]
fn the_dscp_of_a_host_without_a_job_becomes_zero() {
    let mut leaf = leaf();
    let to_there = KeyField::Lpm { value: THERE6, prefix: 128 };
    leaf.add("dst_leaf6", &[to_there], "set_dst_leaf", &[LEAF]);
    let ecn = 1;
    let mut fragment = Flow { dscp: 57, ..FLOW }.packet(200);
    fragment[20..22].copy_from_slice(&[0x20, 0x10]);
    finish_header(&mut fragment);
    for packet in [Flow { dscp: 57, ..FLOW }.packet(200), fragment] {
        for port in [1, 2] {
            let out = leaf.send_one(port, &packet);
            assert_eq!((out.level, ip_header(&out.packet)[1]), (0, 0));
        }
    }
    let urgent = Ipv6Flow { traffic_class: 57 << 2 | ecn, ..FLOW6 };
    for packet in [urgent.packet(200), urgent.carry(44, &[17; 40]), urgent.carry(0, &[])] {
        let out = leaf.send_one(1, &packet);
        assert_eq!((out.level, dscp_of(&out.packet)), (0, 0));
        assert_eq!(out.packet[15] >> 4 & 3, ecn);
    }
}

/// A leaf that learns the connections at port 1.
fn learning() -> Device {
    let mut leaf = isolating();
    limit(&mut leaf, "roce_learn", "learn", (1, 3));
    leaf
}

/// The digests since the last call, each as port, source, destination, source port and queue pair.
fn learned(leaf: &mut Device) -> Vec<Vec<u128>> {
    let list = program().learn_list_named("roce_flow_t").expect("a list of fabric.p4");
    let digests = leaf.take_digests();
    assert!(digests.iter().all(|digest| digest.list == list));
    digests.into_iter().map(|digest| digest.values).collect()
}

#[test]
fn a_connection_without_a_job_is_learned_once_a_packet() {
    let mut leaf = learning();
    let unknown = Flow { sport: 0xd000, ..FLOW };
    leaf.send_one(1, &roce(unknown, DATA, 0xabcdef, 200));
    let expected = [1, u128::from(HERE), u128::from(THERE), 0xd000, 0xabcdef];
    assert_eq!(learned(&mut leaf), [expected]);
    let unknown = Ipv6Flow { sport: 0xd001, ..FLOW6 };
    leaf.send_one(1, &roce6(unknown, DATA, 5, 200));
    assert_eq!(learned(&mut leaf), [[1, HERE6, THERE6, 0xd001, 5]]);
}

#[test]
fn a_connection_of_a_job_is_learned_if_it_leaves_its_leaf_without_a_pin() {
    let mut leaf = learning();
    let any = ternary(0, 0);
    let here = ternary(HERE, u32::MAX);
    let from_here = MatchKey { fields: vec![here, any, any, any, any], priority: 1 };
    leaf.try_add("job_classify", from_here, "set_job", &[JOB]).unwrap();
    leaf.add("local_host", &[exact(OTHER)], "to_host", &[2, 9]);
    let away = Flow { sport: 0xd000, ..FLOW };
    assert_eq!(leaf.send_one(1, &roce(away, DATA, 7, 200)).level, JOB_LEVEL);
    assert_eq!(learned(&mut leaf), [[1, u128::from(HERE), u128::from(THERE), 0xd000, 7]]);
    leaf.send_one(1, &roce(Flow { dst: OTHER, ..away }, DATA, 7, 200));
    assert_eq!(learned(&mut leaf), Vec::<Vec<u128>>::new(), "it stays at its leaf");
}

#[test]
fn connections_are_learned_up_to_the_rate_of_their_port() {
    let mut leaf = learning();
    for qp in 0..5 {
        let out = leaf.send_one(1, &roce(Flow { sport: 0xd000, ..FLOW }, DATA, qp, 200));
        assert_eq!(out.level, 0, "it travels on, learned or not");
    }
    let pairs: Vec<u128> = learned(&mut leaf).iter().map(|flow| flow[4]).collect();
    assert_eq!(pairs, [0, 1, 2]);
}

#[test]
fn known_unguarded_and_other_traffic_is_not_learned() {
    let mut leaf = learning();
    limit(&mut leaf, "roce_learn", "learn", (2, 3));
    let unknown = Flow { sport: 0xd000, ..FLOW };
    for (port, packet) in [
        (1, roce(FLOW, DATA, 5, 200)),
        (1, roce6(FLOW6, DATA, 5, 200)),
        (1, roce(unknown, ACK, 5, 74)),
        (1, Flow { dport: 80, ..unknown }.packet(200)),
        (1, tcp(unknown, 200)),
        (2, roce(unknown, DATA, 5, 200)),
        (3, roce(Flow { src: OTHER, ..unknown }, DATA, 5, 200)),
    ] {
        leaf.send_one(port, &packet);
        assert_eq!(learned(&mut leaf), Vec::<Vec<u128>>::new(), "port {port}: {packet:?}");
    }
    leaf.add("qp_pin", &qp_key(unknown, 9), "pin_qp", &[3, JOB]);
    leaf.send_one(1, &roce(unknown, DATA, 9, 200));
    assert_eq!(learned(&mut leaf), Vec::<Vec<u128>>::new());
}

fn qp_key(flow: Flow, dest_qp: u32) -> [KeyField; 4] {
    [exact(flow.src), exact(flow.dst), exact(u32::from(flow.sport)), exact(dest_qp)]
}

#[test]
fn a_pin_by_queue_pair_divides_what_shares_its_ports() {
    let mut leaf = isolating();
    leaf.add("job_qos", &[exact(43)], "set_class", &[4, 32]);
    let shared = Flow { sport: 0xd000, ..FLOW };
    leaf.add("qp_pin", &qp_key(shared, 9), "pin_qp", &[3, 43]);
    assert_eq!(sent(&mut leaf, 1, &roce(shared, DATA, 9, 200)), (11, 4, 32));
    assert_eq!(sent(&mut leaf, 1, &roce(shared, DATA, 10, 200)).1, 0);
    assert_eq!(sent(&mut leaf, 2, &roce(shared, DATA, 9, 200)).1, 0);
    let counted = leaf.entry(index("qp_pin"), &unranked(&qp_key(shared, 9))).unwrap().count;
    assert_eq!(counted.packets, 1);
    // The pin of the whole flow goes first.
    leaf.add("flow_pin", &pin_key(shared), "pin", &[3, JOB]);
    assert_eq!(sent(&mut leaf, 1, &roce(shared, DATA, 9, 200)).1, JOB_LEVEL);
}

/// The packets that port 1 or 2 had refused, for this reason (`refusal_t`).
fn refused(leaf: &Device, port: u16, reason: u32) -> u64 {
    let counter = program().counter_named("IngressImpl.refused").expect("a counter of fabric.p4");
    let cells = leaf.counter_cells(counter).unwrap();
    cells[(u32::from(port) << 3 | reason) as usize].packets
}

#[test]
fn a_level_is_that_of_a_pair_of_nics_and_no_other_receiver_gets_it() {
    let mut leaf = isolating();
    let elsewhere = Flow { dst: THERE + 1, sport: 0xd000, ..FLOW };
    let elsewhere6 = Ipv6Flow { dst: THERE6 + 1, sport: 0xd000, ..FLOW6 };
    leaf.add(
        "dst_leaf6",
        &[KeyField::Lpm { value: THERE6 + 1, prefix: 128 }],
        "set_dst_leaf",
        &[LEAF],
    );
    leaf.add("job_pair", &[exact(HERE), exact(THERE)], "set_pair_job", &[JOB]);
    leaf.add("job_pair6", &[exact(1), KeyField::Exact(THERE6)], "set_pair_job6", &[JOB]);
    for (to_pair, away) in [
        (roce(Flow { dst: THERE, ..elsewhere }, DATA, 5, 200), roce(elsewhere, DATA, 5, 200)),
        (
            roce6(Ipv6Flow { dst: THERE6, ..elsewhere6 }, DATA, 5, 200),
            roce6(elsewhere6, DATA, 5, 200),
        ),
    ] {
        assert_eq!(sent(&mut leaf, 1, &to_pair).1, JOB_LEVEL);
        assert_eq!(sent(&mut leaf, 1, &away).1, 0);
        assert_eq!(sent(&mut leaf, 2, &to_pair).1, 0, "the source of another host");
    }
    let counted = leaf.entry(index("job_pair"), &unranked(&[exact(HERE), exact(THERE)])).unwrap();
    assert_eq!(counted.count.packets, 1);
}

#[test]
fn a_rule_takes_what_no_pair_has_and_a_flow_goes_before_its_pair() {
    let mut leaf = isolating();
    for (job, level) in [(43, 4), (44, 5)] {
        leaf.add("job_qos", &[exact(job)], "set_class", &[level, level << 3]);
    }
    let any = ternary(0, 0);
    let rule = MatchKey { fields: vec![any, any, any, any, ternary(0, u32::MAX)], priority: 1 };
    leaf.try_add("job_classify", rule, "set_job", &[43]).unwrap();
    let own = ternary(0xd001, 0xffff);
    let flow = MatchKey { fields: vec![any, any, any, own, any], priority: 2 };
    leaf.try_add("job_classify", flow, "set_job", &[44]).unwrap();
    leaf.add("job_pair", &[exact(HERE), exact(THERE)], "set_pair_job", &[JOB]);
    let level = |leaf: &mut Device, dst, sport| {
        sent(leaf, 1, &roce(Flow { dst, sport, ..FLOW }, DATA, 5, 200)).1
    };
    assert_eq!(level(&mut leaf, THERE, 0xd000), JOB_LEVEL);
    assert_eq!(level(&mut leaf, THERE, 0xd001), 5);
    assert_eq!(level(&mut leaf, THERE + 1, 0xd000), 4);
}

#[test]
fn the_source_of_a_host_elsewhere_is_dropped_and_counted() {
    let mut leaf = isolating();
    for port in [1, 2] {
        leaf.add("host_port", &[exact(port)], "check_source", &[]);
    }
    // The fabric has 10.0.0.0/16, this leaf the first 256 addresses and HERE and OTHER of them.
    leaf.add("foreign_source", &[prefix(HERE & !0xffff, 16)], "refuse_source", &[]);
    leaf.add("foreign_source", &[prefix(HERE & !0xff, 24)], "allow_source", &[]);
    for own in [HERE, OTHER] {
        leaf.add("foreign_source", &[prefix(own, 32)], "refuse_source", &[]);
    }
    let all6 = KeyField::Lpm { value: HERE6 >> 64 << 64, prefix: 64 };
    leaf.add("foreign_source6", &[all6], "refuse_source", &[]);
    let from = |src| Flow { src, ..FLOW }.packet(200);
    for (src, is_forwarded) in
        [(HERE, true), (OTHER, false), (THERE, false), (HERE + 9, true), (0x0b00_0001, true)]
    {
        assert_eq!(leaf.send(1, &from(src)).len(), usize::from(is_forwarded), "{src:x}");
    }
    assert_eq!(
        (leaf.send(1, &FLOW6.packet(200)).len(), leaf.send(2, &FLOW6.packet(200)).len()),
        (1, 0)
    );
    assert_eq!((refused(&leaf, 1, 4), refused(&leaf, 2, 4)), (2, 1));
    // The cable of a spine that is new, or gone.
    assert_eq!(leaf.send(9, &from(THERE)).len(), 1);
    // A host that moved asks by ARP, and the controller hears it.
    let any = ternary(0, 0);
    let arp = MatchKey { fields: vec![ternary(0x0806, 0xffff), any, any, any, any], priority: 5 };
    leaf.try_add("acl_punt", arp, "punt", &[]).unwrap();
    assert_eq!(leaf.send_one(2, &crate::frames::arp(1, HERE, THERE)).port, CPU);
}

#[test]
fn headers_that_rfc_1812_refuses_are_dropped_and_counted_at_any_port() {
    let mut leaf = isolating();
    leaf.add("fabric_port", &[exact(20)], "trust_dscp", &[]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut packet = FLOW.packet(200);
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        finish_header(&mut packet);
        packet
    };
    let mut bad_checksum = FLOW.packet(200);
    bad_checksum[24] ^= 1;
    let mut long_options = changed(14, &[0x4f]);
    long_options.truncate(40);
    let (header, checksum, martian) = (1, 2, 3);
    let cases = [
        (bad_checksum, checksum),
        (changed(14, &[0x55]), header),
        (changed(14, &[0x65]), header),
        (changed(14, &[0x44]), header),
        (changed(16, &[0, 19]), header),
        (changed(16, &[0, 187]), header),
        (long_options, header),
        (changed(26, &[127, 0, 0, 1]), martian),
        (changed(26, &[0, 1, 2, 3]), martian),
        (changed(26, &[224, 0, 0, 1]), martian),
        (changed(26, &[240, 0, 0, 1]), martian),
        (changed(26, &[255; 4]), martian),
        (Ipv6Flow { src: 0xff02 << 112 | 1, ..FLOW6 }.packet(200), martian),
        (Ipv6Flow { src: 0, ..FLOW6 }.packet(200), martian),
        (Ipv6Flow { src: 1, ..FLOW6 }.packet(200), martian),
        (
            {
                let mut six = FLOW6.packet(200);
                six[14] = 0x40;
                six
            },
            header,
        ),
        (
            {
                let mut six = FLOW6.packet(200);
                six.truncate(199);
                six
            },
            header,
        ),
    ];
    for (packet, reason) in cases {
        for port in [1, 20] {
            let before = refused(&leaf, port, reason);
            assert_eq!(leaf.send(port, &packet), [], "{packet:02x?}");
            assert_eq!(refused(&leaf, port, reason), before + 1, "{reason}: {packet:02x?}");
        }
    }
    // The shortest and the longest that the frame has room for, and what Ethernet pads.
    for packet in [changed(16, &[0, 20]), changed(16, &[0, 186]), FLOW.packet(200)] {
        leaf.send_one(1, &packet);
    }
}
