//! What sai.p4 promises, packet by packet: routes, pins by port and by five-tuple, levels, traps.

use std::sync::{Arc, OnceLock};

use switch::{
    ActionCall, Device, DeviceOutputs, GroupMember, KeyField, MatchKey, OutputPacket, Program,
    TableAction, TableIndex,
};

use super::support::{self, CPU, FLOW, Flow, HERE, THERE, exact, internet_checksum, prefix};

const JSON: &[u8] = include_bytes!("../../../../p4/sai/sai.json");
const NIC: u16 = 1;
const OTHER_NIC: u16 = 2;
/// The ports of the uplinks, which are also the ids of their next hops.
const UPLINKS: [u32; 4] = [10, 11, 12, 13];
const GROUP: u32 = 1;
const VRF: u128 = 5;
const JOB: u32 = 7;
const ANY: KeyField = KeyField::Optional(None);
const ANY_BITS: KeyField = KeyField::Ternary { value: 0, mask: 0 };

fn program() -> &'static Arc<Program> {
    static PROGRAM: OnceLock<Arc<Program>> = OnceLock::new();
    PROGRAM.get_or_init(|| Arc::new(Program::from_json(JSON).expect("sai.json loads")))
}

fn table_index(table: &str) -> TableIndex {
    program().table_named(&format!("IngressImpl.{table}")).expect("a table of sai.p4")
}

fn call(table: &str, action: &str, arguments: &[u128]) -> ActionCall {
    let spec = program().table(table_index(table)).expect("the index is the program's");
    let name = format!("IngressImpl.{action}");
    let action = program().action_named(&spec.actions, &name).expect("an action of the table");
    ActionCall { action, arguments: arguments.to_vec() }
}

fn add(leaf: &mut Device, table: &str, key: MatchKey, action: &str, arguments: &[u128]) {
    let target = TableAction::Action(call(table, action, arguments));
    leaf.insert_entry(table_index(table), key, target).unwrap();
}

fn key(fields: &[KeyField]) -> MatchKey {
    MatchKey { fields: fields.to_vec(), priority: 0 }
}

fn acl_key(fields: &[KeyField]) -> MatchKey {
    MatchKey { fields: fields.to_vec(), priority: 10 }
}

/// A leaf whose packets to `THERE` leave by all uplinks, without pins and jobs.
fn leaf() -> Device {
    let mut leaf = Device::new(support::config(1));
    leaf.load_program(Arc::clone(program()));
    let group = program().profile_named("IngressImpl.wcmp_group_selector").unwrap();
    let mut members = Vec::new();
    for port in UPLINKS {
        let (id, mac) = (u128::from(port), 0x0200_0000_0000 + u128::from(port));
        let arguments = [id, 0x0200_0000_aa00 + id];
        let router_interface = key(&[exact(port)]);
        let action = "unicast_set_port_and_src_mac";
        add(&mut leaf, "router_interface_table", router_interface, action, &arguments);
        add(&mut leaf, "neighbor_table", key(&[exact(port), exact(port)]), "set_dst_mac", &[mac]);
        add(&mut leaf, "nexthop_table", key(&[exact(port)]), "set_ip_nexthop", &[id, id]);
        leaf.insert_member(group, port, call("wcmp_group_table", "set_nexthop_id", &[id])).unwrap();
        members.push(GroupMember::unwatched(port, 1));
    }
    leaf.insert_group(group, GROUP, members).unwrap();
    let rows = TableAction::Group(GROUP);
    leaf.insert_entry(table_index("wcmp_group_table"), key(&[exact(GROUP)]), rows).unwrap();
    add(&mut leaf, "l3_admit_table", acl_key(&[ANY_BITS, ANY]), "admit_to_l3", &[]);
    add_route(&mut leaf, 0, prefix(THERE & !0xff, 24), "set_wcmp_group_id", GROUP);
    leaf
}

fn add_route(leaf: &mut Device, vrf: u32, dst: KeyField, action: &str, to: u32) {
    add(leaf, "ipv4_table", key(&[exact(vrf), dst]), action, &[u128::from(to)]);
}

/// Sends what arrives at `NIC` by routes of its own: to `THERE` by one uplink.
fn pin_pair(leaf: &mut Device, uplink: u32) {
    add(leaf, "vrf_table", key(&[KeyField::Exact(VRF)]), "no_action", &[]);
    add_route(leaf, VRF as u32, prefix(THERE, 32), "set_nexthop_id", uplink);
    let port = KeyField::Optional(Some(u128::from(NIC)));
    let row = acl_key(&[ANY, ANY, ANY_BITS, port]);
    let arguments = [VRF, u128::from(JOB)];
    add(leaf, "acl_pre_ingress_table", row, "set_vrf_and_acl_metadata", &arguments);
}

