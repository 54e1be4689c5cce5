//! Equal-cost paths: from every switch, all shortest ways up and then down to one destination.
//!
//! The planner chooses among the paths of this module and routing installs its next hops, so that
//! what a flow is pinned to and what ECMP would do always come from the same rule. The rule: a path
//! climbs towards the core and then descends, and never climbs again ("valley-free"); of those, the
//! shortest. A switch above the destination therefore only descends and every other switch only
//! climbs, and each tier can be solved from tiers already solved. That makes all next hops towards
//! one destination one pass over the links; they are made per destination, when wanted.
//!
//! "Above the destination" holds as in a fabric without failures: a spine that has lost its
//! own cable to a leaf has no way to it, although a core may have one. Switches are written one
//! after the other, so a core may still send it what it would send back up: a loop, and under
//! priority flow control a deadlock. With this rule no mix of routes of any failures has either
//! (docs/algorithms/deadlock.md).
//!
//! A search for one path among many needs neither the list of all paths nor the next hops at
//! every switch. [`UpwardHops`] (the ways up, for a whole fabric) and [`DownwardHops`] (the ways
//! down to one leaf) are the same rule in two small tables that all pairs of leaves share.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::{Destination, Fabric, Tier};
use crate::ids::{LinkId, NicId, SwitchId};

/// Equal-cost next hops towards one destination, at every switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHops {
    to: Destination,
    /// Links still to cross, by switch; `None` where the destination cannot be reached.
    distances: Vec<Option<u32>>,
    /// The part of `links` that belongs to each switch.
    spans: Vec<std::ops::Range<usize>>,
    links: Vec<LinkId>,
}

impl NextHops {
    /// Where the next hops lead to.
    #[inline]
    pub fn destination(&self) -> Destination {
        self.to
    }

    /// The links a packet at `switch` may take next, ascending, parallel links each by itself.
    /// Empty at the destination and where it cannot be reached.
    pub fn links_at(&self, switch: SwitchId) -> &[LinkId] {
        &self.links[self.spans[switch.index()].clone()]
    }

    /// Number of links from `switch` to the destination; `None` where it cannot be reached.
    pub fn distance(&self, switch: SwitchId) -> Option<u32> {
        self.distances[switch.index()]
    }

    /// All equal-cost paths from `from` to the destination, in ascending order of their links. One
    /// empty path at the destination itself, none where it cannot be reached. `fabric` is the one
    /// these next hops were made for.
    pub fn paths_from(&self, fabric: &Fabric, from: SwitchId) -> Vec<Vec<LinkId>> {
        let Some(distance) = self.distance(from) else {
            return Vec::new();
        };
        let mut paths = vec![Vec::new()];
        for _ in 0..distance {
            let extended = paths.into_iter().flat_map(|path: Vec<LinkId>| {
                let at = path.last().map_or(Some(from), |&link| fabric.switch_after(link));
                let hops = at.map_or(&[][..], |switch| self.links_at(switch));
                hops.iter().map(move |&hop| [&path[..], &[hop]].concat())
            });
            paths = extended.collect();
        }
        paths
    }
}

/// A link and the switch it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwitchHop {
    /// The link.
    pub link: LinkId,
    /// Where it ends.
    pub to: SwitchId,
}

/// The usable links towards higher tiers, at every switch of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpwardHops {
    /// The part of `hops` that belongs to each switch.
    first: Vec<u32>,
    hops: Vec<SwitchHop>,
    /// Where a link up cannot be used: by switch, where all its links up lead, ascending.
    cabled: BTreeMap<SwitchId, Vec<SwitchId>>,
}

