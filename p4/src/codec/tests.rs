//! Cases of the codec: encoding, decoding, and refusals by name.

use p4rt::entity::Entity as Kind;
use p4rt::field_match::FieldMatchType;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::{rpc, v1 as p4rt};
use prost::Message;
use tonic::{Code, Status};

use super::encode::wrap_entity;
use super::*;
use crate::entry::{ActionCall, EntryKey, TableEntry, TableId, TableRow};
use crate::fabric::{self, PortNumber};
use crate::{ForwardingPipeline, SwitchTables, TableScope, TableUpdate, UpdateKind};

/// As a switch returns it: byte strings padded, parts in another order.
fn padded(entry: &TableEntry) -> p4rt::TableEntry {
    let mut entry = encode_entry(entry);
    entry.r#match.reverse();
    for field in &mut entry.r#match {
        if let Some(FieldMatchType::Exact(exact)) = &mut field.field_match_type {
            exact.value.insert(0, 0);
        }
    }
    match &mut entry.action.as_mut().unwrap().r#type {
        Some(TableActionType::Action(call)) => call.params.reverse(),
        Some(TableActionType::ActionProfileActionSet(set)) => set.action_profile_actions.reverse(),
        _ => {}
    }
    entry
}

fn entities(entries: impl IntoIterator<Item = p4rt::TableEntry>) -> Vec<p4rt::Entity> {
    let entities = entries.into_iter().map(Kind::TableEntry);
    entities.map(wrap_entity).collect()
}

fn table_entries<'a>(
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> impl Iterator<Item = &'a p4rt::TableEntry> {
    entities.into_iter().filter_map(|entity| match &entity.entity {
        Some(Kind::TableEntry(entry)) => Some(entry),
        _ => None,
    })
}

fn samples() -> impl Iterator<Item = TableEntry> {
    fabric::tests::samples().into_iter().map(|(entry, _)| entry)
}

#[test]
fn written_documents_read_back_unchanged() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    for entry in samples() {
        assert_eq!(decode_entry(p4info, &encode_entry(&entry)), Ok(entry.clone()));
        assert_eq!(decode_entry(p4info, &padded(&entry)), Ok(entry.clone()));
        let read = decode_tables(p4info, &entities([padded(&entry)]));
        assert_eq!(read, Ok(SwitchTables::from_iter([entry])));
    }
}

#[test]
fn entries_and_defaults_of_the_program_are_not_read() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let row = fabric::port_down(PortNumber::CPU);
    let constant = p4rt::TableEntry { is_const: true, ..encode_entry(&row) };
    let default_of = |table: TableId, action: ActionCall| {
        encode_entry(&EntryKey::for_default(table).with_action(action.into()))
    };
    let no_salt = ActionCall::new(fabric::action::SET_SALT, [0_u32.into(), 0_u32.into()]);
    let drop = ActionCall::new(fabric::action::DROP, []);
    let programs_own = entities([
        constant,
        default_of(fabric::table::SWITCH_SALT, no_salt),
        default_of(fabric::table::DST_LEAF, drop),
    ]);
    assert_eq!(decode_tables(p4info, &programs_own), Ok(SwitchTables::default()));
}

#[test]
fn default_actions_are_only_modified() {
    use p4rt::update::Type::{Delete, Insert, Modify};
    let salt = samples().find(|entry| entry.key.row == TableRow::Default).unwrap();
    let row = fabric::port_down(PortNumber::CPU);
    let cases = [
        (&row, UpdateKind::Insert, Insert, true),
        (&row, UpdateKind::Modify, Modify, true),
        (&row, UpdateKind::Delete, Delete, false),
        (&salt, UpdateKind::Insert, Modify, true),
        (&salt, UpdateKind::Modify, Modify, true),
        (&salt, UpdateKind::Delete, Modify, false),
    ];
    for (entry, kind, expected, with_action) in cases {
        let entry = entry.clone();
        let update = encode_update(&TableUpdate { kind, entry });
        assert_eq!(update.r#type(), expected);
        let entities = update.entity.as_slice();
        let action = table_entries(entities).next().unwrap().action.as_ref();
        assert_eq!(action.is_some(), with_action);
    }
}

#[test]
fn every_table_is_read_and_every_default_that_can_be_set() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let reads = encode_scope_read(p4info, &TableScope::whole_tables(p4info.table_ids()));
    let entries: Vec<_> = table_entries(&reads).collect();
    let defaults: Vec<_> = entries.iter().filter(|entry| entry.is_default_action).collect();
    assert_eq!(entries.len(), 39);
    let defaults: Vec<_> = defaults.iter().map(|entry| TableId(entry.table_id)).collect();
    assert_eq!(defaults, [fabric::table::SWITCH_SALT, fabric::table::SPRAYING]);
}

