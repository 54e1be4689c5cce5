//! Finding the least loaded segment between two leaves among all equal-cost ones, without listing
//! them.
//!
//! First the smallest load that some segment has at its most loaded link is found, then, among the
//! segments that exceed it nowhere, the least sum of loads. Both are branch and bound: a segment is
//! abandoned as soon as its known part is no better than the best one found, and a link is looked
//! at, which is expensive, only where it matters. In large fabrics that leaves a fraction of the
//! links that a pass over all of them would look at. Loads are whole numbers, so the result is
//! exactly that of a list of all segments.

use topology::{DownwardHops, LinkId, SwitchHop, SwitchId};

use crate::path_tables::{LeafEnds, PathTables};

/// The value of an impossible path.
pub(crate) const NEVER: u64 = u64::MAX;

/// The most links between two leaves.
pub(crate) const LAYERS: usize = 4;

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

/// Buffers for one search at a time, in one fabric.
#[derive(Clone, Debug)]
pub(crate) struct SegmentSearch {
    /// The second leaf of the last search, and how many changes of it there were: the switches
    /// above it are known already if the next search has the same.
    destination: Option<SwitchId>,
    descent: u32,
    pass: u32,
    switches: Vec<DescentState>,
    /// Links out of the first leaf.
    first_hops: Vec<(u64, SwitchHop)>,
}

/// State of a switch above the second leaf, valid if `descent` is that of the search.
#[derive(Clone, Copy, Debug, Default)]
struct DescentState {
    descent: u32,
    /// Its position among the downward hops.
    place: u32,
    /// The pass in which `value` was computed.
    pass: u32,
    distance: u8,
    /// Value of the best rest of a path.
    value: u64,
}

impl SegmentSearch {
    /// For fabrics of so many switches.
    pub(crate) fn new(switches: usize) -> Self {
        Self {
            destination: None,
            descent: 0,
            pass: 0,
            switches: vec![DescentState::default(); switches],
            first_hops: Vec::new(),
        }
    }

    /// The segment whose links load the most loaded of them least, then all together least, then
    /// come first. `load` is what a link would bear.
    pub(crate) fn find_least_loaded(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        load: impl Fn(LinkId) -> u64,
    ) -> PathSegment {
        let mut search = self.begin_search(tables, ends, load);
        search.find_by_value(ends, PathMeasure::Largest);
        let largest = search.best.0;
        search.find_by_link_id(ends, PathMeasure::Sum { largest });
        search.best_segment().unwrap_or(PathSegment::EMPTY)
    }

    fn begin_search<'a, V: Fn(LinkId) -> u64>(
        &'a mut self,
        tables: &'a PathTables,
        ends: &LeafEnds,
        value: V,
    ) -> BoundedSearch<'a, V> {
        let down = tables.descents_to(ends.to);
        self.enter_descent(down);
        let measure = PathMeasure::Largest;
        BoundedSearch { buffers: self, tables, down, value, measure, best: (NEVER, None) }
    }

    /// Learns which switches are above the second leaf.
    fn enter_descent(&mut self, down: &DownwardHops) {
        if self.destination == Some(down.destination()) {
            return;
        }
        self.destination = Some(down.destination());
        self.descent += 1;
        for (place, (switch, distance, _)) in down.iter().enumerate() {
            self.switches[switch.index()] = DescentState {
                descent: self.descent,
                place: place as u32,
                distance,
                ..DescentState::default()
            };
        }
    }
}

/// What is to be least.
#[derive(Clone, Copy, Debug)]
enum PathMeasure {
    /// The value of the link with most.
    Largest,
    /// The sum over all links, of which none may have more than `largest`.
    Sum { largest: u64 },
}

impl PathMeasure {
    /// The value of a part of a path with one more link.
    fn extend(self, part: u64, link: u64) -> u64 {
        match self {
            Self::Largest => part.max(link),
            Self::Sum { largest } if link > largest => NEVER,
            Self::Sum { .. } => part.saturating_add(link),
        }
    }

    /// The value of two parts together.
    fn join(self, first: u64, second: u64) -> u64 {
        match self {
            Self::Largest => first.max(second),
            Self::Sum { .. } => first.saturating_add(second),
        }
    }
}

struct BoundedSearch<'a, V> {
    buffers: &'a mut SegmentSearch,
    tables: &'a PathTables,
    down: &'a DownwardHops,
    /// Load or price of a link.
    value: V,
    measure: PathMeasure,
    /// Least value, where the segment turns down, and its links so far.
    best: (u64, Option<(SwitchId, PathSegment)>),
}

impl<'a, V: Fn(LinkId) -> u64> BoundedSearch<'a, V> {
    fn begin_pass(&mut self, measure: PathMeasure) {
        self.buffers.pass += 1;
        self.measure = measure;
        self.best = (NEVER, None);
    }

    /// Searches all segments; of equals, the first by link ids is found.
    fn find_by_link_id(&mut self, ends: &LeafEnds, measure: PathMeasure) {
        self.begin_pass(measure);
        self.climb_from(ends.from, ends.distance, 0, PathSegment::EMPTY);
    }

    /// Searches all segments, those with the best links out of the first leaf first: once one is no
    /// better than the best segment, none after it is.
    fn find_by_value(&mut self, ends: &LeafEnds, measure: PathMeasure) {
        self.begin_pass(measure);
        let mut hops = std::mem::take(&mut self.buffers.first_hops);
        hops.clear();
        let hops_up = self.tables.hops_up(ends.from).iter();
        hops.extend(hops_up.map(|hop| ((self.value)(hop.link), *hop)));
        hops.sort_unstable();
        for (value, hop) in hops.iter().take_while(|_| ends.distance > 1) {
            if *value >= self.best.0 {
                break;
            }
            let mut segment = PathSegment::EMPTY;
            segment.push(hop.link);
            self.climb_from(hop.to, ends.distance - 1, *value, segment);
        }
        self.buffers.first_hops = hops;
    }

