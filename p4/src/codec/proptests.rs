//! Random rows of every table of `sai.p4`, numbers and strings, there and back.

use p4rt::field_match::{Exact, FieldMatchType};
use p4runtime_proto::v1 as p4rt;
use proptest::prelude::*;

use super::*;
use crate::ForwardingPipeline;
use crate::entry::{
    ActionCall, ActionParam, ActionSpec, EntryKey, RowField, TableEntry, TableId, WeightedAction,
};
use crate::p4info::{ActionInfo, FieldInfo, MatchField, MatchKind, P4Info, TableInfo};
use crate::sdn_string::{FieldValue, SdnString};

fn p4info() -> &'static P4Info {
    &ForwardingPipeline::embedded_sai().p4info
}

/// Strings of any characters, empty ones and the longest among them.
fn text() -> impl Strategy<Value = SdnString> {
    let any = prop::collection::vec(any::<char>(), 0..60).prop_map(String::from_iter);
    let text = prop_oneof![any, Just(String::new()), Just("\0\0x".into()), Just("e".repeat(255))];
    text.prop_map(|text| SdnString::try_from(&*text).unwrap())
}

fn value(field: &FieldInfo) -> BoxedStrategy<FieldValue> {
    match field.max_number() {
        Some(max) => (0..=max).prop_map(FieldValue::Number).boxed(),
        None => text().prop_map(FieldValue::Text).boxed(),
    }
}

fn row_field(field: &MatchField) -> BoxedStrategy<Option<RowField>> {
    let id = field.info.id;
    let value = value(&field.info);
    let Some(max) = field.info.max_number() else {
        let exact = field.kind == MatchKind::Exact;
        return value.prop_map(move |value| Some(whole_value(id, exact, value))).boxed();
    };
    let width = 128 - max.leading_zeros();
    match field.kind {
        MatchKind::Lpm => (0..=max, 0..=width)
            .prop_map(move |(value, length)| RowField::lpm(id, value, length, width))
            .boxed(),
        MatchKind::Ternary => (0..=max, 0..=max)
            .prop_map(move |(value, mask)| RowField::ternary(id, value, mask))
            .boxed(),
        kind => value
            .prop_map(move |value| Some(whole_value(id, kind == MatchKind::Exact, value)))
            .boxed(),
    }
}

fn whole_value(id: u32, exact: bool, value: FieldValue) -> RowField {
    if exact { RowField::exact(id, value) } else { RowField::optional(id, value) }
}

fn call(action: &'static ActionInfo) -> impl Strategy<Value = ActionCall> {
    let values: Vec<_> = action.params.iter().map(value).collect();
    values.prop_map(|values| {
        let params = action.params.iter().zip(values);
        let params = params.map(|(param, value)| ActionParam { id: param.id, value });
        ActionCall { action: action.id, params: params.collect() }
    })
}

fn action(table: &'static TableInfo) -> impl Strategy<Value = ActionSpec> {
    let actions: Vec<_> =
        table.row_actions.iter().map(|id| p4info().action(*id).unwrap()).collect();
    let call = prop::sample::select(actions).prop_flat_map(call);
    let weighted = (call, 1..9_u32, prop::option::of(text()));
    prop::collection::vec(weighted, 1..4).prop_map(|group| match table.profile {
        None => ActionSpec::Direct(group.into_iter().next().unwrap().0),
        Some(_) => ActionSpec::one_shot(group.into_iter().map(|(call, weight, port)| {
            // An empty port means on the wire that none is watched.
            let port = port.filter(|port| !port.as_str().is_empty());
            WeightedAction { call, weight, watch_port: port.map(FieldValue::Text) }
        })),
    })
}

fn entry() -> impl Strategy<Value = TableEntry> {
    let tables: Vec<&'static TableInfo> = p4info().tables().collect();
    prop::sample::select(tables).prop_flat_map(|table| {
        let fields: Vec<_> = table.fields.iter().map(row_field).collect();
        (fields, action(table)).prop_map(move |(fields, action)| {
            let fields = fields.into_iter().flatten().collect();
            let priority = u32::from(table.needs_priority());
            EntryKey::for_row(table.id, fields, priority).with_action(action).with_signature()
        })
    })
}

proptest! {
    #[test]
    fn rows_with_strings_read_back_unchanged(entry in entry()) {
        let encoded = encode_entry(&entry);
        prop_assert_eq!(decode_entry(p4info(), &encoded), Ok(entry.clone()));
        // Whatever the strings are, a row is shown on one line.
        prop_assert_eq!(p4info().display(&entry).to_string().lines().count(), 1);
    }

    #[test]
    fn the_bytes_of_a_string_are_the_string(text in text()) {
        let key = EntryKey::for_row(vrf_table(), vec![RowField::exact(1, text.clone())], 0);
        let encoded = encode_entry(&key.with_action(no_action()));
        let value = text.as_str().as_bytes().to_vec();
        let expected = Some(FieldMatchType::Exact(Exact { value }));
        prop_assert_eq!(&encoded.r#match[0].field_match_type, &expected);
    }
}

fn vrf_table() -> TableId {
    p4info().table_named("vrf_table").unwrap().id
}

fn no_action() -> ActionSpec {
    ActionCall::new(p4info().action_named("no_action").unwrap().id, []).into()
}

#[test]
fn strings_that_are_none_are_refused_by_name() {
    let key = EntryKey::for_row(vrf_table(), vec![RowField::exact(1, 7_u32)], 0);
    let mut encoded = encode_entry(&key.with_action(no_action()));
    for bytes in [vec![0xff, 0xfe], vec![b'a'; 256]] {
        encoded.r#match[0].field_match_type = Some(FieldMatchType::Exact(Exact { value: bytes }));
        let error = decode_entry(p4info(), &encoded).unwrap_err();
        assert_eq!(error.to_string(), "match field 1 is no UTF-8 string of at most 255 bytes");
    }
}

#[test]
fn strings_and_numbers_are_shown_as_such() {
    let port = SdnString::try_from("Ethernet4").unwrap();
    let table = p4info().table_named("router_interface_table").unwrap();
    let action = p4info().action_named("unicast_set_port_and_src_mac").unwrap();
    let id = SdnString::try_from("uplink-4").unwrap();
    let call = ActionCall::new(action.id, [port.into(), 0x0200_0000_0001_u64.into()]);
    let key = EntryKey::for_row(table.id, vec![RowField::exact(1, id)], 0);
    assert_eq!(
        p4info().display(&key.with_action(call.into())).to_string(),
        "router_interface_table router_interface_id=\"uplink-4\" -> \
         unicast_set_port_and_src_mac(port=\"Ethernet4\", src_mac=02:00:00:00:00:01)"
    );
}
