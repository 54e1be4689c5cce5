//! From the text of P4Info to its index. The decision: refuse what later code could not handle
//! here, once, so that an index in hand is one that works.

use std::collections::{BTreeMap, BTreeSet};

use p4runtime_proto::config_v1 as p4config;
use p4runtime_proto::config_v1::p4_ids::Prefix;

use super::{
    ActionInfo, CounterInfo, DefaultAction, MatchField, MatchKind, P4Info, P4InfoError, ValueFormat,
};
use super::{FieldInfo, TableInfo};
use crate::bytes;
use crate::entry::{ActionCall, ActionId, ActionParam, TableId};

/// The index of a message.
pub(super) fn build_index(message: p4config::P4Info) -> Result<P4Info, P4InfoError> {
    let actions = index_by_key(&message.actions, read_action, |action| action.id)?;
    let mut tables =
        index_by_key(&message.tables, |raw| read_table(raw, &actions), |table| table.id)?;
    assign_ranks(&mut tables, &actions)?;
    let counters = index_by_key(&message.counters, read_counter, |counter| counter.id)?;
    let headers = message.controller_packet_metadata.iter().map(read_packet_header);
    let headers = headers.collect::<Result<_, _>>()?;
    Ok(P4Info { message, tables, actions, counters, headers })
}

fn index_by_key<Raw, T, K: Ord>(
    raw: &[Raw],
    read: impl Fn(&Raw) -> Result<T, P4InfoError>,
    key: impl Fn(&T) -> K,
) -> Result<BTreeMap<K, T>, P4InfoError> {
    raw.iter().map(|raw| read(raw).map(|value| (key(&value), value))).collect()
}

fn checked_preamble<'a>(
    raw: Option<&'a p4config::Preamble>,
    what: &'static str,
) -> Result<&'a p4config::Preamble, P4InfoError> {
    raw.filter(|preamble| preamble.id != 0 && !preamble.name.is_empty())
        .ok_or(P4InfoError::MissingPreamble(what))
}

fn read_action(raw: &p4config::Action) -> Result<ActionInfo, P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "action")?;
    let params = raw.params.iter();
    let params = params
        .map(|param| read_field_info(param.id, &param.name, param.bitwidth, &param.annotations));
    Ok(ActionInfo {
        id: ActionId(preamble.id),
        name: preamble.alias.clone(),
        full_name: preamble.name.clone(),
        params: sort_by_id(params.collect::<Result<_, _>>()?, |slot| slot.id),
    })
}

fn read_table(
    raw: &p4config::Table,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> Result<TableInfo, P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "table")?;
    let fields = raw.match_fields.iter();
    let fields = fields.map(|field| read_match_field(&preamble.alias, field));
    for reference in &raw.action_refs {
        if !actions.contains_key(&ActionId(reference.id)) {
            return Err(P4InfoError::UnknownAction {
                table: preamble.alias.clone(),
                action: reference.id,
            });
        }
    }
    let (default_only, row_actions) = scoped_actions(raw);
    Ok(TableInfo {
        id: TableId(preamble.id),
        name: preamble.alias.clone(),
        full_name: preamble.name.clone(),
        fields: sort_by_id(fields.collect::<Result<_, _>>()?, |field: &MatchField| field.info.id),
        row_actions,
        default_only,
        default: read_default_action(raw)?,
        profile: Some(raw.implementation_id).filter(|id| *id != 0),
        counted: has_direct_resource(raw, Prefix::DirectCounter),
        metered: has_direct_resource(raw, Prefix::DirectMeter),
        size: u64::try_from(raw.size).unwrap_or(0),
        rank: 0,
    })
}

/// Whether rows have a resource of their own whose ids begin like this.
fn has_direct_resource(raw: &p4config::Table, prefix: Prefix) -> bool {
    raw.direct_resource_ids.iter().any(|id| id >> 24 == prefix as u32)
}

