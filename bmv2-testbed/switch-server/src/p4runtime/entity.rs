//! Keys, actions and counts: protobuf to control API and back, through the
//! [`PipelineSchema`](super::p4info::PipelineSchema).
//!
//! Every function is total and pure: any message gives a value or a [`RequestFailure`] that names
//! the field at fault, and whatever is decoded encodes to the canonical form, in the order of the
//! P4Info.

use std::collections::BTreeMap;

use p4rt::field_match::FieldMatchType;
use p4runtime_proto::config_v1::action_ref::Scope;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::bytestring::{decode_bytestring, encode_bytestring};
use super::error::RequestFailure;
use crate::p4runtime::p4info::{FieldSchema, TableActionSchemas, TableSchema};
use switch::CounterData;
use switch::MatchKind;
use switch::{ActionCall, KeyField, MatchKey};

/// Where an action is to stand, which its scope in the P4Info may forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionUse {
    Entry,
    Default,
}

/// The key of an entry: its match fields and its priority.
pub(super) fn decode_key(
    table: &TableSchema,
    fields: &[p4rt::FieldMatch],
    priority: i32,
) -> Result<MatchKey, RequestFailure> {
    let fields = decode_fields(table, fields)?;
    let priority = u32::try_from(priority).map_err(|_| {
        RequestFailure::invalid_argument(format!("priority {priority} is negative"))
    })?;
    match (table.takes_priority, priority) {
        (true, 0) => {
            Err(RequestFailure::invalid_argument(format!("table {} needs a priority", table.name)))
        }
        (false, 1..) => {
            Err(RequestFailure::invalid_argument(format!("table {} takes no priority", table.name)))
        }
        _ => Ok(MatchKey { fields, priority }),
    }
}

/// The match fields of an entry, in the program's order; what is left out matches anything.
pub(super) fn decode_fields(
    table: &TableSchema,
    fields: &[p4rt::FieldMatch],
) -> Result<Vec<KeyField>, RequestFailure> {
    let mut given = BTreeMap::new();
    for field in fields {
        if table.fields.iter().all(|schema| schema.id != field.field_id) {
            let message = format!("table {} has no match field {}", table.name, field.field_id);
            return Err(RequestFailure::invalid_argument(message));
        }
        if given.insert(field.field_id, field).is_some() {
            return Err(RequestFailure::invalid_argument(format!(
                "match field {} is given twice",
                field.field_id
            )));
        }
    }
    let mut decoded = Vec::new();
    for schema in &table.fields {
        let field = match given.get(&schema.id) {
            Some(field) => decode_field(schema, field),
            None => wildcard_match(schema),
        };
        decoded.push(field.map_err(|failure| {
            failure.in_context(&format!("table {}, match field {}", table.name, schema.name))
        })?);
    }
    Ok(decoded)
}

/// What a match that is left out stands for.
pub(super) fn wildcard_match(schema: &FieldSchema) -> Result<KeyField, RequestFailure> {
    match schema.kind {
        MatchKind::Exact => Err(RequestFailure::invalid_argument("an exact match is missing")),
        MatchKind::Lpm => Ok(KeyField::Lpm { value: 0, prefix: 0 }),
        MatchKind::Ternary => Ok(KeyField::Ternary { value: 0, mask: 0 }),
        MatchKind::Range => Ok(KeyField::Range { low: 0, high: low_bits(schema.bits) }),
        MatchKind::Optional => Ok(KeyField::Optional(None)),
    }
}

