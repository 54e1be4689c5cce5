//! Parts of the fabric that work again and are not to be used yet.
//!
//! [`state`](super) drains what came back, as an operator would, until every switch is seen to hold
//! tables that know of it. The decision: two generations in place of an order among switches. From
//! the first on, every switch has rows for all ways that work, drained or not; whoever sends by
//! them does so with the second. So nobody is sent a packet that it has no row for, whichever
//! switch is told first.

use std::collections::{BTreeMap, BTreeSet};

use topology::{AvailabilityChange, Fabric, LinkId};

use crate::liveness::FabricPart;

/// What came back, with the generation in force then, which does not know of it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturningParts {
    parts: BTreeMap<FabricPart, u64>,
}

impl super::State {
    /// Whether something came back that the generation in force knows of.
    pub(crate) fn may_release_returning(&self) -> bool {
        self.returning.awaits_generation(self.generation())
    }
}

impl ReturningParts {
    /// Takes in what became of a part of `fabric`, which is as it is since. A host has one way in
    /// and out, so its cable is used at once.
    pub(super) fn record_change(
        &mut self,
        change: AvailabilityChange,
        fabric: &Fabric,
        generation: u64,
    ) {
        let is_within = |link: LinkId| {
            let ends = [link, link.reverse()].map(|link| fabric.switch_after(link));
            ends.iter().all(Option::is_some)
        };
        match change {
            AvailabilityChange::LinkUp(link) if is_within(link) => {
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

    /// Whether anything could be used if every switch held this generation.
    pub(super) fn awaits_generation(&self, generation: u64) -> bool {
        self.parts.values().any(|before| *before < generation)
    }

    /// Every switch holds this generation: whether that lets anything be used.
    pub(super) fn release_held(&mut self, generation: u64) -> bool {
        let waited = self.parts.len();
        self.parts.retain(|_, before| *before >= generation);
        self.parts.len() < waited
    }

    /// What came back, each with the generation that does not know of it; as [`take`](Self::take)
    /// takes it.
    pub(super) fn pending_changes(&self) -> impl Iterator<Item = (AvailabilityChange, u64)> {
        self.parts.iter().map(|(part, before)| match part {
            FabricPart::Cable(link) => (AvailabilityChange::LinkUp(*link), *before),
            FabricPart::Switch(switch) => (AvailabilityChange::SwitchUp(*switch), *before),
        })
    }

    /// The same, without.
    pub(super) fn part_set(&self) -> BTreeSet<FabricPart> {
        self.parts.keys().copied().collect()
    }

    /// What keeps traffic off.
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

/// Both directions of a cable are one part.
fn cable_part(link: LinkId) -> FabricPart {
    FabricPart::Cable(link.min(link.reverse()))
}
