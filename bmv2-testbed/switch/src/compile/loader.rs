//! Loading: from JSON text to a [`Program`], or to the reason why not.

use std::collections::{BTreeMap, HashSet};

use super::actions::action_spec;
use super::controls::ControlCompiler;
use super::headers::{HeaderCatalog, refuse_instances};
use super::objects::ProgramObjects;
use super::specialization::{TableActions, specialize};
use super::{arrays, json, parsers};
use crate::ids::{
    ActionIndex, CounterIndex, LearnListIndex, MeterIndex, PhvSlot, ProfileIndex, RegisterIndex,
    TableIndex, ValueSetIndex,
};
use crate::run::deparser::{ChecksumField, Deparser};
use crate::run::parser::Parser;
use crate::run::pipeline::{PipelineGraph, PipelineNode};
use crate::run::program::{ObjectNames, Program};
use crate::run::standard_metadata::StandardMetadata;

/// Why a BMv2 JSON cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not JSON, or not BMv2's.
    #[error("not a BMv2 JSON: {0}")]
    Json(serde_json::Error),
    /// Its format is another one, or newer than what this version knows.
    #[error("BMv2 JSON of version {major}.{minor} is not supported: the newest is 2.24")]
    Version {
        /// The major version it states.
        major: u32,
        /// The minor version it states.
        minor: u32,
    },
    /// It uses something that this version of the switch does not have.
    #[error("{construct} is not supported (in {at})")]
    Unsupported {
        /// What it is, in the words of the BMv2 format.
        construct: String,
        /// The object that uses it.
        at: String,
    },
    /// It refers to something that it does not declare.
    #[error("there is no {what} {name} (in {at})")]
    Missing {
        /// The kind of object.
        what: &'static str,
        /// The name used.
        name: String,
        /// The object that uses it.
        at: String,
    },
    /// The document is malformed.
    #[error("{problem} (in {at})")]
    Malformed {
        /// What is wrong.
        problem: String,
        /// The object in which the error is.
        at: String,
    },
}

impl LoadError {
    pub(super) fn unsupported(construct: impl Into<String>, at: &str) -> Self {
        Self::Unsupported { construct: construct.into(), at: at.to_owned() }
    }

    pub(super) fn missing(what: &'static str, name: &str, at: &str) -> Self {
        Self::Missing { what, name: name.to_owned(), at: at.to_owned() }
    }

    pub(super) fn malformed(problem: impl Into<String>, at: &str) -> Self {
        Self::Malformed { problem: problem.into(), at: at.to_owned() }
    }
}

impl Program {
    /// Reads a program from the JSON that p4c writes for simple_switch.
    ///
    /// # Errors
    ///
    /// When the text is not such a JSON, or the program needs what this version does not have; the
    /// error names it.
    pub fn from_json(json: &[u8]) -> Result<Self, LoadError> {
        let root: json::ProgramDocument = serde_json::from_slice(json).map_err(LoadError::Json)?;
        check_version(root.meta.as_ref())?;
        refuse_instances("extern", &root.extern_instances)?;
        let headers = HeaderCatalog::resolve_headers(&root)?;
        let objects = ProgramObjects::resolve_objects(&root, &headers)?;
        let actions = root
            .actions
            .iter()
            .map(|action| objects.compile_action(action))
            .collect::<Result<Vec<_>, _>>()?;
        let action_specs =
            root.actions.iter().map(action_spec).collect::<Result<Vec<_>, LoadError>>()?;
        let ids = root.actions.iter().enumerate();
        let mut controls = ControlCompiler {
            headers: &headers,
            actions: &actions,
            action_specs: &action_specs,
            action_ids: ids.map(|(at, action)| (action.id, ActionIndex(at as u32))).collect(),
            tables: Vec::new(),
            profiles: Vec::new(),
            selectors: Vec::new(),
            direct_meters: arrays::direct_meters(&root, &headers)?,
        };
        let ingress = controls.compile_pipeline(find_pipeline(&root, "ingress")?)?;
        let egress = controls.compile_pipeline(find_pipeline(&root, "egress")?)?;
        let parser = find_named("parser", "parser", &root.parsers, |parser| &parser.name)?;
        let parser = parsers::compile_parser(parser, &root.errors, &objects)?;
        let field_lists = objects.field_lists(&root)?;
        let ControlCompiler { tables, profiles, selectors, .. } = controls;
        let run = TableActions { tables: &tables, actions: &actions };
        let zeros = zeros_of_ingress(&headers, &parser, &field_lists);
        let ingress = specialize_pipeline("ingress", ingress, zeros, run)?;
        let egress = specialize_pipeline("egress", egress, Vec::new(), run)?;
        let mut program = Self {
            names: ObjectNames::default(),
            counters: arrays::counter_specs(&root)?,
            meters: arrays::meter_specs(&root)?,
            registers: arrays::register_specs(&root)?,
            value_sets: parsers::value_set_specs(&root, &parser),
            learn_lists: objects.learn_lists(&root)?,
            field_lists,
            shape: headers.shape.clone(),
            metadata_slots: headers.metadata_slots(|_| true),
            headers: headers.layouts.clone(),
            standard: standard_metadata(&headers)?,
            parser,
            verifications: compile_checksums(&root, &objects, |checksum| checksum.verify)?,
            deparser: compile_deparser(&root, &objects)?,
            actions,
            action_specs,
            tables,
            profiles,
            selectors,
            ingress,
            egress,
        };
        program.names = object_names(&program, &root)?;
        Ok(program)
    }
}

