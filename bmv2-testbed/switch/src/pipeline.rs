//! A pipeline: the control flow of ingress or of egress as a graph of tables, branches and calls.
//!
//! Compiled from the JSON by `program/controls.rs` and walked once per packet. Tables that p4c
//! makes for plain statements (no key, a constant default) are compiled to calls, since nobody can
//! write them. Every walk ends, because a graph with a cycle is refused when the program is loaded.

use crate::action::{Action, Machine};
use crate::control::{ActionCall, Target};
use crate::expression::Cond;
use crate::profile::Profile;
use crate::program::{Next, ProfileSpec, TableIndex, TableSpec};
use crate::table::Table;

/// The control flow of ingress or egress.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) nodes: Vec<Node>,
    pub(crate) start: Next,
}

/// One step of the control flow.
#[derive(Debug)]
pub(crate) enum Node {
    Table(TableIndex),
    Branch {
        cond: Cond,
        yes: Next,
        no: Next,
    },
    Call {
        action: Action,
        arguments: Vec<u128>,
        next: Next,
    },
}

/// What a pipeline looks up: the program's actions and profiles, the device's tables.
pub(crate) struct Lookups<'a> {
    pub(crate) actions: &'a [Action],
    pub(crate) profile_specs: &'a [ProfileSpec],
    pub(crate) tables: &'a mut [Table],
    pub(crate) profiles: &'a [Profile],
}

impl Pipeline {
    /// Takes a packet from start to end, or to `exit`.
    pub(crate) fn run(&self, lookups: &mut Lookups<'_>, machine: &mut Machine<'_>) {
        machine.exit = false;
        let mut next = self.start;
        while let Some(node) = next
            && !machine.exit
        {
            next = match &self.nodes[node as usize] {
                Node::Table(table) => lookups.apply(*table, machine),
                Node::Branch { cond, yes, no } => {
                    if cond.eval(machine.phv, &[]) {
                        *yes
                    } else {
                        *no
                    }
                }
                Node::Call {
                    action,
                    arguments,
                    next,
                } => {
                    action.run(arguments, machine);
                    *next
                }
            };
        }
    }
}

/// Counter, meter and age of an entry that was hit.
fn watch(table: &mut Table, entry: u32, machine: &mut Machine<'_>) {
    if table.spec.direct_counter {
        table.count(entry, machine.arrived_bytes);
    }
    if table.spec.idle_timeout {
        table.touch(entry, machine.now);
    }
    if let Some(meter) = table.spec.direct_meter {
        let color = table.color(entry, machine.now, machine.arrived_bytes);
        machine.phv.assign(meter.color, i128::from(color));
    }
}

impl Lookups<'_> {
    /// Looks the packet up in one table and runs what it finds. A hit on a group without members
    /// is a miss: BMv2 divides by zero there.
    #[inline]
    fn apply(&mut self, table: TableIndex, machine: &mut Machine<'_>) -> Next {
        let at = table.0 as usize;
        let table = &mut self.tables[at];
        let entry = table.lookup(machine.phv);
        if let Some(entry) = entry
            && table.spec.watches
        {
            watch(table, entry, machine);
        }
        let table = &self.tables[at];
        let flow = &table.spec.flow;
        let hit = entry.and_then(|entry| self.resolve(&table.spec, table.target(entry), machine));
        match hit
            .map(|call| (call, &flow.hit))
            .or(table.default().map(|call| (call, &flow.miss)))
        {
            Some((call, next)) => {
                let action = call.action.0 as usize;
                self.actions[action].run(&call.arguments, machine);
                next[action]
            }
            None => flow.none,
        }
    }

    /// The call a target stands for, through the table's action profile where it has one.
    #[inline]
    fn resolve<'t>(
        &'t self,
        spec: &TableSpec,
        target: &'t Target,
        machine: &mut Machine<'_>,
    ) -> Option<&'t ActionCall> {
        let profile = match (target, spec.profile) {
            (Target::Action(call), _) => return Some(call),
            (_, profile) => profile?.0 as usize,
        };
        let Machine {
            phv,
            payload,
            scratch,
            ..
        } = machine;
        let selector = self.profile_specs[profile].selector.as_ref();
        let hash = || selector.map_or(0, |selector| selector.compute(phv, payload, scratch));
        self.profiles[profile].resolve(target, hash)
    }
}
