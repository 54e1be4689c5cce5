//! What only a PINS switch reads in a P4Info: strings for numbers, roles, restrictions, references.
//!
//! It is resolved once, when a pipeline is set, so that a restriction that cannot be read or a
//! reference to a table that does not exist refuses the pipeline and not, later, an entry.

use std::collections::{BTreeMap, BTreeSet};

use p4_constraints::{Constraint, Operand, Scope};
use p4info::p4_new_type_spec::Representation::TranslatedType;
use p4info::p4_new_type_translation::SdnType;
use p4runtime_proto::config_v1 as p4info;

use super::PortNames;
use crate::p4runtime::p4info::{
    ActionSchema, ParameterSchema, PipelineSchema, SchemaError, TableSchema,
};
use switch::MatchKind;

/// The type of ports: it is translated by their names, all others by allocation.
const PORT_TYPE: &str = "port_id_t";
/// Tables whose entry for the empty string always exists: the default VRF is not written.
const VRF_TABLE: &str = "vrf_table";
/// Tables of the architecture, which P4Info does not list.
const BUILTIN: &str = "builtin::";

/// A pipeline as PINS sees it, beside its [`PipelineSchema`].
#[derive(Debug)]
pub(crate) struct PinsSchema {
    pub(super) port_names: PortNames,
    pub(super) tables: BTreeMap<u32, PinsTable>,
    /// By P4Info id.
    pub(super) actions: BTreeMap<u32, PinsAction>,
    /// The port fields of packets to and from controllers.
    pub(super) packet_ports: BTreeSet<u32>,
    pub(super) packet_out_ports: BTreeSet<u32>,
    /// The fields by which a table is referred to, in every combination.
    pub(super) referred: BTreeMap<u32, BTreeSet<Vec<usize>>>,
}

/// What a table has beyond its [`TableSchema`].
#[derive(Debug)]
pub(super) struct PinsTable {
    pub(super) alias: String,
    /// Whose it is; empty for nobody's in particular.
    pub(super) role: String,
    /// Whether its counters are read with its entries.
    pub(super) is_acl: bool,
    pub(super) checked: CheckedFields,
}

/// What an action has beyond its parameters.
#[derive(Debug)]
pub(super) struct PinsAction {
    pub(super) name: String,
    pub(super) checked: CheckedFields,
}

/// The strings, restriction and references of a key or of an action's arguments.
#[derive(Debug, Default)]
pub(super) struct CheckedFields {
    /// By field or parameter id.
    pub(super) strings: BTreeMap<u32, StringType>,
    /// Its operands have their places among the fields as ids.
    pub(super) restriction: Constraint,
    pub(super) references: Vec<TableReference>,
}

/// A type whose values are strings to controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StringType {
    Port,
    /// Its name, and how many bits its numbers have.
    Allocated(String, u32),
}

/// Values that must be those of an entry of another table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableReference {
    pub(super) table: u32,
    /// The place of each value here, and of its field in the other table's key, which ascends.
    pub(super) fields: Vec<(usize, usize)>,
    /// Whether 0, the empty string, stands for something that is never written.
    pub(super) has_default: bool,
}

/// A field or parameter as P4Info declares it.
struct DeclaredField<'a> {
    id: u32,
    name: &'a str,
    kind: MatchKind,
    bits: u32,
    type_name: Option<&'a p4info::P4NamedType>,
    annotations: &'a [String],
}

impl DeclaredField<'_> {
    fn operand(&self, place: u32) -> Operand {
        let kind = match self.kind {
            MatchKind::Exact => p4_constraints::MatchKind::Exact,
            MatchKind::Lpm => p4_constraints::MatchKind::Lpm,
            MatchKind::Ternary => p4_constraints::MatchKind::Ternary,
            MatchKind::Range => p4_constraints::MatchKind::Range,
            MatchKind::Optional => p4_constraints::MatchKind::Optional,
        };
        let max = u128::MAX.checked_shr(128 - self.bits.min(128)).unwrap_or(0);
        Operand { id: place, kind, max }
    }
}