impl UpwardHops {
    /// Those of `fabric` as it is.
    pub fn new(fabric: &Fabric) -> Self {
        let (mut first, mut hops, mut cabled) = (vec![0], Vec::new(), BTreeMap::new());
        for switch in fabric.switch_ids() {
            let links = fabric.up_links(switch);
            let start = hops.len();
            let usable = links.iter().copied().filter(|link| fabric.is_usable(*link));
            hops.extend(usable.filter_map(|link| {
                let to = fabric.switch_after(link)?;
                Some(SwitchHop { link, to })
            }));
            if hops.len() - start < links.len() {
                let above = links.iter().filter_map(|link| fabric.switch_after(*link));
                cabled.insert(switch, above.collect::<BTreeSet<_>>().into_iter().collect());
            }
            first.push(hops.len() as u32);
        }
        Self { first, hops, cabled }
    }

    /// The links up from a switch, ascending.
    #[inline]
    pub fn hops_from(&self, switch: SwitchId) -> &[SwitchHop] {
        let at = switch.index();
        &self.hops[self.first[at] as usize..self.first[at + 1] as usize]
    }
}

/// The shortest ways down to one leaf, from every switch that stands above it; a spine that has
/// lost its own cable to the leaf is there without a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownwardHops {
    to: SwitchId,
    upper: Vec<UpperSwitch>,
    hops: Vec<SwitchHop>,
}

/// A switch above a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UpperSwitch {
    switch: SwitchId,
    distance: u8,
    hops: std::ops::Range<u32>,
}

impl DownwardHops {
    /// Those to the leaf `to`; `climbs` are the fabric's.
    pub fn new(climbs: &UpwardHops, to: SwitchId) -> Self {
        let mut descents = Self { to, upper: Vec::new(), hops: Vec::new() };
        let mut lower = vec![to];
        let mut distance = 1;
        while !lower.is_empty() {
            lower = descents.add_next_tier(climbs, &lower, distance);
            distance += 1;
        }
        descents.add_cut_off(climbs);
        descents
    }

    /// The leaf they lead to.
    #[inline]
    pub fn destination(&self) -> SwitchId {
        self.to
    }

    /// Every switch above the leaf, the nearest first: the switch, its number of links to the leaf,
    /// and the links it may take, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (SwitchId, u8, &[SwitchHop])> + '_ {
        self.upper.iter().map(|above| {
            let hops = above.hops.start as usize..above.hops.end as usize;
            (above.switch, above.distance, &self.hops[hops])
        })
    }

    /// The links that a switch may take, by its place in [`DownwardHops::iter`], ascending.
    #[inline]
    pub fn hops_at(&self, place: usize) -> &[SwitchHop] {
        let hops = self.upper.get(place).map_or(0..0, |above| above.hops.clone());
        &self.hops[hops.start as usize..hops.end as usize]
    }

    /// Number of links from a switch above the leaf to it, and the links it may take, ascending.
    pub fn find_switch(&self, switch: SwitchId) -> Option<(u8, &[SwitchHop])> {
        let farthest = self.upper.last().map_or(0, |above| above.distance);
        let place = (1..=farthest).find_map(|distance| {
            let found = self
                .upper
                .binary_search_by_key(&(distance, switch), |above| (above.distance, above.switch));
            found.ok()
        })?;
        Some((self.upper[place].distance, self.hops_at(place)))
    }

    /// Adds the switches with a cable to the leaf that have no way down: they must not climb.
    fn add_cut_off(&mut self, climbs: &UpwardHops) {
        let Some(cabled) = climbs.cabled.get(&self.to) else {
            return;
        };
        let has_way = |switch: &SwitchId| self.upper.iter().any(|above| above.switch == *switch);
        let cut_off: Vec<SwitchId> =
            cabled.iter().copied().filter(|switch| !has_way(switch)).collect();
        if cut_off.is_empty() {
            return;
        }
        let without_hops = |switch| UpperSwitch { switch, distance: 1, hops: 0..0 };
        self.upper.extend(cut_off.into_iter().map(without_hops));
        self.upper.sort_by_key(|above| (above.distance, above.switch));
    }

    /// Adds the switches one link above `lower` that are not nearer; they are the answer.
    fn add_next_tier(
        &mut self,
        climbs: &UpwardHops,
        lower: &[SwitchId],
        distance: u8,
    ) -> Vec<SwitchId> {
        let climbs = lower.iter().flat_map(|low| {
            let hops = climbs.hops_from(*low).iter();
            hops.map(move |up| (up.to, up.link.reverse(), *low))
        });
        let mut down: Vec<(SwitchId, LinkId, SwitchId)> = climbs.collect();
        down.sort_unstable();
        let mut reached = Vec::new();
        for steps in down.chunk_by(|a, b| a.0 == b.0) {
            let switch = steps[0].0;
            if switch != self.to && self.upper.iter().all(|above| above.switch != switch) {
                reached.push(steps);
            }
        }
        let mut higher = Vec::with_capacity(reached.len());
        for steps in reached {
            let start = self.hops.len() as u32;
            let hops = steps.iter().map(|&(_, link, to)| SwitchHop { link, to });
            self.hops.extend(hops);
            let (switch, hops) = (steps[0].0, start..self.hops.len() as u32);
            self.upper.push(UpperSwitch { switch, distance, hops });
            higher.push(switch);
        }
        higher
    }
}

