//! From P4Runtime messages to our values. The decision: lenient in form (padding, order, what
//! matches everything), strict in content: what cannot be understood is an error, never skipped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use p4rt::action_profile_action::WatchKind;
use p4rt::entity::Entity as Kind;
use p4rt::field_match::FieldMatchType;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::config_v1 as p4config;
use p4runtime_proto::v1 as p4rt;

use crate::SwitchTables;
use crate::bytes;
use crate::entry::{
    ActionCall, ActionId, ActionParam, ActionSpec, CONTROLLER_METADATA, EntryKey, EntryValue,
    FieldMatch, MeterRates, RowField, TableEntry, TableId, TableRow, WeightedAction,
};
use crate::p4info::{DefaultAction, P4Info, StringFields, TableInfo};
use crate::sdn_string::{FieldValue, SdnString};

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the switch counts them.
    pub bytes: u64,
}

/// A message of a switch that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A byte string that is empty or longer than any field.
    #[error("{what} {id} has no value of 1 to 128 bits")]
    Value {
        /// What the value belongs to.
        what: &'static str,
        /// The id of that.
        id: u32,
    },
    /// A string that is too long or no UTF-8.
    #[error("{what} {id} is no UTF-8 string of at most {max} bytes", max = SdnString::MAX_BYTES)]
    Text {
        /// What the value belongs to.
        what: &'static str,
        /// The id of that.
        id: u32,
    },
    /// A port whose name is not its number.
    #[error("a packet came in by a port that is not named by its number")]
    PortName,
    /// A number outside of its range.
    #[error("{what} {value} is out of range")]
    Range {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: i64,
    },
    /// More of something than the program has.
    #[error("{count} {what}, more than the program has")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// A kind of match that P4Runtime leaves to extensions.
    #[error("match field {0} is of an unknown kind")]
    UnknownMatch(u32),
    /// The table is not in the program.
    #[error("table {0:#x} is not in the program")]
    UnknownTable(u32),
}

/// The tables that answers to [`encode_scope_read`](super::encode_scope_read) describe. Other
/// entities are ignored.
pub fn decode_tables<'a>(
    p4info: &P4Info,
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> Result<SwitchTables, DecodeError> {
    let entries = entities.into_iter().map(|entity| decode_table_entity(p4info, entity));
    entries.filter_map(Result::transpose).collect()
}

/// The tables of a program that a switch describes, with their names.
pub fn decode_table_names(p4info: &p4config::P4Info) -> BTreeMap<TableId, String> {
    let preambles = p4info.tables.iter().filter_map(|table| table.preamble.as_ref());
    preambles.map(|preamble| (TableId(preamble.id), preamble.alias.clone())).collect()
}

/// The entry of a controller that an entity of an answer describes; `None` for other entities, and
/// for what is the program's own.
pub fn decode_table_entity(
    p4info: &P4Info,
    entity: &p4rt::Entity,
) -> Result<Option<TableEntry>, DecodeError> {
    match &entity.entity {
        Some(Kind::TableEntry(entry)) if !entry.is_const => decode_controller_entry(p4info, entry),
        _ => Ok(None),
    }
}

/// What a row has counted, with its key, from an entity of an answer to
/// [`encode_table_counter_read`](super::encode_table_counter_read); `None` for other entities.
pub fn decode_row_counter(
    p4info: &P4Info,
    entity: &p4rt::Entity,
) -> Result<Option<(EntryKey, CounterValue)>, DecodeError> {
    match &entity.entity {
        Some(Kind::TableEntry(entry)) if !entry.is_default_action => {
            let data = entry.counter_data.as_ref();
            let strings = &p4info.strings;
            data.map(|data| Ok((decode_key(entry, strings)?, decode_counter_data(data)?)))
                .transpose()
        }
        _ => Ok(None),
    }
}

/// A cell of an indexed counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterCell {
    /// The P4Info id of the counter.
    pub counter: u32,
    /// Its index.
    pub index: u32,
}

