//! Path selection (Crux §4.1): jobs in descending intensity; each flow takes, of its equal-cost
//! paths, the least congested at that moment. Then local search (`improve`).
//!
//! Congestion is the share of time that a link is busy. Flows that already have a usable path are
//! put there before anything is chosen, and leave it only in the local search, for the gain that
//! policy asks. The search ends where no move is worth its price, and what it looks at does not
//! depend on how the paths came to be; so planning again, given its own result, moves nothing.

mod cheapest;
mod improve;
mod placement;

#[cfg(test)]
pub(crate) use self::cheapest::Finder;
pub(crate) use self::placement::Placement;
use crate::intensity::Demand;
use crate::policy::{Paths, Policy};
use crate::previous::Previous;
use crate::traffic::Traffic;

/// The order in which jobs choose: descending intensity, then id.
pub(crate) fn order<'d>(demands: impl Iterator<Item = &'d Demand>) -> Vec<usize> {
    let intensities: Vec<f64> = demands.map(|demand| demand.intensity).collect();
    let mut jobs: Vec<usize> = (0..intensities.len()).collect();
    jobs.sort_by(|a, b| intensities[*b].total_cmp(&intensities[*a]).then(a.cmp(b)));
    jobs
}

/// All flows of `traffic` on their paths; the seat of a job is its ordinal.
pub(crate) fn select(traffic: &Traffic<'_>, previous: &Previous<'_>, policy: &Policy) -> Placement {
    let mut placement = Placement::new(traffic.fabric, &traffic.ways);
    for (ordinal, (job, routes)) in traffic.jobs.iter().zip(&traffic.routes).enumerate() {
        let seat = placement.seat(job, routes);
        for (flow, had) in previous.paths(ordinal, job).enumerate() {
            placement.keep(traffic.fabric, (seat, flow), had);
        }
    }
    let order = order(traffic.routes.iter().map(|routes| &routes.demand));
    settle(&mut placement, &order, policy);
    placement
}

/// Gives every flow without a path one, if there is any, and improves. `order` is the seats of all
/// jobs in the order of choice.
pub(crate) fn settle(placement: &mut Placement, order: &[usize], policy: &Policy) {
    for seat in order {
        placement.place_rest(*seat);
    }
    match policy.paths {
        Paths::Greedy => {}
        Paths::Improved => improve::improve(placement, order, policy.move_gain_min),
    }
}

/// Bytes per second that a flow averages while its job runs undisturbed.
pub(crate) fn rate(bytes: f64, demand: &Demand) -> f64 {
    let seconds = demand.iteration_seconds;
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}
