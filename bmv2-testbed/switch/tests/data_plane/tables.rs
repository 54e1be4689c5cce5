//! The control API: accepted and refused entries, and which entry wins.

use std::collections::BTreeSet;

use switch::{
    ControlError, CounterData, Device, DeviceConfig, GroupMember, KeyField, MatchKey, PortState,
    TableAction,
};

use crate::support::{
    ByName, FLOW, Flow, HERE, LEAF, THERE, call, device, exact, index, leaf, pin_key, prefix,
    program, selector, ternary, unranked,
};

#[test]
fn the_longest_prefix_wins_whatever_the_order() {
    let routes = [(0, 0, 20), (0x0a00_0000, 8, 21), (0x0a00_0100, 24, 22), (THERE, 32, 23)];
    for turn in 0..routes.len() {
        let mut leaf = device();
        let mut order = routes;
        order.rotate_left(turn);
        for (at, (value, bits, id)) in order.iter().enumerate() {
            leaf.add("dst_leaf", &[prefix(*value, *bits)], "set_dst_leaf", &[*id]);
            let member = at as u32;
            let to = call("ecmp_group", "to_ecmp_port", &[*id]);
            leaf.insert_member(selector(), member, to).unwrap();
            let key = unranked(&[KeyField::Exact(*id)]);
            leaf.insert_entry(index("ecmp_group"), key, TableAction::Member(member)).unwrap();
        }
        for (dst, port) in [(0x0b00_0000, 20), (0x0a01_0000, 21), (0x0a00_01ff, 22), (THERE, 23)] {
            assert_eq!(leaf.send_one(1, &Flow { dst, ..FLOW }.packet(100)).port, port);
        }
        leaf.delete_entry(index("dst_leaf"), &unranked(&[prefix(THERE, 32)])).unwrap();
        assert_eq!(leaf.send_one(1, &FLOW.packet(100)).port, 22);
    }
}

#[test]
fn among_equal_ternary_priorities_the_first_place_wins() {
    let mut leaf = leaf();
    leaf.add("job_qos", &[exact(1)], "set_class", &[1, 8]);
    leaf.add("job_qos", &[exact(2)], "set_class", &[2, 16]);
    let any = ternary(0, 0);
    let from = |mask| MatchKey {
        fields: vec![ternary(HERE & mask, mask), any, any, any, any],
        priority: 7,
    };
    leaf.try_add("job_classify", from(0xffff_0000), "set_job", &[1]).unwrap();
    leaf.try_add("job_classify", from(0xffff_ff00), "set_job", &[2]).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).level, 1);
    leaf.delete_entry(index("job_classify"), &from(0xffff_0000)).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).level, 2);
    // A new entry takes the place that was freed, before the other one, as in bmv2.
    leaf.try_add("job_classify", from(0xff00_0000), "set_job", &[1]).unwrap();
    assert_eq!(leaf.send_one(1, &FLOW.packet(100)).level, 1);
}

#[test]
fn a_full_table_refuses_and_a_deleted_entry_makes_room() {
    let mut leaf = device();
    let rows: Vec<MatchKey> = (0..64).map(|dscp| unranked(&[exact(dscp)])).collect();
    for key in &rows {
        leaf.try_add("dscp_level", key.clone(), "set_level", &[1]).unwrap();
    }
    let mut ports = (0..512).map(|port| unranked(&[exact(port)]));
    assert!(ports.all(|key| leaf.try_add("port_down", key, "mark_down", &[]).is_ok()));
    let any = ternary(0, 0);
    let rule = |priority| MatchKey { fields: vec![any; 5], priority };
    for priority in 1..=64 {
        leaf.try_add("acl_punt", rule(priority), "drop", &[]).unwrap();
    }
    let one_more = |leaf: &mut Device| leaf.try_add("acl_punt", rule(65), "drop", &[]);
    assert_eq!(one_more(&mut leaf), Err(ControlError::Full { size: 64 }));
    leaf.delete_entry(index("acl_punt"), &rule(3)).unwrap();
    assert_eq!(one_more(&mut leaf), Ok(()));
    assert_eq!(leaf.entry_count(index("acl_punt")), Ok(64));
}

/// One refused write and why.
fn check_refused(table: &str, key: MatchKey, action: &str, arguments: &[u128], why: &str) {
    let refused = leaf().try_add(table, key, action, arguments);
    assert_eq!(refused.unwrap_err().to_string(), why);
}

fn ranked(fields: &[KeyField], priority: u32) -> MatchKey {
    MatchKey { fields: fields.to_vec(), priority }
}