/// Accepts what bmv2 1.15.5 accepts: any minor version up to its own, and files without a version.
fn check_version(format: Option<&json::FormatDecl>) -> Result<(), LoadError> {
    match format.and_then(|format| format.version) {
        None | Some((2, ..=24)) => Ok(()),
        Some((major, minor)) => Err(LoadError::Version { major, minor }),
    }
}

/// The one object that simple_switch asks for by this name.
fn find_named<'a, T>(
    what: &'static str,
    name: &str,
    objects: &'a [T],
    name_of: impl Fn(&T) -> &String,
) -> Result<&'a T, LoadError> {
    let found = objects.iter().find(|object| name_of(object) == name);
    found.ok_or_else(|| LoadError::missing(what, name, "the program"))
}

fn find_pipeline<'a>(
    root: &'a json::ProgramDocument,
    name: &str,
) -> Result<&'a json::PipelineDecl, LoadError> {
    find_named("pipeline", name, &root.pipelines, |pipeline| &pipeline.name)
}

fn specialize_pipeline(
    name: &str,
    mut graph: PipelineGraph,
    zeros: Vec<PhvSlot>,
    run: TableActions<'_>,
) -> Result<PipelineGraph, LoadError> {
    let order = sort_nodes(&graph.nodes)
        .ok_or_else(|| LoadError::malformed("the control flow has a cycle", name))?;
    specialize(&mut graph, &order, zeros, run);
    Ok(graph)
}

/// The metadata fields that are 0 when ingress begins: neither the device nor the parser writes
/// them, and packets that come again do not bring them.
fn zeros_of_ingress(
    headers: &HeaderCatalog,
    parser: &Parser,
    field_lists: &[Vec<PhvSlot>],
) -> Vec<PhvSlot> {
    let Some(parsed) = parser.written_slots() else {
        return Vec::new();
    };
    let written: HashSet<PhvSlot> = field_lists.iter().flatten().copied().chain(parsed).collect();
    let mut slots = headers.metadata_slots(|name| !DEVICE_METADATA.contains(&name));
    slots.retain(|slot| !written.contains(slot));
    slots
}

