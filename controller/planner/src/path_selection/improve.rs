//! Local search over paths: flows move while the contention that intensity weighs falls.
//!
//! Where jobs a and b meet on a link, the less intense of them waits for as long as both want it,
//! at most min(load_a, load_b) of the time; the sum of that over links and pairs, each weighed by
//! the lesser intensity, is the contention. A job also waits for itself where its own flows load a
//! link more than its tightest link must be loaded anyway. A move of a flow, or of all flows of a
//! job between two leaves together, is made if contention falls by enough; every move lowers one
//! and the same sum, so the search ends.

use std::collections::BTreeMap;

use topology::LinkId;

use super::Placement;
use crate::occupancy::Share;

/// What counts as a gain for a flow that may move freely: this share of link time. It keeps the
/// search from chasing rounding.
const LEAST_GAIN: f64 = 1.0 / 1024.0;

/// Units of a weight: the intensity of another job in that of the one that pays, at most one.
const WEIGHT_ONE: f64 = 65536.0;

/// Contention in the intensity of the job that would move: weight times share.
type Price = i64;

/// Moves flows until no move gains enough. `order` is the jobs in the order of choice; flows that
/// are `kept` from the previous plan move only for `move_gain_min` of link time each.
pub(crate) fn improve(
    placement: &mut Placement<'_>,
    order: &[usize],
    kept: &[bool],
    move_gain_min: f64,
) {
    let groups: Vec<Vec<usize>> = order
        .iter()
        .flat_map(|job| groups(placement, *job))
        .collect();
    let gain = |share: f64| (share * WEIGHT_ONE * Share::ONE).ceil() as Price;
    let mut search = Search {
        placement,
        kept,
        least_gain: gain(LEAST_GAIN),
        running_gain: gain(move_gain_min),
    };
    while groups.iter().filter(|group| search.improve(group)).count() > 0 {}
}

/// Flows of a job by the two leaves they join, those with a choice.
fn groups(placement: &Placement<'_>, job: usize) -> Vec<Vec<usize>> {
    let traffic = placement.traffic;
    let mut by_pair = BTreeMap::<usize, Vec<usize>>::new();
    for flow in traffic.spans[job].clone() {
        let route = &traffic.flows[flow];
        if route.has_path && traffic.pairs[route.pair].has_choice() && route.flow.bytes > 0.0 {
            by_pair.entry(route.pair).or_default().push(flow);
        }
    }
    by_pair.into_values().collect()
}

struct Search<'s, 'a> {
    placement: &'s mut Placement<'a>,
    kept: &'s [bool],
    least_gain: Price,
    running_gain: Price,
}

impl<'a> Search<'_, 'a> {
    /// Moves the group together, or flows of it one by one, where that gains enough.
    fn improve(&mut self, group: &[usize]) -> bool {
        let mut moved = group.len() > 1 && self.relocate(group);
        for flow in group {
            moved |= self.relocate(&[*flow]);
        }
        moved
    }

    /// Takes the flows off their paths and puts them all on the cheapest one, or back.
    fn relocate(&mut self, flows: &[usize]) -> bool {
        let mut gain = 0;
        let mut had = Vec::with_capacity(flows.len());
        for flow in flows {
            let path = self.placement.lift(*flow);
            let segment = path[1..path.len() - 1].to_vec();
            gain += self.price(*flow, &segment);
            had.push(segment);
        }
        let segment = self.cheapest(flows);
        for flow in flows {
            gain -= self.price(*flow, segment);
            self.placement.place(*flow, segment);
        }
        let moves = |at: &usize| self.kept[flows[*at]] && had[*at] != segment;
        let running = (0..flows.len()).filter(moves).count();
        let needed = self.running_gain.saturating_mul(running as Price);
        if gain >= needed.max(self.least_gain) {
            return true;
        }
        for (flow, segment) in flows.iter().zip(&had) {
            self.placement.lift(*flow);
            self.placement.place(*flow, segment);
        }
        false
    }

    /// The segment that costs the flows, all on no path now, the least; then the least loaded.
    fn cheapest(&self, flows: &[usize]) -> &'a [LinkId] {
        let (placement, traffic) = (&self.placement, self.placement.traffic);
        let price = |segment: &&Vec<LinkId>| -> (Price, u64) {
            let links = segment.iter().map(|link| {
                let shares = flows.iter().map(|flow| placement.share(*flow, *link).0);
                let price = self.link_price(flows[0], *link, shares.sum());
                (price, placement.occupancy.total(*link).0)
            });
            links.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        let segments = traffic.segments(&traffic.flows[flows[0]]).iter();
        segments.min_by_key(price).map_or(&[], |segment| segment)
    }

    /// What a flow that is on no path would add to contention on `links`.
    fn price(&self, flow: usize, links: &[LinkId]) -> Price {
        let price = |link: &LinkId| {
            let share = self.placement.share(flow, *link);
            self.link_price(flow, *link, share.0)
        };
        links.iter().map(price).sum()
    }

    /// What `share` more of the flow's job would add to contention on a link.
    fn link_price(&self, flow: usize, link: LinkId, share: u64) -> Price {
        let placement = &self.placement;
        let job = placement.traffic.flows[flow].job;
        let demand = &placement.demands[job];
        let own = placement
            .occupancy
            .jobs(link)
            .find(|(other, _)| *other as usize == job);
        let present = own.map_or(0, |(_, load)| load.0);
        let others = placement
            .occupancy
            .jobs(link)
            .filter(|(other, _)| *other as usize != job);
        let overlaps = others.map(|(other, load)| {
            let theirs = placement.demands[other as usize].intensity;
            let weight = (WEIGHT_ONE * (theirs / demand.intensity).min(1.0)).round() as Price;
            weight * ((present + share).min(load.0) - present.min(load.0)) as Price
        });
        let tightest = demand.bottleneck_seconds / demand.iteration_seconds;
        let unavoidable = Share::of(tightest, true).0;
        let beyond = |load: u64| load.saturating_sub(unavoidable);
        let waiting = beyond(present + share) - beyond(present);
        overlaps.sum::<Price>() + WEIGHT_ONE as Price * waiting as Price
    }
}
