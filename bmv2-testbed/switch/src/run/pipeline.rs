//! A pipeline: the control flow of ingress or of egress as a graph of tables, branches and calls.
//!
//! Compiled from the JSON by `program/controls.rs` and walked once per packet. Tables that p4c
//! makes for plain statements (no key, a constant default) are compiled to calls, since nobody can
//! write them. Every walk ends, because a graph with a cycle is refused when the program is loaded.

use std::sync::Arc;

use crate::ids::{ProfileIndex, TableIndex};
use crate::run::action::{CompiledAction, PacketContext};
use crate::run::expression::BoolExpr;
use crate::run::hash::HashCalculation;
use crate::run::profile::ActionProfile;
use crate::run::table::MatchTable;
use crate::spec::entry::{ActionCall, TableAction};
use crate::spec::{NextNode, NextNodes};

/// The control flow of ingress or egress.
#[derive(Debug)]
pub(crate) struct PipelineGraph {
    pub(crate) nodes: Vec<PipelineNode>,
    pub(crate) start: NextNode,
}

/// One step of the control flow.
#[derive(Debug)]
pub(crate) enum PipelineNode {
    Table { table: TableIndex, flow: NextNodes },
    Branch { cond: BoolExpr, yes: NextNode, no: NextNode },
    Call { action: CompiledAction, arguments: Arc<[u128]>, next: NextNode },
}

impl PipelineNode {
    /// Every node that may come next.
    pub(crate) fn successors(&self) -> impl Iterator<Item = u32> {
        let (ways, flow): ([NextNode; 2], _) = match self {
            Self::Table { flow, .. } => ([flow.none, None], Some(flow)),
            Self::Branch { yes, no, .. } => ([*yes, *no], None),
            Self::Call { next, .. } => ([*next, None], None),
        };
        let by_action = flow.into_iter().flat_map(|flow| &flow.by_action);
        by_action.flat_map(|next| [next.hit, next.miss]).chain(ways).flatten()
    }
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
        // `exit` in ingress does not end egress.
        machine.exit = false;
        let mut next = self.start;
        while let Some(node) = next
            && !machine.exit
        {
            next =
                match &self.nodes[node as usize] {
                    PipelineNode::Table { table, flow } => {
                        lookups.apply_table(*table, flow, machine)
                    }
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
    fn apply_table(
        &mut self,
        table: TableIndex,
        flow: &NextNodes,
        machine: &mut PacketContext<'_>,
    ) -> NextNode {
        let at = table.0 as usize;
        let table = &mut self.tables[at];
        let entry = table.lookup(machine.phv);
        if let Some(entry) = entry
            && table.tracks_hits
        {
            // Before the action, which may read the colour that a direct meter assigns here.
            update_hit_state(table, entry, machine);
        }
        let table = &self.tables[at];
        let hit = entry
            .and_then(|entry| self.resolve_call(table.profile, table.entry_action(entry), machine));
        // An entry whose group has no usable member counts as a miss.
        let is_hit = hit.is_some();
        match hit.or(table.default_action()) {
            Some(call) => {
                self.actions[call.action.0 as usize].execute_primitives(&call.arguments, machine);
                let next = flow.after(call.action);
                if is_hit { next.hit } else { next.miss }
            }
            None => flow.none,
        }
    }

    /// The call a target stands for, through the table's action profile where it has one.
    #[inline]
    fn resolve_call<'t>(
        &'t self,
        profile: Option<ProfileIndex>,
        target: &'t TableAction,
        machine: &mut PacketContext<'_>,
    ) -> Option<&'t ActionCall> {
        let profile = match target {
            TableAction::Action(call) => return Some(call),
            _ => profile?.0 as usize,
        };
        let PacketContext { phv, payload, scratch, .. } = machine;
        let selector = self.selectors[profile].as_ref();
        self.profiles[profile].resolve_call(target, || {
            selector.map_or(0, |selector| selector.compute_hash(phv, payload, scratch))
        })
    }
}
