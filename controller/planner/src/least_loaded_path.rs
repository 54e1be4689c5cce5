//! Finding one segment between two leaves among all equal-cost ones, without listing them.
//!
//! All segments of a pair are equally long and pass through layers: some links up, then some down.
//! The best value of the rest of a path depends only on the switch, so one pass over the links of
//! the pair finds the best of its many segments. Values are whole numbers, so the segment can be
//! reconstructed from them exactly.

use topology::{DownwardHops, LinkId, SwitchHop, SwitchId};

use crate::path_tables::PathTables;

/// The value of an impossible path.
pub(crate) const NEVER: u64 = u64::MAX;

/// The most links between two leaves.
const LAYERS: usize = 4;

/// Two leaves and the number of links between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEnds {
    pub(crate) from: SwitchId,
    pub(crate) to: SwitchId,
    pub(crate) distance: u8,
}

/// Links from one leaf to another, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathSegment {
    links: [LinkId; LAYERS],
    length: u8,
}

impl PathSegment {
    /// No links: from a leaf to itself.
    pub(crate) const EMPTY: Self = Self { links: [LinkId(0); LAYERS], length: 0 };

    /// Appends a link.
    pub(crate) fn push(&mut self, link: LinkId) {
        if let Some(end) = self.links.get_mut(usize::from(self.length)) {
            *end = link;
            self.length += 1;
        }
    }
}

impl std::ops::Deref for PathSegment {
    type Target = [LinkId];

    fn deref(&self) -> &[LinkId] {
        &self.links[..usize::from(self.length)]
    }
}

/// Buffers for one pass at a time: the value at each switch above the second leaf, valid while its
/// stamp is that of the pass.
#[derive(Clone, Debug)]
pub(crate) struct LeastLoadedPath {
    pass: u32,
    values: Vec<SwitchValue>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SwitchValue {
    pass: u32,
    distance: u8,
    value: u64,
}

impl LeastLoadedPath {
    /// For fabrics of so many switches.
    pub(crate) fn new(switches: usize) -> Self {
        Self { pass: 0, values: vec![SwitchValue::default(); switches] }
    }

    /// Number of links between two leaves; none if there is no path.
    pub(crate) fn leaf_distance(
        &mut self,
        tables: &PathTables,
        from: SwitchId,
        to: SwitchId,
    ) -> Option<u8> {
        if from == to {
            return Some(0);
        }
        self.compute_descent(tables.descents_to(to), |_, _| 0);
        (1..=LAYERS as u8).find(|distance| {
            let ends = LeafEnds { from, to, distance: *distance };
            self.value_at_start(tables, &ends, &|_, onward| onward) != NEVER
        })
    }

    /// The segment whose links load the most loaded of them least, then all together least, then
    /// come first. `load` is what a link would bear.
    pub(crate) fn find_least_loaded(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        load: impl Fn(LinkId) -> u64,
    ) -> PathSegment {
        let largest = self.best_value(tables, ends, &|link, onward: u64| onward.max(load(link)));
        // The second pass may use only links that do not exceed the largest load of the first.
        let sum_of_loads = |link, onward: u64| match load(link) {
            load if load > largest || onward == NEVER => NEVER,
            load => load + onward,
        };
        self.best_value(tables, ends, &sum_of_loads);
        self.read_segment(tables, ends, &sum_of_loads)
    }

    /// The largest value that some segment has at all its links.
    pub(crate) fn widest_capacity(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        width: impl Fn(LinkId) -> f64,
    ) -> f64 {
        // The bits of floats above zero have the order of the floats: the largest complement of the
        // bits belongs to the narrowest link.
        let best = self.best_value(tables, ends, &|link, onward: u64| {
            onward.max(NEVER - 1 - width(link).to_bits())
        });
        f64::from_bits(NEVER - 1 - best)
    }

    /// The links of all segments by layer, each once.
    pub(crate) fn link_layers(&mut self, tables: &PathTables, ends: &LeafEnds) -> Vec<Vec<LinkId>> {
        self.best_value(tables, ends, &reachable);
        let mut layers = Vec::with_capacity(usize::from(ends.distance));
        let mut switches = vec![ends.from];
        for left in (1..=ends.distance).rev() {
            let mut hops: Vec<SwitchHop> = Vec::new();
            for switch in &switches {
                hops.extend(self.hops_at(tables, ends, *switch).iter().filter(|hop| {
                    hop.to == ends.to
                        || self.value_at(tables, hop.to, left - 1, &reachable) != NEVER
                }));
            }
            switches = hops.iter().map(|hop| hop.to).collect();
            switches.sort_unstable();
            switches.dedup();
            layers.push(hops.into_iter().map(|hop| hop.link).collect());
        }
        layers
    }

