//! The next hops of all switches towards all destinations, which follow failures.
//!
//! [`paths`](crate::paths) says what the next hops towards one leaf, or the nearer of two, are.
//! Here they are kept for all destinations of a fabric, "leaves" below, and [`LeafRoutes::follow`]
//! brings them to the same fabric with other failures and drains. The decision: what a cable
//! changes follows from where it stands. Below a cable is a switch from which the leaf is reached
//! downwards, or the leaf itself: then all next hops towards that leaf are made anew. Otherwise
//! only the switch below the cable climbs by it, so only its links change, as long as it stays as
//! far from the leaf as it was. So a cable of a leaf costs one leaf and a look at the links of one
//! switch, not the whole fabric.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::fabric::{Destination, Fabric};
use crate::ids::{LinkId, SwitchId};
use crate::paths::{NextHops, nearest_links, next_hops};

/// The way from one switch to one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafHops {
    distance: u32,
    links: Vec<LinkId>,
}

impl LeafHops {
    /// How many links are still to cross; none at the leaf itself.
    #[inline]
    pub fn distance(&self) -> u32 {
        self.distance
    }

    /// The links a packet may take next, ascending; empty at the leaf itself.
    #[inline]
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
}

/// The next hops of every switch towards every leaf, and towards every two that NICs share.
///
/// Both are known by their position in [`Fabric::destinations`].
#[derive(Clone, Debug)]
pub struct LeafRoutes {
    fabric: Fabric,
    /// By switch and leaf; none where there is no way. Neighbours that are equal are the same.
    hops: Vec<Vec<Option<Arc<LeafHops>>>>,
}

/// A way from a switch to a leaf that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteChange {
    /// The switch.
    pub switch: SwitchId,
    /// The position of the leaf.
    pub leaf: usize,
}

impl LeafRoutes {
    /// The routes of a fabric.
    pub fn new(fabric: &Fabric) -> Self {
        let leaves = fabric.destinations().len();
        let hops = vec![vec![None; leaves]; fabric.switches().len()];
        let mut routes = Self { fabric: fabric.clone(), hops };
        for leaf in 0..leaves {
            routes.solve_leaf(leaf, &mut Vec::new());
        }
        routes
    }

    /// The destinations, by position.
    pub fn destinations(&self) -> &[Destination] {
        self.fabric.destinations()
    }

    /// The way from a switch to the leaf at a position; `None` if it cannot be reached.
    #[inline]
    pub fn hops(&self, switch: SwitchId, leaf: usize) -> Option<&Arc<LeafHops>> {
        self.hops[switch.index()][leaf].as_ref()
    }

    /// Brings the routes to `fabric`, which has the same parts and other failures and drains, and
    /// returns what has changed, in the order of the leaves; nothing twice.
    pub fn follow(&mut self, fabric: &Fabric) -> Vec<RouteChange> {
        let before = std::mem::replace(&mut self.fabric, fabric.clone());
        let is_changed = |link: &LinkId| before.is_usable(*link) != fabric.is_usable(*link);
        let changed = fabric.cables().filter(is_changed);
        let below: BTreeSet<SwitchId> =
            changed.filter_map(|link| lower_end(fabric, link)).collect();
        let mut changes = Vec::new();
        for leaf in 0..self.destinations().len() {
            let to = self.destinations()[leaf];
            let is_changed = |leaf| before.is_switch_usable(leaf) != fabric.is_switch_usable(leaf);
            let is_other = to.leaves().any(is_changed);
            if is_other || below.iter().any(|switch| self.is_above_or_at(*switch, leaf)) {
                self.solve_leaf(leaf, &mut changes);
            } else {
                self.climb_again(&below, leaf, &mut changes);
            }
        }
        changes
    }

