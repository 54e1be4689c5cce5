//! The join of a P4Info with the program compiled from the same source, object by object.
//!
//! Names say what belongs together; whatever both sides declare must then be the same.

use std::collections::BTreeMap;

use p4info::match_field::{Match, MatchType};
use p4runtime_proto::config_v1 as p4info;

use super::{
    ActionSchema, ControllerPacketHeader, FieldSchema, PacketHeaderField, ParameterSchema,
    PipelineSchema, ProfileSchema, SchemaError, TableActionSchemas, TableSchema,
};
use crate::ids::ActionIndex;
use crate::run::program::Program;
use crate::spec::{KeySpec, MatchKind, TableSpec};

impl PipelineSchema {
    /// Joins a P4Info with the program compiled from the same source.
    pub(crate) fn from_p4info(
        info: &p4info::P4Info,
        program: &Program,
    ) -> Result<Self, SchemaError> {
        let mut schema = Self {
            packet_in: resolve_packet_header(info, "packet_in")?,
            packet_out: resolve_packet_header(info, "packet_out")?,
            ..Self::default()
        };
        for table in &info.tables {
            let table = resolve_table(table, info, program)?;
            insert_once(&mut schema.tables, table.id, table, "table")?;
        }
        for profile in &info.action_profiles {
            let profile = schema.resolve_profile(profile, program)?;
            insert_once(&mut schema.profiles, profile.id, profile, "action profile")?;
        }
        schema.check_table_profiles()?;
        for counter in &info.counters {
            let (id, name) = id_and_name(counter.preamble.as_ref());
            let index = find_index(&program.names.counters, "counter", &name)?;
            insert_once(&mut schema.counters, id, index, "counter")?;
        }
        schema.resolve_stateful_objects(info, program)?;
        Ok(schema)
    }

    fn resolve_profile(
        &self,
        profile: &p4info::ActionProfile,
        program: &Program,
    ) -> Result<ProfileSchema, SchemaError> {
        use p4info::action_profile::SelectorSizeSemantics::SumOfMembers;
        let (id, name) = id_and_name(profile.preamble.as_ref());
        let object = format!("action profile {name}");
        let index = find_index(&program.names.profiles, "action profile", &name)?;
        let spec = &program.profiles[index.0 as usize];
        check_same(&object, "selector", profile.with_selector, spec.with_selector)?;
        let table = profile.table_ids.first().copied().unwrap_or_default();
        if !self.tables.contains_key(&table) {
            return Err(SchemaError::Id { object, id: table, problem: "not a table" });
        }
        let max_member_weight = match profile.selector_size_semantics {
            Some(SumOfMembers(limit)) => Some(limit.max_member_weight),
            _ => None,
        };
        let (size, with_selector) = (spec.size, spec.with_selector);
        let max_group_size = profile.max_group_size;
        Ok(ProfileSchema {
            id,
            name,
            index,
            table,
            size,
            with_selector,
            max_group_size,
            max_member_weight,
        })
    }

    /// Every table's profile must be defined.
    fn check_table_profiles(&self) -> Result<(), SchemaError> {
        for table in self.tables.values() {
            if let Some(id) = table.profile.filter(|id| !self.profiles.contains_key(id)) {
                let object = format!("table {}", table.name);
                return Err(SchemaError::Id { object, id, problem: "not an action profile" });
            }
        }
        Ok(())
    }
}

