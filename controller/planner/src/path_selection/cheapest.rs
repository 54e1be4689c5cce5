//! The cheapest segment between two leaves by branch and bound.
//!
//! Prices are never below zero. So a way is given up as soon as the part that is known costs what
//! the best segment found costs, and prices, which are dear to work out, are asked for only where
//! it matters: first at the outer links, then from the cheapest way up on.

use topology::{Descents, Hop, LinkId, SwitchId};

use crate::walker::{Ends, NEVER, Segment};
use crate::ways::Ways;

/// Room for one search at a time.
#[derive(Clone, Debug)]
pub(crate) struct Finder {
    search: u32,
    spots: Vec<Spot>,
}

/// A switch above the second leaf, if `search` is the present one.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    search: u32,
    distance: u8,
    /// Its place among the descents.
    place: u32,
    /// Price of the rest of the way, once known.
    rest: Option<u64>,
}

impl Finder {
    /// For fabrics of so many switches.
    pub(crate) fn new(switches: usize) -> Self {
        Self {
            search: 0,
            spots: vec![Spot::default(); switches],
        }
    }

    /// The segment with the smallest sum of prices and that sum; of equals, the one found first.
    /// None if it costs `limit` or more.
    pub(crate) fn cheapest(
        &mut self,
        ways: &Ways,
        ends: &Ends,
        limit: u64,
        price: impl Fn(LinkId) -> u64,
    ) -> Option<(u64, Segment)> {
        self.search += 1;
        let down = ways.down_to(ends.to);
        for (place, (switch, distance, _)) in down.iter().enumerate() {
            self.spots[switch.index()] = Spot {
                search: self.search,
                distance,
                place: place as u32,
                rest: None,
            };
        }
        let mut search = Search {
            finder: self,
            ways,
            down,
            price,
            best: (limit, None),
        };
        search.climb(ends.from, ends.distance, 0, Segment::EMPTY);
        let (price, (turn, up)) = (search.best.0, search.best.1?);
        Some((price, search.descend_from(turn, up)))
    }
}

struct Search<'a, P> {
    finder: &'a mut Finder,
    ways: &'a Ways,
    down: &'a Descents,
    price: P,
    /// Sum of prices, where the segment turns down, and its links so far.
    best: (u64, Option<(SwitchId, Segment)>),
}

impl<'a, P: Fn(LinkId) -> u64> Search<'a, P> {
    fn spot(&self, at: SwitchId) -> Option<Spot> {
        let spot = self.finder.spots[at.index()];
        (spot.search == self.finder.search).then_some(spot)
    }

    fn climb(&mut self, at: SwitchId, distance: u8, spent: u64, so_far: Segment) {
        match self.spot(at) {
            Some(spot) if spot.distance == distance => {
                let total = spent.saturating_add(self.rest(at));
                if total < self.best.0 {
                    self.best = (total, Some((at, so_far)));
                }
            }
            None if distance > 1 && so_far.is_empty() => self.leave(at, distance),
            None if distance > 1 => {
                for hop in self.ways.up(at) {
                    self.climb_on(*hop, distance - 1, spent, so_far);
                }
            }
            _ => {}
        }
    }

    /// The links out of the first leaf, the cheapest first.
    fn leave(&mut self, leaf: SwitchId, distance: u8) {
        let hops = self.ways.up(leaf).iter();
        let mut hops: Vec<(u64, Hop)> = hops.map(|hop| ((self.price)(hop.link), *hop)).collect();
        hops.sort_unstable();
        for (price, hop) in hops {
            if price >= self.best.0 {
                return;
            }
            let mut segment = Segment::EMPTY;
            segment.push(hop.link);
            self.climb(hop.to, distance - 1, price, segment);
        }
    }

    /// One link further up, unless the last links down alone make that too dear.
    fn climb_on(&mut self, hop: Hop, distance: u8, spent: u64, so_far: Segment) {
        let least = self.least_rest(hop.to);
        if spent.saturating_add(least) >= self.best.0 {
            return;
        }
        let spent = spent + (self.price)(hop.link);
        if spent.saturating_add(least) < self.best.0 {
            let mut segment = so_far;
            segment.push(hop.link);
            self.climb(hop.to, distance, spent, segment);
        }
    }

    fn hops(&self, at: SwitchId) -> &'a [Hop] {
        let down = self.down;
        self.spot(at)
            .map_or(&[], |spot| down.hops(spot.place as usize))
    }

    /// What the rest of the way from a switch costs at least, as the links after its own say.
    fn least_rest(&mut self, at: SwitchId) -> u64 {
        let mut least = NEVER;
        for hop in self.hops(at) {
            least = least.min(self.rest(hop.to));
        }
        // Nothing is known where the switch is not above the second leaf.
        if least == NEVER { 0 } else { least }
    }

    /// Price of the cheapest way down from a switch above the second leaf; 0 at the leaf.
    fn rest(&mut self, at: SwitchId) -> u64 {
        if at == self.down.to() {
            return 0;
        }
        if let Some(known) = self.finder.spots[at.index()].rest {
            return known;
        }
        let mut least = NEVER;
        for hop in self.hops(at) {
            least = least.min((self.price)(hop.link).saturating_add(self.rest(hop.to)));
        }
        self.finder.spots[at.index()].rest = Some(least);
        least
    }

    /// The segment completed by the first of the cheapest ways down from where it turns.
    fn descend_from(&mut self, turn: SwitchId, up: Segment) -> Segment {
        let (mut segment, mut at) = (up, turn);
        while at != self.down.to() {
            let mut least = (NEVER, None);
            for hop in self.hops(at) {
                let price = (self.price)(hop.link).saturating_add(self.rest(hop.to));
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