/// The actions only for the default, and the others.
fn scoped_actions(raw: &p4config::Table) -> (Vec<ActionId>, Vec<ActionId>) {
    let default_only = p4config::action_ref::Scope::DefaultOnly;
    let (defaults, rows): (Vec<_>, Vec<_>) =
        raw.action_refs.iter().partition(|reference| reference.scope() == default_only);
    let ids = |references: Vec<&p4config::ActionRef>| {
        let ids = references.into_iter().map(|reference| ActionId(reference.id));
        ids.collect()
    };
    (ids(defaults), ids(rows))
}

/// A table with a selector has no default action that could be set (dataplane notes on bmv2).
fn read_default_action(raw: &p4config::Table) -> Result<DefaultAction, P4InfoError> {
    if raw.const_default_action_id != 0 || raw.implementation_id != 0 {
        return Ok(DefaultAction::Const);
    }
    let initial = raw.initial_default_action.as_ref();
    Ok(DefaultAction::Initial(initial.map(read_initial_call).transpose()?))
}

fn read_initial_call(raw: &p4config::TableActionCall) -> Result<ActionCall, P4InfoError> {
    let params = raw.arguments.iter().map(|argument| {
        let value = bytes::decode_value(&argument.value);
        let value = value.ok_or_else(|| P4InfoError::Width("initial_default_action".into()))?;
        Ok(ActionParam { id: argument.param_id, value })
    });
    Ok(ActionCall {
        action: ActionId(raw.action_id),
        params: sort_by_id(params.collect::<Result<_, _>>()?, |param| param.id),
    })
}

fn read_match_field(table: &str, raw: &p4config::MatchField) -> Result<MatchField, P4InfoError> {
    let kind = read_match_kind(raw).ok_or_else(|| P4InfoError::UnknownMatch {
        table: table.into(),
        field: raw.name.clone(),
    })?;
    let slot = read_field_info(raw.id, &raw.name, raw.bitwidth, &raw.annotations)?;
    Ok(MatchField { info: slot, kind })
}

fn read_match_kind(raw: &p4config::MatchField) -> Option<MatchKind> {
    use p4config::match_field::{Match, MatchType};
    let Some(Match::MatchType(number)) = raw.r#match else {
        return None;
    };
    match MatchType::try_from(number).ok()? {
        MatchType::Exact => Some(MatchKind::Exact),
        MatchType::Lpm => Some(MatchKind::Lpm),
        MatchType::Ternary => Some(MatchKind::Ternary),
        MatchType::Range => Some(MatchKind::Range),
        MatchType::Optional => Some(MatchKind::Optional),
        MatchType::Unspecified => None,
    }
}

fn read_field_info(
    id: u32,
    name: &str,
    width: i32,
    notes: &[String],
) -> Result<FieldInfo, P4InfoError> {
    let width = u32::try_from(width).ok().filter(|width| (1..=128).contains(width));
    Ok(FieldInfo {
        id,
        name: name.to_owned(),
        width: width.ok_or_else(|| P4InfoError::Width(name.to_owned()))?,
        format: annotation_arguments(notes, "format")
            .next()
            .map_or(ValueFormat::Number, parse_format),
        refers_to: annotation_arguments(notes, "refers_to").map(referred_table).collect(),
    })
}

/// What stands between the parentheses of every annotation with this name.
fn annotation_arguments<'a>(notes: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    notes.iter().filter_map(move |note| {
        let rest = note.strip_prefix('@')?.strip_prefix(name)?;
        rest.trim().strip_prefix('(')?.strip_suffix(')')
    })
}

fn parse_format(argument: &str) -> ValueFormat {
    match argument.trim() {
        "MAC_ADDRESS" => ValueFormat::Mac,
        "IPV4_ADDRESS" => ValueFormat::Ipv4,
        "IPV6_ADDRESS" => ValueFormat::Ipv6,
        _ => ValueFormat::Number,
    }
}

/// `@refers_to(table, field)`: the order of writes needs only the table.
fn referred_table(arguments: &str) -> String {
    let table = arguments.split(',').next().unwrap_or_default();
    table.trim().to_owned()
}

