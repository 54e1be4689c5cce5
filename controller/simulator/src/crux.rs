//! Crux in parts, as the paper's evaluation takes it apart (Crux §6.2): priority assignment alone
//! (`crux-pa`), paths and assignment (`crux-ps-pa`), and all with compression (`crux`).
//!
//! Nothing is decided here: each part is the planner read in a different way. Without compression a
//! job's class is its rank, one for each job. Without path selection the phases after it get ECMP's
//! paths.

use planner::{Input, Plan, PlannedJob, Policy, Routed};
use topology::{LinkId, Path};

use crate::baseline::ecmp;
use crate::schedule::{Schedule, ScheduledJob};

/// ECMP's paths; classes by rank.
pub(crate) fn assignment(input: &Input, policy: &Policy) -> Schedule {
    let paths = ecmp::paths(input);
    let mut by_id: Vec<usize> = (0..input.jobs.len()).collect();
    by_id.sort_by_key(|job| &input.jobs[*job].id);
    let routes = by_id.iter().flat_map(|job| &paths[*job]);
    let routes = routes.map(|links| Path::new(links).unwrap_or(Path::EMPTY));
    let order = Routed::new(input, routes.collect()).order(policy);
    let mut classes = vec![0; paths.len()];
    for (class, position) in (0..).zip(order.iter().rev()) {
        classes[by_id[*position]] = class;
    }
    Schedule::of_classes(&classes, paths)
}

/// The planner's paths; classes by rank.
pub(crate) fn paths_and_assignment(
    input: &Input,
    policy: &Policy,
    previous: Option<&Schedule>,
) -> Schedule {
    let previous = previous.and_then(|schedule| schedule.plan.as_ref());
    let (plan, report) = planner::plan(input, policy, previous);
    schedule(input, plan, report.findings, by_rank)
}

/// The planner's paths and levels.
pub(crate) fn full(input: &Input, policy: &Policy, previous: Option<&Schedule>) -> Schedule {
    let previous = previous.and_then(|schedule| schedule.plan.as_ref());
    let (plan, report) = planner::plan(input, policy, previous);
    schedule(input, plan, report.findings, |_, job| u32::from(job.level))
}

/// As many classes as jobs, the first in rank highest.
fn by_rank(plan: &Plan, job: &PlannedJob) -> u32 {
    let jobs = u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX);
    jobs.saturating_sub(job.rank)
}

fn schedule(
    input: &Input,
    plan: Plan,
    findings: Vec<topology::Finding>,
    class: fn(&Plan, &PlannedJob) -> u32,
) -> Schedule {
    let mut paths: Vec<Vec<Vec<LinkId>>> = vec![Vec::new(); plan.jobs.len()];
    for flow in &plan.flows {
        paths[flow.job].push(flow.links.to_vec());
    }
    let job = |job: &planner::Job| match plan.job(&job.id) {
        Some((position, planned)) => {
            ScheduledJob::new(class(&plan, planned), paths[position].clone())
        }
        None => ScheduledJob::new(0, vec![Vec::new(); job.flows.len()]),
    };
    Schedule {
        jobs: input.jobs.iter().map(job).collect(),
        plan: Some(plan),
        findings,
    }
}
