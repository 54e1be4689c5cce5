//! From the text of P4Info to its index. The decision: refuse what later code could not handle
//! here, once, so that an index in hand is one that works.

use std::collections::{BTreeMap, BTreeSet};

use p4_constraints::{Constraint, Scope};
use p4runtime_proto::config_v1 as p4config;
use p4runtime_proto::config_v1::p4_ids::Prefix;

use super::field_reader::{FieldReader, RawField, annotation_arguments};
use super::{
    ActionInfo, CounterInfo, DefaultAction, FieldInfo, MatchField, MatchKind, P4Info, P4InfoError,
    StringFields, TableInfo, ValueType,
};
use crate::bytes;
use crate::constraint::{scope_of_action, scope_of_table};
use crate::entry::{ActionCall, ActionId, ActionParam, TableId};
use crate::sdn_string::{FieldValue, SdnString};

/// The header of packets to the controller, and its field with the port they came in by.
const PACKET_IN: &str = "packet_in";
const INGRESS_PORT: &str = "ingress_port";

/// The index of a message.
pub(super) fn build_index(message: p4config::P4Info) -> Result<P4Info, P4InfoError> {
    let fields = FieldReader::new(&message);
    let actions =
        index_by_key(&message.actions, |raw| read_action(raw, &fields), |action| action.id)?;
    let read_table = |raw: &p4config::Table| read_table(raw, &fields, &actions);
    let mut tables = index_by_key(&message.tables, read_table, |table| table.id)?;
    assign_ranks(&mut tables, &actions)?;
    let counters = index_by_key(&message.counters, read_counter, |counter| counter.id)?;
    let headers = message.controller_packet_metadata.iter();
    let headers = headers.map(|raw| read_packet_header(raw, &fields));
    let headers: BTreeMap<_, _> = headers.collect::<Result<_, _>>()?;
    let strings = index_strings(&tables, &actions, &headers);
    Ok(P4Info { message, tables, actions, counters, headers, strings })
}

fn index_strings(
    tables: &BTreeMap<TableId, TableInfo>,
    actions: &BTreeMap<ActionId, ActionInfo>,
    headers: &BTreeMap<String, Vec<FieldInfo>>,
) -> StringFields {
    let is_text = |field: &FieldInfo| field.value_type == ValueType::Text;
    let match_fields = tables.values().flat_map(|table| {
        let strings = table.fields.iter().filter(|field| is_text(&field.info));
        strings.map(|field| (table.id, field.info.id))
    });
    let params = actions.values().flat_map(|action| {
        let strings = action.params.iter().filter(|param| is_text(param));
        strings.map(|param| (action.id, param.id))
    });
    let packet_in = headers.get(PACKET_IN).into_iter().flatten();
    let mut ports = packet_in.filter(|field| field.name == INGRESS_PORT);
    StringFields {
        match_fields: match_fields.collect(),
        params: params.collect(),
        ports: ports.any(is_text),
    }
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

fn read_action(
    raw: &p4config::Action,
    fields: &FieldReader<'_>,
) -> Result<ActionInfo, P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "action")?;
    let params = raw.params.iter();
    let params = params.map(|param| {
        fields.read_field(&RawField {
            id: param.id,
            name: &param.name,
            width: param.bitwidth,
            type_name: param.type_name.as_ref(),
            annotations: &param.annotations,
        })
    });
    let params = sort_by_id(params.collect::<Result<Vec<_>, _>>()?, |slot| slot.id);
    let scope = scope_of_action(&params);
    let restriction = read_restriction(preamble, "action_restriction", &scope)?;
    Ok(ActionInfo {
        id: ActionId(preamble.id),
        name: preamble.alias.clone(),
        full_name: preamble.name.clone(),
        params,
        restriction,
    })
}

fn read_table(
    raw: &p4config::Table,
    reader: &FieldReader<'_>,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> Result<TableInfo, P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "table")?;
    let fields = raw.match_fields.iter();
    let fields = fields.map(|field| read_match_field(&preamble.alias, field, reader));
    for reference in &raw.action_refs {
        if !actions.contains_key(&ActionId(reference.id)) {
            return Err(P4InfoError::UnknownAction {
                table: preamble.alias.clone(),
                action: reference.id,
            });
        }
    }
    let (default_only, row_actions) = scoped_actions(raw);
    let fields =
        sort_by_id(fields.collect::<Result<Vec<_>, _>>()?, |field: &MatchField| field.info.id);
    let scope = scope_of_table(&fields);
    let restriction = read_restriction(preamble, "entry_restriction", &scope)?;
    Ok(TableInfo {
        id: TableId(preamble.id),
        name: preamble.alias.clone(),
        full_name: preamble.name.clone(),
        fields,
        row_actions,
        default_only,
        default: read_default_action(raw, actions)?,
        profile: Some(raw.implementation_id).filter(|id| *id != 0),
        counted: has_direct_resource(raw, Prefix::DirectCounter),
        metered: has_direct_resource(raw, Prefix::DirectMeter),
        size: u64::try_from(raw.size).unwrap_or(0),
        restriction,
        is_referred_to: false,
        rank: 0,
    })
}

