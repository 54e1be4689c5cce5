//! The cheapest segment between two leaves by branch and bound.
//!
//! Prices are never below zero. So the search abandons a path as soon as its known part costs as
//! much as the best segment found, and computes prices, which are expensive, only where they
//! matter: first at the outer links, then from the cheapest link up.

use topology::{DownwardHops, LinkId, SwitchHop, SwitchId};

use crate::least_loaded_path::{LeafEnds, NEVER, PathSegment};
use crate::path_tables::PathTables;

/// Buffers for one search at a time.
#[derive(Clone, Debug)]
pub(crate) struct CheapestPath {
    search: u32,
    switches: Vec<DescentState>,
}

/// State of a switch above the second leaf; valid if `search` is the number of the current search.
#[derive(Clone, Copy, Debug, Default)]
struct DescentState {
    search: u32,
    distance: u8,
    /// Its position among the downward hops.
    place: u32,
    /// Price of the rest of the path, once known.
    remaining_price: Option<u64>,
}

impl CheapestPath {
    /// For fabrics of so many switches.
    pub(crate) fn new(switches: usize) -> Self {
        Self { search: 0, switches: vec![DescentState::default(); switches] }
    }

    /// The segment with the smallest sum of prices and that sum; of equals, the one found first.
    /// None if it costs `limit` or more.
    pub(crate) fn find_cheapest(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        limit: u64,
        price: impl Fn(LinkId) -> u64,
    ) -> Option<(u64, PathSegment)> {
        self.search += 1;
        let down = tables.descents_to(ends.to);
        for (place, (switch, distance, _)) in down.iter().enumerate() {
            self.switches[switch.index()] = DescentState {
                search: self.search,
                distance,
                place: place as u32,
                remaining_price: None,
            };
        }
        let mut search =
            BranchAndBound { cheapest: self, tables, down, price, best: (limit, None) };
        search.climb_from(ends.from, ends.distance, 0, PathSegment::EMPTY);
        let (price, (turn, up)) = (search.best.0, search.best.1?);
        Some((price, search.descend_from(turn, up)))
    }
}

struct BranchAndBound<'a, P> {
    cheapest: &'a mut CheapestPath,
    tables: &'a PathTables,
    down: &'a DownwardHops,
    price: P,
    /// Sum of prices, where the segment turns down, and its links so far.
    best: (u64, Option<(SwitchId, PathSegment)>),
}

impl<'a, P: Fn(LinkId) -> u64> BranchAndBound<'a, P> {
    fn descent_state(&self, at: SwitchId) -> Option<DescentState> {
        let state = self.cheapest.switches[at.index()];
        (state.search == self.cheapest.search).then_some(state)
    }

    fn climb_from(&mut self, at: SwitchId, distance: u8, spent: u64, so_far: PathSegment) {
        match self.descent_state(at) {
            Some(state) if state.distance == distance => {
                let total = spent.saturating_add(self.remaining_price(at));
                if total < self.best.0 {
                    self.best = (total, Some((at, so_far)));
                }
            }
            None if distance > 1 && so_far.is_empty() => self.leave_first_leaf(at, distance),
            None if distance > 1 => {
                for hop in self.tables.hops_up(at) {
                    self.climb_hop(*hop, distance - 1, spent, so_far);
                }
            }
            _ => {}
        }
    }

    /// The links out of the first leaf, the cheapest first.
    fn leave_first_leaf(&mut self, leaf: SwitchId, distance: u8) {
        let hops_up = self.tables.hops_up(leaf).iter();
        let mut hops: Vec<(u64, SwitchHop)> =
            hops_up.map(|hop| ((self.price)(hop.link), *hop)).collect();
        hops.sort_unstable();
        for (price, hop) in hops {
            if price >= self.best.0 {
                return;
            }
            let mut segment = PathSegment::EMPTY;
            segment.push(hop.link);
            self.climb_from(hop.to, distance - 1, price, segment);
        }
    }

    /// Goes one link further up, unless the last links down alone already cost too much.
    fn climb_hop(&mut self, hop: SwitchHop, distance: u8, spent: u64, so_far: PathSegment) {
        let least = self.min_remaining_price(hop.to);
        if spent.saturating_add(least) >= self.best.0 {
            return;
        }
        // Only now the price of this link, which is the expensive part.
        let total = spent + (self.price)(hop.link);
        if total.saturating_add(least) < self.best.0 {
            let mut segment = so_far;
            segment.push(hop.link);
            self.climb_from(hop.to, distance, total, segment);
        }
    }

    fn hops_down(&self, at: SwitchId) -> &'a [SwitchHop] {
        let down = self.down;
        self.descent_state(at).map_or(&[], |state| down.hops_at(state.place as usize))
    }

    /// Lower bound of the price of the rest from a switch: that of the links after its own.
    fn min_remaining_price(&mut self, at: SwitchId) -> u64 {
        let mut least = NEVER;
        for hop in self.hops_down(at) {
            least = least.min(self.remaining_price(hop.to));
        }
        // A switch that is not above the second leaf has no bound.
        if least == NEVER { 0 } else { least }
    }

    /// Price of the cheapest descent from a switch above the second leaf; 0 at the leaf.
    fn remaining_price(&mut self, at: SwitchId) -> u64 {
        if at == self.down.destination() {
            return 0;
        }
        if let Some(known) = self.cheapest.switches[at.index()].remaining_price {
            return known;
        }
        let mut least = NEVER;
        for hop in self.hops_down(at) {
            least = least.min((self.price)(hop.link).saturating_add(self.remaining_price(hop.to)));
        }
        self.cheapest.switches[at.index()].remaining_price = Some(least);
        least
    }

    /// The segment completed by the first of the cheapest descents from where it turns.
    fn descend_from(&mut self, turn: SwitchId, up: PathSegment) -> PathSegment {
        let (mut segment, mut at) = (up, turn);
        while at != self.down.destination() {
            let mut least = (NEVER, None);
            for hop in self.hops_down(at) {
                let price = (self.price)(hop.link).saturating_add(self.remaining_price(hop.to));
                if price < least.0 {
                    least = (price, Some(*hop));
                }
            }
            let Some(hop) = least.1 else { break };
            segment.push(hop.link);
            at = hop.to;
        }
        segment
    }
}