/// One match of a field.
pub(super) fn decode_field(
    schema: &FieldSchema,
    field: &p4rt::FieldMatch,
) -> Result<KeyField, RequestFailure> {
    let bits = schema.bits;
    let field = match (schema.kind, &field.field_match_type) {
        (MatchKind::Exact, Some(FieldMatchType::Exact(exact))) => {
            KeyField::Exact(decode_bytestring(&exact.value, bits)?)
        }
        (MatchKind::Lpm, Some(FieldMatchType::Lpm(lpm))) => decode_lpm(lpm, bits)?,
        (MatchKind::Ternary, Some(FieldMatchType::Ternary(ternary))) => {
            let (value, mask) =
                (decode_bytestring(&ternary.value, bits)?, decode_bytestring(&ternary.mask, bits)?);
            if value & !mask != 0 {
                return Err(RequestFailure::invalid_argument(
                    "the value has bits outside the mask",
                ));
            }
            KeyField::Ternary { value, mask }
        }
        (MatchKind::Range, Some(FieldMatchType::Range(range))) => {
            let (low, high) =
                (decode_bytestring(&range.low, bits)?, decode_bytestring(&range.high, bits)?);
            if low > high {
                return Err(RequestFailure::invalid_argument(
                    "the low bound is above the high one",
                ));
            }
            KeyField::Range { low, high }
        }
        (MatchKind::Optional, Some(FieldMatchType::Optional(optional))) => {
            KeyField::Optional(Some(decode_bytestring(&optional.value, bits)?))
        }
        (kind, _) => {
            return Err(RequestFailure::invalid_argument(format!(
                "a match of kind {kind:?} is needed"
            )));
        }
    };
    if schema.kind != MatchKind::Exact && wildcard_match(schema).as_ref() == Ok(&field) {
        return Err(RequestFailure::invalid_argument("a match of anything must be left out"));
    }
    Ok(field)
}

fn decode_lpm(lpm: &p4rt::field_match::Lpm, bits: u32) -> Result<KeyField, RequestFailure> {
    let value = decode_bytestring(&lpm.value, bits)?;
    let Some(prefix) = u32::try_from(lpm.prefix_len).ok().filter(|&prefix| prefix <= bits) else {
        let message = format!("a prefix of {} bits in a field of {bits}", lpm.prefix_len);
        return Err(RequestFailure::invalid_argument(message));
    };
    if value & low_bits(bits - prefix) != 0 {
        return Err(RequestFailure::invalid_argument(format!(
            "the value has bits beyond its /{prefix}"
        )));
    }
    Ok(KeyField::Lpm { value, prefix })
}

/// The match fields as a controller should have written them.
pub(super) fn encode_fields(table: &TableSchema, key: &MatchKey) -> Vec<p4rt::FieldMatch> {
    let mut fields: Vec<p4rt::FieldMatch> = table
        .fields
        .iter()
        .zip(&key.fields)
        .filter(|(schema, field)| wildcard_match(schema).as_ref() != Ok(field))
        .map(|(schema, field)| p4rt::FieldMatch {
            field_id: schema.id,
            field_match_type: encode_field(*field),
        })
        .collect();
    fields.sort_by_key(|field| field.field_id);
    fields
}

fn encode_field(field: KeyField) -> Option<FieldMatchType> {
    use p4rt::field_match::{Exact, Lpm, Optional, Range, Ternary};
    Some(match field {
        KeyField::Exact(value) => FieldMatchType::Exact(Exact { value: encode_bytestring(value) }),
        KeyField::Lpm { value, prefix } => FieldMatchType::Lpm(Lpm {
            value: encode_bytestring(value),
            prefix_len: saturating_i32(prefix),
        }),
        KeyField::Ternary { value, mask } => FieldMatchType::Ternary(Ternary {
            value: encode_bytestring(value),
            mask: encode_bytestring(mask),
        }),
        KeyField::Range { low, high } => FieldMatchType::Range(Range {
            low: encode_bytestring(low),
            high: encode_bytestring(high),
        }),
        KeyField::Optional(value) => {
            FieldMatchType::Optional(Optional { value: encode_bytestring(value?) })
        }
    })
}

