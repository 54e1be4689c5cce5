//! Path selection (Crux §4.1): jobs in descending intensity; each flow takes, of its equal-cost
//! paths, the least congested at that moment.
//!
//! Congestion is the share of time that a link is busy ([`PathRule`] says whose). Flows that already have a usable path keep
//! it before anything is chosen, so planning again from a plan's own result moves nothing. What
//! other paths would be worth, the layer above decides (`refine`).

mod path_assignment;

use topology::LinkPath;

pub(crate) use self::path_assignment::{PathAssignment, PathRule};
use crate::network_demand::NetworkDemand;
use crate::policy::{PathMethod, Policy};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// The order in which jobs choose: descending intensity, then id.
pub(crate) fn order_by_intensity<'d>(
    demands: impl Iterator<Item = &'d NetworkDemand>,
) -> Vec<usize> {
    let intensities: Vec<f64> = demands.map(|demand| demand.intensity).collect();
    let mut jobs: Vec<usize> = (0..intensities.len()).collect();
    jobs.sort_by(|a, b| intensities[*b].total_cmp(&intensities[*a]).then(a.cmp(b)));
    jobs
}

/// All flows of `traffic` on their paths; the slot of a job is its ordinal.
pub(crate) fn select_paths(
    traffic: &IndexedTraffic<'_>,
    previous: &PreviousPlan<'_>,
    policy: &Policy,
) -> PathAssignment {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (ordinal, (job, routes)) in traffic.jobs.iter().zip(&traffic.routes).enumerate() {
        let job_slot = assignment.add_job(job, routes);
        for (flow, had) in previous.job_paths(ordinal, job).enumerate() {
            assignment.keep_path(traffic.fabric, (job_slot, flow), had);
        }
    }
    for job_slot in order_by_intensity(traffic.routes.iter().map(|routes| &routes.demand)) {
        assignment.assign_remaining(job_slot, PathRule::of_policy(policy));
    }
    assignment
}

impl PathRule {
    /// By which new flows choose: that of the paper where policy asks for its phases alone.
    pub(crate) fn of_policy(policy: &Policy) -> Self {
        match policy.paths {
            PathMethod::Improved if policy.search_events > 0 => Self::LeastContended,
            _ => Self::LeastCongested,
        }
    }
}

/// The paths of all flows if jobs choose in the order of `order` by a `rule`, and nothing runs.
pub(crate) fn select_paths_in_order(
    traffic: &IndexedTraffic<'_>,
    order: &[usize],
    rule: PathRule,
) -> Vec<LinkPath> {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (job, routes) in traffic.jobs.iter().zip(&traffic.routes) {
        assignment.add_job(job, routes);
    }
    order.iter().for_each(|job_slot| assignment.assign_remaining(*job_slot, rule));
    assignment.paths_of(0..traffic.jobs.len())
}

/// The previous path of every flow that still is one of its equal-cost paths.
pub(crate) fn usable_previous_paths(
    traffic: &IndexedTraffic<'_>,
    previous: &PreviousPlan<'_>,
) -> Vec<Option<LinkPath>> {
    let jobs = traffic.jobs.iter().enumerate();
    let paths = jobs.flat_map(|(ordinal, job)| previous.running_paths(ordinal, job));
    let flows = paths.zip(&traffic.flows);
    flows
        .map(|(path, flow)| {
            let pair = traffic.leaf_pair(flow);
            path.filter(|path| path_assignment::is_usable_path(traffic.fabric, flow, pair, path))
        })
        .collect()
}

/// `paths`, by flow, with the least congested one for every flow that has none.
pub(crate) fn complete_paths(traffic: &IndexedTraffic<'_>, paths: &[LinkPath]) -> Vec<LinkPath> {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (ordinal, (job, routes)) in traffic.jobs.iter().zip(&traffic.routes).enumerate() {
        let job_slot = assignment.add_job(job, routes);
        for (flow, path) in paths[traffic.spans[ordinal].clone()].iter().enumerate() {
            if !path.is_empty() {
                assignment.assign_path((job_slot, flow), *path);
            }
        }
    }
    for job_slot in order_by_intensity(traffic.routes.iter().map(|routes| &routes.demand)) {
        assignment.assign_remaining(job_slot, PathRule::LeastCongested);
    }
    assignment.paths_of(0..traffic.jobs.len())
}

/// Bytes per second that a flow averages while the iterations of its job take so long.
pub(crate) fn mean_rate(bytes: f64, iteration_seconds: f64) -> f64 {
    if iteration_seconds > 0.0 { bytes / iteration_seconds } else { 0.0 }
}
