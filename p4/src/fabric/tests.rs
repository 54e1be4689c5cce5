//! Entries of every table of `fabric.p4`, as they are encoded and shown.

use super::*;
use crate::ForwardingPipeline;
use crate::entry::FieldMatch;
use crate::p4info::{FieldInfo, MatchKind, P4Info};
use crate::sdn_string::FieldValue;

fn port(number: u32) -> PortNumber {
    PortNumber::new(number).unwrap()
}

fn level(number: u32) -> PriorityLevel {
    PriorityLevel::new(number).unwrap()
}

fn job(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn prefix(address: [u8; 4], length: u8) -> IpPrefix {
    IpPrefix::new(address.into(), length).unwrap()
}

fn prefix6(address: &str, length: u8) -> IpPrefix {
    IpPrefix::new(address.parse().unwrap(), length).unwrap()
}

/// One or more entries of every table, with the text that people see.
pub(crate) fn samples() -> Vec<(TableEntry, &'static str)> {
    let tables = [samples_of_traffic(), samples_of_ports(), samples_of_hosts()].concat();
    [tables, samples_of_ipv6(), samples_of_pins()].concat()
}

fn samples_of_traffic() -> Vec<(TableEntry, &'static str)> {
    let flow = FlowKey::for_roce([10, 0, 1, 1], [10, 0, 2, 1], 0xc000);
    let priority = NonZeroU16::new(5).unwrap();
    let of_job = JobMatch {
        src: Some(prefix([10, 0, 1, 77], 24)),
        dport: Some(4791),
        ..JobMatch::default()
    };
    vec![
        (
            acl_punt(&PuntMatch::EtherType(0x88cc), priority, PuntAction::Punt),
            "acl_punt ether_type=35020 priority=5 -> punt()",
        ),
        (
            acl_punt(&PuntMatch::UdpPort(53), priority, PuntAction::Drop),
            "acl_punt ether_type=2048 ip_proto=17 dport=53 priority=5 -> drop()",
        ),
        (acl_punt(&PuntMatch::Any, priority, PuntAction::Drop), "acl_punt priority=5 -> drop()"),
        (
            local_host([10, 0, 1, 1].into(), port(3), [2, 0, 10, 0, 1, 1]),
            "local_host dst=10.0.1.1 -> to_host(port=3, dmac=02:00:0a:00:01:01)",
        ),
        (dst_leaf(prefix([10, 0, 2, 9], 24), 2), "dst_leaf dst=10.0.2.0/24 -> set_dst_leaf(id=2)"),
        (dst_leaf(prefix([10, 0, 2, 9], 0), 3), "dst_leaf -> set_dst_leaf(id=3)"),
        (
            dst_leaf_of_hosts(prefix([10, 0, 2, 9], 32), 2),
            "dst_leaf dst=10.0.2.9/32 -> set_dst_leaf_of_hosts(id=2)",
        ),
        (
            flow_pin(PinPoint::Transit, &flow, 2, job(7)).unwrap(),
            "flow_pin src=10.0.1.1 dst=10.0.2.1 proto=17 sport=49152 dport=4791 \
             -> pin(path=2, job=7)",
        ),
        (
            job_classify(&of_job, priority, job(7)).unwrap(),
            "job_classify src=10.0.1.0&0xffffff00 dport=4791 priority=5 -> set_job(job=7)",
        ),
        (
            job_classify(&JobMatch { pairs: PairedPackets::LeftOut, ..of_job }, priority, job(7))
                .unwrap(),
            "job_classify src=10.0.1.0&0xffffff00 dport=4791 job=0 priority=5 -> set_job(job=7)",
        ),
        (
            job_pair(port(3), [flow.src, flow.dst], Some(job(7))).unwrap(),
            "job_pair src=10.0.1.1 dst=10.0.2.1 -> set_pair_job(job=7)",
        ),
        (job_qos(job(7), level(6)), "job_qos job=7 -> set_class(level=6, dscp=48)"),
        (roce_answer(0x81, level(7)), "roce_answer opcode=129 -> set_answer(level=7, dscp=57)"),
    ]
}

fn samples_of_hosts() -> Vec<(TableEntry, &'static str)> {
    let rates = MeterRates::single_rate(8_000_000, 9_000);
    vec![
        (
            source_guard(port(3), [10, 0, 1, 1].into()),
            "source_guard port=3 src=10.0.1.1 -> admit()",
        ),
        (host_port(port(3)), "host_port port=3 -> check_source()"),
        (
            refuse_source(prefix([10, 0, 0, 0], 8)),
            "foreign_source src=10.0.0.0/8 -> refuse_source()",
        ),
        (
            allow_source(prefix([10, 0, 1, 0], 24)),
            "foreign_source src=10.0.1.0/24 -> allow_source()",
        ),
        (
            neighbour_answer(prefix([0, 0, 0, 0], 0), [2, 0, 0, 0, 0, 0xfe]),
            "arp_answer -> answer_arp(mac=02:00:00:00:00:fe)",
        ),
        (
            punt_rate(port(3), MeterRates { cir: 50, cburst: 10, pir: 100, pburst: 20 }),
            "punt_rate port=3 priority=2 -> limit_punts() \
             meter(cir=50, cburst=10, pir=100, pburst=20)",
        ),
        (
            other_ports_punt_rate(MeterRates { cir: 50, cburst: 10, pir: 100, pburst: 20 }),
            "punt_rate priority=1 -> limit_punts() meter(cir=50, cburst=10, pir=100, pburst=20)",
        ),
        (
            answer_rate(port(3), rates),
            "answer_rate port=3 -> limit_answers() \
             meter(cir=8000000, cburst=9000, pir=8000000, pburst=9000)",
        ),
        (
            answer_share(port(3), rates),
            "answer_share port=3 -> limit_answer_share() \
             meter(cir=8000000, cburst=9000, pir=8000000, pburst=9000)",
        ),
        (
            roce_learn(port(3), MeterRates::single_rate(100, 10)),
            "roce_learn port=3 -> learn() meter(cir=100, cburst=10, pir=100, pburst=10)",
        ),
        (answer_dscp_level(level(7)), "dscp_level dscp=57 -> set_answer_level(level=7)"),
    ]
}

fn samples_of_ipv6() -> Vec<(TableEntry, &'static str)> {
    let host: IpAddr = "fd00::1:1".parse().unwrap();
    let of_job = JobMatch {
        version: IpVersion::V6,
        dst: Some(prefix6("fd00::2:0", 112)),
        ..JobMatch::default()
    };
    let priority = NonZeroU16::new(5).unwrap();
    vec![
        (
            acl_punt(&PuntMatch::Icmpv6(135), priority, PuntAction::Punt),
            "acl_punt6 next_header=58 icmpv6_type=135 priority=5 -> punt()",
        ),
        (source_guard(port(3), host), "source_guard6 port=3 src=fd00::1:1 -> admit()"),
        (refuse_source(prefix6("fd00::", 16)), "foreign_source6 src=fd00::/16 -> refuse_source()"),
        (
            job_pair(port(3), [host, "fd00::2:1".parse().unwrap()], None).unwrap(),
            "job_pair6 port=3 dst=fd00::2:1 -> set_pair_job6(job=0)",
        ),
        (
            neighbour_answer(prefix6("fd00::", 8), [2, 0, 0, 0, 0, 0xfe]),
            "nd_answer target=fd00::/8 -> answer_nd(mac=02:00:00:00:00:fe)",
        ),
        (
            local_host(host, port(3), [2, 0, 10, 0, 1, 1]),
            "local_host6 dst=fd00::1:1 -> to_host(port=3, dmac=02:00:0a:00:01:01)",
        ),
        (
            dst_leaf(prefix6("fd00::2:9", 112), 2),
            "dst_leaf6 dst=fd00::2:0/112 -> set_dst_leaf(id=2)",
        ),
        (
            job_classify(&of_job, priority, job(7)).unwrap(),
            "job_classify6 dst=fd00::2:0&0xffffffffffffffffffffffffffff0000 priority=5 \
             -> set_job6(job=7)",
        ),
    ]
}

/// Pins by queue pair, and those of IPv6.
fn samples_of_pins() -> Vec<(TableEntry, &'static str)> {
    let [host, peer]: [IpAddr; 2] = ["fd00::1:1", "fd00::2:1"].map(|ip| ip.parse().unwrap());
    let flow = FlowKey::for_roce(host, peer, 0xc000);
    let queue_pair = FlowKey { transport: FlowTransport::QueuePair(77), ..flow };
    let queue_pair_v4 =
        FlowKey { src: [10, 0, 1, 1].into(), dst: [10, 0, 2, 1].into(), ..queue_pair };
    let pin = |point, flow| flow_pin(point, flow, 2, job(7)).unwrap();
    let edge = PinPoint::Edge(port(3));
    vec![
        (
            pin(edge, &flow),
            "flow_pin6 port=3 dst=fd00::2:1 proto=17 sport=49152 dport=4791 \
             -> pin6(path=2, job=7)",
        ),
        (
            pin(PinPoint::Transit, &flow),
            "transit_pin6 src=fd00::1:1 dst=fd00::2:1 proto=17 sport=49152 dport=4791 \
             -> pin_transit(path=2)",
        ),
        (
            pin(edge, &queue_pair),
            "qp_pin6 port=3 dst=fd00::2:1 sport=49152 dest_qp=77 -> pin6_qp(path=2, job=7)",
        ),
        (
            pin(PinPoint::Transit, &queue_pair),
            "transit_qp_pin6 src=fd00::1:1 dst=fd00::2:1 sport=49152 dest_qp=77 \
             -> pin_transit(path=2)",
        ),
        (
            pin(edge, &queue_pair_v4),
            "qp_pin src=10.0.1.1 dst=10.0.2.1 sport=49152 dest_qp=77 -> pin_qp(path=2, job=7)",
        ),
    ]
}

fn samples_of_ports() -> Vec<(TableEntry, &'static str)> {
    vec![
        (fabric_port(port(510)), "fabric_port port=510 -> trust_dscp()"),
        (dscp_level(level(7)), "dscp_level dscp=56 -> set_level(level=7)"),
        (path(2, 1, port(9), port(10)), "path dst_leaf=2 path=1 -> to_uplink(port=9, backup=10)"),
        (port_down(port(9)), "port_down port=9 -> mark_down()"),
        (backup_down(port(9)), "backup_down port=9 -> mark_down()"),
        (
            ecmp_group(2, [port(10), port(9)]).unwrap(),
            "ecmp_group dst_leaf=2 -> [1xto_ecmp_port(port=9), 1xto_ecmp_port(port=10)]",
        ),
        (
            switch_salt(job(99), HashSlice::SECOND),
            "switch_salt default -> set_salt(salt=99, shift=8)",
        ),
        (spraying(HashSlice::FIRST), "spraying default -> spray(stride=65536)"),
    ]
}

#[test]
fn ids_and_names_are_those_of_the_program() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    for (id, name) in table::ALL {
        assert_eq!(p4info.table(*id).unwrap().name, name.to_lowercase());
    }
    for (id, name) in action::ALL {
        assert_eq!(p4info.action(*id).unwrap().name, name.to_lowercase());
    }
    assert_eq!(p4info.tables().count(), table::ALL.len());
    // And NoAction, which needs no constant.
    assert_eq!(p4info.actions().count(), action::ALL.len() + 1);
    assert_eq!(p4info.counter(PORT_LEVEL).unwrap().name, "port_level");
    assert_eq!(p4info.counter(REFUSED).unwrap().name, "refused");
}