/// The nodes in an order in which each is before those that it leads to; none if some node leads
/// back to itself (Kahn's algorithm).
pub(super) fn sort_nodes(nodes: &[PipelineNode]) -> Option<Vec<usize>> {
    let mut incoming = vec![0_usize; nodes.len()];
    let successors = nodes.iter().flat_map(PipelineNode::successors);
    successors.for_each(|to| incoming[to as usize] += 1);
    let mut order: Vec<usize> = (0..nodes.len()).filter(|node| incoming[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done) {
        done += 1;
        for to in nodes[*node].successors() {
            incoming[to as usize] -= 1;
            if incoming[to as usize] == 0 {
                order.push(to as usize);
            }
        }
    }
    (order.len() == nodes.len()).then_some(order)
}

fn compile_checksums(
    root: &json::ProgramDocument,
    objects: &ProgramObjects<'_>,
    wanted: impl Fn(&json::ChecksumDecl) -> bool,
) -> Result<Vec<ChecksumField>, LoadError> {
    let wanted = root.checksums.iter().filter(|checksum| wanted(checksum));
    wanted.map(|checksum| objects.compile_checksum(checksum)).collect()
}

fn compile_deparser(
    root: &json::ProgramDocument,
    objects: &ProgramObjects<'_>,
) -> Result<Deparser, LoadError> {
    let declared = find_named("deparser", "deparser", &root.deparsers, |deparser| &deparser.name)?;
    Ok(Deparser {
        order: declared
            .order
            .iter()
            .map(|name| Ok(objects.headers.find_header(name, &declared.name)?.index))
            .collect::<Result<_, LoadError>>()?,
        action: objects.compile_body(&declared.primitives, &[], &declared.name)?,
        updates: compile_checksums(root, objects, |checksum| checksum.update)?,
    })
}

/// The headers whose fields the device writes. P4_14 programs have the second and third.
const DEVICE_METADATA: [&str; 3] = ["standard_metadata", "intrinsic_metadata", "queueing_metadata"];

fn standard_metadata(headers: &HeaderCatalog) -> Result<StandardMetadata, LoadError> {
    let find = |header: &str, name: &str| headers.plain_field(header, name, "simple_switch");
    let [standard, intrinsic, queueing] = DEVICE_METADATA;
    let field = |name: &str| find(standard, name);
    // p4c writes aliases of such names.
    let optional = |name: &str| {
        let found = find(intrinsic, name).or_else(|_| find(queueing, name));
        found.or_else(|_| field(name)).ok()
    };
    Ok(StandardMetadata {
        ingress_port: field("ingress_port")?,
        egress_spec: field("egress_spec")?,
        egress_port: field("egress_port")?,
        packet_length: field("packet_length")?,
        instance_type: optional("instance_type"),
        egress_rid: optional("egress_rid"),
        priority: optional("priority"),
        multicast: optional("mcast_grp"),
        parser_error: optional("parser_error"),
        checksum_error: optional("checksum_error"),
        ingress_timestamp: optional("ingress_global_timestamp"),
        egress_timestamp: optional("egress_global_timestamp"),
        enqueue_timestamp: optional("enq_timestamp"),
        enqueue_depth: optional("enq_qdepth"),
        dequeue_delta: optional("deq_timedelta"),
        dequeue_depth: optional("deq_qdepth"),
    })
}

fn object_names(program: &Program, root: &json::ProgramDocument) -> Result<ObjectNames, LoadError> {
    let tables: BTreeMap<_, _> =
        program.tables().map(|(index, spec)| (spec.name.clone(), index)).collect();
    let direct = |name: &String, binding: &Option<String>| {
        let binding = binding.as_deref().unwrap_or("");
        let table: Option<&TableIndex> = tables.get(binding);
        let table = table.ok_or_else(|| LoadError::missing("table", binding, name))?;
        Ok::<_, LoadError>((name.clone(), *table))
    };
    let counters = root.counter_arrays.iter().filter(|array| array.is_direct);
    let meters = root.meter_arrays.iter().filter(|array| array.is_direct);
    Ok(ObjectNames {
        direct_counters: counters
            .map(|array| direct(&array.name, &array.binding))
            .collect::<Result<_, _>>()?,
        direct_meters: meters
            .map(|array| direct(&array.name, &array.binding))
            .collect::<Result<_, _>>()?,
        profiles: index_by_name(program.profiles.iter().map(|spec| &spec.name), ProfileIndex),
        counters: index_by_name(program.counters.iter().map(|spec| &spec.name), CounterIndex),
        meters: index_by_name(program.meters.iter().map(|spec| &spec.name), MeterIndex),
        registers: index_by_name(program.registers.iter().map(|spec| &spec.name), RegisterIndex),
        value_sets: index_by_name(program.value_sets.iter().map(|spec| &spec.name), ValueSetIndex),
        learn_lists: index_by_name(
            program.learn_lists.iter().map(|list| &list.name),
            LearnListIndex,
        ),
        tables,
    })
}

fn index_by_name<'a, I>(
    names: impl Iterator<Item = &'a String>,
    index: fn(u32) -> I,
) -> BTreeMap<String, I> {
    names.enumerate().map(|(at, name)| (name.clone(), index(at as u32))).collect()
}