    /// The links that a path may take at a switch: down where it is above the second leaf.
    fn hops_at<'w>(
        &self,
        tables: &'w PathTables,
        ends: &LeafEnds,
        switch: SwitchId,
    ) -> &'w [SwitchHop] {
        match self.values[switch.index()].pass == self.pass {
            true => tables.descents_to(ends.to).find_switch(switch).map_or(&[], |(_, hops)| hops),
            false => tables.hops_up(switch),
        }
    }

    /// The value of the best segment; `join` is the value of a link and the rest after it.
    fn best_value(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        self.compute_descent(tables.descents_to(ends.to), join);
        self.value_at_start(tables, ends, join)
    }

    /// Values at the switches above the second leaf.
    fn compute_descent(&mut self, down: &DownwardHops, join: impl Fn(LinkId, u64) -> u64) {
        self.pass += 1;
        for (switch, distance, hops) in down.iter() {
            let values = hops.iter().map(|hop| {
                let onward = if hop.to == down.destination() {
                    0
                } else {
                    self.values[hop.to.index()].value
                };
                join(hop.link, onward)
            });
            let value = values.min().unwrap_or(NEVER);
            self.values[switch.index()] = SwitchValue { pass: self.pass, distance, value };
        }
    }

    /// The value at the first leaf.
    fn value_at_start(
        &self,
        tables: &PathTables,
        ends: &LeafEnds,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        self.value_at(tables, ends.from, ends.distance, join)
    }

    /// The value at a switch so many links from the second leaf.
    fn value_at(
        &self,
        tables: &PathTables,
        switch: SwitchId,
        distance: u8,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        let at = &self.values[switch.index()];
        if at.pass == self.pass {
            return if at.distance == distance { at.value } else { NEVER };
        }
        if distance < 2 {
            return NEVER;
        }
        tables
            .hops_up(switch)
            .iter()
            .map(|hop| match self.value_at(tables, hop.to, distance - 1, join) {
                NEVER => NEVER,
                onward => join(hop.link, onward),
            })
            .min()
            .unwrap_or(NEVER)
    }

    /// The first segment, by link ids, that has the best value.
    fn read_segment(
        &self,
        tables: &PathTables,
        ends: &LeafEnds,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> PathSegment {
        let mut segment = PathSegment::EMPTY;
        let mut switch = ends.from;
        for left in (1..=ends.distance).rev() {
            let hops = self.hops_at(tables, ends, switch);
            let next = hops.iter().min_by_key(|hop| match hop.to == ends.to {
                true => join(hop.link, 0),
                false => match self.value_at(tables, hop.to, left - 1, join) {
                    NEVER => NEVER,
                    onward => join(hop.link, onward),
                },
            });
            let Some(next) = next else { break };
            segment.push(next.link);
            switch = next.to;
        }
        segment
    }
}

/// Every link has the same value: only whether there is a path counts.
fn reachable(_: LinkId, _: u64) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use topology::clos::{ClosSpec, build_clos};
    use topology::{AvailabilityChange, Fabric, Tier};

    use super::*;
    use crate::path_selection::CheapestPath;

    /// Two and three tiers, planes or not, parallel links, with some cables down.
    fn fabric() -> impl Strategy<Value = Fabric> {
        let spec = (1_u32..4, 1_u32..4, 1_u32..3, 1_u32..3, any::<bool>());
        let built = spec.prop_map(|(leaves, spines, parallel_uplinks, pods, planes)| {
            let spec = ClosSpec {
                leaves,
                spines,
                parallel_uplinks,
                pods,
                cores: 2 * spines,
                planes,
                ..ClosSpec::default()
            };
            build_clos("test", &spec).unwrap()
        });
        built.prop_flat_map(|fabric| {
            let links: Vec<LinkId> = fabric.link_ids().collect();
            let down = prop::collection::vec(prop::sample::select(links), 0..6);
            down.prop_map(move |down| {
                fabric.with_changes(down.into_iter().map(AvailabilityChange::LinkDown))
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// What is found without a list is what the list of all equal-cost paths says.
        #[test]
        fn one_pass_finds_what_enumeration_finds(
            fabric in fabric(),
            loads in prop::collection::vec(0_u64..4, 1..50),
        ) {
            let tables = PathTables::new(&fabric);
            let mut least_loaded = LeastLoadedPath::new(fabric.switches().len());
            let mut cheapest = CheapestPath::new(fabric.switches().len());
            let load = |link: LinkId| loads[link.index() % loads.len()];
            let leaves: Vec<SwitchId> = fabric.switches_of_tier(Tier::Leaf).collect();
            for (&from, &to) in leaves.iter().flat_map(|a| leaves.iter().map(move |b| (a, b))) {
                if from == to {
                    continue;
                }
                let listed = topology::equal_cost_paths(&fabric, from, to);
                let distance = least_loaded.leaf_distance(&tables, from, to);
                prop_assert_eq!(distance.map(usize::from), listed.first().map(Vec::len));
                let Some(distance) = distance else { continue };
                let ends = LeafEnds { from, to, distance };
                prop_assert_eq!(&tables.list_segments(&ends), &listed);
                let congestion = |path: &Vec<LinkId>| {
                    let loads = path.iter().map(|link| load(*link));
                    (loads.clone().max(), loads.sum::<u64>(), path.clone())
                };
                let best = listed.iter().min_by_key(|path| congestion(path)).unwrap();
                let found = least_loaded.find_least_loaded(&tables, &ends, load);
                prop_assert_eq!(&found[..], &best[..]);
                let sum = |path: &[LinkId]| path.iter().map(|link| load(*link)).sum::<u64>();
                let (price, segment) = cheapest.find_cheapest(&tables, &ends, NEVER, load).unwrap();
                prop_assert_eq!(Some(price), listed.iter().map(|path| sum(path)).min());
                prop_assert_eq!(sum(&segment), price);
                prop_assert!(listed.contains(&segment.to_vec()));
                let layers = least_loaded.link_layers(&tables, &ends);
                for (depth, links) in layers.iter().enumerate() {
                    let mut at_depth: Vec<LinkId> = listed.iter().map(|path| path[depth]).collect();
                    at_depth.sort();
                    at_depth.dedup();
                    let mut links = links.clone();
                    links.sort();
                    prop_assert_eq!(links, at_depth);
                }
            }
        }
    }
}