/// The restriction of a table or action, whose text is a quoted string.
fn read_restriction(
    preamble: &p4config::Preamble,
    annotation: &str,
    scope: &Scope<'_>,
) -> Result<Option<Constraint>, P4InfoError> {
    let text = annotation_arguments(&preamble.annotations, annotation).next();
    let parsed = text.map(|text| Constraint::parse(text.trim().trim_matches('"'), scope));
    let name = &preamble.alias;
    parsed.transpose().map_err(|source| P4InfoError::Restriction { name: name.clone(), source })
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
fn read_default_action(
    raw: &p4config::Table,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> Result<DefaultAction, P4InfoError> {
    if raw.const_default_action_id != 0 || raw.implementation_id != 0 {
        return Ok(DefaultAction::Const);
    }
    let initial = raw.initial_default_action.as_ref();
    let initial =
        initial.map(|call| read_initial_call(call, actions.get(&ActionId(call.action_id))));
    Ok(DefaultAction::Initial(initial.transpose()?))
}

fn read_initial_call(
    raw: &p4config::TableActionCall,
    action: Option<&ActionInfo>,
) -> Result<ActionCall, P4InfoError> {
    let params = raw.arguments.iter().map(|argument| {
        let param = action.and_then(|action| action.param(argument.param_id));
        let value = match param.map(|param| param.value_type) {
            Some(ValueType::Text) => SdnString::from_bytes(&argument.value).map(FieldValue::Text),
            _ => bytes::decode_value(&argument.value).map(FieldValue::Number),
        };
        let value = value.ok_or_else(|| P4InfoError::Width("initial_default_action".into()))?;
        Ok(ActionParam { id: argument.param_id, value })
    });
    Ok(ActionCall {
        action: ActionId(raw.action_id),
        params: sort_by_id(params.collect::<Result<_, _>>()?, |param| param.id),
    })
}

fn read_match_field(
    table: &str,
    raw: &p4config::MatchField,
    reader: &FieldReader<'_>,
) -> Result<MatchField, P4InfoError> {
    let kind = read_match_kind(raw).ok_or_else(|| P4InfoError::UnknownMatch {
        table: table.into(),
        field: raw.name.clone(),
    })?;
    let info = reader.read_field(&RawField {
        id: raw.id,
        name: &raw.name,
        width: raw.bitwidth,
        type_name: raw.type_name.as_ref(),
        annotations: &raw.annotations,
    })?;
    let is_partial = !matches!(kind, MatchKind::Exact | MatchKind::Optional);
    if is_partial && info.value_type == ValueType::Text {
        return Err(P4InfoError::PartialString { table: table.into(), field: info.name });
    }
    Ok(MatchField { info, kind })
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
    reader: &FieldReader<'_>,
) -> Result<(String, Vec<FieldInfo>), P4InfoError> {
    let preamble = checked_preamble(raw.preamble.as_ref(), "controller packet header")?;
    let fields = raw
        .metadata
        .iter()
        .filter(|field| !field.annotations.iter().any(|note| note == "@padding"))
        .map(|field| {
            reader.read_field(&RawField {
                id: field.id,
                name: &field.name,
                width: field.bitwidth,
                type_name: field.type_name.as_ref(),
                annotations: &field.annotations,
            })
        });
    Ok((preamble.name.clone(), fields.collect::<Result<_, _>>()?))
}

fn sort_by_id<T, K: Ord>(mut values: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    values.sort_by_key(key);
    values
}

/// Puts every table behind those it refers to, layer by layer.
///
/// Rows whose keys refer to a row belong to it, as routes do to their VRF and paths to the group of
/// the same leaves: a table that sends packets there comes after the tables of such rows, or the
/// packets would find none.
fn assign_ranks(
    tables: &mut BTreeMap<TableId, TableInfo>,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> Result<(), P4InfoError> {
    let mut waiting: BTreeMap<TableId, BTreeSet<String>> =
        tables.values().map(|table| (table.id, preceding_tables(table, tables, actions))).collect();
    let referred: BTreeSet<String> =
        tables.values().flat_map(|table| referenced_tables(table, actions)).collect();
    for table in tables.values_mut() {
        table.is_referred_to = referred.contains(&table.name);
    }
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

/// The tables that must be written before this one.
fn preceding_tables(
    table: &TableInfo,
    tables: &BTreeMap<TableId, TableInfo>,
    actions: &BTreeMap<ActionId, ActionInfo>,
) -> BTreeSet<String> {
    let params = table.row_actions.iter().flat_map(|id| &actions[id].params);
    let entered: BTreeSet<&String> = params.flat_map(|param| &param.refers_to).collect();
    let is_inside = |other: &&TableInfo| {
        let mut fields = other.fields.iter().flat_map(|field| &field.info.refers_to);
        other.id != table.id && fields.any(|scope| entered.contains(scope))
    };
    let contents = tables.values().filter(is_inside).map(|other| other.name.clone());
    referenced_tables(table, actions).into_iter().chain(contents).collect()
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
        let strings = "type_info { new_types { key: 'id_t' value { translated_type { \
                       sdn_string { } } } } }";
        let of_strings = |kind: &str| {
            let field = format!("type_name {{ name: 'id_t' }} match_type: {kind}");
            table(1, "path", &format!("match_fields {{ id: 1 name: 'port' {field} }}")) + strings
        };
        check(
            &of_strings("LPM"),
            "field `port` of table `path` is a string, which can match as a whole only",
        );
        assert!(P4Info::parse(&of_strings("OPTIONAL")).is_ok());
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