fn resolve_table(
    table: &p4info::Table,
    info: &p4info::P4Info,
    program: &Program,
) -> Result<TableSchema, SchemaError> {
    let (id, name) = id_and_name(table.preamble.as_ref());
    let object = format!("table {name}");
    let index = find_index(&program.names.tables, "table", &name)?;
    let spec = &program.tables[index.0 as usize];
    check_same(&object, "number of match fields", table.match_fields.len(), spec.keys.len())?;
    let fields = spec
        .keys
        .iter()
        .map(|key| resolve_field(&object, key, &table.match_fields))
        .collect::<Result<Vec<_>, _>>()?;
    let counters = info.direct_counters.iter();
    let direct_counter = counters.clone().any(|counter| counter.direct_table_id == id);
    check_same(&object, "direct counter", direct_counter, spec.direct_counter)?;
    check_same(&object, "action profile", table.implementation_id != 0, spec.profile.is_some())?;
    let direct_meter = info.direct_meters.iter().any(|meter| meter.direct_table_id == id);
    check_same(&object, "direct meter", direct_meter, spec.direct_meter.is_some())?;
    let notifies = p4info::table::IdleTimeoutBehavior::NotifyControl;
    Ok(TableSchema {
        takes_priority: spec.takes_priority(),
        actions: resolve_actions(&object, table, info, program, spec)?,
        const_default: Some(table.const_default_action_id).filter(|&action| action != 0),
        is_const: table.is_const_table,
        notifies_idle: table.idle_timeout_behavior() == notifies,
        profile: Some(table.implementation_id).filter(|&profile| profile != 0),
        direct_counter,
        direct_meter,
        id,
        name,
        index,
        fields,
    })
}

fn resolve_field(
    object: &str,
    key: &KeySpec,
    fields: &[p4info::MatchField],
) -> Result<FieldSchema, SchemaError> {
    let field =
        fields.iter().find(|field| field.name == key.name).ok_or_else(|| SchemaError::Differs {
            object: object.to_owned(),
            property: format!("match field {}", key.name),
            p4info: "absent".to_owned(),
            program: "present".to_owned(),
        })?;
    let place = format!("{object}, match field {}", field.name);
    check_same(&place, "bitwidth", i64::from(field.bitwidth), i64::from(key.bits))?;
    let kind = match_kind(&place, field)?;
    // p4c compiles an optional match to a ternary one.
    if (kind, key.kind) != (MatchKind::Optional, MatchKind::Ternary) {
        let (p4info, program) = (format!("{kind:?}"), format!("{:?}", key.kind));
        check_same(&place, "match type", p4info.as_str(), program.as_str())?;
    }
    Ok(FieldSchema { id: field.id, name: field.name.clone(), bits: key.bits, kind })
}

pub(super) fn match_kind(
    place: &str,
    field: &p4info::MatchField,
) -> Result<MatchKind, SchemaError> {
    let feature = match &field.r#match {
        Some(Match::MatchType(number)) => match MatchType::try_from(*number) {
            Ok(MatchType::Exact) => return Ok(MatchKind::Exact),
            Ok(MatchType::Lpm) => return Ok(MatchKind::Lpm),
            Ok(MatchType::Ternary) => return Ok(MatchKind::Ternary),
            Ok(MatchType::Range) => return Ok(MatchKind::Range),
            Ok(MatchType::Optional) => return Ok(MatchKind::Optional),
            _ => format!("match type {number}"),
        },
        Some(Match::OtherMatchType(name)) => format!("match type {name}"),
        None => "a field without a match type".to_owned(),
    };
    Err(SchemaError::Unsupported { object: place.into(), feature })
}

/// The table's actions, each joined with the copy of it that the program gives this table.
fn resolve_actions(
    object: &str,
    table: &p4info::Table,
    info: &p4info::P4Info,
    program: &Program,
    spec: &TableSpec,
) -> Result<TableActionSchemas, SchemaError> {
    let mut actions = TableActionSchemas::default();
    for reference in &table.action_refs {
        let id = reference.id;
        let action = info
            .actions
            .iter()
            .find(|action| id_and_name(action.preamble.as_ref()).0 == id)
            .ok_or_else(|| SchemaError::Id {
                object: object.to_owned(),
                id,
                problem: "not an action",
            })?;
        let name = id_and_name(action.preamble.as_ref()).1;
        let index = *spec
            .actions
            .iter()
            .find(|index| program.action_specs[index.0 as usize].name == name)
            .ok_or_else(|| SchemaError::Missing {
                what: "action",
                name: format!("{name} of {object}"),
            })?;
        let parameters = resolve_parameters(action, index, program)?;
        actions.by_index.insert(index, id);
        let scope = reference.scope();
        let resolved = ActionSchema { name, index, scope, parameters };
        insert_once(&mut actions.by_id, id, resolved, "action reference")?;
    }
    Ok(actions)
}