/// What a cell of a counter has counted, from an entity of an answer to
/// [`encode_counter_read`](super::encode_counter_read); `None` for other entities.
pub fn decode_counter_cell(
    entity: &p4rt::Entity,
) -> Result<Option<(CounterCell, CounterValue)>, DecodeError> {
    let Some(Kind::CounterEntry(cell)) = &entity.entity else {
        return Ok(None);
    };
    let index = cell.index.as_ref().ok_or(DecodeError::Missing("index"))?.index;
    let data = cell.data.as_ref().ok_or(DecodeError::Missing("data"))?;
    let index = convert_in_range("counter index", index)?;
    let cell = CounterCell { counter: cell.counter_id, index };
    Ok(Some((cell, decode_counter_data(data)?)))
}

/// A table entry, of any writer.
pub fn decode_entry(p4info: &P4Info, entry: &p4rt::TableEntry) -> Result<TableEntry, DecodeError> {
    let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
    let strings = &p4info.strings;
    let action = decode_action(action.ok_or(DecodeError::Missing("action"))?, strings)?;
    let metadata = match &entry.metadata[..] {
        CONTROLLER_METADATA => Cow::Borrowed(CONTROLLER_METADATA),
        other => Cow::Owned(other.to_vec()),
    };
    let meter = entry.meter_config.as_ref().map(decode_meter).transpose()?.map(Box::new);
    let value = EntryValue { action, metadata, meter };
    Ok(TableEntry { key: Arc::new(decode_key(entry, strings)?), value: Arc::new(value) })
}

fn decode_meter(config: &p4rt::MeterConfig) -> Result<MeterRates, DecodeError> {
    Ok(MeterRates {
        cir: convert_in_range("committed rate", config.cir)?,
        cburst: convert_in_range("committed burst", config.cburst)?,
        pir: convert_in_range("peak rate", config.pir)?,
        pburst: convert_in_range("peak burst", config.pburst)?,
    })
}

