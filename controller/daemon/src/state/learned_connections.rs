//! Learned connections in the state: what switches have seen, on the paths of the plan in force.
//!
//! The decision: connections are an input of lowering and not of plans. A host chooses how many it
//! has and what their ports are, so none of them may cause a plan or move a planned flow.

use std::sync::Arc;

use planner::{LearnedConnection, Plan, PlannedFlow, find_counted_pairs};

use super::{Effects, State};

impl State {
    /// Puts learned connections on the paths of the plan in force. No plan depends on them, so they
    /// ask for none.
    pub(super) fn adopt_connections(&mut self, connections: Vec<LearnedConnection>) -> Effects {
        let connections = self.on_fabric(connections);
        Arc::make_mut(&mut self.basis).connections = connections;
        let Some(had) = self.rollout.clone() else {
            return Effects::default();
        };
        let counted = find_counted_pairs(&had.fabric, &had.plan, &self.basis.connections);
        let is_same =
            self.place_connections(&had.plan) == *had.learned && counted == had.counted_pairs();
        let rollout = (!is_same).then(|| self.roll_out(&had.plan, &had.report));
        Effects { rollout, ..Effects::default() }
    }

    pub(super) fn place_connections(&self, plan: &Plan) -> Vec<PlannedFlow> {
        let seen = self.on_fabric(self.basis.connections.clone());
        let room = self.basis.pin_room.map_or(usize::MAX, |(_, pins)| pins);
        let room = self.policy.max_pins_per_switch.min(room);
        let fabric = self.usable_fabric(&self.policy);
        planner::place_learned_flows(&fabric, plan, &seen, room)
    }

    /// Those between NICs that the fabric has.
    fn on_fabric(&self, mut connections: Vec<LearnedConnection>) -> Vec<LearnedConnection> {
        let nics = self.fabric.nics().len();
        connections.retain(|seen| [seen.src, seen.dst].iter().all(|nic| nic.index() < nics));
        connections
    }
}