/// Most links of a path: up and down between the tiers of host, leaf, spine and core.
pub const MAX_PATH_LINKS: usize = 6;

/// The links of a path in their order, held in place. Empty where there is no path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkPath {
    links: [LinkId; MAX_PATH_LINKS],
    length: u8,
}

impl LinkPath {
    /// The path without links, which stands for no path.
    pub const EMPTY: Self = Self { links: [LinkId(0); MAX_PATH_LINKS], length: 0 };

    /// The path over `links`; `None` if they are more than a path has.
    pub fn new(links: &[LinkId]) -> Option<Self> {
        let mut path = Self::EMPTY;
        path.links.get_mut(..links.len())?.copy_from_slice(links);
        path.length = links.len() as u8;
        Some(path)
    }

    /// The path with one more link; unchanged if it has the most already.
    #[must_use]
    #[inline]
    pub fn with_link(mut self, link: LinkId) -> Self {
        if let Some(end) = self.links.get_mut(usize::from(self.length)) {
            *end = link;
            self.length += 1;
        }
        self
    }

    /// The path without its first and last link, those of the hosts.
    #[inline]
    pub fn without_host_links(&self) -> &[LinkId] {
        self.get(1..self.len().saturating_sub(1)).unwrap_or(&[])
    }
}

impl std::ops::Deref for LinkPath {
    type Target = [LinkId];

    #[inline]
    fn deref(&self) -> &[LinkId] {
        &self.links[..usize::from(self.length)]
    }
}

