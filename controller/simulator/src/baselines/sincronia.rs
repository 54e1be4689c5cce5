//! Sincronia (Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows", SIGCOMM 2018):
//! an order of coflows from bottleneck-select-scale-iterate (BSSI, its Algorithm 1).
//!
//! A job's flows of one iteration are a coflow `c` of weight `w_c = 1` with demand `D[e][c] =
//! M_{c,e} / B_e` on link `e`. For the last place of the order down to the first:
//!
//! 1. *bottleneck*: `b` = the link with the largest sum of `D[e][c]` over coflows not yet ordered;
//! 2. *select*: `c* = argmin w_c / D[b][c]` over those with `D[b][c] > 0`, placed last of those
//!    left;
//! 3. *scale*: `w_c -= w_{c*} * D[b][c] / D[b][c*]` for the others;
//! 4. *iterate*.
//!
//! Any work-conserving allocation that keeps the order finishes coflows on average within four
//! times of the optimum (its Theorem 1).
//!
//! Left open there and chosen here: the paper has a big switch, whose only links are the ports of
//! hosts; here every directed link of the fabric is one. Ties: the lower link, then the coflow that
//! came later goes last. A coflow without demand comes first, as it delays no other. Paths are
//! ECMP's. On switches with `K` levels the first `K - 1` coflows have one each and the rest share
//! the lowest (its section 4.3). Order is by one iteration and never changes, as every iteration of
//! a job is the same coflow.

use std::collections::BTreeMap;

use planner::{PlanInput, Policy, compression};
use topology::LinkId;

use crate::baselines::{compress_order, ecmp};
use crate::demand::LinkDemand;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// ECMP's paths, and levels by the order of BSSI.
pub fn schedule_jobs(input: &PlanInput, policy: &Policy, routes: &EqualCostRoutes) -> Schedule {
    let paths = ecmp::hash_paths(input, routes);
    let order = order_coflows(&LinkDemand::for_jobs(input, &paths));
    Schedule::from_levels(&assign_levels(&order, policy), paths)
}

/// Classes by job, of jobs in `order`: the first alone, the rest in the lowest.
pub fn assign_levels(order: &[usize], policy: &Policy) -> Vec<u32> {
    compress_order(order, policy, compression::sincronia::sincronia_levels)
}

/// The order of the coflows with these `demands`, the first served first.
pub fn order_coflows(demands: &[LinkDemand]) -> Vec<usize> {
    let mut state = BssiState::new(demands);
    let mut last_first: Vec<usize> = Vec::new();
    while let Some(bottleneck) = state.find_bottleneck() {
        let coflow = state.select_last(bottleneck);
        state.scale_weights(bottleneck, coflow);
        last_first.push(coflow);
    }
    let idle = (0..demands.len()).filter(|coflow| demands[*coflow].bottleneck_seconds() <= 0.0);
    idle.chain(last_first.into_iter().rev()).collect()
}

/// The coflows not yet ordered.
struct BssiState<'a> {
    demands: &'a [LinkDemand],
    weights: Vec<f64>,
    is_unordered: Vec<bool>,
    /// Coflows on each link with their seconds; those already ordered too.
    on_link: BTreeMap<LinkId, Vec<(usize, f64)>>,
}

impl<'a> BssiState<'a> {
    fn new(demands: &'a [LinkDemand]) -> Self {
        let mut on_link: BTreeMap<LinkId, Vec<(usize, f64)>> = BTreeMap::new();
        for (coflow, demand) in demands.iter().enumerate() {
            for (link, seconds) in demand.links.iter().filter(|(_, seconds)| *seconds > 0.0) {
                on_link.entry(*link).or_default().push((coflow, *seconds));
            }
        }
        Self {
            demands,
            weights: vec![1.0; demands.len()],
            is_unordered: demands.iter().map(|demand| demand.bottleneck_seconds() > 0.0).collect(),
            on_link,
        }
    }

    fn unordered_on(&self, link: LinkId) -> impl Iterator<Item = (usize, f64)> + '_ {
        let coflows = self.on_link.get(&link).into_iter().flatten().copied();
        coflows.filter(|(coflow, _)| self.is_unordered[*coflow])
    }

    /// The link with the largest demand left; none when every coflow is ordered.
    fn find_bottleneck(&self) -> Option<LinkId> {
        let totals = self
            .on_link
            .keys()
            .map(|link| (*link, self.unordered_on(*link).map(|(_, seconds)| seconds).sum::<f64>()));
        let largest = totals
            .filter(|(_, sum)| *sum > 0.0)
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        largest.map(|(link, _)| link)
    }

    /// The coflow on the bottleneck with the least weight for its demand there.
    fn select_last(&self, bottleneck: LinkId) -> usize {
        let ratio = |(coflow, seconds): &(usize, f64)| self.weights[*coflow] / seconds;
        let chosen = self
            .unordered_on(bottleneck)
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(b.0.cmp(&a.0)));
        chosen.map_or(0, |(coflow, _)| coflow)
    }

    /// Takes `coflow` out and charges its weight to the others on the bottleneck.
    fn scale_weights(&mut self, bottleneck: LinkId, coflow: usize) {
        self.is_unordered[coflow] = false;
        let links = &self.demands[coflow].links;
        let own = links.iter().find(|(link, _)| *link == bottleneck);
        let per_second = own.map_or(0.0, |(_, seconds)| self.weights[coflow] / seconds);
        let others: Vec<(usize, f64)> = self.unordered_on(bottleneck).collect();
        for (other, seconds) in others {
            self.weights[other] -= per_second * seconds;
        }
    }
}

#[cfg(test)]
mod tests;
