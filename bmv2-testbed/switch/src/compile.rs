//! A P4 program ready to run: the BMv2 JSON of p4c with every name resolved to an index.
//!
//! [`Program::load`] reads the JSON (`program/json.rs`), checks that this version can run all of it
//! and compiles it (`program/*.rs`) into what `parser`, `pipeline`, `action` and `deparser`
//! execute. The decision behind it: a construct that cannot be run is refused here with its name
//! and place, and nothing on the packet path sees a string, a map or a missing object.

mod actions;
mod arrays;
mod controls;
mod expressions;
mod header_groups;
mod headers;
mod json;
mod jump_threading;
mod loader;
mod objects;
mod parsers;
mod primitives;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::control::{ActionCall, MatchKey};
use crate::device::StandardMetadata;
use crate::run::action::CompiledAction;
use crate::run::arrays::RegisterSpec;
use crate::run::deparser::{ChecksumField, Deparser};
use crate::run::hash::HashCalculation;
use crate::run::header::HeaderLayout;
use crate::run::meter::{MeterSpec, MeterUnit};
use crate::run::parser::Parser;
use crate::run::phv::{FieldRef, PhvLayout, PhvSlot};
use crate::run::pipeline::PipelineGraph;
pub use loader::LoadError;

/// The number of a table in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub u32);
/// The number of an action in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionIndex(pub u32);
/// The number of an action profile in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileIndex(pub u32);
/// The number of an indirect counter array in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterIndex(pub u32);
/// The number of an indirect meter array in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterIndex(pub u32);
/// The number of a register array in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterIndex(pub u32);
/// The number of a parser value set in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueSetIndex(pub u32);
/// The number of a list of fields that digests carry in a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LearnListIndex(pub u32);
/// The number of a header instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeaderIndex(pub(crate) u32);
/// The number of a header stack or a stack of unions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StackIndex(pub(crate) u32);
/// The number of a variable-length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VarbitIndex(pub(crate) u32);
/// The number of a list of fields that a copy of a packet keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FieldListIndex(pub(crate) u32);

/// How a key field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchKind {
    /// Equality.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value and mask.
    Ternary,
    /// Two bounds.
    Range,
    /// Equality or anything.
    Optional,
}

/// One field of a table's key.
#[derive(Clone, Debug)]
pub struct KeySpec {
    /// Its name, as in the p4info.
    pub name: String,
    /// How it is compared.
    pub kind: MatchKind,
    /// Its width.
    pub bits: u32,
    pub(crate) source: KeySource,
}

/// Where a key field's value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySource {
    /// A field, which reads as 0 while its header is absent; a static mask is applied first.
    Field { slot: PhvSlot, header: HeaderIndex, mask: u128 },
    /// The validity of a header.
    Valid(HeaderIndex),
}

/// What a table is, apart from its entries.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The key, in order; empty for a table that always misses.
    pub keys: Vec<KeySpec>,
    /// The most entries it holds.
    pub size: usize,
    /// The actions its entries and default may call.
    pub actions: Vec<ActionIndex>,
    /// The action profile its entries refer to; none in a direct table.
    pub profile: Option<ProfileIndex>,
    /// Whether each entry counts its packets.
    pub direct_counter: bool,
    /// The meter of each entry, if they have one.
    pub direct_meter: Option<DirectMeter>,
    /// Whether entries may have an idle timeout.
    pub idle_timeout: bool,
    /// Whether anything is noted on a hit: some of the three above.
    pub(crate) tracks_hits: bool,
    /// The default action at load; none means that a miss does nothing.
    pub default: Option<ActionCall>,
    /// How much of the default action the program fixes.
    pub default_mutability: DefaultMutability,
    /// Entries written in the program; such a table takes no others.
    pub constant_entries: Option<Vec<(MatchKey, ActionCall)>>,
    pub(crate) flow: NextNodes,
}

