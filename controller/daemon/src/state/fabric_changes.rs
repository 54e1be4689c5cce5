//! What of the fabric fails and what works again.
//!
//! The decision: all that is known to have changed is one event. A spine that fails takes hundreds
//! of cables with it, and a plan for each would take back what the one before it has written.

use topology::{AvailabilityChange, Fabric};

use super::event_refusal::EventRefusal;
use super::{Effects, State};

impl State {
    /// Repairs failures at once with the plan in force: the protection takes the ports at both ends
    /// out of use, the rollout leads every switch around. A part that works again is not used until
    /// all switches hold tables with it.
    pub(super) fn change_fabric(
        &mut self,
        changes: &[AvailabilityChange],
    ) -> Result<Effects, EventRefusal> {
        if !changes.iter().all(|change| has_part(&self.fabric, *change)) {
            return Err(EventRefusal::UnknownPart);
        }
        let mut has_failed = false;
        for change in changes {
            let fabric = self.fabric.with_changes([*change]);
            if fabric == self.fabric {
                continue;
            }
            self.fabric = fabric;
            self.returning.record_change(*change, &self.fabric, self.generation);
            has_failed |= matches!(
                change,
                AvailabilityChange::LinkDown(_) | AvailabilityChange::SwitchDown(_)
            );
        }
        let mut effects = Effects::default();
        if let Some(rollout) = self.rollout.clone().filter(|_| has_failed) {
            effects.protection = Some(self.roll_out(&rollout.plan, &rollout.report));
            effects.rollout = Some(self.roll_out(&rollout.plan, &rollout.report));
        }
        Ok(effects)
    }
}

/// Whether the fabric has the part that changes.
pub(super) fn has_part(fabric: &Fabric, change: AvailabilityChange) -> bool {
    match change {
        AvailabilityChange::LinkDown(link)
        | AvailabilityChange::LinkUp(link)
        | AvailabilityChange::DrainLink(link)
        | AvailabilityChange::UndrainLink(link) => link.index() < fabric.links().len(),
        AvailabilityChange::SwitchDown(switch)
        | AvailabilityChange::SwitchUp(switch)
        | AvailabilityChange::DrainSwitch(switch)
        | AvailabilityChange::UndrainSwitch(switch) => switch.index() < fabric.switches().len(),
    }
}
