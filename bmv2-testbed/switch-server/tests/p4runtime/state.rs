//! The entities of objects with state, on `tests/programs/state.p4`: meters, registers, multicast
//! groups, clone sessions, digests, value sets, idle timeouts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use p4rt::entity::Entity;
use p4rt::p4_data::Data;
use p4rt::packet_replication_engine_entry::Type as Replication;
use p4rt::replica::PortKind;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::stream_message_request::Update as Request;
use p4rt::stream_message_response::Update as Response;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use switch::DeviceOutputs;
use switch_server::p4runtime::ServiceOptions;
use tonic::Code;

use crate::bench::{Bench, Controller, config_of, soon};

const JSON: &[u8] = include_bytes!("../../../switch/tests/programs/state.json");
const INFO: &str = include_str!("../../../switch/tests/programs/state.p4info.txtpb");

async fn start() -> (Bench, Controller) {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let config = config_of(JSON, INFO);
    controller.set(Action::VerifyAndCommit, Some(config)).await.unwrap();
    (bench, controller)
}

/// The id of the object with this name.
fn id(name: &str) -> u32 {
    let info = config_of(JSON, INFO).p4info.unwrap();
    let tables = info.tables.iter().map(|table| &table.preamble);
    let actions = info.actions.iter().map(|action| &action.preamble);
    let meters = info.meters.iter().map(|meter| &meter.preamble);
    let registers = info.registers.iter().map(|register| &register.preamble);
    let digests = info.digests.iter().map(|digest| &digest.preamble);
    let sets = info.value_sets.iter().map(|set| &set.preamble);
    let all = tables.chain(actions).chain(meters).chain(registers).chain(digests).chain(sets);
    let mut named = all.flatten().filter(|preamble| preamble.alias == name);
    named.next().unwrap().id
}

fn modify(entity: Entity) -> p4rt::Update {
    update(Kind::Modify, entity)
}

fn update(kind: Kind, entity: Entity) -> p4rt::Update {
    p4rt::Update { r#type: kind as i32, entity: Some(wrap(entity)) }
}

fn wrap(entity: Entity) -> p4rt::Entity {
    p4rt::Entity { entity: Some(entity) }
}

/// Sends a packet of state.p4 in on port 1 and gives what comes out.
async fn send(bench: &Bench, kind: u16, verb: u8, value: u16) -> Vec<(u16, Vec<u8>)> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    packet.extend(kind.to_be_bytes());
    packet.push(verb);
    packet.extend(value.to_be_bytes());
    packet.push(0);
    let run = move |device: &mut switch::Device| {
        let mut out = DeviceOutputs::default();
        device.process_packet(1, &packet, device.now(), &mut out);
        out.packets.into_iter().map(|output| (output.port, output.packet)).collect()
    };
    bench.device.with_device(run).await.unwrap()
}

/// Writes an entity and reads the same back.
async fn round_trip(controller: &mut Controller, kind: Kind, entity: Entity, query: Entity) {
    let codes = controller.codes(vec![update(kind, entity.clone())]).await;
    assert_eq!(codes, [Code::Ok], "{entity:?}");
    let found = controller.read(vec![wrap(query)]).await.unwrap();
    assert_eq!(found, [wrap(entity)]);
}