/// The meter of each entry of a table.
#[derive(Clone, Copy, Debug)]
pub struct DirectMeter {
    /// What it counts.
    pub unit: MeterUnit,
    /// Where the colour of the packet goes.
    pub(crate) color: FieldRef,
}

/// How much of a table's default action the program fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultMutability {
    /// Nothing: any action of the table may become the default.
    Free,
    /// The action: only its arguments may change.
    FixedAction,
    /// The action and its arguments.
    Constant,
}

impl TableSpec {
    /// Whether entries carry a priority: some field is ternary, range or optional.
    pub fn takes_priority(&self) -> bool {
        self.keys.iter().any(|key| {
            matches!(key.kind, MatchKind::Ternary | MatchKind::Range | MatchKind::Optional)
        })
    }
}

/// Where control goes after a table, by the action that ran.
#[derive(Clone, Debug)]
pub(crate) struct NextNodes {
    /// After a hit, indexed by action.
    pub(crate) hit: Vec<NextNode>,
    /// After a miss with a default action, indexed by action.
    pub(crate) miss: Vec<NextNode>,
    /// After a miss without one.
    pub(crate) none: NextNode,
}

/// The next node of a pipeline; none is its end.
pub(crate) type NextNode = Option<u32>;

/// An action as the control plane sees it.
#[derive(Clone, Debug)]
pub struct ActionSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<ActionParameter>,
}

/// One parameter of an action.
#[derive(Clone, Debug)]
pub struct ActionParameter {
    /// Its name.
    pub name: String,
    /// Its width.
    pub bits: u32,
}

/// An action profile.
#[derive(Clone, Debug)]
pub struct ProfileSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The most members it holds.
    pub size: usize,
    /// The actions its members may call: those of the tables that use it.
    pub actions: Vec<ActionIndex>,
    /// Whether it has groups.
    pub with_selector: bool,
    pub(crate) selector: Option<HashCalculation>,
}

/// An indirect counter array.
#[derive(Clone, Debug)]
pub struct CounterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
}

/// A set of values that a parser compares with, filled by the control plane.
#[derive(Clone, Debug)]
pub struct ValueSetSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The most members it holds.
    pub size: usize,
    /// The widths of the parts of a member, in order.
    pub bits: Vec<u32>,
}

/// What a digest carries.
#[derive(Clone, Debug)]
pub struct LearnList {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The fields, in order.
    pub(crate) fields: Vec<FieldRef>,
}

impl LearnList {
    /// The widths of the values of a digest, in order.
    pub fn value_widths(&self) -> impl Iterator<Item = u32> {
        self.fields.iter().map(|field| field.bits)
    }
}

/// A program ready to run on any number of devices.
#[derive(Debug)]
pub struct Program {
    pub(crate) tables: Vec<Arc<TableSpec>>,
    pub(crate) actions: Vec<CompiledAction>,
    pub(crate) action_specs: Vec<ActionSpec>,
    pub(crate) profiles: Vec<ProfileSpec>,
    pub(crate) counters: Vec<CounterSpec>,
    pub(crate) meters: Vec<MeterSpec>,
    pub(crate) registers: Vec<RegisterSpec>,
    pub(crate) value_sets: Vec<ValueSetSpec>,
    pub(crate) learn_lists: Vec<LearnList>,
    /// What copies of a packet keep.
    pub(crate) field_lists: Vec<Vec<PhvSlot>>,
    pub(crate) names: ObjectNames,
    pub(crate) shape: PhvLayout,
    pub(crate) headers: Vec<HeaderLayout>,
    /// Every slot of a metadata header.
    pub(crate) metadata_slots: Vec<PhvSlot>,
    pub(crate) standard: StandardMetadata,
    pub(crate) parser: Parser,
    pub(crate) verifications: Vec<ChecksumField>,
    pub(crate) ingress: PipelineGraph,
    pub(crate) egress: PipelineGraph,
    pub(crate) deparser: Deparser,
}

impl Program {
    /// The table of this full name.
    pub fn table_named(&self, name: &str) -> Option<TableIndex> {
        self.names.tables.get(name).copied()
    }

