//! Our values to P4Runtime's messages and back: the only place that knows both.
//!
//! Sessions write with [`encode_update`], read with [`reads`] and [`decode_tables`], and explain a
//! refused batch with [`decode_write_error`]. The decision: decoding brings everything to the one
//! form in which we compare (numbers instead of byte strings, sorted fields, groups and arguments),
//! and leaves out what belongs to the program rather than to a controller: const entries and default
//! actions that are still the program's own.

mod packets;
mod write_error;

use std::collections::BTreeMap;

use p4rt::action_profile_action::WatchKind;
use p4rt::entity::Entity as Kind;
use p4rt::field_match::FieldMatchType;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::v1 as p4rt;

use crate::bytes;
use crate::entry::{
    ActionCall, ActionId, ActionSpec, EntryKey, EntryValue, Field, FieldMatch, Param, Row,
    TableEntry, TableId, WeightedAction,
};
use crate::p4info::{DefaultAction, P4Info, Table};
use crate::{Pipeline, Tables, Update, UpdateKind};

pub use packets::{Outlet, PacketIn, PacketOut, decode_packet_in, encode_packet_out};
pub use write_error::{Refusal, WriteError, decode_write_error};

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
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
    /// A number outside of its range.
    #[error("{what} {value} is out of range")]
    Range {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: i64,
    },
    /// A kind of match that P4Runtime leaves to extensions.
    #[error("match field {0} is of an unknown kind")]
    UnknownMatch(u32),
    /// The table is not in the program.
    #[error("table {0:#x} is not in the program")]
    UnknownTable(u32),
}

/// The program as a switch takes it.
pub fn encode_pipeline(pipeline: &Pipeline) -> p4rt::ForwardingPipelineConfig {
    let cookie = pipeline.cookie;
    p4rt::ForwardingPipelineConfig {
        p4info: Some(pipeline.p4info.message.clone()),
        p4_device_config: pipeline.device_config.clone(),
        cookie: Some(p4rt::forwarding_pipeline_config::Cookie { cookie }),
    }
}

/// A write. A default action can only be modified, and returns to the program's own without action.
pub fn encode_update(update: &Update) -> p4rt::Update {
    use p4rt::update::Type;
    let mut entry = encode_entry(&update.entry);
    let kind = match (&update.entry.key.row, update.kind) {
        (Row::Default, UpdateKind::Delete) => {
            entry.action = None;
            Type::Modify
        }
        (Row::Default, _) | (_, UpdateKind::Modify) => Type::Modify,
        (_, UpdateKind::Insert) => Type::Insert,
        (_, UpdateKind::Delete) => Type::Delete,
    };
    p4rt::Update {
        r#type: kind.into(),
        entity: Some(entity(Kind::TableEntry(entry))),
    }
}

/// A table entry.
pub fn encode_entry(entry: &TableEntry) -> p4rt::TableEntry {
    let mut encoded = encode_key(&entry.key);
    encoded.action = Some(encode_action(&entry.value.action));
    encoded.metadata.clone_from(&entry.value.metadata);
    encoded
}

/// What to read to know a switch's tables: each table's rows, and the default actions that a
/// controller may set. One entity per request keeps the answers small.
pub fn reads(p4info: &P4Info) -> Vec<p4rt::Entity> {
    let rows = p4info.tables().map(|table| rows_of(table.id));
    let defaults = p4info
        .tables()
        .filter(|table| table.default != DefaultAction::Const);
    let defaults = defaults.map(|table| encode_key(&EntryKey::default_of(table.id)));
    let entries = rows.chain(defaults);
    entries
        .map(|entry| entity(Kind::TableEntry(entry)))
        .collect()
}

/// What to read to know how much the rows of a table counted; see [`decode_counts`].
pub fn counts_of(table: TableId) -> p4rt::Entity {
    let counter_data = Some(p4rt::CounterData::default());
    entity(Kind::TableEntry(p4rt::TableEntry {
        counter_data,
        ..rows_of(table)
    }))
}

/// What to read to know all cells of an indexed counter; see [`decode_cells`].
pub fn cells_of(counter_id: u32) -> p4rt::Entity {
    entity(Kind::CounterEntry(p4rt::CounterEntry {
        counter_id,
        ..Default::default()
    }))
}

/// The tables that answers to [`reads`] describe. Other entities are ignored.
pub fn decode_tables<'a>(
    p4info: &P4Info,
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> Result<Tables, DecodeError> {
    table_entries(entities)
        .filter(|entry| !entry.is_const)
        .map(|entry| controllers_entry(p4info, entry))
        .filter_map(Result::transpose)
        .collect()
}

/// What rows have counted, by key, from answers to [`counts_of`].
pub fn decode_counts<'a>(
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> Result<BTreeMap<EntryKey, Count>, DecodeError> {
    let counted = table_entries(entities).filter(|entry| !entry.is_default_action);
    let counted = counted.filter_map(|entry| Some((entry, entry.counter_data.as_ref()?)));
    counted
        .map(|(entry, data)| Ok((decode_key(entry)?, decode_count(data)?)))
        .collect()
}

