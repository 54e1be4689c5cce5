//! What a PINS switch does otherwise, over gRPC: each difference of docs/sai.md has a test.

use std::sync::LazyLock;

use p4rt::entity::Entity;
use p4rt::field_match::{Exact, FieldMatchType, Lpm, Optional, Ternary};
use p4rt::set_forwarding_pipeline_config_request::Action as SetAction;
use p4rt::table_action::Type as ActionType;
use p4rt::update::Type as Kind;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use switch::{DeviceConfig, EmulatedNetworkBuilder};
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use switch_server::p4runtime::pins::PortNames;
use tonic::{Code, Status};

use crate::bench::{Bench, CPU_PORT, Controller, DEVICE, codes, config_of, soon, uint128};

const JSON: &[u8] = include_bytes!("../../../../p4/sai/sai.json");
const INFO: &str = include_str!("../../../../p4/sai/sai.p4info.txtpb");
const ROLE: &str = "sdn_controller";
static SAI: LazyLock<P4Info> = LazyLock::new(|| P4Info::from_text(INFO).unwrap());

fn options(port_names: PortNames) -> ServiceOptions {
    ServiceOptions { dialect: SwitchDialect::Pins, port_names, ..ServiceOptions::default() }
}

/// A switch that runs sai.p4, and its primary of the owner's role.
async fn sai_switch(port_names: PortNames) -> (Bench, Controller) {
    let bench = Bench::start(options(port_names)).await;
    let mut controller = owner(&bench, 1).await;
    let set = set(&mut controller, SetAction::VerifyAndCommit, 1).await;
    set.unwrap();
    (bench, controller)
}

async fn owner(bench: &Bench, election_id: u128) -> Controller {
    let mut controller = Controller::open(bench.client().await, election_id).await;
    controller.claim_for(DEVICE, ROLE).await;
    assert_eq!(controller.notice().await.0, Code::Ok);
    controller
}

async fn set(controller: &mut Controller, action: SetAction, cookie: u64) -> Result<(), Status> {
    let mut config = config_of(JSON, INFO);
    config.cookie = Some(p4rt::forwarding_pipeline_config::Cookie { cookie });
    set_config(controller, action, Some(config)).await
}

async fn set_config(
    controller: &mut Controller,
    action: SetAction,
    config: Option<p4rt::ForwardingPipelineConfig>,
) -> Result<(), Status> {
    let request = p4rt::SetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        role: ROLE.into(),
        election_id: uint128(controller.election_id),
        action: action as i32,
        config,
        ..p4rt::SetForwardingPipelineConfigRequest::default()
    };
    soon(controller.client.set_forwarding_pipeline_config(request)).await.map(|_| ())
}

async fn write(
    controller: &mut Controller,
    role: &str,
    updates: Vec<p4rt::Update>,
) -> Result<(), Status> {
    let request = p4rt::WriteRequest {
        device_id: DEVICE,
        role: role.into(),
        election_id: uint128(controller.election_id),
        updates,
        ..p4rt::WriteRequest::default()
    };
    soon(controller.client.write(request)).await.map(|_| ())
}

/// The code and message of each update of a batch.
async fn results(
    controller: &mut Controller,
    updates: Vec<(Kind, p4rt::TableEntry)>,
) -> Vec<(Code, String)> {
    let count = updates.len();
    let updates = updates.into_iter().map(|(kind, entry)| update(kind, entry)).collect();
    match write(controller, ROLE, updates).await {
        Ok(()) => vec![(Code::Ok, String::new()); count],
        Err(status) => {
            let details = p4runtime_proto::rpc::Status::decode(status.details()).unwrap();
            let errors = details.details.iter();
            errors
                .map(|any| p4rt::Error::decode(any.value.as_slice()).unwrap())
                .map(|error| (Code::from(error.canonical_code), error.message))
                .collect()
        }
    }
}

async fn result_codes(
    controller: &mut Controller,
    updates: Vec<(Kind, p4rt::TableEntry)>,
) -> Vec<Code> {
    results(controller, updates).await.into_iter().map(|(code, _)| code).collect()
}