/// `None` for a default action that is the program's own.
fn decode_controller_entry(
    p4info: &P4Info,
    entry: &p4rt::TableEntry,
) -> Result<Option<TableEntry>, DecodeError> {
    let table = p4info.table(TableId(entry.table_id));
    let table = table.ok_or(DecodeError::UnknownTable(entry.table_id))?;
    if entry.is_default_action && entry.action.is_none() {
        return Ok(None);
    }
    if entry.r#match.len() > table.fields.len() {
        return Err(DecodeError::TooMany { what: "match fields", count: entry.r#match.len() });
    }
    let entry = decode_entry(p4info, entry)?;
    for call in entry.value.action.action_calls() {
        let params = p4info.action(call.action).map_or(0, |action| action.params.len());
        if call.params.len() > params {
            return Err(DecodeError::TooMany { what: "parameters", count: call.params.len() });
        }
    }
    Ok((!is_program_default(table, &entry)).then_some(entry))
}

fn is_program_default(table: &TableInfo, entry: &TableEntry) -> bool {
    let initial = match (&entry.key.row, &table.default) {
        (TableRow::Match { .. }, _) => return false,
        (TableRow::Default, DefaultAction::Const) => return true,
        (TableRow::Default, DefaultAction::Initial(initial)) => initial,
    };
    initial.clone().map(ActionSpec::Direct).as_ref() == Some(&entry.value.action)
}

fn decode_key(entry: &p4rt::TableEntry, strings: &StringFields) -> Result<EntryKey, DecodeError> {
    let table = TableId(entry.table_id);
    if entry.is_default_action {
        return Ok(EntryKey::for_default(table));
    }
    // Collected, they would have room for eight where there are five, in every row of a switch.
    let mut fields = Vec::with_capacity(entry.r#match.len());
    for field in &entry.r#match {
        fields.extend(decode_field(table, field, strings)?);
    }
    let priority = convert_in_range("priority", entry.priority.into())?;
    Ok(EntryKey::for_row(table, fields, priority))
}

/// `None` for a field that matches everything, which need not be written down.
fn decode_field(
    table: TableId,
    field: &p4rt::FieldMatch,
    strings: &StringFields,
) -> Result<Option<RowField>, DecodeError> {
    let id = field.field_id;
    let number = |bytes: &[u8]| decode_number("match field", id, bytes);
    let value = |bytes: &[u8]| match strings.match_fields.contains(&(table, id)) {
        true => decode_text("match field", id, bytes),
        false => number(bytes).map(FieldValue::Number),
    };
    let kind = field.field_match_type.as_ref();
    let matches = match kind.ok_or(DecodeError::Missing("field_match_type"))? {
        FieldMatchType::Exact(exact) => FieldMatch::Exact(value(&exact.value)?),
        FieldMatchType::Lpm(lpm) => FieldMatch::Lpm {
            value: number(&lpm.value)?,
            prefix_len: convert_in_range("prefix length", lpm.prefix_len.into())?,
        },
        FieldMatchType::Ternary(ternary) => {
            return Ok(RowField::ternary(id, number(&ternary.value)?, number(&ternary.mask)?));
        }
        FieldMatchType::Range(range) => {
            FieldMatch::Range { low: number(&range.low)?, high: number(&range.high)? }
        }
        FieldMatchType::Optional(optional) => FieldMatch::Optional(value(&optional.value)?),
        FieldMatchType::Other(_) => return Err(DecodeError::UnknownMatch(id)),
    };
    let everything = matches!(matches, FieldMatch::Lpm { prefix_len: 0, .. });
    Ok((!everything).then_some(RowField { id, matches }))
}

fn decode_action(
    action: &TableActionType,
    strings: &StringFields,
) -> Result<ActionSpec, DecodeError> {
    match action {
        TableActionType::Action(call) => decode_action_call(call, strings).map(ActionSpec::Direct),
        TableActionType::ActionProfileMemberId(id) => Ok(ActionSpec::Member(*id)),
        TableActionType::ActionProfileGroupId(id) => Ok(ActionSpec::Group(*id)),
        TableActionType::ActionProfileActionSet(set) => {
            let group = set.action_profile_actions.iter();
            let group = group.map(|weighted| decode_weighted_action(weighted, strings));
            let group: Vec<_> = group.collect::<Result<_, _>>()?;
            Ok(ActionSpec::one_shot(group))
        }
    }
}

fn decode_weighted_action(
    weighted: &p4rt::ActionProfileAction,
    strings: &StringFields,
) -> Result<WeightedAction, DecodeError> {
    let call = weighted.action.as_ref().ok_or(DecodeError::Missing("action"))?;
    // The older field `watch` (an int32) is deprecated, and we never write it.
    let watch_port = match &weighted.watch_kind {
        Some(WatchKind::WatchPort(port)) if !port.is_empty() => Some(port),
        _ => None,
    };
    let what = "action's watch port";
    let watch_port = watch_port.map(|port| match strings.ports {
        true => decode_text(what, 1, port),
        false => decode_number(what, 1, port).map(FieldValue::Number),
    });
    Ok(WeightedAction {
        call: decode_action_call(call, strings)?,
        weight: convert_in_range("weight", weighted.weight.into())?,
        watch_port: watch_port.transpose()?,
    })
}

fn decode_action_call(
    call: &p4rt::Action,
    strings: &StringFields,
) -> Result<ActionCall, DecodeError> {
    let action = ActionId(call.action_id);
    let mut params = Vec::with_capacity(call.params.len());
    for param in &call.params {
        let id = param.param_id;
        let value = match strings.params.contains(&(action, id)) {
            true => decode_text("parameter", id, &param.value)?,
            false => decode_number("parameter", id, &param.value)?.into(),
        };
        params.push(ActionParam { id, value });
    }
    params.sort_unstable();
    Ok(ActionCall { action, params })
}

fn decode_counter_data(data: &p4rt::CounterData) -> Result<CounterValue, DecodeError> {
    Ok(CounterValue {
        packets: convert_in_range("packet count", data.packet_count)?,
        bytes: convert_in_range("byte count", data.byte_count)?,
    })
}

fn decode_text(what: &'static str, id: u32, bytes: &[u8]) -> Result<FieldValue, DecodeError> {
    let text = SdnString::from_bytes(bytes).ok_or(DecodeError::Text { what, id })?;
    Ok(text.into())
}

pub(super) fn decode_number(
    what: &'static str,
    id: u32,
    bytes: &[u8],
) -> Result<u128, DecodeError> {
    bytes::decode_value(bytes).ok_or(DecodeError::Value { what, id })
}

pub(super) fn convert_in_range<T: TryFrom<i64>>(
    what: &'static str,
    value: i64,
) -> Result<T, DecodeError> {
    T::try_from(value).map_err(|_| DecodeError::Range { what, value })
}