/// The row for packets of `flow`, in the order of the table's fields.
fn flow_key(flow: Flow) -> MatchKey {
    let value = |value: u32, width: u32| {
        let mask = (1_u128 << width) - 1;
        KeyField::Ternary { value: u128::from(value), mask }
    };
    let mut fields = vec![KeyField::Optional(Some(1)), ANY, ANY_BITS];
    fields.extend([value(flow.src, 32), value(flow.dst, 32), ANY_BITS, ANY_BITS, ANY_BITS]);
    let ports = [value(u32::from(flow.dport), 16), value(u32::from(flow.sport), 16)];
    fields.push(value(17, 8));
    fields.extend(ports);
    acl_key(&fields)
}

fn send(leaf: &mut Device, port: u16, flow: Flow) -> Vec<OutputPacket> {
    let mut out = DeviceOutputs::default();
    leaf.process_packet(port, &flow.packet(100), 0, &mut out);
    out.packets
}

fn send_one(leaf: &mut Device, port: u16, flow: Flow) -> OutputPacket {
    let mut out = send(leaf, port, flow);
    assert_eq!(out.len(), 1, "one packet in, one out");
    out.remove(0)
}

fn flows() -> impl Iterator<Item = Flow> {
    (0xc000..0xc040).map(|sport| Flow { sport, ..FLOW })
}

#[test]
fn unpinned_flows_use_all_uplinks_of_their_group() {
    let mut leaf = leaf();
    let mut used: Vec<_> = flows().map(|flow| send_one(&mut leaf, NIC, flow).port).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [10, 11, 12, 13]);
}

#[test]
fn routed_packets_are_rewritten() {
    let out = send_one(&mut leaf(), NIC, FLOW);
    let port = out.port as u8;
    assert_eq!(out.packet[..6], [2, 0, 0, 0, 0, port]);
    assert_eq!(out.packet[6..12], [2, 0, 0, 0, 0xaa, port]);
    let header = support::ip_header(&out.packet);
    assert_eq!(header[8], FLOW.ttl - 1);
    assert_eq!(internet_checksum(header), 0);
}

#[test]
fn a_pair_has_its_uplink_and_other_ports_do_not() {
    let mut leaf = leaf();
    pin_pair(&mut leaf, 12);
    for flow in flows() {
        assert_eq!(send_one(&mut leaf, NIC, flow).port, 12);
    }
    let others = flows().map(|flow| send_one(&mut leaf, OTHER_NIC, flow).port);
    assert!(others.into_iter().any(|port| port != 12));
}

#[test]
fn a_five_tuple_goes_before_its_route() {
    let mut leaf = leaf();
    pin_pair(&mut leaf, 12);
    add(&mut leaf, "acl_ingress_table", flow_key(FLOW), "redirect_to_nexthop", &[10]);
    assert_eq!(send_one(&mut leaf, NIC, FLOW).port, 10);
    assert_eq!(send_one(&mut leaf, NIC, Flow { sport: FLOW.sport + 1, ..FLOW }).port, 12);
    assert_eq!(send_one(&mut leaf, NIC, Flow { src: HERE + 1, ..FLOW }).port, 12);
}

#[test]
fn one_row_sets_the_level_of_a_job() {
    let mut leaf = leaf();
    pin_pair(&mut leaf, 12);
    let job = || acl_key(&[support::ternary(JOB, u32::MAX)]);
    add(&mut leaf, "acl_ingress_qos_table", job(), "set_tc_and_dscp", &[6, 48]);
    let check = |out: &OutputPacket, level: u8| {
        let header = support::ip_header(&out.packet);
        assert_eq!((out.level, header[1] >> 2), (level, level << 3));
        assert_eq!(internet_checksum(header), 0);
    };
    check(&send_one(&mut leaf, NIC, FLOW), 6);
    let lower = TableAction::Action(call("acl_ingress_qos_table", "set_tc_and_dscp", &[2, 16]));
    leaf.modify_entry(table_index("acl_ingress_qos_table"), &job(), lower).unwrap();
    check(&send_one(&mut leaf, NIC, FLOW), 2);
    check(&send_one(&mut leaf, OTHER_NIC, Flow { dscp: 24, ..FLOW }), 3);
}

#[test]
fn packets_without_a_route_or_time_to_live_are_dropped() {
    let mut leaf = leaf();
    assert_eq!(send(&mut leaf, NIC, Flow { dst: HERE, ..FLOW }).len(), 0);
    assert_eq!(send(&mut leaf, NIC, Flow { ttl: 1, ..FLOW }).len(), 0);
    let admit = acl_key(&[ANY_BITS, ANY]);
    leaf.delete_entry(table_index("l3_admit_table"), &admit).unwrap();
    assert_eq!(send(&mut leaf, NIC, FLOW).len(), 0);
}

#[test]
fn trapped_packets_name_their_port() {
    let mut leaf = leaf();
    add(&mut leaf, "acl_ingress_table", flow_key(FLOW), "acl_trap", &[1]);
    let out = send_one(&mut leaf, NIC, FLOW);
    assert_eq!(out.port, CPU);
    // Nine bits of ingress port, nine of egress port, six of padding.
    assert_eq!(out.packet[..3], [0, 0x80, 0]);
    assert_eq!(out.packet[3..], FLOW.packet(100));
}