fn resolve_parameters(
    action: &p4info::Action,
    index: ActionIndex,
    program: &Program,
) -> Result<Vec<ParameterSchema>, SchemaError> {
    let spec = &program.action_specs[index.0 as usize];
    let object = format!("action {}", spec.name);
    check_same(&object, "number of parameters", action.params.len(), spec.parameters.len())?;
    let mut parameters = Vec::new();
    for (param, declared) in action.params.iter().zip(&spec.parameters) {
        check_same(&object, "parameter", param.name.as_str(), declared.name.as_str())?;
        let place = format!("{object}, parameter {}", param.name);
        check_same(&place, "bitwidth", i64::from(param.bitwidth), i64::from(declared.bits))?;
        let (id, name) = (param.id, param.name.clone());
        parameters.push(ParameterSchema { id, name, bits: declared.bits });
    }
    Ok(parameters)
}

fn resolve_packet_header(
    info: &p4info::P4Info,
    name: &str,
) -> Result<ControllerPacketHeader, SchemaError> {
    let headers = &info.controller_packet_metadata;
    let Some(header) = headers.iter().find(|h| id_and_name(h.preamble.as_ref()).1 == name) else {
        return Ok(ControllerPacketHeader::default());
    };
    let mut fields = Vec::new();
    for declared in &header.metadata {
        let width = u32::try_from(declared.bitwidth).ok().filter(|bits| (1..=128).contains(bits));
        let bits = width.ok_or_else(|| SchemaError::Unsupported {
            object: format!("header {name}, field {}", declared.name),
            feature: format!("a width of {} bits", declared.bitwidth),
        })?;
        let is_padding = declared.annotations.iter().any(|text| text.starts_with("@padding"));
        let field = ParameterSchema { id: declared.id, name: declared.name.clone(), bits };
        fields.push(PacketHeaderField { field, is_padding });
    }
    let bits: u32 = fields.iter().map(|field| field.field.bits).sum();
    if !bits.is_multiple_of(8) {
        let feature = format!("a length of {bits} bits, not whole bytes,");
        return Err(SchemaError::Unsupported { object: format!("header {name}"), feature });
    }
    Ok(ControllerPacketHeader { fields })
}

pub(super) fn id_and_name(preamble: Option<&p4info::Preamble>) -> (u32, String) {
    preamble.map(|preamble| (preamble.id, preamble.name.clone())).unwrap_or_default()
}

pub(super) fn find_index<I: Copy>(
    names: &BTreeMap<String, I>,
    what: &'static str,
    name: &str,
) -> Result<I, SchemaError> {
    let found = names.get(name).copied();
    found.ok_or_else(|| SchemaError::Missing { what, name: name.to_owned() })
}

pub(super) fn insert_once<T>(
    map: &mut BTreeMap<u32, T>,
    id: u32,
    value: T,
    what: &'static str,
) -> Result<(), SchemaError> {
    match map.insert(id, value) {
        None if id != 0 => Ok(()),
        None => Err(SchemaError::Id { object: what.to_owned(), id, problem: "not an id" }),
        Some(_) => Err(SchemaError::Id { object: what.to_owned(), id, problem: "used twice" }),
    }
}

pub(super) fn check_same<T: Copy + PartialEq + ToString>(
    object: &str,
    property: &str,
    p4info: T,
    program: T,
) -> Result<(), SchemaError> {
    if p4info == program {
        return Ok(());
    }
    Err(SchemaError::Differs {
        object: object.to_owned(),
        property: property.to_owned(),
        p4info: p4info.to_string(),
        program: program.to_string(),
    })
}
