//! From our values to P4Runtime messages. The decision: one canonical encoding for every value, so
//! that what a conforming switch returns is what was written.

use p4rt::action_profile_action::WatchKind;
use p4rt::entity::Entity as Kind;
use p4rt::field_match::FieldMatchType;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::v1 as p4rt;

use super::decode::CounterCell;
use crate::bytes;
use crate::entry::{
    ActionCall, ActionSpec, EntryKey, FieldMatch, MeterRates, RowField, TableEntry, TableId,
    TableRow, WeightedAction,
};
use crate::p4info::{DefaultAction, P4Info};
use crate::sdn_string::FieldValue;
use crate::{ForwardingPipeline, TableScope, TableUpdate, UpdateKind};

/// Stands for every table in a read.
const ALL_TABLES: TableId = TableId(0);

/// The program as a switch takes it.
pub fn encode_pipeline(pipeline: &ForwardingPipeline) -> p4rt::ForwardingPipelineConfig {
    let cookie = pipeline.cookie;
    p4rt::ForwardingPipelineConfig {
        p4info: Some(pipeline.p4info.message.clone()),
        p4_device_config: pipeline.device_config.clone(),
        cookie: Some(p4rt::forwarding_pipeline_config::Cookie { cookie }),
    }
}

/// Encodes an update. A default action can only be modified; without an action it is reset to that
/// of the program. A deletion needs the key only.
pub fn encode_update(update: &TableUpdate) -> p4rt::Update {
    use p4rt::update::Type;
    let entry = match update.kind {
        UpdateKind::Insert | UpdateKind::Modify => encode_entry(&update.entry),
        UpdateKind::Delete => encode_key(&update.entry.key),
    };
    let kind = match (&update.entry.key.row, update.kind) {
        (TableRow::Default, _) | (_, UpdateKind::Modify) => Type::Modify,
        (_, UpdateKind::Insert) => Type::Insert,
        (_, UpdateKind::Delete) => Type::Delete,
    };
    p4rt::Update { r#type: kind.into(), entity: Some(wrap_entity(Kind::TableEntry(entry))) }
}

/// Encodes a table entry in canonical form.
pub fn encode_entry(entry: &TableEntry) -> p4rt::TableEntry {
    let mut encoded = encode_key(&entry.key);
    encoded.action = Some(encode_action(&entry.value.action));
    encoded.metadata = entry.value.metadata.to_vec();
    encoded.meter_config = entry.value.meter.as_deref().map(encode_meter);
    encoded
}

fn encode_meter(rates: &MeterRates) -> p4rt::MeterConfig {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    p4rt::MeterConfig {
        cir: number(rates.cir),
        cburst: number(rates.cburst),
        pir: number(rates.pir),
        pburst: number(rates.pburst),
        ..Default::default()
    }
}

/// What to read to know a part of a switch's tables: of whole ones the rows, and the default
/// actions that a controller may set. An entry without a field asks for its whole table.
pub fn encode_scope_read(p4info: &P4Info, of: &TableScope) -> Vec<p4rt::Entity> {
    let tables = p4info.tables();
    let tables = tables.filter(|table| of.tables.contains(&table.id));
    let rows = tables.clone().map(|table| p4rt::TableEntry {
        meter_config: table.metered.then(p4rt::MeterConfig::default),
        ..table_wildcard(table.id)
    });
    let defaults = tables.filter(|table| table.default != DefaultAction::Const);
    let defaults = defaults.map(|table| encode_key(&EntryKey::for_default(table.id)));
    let single = of.entries.iter().map(|key| encode_row_read(p4info, key));
    let entries = rows.chain(defaults).chain(single);
    entries.map(|entry| wrap_entity(Kind::TableEntry(entry))).collect()
}

/// What to read to know all rows of all tables: the only read that some switches serve.
pub fn encode_whole_read() -> p4rt::Entity {
    wrap_entity(Kind::TableEntry(table_wildcard(ALL_TABLES)))
}

/// What to read to know how much all rows of all tables counted.
pub fn encode_whole_counter_read() -> p4rt::Entity {
    encode_table_counter_read(ALL_TABLES)
}

/// What to read to know how much the rows of a table counted; see
/// [`decode_row_counter`](super::decode_row_counter).
pub fn encode_table_counter_read(table: TableId) -> p4rt::Entity {
    let counter_data = Some(p4rt::CounterData::default());
    wrap_entity(Kind::TableEntry(p4rt::TableEntry { counter_data, ..table_wildcard(table) }))
}

/// The read request for the counter of one row.
pub fn encode_row_counter_read(key: &EntryKey) -> p4rt::Entity {
    let counter_data = Some(p4rt::CounterData::default());
    wrap_entity(Kind::TableEntry(p4rt::TableEntry { counter_data, ..encode_key(key) }))
}

/// The read request for one cell of an indexed counter.
pub fn encode_cell_read(cell: CounterCell) -> p4rt::Entity {
    let index = i64::from(cell.index);
    wrap_entity(Kind::CounterEntry(p4rt::CounterEntry {
        counter_id: cell.counter,
        index: Some(p4rt::Index { index }),
        ..Default::default()
    }))
}

/// What to read to know all cells of an indexed counter; see
/// [`decode_counter_cell`](super::decode_counter_cell).
pub fn encode_counter_read(counter_id: u32) -> p4rt::Entity {
    wrap_entity(Kind::CounterEntry(p4rt::CounterEntry { counter_id, ..Default::default() }))
}

pub(super) fn wrap_entity(kind: Kind) -> p4rt::Entity {
    p4rt::Entity { entity: Some(kind) }
}

/// A read of one row, with the rates of its meter where its table has one.
fn encode_row_read(p4info: &P4Info, key: &EntryKey) -> p4rt::TableEntry {
    let metered = p4info.table(key.table).is_some_and(|table| table.metered);
    let is_row = matches!(key.row, TableRow::Match { .. });
    p4rt::TableEntry {
        meter_config: (metered && is_row).then(p4rt::MeterConfig::default),
        ..encode_key(key)
    }
}

fn table_wildcard(table: TableId) -> p4rt::TableEntry {
    p4rt::TableEntry { table_id: table.0, ..Default::default() }
}

fn encode_key(key: &EntryKey) -> p4rt::TableEntry {
    let mut encoded = table_wildcard(key.table);
    match &key.row {
        TableRow::Default => encoded.is_default_action = true,
        TableRow::Match { fields, priority } => {
            encoded.r#match = fields.iter().map(encode_field).collect();
            encoded.priority = i32::try_from(*priority).unwrap_or(i32::MAX);
        }
    }
    encoded
}

fn encode_field(field: &RowField) -> p4rt::FieldMatch {
    use p4rt::field_match::{Exact, Lpm, Optional, Range, Ternary};
    let text = bytes::encode_value;
    let matches = match &field.matches {
        FieldMatch::Exact(value) => {
            FieldMatchType::Exact(Exact { value: encode_field_value(value) })
        }
        FieldMatch::Lpm { value, prefix_len } => FieldMatchType::Lpm(Lpm {
            value: text(*value),
            prefix_len: i32::try_from(*prefix_len).unwrap_or(i32::MAX),
        }),
        FieldMatch::Ternary { value, mask } => {
            FieldMatchType::Ternary(Ternary { value: text(*value), mask: text(*mask) })
        }
        FieldMatch::Range { low, high } => {
            FieldMatchType::Range(Range { low: text(*low), high: text(*high) })
        }
        FieldMatch::Optional(value) => {
            FieldMatchType::Optional(Optional { value: encode_field_value(value) })
        }
    };
    p4rt::FieldMatch { field_id: field.id, field_match_type: Some(matches) }
}

fn encode_action(action: &ActionSpec) -> p4rt::TableAction {
    let kind = match action {
        ActionSpec::Direct(call) => TableActionType::Action(encode_action_call(call)),
        ActionSpec::Member(id) => TableActionType::ActionProfileMemberId(*id),
        ActionSpec::Group(id) => TableActionType::ActionProfileGroupId(*id),
        ActionSpec::OneShot(group) => {
            let actions = group.iter().map(encode_weighted_action).collect();
            TableActionType::ActionProfileActionSet(p4rt::ActionProfileActionSet {
                action_profile_actions: actions,
                ..Default::default()
            })
        }
    };
    p4rt::TableAction { r#type: Some(kind) }
}

fn encode_weighted_action(weighted: &WeightedAction) -> p4rt::ActionProfileAction {
    let port = weighted.watch_port.as_ref().map(encode_field_value);
    p4rt::ActionProfileAction {
        action: Some(encode_action_call(&weighted.call)),
        weight: i32::try_from(weighted.weight).unwrap_or(i32::MAX),
        watch_kind: port.map(WatchKind::WatchPort),
    }
}

fn encode_action_call(call: &ActionCall) -> p4rt::Action {
    let params = call.params.iter().map(|param| p4rt::action::Param {
        param_id: param.id,
        value: encode_field_value(&param.value),
    });
    p4rt::Action { action_id: call.action.0, params: params.collect() }
}

/// A string is its own encoding: no byte of it is padding.
fn encode_field_value(value: &FieldValue) -> Vec<u8> {
    match value {
        FieldValue::Number(number) => bytes::encode_value(*number),
        FieldValue::Text(text) => text.as_str().as_bytes().to_vec(),
    }
}
