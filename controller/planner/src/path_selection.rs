//! Path selection (Crux §4.1): jobs in descending intensity; each flow takes, of its equal-cost
//! paths, the least congested at that moment. Then the local search (`local_search`).
//!
//! Congestion is the share of time that a link is busy. Flows that already have a usable path keep
//! it before anything is chosen, and leave it only in the local search, for the gain that policy
//! asks. The search ends where no move is worth its price, and the moves it examines do not depend
//! on how the paths came to be; so planning again from a plan's own result moves nothing.

mod local_search;
mod path_assignment;

use topology::LinkPath;

pub(crate) use self::path_assignment::PathAssignment;
use crate::decision::PlanDepth;
use crate::intensity::NetworkDemand;
use crate::policy::{PathMethod, Policy};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// Flows with several paths that a quick plan improves at most: more take too long.
const MAX_QUICK_CHOICES: usize = 10_000;

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
    depth: PlanDepth,
) -> PathAssignment {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (ordinal, (job, routes)) in traffic.jobs.iter().zip(&traffic.routes).enumerate() {
        let job_slot = assignment.add_job(job, routes);
        for (flow, had) in previous.job_paths(ordinal, job).enumerate() {
            assignment.keep_path(traffic.fabric, (job_slot, flow), had);
        }
    }
    let order = order_by_intensity(traffic.routes.iter().map(|routes| &routes.demand));
    assign_and_improve(&mut assignment, &order, policy, depth);
    assignment
}

/// The previous path of every flow that still is one of its equal-cost paths.
pub(crate) fn usable_previous_paths(
    traffic: &IndexedTraffic<'_>,
    previous: &PreviousPlan<'_>,
) -> Vec<Option<LinkPath>> {
    let jobs = traffic.jobs.iter().enumerate();
    let paths = jobs.flat_map(|(ordinal, job)| previous.job_paths(ordinal, job));
    let flows = paths.zip(&traffic.flows);
    flows
        .map(|(path, flow)| {
            let pair = traffic.leaf_pair(flow);
            path.filter(|path| path_assignment::is_usable_path(traffic.fabric, flow, pair, path))
        })
        .collect()
}

/// The least congested path of each flow when its turn comes, by names of the jobs.
pub(crate) fn select_paths_by_name(traffic: &IndexedTraffic<'_>) -> Vec<LinkPath> {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (job, routes) in traffic.jobs.iter().zip(&traffic.routes) {
        let job_slot = assignment.add_job(job, routes);
        assignment.assign_remaining(job_slot);
    }
    assignment.paths_of(0..traffic.jobs.len())
}

/// `paths`, by flow, after the local search; all flows may move freely.
pub(crate) fn improve_given_paths(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    policy: &Policy,
) -> Vec<LinkPath> {
    let mut assignment = assign_given_paths(traffic, paths);
    let order = order_by_intensity(traffic.routes.iter().map(|routes| &routes.demand));
    assign_and_improve(&mut assignment, &order, policy, PlanDepth::Full);
    assignment.paths_of(0..traffic.jobs.len())
}

/// `paths`, by flow, with the least congested one for every flow that has none.
pub(crate) fn complete_paths(traffic: &IndexedTraffic<'_>, paths: &[LinkPath]) -> Vec<LinkPath> {
    let mut assignment = assign_given_paths(traffic, paths);
    for job_slot in order_by_intensity(traffic.routes.iter().map(|routes| &routes.demand)) {
        assignment.assign_remaining(job_slot);
    }
    assignment.paths_of(0..traffic.jobs.len())
}

/// All flows on `paths`, by flow; the slot of a job is its ordinal.
fn assign_given_paths(traffic: &IndexedTraffic<'_>, paths: &[LinkPath]) -> PathAssignment {
    let mut assignment = PathAssignment::new(traffic.fabric, &traffic.tables);
    for (ordinal, (job, routes)) in traffic.jobs.iter().zip(&traffic.routes).enumerate() {
        let job_slot = assignment.add_job(job, routes);
        for (flow, path) in paths[traffic.spans[ordinal].clone()].iter().enumerate() {
            if !path.is_empty() {
                assignment.assign_path((job_slot, flow), *path);
            }
        }
    }
    assignment
}

/// Assigns a path to every flow without one, if there is any, then improves the paths. `order` is
/// the slots of all jobs in the order of choice. A quick plan improves only the paths of jobs that
/// do not run yet, unless these are too many.
pub(crate) fn assign_and_improve(
    assignment: &mut PathAssignment,
    order: &[usize],
    policy: &Policy,
    depth: PlanDepth,
) {
    for job_slot in order {
        assignment.assign_remaining(*job_slot);
    }
    let improved: Vec<usize> = match (policy.paths, depth) {
        (PathMethod::Greedy, _) => Vec::new(),
        (PathMethod::Improved, PlanDepth::Full) => order.to_vec(),
        (PathMethod::Improved, PlanDepth::Quick) => {
            let new = order.iter().copied().filter(|job_slot| !assignment.is_running(*job_slot));
            let new: Vec<usize> = new.collect();
            let choices: usize =
                new.iter().map(|job_slot| assignment.job_at(*job_slot).choice_count()).sum();
            if choices <= MAX_QUICK_CHOICES { new } else { Vec::new() }
        }
    };
    if !improved.is_empty() {
        local_search::improve_paths(assignment, &improved, policy.move_gain_min);
    }
}

/// Bytes per second that a flow averages while its job runs undisturbed.
pub(crate) fn mean_rate(bytes: f64, demand: &NetworkDemand) -> f64 {
    let seconds = demand.iteration_seconds;
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}