    /// What a table is; the index must come from this program.
    pub fn table(&self, table: TableIndex) -> Option<&TableSpec> {
        self.tables.get(table.0 as usize).map(Arc::as_ref)
    }

    /// All tables, those that the compiler made included.
    pub fn tables(&self) -> impl Iterator<Item = (TableIndex, &TableSpec)> {
        let numbered = self.tables.iter().enumerate();
        numbered.map(|(at, spec)| (TableIndex(at as u32), spec.as_ref()))
    }

    /// The action of this name among `allowed`, a table's or profile's actions: p4c gives every
    /// table its own copy of an action that many use, such as `NoAction`.
    pub fn action_named(&self, allowed: &[ActionIndex], name: &str) -> Option<ActionIndex> {
        let named = |action: &&ActionIndex| self.action(**action).is_some_and(|a| a.name == name);
        allowed.iter().find(named).copied()
    }

    /// What an action is to the control plane.
    pub fn action(&self, action: ActionIndex) -> Option<&ActionSpec> {
        self.action_specs.get(action.0 as usize)
    }

    /// The action profile of this full name.
    pub fn profile_named(&self, name: &str) -> Option<ProfileIndex> {
        self.names.profiles.get(name).copied()
    }

    /// What an action profile is.
    pub fn profile(&self, profile: ProfileIndex) -> Option<&ProfileSpec> {
        self.profiles.get(profile.0 as usize)
    }

    /// The indirect counter of this full name.
    pub fn counter_named(&self, name: &str) -> Option<CounterIndex> {
        self.names.counters.get(name).copied()
    }

    /// What an indirect counter is.
    pub fn counter(&self, counter: CounterIndex) -> Option<&CounterSpec> {
        self.counters.get(counter.0 as usize)
    }

    /// The indirect meter of this full name.
    pub fn meter_named(&self, name: &str) -> Option<MeterIndex> {
        self.names.meters.get(name).copied()
    }

    /// The register array of this full name.
    pub fn register_named(&self, name: &str) -> Option<RegisterIndex> {
        self.names.registers.get(name).copied()
    }

    /// What a register array is.
    pub fn register(&self, register: RegisterIndex) -> Option<&RegisterSpec> {
        self.registers.get(register.0 as usize)
    }

    /// The parser value set of this full name.
    pub fn value_set_named(&self, name: &str) -> Option<ValueSetIndex> {
        self.names.value_sets.get(name).copied()
    }

    /// The list of fields of this full name that digests carry.
    pub fn learn_list_named(&self, name: &str) -> Option<LearnListIndex> {
        self.names.learn_lists.get(name).copied()
    }

    /// The table whose entries the direct meter of this full name colours.
    pub fn direct_meter_named(&self, name: &str) -> Option<TableIndex> {
        self.names.direct_meters.get(name).copied()
    }

    /// The table whose entries the direct counter of this full name counts.
    pub fn direct_counter_named(&self, name: &str) -> Option<TableIndex> {
        self.names.direct_counters.get(name).copied()
    }
}

/// The names of what the control plane may ask for.
#[derive(Debug, Default)]
pub(crate) struct ObjectNames {
    pub(crate) tables: BTreeMap<String, TableIndex>,
    pub(crate) profiles: BTreeMap<String, ProfileIndex>,
    pub(crate) counters: BTreeMap<String, CounterIndex>,
    pub(crate) meters: BTreeMap<String, MeterIndex>,
    pub(crate) registers: BTreeMap<String, RegisterIndex>,
    pub(crate) value_sets: BTreeMap<String, ValueSetIndex>,
    pub(crate) learn_lists: BTreeMap<String, LearnListIndex>,
    /// The table behind each direct meter.
    pub(crate) direct_meters: BTreeMap<String, TableIndex>,
    /// The table behind each direct counter.
    pub(crate) direct_counters: BTreeMap<String, TableIndex>,
}