/// One refused key of a table whose action takes `arguments`.
fn check_key(table: &str, key: MatchKey, why: &str) {
    let (action, arguments): (_, &[u128]) = match table {
        "local_host" => ("to_host", &[1, 2]),
        "dst_leaf" => ("set_dst_leaf", &[1]),
        _ => ("drop", &[]),
    };
    check_refused(table, key, action, arguments, why);
}

#[test]
fn refused_keys_return_the_reason() {
    let any = ternary(0, 0);
    let wide = KeyField::Exact(1 << 32);
    let loose = KeyField::Ternary { value: 3, mask: 1 };
    check_key("local_host", unranked(&[exact(HERE)]), "it exists already");
    check_key("local_host", unranked(&[]), "the key has 0 fields, the table 1");
    check_key("local_host", ranked(&[exact(THERE)], 3), "this table takes no priority");
    check_key("acl_punt", ranked(&[any; 5], 0), "this table needs a priority above 0");
    let kind = "key field dst has another kind of match";
    check_key("local_host", unranked(&[any]), kind);
    check_key("local_host", unranked(&[wide]), "key field dst is wider than the field");
    let beyond = "key field dst has bits set beyond its prefix";
    check_key("dst_leaf", unranked(&[prefix(THERE, 24)]), beyond);
    let longer = "key field dst has a prefix longer than the field";
    check_key("dst_leaf", unranked(&[prefix(THERE, 33)]), longer);
    let outside = "key field ether_type has bits set outside its mask";
    check_key("acl_punt", ranked(&[loose, any, any, any, any], 1), outside);
}

#[test]
fn refused_calls_return_the_reason() {
    let key = || unranked(&[exact(THERE)]);
    let why = "action IngressImpl.to_host takes 2 arguments, 1 were given";
    check_refused("local_host", key(), "to_host", &[1], why);
    let why = "argument port of IngressImpl.to_host is wider than 9 bits";
    check_refused("local_host", key(), "to_host", &[512, 0], why);
    let why = "this table takes members or groups of its profile";
    check_refused("ecmp_group", unranked(&[exact(9)]), "to_ecmp_port", &[1], why);
}

#[test]
fn foreign_actions_and_constant_defaults_are_refused() {
    let mut leaf = leaf();
    let foreign = call("path", "to_uplink", &[1, 2]);
    let key = unranked(&[exact(THERE)]);
    assert!(matches!(
        leaf.insert_entry(index("local_host"), key.clone(), TableAction::Action(foreign)),
        Err(ControlError::ForeignAction { .. })
    ));
    let refused = leaf.insert_entry(index("local_host"), key.clone(), TableAction::Member(1));
    assert!(matches!(refused, Err(ControlError::TargetKind(_))));
    let default = call("local_host", "to_host", &[1, 2]);
    let refused = leaf.set_default_action(index("local_host"), default);
    assert_eq!(refused, Err(ControlError::Constant("the default action")));
    assert_eq!(leaf.delete_entry(index("local_host"), &key), Err(ControlError::NotFound));
    let nothing = leaf.modify_entry(index("path"), &key, TableAction::Member(0));
    assert!(matches!(nothing, Err(ControlError::TargetKind(_))));
    let refused = leaf.set_direct_count(index("local_host"), &key, CounterData::default());
    assert_eq!(refused, Err(ControlError::NoDirectCounter));
}

#[test]
fn a_device_without_a_program_drops_and_refuses() {
    let mut device =
        Device::new(DeviceConfig { device_id: 1, cpu_port: 255, levels: 8, trusts_dscp: false });
    assert_eq!(device.send(1, &FLOW.packet(100)), []);
    assert_eq!(device.counts().dropped_without_program, 1);
    assert_eq!(device.entry_count(index("path")), Err(ControlError::NoProgram));
}

#[test]
fn loading_again_wipes_what_was_written() {
    let mut leaf = leaf();
    leaf.load_program(program());
    assert_eq!(leaf.entry_count(index("local_host")), Ok(0));
    assert_eq!(leaf.members(selector()).unwrap().count(), 0);
}

#[test]
fn members_and_groups_in_use_stay() {
    let mut leaf = leaf();
    let profile = selector();
    assert_eq!(leaf.delete_member(profile, 100), Err(ControlError::InUse("a group")));
    assert_eq!(leaf.delete_group(profile, 1), Err(ControlError::InUse("a table entry")));
    let missing = vec![GroupMember::unwatched(9, 1)];
    assert_eq!(leaf.modify_group(profile, 1, missing), Err(ControlError::NoSuchMember(9)));
    let twice = vec![GroupMember::unwatched(100, 1); 2];
    assert_eq!(leaf.modify_group(profile, 1, twice), Err(ControlError::BadGroup(100)));
    leaf.delete_entry(index("ecmp_group"), &unranked(&[KeyField::Exact(LEAF)])).unwrap();
    leaf.delete_group(profile, 1).unwrap();
    leaf.delete_member(profile, 100).unwrap();
    assert_eq!(leaf.member(profile, 100), Err(ControlError::NotFound));
}

