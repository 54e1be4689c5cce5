//! A program ready to run on any number of devices, and its lookups by name.
//!
//! `compile` makes it; a device holds it behind an `Arc` with the state of its objects beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{
    ActionIndex, CounterIndex, LearnListIndex, MeterIndex, PhvSlot, ProfileIndex, RegisterIndex,
    TableIndex, ValueSetIndex,
};
use crate::run::action::CompiledAction;
use crate::run::deparser::{ChecksumField, Deparser};
use crate::run::hash::HashCalculation;
use crate::run::header::HeaderLayout;
use crate::run::parser::Parser;
use crate::run::phv::PhvLayout;
use crate::run::pipeline::PipelineGraph;
use crate::run::standard_metadata::StandardMetadata;
use crate::spec::{
    ActionSpec, CounterSpec, LearnList, MeterSpec, ProfileSpec, RegisterSpec, TableSpec,
    ValueSetSpec,
};

/// A program ready to run on any number of devices.
#[derive(Debug)]
pub struct Program {
    /// Every table, those that the compiler made included; by [`TableIndex`].
    pub tables: Vec<Arc<TableSpec>>,
    pub(crate) actions: Vec<CompiledAction>,
    /// What every action is to the control plane; by [`ActionIndex`].
    pub action_specs: Vec<ActionSpec>,
    /// Every action profile; by [`ProfileIndex`].
    pub profiles: Vec<ProfileSpec>,
    /// How each profile chooses a member; none for a profile without selector.
    pub(crate) selectors: Vec<Option<HashCalculation>>,
    /// Every indirect counter; by [`CounterIndex`].
    pub counters: Vec<CounterSpec>,
    /// Every indirect meter; by [`MeterIndex`].
    pub meters: Vec<MeterSpec>,
    /// Every register array; by [`RegisterIndex`].
    pub registers: Vec<RegisterSpec>,
    /// Every parser value set; by [`ValueSetIndex`].
    pub value_sets: Vec<ValueSetSpec>,
    /// Every list of fields that digests carry; by [`LearnListIndex`].
    pub learn_lists: Vec<LearnList>,
    /// What copies of a packet keep.
    pub(crate) field_lists: Vec<Vec<PhvSlot>>,
    /// The indices of all of them by name.
    pub names: ObjectNames,
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
        // Names of actions may repeat between controls; among the actions of one table they are
        // unique.
        allowed.iter().find(|action| self.action(**action).is_some_and(|a| a.name == name)).copied()
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

    /// What a register array is.
    pub fn register(&self, register: RegisterIndex) -> Option<&RegisterSpec> {
        self.registers.get(register.0 as usize)
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
pub struct ObjectNames {
    /// Tables.
    pub tables: BTreeMap<String, TableIndex>,
    /// Profiles.
    pub profiles: BTreeMap<String, ProfileIndex>,
    /// Counters.
    pub counters: BTreeMap<String, CounterIndex>,
    /// Meters.
    pub meters: BTreeMap<String, MeterIndex>,
    /// Registers.
    pub registers: BTreeMap<String, RegisterIndex>,
    /// Value sets.
    pub value_sets: BTreeMap<String, ValueSetIndex>,
    /// Learn lists.
    pub learn_lists: BTreeMap<String, LearnListIndex>,
    /// The table behind each direct meter.
    pub direct_meters: BTreeMap<String, TableIndex>,
    /// The table behind each direct counter.
    pub direct_counters: BTreeMap<String, TableIndex>,
}
