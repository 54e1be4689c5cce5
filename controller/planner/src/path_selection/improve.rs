//! Local search over paths: flows move while the contention that intensity weighs falls.
//!
//! Where jobs a and b meet on a link, the less intense of them waits for as long as both want it,
//! at most min(load_a, load_b) of the time; the sum of that over links and pairs, each weighed by
//! the lesser intensity, is the contention. A job also waits for itself where its own flows load a
//! link more than its tightest link must be loaded anyway. A move of a flow, or of all flows of a
//! job between two leaves together, is made if contention falls by enough; every move lowers one
//! and the same sum, so the search ends.

use std::sync::Arc;

use topology::LinkId;

use super::cheapest::Finder;
use super::placement::Placement;
use crate::intensity::Demand;
use crate::occupancy::Share;
use crate::walker::Segment;

/// What counts as a gain for a flow that may move freely: this share of link time. It keeps the
/// search from chasing rounding. It doubles with every round, up to what running flows ask for, so
/// that many rounds end soon.
const LEAST_GAIN: f64 = 1.0 / 1024.0;

/// A gain must also be this part of what the flows pay: in a fabric that is full everywhere there
/// is always a slightly better place, and no end of moves for the sake of little.
const LEAST_FRACTION: Price = 8;

/// Units of a weight: the intensity of another job in that of the one that pays, at most one.
const WEIGHT_ONE: f64 = 65536.0;

/// Contention in the intensity of the job that would move: weight times share.
type Price = u64;

/// Moves flows until no move gains enough. `order` is the seats in the order of choice; flows that
/// were there before move only for `move_gain_min` of link time each.
pub(super) fn improve(placement: &mut Placement, order: &[usize], move_gain_min: f64) {
    let price = |share: f64| (share * WEIGHT_ONE * Share::ONE).ceil() as Price;
    let mut search = Search {
        least_gain: price(LEAST_GAIN),
        running_gain: price(move_gain_min),
        contenders: Contenders::new(placement),
        finder: Finder::new(placement.ways.switches()),
        placement,
    };
    while order
        .iter()
        .filter(|seat| search.improve_job(**seat))
        .count()
        > 0
    {
        let doubled = search.least_gain.saturating_mul(2);
        search.least_gain = doubled.min(search.running_gain).max(search.least_gain);
    }
}

/// What the jobs on the seats are to each other.
struct Contenders {
    /// `I_j` in FLOP/s, by seat.
    intensities: Vec<f64>,
    /// The load that the tightest link of a job bears at least, by seat.
    unavoidable: Vec<Share>,
}

impl Contenders {
    fn new(placement: &Placement) -> Self {
        let demands = placement.seats.iter();
        let demands = demands.map(|seated| seated.as_ref().map(|seated| &seated.routes.demand));
        let tightest =
            |demand: &Demand| Share::of(demand.bottleneck_seconds / demand.iteration_seconds);
        Self {
            intensities: demands
                .clone()
                .map(|d| d.map_or(0.0, |d| d.intensity))
                .collect(),
            unavoidable: demands.map(|d| d.map_or(Share(0), tightest)).collect(),
        }
    }

    /// What `share` more of the job on a seat would add to contention on a link with these `jobs`.
    fn price(&self, seat: usize, jobs: &[(u32, u64)], share: Share) -> Price {
        let own = jobs.iter().find(|(job, _)| *job as usize == seat);
        let present = own.map_or(0, |own| own.1);
        let after = present + share.0;
        let mut price = 0;
        for (other, load) in jobs.iter().filter(|(job, _)| *job as usize != seat) {
            let weight = self.weight(seat, *other as usize);
            price += weight * (after.min(*load) - present.min(*load));
        }
        let unavoidable = self.unavoidable[seat].0;
        let waits = after.saturating_sub(unavoidable) - present.saturating_sub(unavoidable);
        price + WEIGHT_ONE as Price * waits
    }

    /// The lesser of two intensities in the first of them.
    fn weight(&self, own: usize, other: usize) -> Price {
        let (own, other) = (self.intensities[own], self.intensities[other]);
        if other >= own {
            return WEIGHT_ONE as Price;
        }
        (WEIGHT_ONE * (other / own)) as Price
    }
}

struct Search<'s> {
    placement: &'s mut Placement,
    contenders: Contenders,
    finder: Finder,
    least_gain: Price,
    running_gain: Price,
}

impl Search<'_> {
    /// Moves what gains enough of a job; whether anything moved.
    fn improve_job(&mut self, seat: usize) -> bool {
        let routes = Arc::clone(&self.placement.at(seat).routes);
        let mut moved = false;
        for (group, flows) in routes.groups.iter().enumerate() {
            if self.placement.look(seat, group) {
                moved |= flows.len() > 1 && self.relocate(seat, flows);
                for flow in flows {
                    moved |= self.relocate(seat, &[*flow]);
                }
            }
        }
        moved
    }

    /// Takes flows between the same leaves off their paths and puts them all on the cheapest one,
    /// or back.
    fn relocate(&mut self, seat: usize, flows: &[usize]) -> bool {
        let mut before = 0;
        let mut had = Vec::with_capacity(flows.len());
        for flow in flows {
            let path = self.placement.lift((seat, *flow));
            before += self.price(seat, *flow, path.segment());
            had.push(path);
        }
        let best = self.best(seat, flows, before);
        for (flow, had) in flows.iter().zip(&had) {
            let segment = best.as_ref().map_or(had.segment(), |segment| segment);
            let path = self.placement.path((seat, *flow), segment);
            self.placement.put((seat, *flow), path);
            if path != *had {
                self.placement.moved(seat, had.segment(), path.segment());
            }
        }
        best.is_some()
    }

    /// The segment that costs the flows, all on no path now, the least together, if that gains
    /// enough over what they cost `before`: each that runs asks for its own.
    fn best(&mut self, seat: usize, flows: &[usize], before: Price) -> Option<Segment> {
        let (placement, contenders) = (&*self.placement, &self.contenders);
        let seated = placement.at(seat);
        let running = flows.iter().filter(|flow| seated.kept[**flow]).count() as Price;
        let gain = self
            .running_gain
            .saturating_mul(running)
            .max(self.least_gain);
        let limit = before.checked_sub(gain.max(before / LEAST_FRACTION))? + 1;
        let pair = seated.routes.flows[*flows.first()?].pair;
        let shares = placement.shares(seat, flows);
        let price = |link| contenders.price(seat, placement.occupancy.jobs(link), shares.on(link));
        let ends = &seated.routes.pairs[pair].ends;
        let best = self.finder.cheapest(&placement.ways, ends, limit, price)?;
        Some(best.1)
    }

    /// What a flow that is on no path would add to contention on `links`.
    fn price(&self, seat: usize, flow: usize, links: &[LinkId]) -> Price {
        let (placement, flows) = (&*self.placement, [flow]);
        let shares = placement.shares(seat, &flows);
        let price = |link: &LinkId| {
            self.contenders
                .price(seat, placement.occupancy.jobs(*link), shares.on(*link))
        };
        links.iter().map(price).sum()
    }
}
