//! Table entries: writes and reads of every table of `fabric.p4`, and what must be refused.

use p4rt::entity::Entity;
use p4rt::set_forwarding_pipeline_config_request::Action::VerifyAndCommit;
use p4rt::table_action::Type as Action;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::ServiceOptions;
use tonic::Code;

use crate::bench::{Bench, Controller, config, soon, uint128};
use crate::samples::{Samples, delete, id_of, insert, modify, table_entry, update};

pub(crate) async fn start() -> (Bench, Controller, Samples) {
    let bench = Bench::start(ServiceOptions::default()).await;
    let controller = bench.primary().await;
    (bench, controller, Samples::new())
}

pub(crate) async fn read_table(
    controller: &mut Controller,
    query: p4rt::TableEntry,
) -> Vec<p4rt::TableEntry> {
    let found = controller.read(vec![table_entry(query)]).await.unwrap();
    let entry = |found: p4rt::Entity| match found.entity {
        Some(Entity::TableEntry(entry)) => entry,
        other => panic!("a table entry was due, not {other:?}"),
    };
    found.into_iter().map(entry).collect()
}

pub(crate) fn whole(table_id: u32) -> p4rt::TableEntry {
    p4rt::TableEntry { table_id, ..p4rt::TableEntry::default() }
}

#[tokio::test]
async fn entries_of_every_table_are_read_back_as_written() {
    let (_bench, mut controller, samples) = start().await;
    for table in samples.info.tables.iter().filter(|table| !table.match_fields.is_empty()) {
        let name = &table.preamble.as_ref().unwrap().alias;
        let mut entries: Vec<_> = (1..=3).map(|n| samples.entry(table, n, 0)).collect();
        controller.write(entries.iter().map(insert).collect()).await.unwrap();
        assert_eq!(read_table(&mut controller, whole(id_of(table))).await, entries, "{name}");

        let changed = p4rt::TableEntry {
            action: samples.entry(table, 5, 1).action,
            metadata: Vec::new(),
            ..entries[1].clone()
        };
        controller.write(vec![modify(&changed), delete(&entries[0])]).await.unwrap();
        entries = vec![changed.clone(), entries[2].clone()];
        assert_eq!(read_table(&mut controller, whole(id_of(table))).await, entries, "{name}");

        let one = p4rt::TableEntry { action: None, metadata: Vec::new(), ..changed.clone() };
        assert_eq!(read_table(&mut controller, one).await, [changed], "{name}");
        controller.write(entries.iter().map(delete).collect()).await.unwrap();
        assert!(read_table(&mut controller, whole(id_of(table))).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn queries_filter_by_priority_action_and_metadata() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("acl_punt");
    let at = |priority, n, choice| p4rt::TableEntry { priority, ..samples.entry(table, n, choice) };
    let entries = [at(10, 1, 0), at(20, 2, 1), at(20, 1, 1)];
    controller.write(entries.iter().map(insert).collect()).await.unwrap();
    let mut count = async |query| read_table(&mut controller, query).await.len();
    let id = id_of(table);
    assert_eq!(count(whole(0)).await, 3);
    assert_eq!(count(p4rt::TableEntry { priority: 20, ..whole(id) }).await, 2);
    assert_eq!(count(p4rt::TableEntry { action: entries[0].action.clone(), ..whole(id) }).await, 1);
    let metadata = entries[0].metadata.clone();
    assert_eq!(count(p4rt::TableEntry { metadata, ..whole(id) }).await, 2);
    let fields = entries[0].r#match.clone();
    assert_eq!(count(p4rt::TableEntry { r#match: fields, ..whole(id) }).await, 2);
}

#[tokio::test]
async fn a_large_table_is_read_in_several_messages() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("flow_pin");
    let entries: Vec<_> = (1..=3000).map(|n| insert(&samples.entry(table, n, 0))).collect();
    controller.write(entries).await.unwrap();
    let request = p4rt::ReadRequest {
        device_id: crate::bench::DEVICE,
        entities: vec![table_entry(whole(id_of(table)))],
        role: String::new(),
    };
    let mut answer = soon(controller.client.read(request)).await.unwrap().into_inner();
    let mut sizes = Vec::new();
    while let Some(message) = soon(answer.message()).await.unwrap() {
        sizes.push(message.entities.len());
    }
    assert_eq!(sizes, [1024, 1024, 952]);
}

#[tokio::test]
async fn the_default_action_is_changed_and_reset() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("switch_salt");
    let query = p4rt::TableEntry { is_default_action: true, ..whole(id_of(table)) };
    let original = read_table(&mut controller, query.clone()).await;
    let action = Action::Action(samples.action(table, 0xabcd, 0));
    let changed = p4rt::TableEntry {
        action: Some(p4rt::TableAction { r#type: Some(action) }),
        metadata: b"salt".to_vec(),
        ..query.clone()
    };
    controller.write(vec![modify(&changed)]).await.unwrap();
    let found = read_table(&mut controller, query.clone()).await;
    assert_eq!(found.as_slice(), std::slice::from_ref(&changed));
    let kinds = [insert(&changed), delete(&changed)];
    assert_eq!(controller.codes(kinds.to_vec()).await, [Code::InvalidArgument; 2]);
    controller.write(vec![modify(&query)]).await.unwrap();
    assert_eq!(read_table(&mut controller, query).await, original);
}

/// Where actions are in a profile and P4Info names no default, the entry has no action, as with bmv2:
/// finsy reads that as `NoAction()`.
#[tokio::test]
async fn every_table_has_one_default_entry() {
    let (_bench, mut controller, samples) = start().await;
    let mut config = config(2);
    for table in &mut config.p4info.as_mut().unwrap().tables {
        if table.implementation_id != 0 {
            table.const_default_action_id = 0;
        }
    }
    controller.set(VerifyAndCommit, Some(config)).await.unwrap();
    for table in &samples.info.tables {
        let query = p4rt::TableEntry { is_default_action: true, ..whole(id_of(table)) };
        let found = read_table(&mut controller, query).await;
        let [entry] = found.as_slice() else { panic!("{} entries of {table:?}", found.len()) };
        assert!(entry.is_default_action);
        assert_eq!(entry.action.is_none(), table.implementation_id != 0, "{table:?}");
    }
    let query = p4rt::TableEntry { is_default_action: true, ..whole(0) };
    assert_eq!(read_table(&mut controller, query).await.len(), samples.info.tables.len());
}

/// Each update with its own code; the batch is carried out one by one.
#[tokio::test]
async fn every_update_has_its_own_error() {
    let (_bench, mut controller, samples) = start().await;
    let host = samples.entry(samples.table("local_host"), 1, 0);
    let punt = samples.entry(samples.table("acl_punt"), 1, 0);
    let pin = samples.entry(samples.table("flow_pin"), 1, 0);
    let with_bytes = |value: &[u8]| {
        let mut entry = samples.entry(samples.table("local_host"), 9, 0);
        let value = value.to_vec();
        let exact = p4rt::field_match::FieldMatchType::Exact(p4rt::field_match::Exact { value });
        entry.r#match[0].field_match_type = Some(exact);
        insert(&entry)
    };
    let at = |priority| insert(&p4rt::TableEntry { priority, ..punt.clone() });
    let empty = p4rt::Entity { entity: None };
    let cases = vec![
        (Code::Ok, insert(&host)),
        (Code::AlreadyExists, insert(&host)),
        (Code::NotFound, modify(&pin)),
        (Code::NotFound, delete(&punt)),
        (Code::InvalidArgument, at(0)),
        (Code::InvalidArgument, at(-1)),
        (Code::OutOfRange, with_bytes(b"")),
        (Code::OutOfRange, with_bytes(b"\x01\x00\x00\x00\x00")),
        (Code::Ok, with_bytes(b"\x00\x00\x00\x00\x0a\x00\x00\x07")),
        (Code::AlreadyExists, with_bytes(b"\x0a\x00\x00\x07")),
        (Code::InvalidArgument, update(Kind::Unspecified, table_entry(host))),
        (Code::InvalidArgument, update(Kind::Insert, empty)),
    ];
    let (expected, updates): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(controller.codes(updates).await, expected);
}

/// One thing wrong with an entry that is otherwise right.
type Flaw = fn(&mut p4rt::TableEntry);

#[tokio::test]
async fn an_entry_with_one_flaw_is_refused() {
    let (_bench, mut controller, samples) = start().await;
    let host = samples.entry(samples.table("local_host"), 1, 0);
    let flaws: [(Code, Flaw); 11] = [
        (Code::InvalidArgument, |entry| entry.table_id = 0x0200_ffff),
        (Code::InvalidArgument, |entry| entry.r#match.clear()),
        (Code::InvalidArgument, |entry| entry.r#match[0].field_id = 9),
        (Code::InvalidArgument, |entry| {
            entry.r#match.push(entry.r#match[0].clone());
        }),
        (Code::InvalidArgument, |entry| entry.priority = 1),
        (Code::InvalidArgument, |entry| entry.action = None),
        (Code::InvalidArgument, |entry| entry.is_const = true),
        (Code::InvalidArgument, |entry| entry.idle_timeout_ns = 1),
        (Code::InvalidArgument, |entry| {
            entry.counter_data = Some(p4rt::CounterData::default());
        }),
        (Code::InvalidArgument, |entry| {
            entry.meter_config = Some(p4rt::MeterConfig::default());
        }),
        (Code::Unimplemented, |entry| {
            entry.meter_counter_data = Some(p4rt::MeterCounterData::default());
        }),
    ];
    for (at, (expected, flaw)) in flaws.into_iter().enumerate() {
        let mut entry = host.clone();
        flaw(&mut entry);
        assert_eq!(controller.codes(vec![insert(&entry)]).await, [expected], "flaw {at}");
    }
}

#[tokio::test]
async fn unsupported_constructs_are_named() {
    let (_bench, mut controller, _) = start().await;
    let session = p4rt::CloneSessionEntry {
        session_id: 1,
        class_of_service: 3,
        ..p4rt::CloneSessionEntry::default()
    };
    let session = p4rt::packet_replication_engine_entry::Type::CloneSessionEntry(session);
    let entry = p4rt::PacketReplicationEngineEntry { r#type: Some(session) };
    let of_service = Entity::PacketReplicationEngineEntry(entry);
    let codes = controller.codes(vec![update(Kind::Insert, wrap(of_service))]).await;
    assert_eq!(codes, [Code::Unimplemented], "class_of_service");
    {
        let (entity, name) = (Entity::ExternEntry(p4rt::ExternEntry::default()), "ExternEntry");
        let entity = wrap(entity);
        let written = controller.codes(vec![update(Kind::Insert, entity.clone())]).await;
        assert_eq!(written, [Code::Unimplemented], "{name}");
        let read = controller.read(vec![entity]).await.unwrap_err();
        assert_eq!(crate::bench::codes(&read), [Code::Unimplemented], "{name}");
    }
    let request = p4rt::WriteRequest {
        device_id: crate::bench::DEVICE,
        election_id: uint128(1),
        atomicity: p4rt::write_request::Atomicity::RollbackOnError as i32,
        ..p4rt::WriteRequest::default()
    };
    let refused = soon(controller.client.write(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("ROLLBACK_ON_ERROR"), "{refused}");
}

fn wrap(entity: Entity) -> p4rt::Entity {
    p4rt::Entity { entity: Some(entity) }
}

#[tokio::test]
async fn actions_are_held_to_their_scope_and_parameters() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("local_host");
    let no_action = table.const_default_action_id;
    let with = |change: &dyn Fn(&mut p4rt::Action)| {
        let mut action = samples.action(table, 1, 0);
        change(&mut action);
        let action = Some(p4rt::TableAction { r#type: Some(Action::Action(action)) });
        insert(&p4rt::TableEntry { action, ..samples.entry(table, 1, 0) })
    };
    let mut cases = vec![
        (Code::PermissionDenied, with(&|action| action.action_id = no_action)),
        (Code::InvalidArgument, with(&|action| action.action_id = 1)),
        (Code::InvalidArgument, with(&|action| action.params.truncate(1))),
        (Code::InvalidArgument, with(&|action| action.params[0].param_id = 9)),
        (Code::InvalidArgument, with(&|action| action.params[1].param_id = 1)),
        (Code::OutOfRange, with(&|action| action.params[0].value = vec![0x02, 0x00])),
        (Code::OutOfRange, with(&|action| action.params[0].value.clear())),
    ];
    let fixed = p4rt::TableEntry {
        is_default_action: true,
        action: samples.entry(table, 1, 0).action,
        ..whole(id_of(table))
    };
    cases.push((Code::PermissionDenied, modify(&fixed)));
    let (expected, updates): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(controller.codes(updates).await, expected);
}

#[tokio::test]
async fn a_full_table_refuses_more() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("dscp_level");
    let updates = (0..64).map(|n| insert(&samples.entry(table, n, 0))).collect();
    controller.write(updates).await.unwrap();
    let table = samples.table("acl_punt");
    let size = u64::try_from(table.size).unwrap();
    let updates = (0..=size).map(|n| insert(&samples.entry(table, n, 0))).collect();
    let codes = controller.codes(updates).await;
    assert_eq!(codes.iter().filter(|code| **code == Code::Ok).count(), table.size as usize);
    assert_eq!(codes.last(), Some(&Code::ResourceExhausted));
}