#[test]
fn every_table_has_a_constructor_whose_entries_fit_it() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    for (entry, text) in samples() {
        assert_eq!(p4info.display(&entry).to_string(), text);
        assert_fits(p4info, &entry, text);
    }
    for table in p4info.tables() {
        let covered = samples().iter().any(|(entry, _)| entry.key.table == table.id);
        assert!(covered, "{}", table.name);
    }
}

#[test]
fn the_order_of_writes_follows_the_references() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let rank = |id| p4info.table(id).unwrap().rank;
    let behind = [
        (table::DST_LEAF, table::ECMP_GROUP),
        (table::PATH, table::ECMP_GROUP),
        (table::FLOW_PIN, table::PATH),
        (table::FLOW_PIN, table::JOB_QOS),
        (table::JOB_CLASSIFY, table::JOB_QOS),
        (table::JOB_PAIR, table::JOB_QOS),
    ];
    for (later, earlier) in behind {
        assert!(rank(later) > rank(earlier), "{later:?} {earlier:?}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let message = |error: OutOfRange| error.to_string();
    assert_eq!(PortNumber::new(512).map_err(message), Err("port 512 is above 511".into()));
    assert_eq!(PriorityLevel::new(8).map_err(message), Err("level 8 is above 7".into()));
    let prefix = IpPrefix::new([10, 0, 0, 1].into(), 33).map_err(message);
    assert_eq!(prefix, Err("prefix length 33 is above 32".into()));
    assert_eq!(ecmp_group(2, []), None);
    let mixed = FlowKey::for_roce([10, 0, 0, 1], std::net::Ipv6Addr::LOCALHOST, 1);
    assert_eq!(flow_pin(PinPoint::Transit, &mixed, 1, job(1)), None);
}

#[test]
fn cells_of_the_counters_by_port_fit_them() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    assert_eq!(port_level_index(port(511), level(7)), 4095);
    assert_eq!(refusal_index(port(511), Refusal::Foreign), 4092);
    for counter in [PORT_LEVEL, REFUSED] {
        assert_eq!(p4info.counter(counter).unwrap().size, 4096);
    }
}