impl PinsSchema {
    /// Reads the P4Info of a pipeline.
    pub(crate) fn from_p4info(
        info: &p4info::P4Info,
        pipeline: &PipelineSchema,
        port_names: PortNames,
    ) -> Result<Self, SchemaError> {
        let mut schema = Self {
            port_names,
            tables: BTreeMap::new(),
            actions: BTreeMap::new(),
            packet_ports: port_fields(info, "packet_in"),
            packet_out_ports: port_fields(info, "packet_out"),
            referred: BTreeMap::new(),
        };
        for table in &info.tables {
            let preamble = table.preamble.clone().unwrap_or_default();
            if let Some(known) = pipeline.tables.get(&preamble.id) {
                let fields: Vec<_> = declared_fields(table, known).collect();
                let object = format!("table {}", known.name);
                schema.tables.insert(
                    preamble.id,
                    PinsTable {
                        alias: preamble.alias.clone(),
                        role: annotation(&preamble.annotations, "p4runtime_role")
                            .map_or_else(String::new, unquote),
                        is_acl: annotation(&preamble.annotations, "sai_acl").is_some(),
                        checked: CheckedFields::resolve(
                            &object,
                            &fields,
                            (&preamble.annotations, "entry_restriction"),
                            info,
                            pipeline,
                        )?,
                    },
                );
                schema.add_actions(known, info, pipeline)?;
            }
        }
        schema.collect_referred();
        Ok(schema)
    }

    fn add_actions(
        &mut self,
        table: &TableSchema,
        info: &p4info::P4Info,
        pipeline: &PipelineSchema,
    ) -> Result<(), SchemaError> {
        for (id, action) in &table.actions.by_id {
            let declared = info.actions.iter().find(|declared| {
                declared.preamble.as_ref().is_some_and(|preamble| preamble.id == *id)
            });
            let (Some(declared), false) = (declared, self.actions.contains_key(id)) else {
                continue;
            };
            let preamble = declared.preamble.as_ref();
            let annotations = preamble.map_or(&[][..], |preamble| &preamble.annotations);
            let fields: Vec<_> = declared_parameters(declared, action).collect();
            let object = format!("action {}", action.name);
            let restriction = (annotations, "action_restriction");
            let checked = CheckedFields::resolve(&object, &fields, restriction, info, pipeline)?;
            self.actions.insert(*id, PinsAction { name: action.name.clone(), checked });
        }
        Ok(())
    }

    fn collect_referred(&mut self) {
        let tables = self.tables.values().map(|table| &table.checked);
        let actions = self.actions.values().map(|action| &action.checked);
        for reference in tables.chain(actions).flat_map(|checked| &checked.references) {
            let places = reference.fields.iter().map(|(_, place)| *place).collect();
            self.referred.entry(reference.table).or_default().insert(places);
        }
    }
}

