//! Which links lead from a switch to each leaf, now and without drains.

use topology::{AvailabilityChange, Fabric, LinkId, NextHops, SwitchId, Tier, next_hops};

/// The next hops to all leaves.
pub(super) struct NextLinks {
    usable: Vec<NextHops>,
    /// Those that work, drained or not.
    standing: Vec<NextHops>,
}

/// The links from a switch to a leaf, ascending.
#[derive(Clone, Copy)]
pub(super) struct LeafLinks<'a> {
    pub(super) leaf: SwitchId,
    /// Those that a pin may take; drained ones only where there are no others.
    pub(super) usable: &'a [LinkId],
    /// Those over which packets without a pin are spread. A switch that is no leaf and whose drains
    /// leave it only a longer way keeps the shortest, which others may still use towards it: the
    /// detour could bring their packets back.
    pub(super) spread: &'a [LinkId],
}

impl NextLinks {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let to_leaves = |fabric: &Fabric| -> Vec<NextHops> {
            let leaves = fabric.switches_of_tier(Tier::Leaf);
            leaves.map(|leaf| next_hops(fabric, leaf)).collect()
        };
        let links = fabric.cables().map(AvailabilityChange::UndrainLink);
        let switches = fabric.switch_ids().map(AvailabilityChange::UndrainSwitch);
        let undrained = fabric.with_changes(links.chain(switches));
        Self { usable: to_leaves(fabric), standing: to_leaves(&undrained) }
    }

    /// The other leaves that a switch reaches, and the links to each.
    pub(super) fn leaves_from(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
    ) -> impl Iterator<Item = LeafLinks<'_>> {
        let is_leaf = fabric.switch(switch).tier == Tier::Leaf;
        let both = self.usable.iter().zip(&self.standing);
        let seen = both.map(move |(usable, standing)| {
            let leaf = usable.destination();
            let is_detour = usable.distance(switch) > standing.distance(switch);
            let (usable, standing) = (usable.links_at(switch), standing.links_at(switch));
            let usable = if usable.is_empty() { standing } else { usable };
            let spread = if is_detour && !is_leaf { standing } else { usable };
            LeafLinks { leaf, usable, spread }
        });
        seen.filter(|seen| !seen.usable.is_empty())
    }

    /// The links from a switch to one leaf; `None` where it does not reach it.
    pub(super) fn links_to(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
        leaf: SwitchId,
    ) -> Option<LeafLinks<'_>> {
        self.leaves_from(fabric, switch).find(|seen| seen.leaf == leaf)
    }
}