async fn read(
    controller: &mut Controller,
    role: &str,
    query: Entity,
) -> Result<Vec<Entity>, Status> {
    let entities = vec![p4rt::Entity { entity: Some(query) }];
    let request = p4rt::ReadRequest { device_id: DEVICE, entities, role: role.into() };
    let mut answer = soon(controller.client.read(request)).await?.into_inner();
    let mut found = Vec::new();
    while let Some(message) = soon(answer.message()).await? {
        found.extend(message.entities.into_iter().filter_map(|entity| entity.entity));
    }
    Ok(found)
}

/// All rows that a role sees.
async fn rows(controller: &mut Controller, role: &str) -> Vec<p4rt::TableEntry> {
    let everything = Entity::TableEntry(p4rt::TableEntry::default());
    let found = read(controller, role, everything).await.unwrap().into_iter();
    found
        .map(|entity| match entity {
            Entity::TableEntry(entry) => entry,
            other => panic!("a table entry was due, not {other:?}"),
        })
        .collect()
}

fn update(kind: Kind, entry: p4rt::TableEntry) -> p4rt::Update {
    let entity = Some(p4rt::Entity { entity: Some(Entity::TableEntry(entry)) });
    p4rt::Update { r#type: kind as i32, entity }
}

/// A match of a field by its name.
enum TestField<'a> {
    Exact(&'a str, &'a [u8]),
    Optional(&'a str, &'a [u8]),
    Ternary(&'a str, &'a [u8], &'a [u8]),
    Lpm(&'a str, &'a [u8], i32),
}

fn row(
    table: &str,
    fields: &[TestField<'_>],
    action: &str,
    arguments: &[&[u8]],
) -> p4rt::TableEntry {
    let declared = SAI.tables.iter().find(|known| alias(known.preamble.as_ref()) == table);
    let declared = declared.expect("a table of sai.p4");
    let id = |name: &str| {
        declared.match_fields.iter().find(|field| field.name == name).expect("a field").id
    };
    let one = |field: &TestField<'_>| {
        let (name, kind) = match *field {
            TestField::Exact(name, value) => {
                (name, FieldMatchType::Exact(Exact { value: value.to_vec() }))
            }
            TestField::Optional(name, value) => {
                (name, FieldMatchType::Optional(Optional { value: value.to_vec() }))
            }
            TestField::Ternary(name, value, mask) => {
                let (value, mask) = (value.to_vec(), mask.to_vec());
                (name, FieldMatchType::Ternary(Ternary { value, mask }))
            }
            TestField::Lpm(name, value, prefix_len) => {
                (name, FieldMatchType::Lpm(Lpm { value: value.to_vec(), prefix_len }))
            }
        };
        p4rt::FieldMatch { field_id: id(name), field_match_type: Some(kind) }
    };
    let has_priority = table.starts_with("acl") || table == "l3_admit_table";
    let action = call(action, arguments);
    let action = if table == "wcmp_group_table" {
        let watch_kind = None;
        let choice = p4rt::ActionProfileAction { action: Some(action), weight: 1, watch_kind };
        ActionType::ActionProfileActionSet(p4rt::ActionProfileActionSet {
            action_profile_actions: vec![choice],
            ..p4rt::ActionProfileActionSet::default()
        })
    } else {
        ActionType::Action(action)
    };
    p4rt::TableEntry {
        table_id: declared.preamble.as_ref().unwrap().id,
        r#match: fields.iter().map(one).collect(),
        priority: i32::from(has_priority),
        action: Some(p4rt::TableAction { r#type: Some(action) }),
        ..p4rt::TableEntry::default()
    }
}

fn call(action: &str, arguments: &[&[u8]]) -> p4rt::Action {
    let declared = SAI.actions.iter().find(|known| alias(known.preamble.as_ref()) == action);
    let declared = declared.expect("an action of sai.p4");
    let params = declared.params.iter().zip(arguments);
    let params = params
        .map(|(param, value)| p4rt::action::Param { param_id: param.id, value: value.to_vec() });
    let action_id = declared.preamble.as_ref().unwrap().id;
    p4rt::Action { action_id, params: params.collect() }
}

fn alias(preamble: Option<&p4runtime_proto::config_v1::Preamble>) -> &str {
    preamble.map_or("", |preamble| &preamble.alias)
}

fn router_interface(id: &[u8], port: &[u8]) -> p4rt::TableEntry {
    let fields = [TestField::Exact("router_interface_id", id)];
    let arguments: [&[u8]; 2] = [port, &[2, 0, 0, 0, 0, 1]];
    row("router_interface_table", &fields, "unicast_set_port_and_src_mac", &arguments)
}

fn neighbor(interface: &[u8], id: &[u8]) -> p4rt::TableEntry {
    let fields =
        [TestField::Exact("router_interface_id", interface), TestField::Exact("neighbor_id", id)];
    row("neighbor_table", &fields, "set_dst_mac", &[&[2, 0, 0, 0, 0, 2]])
}

fn nexthop(id: &[u8], interface: &[u8], neighbor: &[u8]) -> p4rt::TableEntry {
    let fields = [TestField::Exact("nexthop_id", id)];
    row("nexthop_table", &fields, "set_ip_nexthop", &[interface, neighbor])
}

fn route(vrf: &[u8], nexthop: &[u8]) -> p4rt::TableEntry {
    let fields = [TestField::Exact("vrf_id", vrf), TestField::Lpm("ipv4_dst", &[10, 0, 0, 0], 8)];
    row("ipv4_table", &fields, "set_nexthop_id", &[nexthop])
}

fn vrf(id: &[u8]) -> p4rt::TableEntry {
    row("vrf_table", &[TestField::Exact("vrf_id", id)], "no_action", &[])
}

fn group(id: &[u8], nexthop: &[u8]) -> p4rt::TableEntry {
    let fields = [TestField::Exact("wcmp_group_id", id)];
    row("wcmp_group_table", &fields, "set_nexthop_id", &[nexthop])
}

fn pre_ingress(port: &[u8], vrf: &[u8]) -> p4rt::TableEntry {
    let fields = [TestField::Optional("in_port", port)];
    row("acl_pre_ingress_table", &fields, "set_vrf_and_acl_metadata", &[vrf, &[7]])
}

/// Rows of all kinds of references, each after those that it refers to.
fn linked_rows() -> Vec<p4rt::TableEntry> {
    vec![
        router_interface(b"uplink-1", b"3"),
        neighbor(b"uplink-1", &[9]),
        nexthop(b"hop-1", b"uplink-1", &[9]),
        group(b"spines", b"hop-1"),
        vrf(b"tenant"),
        route(b"tenant", b"hop-1"),
        route(b"", b"hop-1"),
        pre_ingress(b"4", b"tenant"),
    ]
}

async fn insert_linked(controller: &mut Controller) {
    let inserts = linked_rows().into_iter().map(|row| (Kind::Insert, row)).collect();
    assert_eq!(result_codes(controller, inserts).await, [Code::Ok; 8]);
}

#[tokio::test]
async fn strings_are_read_back_as_they_were_written() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    insert_linked(&mut controller).await;
    let mut found: Vec<_> = rows(&mut controller, ROLE).await;
    found.iter_mut().for_each(|row| row.counter_data = None);
    for row in linked_rows() {
        assert!(found.contains(&row), "{row:?} in {found:?}");
    }
    assert_eq!(found.len(), 8);
}

#[tokio::test]
async fn ports_have_the_names_of_the_configuration_and_no_other() {
    let names = PortNames::new([(3, "Ethernet8".into()), (4, "Ethernet12".into())]).unwrap();
    let (_bench, mut controller) = sai_switch(names).await;
    let known = router_interface(b"a", b"Ethernet8");
    for unknown in [b"3".as_slice(), b"Ethernet0", b"", &[0xff]] {
        let row = router_interface(b"b", unknown);
        let codes = result_codes(&mut controller, vec![(Kind::Insert, row)]).await;
        assert_ne!(codes, [Code::Ok], "{unknown:?}");
    }
    assert_eq!(result_codes(&mut controller, vec![(Kind::Insert, known)]).await, [Code::Ok]);
}

#[tokio::test]
async fn members_of_groups_watch_ports_by_their_names() {
    let names = PortNames::new([(3, "Ethernet8".into())]).unwrap();
    let (_bench, mut controller) = sai_switch(names).await;
    let path =
        [router_interface(b"a", b"Ethernet8"), neighbor(b"a", b"n"), nexthop(b"via-a", b"a", b"n")];
    let inserted = path.map(|row| (Kind::Insert, row)).to_vec();
    assert_eq!(result_codes(&mut controller, inserted).await, [Code::Ok; 3]);
    let group = |id: &[u8], port: &[u8]| {
        let fields = [TestField::Exact("wcmp_group_id", id)];
        let mut group = row("wcmp_group_table", &fields, "set_nexthop_id", &[b"via-a"]);
        let action = group.action.as_mut().and_then(|action| action.r#type.as_mut());
        let Some(ActionType::ActionProfileActionSet(set)) = action else {
            panic!("a group has a set of actions");
        };
        let watch = p4rt::action_profile_action::WatchKind::WatchPort(port.to_vec());
        set.action_profile_actions[0].watch_kind = Some(watch);
        group
    };
    let named = group(b"g", b"Ethernet8");
    let rows = vec![(Kind::Insert, named.clone()), (Kind::Insert, group(b"h", b"Ethernet0"))];
    let codes = result_codes(&mut controller, rows).await;
    assert_eq!(codes[0], Code::Ok);
    assert_ne!(codes[1], Code::Ok, "there is no such port");
    let wrap = |entry| p4rt::Entity { entity: Some(Entity::TableEntry(entry)) };
    let found = controller.read(vec![wrap(p4rt::TableEntry::default())]).await.unwrap();
    assert!(found.contains(&wrap(named)), "{found:?}");
}

#[tokio::test]
async fn packets_carry_the_names_of_ports() {
    use p4rt::stream_message_request::Update;
    let names = PortNames::new([(3, "Ethernet8".into())]).unwrap();
    let (bench, mut controller) = sai_switch(names).await;
    let ether_type = TestField::Ternary("ether_type", &[0x88, 0xcc], &[0xff, 0xff]);
    let trap = row("acl_ingress_table", &[ether_type], "acl_trap", &[b"queue-1"]);
    assert_eq!(result_codes(&mut controller, vec![(Kind::Insert, trap)]).await, [Code::Ok]);
    let frame = [[2; 12].as_slice(), &[0x88, 0xcc], &[0; 50]].concat();
    bench.device.inject_packet(3, frame.clone()).await.unwrap();
    let Ok(Some(p4rt::stream_message_response::Update::Packet(packet))) = controller.next().await
    else {
        panic!("a packet was due");
    };
    assert_eq!((&*packet.metadata[0].value, packet.payload), (b"Ethernet8".as_slice(), frame));

    let out = |port: &[u8]| {
        let metadata =
            |metadata_id, value: &[u8]| p4rt::PacketMetadata { metadata_id, value: value.to_vec() };
        Update::Packet(p4rt::PacketOut {
            payload: vec![0; 60],
            metadata: vec![metadata(1, port), metadata(2, &[0])],
        })
    };
    controller.send(out(b"Ethernet9")).await;
    let Ok(Some(p4rt::stream_message_response::Update::Error(error))) = controller.next().await
    else {
        panic!("an error was due");
    };
    assert_eq!(Code::from(error.canonical_code), Code::FailedPrecondition);
    controller.send(out(b"Ethernet8")).await;
    let sent = async {
        while bench.fabric.counts().await.unwrap().unwired == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(sent).await;
}

#[tokio::test]
async fn multicast_replicas_name_ports() {
    use p4rt::packet_replication_engine_entry::Type;
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    let entry = |port: &[u8]| {
        let replica = p4rt::Replica {
            instance: 1,
            port_kind: Some(p4rt::replica::PortKind::Port(port.to_vec())),
            ..p4rt::Replica::default()
        };
        let group = p4rt::MulticastGroupEntry {
            multicast_group_id: 5,
            replicas: vec![replica],
            ..p4rt::MulticastGroupEntry::default()
        };
        let r#type = Some(Type::MulticastGroupEntry(group));
        Entity::PacketReplicationEngineEntry(p4rt::PacketReplicationEngineEntry { r#type })
    };
    let insert = |entity| p4rt::Update {
        r#type: Kind::Insert as i32,
        entity: Some(p4rt::Entity { entity: Some(entity) }),
    };
    let refused = write(&mut controller, ROLE, vec![insert(entry(b"x"))]).await.unwrap_err();
    assert_eq!(codes(&refused), [Code::FailedPrecondition]);
    write(&mut controller, ROLE, vec![insert(entry(b"12"))]).await.unwrap();
    let all = Entity::PacketReplicationEngineEntry(p4rt::PacketReplicationEngineEntry::default());
    assert_eq!(read(&mut controller, ROLE, all).await.unwrap(), [entry(b"12")]);
}

#[tokio::test]
async fn only_everything_can_be_read() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    insert_linked(&mut controller).await;
    let vrf = vrf(b"tenant");
    let selections = [
        p4rt::TableEntry { table_id: vrf.table_id, ..p4rt::TableEntry::default() },
        p4rt::TableEntry { r#match: vrf.r#match.clone(), ..p4rt::TableEntry::default() },
        p4rt::TableEntry { priority: 1, ..p4rt::TableEntry::default() },
        p4rt::TableEntry { action: vrf.action.clone(), ..p4rt::TableEntry::default() },
        p4rt::TableEntry { is_default_action: true, ..p4rt::TableEntry::default() },
        p4rt::TableEntry { metadata: vec![1], ..p4rt::TableEntry::default() },
    ];
    let mut queries: Vec<_> = selections.into_iter().map(Entity::TableEntry).collect();
    queries.push(Entity::DirectCounterEntry(p4rt::DirectCounterEntry::default()));
    queries.push(Entity::ActionProfileGroup(p4rt::ActionProfileGroup::default()));
    queries.push(Entity::CounterEntry(p4rt::CounterEntry::default()));
    for query in queries {
        let status = read(&mut controller, ROLE, query.clone()).await.unwrap_err();
        assert_eq!(codes(&status), [Code::Unimplemented], "{query:?}");
    }
}

#[tokio::test]
async fn counters_come_inside_acl_rows_alone() {
    let (bench, mut controller) = sai_switch(PortNames::default()).await;
    insert_linked(&mut controller).await;
    bench.device.inject_packet(4, vec![0; 64]).await.unwrap();
    let counted: Vec<_> = rows(&mut controller, ROLE)
        .await
        .into_iter()
        .filter_map(|row| Some((row.table_id, row.counter_data?.packet_count)))
        .collect();
    assert_eq!(counted, [(pre_ingress(b"4", b"tenant").table_id, 1)]);
}

#[tokio::test]
async fn a_running_pipeline_is_reconciled_and_never_cleared() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    insert_linked(&mut controller).await;
    let again = set(&mut controller, SetAction::VerifyAndCommit, 2).await.unwrap_err();
    assert_eq!(again.code(), Code::Unimplemented);
    assert!(again.message().contains("RECONCILE_AND_COMMIT"), "{again}");
    let saved = set(&mut controller, SetAction::VerifyAndSave, 2).await.unwrap_err();
    assert_eq!(saved.code(), Code::Unimplemented);
    let nothing = set_config(&mut controller, SetAction::Commit, None).await.unwrap_err();
    assert_eq!(nothing.code(), Code::FailedPrecondition);
    let superfluous = set(&mut controller, SetAction::Commit, 2).await.unwrap_err();
    assert_eq!(superfluous.code(), Code::InvalidArgument);
    set(&mut controller, SetAction::ReconcileAndCommit, 3).await.unwrap();
    assert_eq!((controller.cookie().await, rows(&mut controller, ROLE).await.len()), (Some(3), 8));

    // Another P4Info: the state is repeated under it, strings and references included.
    let mut changed = config_of(JSON, INFO);
    changed.p4info.as_mut().unwrap().pkg_info = None;
    set_config(&mut controller, SetAction::ReconcileAndCommit, Some(changed)).await.unwrap();
    assert_eq!(rows(&mut controller, ROLE).await.len(), 8);
    let held = result_codes(&mut controller, vec![(Kind::Delete, nexthop(b"hop-1", b"", &[]))]);
    assert_eq!(held.await, [Code::InvalidArgument]);
}

#[tokio::test]
async fn a_batch_ends_at_its_first_failure() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    let batch = vec![
        (Kind::Insert, vrf(b"a")),
        (Kind::Insert, route(b"missing", b"hop")),
        (Kind::Insert, vrf(b"b")),
        (Kind::Modify, vrf(b"c")),
    ];
    let codes = result_codes(&mut controller, batch).await;
    // The last one is found first, and counts as aborted all the same.
    assert_eq!(codes, [Code::Ok, Code::NotFound, Code::Aborted, Code::Aborted]);
    assert_eq!(rows(&mut controller, ROLE).await, [vrf(b"a")]);
    let again = vec![(Kind::Insert, vrf(b"b")), (Kind::Insert, vrf(b"a"))];
    assert_eq!(result_codes(&mut controller, again).await, [Code::Ok, Code::AlreadyExists]);
}

#[tokio::test]
async fn a_batch_with_a_key_twice_is_rejected_whole() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    for second in [Kind::Insert, Kind::Modify, Kind::Delete] {
        let batch = vec![(Kind::Insert, vrf(b"a")), (Kind::Insert, vrf(b"b")), (second, vrf(b"a"))];
        let codes = result_codes(&mut controller, batch).await;
        assert_eq!(codes, [Code::InvalidArgument, Code::Aborted, Code::Aborted]);
        assert_eq!(rows(&mut controller, ROLE).await, []);
    }
}

#[tokio::test]
async fn tables_belong_to_their_role() {
    let (bench, mut controller) = sai_switch(PortNames::default()).await;
    insert_linked(&mut controller).await;
    let mut other = Controller::open(bench.client().await, 1).await;
    other.claim_for(DEVICE, "packet_replication_engine_manager").await;
    assert_eq!(other.notice().await.0, Code::Ok, "each role has a primary");
    let role = "packet_replication_engine_manager";
    let insert = update(Kind::Insert, vrf(b"a"));
    let refused = write(&mut other, role, vec![insert.clone()]).await.unwrap_err();
    assert_eq!(codes(&refused), [Code::PermissionDenied]);
    assert_eq!(rows(&mut other, role).await, []);
    assert_eq!(rows(&mut other, "").await.len(), 8, "no role sees all");
    // The role without a name may do everything.
    let mut root = bench.controller(5).await;
    write(&mut root, "", vec![insert]).await.unwrap();
}

#[tokio::test]
async fn a_switch_without_a_device_id_admits_nobody() {
    let mut builder = EmulatedNetworkBuilder::new();
    let config = DeviceConfig { device_id: 0, cpu_port: CPU_PORT, levels: 8, trusts_dscp: false };
    let index = builder.add_device(config);
    let fabric = builder.spawn().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let device = fabric.device(index);
    let served =
        switch_server::p4runtime::serve(listener, device.clone(), options(PortNames::default()));
    let bench = Bench { fabric, device, server: served.await.unwrap() };
    let mut controller = Controller::open(bench.client().await, 1).await;
    controller.claim_for(0, ROLE).await;
    assert_eq!(controller.next().await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn restrictions_are_enforced_and_quoted() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    let all: &[u8] = &[0xff, 0xff, 0xff, 0xff];
    let source = TestField::Ternary("src_ip", &[10, 0, 0, 1], all);
    let rows = [
        (
            row("acl_ingress_table", &[source], "acl_drop", &[]),
            "table acl_ingress_table requires: src_ip::mask != 0 -> is_ipv4 == 1",
        ),
        (vrf(b""), "table vrf_table requires: vrf_id != 0"),
        (
            row(
                "acl_ingress_qos_table",
                &[TestField::Ternary("acl_metadata", &[0], all)],
                "set_tc_and_dscp",
                &[&[1], &[8]],
            ),
            "table acl_ingress_qos_table requires: acl_metadata != 0",
        ),
        (
            {
                let mut row = pre_ingress(b"1", b"");
                row.priority = i32::MAX;
                row
            },
            "table acl_pre_ingress_table requires: ::priority < 0x7fffffff",
        ),
        (
            {
                let mut row = router_interface(b"a", b"1");
                let zero = call("unicast_set_port_and_src_mac", &[b"1", &[0]]);
                row.action = Some(p4rt::TableAction { r#type: Some(ActionType::Action(zero)) });
                row
            },
            "action IngressImpl.unicast_set_port_and_src_mac requires: src_mac != 0",
        ),
    ];
    for (row, message) in rows {
        let found = results(&mut controller, vec![(Kind::Insert, row)]).await;
        assert_eq!(found, [(Code::InvalidArgument, message.to_owned())]);
    }
    let allowed =
        [TestField::Optional("is_ipv4", &[1]), TestField::Ternary("src_ip", &[10, 0, 0, 1], all)];
    let allowed = row("acl_ingress_table", &allowed, "acl_drop", &[]);
    assert_eq!(result_codes(&mut controller, vec![(Kind::Insert, allowed)]).await, [Code::Ok]);
}

#[tokio::test]
async fn what_is_referred_to_exists_and_stays() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    for (row, target) in [
        (neighbor(b"uplink-1", &[9]), "router_interface_table"),
        (nexthop(b"hop-1", b"uplink-1", &[9]), "router_interface_table"),
        (group(b"spines", b"hop-1"), "nexthop_table"),
        (route(b"tenant", b"hop-1"), "vrf_table"),
        (pre_ingress(b"4", b"tenant"), "vrf_table"),
    ] {
        let found = results(&mut controller, vec![(Kind::Insert, row)]).await;
        assert_eq!(found[0].0, Code::NotFound, "{found:?}");
        assert!(found[0].1.contains(target), "{found:?}");
    }
    insert_linked(&mut controller).await;
    // A neighbour of another router interface does not serve.
    let other = router_interface(b"uplink-2", b"5");
    assert_eq!(result_codes(&mut controller, vec![(Kind::Insert, other)]).await, [Code::Ok]);
    let wrong = vec![(Kind::Modify, nexthop(b"hop-1", b"uplink-2", &[9]))];
    assert_eq!(result_codes(&mut controller, wrong).await, [Code::NotFound]);

    let mut order = linked_rows();
    for referred in [0, 1, 2, 4] {
        let delete = vec![(Kind::Delete, order[referred].clone())];
        let found = results(&mut controller, delete).await;
        assert_eq!(found[0].0, Code::InvalidArgument, "{found:?}");
    }
    // From the last to the first, nothing refers to a row that goes.
    order.reverse();
    let deletes = order.into_iter().map(|row| (Kind::Delete, row)).collect();
    assert_eq!(result_codes(&mut controller, deletes).await, [Code::Ok; 8]);
}

#[tokio::test]
async fn metadata_and_cookies_are_kept() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    let mut row = vrf(b"a");
    row.metadata = b"generation 7".to_vec();
    assert_eq!(result_codes(&mut controller, vec![(Kind::Insert, row.clone())]).await, [Code::Ok]);
    assert_eq!(rows(&mut controller, ROLE).await, [row]);
    assert_eq!(controller.cookie().await, Some(1));
}

#[tokio::test]
async fn numbers_of_deleted_strings_are_given_again() {
    let (_bench, mut controller) = sai_switch(PortNames::default()).await;
    // VRFs have 10 bits; 64 of them fit.
    for round in 0..20_u32 {
        let names: Vec<_> = (0..64).map(|n| format!("vrf-{round}-{n}").into_bytes()).collect();
        for kind in [Kind::Insert, Kind::Delete] {
            let batch = names.iter().map(|name| (kind, vrf(name))).collect();
            assert_eq!(result_codes(&mut controller, batch).await, [Code::Ok; 64], "{round}");
        }
    }
}

#[tokio::test]
async fn a_program_of_the_switch_needs_a_p4info_alone() {
    let bench = Bench::start(options(PortNames::default())).await;
    let program = std::sync::Arc::new(switch::Program::from_json(JSON).unwrap());
    bench.device.with_device(move |device| device.load_program(program)).await.unwrap();
    let mut controller = owner(&bench, 1).await;
    let config = config_of(&[], INFO);
    set_config(&mut controller, SetAction::ReconcileAndCommit, Some(config)).await.unwrap();
    insert_linked(&mut controller).await;
}
