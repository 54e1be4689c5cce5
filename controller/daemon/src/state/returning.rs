//! Parts of the fabric that work again and are not to be used yet.
//!
//! [`state`](super) drains what came back, as an operator would, until every switch is seen to hold
//! tables that know of it. The decision: two generations in place of an order among switches. From
//! the first on, every switch has rows for all ways that work, drained or not; whoever sends by
//! them does so with the second. So nobody is sent a packet that it has no row for, whichever
//! switch is told first.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Change, Fabric, LinkId};

use crate::liveness::Part;

/// What came back, with the generation in force then, which does not know of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Returning {
    parts: BTreeMap<Part, u64>,
}

impl super::State {
    /// Whether something came back that the generation in force knows of.
    pub(crate) fn may_use_again(&self) -> bool {
        self.returning.awaits(self.generation())
    }
}

impl Returning {
    /// Takes in what became of a part of `fabric`, which is as it is since. A host has one way in
    /// and out, so its cable is used at once.
    pub(super) fn take(&mut self, change: Change, fabric: &Fabric, generation: u64) {
        let is_within = |link: LinkId| {
            let ends = [link, link.reverse()].map(|link| fabric.switch_after(link));
            ends.iter().all(Option::is_some)
        };
        match change {
            Change::LinkUp(link) if is_within(link) => {
                self.parts.insert(cable(link), generation);
            }
            Change::SwitchUp(switch) => {
                self.parts.insert(Part::Switch(switch), generation);
            }
            Change::LinkDown(link) => drop(self.parts.remove(&cable(link))),
            Change::SwitchDown(switch) => drop(self.parts.remove(&Part::Switch(switch))),
            _ => {}
        }
    }

    /// Whether anything could be used if every switch held this generation.
    pub(super) fn awaits(&self, generation: u64) -> bool {
        self.parts.values().any(|before| *before < generation)
    }

    /// Every switch holds this generation: whether that lets anything be used.
    pub(super) fn release(&mut self, generation: u64) -> bool {
        let waited = self.parts.len();
        self.parts.retain(|_, before| *before >= generation);
        self.parts.len() < waited
    }

    /// What came back, each with the generation that does not know of it; as [`take`](Self::take)
    /// takes it.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Change, u64)> {
        self.parts.iter().map(|(part, before)| match part {
            Part::Cable(link) => (Change::LinkUp(*link), *before),
            Part::Switch(switch) => (Change::SwitchUp(*switch), *before),
        })
    }

    /// The same, without.
    pub(super) fn now(&self) -> BTreeSet<Part> {
        self.parts.keys().copied().collect()
    }

    /// What keeps traffic off.
    pub(super) fn drains(&self) -> impl Iterator<Item = Change> {
        self.parts.keys().map(|part| match part {
            Part::Cable(link) => Change::DrainLink(*link),
            Part::Switch(switch) => Change::DrainSwitch(*switch),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Both directions of a cable are one part.
fn cable(link: LinkId) -> Part {
    Part::Cable(link.min(link.reverse()))
}