fn read_counter(raw: &p4config::Counter) -> Result<CounterInfo, P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "counter")?;
    Ok(CounterInfo {
        id: preamble.id,
        name: preamble.alias.clone(),
        full_name: preamble.name.clone(),
        size: u64::try_from(raw.size).unwrap_or(0),
    })
}

fn read_packet_header(
    raw: &p4config::ControllerPacketMetadata,
) -> Result<(String, Vec<FieldInfo>), P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "controller packet header")?;
    let fields = raw
        .metadata
        .iter()
        .filter(|field| !field.annotations.iter().any(|note| note == "@padding"))
        .map(|field| read_field_info(field.id, &field.name, field.bitwidth, &field.annotations));
    Ok((preamble.name.clone(), fields.collect::<Result<_, _>>()?))
}

fn sort_by_id<T, K: Ord>(mut values: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    values.sort_by_key(key);
    values
}

/// Puts every table behind those it refers to, layer by layer.
fn assign_ranks(
    tables: &mut BTreeMap<TableId, TableInfo>,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> Result<(), P4InfoError> {
    let mut waiting: BTreeMap<TableId, BTreeSet<String>> =
        tables.values().map(|table| (table.id, referenced_tables(table, actions))).collect();
    for rank in 0.. {
        let names: BTreeSet<_> = waiting.keys().map(|id| tables[id].name.clone()).collect();
        if names.is_empty() {
            break;
        }
        let before = waiting.len();
        waiting.retain(|id, references| {
            let waits = references.iter().any(|name| names.contains(name));
            if !waits && let Some(table) = tables.get_mut(id) {
                table.rank = rank;
            }
            waits
        });
        if waiting.len() == before {
            return Err(P4InfoError::ReferenceCycle(names.into_iter().collect()));
        }
    }
    Ok(())
}

/// The other tables that rows of this one refer to.
fn referenced_tables(
    table: &TableInfo,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> BTreeSet<String> {
    let fields = table.fields.iter().map(|field| &field.info);
    let params = table.row_actions.iter().flat_map(|id| &actions[id].params);
    fields
        .chain(params)
        .flat_map(|slot| slot.refers_to.iter().cloned())
        .filter(|name| *name != table.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let error = P4Info::parse(text).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    fn table(id: u32, name: &str, rest: &str) -> String {
        format!("tables {{ preamble {{ id: {id} name: 'C.{name}' alias: '{name}' }} {rest} }} ")
    }

    fn field(width: u32, rest: &str) -> String {
        format!("match_fields {{ id: 1 name: 'port' bitwidth: {width} {rest} }}")
    }

    #[test]
    fn errors_are_named() {
        check("tables {", "not the text of a P4Info message");
        check("tables { }", "a table has no preamble");
        check(
            &table(1, "path", "action_refs { id: 7 }"),
            "table `path` uses action 7, which is not there",
        );
        check(
            &table(1, "path", &field(9, "other_match_type: 'selector'")),
            "field `port` of table `path` matches in an unknown way",
        );
        check(
            &table(1, "path", &field(129, "match_type: EXACT")),
            "`port` is not between 1 and 128 bits wide",
        );
        let to = |name: &str| {
            let reference = format!("match_type: EXACT annotations: '@refers_to({name} , port)'");
            field(9, &reference)
        };
        let circle = [table(1, "a", &to("b")), table(2, "b", &to("c")), table(3, "c", &to("a"))];
        check(&circle.concat(), "tables refer to each other in a circle: a, b, c");
    }

    #[test]
    fn a_table_may_refer_to_itself_and_to_what_is_not_there() {
        let to =
            "match_type: EXACT annotations: '@refers_to(a, port)' annotations: '@refers_to(z, z)'";
        let p4info = P4Info::parse(&table(1, "a", &field(9, to))).unwrap();
        let table = p4info.table_named("C.a").unwrap();
        assert_eq!(table.rank, 0);
        assert_eq!(table.fields[0].info.refers_to, ["a", "z"]);
    }
}
