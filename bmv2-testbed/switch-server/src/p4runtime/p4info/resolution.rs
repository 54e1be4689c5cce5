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
use switch::Program;
use switch::{ActionIndex, TableIndex};
use switch::{KeySpec, MatchKind, TableSpec};

impl PipelineSchema {
    /// Joins a P4Info with the program compiled from the same source.
    pub(crate) fn from_p4info(
        info: &p4info::P4Info,
        program: &Program,
    ) -> Result<Self, SchemaError> {
        let mut schema = Self::default();
        for table in &info.tables {
            let (id, name) = id_and_name(table.preamble.as_ref());
            match find_index(&program.names.tables, "table", &name) {
                Ok(index) => {
                    let table = resolve_table(table, index, info, program)?;
                    insert_once(&mut schema.tables, id, table, "table")?;
                }
                Err(missing) => schema.mark_unusable(id, missing)?,
            }
        }
        schema.refuse_renamed_table(program)?;
        for profile in &info.action_profiles {
            let (id, _) = id_and_name(profile.preamble.as_ref());
            match schema.unused_profile(profile) {
                Some(unused) => schema.mark_unusable(id, unused)?,
                None => {
                    let profile = schema.resolve_profile(profile, program)?;
                    insert_once(&mut schema.profiles, id, profile, "action profile")?;
                }
            }
        }
        schema.check_table_profiles()?;
        for counter in &info.counters {
            let (id, name) = id_and_name(counter.preamble.as_ref());
            let index = find_index(&program.names.counters, "counter", &name)?;
            insert_once(&mut schema.counters, id, index, "counter")?;
        }
        schema.resolve_stateful_objects(info, program)?;
        let widths = schema.type_widths(info);
        schema.packet_in = resolve_packet_header(info, "packet_in", &widths)?;
        schema.packet_out = resolve_packet_header(info, "packet_out", &widths)?;
        Ok(schema)
    }

    /// The widths that translated types have in the program. P4Info has none for them, but tables
    /// whose keys or actions have the type do.
    fn type_widths<'a>(&self, info: &'a p4info::P4Info) -> BTreeMap<&'a str, u32> {
        let mut widths = BTreeMap::new();
        for table in &info.tables {
            let (id, _) = id_and_name(table.preamble.as_ref());
            for field in &table.match_fields {
                let known = self.tables.get(&id).map(|table| &table.fields);
                let known = known.and_then(|known| known.iter().find(|known| known.id == field.id));
                if let (Some(named), Some(known)) = (&field.type_name, known) {
                    widths.insert(named.name.as_str(), known.bits);
                }
            }
        }
        for action in &info.actions {
            let (id, _) = id_and_name(action.preamble.as_ref());
            let known = self.tables.values().find_map(|table| table.actions.by_id.get(&id));
            for (param, known) in action.params.iter().zip(known.iter().flat_map(|k| &k.parameters))
            {
                if let Some(named) = &param.type_name {
                    widths.insert(named.name.as_str(), known.bits);
                }
            }
        }
        widths
    }

    /// A table that only the P4Info has is one that p4c found to be dead, unless the program has a
    /// table that the P4Info lacks. p4c's own tables have names without a dot.
    fn refuse_renamed_table(&self, program: &Program) -> Result<(), SchemaError> {
        let has_unknown_table = program
            .tables()
            .filter(|(_, spec)| spec.name.contains('.'))
            .any(|(index, _)| self.tables.values().all(|table| table.index != index));
        match self.unusable.values().next() {
            Some(missing) if has_unknown_table => Err(missing.clone()),
            _ => Ok(()),
        }
    }

    /// Keeps why an object cannot be used.
    pub(super) fn mark_unusable(&mut self, id: u32, why: SchemaError) -> Result<(), SchemaError> {
        insert_once(&mut self.unusable, id, why, "object")
    }

    /// Why a profile cannot be used: no table of the program has it.
    fn unused_profile(&self, profile: &p4info::ActionProfile) -> Option<SchemaError> {
        let is_unused = profile.table_ids.iter().all(|id| self.unusable.contains_key(id));
        let (_, name) = id_and_name(profile.preamble.as_ref());
        let feature = "an action profile that no table uses".to_owned();
        let object = format!("action profile {name}");
        is_unused.then_some(SchemaError::Unsupported { object, feature })
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
        let usable = profile.table_ids.iter().filter(|id| !self.unusable.contains_key(id));
        let table = usable.copied().next().unwrap_or_default();
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
    index: TableIndex,
    info: &p4info::P4Info,
    program: &Program,
) -> Result<TableSchema, SchemaError> {
    let (id, name) = id_and_name(table.preamble.as_ref());
    let object = format!("table {name}");
    let spec = &program.tables[index.0 as usize];
    check_same(&object, "number of match fields", table.match_fields.len(), spec.keys.len())?;
    let fields = spec
        .keys
        .iter()
        .map(|key| resolve_field(&object, key, &table.match_fields, info))
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
    info: &p4info::P4Info,
) -> Result<FieldSchema, SchemaError> {
    let field =
        fields.iter().find(|field| field.name == key.name).ok_or_else(|| SchemaError::Differs {
            object: object.to_owned(),
            property: format!("match field {}", key.name),
            p4info: "absent".to_owned(),
            program: "present".to_owned(),
        })?;
    let place = format!("{object}, match field {}", field.name);
    let declared = DeclaredWidth::new(field.bitwidth, field.type_name.as_ref(), info);
    declared.check_width(&place, key.bits)?;
    let kind = match_kind(&place, field)?;
    // p4c compiles an optional match to a ternary one.
    if (kind, key.kind) != (MatchKind::Optional, MatchKind::Ternary) {
        let (p4info, program) = (format!("{kind:?}"), format!("{:?}", key.kind));
        check_same(&place, "match type", p4info.as_str(), program.as_str())?;
    }
    Ok(FieldSchema { id: field.id, name: field.name.clone(), bits: key.bits, kind })
}