#[test]
fn nonsense_is_refused_by_name() {
    let pin = samples().find(|entry| entry.key.table == fabric::table::FLOW_PIN).unwrap();
    let check = |change: &dyn Fn(&mut p4rt::TableEntry), expected: &str| {
        let mut entry = encode_entry(&pin);
        change(&mut entry);
        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        let error = decode_tables(p4info, &entities([entry])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&|entry| entry.action = None, "action is missing");
    check(&|entry| entry.table_id = 7, "table 0x7 is not in the program");
    let fields = |entry: &mut p4rt::TableEntry| entry.r#match = vec![entry.r#match[0].clone(); 15];
    check(&fields, "15 match fields, more than the program has");
    let calls = |entry: &mut p4rt::TableEntry| {
        let action = entry.action.as_mut().and_then(|action| action.r#type.as_mut());
        let Some(TableActionType::Action(call)) = action else { panic!("{entry:?}") };
        call.params = vec![p4rt::action::Param { param_id: 1, value: vec![1] }; 9];
    };
    check(&calls, "9 parameters, more than the program has");
    check(&|entry| entry.priority = -1, "priority -1 is out of range");
    check(&|entry| entry.r#match[3].field_match_type = None, "field_match_type is missing");
    let empty = p4rt::field_match::Exact { value: vec![] };
    check(
        &|entry| entry.r#match[3].field_match_type = Some(FieldMatchType::Exact(empty.clone())),
        "match field 4 has no value of 1 to 128 bits",
    );
}

#[test]
fn counters_are_read_by_key_and_by_index() {
    let pin = samples().find(|entry| entry.key.table == fabric::table::FLOW_PIN).unwrap();
    let data = p4rt::CounterData { byte_count: 1500, packet_count: 2 };
    let counted = p4rt::TableEntry { counter_data: Some(data), ..encode_entry(&pin) };
    let count = CounterValue { packets: 2, bytes: 1500 };
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let read = decode_row_counter(p4info, &entities([counted])[0]);
    assert_eq!(read, Ok(Some(((*pin.key).clone(), count))));

    let cell = wrap_entity(Kind::CounterEntry(p4rt::CounterEntry {
        counter_id: fabric::PORT_LEVEL,
        index: Some(p4rt::Index { index: 9 }),
        data: Some(data),
    }));
    let of = CounterCell { counter: fabric::PORT_LEVEL, index: 9 };
    assert_eq!(decode_counter_cell(&cell), Ok(Some((of, count))));
}

#[test]
fn packets_carry_their_ports() {
    let metadata =
        |id, bytes: &[u8]| p4rt::PacketMetadata { metadata_id: id, value: bytes.to_vec() };
    let cases = [
        (
            PacketOutTarget::Port(PortNumber::new(300).unwrap()),
            [metadata(1, &[1, 44]), metadata(2, &[0])],
        ),
        (PacketOutTarget::Tables, [metadata(1, &[0]), metadata(2, &[1])]),
    ];
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    for (target, expected) in cases {
        let packet = PacketOut { target, payload: vec![1, 2] };
        assert_eq!(encode_packet_out(p4info, packet).metadata, expected);
    }
    let packet_in = |metadata| {
        let payload = vec![1, 2];
        decode_packet_in(p4info, p4rt::PacketIn { payload, metadata })
    };
    let packet = packet_in(vec![metadata(1, &[0, 3]), metadata(2, &[0])]).unwrap();
    assert_eq!(packet.ingress_port.number(), 3);
    assert_eq!(packet.payload, [1, 2]);
    assert_eq!(packet_in(vec![]), Err(DecodeError::Missing("ingress_port")));
    let (what, value) = ("port", 512);
    let beyond = packet_in(vec![metadata(1, &[2, 0])]);
    assert_eq!(beyond, Err(DecodeError::Range { what, value }));
}

#[test]
fn refusals_name_their_updates() {
    let kind = UpdateKind::Insert;
    let updates: Vec<_> = samples().map(|entry| TableUpdate { kind, entry }).take(3).collect();
    let error = |code: Code, text: &str| p4rt::Error {
        canonical_code: code.into(),
        message: text.into(),
        ..Default::default()
    };
    let status = |errors: &[p4rt::Error]| {
        let details = errors.iter().map(|error| any(error.encode_to_vec()));
        let details = details.collect();
        let status = rpc::Status { code: Code::Unknown.into(), details, ..Default::default() };
        Status::with_details(Code::Unknown, "1 of 3", status.encode_to_vec().into())
    };
    let ok = error(Code::Ok, "");
    let full = error(Code::ResourceExhausted, "table is full");

    let refused = decode_write_error(&status(&[ok.clone(), full, ok.clone()]), &updates);
    assert_eq!(
        refused.to_string(),
        "1 updates refused, the first because: ResourceExhausted: table is full"
    );
    let update = updates[1].clone();
    let expected = RefusedUpdate {
        position: 1,
        update,
        code: Code::ResourceExhausted,
        message: "table is full".into(),
    };
    assert_eq!(refused, WriteError::Refused(vec![expected]));

    let unclear = [status(&[ok]), Status::unknown("1 of 3")];
    for status in unclear {
        let batch = decode_write_error(&status, &updates);
        assert_eq!(batch.to_string(), "batch failed with Unknown: 1 of 3");
    }
}

/// An error wrapped as `google.protobuf.Any`.
fn any(value: Vec<u8>) -> p4runtime_proto::Any {
    p4runtime_proto::Any { type_url: "type.googleapis.com/p4.v1.Error".into(), value }
}
