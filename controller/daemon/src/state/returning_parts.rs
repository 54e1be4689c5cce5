//! Parts of the fabric that work again and are not to be used yet.
//!
//! [`state`](super) drains a part that came back, as an operator would, until every switch is seen
//! to hold tables that include it. The decision: two generations instead of an order among
//! switches. With the first, every switch has rows for all paths that work, drained or not; with
//! the second, switches send over them. So no switch receives a packet that it has no row for,
//! whichever is written first.

use std::collections::{BTreeMap, BTreeSet};

use planner::Policy;
use topology::{AvailabilityChange, Fabric, LinkId};

use crate::liveness::FabricPart;

/// Parts that came back, each with the generation in force then, which does not include it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturningParts {
    parts: BTreeMap<FabricPart, u64>,
}

impl super::State {
    /// The fabric as the planner gets it: without drained and returning parts.
    pub(super) fn usable_fabric(&self, policy: &Policy) -> Fabric {
        let drained = policy
            .apply_drains(&self.fabric)
            .expect("drains are checked when a policy or fabric is applied");
        drained.with_changes(self.returning.drain_changes())
    }

    /// Whether the generation in force includes a part that came back.
    pub(crate) fn may_release_returning(&self) -> bool {
        self.returning.awaits_generation(self.generation())
    }
}

impl ReturningParts {
    /// Records a change of `fabric`, which already has it. A host's cable is used at once, as the
    /// host has no other.
    pub(super) fn record_change(
        &mut self,
        change: AvailabilityChange,
        fabric: &Fabric,
        generation: u64,
    ) {
        match change {
            AvailabilityChange::LinkUp(link) if connects_switches(fabric, link) => {
                self.parts.insert(cable_part(link), generation);
            }
            AvailabilityChange::SwitchUp(switch) => {
                self.parts.insert(FabricPart::Switch(switch), generation);
            }
            AvailabilityChange::LinkDown(link) => {
                self.parts.remove(&cable_part(link));
            }
            AvailabilityChange::SwitchDown(switch) => {
                self.parts.remove(&FabricPart::Switch(switch));
            }
            _ => {}
        }
    }

    /// Whether this generation, held by every switch, would release any part.
    pub(super) fn awaits_generation(&self, generation: u64) -> bool {
        self.parts.values().any(|before| *before < generation)
    }

    /// Releases what every switch holds with this generation; whether that is any part.
    pub(super) fn release_held(&mut self, generation: u64) -> bool {
        let waited = self.parts.len();
        self.parts.retain(|_, before| *before >= generation);
        self.parts.len() < waited
    }

    /// What came back, with its generation, as [`record_change`](Self::record_change) takes them.
    pub(super) fn pending_changes(&self) -> impl Iterator<Item = (AvailabilityChange, u64)> {
        self.parts.iter().map(|(part, before)| match part {
            FabricPart::Cable(link) => (AvailabilityChange::LinkUp(*link), *before),
            FabricPart::Switch(switch) => (AvailabilityChange::SwitchUp(*switch), *before),
        })
    }

    /// The parts without their generations.
    pub(super) fn part_set(&self) -> BTreeSet<FabricPart> {
        self.parts.keys().copied().collect()
    }

    /// The drains that keep traffic off the parts.
    pub(super) fn drain_changes(&self) -> impl Iterator<Item = AvailabilityChange> {
        self.parts.keys().map(|part| match part {
            FabricPart::Cable(link) => AvailabilityChange::DrainLink(*link),
            FabricPart::Switch(switch) => AvailabilityChange::DrainSwitch(*switch),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Whether a cable has a switch at both ends.
fn connects_switches(fabric: &Fabric, link: LinkId) -> bool {
    [link, link.reverse()].into_iter().all(|link| fabric.switch_after(link).is_some())
}

/// The part of a link; both directions of a cable are one part.
fn cable_part(link: LinkId) -> FabricPart {
    FabricPart::Cable(link.min(link.reverse()))
}