    /// The best segment of the last pass, completed by the first of the best descents.
    fn best_segment(&mut self) -> Option<PathSegment> {
        let (turn, up) = self.best.1?;
        Some(self.descend_from(turn, up))
    }

    fn descent_state(&self, at: SwitchId) -> Option<DescentState> {
        let state = self.buffers.switches[at.index()];
        (state.descent == self.buffers.descent).then_some(state)
    }

    fn climb_from(&mut self, at: SwitchId, distance: u8, spent: u64, so_far: PathSegment) {
        match self.descent_state(at) {
            Some(state) if state.distance == distance => {
                let total = self.measure.join(spent, self.remaining_value(at));
                if total < self.best.0 {
                    self.best = (total, Some((at, so_far)));
                }
            }
            None if distance > 1 => {
                for hop in self.tables.hops_up(at) {
                    self.climb_hop(*hop, distance - 1, spent, so_far);
                }
            }
            _ => {}
        }
    }

    /// Goes one link further up, unless the last links down alone are already too much.
    fn climb_hop(&mut self, hop: SwitchHop, distance: u8, spent: u64, so_far: PathSegment) {
        let least = self.min_remaining_value(hop.to);
        if self.measure.join(spent, least) >= self.best.0 {
            return;
        }
        let total = self.measure.extend(spent, (self.value)(hop.link));
        if self.measure.join(total, least) < self.best.0 {
            let mut segment = so_far;
            segment.push(hop.link);
            self.climb_from(hop.to, distance, total, segment);
        }
    }

    fn hops_down(&self, at: SwitchId) -> &'a [SwitchHop] {
        let down = self.down;
        self.descent_state(at).map_or(&[], |state| down.hops_at(state.place as usize))
    }

    /// Lower bound of the value of the rest from a switch: that of the links after its own.
    fn min_remaining_value(&mut self, at: SwitchId) -> u64 {
        if self.descent_state(at).is_none() {
            // A switch that is not above the second leaf has no bound.
            return 0;
        }
        let mut least = NEVER;
        for hop in self.hops_down(at) {
            least = least.min(self.remaining_value(hop.to));
        }
        least
    }

    /// Value of the best descent from a switch above the second leaf; 0 at the leaf.
    fn remaining_value(&mut self, at: SwitchId) -> u64 {
        if at == self.down.destination() {
            return 0;
        }
        let pass = self.buffers.pass;
        let state = self.buffers.switches[at.index()];
        if state.pass == pass {
            return state.value;
        }
        let mut least = NEVER;
        for hop in self.hops_down(at) {
            let onward = self.remaining_value(hop.to);
            least = least.min(self.measure.extend(onward, (self.value)(hop.link)));
        }
        let state = &mut self.buffers.switches[at.index()];
        (state.pass, state.value) = (pass, least);
        least
    }

    /// The segment completed by the first of the best descents from where it turns.
    fn descend_from(&mut self, turn: SwitchId, up: PathSegment) -> PathSegment {
        let (mut segment, mut at) = (up, turn);
        while at != self.down.destination() {
            let mut least = (NEVER, None);
            for hop in self.hops_down(at) {
                let onward = self.remaining_value(hop.to);
                let value = self.measure.extend(onward, (self.value)(hop.link));
                if value < least.0 {
                    least = (value, Some(*hop));
                }
            }
            let Some(hop) = least.1 else { break };
            segment.push(hop.link);
            at = hop.to;
        }
        segment
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use topology::clos::{ClosSpec, build_clos};
    use topology::{AvailabilityChange, Fabric, Tier};

    use super::*;
    use crate::segment_survey::SegmentSurvey;

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
        /// The search without a list finds what the list of all equal-cost paths has.
        #[test]
        fn one_pass_finds_what_enumeration_finds(
            fabric in fabric(),
            loads in prop::collection::vec(0_u64..4, 1..50),
        ) {
            let tables = PathTables::new(&fabric);
            let mut search = SegmentSearch::new(fabric.switches().len());
            let mut survey = SegmentSurvey::new(fabric.switches().len());
            let load = |link: LinkId| loads[link.index() % loads.len()];
            let leaves: Vec<SwitchId> = fabric.switches_of_tier(Tier::Leaf).collect();
            for (&from, &to) in leaves.iter().flat_map(|a| leaves.iter().map(move |b| (a, b))) {
                if from == to {
                    continue;
                }
                let listed = topology::equal_cost_paths(&fabric, from, to);
                let distance = survey.leaf_distance(&tables, from, to);
                prop_assert_eq!(distance.map(usize::from), listed.first().map(Vec::len));
                let Some(distance) = distance else { continue };
                let ends = LeafEnds { from, to, distance };
                prop_assert_eq!(&tables.list_segments(&ends), &listed);
                let congestion = |path: &Vec<LinkId>| {
                    let loads = path.iter().map(|link| load(*link));
                    (loads.clone().max(), loads.sum::<u64>(), path.clone())
                };
                let best = listed.iter().min_by_key(|path| congestion(path)).unwrap();
                let found = search.find_least_loaded(&tables, &ends, load);
                prop_assert_eq!(&found[..], &best[..]);
                let layers = survey.link_layers(&tables, &ends);
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