/// What the cells of a counter have counted, by index, from answers to [`cells_of`].
pub fn decode_cells<'a>(
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> Result<BTreeMap<u32, Count>, DecodeError> {
    let cells = entities
        .into_iter()
        .filter_map(|entity| match &entity.entity {
            Some(Kind::CounterEntry(cell)) => Some(cell),
            _ => None,
        });
    cells
        .map(|cell| {
            let index = cell
                .index
                .as_ref()
                .ok_or(DecodeError::Missing("index"))?
                .index;
            let data = cell.data.as_ref().ok_or(DecodeError::Missing("data"))?;
            Ok((in_range("counter index", index)?, decode_count(data)?))
        })
        .collect()
}

/// A table entry, whoever wrote it.
pub fn decode_entry(entry: &p4rt::TableEntry) -> Result<TableEntry, DecodeError> {
    let action = entry
        .action
        .as_ref()
        .and_then(|action| action.r#type.as_ref());
    let action = decode_action(action.ok_or(DecodeError::Missing("action"))?)?;
    let metadata = entry.metadata.clone();
    Ok(TableEntry {
        key: decode_key(entry)?,
        value: EntryValue { action, metadata },
    })
}

fn entity(kind: Kind) -> p4rt::Entity {
    p4rt::Entity { entity: Some(kind) }
}

fn rows_of(table: TableId) -> p4rt::TableEntry {
    p4rt::TableEntry {
        table_id: table.0,
        ..Default::default()
    }
}

fn table_entries<'a>(
    entities: impl IntoIterator<Item = &'a p4rt::Entity>,
) -> impl Iterator<Item = &'a p4rt::TableEntry> {
    entities
        .into_iter()
        .filter_map(|entity| match &entity.entity {
            Some(Kind::TableEntry(entry)) => Some(entry),
            _ => None,
        })
}

/// `None` for a default action that is the program's own.
fn controllers_entry(
    p4info: &P4Info,
    entry: &p4rt::TableEntry,
) -> Result<Option<TableEntry>, DecodeError> {
    let table = p4info.table(TableId(entry.table_id));
    let table = table.ok_or(DecodeError::UnknownTable(entry.table_id))?;
    if entry.is_default_action && entry.action.is_none() {
        return Ok(None);
    }
    let entry = decode_entry(entry)?;
    Ok((!is_programs_own(table, &entry)).then_some(entry))
}

fn is_programs_own(table: &Table, entry: &TableEntry) -> bool {
    let initial = match (&entry.key.row, &table.default) {
        (Row::Match { .. }, _) => return false,
        (Row::Default, DefaultAction::Const) => return true,
        (Row::Default, DefaultAction::Initially(initial)) => initial,
    };
    initial.clone().map(ActionSpec::Direct).as_ref() == Some(&entry.value.action)
}

fn encode_key(key: &EntryKey) -> p4rt::TableEntry {
    let mut encoded = rows_of(key.table);
    match &key.row {
        Row::Default => encoded.is_default_action = true,
        Row::Match { fields, priority } => {
            encoded.r#match = fields.iter().map(encode_field).collect();
            encoded.priority = i32::try_from(*priority).unwrap_or(i32::MAX);
        }
    }
    encoded
}

fn decode_key(entry: &p4rt::TableEntry) -> Result<EntryKey, DecodeError> {
    let table = TableId(entry.table_id);
    if entry.is_default_action {
        return Ok(EntryKey::default_of(table));
    }
    let fields = entry
        .r#match
        .iter()
        .map(decode_field)
        .filter_map(Result::transpose);
    let priority = in_range("priority", entry.priority.into())?;
    Ok(EntryKey::row(
        table,
        fields.collect::<Result<_, _>>()?,
        priority,
    ))
}

fn encode_field(field: &Field) -> p4rt::FieldMatch {
    use p4rt::field_match::{Exact, Lpm, Optional, Range, Ternary};
    let text = bytes::encode;
    let matches = match field.matches {
        FieldMatch::Exact(value) => FieldMatchType::Exact(Exact { value: text(value) }),
        FieldMatch::Lpm { value, prefix_len } => FieldMatchType::Lpm(Lpm {
            value: text(value),
            prefix_len: i32::try_from(prefix_len).unwrap_or(i32::MAX),
        }),
        FieldMatch::Ternary { value, mask } => FieldMatchType::Ternary(Ternary {
            value: text(value),
            mask: text(mask),
        }),
        FieldMatch::Range { low, high } => FieldMatchType::Range(Range {
            low: text(low),
            high: text(high),
        }),
        FieldMatch::Optional(value) => FieldMatchType::Optional(Optional { value: text(value) }),
    };
    p4rt::FieldMatch {
        field_id: field.id,
        field_match_type: Some(matches),
    }
}