/// An action call of one table, or of the profile that serves it.
pub(super) fn decode_action(
    actions: &TableActionSchemas,
    action: &p4rt::Action,
    place: ActionUse,
) -> Result<ActionCall, RequestFailure> {
    let id = action.action_id;
    let schema = actions.by_id.get(&id).ok_or_else(|| {
        RequestFailure::invalid_argument(format!("action {id} is not one of the table's"))
    })?;
    let refused = match place {
        ActionUse::Entry => Scope::DefaultOnly,
        ActionUse::Default => Scope::TableOnly,
    };
    if schema.scope == refused {
        let message = format!("action {} is {}", schema.name, refused.as_str_name());
        return Err(RequestFailure::new(Code::PermissionDenied, message));
    }
    let mut given = BTreeMap::new();
    for param in &action.params {
        if schema.parameters.iter().all(|declared| declared.id != param.param_id) {
            let message = format!("action {} has no parameter {}", schema.name, param.param_id);
            return Err(RequestFailure::invalid_argument(message));
        }
        if given.insert(param.param_id, &param.value).is_some() {
            return Err(RequestFailure::invalid_argument(format!(
                "parameter {} is given twice",
                param.param_id
            )));
        }
    }
    let mut arguments = Vec::new();
    for declared in &schema.parameters {
        let value = match given.get(&declared.id) {
            Some(value) => decode_bytestring(value, declared.bits),
            None => Err(RequestFailure::invalid_argument("it is missing")),
        };
        arguments.push(value.map_err(|failure| {
            failure.in_context(&format!("action {}, parameter {}", schema.name, declared.name))
        })?);
    }
    Ok(ActionCall { action: schema.index, arguments })
}

/// An action call as a controller would write it; `None` for one that is not in the P4Info.
pub(super) fn encode_action(
    actions: &TableActionSchemas,
    call: &ActionCall,
) -> Option<p4rt::Action> {
    let &action_id = actions.by_index.get(&call.action)?;
    let parameters = &actions.by_id.get(&action_id)?.parameters;
    let params = parameters
        .iter()
        .zip(&call.arguments)
        .map(|(declared, &value)| p4rt::action::Param {
            param_id: declared.id,
            value: encode_bytestring(value),
        })
        .collect();
    Some(p4rt::Action { action_id, params })
}

/// Counter values from the wire, where they are signed.
pub(super) fn decode_count(data: &p4rt::CounterData) -> Result<CounterData, RequestFailure> {
    match (u64::try_from(data.packet_count), u64::try_from(data.byte_count)) {
        (Ok(packets), Ok(bytes)) => Ok(CounterData { packets, bytes }),
        _ => Err(RequestFailure::invalid_argument("a counter cannot be negative")),
    }
}

/// Counter values for the wire.
pub(super) fn encode_count(count: CounterData) -> p4rt::CounterData {
    p4rt::CounterData {
        packet_count: i64::try_from(count.packets).unwrap_or(i64::MAX),
        byte_count: i64::try_from(count.bytes).unwrap_or(i64::MAX),
    }
}

/// The kind of an entity, as messages name it.
pub(super) fn entity_kind(entity: &p4rt::entity::Entity) -> &'static str {
    use p4rt::entity::Entity;
    match entity {
        Entity::ExternEntry(_) => "ExternEntry",
        Entity::TableEntry(_) => "TableEntry",
        Entity::ActionProfileMember(_) => "ActionProfileMember",
        Entity::ActionProfileGroup(_) => "ActionProfileGroup",
        Entity::MeterEntry(_) => "MeterEntry",
        Entity::DirectMeterEntry(_) => "DirectMeterEntry",
        Entity::CounterEntry(_) => "CounterEntry",
        Entity::DirectCounterEntry(_) => "DirectCounterEntry",
        Entity::PacketReplicationEngineEntry(_) => "PacketReplicationEngineEntry",
        Entity::ValueSetEntry(_) => "ValueSetEntry",
        Entity::RegisterEntry(_) => "RegisterEntry",
        Entity::DigestEntry(_) => "DigestEntry",
    }
}

fn low_bits(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits.min(128)).unwrap_or(0)
}

/// A small unsigned number as the signed one of the wire.
pub(super) fn saturating_i32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