/// The width that a P4Info declares for a value of the program.
pub(super) struct DeclaredWidth {
    bits: i32,
    is_translated: bool,
}

impl DeclaredWidth {
    pub(super) fn new(
        bits: i32,
        type_name: Option<&p4info::P4NamedType>,
        info: &p4info::P4Info,
    ) -> Self {
        use p4info::p4_new_type_spec::Representation::TranslatedType;
        let types = info.type_info.as_ref().map(|types| &types.new_types);
        let named = types.zip(type_name).and_then(|(types, named)| types.get(&named.name));
        let representation = named.and_then(|named| named.representation.as_ref());
        Self { bits, is_translated: matches!(representation, Some(TranslatedType(_))) }
    }

    /// The widths must agree, but for values that the controller writes in a form of its own: those
    /// of a translated type, and strings and errors, which have width 0.
    pub(super) fn check_width(&self, place: &str, program: u32) -> Result<(), SchemaError> {
        if self.is_translated || self.bits == 0 {
            return Ok(());
        }
        check_same(place, "bitwidth", i64::from(self.bits), i64::from(program))
    }
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
        let parameters = resolve_parameters(action, index, info, program)?;
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
    info: &p4info::P4Info,
    program: &Program,
) -> Result<Vec<ParameterSchema>, SchemaError> {
    let spec = &program.action_specs[index.0 as usize];
    let object = format!("action {}", spec.name);
    check_same(&object, "number of parameters", action.params.len(), spec.parameters.len())?;
    let mut parameters = Vec::new();
    for (param, declared) in action.params.iter().zip(&spec.parameters) {
        check_same(&object, "parameter", param.name.as_str(), declared.name.as_str())?;
        let place = format!("{object}, parameter {}", param.name);
        let width = DeclaredWidth::new(param.bitwidth, param.type_name.as_ref(), info);
        width.check_width(&place, declared.bits)?;
        let (id, name) = (param.id, param.name.clone());
        parameters.push(ParameterSchema { id, name, bits: declared.bits });
    }
    Ok(parameters)
}

fn resolve_packet_header(
    info: &p4info::P4Info,
    name: &str,
    widths: &BTreeMap<&str, u32>,
) -> Result<ControllerPacketHeader, SchemaError> {
    let headers = &info.controller_packet_metadata;
    let Some(header) = headers.iter().find(|h| id_and_name(h.preamble.as_ref()).1 == name) else {
        return Ok(ControllerPacketHeader::default());
    };
    let mut fields = Vec::new();
    for declared in &header.metadata {
        let translated = declared.type_name.as_ref().map(|named| named.name.as_str());
        let translated = translated.and_then(|name| widths.get(name).copied());
        let width = translated.or_else(|| u32::try_from(declared.bitwidth).ok());
        let bits = width.filter(|bits| *bits <= 128).ok_or_else(|| SchemaError::Unsupported {
            object: format!("header {name}, field {}", declared.name),
            feature: format!("a width of {} bits", declared.bitwidth),
        })?;
        let is_padding = declared.annotations.iter().any(|text| text.starts_with("@padding"));
        let field = ParameterSchema { id: declared.id, name: declared.name.clone(), bits };
        fields.push(PacketHeaderField { field, is_padding });
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