    /// Whether packets come down to the leaf from this switch, or it is the leaf.
    fn is_above_or_at(&self, switch: SwitchId, leaf: usize) -> bool {
        let first = self.hops(switch, leaf).and_then(|hops| hops.links.first());
        let next = first.and_then(|link| self.fabric.switch_after(*link));
        let tier = |switch| self.fabric.switch(switch).tier;
        self.destinations()[leaf].contains(switch)
            || next.is_some_and(|next| tier(next) < tier(switch))
    }

    /// Makes all next hops towards a leaf.
    fn solve_leaf(&mut self, leaf: usize, changes: &mut Vec<RouteChange>) {
        let solved = next_hops(&self.fabric, self.destinations()[leaf]);
        for switch in self.fabric.switch_ids() {
            self.set_hops(switch, leaf, solved_hops(&solved, switch), changes);
        }
    }

    /// Makes the links of these switches, none of which is above the leaf.
    fn climb_again(
        &mut self,
        switches: &BTreeSet<SwitchId>,
        leaf: usize,
        changes: &mut Vec<RouteChange>,
    ) {
        let found: Vec<(SwitchId, Option<LeafHops>)> =
            switches.iter().map(|switch| (*switch, self.climb(*switch, leaf))).collect();
        // Others that climb to such a switch have the same links only while it is as far.
        let moves = found.iter().any(|(switch, hops)| {
            let had = self.hops(*switch, leaf).map(|had| had.distance);
            !self.fabric.down_links(*switch).is_empty()
                && had != hops.as_ref().map(|hops| hops.distance)
        });
        if moves {
            return self.solve_leaf(leaf, changes);
        }
        for (switch, hops) in found {
            let hops = hops.as_ref().map(|hops| (hops.distance, &*hops.links));
            self.set_hops(switch, leaf, hops, changes);
        }
    }

    /// The way up from a switch towards a leaf that it is not above of.
    fn climb(&self, switch: SwitchId, leaf: usize) -> Option<LeafHops> {
        let to = self.destinations()[leaf];
        let below = self.fabric.down_links(switch).iter();
        // One with a cable to the leaf only descends, even if the cable cannot be used.
        let mut below = below.filter_map(|link| self.fabric.switch_after(*link));
        if below.any(|below| to.contains(below)) {
            return None;
        }
        let distance = |next| self.hops(next, leaf).map(|hops| hops.distance);
        let (nearest, links) = nearest_links(&self.fabric, self.fabric.up_links(switch), distance)?;
        Some(LeafHops { distance: nearest + 1, links })
    }

    /// Records the way from a switch to a leaf.
    fn set_hops(
        &mut self,
        switch: SwitchId,
        leaf: usize,
        hops: Option<(u32, &[LinkId])>,
        changes: &mut Vec<RouteChange>,
    ) {
        let is_same = |had: &Option<Arc<LeafHops>>| {
            had.as_ref().map(|had| (had.distance, &*had.links)) == hops
        };
        let row = &mut self.hops[switch.index()];
        if is_same(&row[leaf]) {
            return;
        }
        let neighbours = [leaf.checked_sub(1), Some(leaf + 1)].into_iter().flatten();
        let shared = neighbours.filter_map(|other| row.get(other)).find(|other| is_same(other));
        let made = shared.cloned().unwrap_or_else(|| {
            hops.map(|(distance, links)| Arc::new(LeafHops { distance, links: links.to_vec() }))
        });
        row[leaf] = made;
        changes.push(RouteChange { switch, leaf });
    }
}

fn solved_hops(solved: &NextHops, switch: SwitchId) -> Option<(u32, &[LinkId])> {
    Some((solved.distance(switch)?, solved.links_at(switch)))
}

/// The switch at the lower end of a cable between tiers.
fn lower_end(fabric: &Fabric, link: LinkId) -> Option<SwitchId> {
    let [from, to] = [link.reverse(), link].map(|link| fabric.switch_after(link));
    let tier = |switch| fabric.switch(switch).tier;
    match tier(from?).cmp(&tier(to?)) {
        std::cmp::Ordering::Less => from,
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => to,
    }
}
