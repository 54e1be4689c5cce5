//! A pipeline: the control flow of ingress or of egress as a graph of tables, branches and calls.
//!
//! Compiled from the JSON by `program/controls.rs` and walked once per packet. Tables that p4c
//! makes for plain statements (no key, a constant default) are compiled to calls, since nobody can
//! write them. Every walk ends, because a graph with a cycle is refused when the program is loaded.

use crate::ids::TableIndex;
use crate::run::action::{CompiledAction, PacketContext};
use crate::run::expression::BoolExpr;
use crate::run::hash::HashCalculation;
use crate::run::profile::ActionProfile;
use crate::run::table::MatchTable;
use crate::spec::entry::{ActionCall, TableAction};
use crate::spec::{NextNode, TableSpec};

/// The control flow of ingress or egress.
#[derive(Debug)]
pub(crate) struct PipelineGraph {
    pub(crate) nodes: Vec<PipelineNode>,
    pub(crate) start: NextNode,
}

/// One step of the control flow.
#[derive(Debug)]
pub(crate) enum PipelineNode {
    Table(TableIndex),
    Branch { cond: BoolExpr, yes: NextNode, no: NextNode },
    Call { action: CompiledAction, arguments: Vec<u128>, next: NextNode },
}

/// What a pipeline looks up: the program's actions and selectors, the device's tables.
pub(crate) struct LookupContext<'a> {
    pub(crate) actions: &'a [CompiledAction],
    pub(crate) selectors: &'a [Option<HashCalculation>],
    pub(crate) tables: &'a mut [MatchTable],
    pub(crate) profiles: &'a [ActionProfile],
}

impl PipelineGraph {
    /// Takes a packet from start to end, or to `exit`.
    pub(crate) fn run_packet(
        &self,
        lookups: &mut LookupContext<'_>,
        machine: &mut PacketContext<'_>,
    ) {
        machine.exit = false;
        let mut next = self.start;
        while let Some(node) = next
            && !machine.exit
        {
            next =
                match &self.nodes[node as usize] {
                    PipelineNode::Table(table) => lookups.apply_table(*table, machine),
                    PipelineNode::Branch { cond, yes, no } => {
                        if cond.eval_condition(machine.phv, &[]) { *yes } else { *no }
                    }
                    PipelineNode::Call { action, arguments, next } => {
                        action.execute_primitives(arguments, machine);
                        *next
                    }
                };
        }
    }
}

/// Counter, meter and age of an entry that was hit.
fn update_hit_state(table: &mut MatchTable, entry: u32, machine: &mut PacketContext<'_>) {
    if table.spec.direct_counter {
        table.count_hit(entry, machine.arrived_bytes);
    }
    if table.spec.idle_timeout {
        table.touch_entry(entry, machine.now);
    }
    if let Some(meter) = table.spec.direct_meter {
        let color = table.color_packet(entry, machine.now, machine.arrived_bytes);
        machine.phv.assign_field(meter.color, i128::from(color));
    }
}

impl LookupContext<'_> {
    /// Looks the packet up in one table and runs what it finds. A hit on a group without members
    /// is a miss: BMv2 divides by zero there.
    #[inline]
    fn apply_table(&mut self, table: TableIndex, machine: &mut PacketContext<'_>) -> NextNode {
        let at = table.0 as usize;
        let table = &mut self.tables[at];
        let entry = table.lookup(machine.phv);
        if let Some(entry) = entry
            && table.spec.tracks_hits
        {
            update_hit_state(table, entry, machine);
        }
        let table = &self.tables[at];
        let flow = &table.spec.flow;
        let hit = entry
            .and_then(|entry| self.resolve_call(&table.spec, table.entry_action(entry), machine));
        match hit
            .map(|call| (call, &flow.hit))
            .or(table.default_action().map(|call| (call, &flow.miss)))
        {
            Some((call, next)) => {
                let action = call.action.0 as usize;
                self.actions[action].execute_primitives(&call.arguments, machine);
                next[action]
            }
            None => flow.none,
        }
    }

    /// The call a target stands for, through the table's action profile where it has one.
    #[inline]
    fn resolve_call<'t>(
        &'t self,
        spec: &TableSpec,
        target: &'t TableAction,
        machine: &mut PacketContext<'_>,
    ) -> Option<&'t ActionCall> {
        let profile = match (target, spec.profile) {
            (TableAction::Action(call), _) => return Some(call),
            (_, profile) => profile?.0 as usize,
        };
        let PacketContext { phv, payload, scratch, .. } = machine;
        let selector = self.selectors[profile].as_ref();
        self.profiles[profile].resolve_call(target, || {
            selector.map_or(0, |selector| selector.compute_hash(phv, payload, scratch))
        })
    }
}
