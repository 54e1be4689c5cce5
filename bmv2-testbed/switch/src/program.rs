//! A P4 program ready to run: the BMv2 JSON of p4c with every name resolved to an index.
//!
//! [`Program::load`] reads the JSON (`program/json.rs`), checks that this version can run all of it
//! and compiles it (`program/*.rs`) into what `parser`, `pipeline`, `action` and `deparser`
//! execute. The decision behind it: a construct that cannot be run is refused here with its name
//! and place, and nothing on the packet path sees a string, a map or a missing object.

mod actions;
mod controls;
mod expressions;
mod headers;
mod json;
mod load;
mod parsers;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::action::Action;
use crate::control::{ActionCall, MatchKey};
use crate::deparser::{Checksum, Deparser};
use crate::device::StandardMetadata;
use crate::hash::Calculation;
use crate::parser::Parser;
use crate::phv::Slot;
use crate::pipeline::Pipeline;
pub use load::LoadError;

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
/// The number of a header instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeaderIndex(pub(crate) u32);

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
    Field {
        slot: Slot,
        header: HeaderIndex,
        mask: u128,
    },
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
    /// The default action at load; none means that a miss does nothing.
    pub default: Option<ActionCall>,
    /// How much of the default action the program fixes.
    pub default_is: DefaultIs,
    /// Entries written in the program; such a table takes no others.
    pub constant_entries: Option<Vec<(MatchKey, ActionCall)>>,
    pub(crate) flow: Flow,
}

/// How much of a table's default action the program fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultIs {
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
            matches!(
                key.kind,
                MatchKind::Ternary | MatchKind::Range | MatchKind::Optional
            )
        })
    }
}

/// Where control goes after a table, by the action that ran.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// After a hit, indexed by action.
    pub(crate) hit: Vec<Next>,
    /// After a miss with a default action, indexed by action.
    pub(crate) miss: Vec<Next>,
    /// After a miss without one.
    pub(crate) none: Next,
}

/// The next node of a pipeline; none is its end.
pub(crate) type Next = Option<u32>;

/// An action as the control plane sees it.
#[derive(Clone, Debug)]
pub struct ActionSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
}

/// One parameter of an action.
#[derive(Clone, Debug)]
pub struct Parameter {
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
    pub(crate) selector: Option<Calculation>,
}

/// An indirect counter array.
#[derive(Clone, Debug)]
pub struct CounterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
}

/// A program ready to run on any number of devices.
#[derive(Debug)]
pub struct Program {
    pub(crate) tables: Vec<Arc<TableSpec>>,
    pub(crate) actions: Vec<Action>,
    pub(crate) action_specs: Vec<ActionSpec>,
    pub(crate) profiles: Vec<ProfileSpec>,
    pub(crate) counters: Vec<CounterSpec>,
    pub(crate) names: Names,
    pub(crate) slots: usize,
    /// For each header, whether it is metadata.
    pub(crate) metadata: Vec<bool>,
    pub(crate) standard: StandardMetadata,
    pub(crate) parser: Parser,
    pub(crate) verifications: Vec<Checksum>,
    pub(crate) ingress: Pipeline,
    pub(crate) egress: Pipeline,
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

    /// The table whose entries the direct counter of this full name counts.
    pub fn direct_counter_named(&self, name: &str) -> Option<TableIndex> {
        self.names.direct_counters.get(name).copied()
    }
}

/// The names of what the control plane may ask for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) tables: BTreeMap<String, TableIndex>,
    pub(crate) profiles: BTreeMap<String, ProfileIndex>,
    pub(crate) counters: BTreeMap<String, CounterIndex>,
    /// The table behind each direct counter.
    pub(crate) direct_counters: BTreeMap<String, TableIndex>,
}