#[tokio::test]
async fn a_meter_colours_by_the_rates_it_is_given() {
    let (bench, mut controller) = start().await;
    let meter = |index, cir, pir| {
        let config = p4rt::MeterConfig { cir, cburst: 20, pir, pburst: 40, eburst: 0 };
        Entity::MeterEntry(p4rt::MeterEntry {
            meter_id: id("metering"),
            index: Some(p4rt::Index { index }),
            config: Some(config),
            counter_data: None,
        })
    };
    let query = Entity::MeterEntry(p4rt::MeterEntry {
        meter_id: id("metering"),
        index: Some(p4rt::Index { index: 1 }),
        ..p4rt::MeterEntry::default()
    });
    round_trip(&mut controller, Kind::Modify, meter(1, 1, 2), query).await;
    // 18 bytes each: green, then yellow, then red.
    let mut colors = Vec::new();
    for _ in 0..3 {
        colors.push(send(&bench, 0x1234, 3, 1).await[0].1[17]);
    }
    assert_eq!(colors, [0, 1, 2]);
    let refused = controller.codes(vec![modify(meter(9, 1, 2)), modify(meter(1, 3, 2))]).await;
    assert_eq!(refused, [Code::OutOfRange, Code::InvalidArgument]);
    let all = Entity::MeterEntry(p4rt::MeterEntry::default());
    assert_eq!(controller.read(vec![wrap(all)]).await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_register_is_read_and_written_from_both_sides() {
    let (bench, mut controller) = start().await;
    let cell = |data: Option<&[u8]>| {
        let data = data.map(|bytes| Data::Bitstring(bytes.to_vec()));
        Entity::RegisterEntry(p4rt::RegisterEntry {
            register_id: id("memory"),
            index: Some(p4rt::Index { index: 3 }),
            data: data.map(|data| p4rt::P4Data { data: Some(data) }),
        })
    };
    round_trip(&mut controller, Kind::Modify, cell(Some(b"\x01\x02")), cell(None)).await;
    assert_eq!(send(&bench, 0x1234, 2, 3).await[0].1[15..17], [1, 2]);
    send(&bench, 0x1234, 1, 0x0ffb).await;
    let found = controller.read(vec![wrap(cell(None))]).await.unwrap();
    assert_eq!(found, [wrap(cell(Some(b"\x0f\xfb")))]);
    let wide = controller.codes(vec![modify(cell(Some(b"\x01\x00\x00")))]).await;
    assert_eq!(wide, [Code::OutOfRange]);
}

#[tokio::test]
async fn groups_and_sessions_copy_packets() {
    let (bench, mut controller) = start().await;
    let replica = |port: u8, instance| p4rt::Replica {
        port_kind: Some(PortKind::Port(vec![port])),
        instance,
        ..p4rt::Replica::default()
    };
    let entry = |of| {
        Entity::PacketReplicationEngineEntry(p4rt::PacketReplicationEngineEntry {
            r#type: Some(of),
        })
    };
    let group = |replicas| {
        entry(Replication::MulticastGroupEntry(p4rt::MulticastGroupEntry {
            multicast_group_id: 9,
            replicas,
            metadata: b"mine".to_vec(),
        }))
    };
    let session = |replicas| {
        entry(Replication::CloneSessionEntry(p4rt::CloneSessionEntry {
            session_id: 7,
            replicas,
            packet_length_bytes: 15,
            ..p4rt::CloneSessionEntry::default()
        }))
    };
    // Leading zeros are accepted and never sent.
    let padded = p4rt::Replica { port_kind: Some(PortKind::Port(vec![0, 3])), ..replica(3, 5) };
    controller.write(vec![update(Kind::Insert, group(vec![padded]))]).await.unwrap();
    let all = entry(Replication::MulticastGroupEntry(p4rt::MulticastGroupEntry::default()));
    let found = controller.read(vec![wrap(all)]).await.unwrap();
    assert_eq!(found, [wrap(group(vec![replica(3, 5)]))]);
    controller.write(vec![update(Kind::Delete, group(Vec::new()))]).await.unwrap();

    let copies = vec![replica(3, 5), replica(4, 6)];
    let all = p4rt::MulticastGroupEntry::default();
    let all = entry(Replication::MulticastGroupEntry(all));
    round_trip(&mut controller, Kind::Insert, group(copies), all).await;
    let out = send(&bench, 0x1234, 4, 9).await;
    let ports: Vec<(u16, u8)> = out.iter().map(|(port, packet)| (*port, packet[17])).collect();
    assert_eq!(ports, [(3, 5), (4, 6)]);
    let insert = update(Kind::Insert, session(vec![replica(8, 1)]));
    let twice = update(Kind::Insert, group(vec![replica(3, 5), replica(3, 5)]));
    let delete = update(Kind::Delete, group(Vec::new()));
    let codes = controller.codes(vec![insert, twice, delete.clone(), delete]).await;
    assert_eq!(codes, [Code::Ok, Code::InvalidArgument, Code::Ok, Code::NotFound]);
    let out = send(&bench, 0x1234, 5, 0).await;
    let lengths: Vec<(u16, usize)> =
        out.iter().map(|(port, packet)| (*port, packet.len())).collect();
    assert_eq!(lengths, [(8, 15), (2, 18)]);
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[tokio::test]
async fn a_digest_is_sent_once_until_it_is_acknowledged() {
    let (bench, mut controller) = start().await;
    let config = p4rt::digest_entry::Config {
        max_timeout_ns: 0,
        max_list_size: 1,
        ack_timeout_ns: 1_000_000_000,
    };
    let digest = |config| {
        let digest_id = id("note_t");
        Entity::DigestEntry(p4rt::DigestEntry { digest_id, config })
    };
    let (entry, query) = (digest(Some(config)), digest(None));
    round_trip(&mut controller, Kind::Insert, entry, query).await;
    for value in [5, 5, 6] {
        send(&bench, 0x1234, 7, value).await;
    }
    // Nothing is acknowledged before both have come: a repetition that the switch looks at after
    // the acknowledgement would rightly be sent again.
    let mut digest_ids = Vec::new();
    for (list_id, value) in [(1, 5), (2, 6)] {
        let Ok(Some(Response::Digest(list))) = controller.next().await else {
            panic!("a digest was due");
        };
        let bits = |bytes: &[u8]| p4rt::P4Data { data: Some(Data::Bitstring(bytes.to_vec())) };
        let members = vec![bits(b"\x02\0\0\0\0\x02"), bits(&[value])];
        let data = Some(Data::Struct(p4rt::P4StructLike { members }));
        assert_eq!((list.list_id, list.data), (list_id, vec![p4rt::P4Data { data }]));
        // The clock of the network is virtual, and not what the field has.
        let age = since_epoch().checked_sub(Duration::from_nanos(list.timestamp as u64));
        assert!(age.is_some_and(|age| age < Duration::from_secs(60)), "{}", list.timestamp);
        digest_ids.push((list.digest_id, list_id));
    }
    for (digest_id, list_id) in digest_ids {
        let ack = p4rt::DigestListAck { digest_id, list_id };
        controller.send(Request::DigestAck(ack)).await;
    }
}

#[tokio::test]
async fn the_parser_uses_the_value_set() {
    let (bench, mut controller) = start().await;
    let member = p4rt::ValueSetMember {
        r#match: vec![p4rt::FieldMatch {
            field_id: 1,
            field_match_type: Some(p4rt::field_match::FieldMatchType::Exact(
                p4rt::field_match::Exact { value: b"\x99\x99".to_vec() },
            )),
        }],
    };
    let set = |members| {
        let value_set_id = id("wanted");
        Entity::ValueSetEntry(p4rt::ValueSetEntry { value_set_id, members })
    };
    assert_eq!(send(&bench, 0x9999, 0, 0).await[0].1[14], 0);
    round_trip(&mut controller, Kind::Modify, set(vec![member.clone()]), set(Vec::new())).await;
    assert_eq!(send(&bench, 0x9999, 0, 0).await[0].1[14], 0xff);
    let full = controller.codes(vec![modify(set(vec![member; 5]))]).await;
    assert_eq!(full, [Code::ResourceExhausted]);
}

#[tokio::test]
async fn an_idle_entry_is_notified_once() {
    let (bench, mut controller) = start().await;
    let action = p4rt::Action { action_id: id("color"), params: Vec::new() };
    let entry = p4rt::TableEntry {
        table_id: id("by_source"),
        r#match: vec![p4rt::FieldMatch {
            field_id: 1,
            field_match_type: Some(p4rt::field_match::FieldMatchType::Exact(
                p4rt::field_match::Exact { value: b"\x02\0\0\0\0\x02".to_vec() },
            )),
        }],
        action: Some(p4rt::TableAction { r#type: Some(p4rt::table_action::Type::Action(action)) }),
        meter_config: Some(p4rt::MeterConfig { cir: 1, cburst: 1, pir: 1, pburst: 1, eburst: 0 }),
        idle_timeout_ns: 1_000_000_000,
        metadata: b"mine".to_vec(),
        ..p4rt::TableEntry::default()
    };
    let query = p4rt::TableEntry {
        table_id: entry.table_id,
        meter_config: Some(p4rt::MeterConfig::default()),
        ..p4rt::TableEntry::default()
    };
    let (written, query) = (Entity::TableEntry(entry.clone()), Entity::TableEntry(query));
    round_trip(&mut controller, Kind::Insert, written, query).await;
    let colors = [send(&bench, 0x1234, 0, 0).await, send(&bench, 0x1234, 0, 0).await];
    assert_eq!(colors.map(|out| out[0].1[17]), [0, 2], "the second packet is red");
    soon(bench.fabric.run_until(1_500_000_000)).await.unwrap();
    let Ok(Some(Response::IdleTimeoutNotification(notice))) = controller.next().await else {
        panic!("an idle timeout was due");
    };
    let notified = p4rt::TableEntry { action: None, meter_config: None, ..entry };
    assert_eq!(notice.table_entry, [notified]);
}
