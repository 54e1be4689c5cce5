//! Which links lead from each switch to each leaf, now and without drains, as every program routes.
//!
//! The decision: both sets of routes continue from those of the wiring, in which nothing has
//! failed, and follow each lowering's fabric from the one before, so that lowering sees which ways
//! have changed and looks at no other.

use topology::{
    AvailabilityChange, Fabric, LeafHops, LeafRoutes, LinkId, NicId, RouteChange, SwitchId, Tier,
};

/// The ways to all leaves.
#[derive(Clone, Debug)]
pub(super) struct SwitchRoutes {
    usable: LeafRoutes,
    /// Those that work, drained or not.
    standing: LeafRoutes,
    moved: Vec<MovedNic>,
}

/// The links from a switch to a leaf, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeafLinks<'a> {
    /// Those that may be used, at least one. If all are drained, those that work: draining the last
    /// path must not disconnect the leaf.
    pub(super) usable: &'a [LinkId],
    /// Those over which packets without a pin are spread. A switch that is no leaf and whose drains
    /// leave it only a longer way keeps the shortest, which others may still use towards it: the
    /// detour could bring their packets back.
    pub(super) spread: &'a [LinkId],
    /// Those that work, drained or not.
    pub(super) standing: &'a [LinkId],
}

impl SwitchRoutes {
    /// Routes while nothing has failed and nothing is drained.
    pub(super) fn new(unharmed: &LeafRoutes) -> Self {
        Self { usable: unharmed.clone(), standing: unharmed.clone(), moved: Vec::new() }
    }

    /// The routes of a fabric, whose wiring has these routes while nothing has failed.
    pub(super) fn of_fabric(unharmed: &LeafRoutes, fabric: &Fabric) -> Self {
        let mut routes = Self::new(unharmed);
        routes.follow(fabric);
        routes
    }

    /// Brings the routes to a fabric with other failures and drains; the ways that have changed,
    /// ascending.
    pub(super) fn follow(&mut self, fabric: &Fabric) -> Vec<RouteChange> {
        self.moved = moved_nics(fabric);
        let mut changes = self.standing.follow(&fabric.without_drains());
        changes.extend(self.usable.follow(fabric));
        changes.sort_unstable();
        changes.dedup();
        changes
    }

    /// The NICs that one of their two leaves is not used for.
    pub(super) fn moved(&self) -> &[MovedNic] {
        &self.moved
    }

    /// The links from a switch to the leaf at a position; `None` where it does not reach it.
    pub(super) fn links(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
        leaf: usize,
    ) -> Option<LeafLinks<'_>> {
        let way = [&self.usable, &self.standing].map(|routes| routes.hops(switch, leaf));
        let [usable, standing] = way.map(|hops| hops.map(|hops| &**hops));
        links_of((usable, standing), fabric.switch(switch).tier == Tier::Leaf)
    }

    /// The links from a switch to a NIC, by the leaves at which its packets arrive now; `None` where
    /// it does not reach them, and at one of them.
    pub(super) fn links_to(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
        nic: NicId,
    ) -> Option<LeafLinks<'_>> {
        let position = fabric.destination_position(fabric.arrival_leaves(nic))?;
        self.links(fabric, switch, position)
    }

    /// The other destinations that a switch reaches, by position, and the links to each.
    pub(super) fn destinations_from(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
    ) -> impl Iterator<Item = (usize, LeafLinks<'_>)> {
        let places = 0..fabric.destinations().len();
        places.filter_map(move |place| Some((place, self.links(fabric, switch, place)?)))
    }
}

/// The links of a way to be used and of one without drains.
fn links_of<'a>(
    (usable, standing): (Option<&'a LeafHops>, Option<&'a LeafHops>),
    is_leaf: bool,
) -> Option<LeafLinks<'a>> {
    let distance = |way: Option<&LeafHops>| way.map(LeafHops::distance);
    let links = |way: Option<&'a LeafHops>| way.map_or(&[][..], LeafHops::links);
    let is_detour = distance(usable) > distance(standing);
    let (usable, standing) = (links(usable), links(standing));
    let usable = if usable.is_empty() { standing } else { usable };
    let spread = if is_detour && !is_leaf { standing } else { usable };
    // A leaf has no next hop towards itself.
    (!usable.is_empty()).then_some(LeafLinks { usable, spread, standing })
}

/// A NIC with a port at each of two leaves, to one of which its packets are not led: its own cable
/// there has failed or is drained. All others follow the routes to both leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MovedNic {
    pub(super) nic: NicId,
    /// The position of both its leaves.
    pub(super) leaf: usize,
    /// The position of the one that is left.
    pub(super) to: usize,
}

/// Those of a fabric.
fn moved_nics(fabric: &Fabric) -> Vec<MovedNic> {
    if !fabric.has_bonds() {
        return Vec::new();
    }
    let moved = fabric.host_nics().filter_map(|nic| {
        let [all, now] = [fabric.leaves_of(nic), fabric.arrival_leaves(nic)];
        let position = |leaves| fabric.destination_position(leaves);
        (all != now).then_some(MovedNic { nic, leaf: position(all)?, to: position(now)? })
    });
    moved.collect()
}

/// The fabric with nothing failed and nothing drained.
pub(super) fn without_failures(fabric: &Fabric) -> Fabric {
    let of_cables = fabric
        .cables()
        .flat_map(|link| [AvailabilityChange::LinkUp(link), AvailabilityChange::UndrainLink(link)]);
    let of_switches = fabric.switch_ids().flat_map(|switch| {
        [AvailabilityChange::SwitchUp(switch), AvailabilityChange::UndrainSwitch(switch)]
    });
    fabric.with_changes(of_cables.chain(of_switches))
}