impl<'a> IntoIterator for &'a LinkPath {
    type Item = &'a LinkId;
    type IntoIter = std::slice::Iter<'a, LinkId>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::fmt::Debug for LinkPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The next hops towards a leaf, or towards the nearer of two, over usable links only: none that
/// failed or is drained.
pub fn next_hops(fabric: &Fabric, to: impl Into<Destination>) -> NextHops {
    let to = to.into();
    let mut hops = NextHops {
        to,
        distances: vec![None; fabric.switches().len()],
        spans: vec![0..0; fabric.switches().len()],
        links: Vec::new(),
    };
    for leaf in to.leaves() {
        hops.distances[leaf.index()] = fabric.is_switch_usable(leaf).then_some(0);
    }
    for tier in [Tier::Spine, Tier::Core] {
        hops.solve_tier(fabric, tier, Fabric::down_links);
    }
    // Those with a cable to the destination only descend, even if it cannot be used.
    let cables = to.leaves().flat_map(|leaf| fabric.up_links(leaf));
    let descending: BTreeSet<SwitchId> =
        cables.filter_map(|link| fabric.switch_after(*link)).collect();
    for tier in [Tier::Spine, Tier::Leaf] {
        hops.solve_tier(fabric, tier, |fabric, switch| match descending.contains(&switch) {
            true => &[],
            // Never from one leaf of two to the other: a spine may still send it what it would send
            // back.
            false if to.contains(switch) => &[],
            false => fabric.up_links(switch),
        });
    }
    hops
}

/// All equal-cost paths between the leaves `from` and `to`, without the links of the hosts, in
/// ascending order of their links. One empty path where both are the same leaf, none where there is
/// no way. For many sources and one destination, keep the [`next_hops`] and ask them.
pub fn equal_cost_paths(fabric: &Fabric, from: SwitchId, to: SwitchId) -> Vec<Vec<LinkId>> {
    next_hops(fabric, to).paths_from(fabric, from)
}

/// All equal-cost paths from a port of a NIC to a NIC, by whichever port they arrive, with the
/// links of the hosts; none where there is no way.
pub fn paths_between_nics(fabric: &Fabric, from: NicId, to: NicId) -> Vec<Vec<LinkId>> {
    let hops = next_hops(fabric, fabric.arrival_leaves(to));
    let first = fabric.leaf_of(from);
    let between = hops.paths_from(fabric, first).into_iter();
    let whole = between.filter_map(|between| {
        let last = between.last().map_or(Some(first), |link| fabric.switch_after(*link))?;
        let down = fabric.nic(fabric.arrival_port(last, to)?).uplink.reverse();
        Some([&[fabric.nic(from).uplink], &between[..], &[down]].concat())
    });
    whole.collect()
}

impl NextHops {
    /// Gives every switch of `tier` that has no way yet the links among its `candidates` that lead
    /// nearest to the destination.
    fn solve_tier(
        &mut self,
        fabric: &Fabric,
        tier: Tier,
        candidates: impl for<'a> Fn(&'a Fabric, SwitchId) -> &'a [LinkId],
    ) {
        for switch in fabric.switches_of_tier(tier) {
            if self.distance(switch).is_some() {
                continue;
            }
            let candidates = candidates(fabric, switch);
            let found = nearest_links(fabric, candidates, |next| self.distance(next));
            let Some((nearest, best)) = found else {
                continue;
            };
            let start = self.links.len();
            self.links.extend(best);
            self.distances[switch.index()] = Some(nearest + 1);
            self.spans[switch.index()] = start..self.links.len();
        }
    }
}