/// `None` for a field that matches everything, which need not be written down.
fn decode_field(field: &p4rt::FieldMatch) -> Result<Option<Field>, DecodeError> {
    let id = field.field_id;
    let number = |bytes: &[u8]| value("match field", id, bytes);
    let kind = field.field_match_type.as_ref();
    let matches = match kind.ok_or(DecodeError::Missing("field_match_type"))? {
        FieldMatchType::Exact(exact) => FieldMatch::Exact(number(&exact.value)?),
        FieldMatchType::Lpm(lpm) => FieldMatch::Lpm {
            value: number(&lpm.value)?,
            prefix_len: in_range("prefix length", lpm.prefix_len.into())?,
        },
        FieldMatchType::Ternary(ternary) => {
            return Ok(Field::ternary(
                id,
                number(&ternary.value)?,
                number(&ternary.mask)?,
            ));
        }
        FieldMatchType::Range(range) => FieldMatch::Range {
            low: number(&range.low)?,
            high: number(&range.high)?,
        },
        FieldMatchType::Optional(optional) => FieldMatch::Optional(number(&optional.value)?),
        FieldMatchType::Other(_) => return Err(DecodeError::UnknownMatch(id)),
    };
    let everything = matches!(matches, FieldMatch::Lpm { prefix_len: 0, .. });
    Ok((!everything).then_some(Field { id, matches }))
}

fn encode_action(action: &ActionSpec) -> p4rt::TableAction {
    let kind = match action {
        ActionSpec::Direct(call) => TableActionType::Action(encode_call(call)),
        ActionSpec::Member(id) => TableActionType::ActionProfileMemberId(*id),
        ActionSpec::Group(id) => TableActionType::ActionProfileGroupId(*id),
        ActionSpec::OneShot(group) => {
            let actions = group.iter().map(encode_weighted).collect();
            TableActionType::ActionProfileActionSet(p4rt::ActionProfileActionSet {
                action_profile_actions: actions,
                ..Default::default()
            })
        }
    };
    p4rt::TableAction { r#type: Some(kind) }
}

fn decode_action(action: &TableActionType) -> Result<ActionSpec, DecodeError> {
    match action {
        TableActionType::Action(call) => decode_call(call).map(ActionSpec::Direct),
        TableActionType::ActionProfileMemberId(id) => Ok(ActionSpec::Member(*id)),
        TableActionType::ActionProfileGroupId(id) => Ok(ActionSpec::Group(*id)),
        TableActionType::ActionProfileActionSet(set) => {
            let group = set.action_profile_actions.iter().map(decode_weighted);
            let group: Vec<_> = group.collect::<Result<_, _>>()?;
            Ok(ActionSpec::one_shot(group))
        }
    }
}

fn encode_weighted(weighted: &WeightedAction) -> p4rt::ActionProfileAction {
    let port = weighted.watch_port.map(bytes::encode);
    p4rt::ActionProfileAction {
        action: Some(encode_call(&weighted.call)),
        weight: i32::try_from(weighted.weight).unwrap_or(i32::MAX),
        watch_kind: port.map(WatchKind::WatchPort),
    }
}

fn decode_weighted(weighted: &p4rt::ActionProfileAction) -> Result<WeightedAction, DecodeError> {
    let call = weighted
        .action
        .as_ref()
        .ok_or(DecodeError::Missing("action"))?;
    // The older field `watch` (an int32) is deprecated, and we never write it.
    let watch_port = match &weighted.watch_kind {
        Some(WatchKind::WatchPort(port)) if !port.is_empty() => Some(port),
        _ => None,
    };
    let watch_port = watch_port.map(|port| value("action's watch port", 1, port));
    Ok(WeightedAction {
        call: decode_call(call)?,
        weight: in_range("weight", weighted.weight.into())?,
        watch_port: watch_port.transpose()?,
    })
}

fn encode_call(call: &ActionCall) -> p4rt::Action {
    let params = call.params.iter().map(|param| p4rt::action::Param {
        param_id: param.id,
        value: bytes::encode(param.value),
    });
    p4rt::Action {
        action_id: call.action.0,
        params: params.collect(),
    }
}

fn decode_call(call: &p4rt::Action) -> Result<ActionCall, DecodeError> {
    let params = call.params.iter().map(|param| {
        let id = param.param_id;
        let value = value("parameter", id, &param.value)?;
        Ok(Param { id, value })
    });
    let mut params: Vec<_> = params.collect::<Result<_, _>>()?;
    params.sort_unstable();
    let action = ActionId(call.action_id);
    Ok(ActionCall { action, params })
}

fn decode_count(data: &p4rt::CounterData) -> Result<Count, DecodeError> {
    Ok(Count {
        packets: in_range("packet count", data.packet_count)?,
        bytes: in_range("byte count", data.byte_count)?,
    })
}

fn value(what: &'static str, id: u32, bytes: &[u8]) -> Result<u128, DecodeError> {
    bytes::decode(bytes).ok_or(DecodeError::Value { what, id })
}

fn in_range<T: TryFrom<i64>>(what: &'static str, value: i64) -> Result<T, DecodeError> {
    T::try_from(value).map_err(|_| DecodeError::Range { what, value })
}

#[cfg(test)]
mod tests;