impl CheckedFields {
    /// Reads a key or an action, whose restriction is that annotation.
    fn resolve(
        object: &str,
        fields: &[DeclaredField<'_>],
        (annotations, restriction): (&[String], &str),
        info: &p4info::P4Info,
        pipeline: &PipelineSchema,
    ) -> Result<Self, SchemaError> {
        let unsupported =
            |feature: String| SchemaError::Unsupported { object: object.to_owned(), feature };
        let mut checked = Self::default();
        for field in fields {
            if let Some(string_type) = string_type(field.type_name, field.bits, info) {
                if !matches!(field.kind, MatchKind::Exact | MatchKind::Optional) {
                    let what = format!("a {:?} match of the string {}", field.kind, field.name);
                    return Err(unsupported(what));
                }
                checked.strings.insert(field.id, string_type);
            }
        }
        if let Some(text) = annotation(annotations, restriction) {
            let operands =
                (0..).zip(fields).map(|(place, field)| (field.name, field.operand(place)));
            let has_priority = restriction == "entry_restriction";
            let scope = Scope { operands: operands.collect(), has_priority };
            checked.restriction = Constraint::parse(&unquote(text), &scope)
                .map_err(|error| unsupported(format!("the restriction ({error})")))?;
        }
        checked.references = resolve_references(fields, info, pipeline).map_err(unsupported)?;
        Ok(checked)
    }
}

/// The references of a key or an action: those to one table are one, to one entry of it.
fn resolve_references(
    fields: &[DeclaredField<'_>],
    info: &p4info::P4Info,
    pipeline: &PipelineSchema,
) -> Result<Vec<TableReference>, String> {
    let mut references: Vec<TableReference> = Vec::new();
    for (source, field) in fields.iter().enumerate() {
        for text in annotations(field.annotations, "refers_to") {
            let Some((alias, name)) = text.split_once(',') else {
                return Err(format!("@refers_to({text}): a table and a field are needed"));
            };
            let (alias, name) = (alias.trim(), name.trim());
            // Some versions of p4c write a space around each colon.
            if alias.replace(' ', "").starts_with(BUILTIN) {
                continue;
            }
            let table = info.tables.iter().find_map(|table| {
                let preamble = table.preamble.as_ref()?;
                (preamble.alias == alias).then_some(preamble.id)
            });
            let table = table.and_then(|id| pipeline.tables.get(&id));
            let place =
                table.and_then(|table| table.fields.iter().position(|field| field.name == name));
            let (Some(table), Some(place)) = (table, place) else {
                return Err(format!("@refers_to({text}): there is no such field"));
            };
            match references.iter_mut().find(|known| known.table == table.id) {
                Some(known) => known.fields.push((source, place)),
                None => references.push(TableReference {
                    table: table.id,
                    fields: vec![(source, place)],
                    has_default: alias == VRF_TABLE,
                }),
            }
        }
    }
    references.iter_mut().for_each(|known| known.fields.sort_by_key(|(_, place)| *place));
    Ok(references)
}

/// The match fields of a table, in the order of the program's key.
fn declared_fields<'a>(
    table: &'a p4info::Table,
    known: &'a TableSchema,
) -> impl Iterator<Item = DeclaredField<'a>> {
    known.fields.iter().filter_map(|schema| {
        let field = table.match_fields.iter().find(|field| field.id == schema.id)?;
        Some(DeclaredField {
            id: field.id,
            name: &field.name,
            kind: schema.kind,
            bits: schema.bits,
            type_name: field.type_name.as_ref(),
            annotations: &field.annotations,
        })
    })
}

/// The parameters of an action, in the program's order.
fn declared_parameters<'a>(
    action: &'a p4info::Action,
    known: &'a ActionSchema,
) -> impl Iterator<Item = DeclaredField<'a>> {
    known.parameters.iter().filter_map(|schema: &ParameterSchema| {
        let param = action.params.iter().find(|param| param.id == schema.id)?;
        Some(DeclaredField {
            id: param.id,
            name: &param.name,
            kind: MatchKind::Exact,
            bits: schema.bits,
            type_name: param.type_name.as_ref(),
            annotations: &param.annotations,
        })
    })
}

/// The type of a value that controllers write as a string.
fn string_type(
    named: Option<&p4info::P4NamedType>,
    bits: u32,
    info: &p4info::P4Info,
) -> Option<StringType> {
    let name = &named?.name;
    let declared = info.type_info.as_ref()?.new_types.get(name)?;
    match &declared.representation {
        Some(TranslatedType(p4info::P4NewTypeTranslation {
            sdn_type: Some(SdnType::SdnString(_)),
            ..
        })) if name == PORT_TYPE => Some(StringType::Port),
        Some(TranslatedType(p4info::P4NewTypeTranslation {
            sdn_type: Some(SdnType::SdnString(_)),
            ..
        })) => Some(StringType::Allocated(name.clone(), bits)),
        _ => None,
    }
}

/// The ids of a header's fields that are ports in strings.
fn port_fields(info: &p4info::P4Info, header: &str) -> BTreeSet<u32> {
    let headers = info.controller_packet_metadata.iter();
    let mut named = headers
        .filter(|known| known.preamble.as_ref().is_some_and(|preamble| preamble.name == header));
    let fields = named.next().map_or(&[][..], |known| &known.metadata);
    let ports = fields
        .iter()
        .filter(|field| string_type(field.type_name.as_ref(), 0, info) == Some(StringType::Port));
    ports.map(|field| field.id).collect()
}

/// The arguments of the first annotation of this name.
fn annotation<'a>(all: &'a [String], name: &str) -> Option<&'a str> {
    annotations(all, name).next()
}

/// The arguments of all annotations of this name.
fn annotations<'a>(all: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    all.iter().filter_map(move |text| {
        let arguments = text.strip_prefix('@')?.strip_prefix(name)?.trim_start();
        arguments.strip_prefix('(')?.strip_suffix(')').map(str::trim)
    })
}

/// A string literal without its quotes.
fn unquote(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    inner.replace("\\\"", "\"").replace("\\n", "\n")
}