#[test]
fn joined_prefixes_are_the_fewest_with_the_same_addresses() {
    let leaves = (1..=6).map(|leaf| prefix([10, 0, leaf, 0], 24));
    let single = [prefix([10, 0, 3, 7], 32), prefix([10, 9, 0, 2], 32), prefix([10, 9, 0, 3], 32)];
    let joined = IpPrefix::join_all(leaves.chain(single));
    let expected = [
        prefix([10, 0, 1, 0], 24),
        prefix([10, 0, 2, 0], 23),
        prefix([10, 0, 4, 0], 23),
        prefix([10, 0, 6, 0], 24),
        prefix([10, 9, 0, 2], 31),
    ];
    assert_eq!(joined, expected);
    let halves = [prefix6("::", 1), prefix6("8000::", 1), prefix([0, 0, 0, 0], 1)];
    assert_eq!(IpPrefix::join_all(halves), [prefix([0, 0, 0, 0], 1), prefix6("::", 0)]);
}

fn assert_fits(p4info: &P4Info, entry: &TableEntry, text: &str) {
    let table = p4info.table(entry.key.table).unwrap();
    if let crate::entry::TableRow::Match { fields, priority } = &entry.key.row {
        assert_eq!(*priority > 0, table.needs_priority(), "{text}");
        for field in fields {
            let known = table.field(field.id).unwrap();
            let (kind, value) = match &field.matches {
                FieldMatch::Exact(value) => (MatchKind::Exact, value.clone()),
                FieldMatch::Lpm { value, .. } => (MatchKind::Lpm, (*value).into()),
                FieldMatch::Ternary { value, mask } => (MatchKind::Ternary, (value | mask).into()),
                FieldMatch::Range { high, .. } => (MatchKind::Range, (*high).into()),
                FieldMatch::Optional(value) => (MatchKind::Optional, value.clone()),
            };
            assert_eq!(kind, known.kind, "{text}");
            assert_value(&known.info, &value, text);
        }
        let mandatory = table.fields.iter().filter(|field| field.kind == MatchKind::Exact);
        for field in mandatory {
            assert!(fields.iter().any(|given| given.id == field.info.id), "{text}");
        }
    }
    for call in entry.value.action.action_calls() {
        assert!(table.row_actions.contains(&call.action), "{text}");
        let params = &p4info.action(call.action).unwrap().params;
        assert_eq!(params.len(), call.params.len(), "{text}");
        for (slot, param) in params.iter().zip(&call.params) {
            assert_eq!(slot.id, param.id, "{text}");
            assert_value(slot, &param.value, text);
        }
    }
    let indirect = matches!(entry.value.action, ActionSpec::OneShot(_));
    assert_eq!(indirect, table.profile.is_some(), "{text}");
}

/// An address is sent to leaves after the paths there, which `@refers_to` alone does not say.
#[test]
fn what_sends_packets_to_leaves_is_written_after_the_paths_there() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let rank = |table| p4info.table(table).unwrap().rank;
    assert!(rank(table::ECMP_GROUP) < rank(table::PATH));
    assert!(rank(table::PATH) < rank(table::DST_LEAF));
    assert!(rank(table::PATH) < rank(table::DST_LEAF6));
}

fn assert_value(slot: &FieldInfo, value: &FieldValue, text: &str) {
    let fits = value.number() <= slot.max_number();
    assert!(fits, "{value:?} does not fit {}: {text}", slot.name);
}