/// The usable ones of some links of a switch that lead nearest to a destination, and how far it is
/// from their ends, by the distances of other switches.
pub(crate) fn nearest_links(
    fabric: &Fabric,
    candidates: &[LinkId],
    distance: impl Fn(SwitchId) -> Option<u32>,
) -> Option<(u32, Vec<LinkId>)> {
    let usable = candidates.iter().copied().filter(|&link| fabric.is_usable(link));
    let reaching: Vec<(u32, LinkId)> =
        usable.filter_map(|link| Some((distance(fabric.switch_after(link)?)?, link))).collect();
    let nearest = reaching.iter().map(|&(distance, _)| distance).min()?;
    let best = reaching.into_iter().filter(|&(distance, _)| distance == nearest);
    Some((nearest, best.map(|(_, link)| link).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::AvailabilityChange;

    /// Paths between two leaves by the names of their switches.
    fn ways(fabric: &Fabric, from: &str, to: &str) -> Vec<String> {
        let [from, to] = [from, to].map(|name| fabric.switch_named(name).unwrap());
        let name = |link: &LinkId| {
            let switch = fabric.switch_after(*link).unwrap();
            fabric.switch(switch).name.clone()
        };
        let paths = equal_cost_paths(fabric, from, to);
        paths.iter().map(|path| path.iter().map(name).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn two_tiers_have_one_path_per_spine_and_parallel_link() {
        let lab = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        assert_eq!(ways(&lab, "leaf1", "leaf3"), ["spine1 leaf3", "spine2 leaf3"]);
        assert_eq!(ways(&lab, "leaf2", "leaf2"), [""]);
        let parallel = ClosSpec { parallel_uplinks: 2, spines: 1, ..ClosSpec::default() };
        let parallel = clos::build_clos("parallel", &parallel).unwrap();
        assert_eq!(ways(&parallel, "leaf1", "leaf3"), ["spine1 leaf3"; 4]);
    }

    #[test]
    fn failed_and_drained_parts_are_avoided_and_nothing_climbs_twice() {
        let lab = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let cable = lab.links_named("leaf3-spine1")[0];
        let [spine2, leaf3] = ["spine2", "leaf3"].map(|name| lab.switch_named(name).unwrap());
        let one_left = lab.with_changes([AvailabilityChange::LinkDown(cable)]);
        assert_eq!(ways(&one_left, "leaf1", "leaf3"), ["spine2 leaf3"]);
        // Up again at leaf2 or leaf4 and down from spine2 would be a valley.
        let none_left = one_left
            .with_changes([AvailabilityChange::LinkDown(lab.links_named("spine2-leaf1")[0])]);
        assert!(ways(&none_left, "leaf1", "leaf3").is_empty());
        let drained = lab.with_changes([AvailabilityChange::DrainSwitch(spine2)]);
        assert_eq!(ways(&drained, "leaf1", "leaf3"), ["spine1 leaf3"]);
        let down = lab.with_changes([AvailabilityChange::SwitchDown(leaf3)]);
        assert!(ways(&down, "leaf1", "leaf3").is_empty());
        assert!(ways(&down, "leaf3", "leaf3").is_empty());
    }

    #[test]
    fn three_tiers_stay_in_the_pod_or_cross_a_core() {
        let spec = ClosSpec { pods: 2, cores: 2, planes: true, ..ClosSpec::default() };
        let fabric = clos::build_clos("three", &spec).unwrap();
        assert_eq!(ways(&fabric, "leaf1", "leaf2"), ["spine1 leaf2", "spine2 leaf2"]);
        let across = ["spine1 core1 spine3 leaf6", "spine2 core2 spine4 leaf6"];
        assert_eq!(ways(&fabric, "leaf1", "leaf6"), across);
        // Within a pod a core is a detour, longer than the way over the other spine.
        let cable = fabric.links_named("leaf2-spine1")[0];
        let detour = fabric.with_changes([AvailabilityChange::LinkDown(cable)]);
        assert_eq!(ways(&detour, "leaf1", "leaf2"), ["spine2 leaf2"]);
    }

    #[test]
    fn a_spine_that_lost_its_cable_to_a_leaf_does_not_climb_instead() {
        let spec = ClosSpec { pods: 2, cores: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("three", &spec).unwrap();
        let cut = |names: &[&str]| {
            let cables = names.iter().map(|name| fabric.links_named(name)[0]);
            fabric.with_changes(cables.map(AvailabilityChange::LinkDown))
        };
        let [spine1, leaf2] = ["spine1", "leaf2"].map(|name| fabric.switch_named(name).unwrap());
        let hops = next_hops(&cut(&["leaf2-spine1"]), leaf2);
        assert_eq!((hops.distance(spine1), hops.links_at(spine1)), (None, &[][..]));
        // Two failures leave leaf1 only the spine that a core would have to help out.
        assert!(ways(&cut(&["leaf2-spine1", "leaf1-spine2"]), "leaf1", "leaf2").is_empty());
        assert_eq!(ways(&cut(&["leaf2-spine1"]), "leaf6", "leaf2").len(), 4);
    }

    #[test]
    fn next_hops_at_a_spine_go_down_to_the_leaf() {
        let lab = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let [spine, leaf] = ["spine1", "leaf3"].map(|name| lab.switch_named(name).unwrap());
        let hops = next_hops(&lab, leaf);
        assert_eq!(hops.links_at(spine), lab.links_named("spine1-leaf3"));
        assert_eq!((hops.distance(spine), hops.links_at(leaf)), (Some(1), &[][..]));
    }
}
