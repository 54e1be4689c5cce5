//! Equal-cost paths: from every switch, all shortest ways up and then down to one destination.
//!
//! The planner chooses among the paths of this module and routing installs its next hops, so that
//! what a flow is pinned to and what ECMP would do always come from the same rule. The rule: a path
//! climbs towards the core and then descends, and never climbs again ("valley-free"); of those, the
//! shortest. A switch above the destination therefore only descends and every other switch only
//! climbs, and each tier can be solved from tiers already solved. That makes all next hops towards
//! one destination one pass over the links; they are made per destination, when wanted.

use crate::fabric::{Fabric, Tier};
use crate::ids::{LinkId, SwitchId};

/// Equal-cost next hops towards one destination, at every switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHops {
    to: SwitchId,
    /// Links still to cross, by switch; `None` where the destination cannot be reached.
    distances: Vec<Option<u32>>,
    /// The part of `links` that belongs to each switch.
    spans: Vec<std::ops::Range<usize>>,
    links: Vec<LinkId>,
}

impl NextHops {
    /// The destination.
    pub fn to(&self) -> SwitchId {
        self.to
    }

    /// The links a packet at `switch` may take next, ascending, parallel links each by itself.
    /// Empty at the destination and where it cannot be reached.
    pub fn at(&self, switch: SwitchId) -> &[LinkId] {
        &self.links[self.spans[switch.index()].clone()]
    }

    /// Number of links from `switch` to the destination; `None` where it cannot be reached.
    pub fn distance(&self, switch: SwitchId) -> Option<u32> {
        self.distances[switch.index()]
    }

    /// All equal-cost paths from `from` to the destination, in ascending order of their links. One
    /// empty path at the destination itself, none where it cannot be reached. `fabric` is the one
    /// these next hops were made for.
    pub fn paths(&self, fabric: &Fabric, from: SwitchId) -> Vec<Vec<LinkId>> {
        let Some(distance) = self.distance(from) else {
            return Vec::new();
        };
        let mut paths = vec![Vec::new()];
        for _ in 0..distance {
            let extended = paths.into_iter().flat_map(|path: Vec<LinkId>| {
                let at = path
                    .last()
                    .map_or(Some(from), |&link| fabric.switch_after(link));
                let hops = at.map_or(&[][..], |switch| self.at(switch));
                hops.iter().map(move |&hop| [&path[..], &[hop]].concat())
            });
            paths = extended.collect();
        }
        paths
    }
}

/// The next hops towards the leaf `to`, over usable links only: nothing that failed, nothing drained.
pub fn next_hops(fabric: &Fabric, to: SwitchId) -> NextHops {
    let mut hops = NextHops {
        to,
        distances: vec![None; fabric.switches().len()],
        spans: vec![0..0; fabric.switches().len()],
        links: Vec::new(),
    };
    hops.distances[to.index()] = fabric.is_switch_usable(to).then_some(0);
    for tier in [Tier::Spine, Tier::Core] {
        hops.solve(fabric, tier, Fabric::down_links);
    }
    for tier in [Tier::Spine, Tier::Leaf] {
        hops.solve(fabric, tier, Fabric::up_links);
    }
    hops
}

/// All equal-cost paths between the leaves `from` and `to`, without the links of the hosts, in
/// ascending order of their links. One empty path where both are the same leaf, none where there is
/// no way. For many sources and one destination, keep the [`next_hops`] and ask them.
pub fn equal_cost_paths(fabric: &Fabric, from: SwitchId, to: SwitchId) -> Vec<Vec<LinkId>> {
    next_hops(fabric, to).paths(fabric, from)
}

impl NextHops {
    /// Gives every switch of `tier` that has no way yet the links among its `candidates` that lead
    /// nearest to the destination.
    fn solve(
        &mut self,
        fabric: &Fabric,
        tier: Tier,
        candidates: for<'a> fn(&'a Fabric, SwitchId) -> &'a [LinkId],
    ) {
        for switch in fabric.tier(tier) {
            if self.distance(switch).is_some() {
                continue;
            }
            let candidates = candidates(fabric, switch);
            let usable = candidates
                .iter()
                .copied()
                .filter(|&link| fabric.is_usable(link));
            let reaching: Vec<(u32, LinkId)> = usable
                .filter_map(|link| Some((self.distance(fabric.switch_after(link)?)?, link)))
                .collect();
            let Some(nearest) = reaching.iter().map(|&(distance, _)| distance).min() else {
                continue;
            };
            let start = self.links.len();
            let best = reaching
                .into_iter()
                .filter(|&(distance, _)| distance == nearest);
            self.links.extend(best.map(|(_, link)| link));
            self.distances[switch.index()] = Some(nearest + 1);
            self.spans[switch.index()] = start..self.links.len();
        }
    }
}
