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

/// The next hops towards the leaf `to`, over usable links only: none that failed or is drained.
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
            let candidates = candidates(fabric, switch).iter().copied();
            let reaching: Vec<(u32, LinkId)> = candidates
                .filter_map(|link| Some((self.distance(fabric.switch_after(link)?)?, link)))
                .filter(|&(_, link)| fabric.is_usable(link))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::Change;

    /// Paths between two leaves by the names of their switches.
    fn ways(fabric: &Fabric, from: &str, to: &str) -> Vec<String> {
        let [from, to] = [from, to].map(|name| fabric.switch_named(name).unwrap());
        let name = |link: &LinkId| {
            let switch = fabric.switch_after(*link).unwrap();
            fabric.switch(switch).name.clone()
        };
        let paths = equal_cost_paths(fabric, from, to);
        paths
            .iter()
            .map(|path| path.iter().map(name).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn two_tiers_have_one_path_per_spine_and_parallel_link() {
        let lab = clos::build("lab", &ClosSpec::default()).unwrap();
        assert_eq!(
            ways(&lab, "leaf1", "leaf3"),
            ["spine1 leaf3", "spine2 leaf3"]
        );
        assert_eq!(ways(&lab, "leaf2", "leaf2"), [""]);
        let parallel = ClosSpec {
            parallel_uplinks: 2,
            spines: 1,
            ..ClosSpec::default()
        };
        let parallel = clos::build("parallel", &parallel).unwrap();
        assert_eq!(ways(&parallel, "leaf1", "leaf3"), ["spine1 leaf3"; 4]);
    }

    #[test]
    fn failed_and_drained_parts_are_avoided_and_nothing_climbs_twice() {
        let lab = clos::build("lab", &ClosSpec::default()).unwrap();
        let cable = lab.links_named("leaf3-spine1")[0];
        let [spine2, leaf3] = ["spine2", "leaf3"].map(|name| lab.switch_named(name).unwrap());
        let one_left = lab.with([Change::LinkDown(cable)]);
        assert_eq!(ways(&one_left, "leaf1", "leaf3"), ["spine2 leaf3"]);
        // Up again at leaf2 or leaf4 and down from spine2 would be a valley.
        let none_left = one_left.with([Change::LinkDown(lab.links_named("spine2-leaf1")[0])]);
        assert!(ways(&none_left, "leaf1", "leaf3").is_empty());
        let drained = lab.with([Change::DrainSwitch(spine2)]);
        assert_eq!(ways(&drained, "leaf1", "leaf3"), ["spine1 leaf3"]);
        let down = lab.with([Change::SwitchDown(leaf3)]);
        assert!(ways(&down, "leaf1", "leaf3").is_empty());
        assert!(ways(&down, "leaf3", "leaf3").is_empty());
    }

    #[test]
    fn three_tiers_stay_in_the_pod_or_cross_a_core() {
        let spec = ClosSpec {
            pods: 2,
            cores: 2,
            planes: true,
            ..ClosSpec::default()
        };
        let fabric = clos::build("three", &spec).unwrap();
        assert_eq!(
            ways(&fabric, "leaf1", "leaf2"),
            ["spine1 leaf2", "spine2 leaf2"]
        );
        let across = ["spine1 core1 spine3 leaf6", "spine2 core2 spine4 leaf6"];
        assert_eq!(ways(&fabric, "leaf1", "leaf6"), across);
        // Within a pod a core is a detour, longer than the way over the other spine.
        let cable = fabric.links_named("leaf2-spine1")[0];
        let detour = fabric.with([Change::LinkDown(cable)]);
        assert_eq!(ways(&detour, "leaf1", "leaf2"), ["spine2 leaf2"]);
    }

    #[test]
    fn next_hops_at_a_spine_go_down_to_the_leaf() {
        let lab = clos::build("lab", &ClosSpec::default()).unwrap();
        let [spine, leaf] = ["spine1", "leaf3"].map(|name| lab.switch_named(name).unwrap());
        let hops = next_hops(&lab, leaf);
        assert_eq!(hops.at(spine), lab.links_named("spine1-leaf3"));
        assert_eq!((hops.distance(spine), hops.at(leaf)), (Some(1), &[][..]));
    }
}