#[test]
fn weights_divide_a_group_and_an_empty_group_is_a_miss() {
    let mut leaf = leaf();
    let weighted =
        [(100, 3), (101, 1)].map(|(member, weight)| GroupMember::unwatched(member, weight));
    leaf.modify_group(selector(), 1, weighted.to_vec()).unwrap();
    let mut ports = [0, 0];
    for sport in 0..1024 {
        let out = leaf.send_one(1, &Flow { sport, ..FLOW }.packet(100));
        ports[usize::from(out.port - 10)] += 1;
    }
    // 768 and 256, within four standard deviations.
    assert!(i32::abs_diff(ports[0], 768) <= 55, "{ports:?}");
    leaf.modify_group(selector(), 1, Vec::new()).unwrap();
    assert_eq!(leaf.send(1, &FLOW.packet(100)), []);
}

#[test]
fn a_member_whose_watched_port_is_down_is_not_selected() {
    use PortState::{Absent, Down, Up};

    let mut leaf = leaf();
    let watched = [(100, 10), (101, 11)].map(|(member, port)| GroupMember {
        watch: Some(port),
        ..GroupMember::unwatched(member, 1)
    });
    leaf.modify_group(selector(), 1, watched.to_vec()).unwrap();
    let ports = |leaf: &mut Device| -> BTreeSet<u16> {
        let flows = (0..64).map(|sport| Flow { sport, ..FLOW }.packet(100));
        flows.flat_map(|packet| leaf.send(1, &packet)).map(|out| out.port).collect()
    };
    assert_eq!(ports(&mut leaf), [10, 11].into(), "nobody has reported any port");
    let cases = [
        (vec![(10, Up), (11, Up)], vec![10, 11]),
        (vec![(10, Up), (11, Down)], vec![10]),
        (vec![(10, Absent), (11, Up)], vec![11]),
        (vec![], vec![]),
        (vec![(10, Up), (11, Up)], vec![10, 11]),
    ];
    for (states, selected) in cases {
        leaf.set_port_states(&states);
        assert_eq!(ports(&mut leaf), selected.into_iter().collect(), "{states:?}");
    }
    // Entries that are written while a port is down count as well.
    leaf.set_port_states(&[(11, Up)]);
    leaf.modify_group(selector(), 1, watched.to_vec()).unwrap();
    assert_eq!(ports(&mut leaf), [11].into());
    assert_eq!(leaf.group(selector(), 1).unwrap(), watched, "it is read as it was written");
}

#[test]
fn entries_read_back_in_key_order_with_their_counters() {
    let mut leaf = device();
    for sport in [3, 1, 2] {
        leaf.add("flow_pin", &pin_key(Flow { sport, ..FLOW }), "pin", &[1, u128::from(sport)]);
    }
    let pins = index("flow_pin");
    let key = unranked(&pin_key(Flow { sport: 2, ..FLOW }));
    leaf.set_direct_count(pins, &key, CounterData { packets: 7, bytes: 70 }).unwrap();
    leaf.modify_entry(pins, &key, TableAction::Action(call("flow_pin", "pin", &[5, 6]))).unwrap();
    let read: Vec<(KeyField, u64)> =
        leaf.entries(pins).unwrap().map(|e| (e.key.fields[3], e.count.packets)).collect();
    assert_eq!(read, [(exact(1), 0), (exact(2), 7), (exact(3), 0)]);
}

#[test]
fn names_lead_to_the_objects_of_the_p4info() {
    let program = program();
    let pins = program.table(index("flow_pin")).unwrap();
    let names: Vec<&str> = pins.keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["src", "dst", "proto", "sport", "dport"]);
    assert_eq!((pins.size, pins.direct_counter), (16384, true));
    for (counter, table) in [("pin_counter", "flow_pin"), ("class_counter", "job_classify")] {
        let counted = program.direct_counter_named(&format!("IngressImpl.{counter}"));
        assert_eq!(counted, Some(index(table)));
    }
    let profile = program.profile(selector()).unwrap();
    assert_eq!((profile.size, profile.with_selector), (4096, true));
    assert!(program.action_named(&profile.actions, "IngressImpl.to_ecmp_port").is_some());
}
