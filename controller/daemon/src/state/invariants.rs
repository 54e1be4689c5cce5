//! What holds of every state: after each event, and of one that a recording begins with.

use std::sync::Arc;

use super::State;

impl State {
    /// Checks that the rollout matches the present fabric and policy, and that counters only rise.
    pub fn check_invariant(&self) {
        debug_assert_eq!(self.broken_invariant(), None);
    }

    /// The invariant that does not hold, if one does not; a recording may have any state in it.
    pub(super) fn broken_invariant(&self) -> Option<&'static str> {
        let rollout = self.rollout.as_ref();
        let invariants = [
            (self.planned <= self.inputs, "planned is above inputs"),
            (self.learned <= self.inputs, "learned is above inputs"),
            (self.policy.levels <= self.levels, "the policy has more levels than the switches"),
            (self.policy.apply_drains(&self.fabric).is_ok(), "a drain is not in the fabric"),
            (
                self.planned == self.inputs || self.requested.is_some(),
                "inputs are not planned and no plan is requested",
            ),
            (
                rollout.is_none_or(|rollout| rollout.generation == self.generation),
                "the rollout has another generation",
            ),
            (
                rollout.is_none_or(|rollout| Arc::ptr_eq(&rollout.wiring, &self.wiring)),
                "the rollout is of another fabric",
            ),
        ];
        invariants.into_iter().find(|(holds, _)| !holds).map(|(_, text)| text)
    }
}
