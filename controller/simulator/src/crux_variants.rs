//! Crux in parts, as in the evaluation of the paper (Crux §6.2): priority assignment alone
//! (`crux-pa`), paths and assignment (`crux-ps-pa`), and all with compression (`crux`).
//!
//! Every variant only calls the planner. Without compression the level of a job is its rank, one
//! level per job. Without path selection the later phases get ECMP's paths.

use planner::{Job, Plan, PlanInput, PlannedJob, Policy, RoutedInput, StartShift};
use topology::{LinkId, LinkPath};

use crate::baselines::ecmp;
use crate::routes::EqualCostRoutes;
use crate::schedule::{Schedule, ScheduledJob};

/// ECMP's paths; levels by rank.
pub(crate) fn schedule_priority_only(
    input: &PlanInput,
    policy: &Policy,
    routes: &EqualCostRoutes,
) -> Schedule {
    let paths = ecmp::hash_paths(input, routes);
    let mut by_id: Vec<usize> = (0..input.jobs.len()).collect();
    by_id.sort_by_key(|job| &input.jobs[*job].id);
    let chosen = by_id
        .iter()
        .flat_map(|job| &paths[*job])
        .map(|links| LinkPath::new(links).unwrap_or(LinkPath::EMPTY));
    let order = RoutedInput::new(input, chosen.collect()).job_order(policy);
    let mut levels = vec![0; paths.len()];
    for (level, position) in (0..).zip(order.iter().rev()) {
        levels[by_id[*position]] = level;
    }
    Schedule::from_levels(&levels, paths)
}

/// The planner's paths; levels by rank.
pub(crate) fn schedule_uncompressed(
    input: &PlanInput,
    policy: &Policy,
    previous: Option<&Schedule>,
) -> Schedule {
    plan_schedule(input, policy, previous, schedule_from_ranks)
}

/// The planner's paths and levels.
pub(crate) fn schedule_full(
    input: &PlanInput,
    policy: &Policy,
    previous: Option<&Schedule>,
) -> Schedule {
    plan_schedule(input, policy, previous, schedule_from_levels)
}

/// The schedule of `plan`, but with as many levels as jobs, the first in rank highest.
pub(crate) fn schedule_from_ranks(input: &PlanInput, plan: &Plan) -> Schedule {
    let jobs = u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX);
    build_schedule(input, plan, |job| jobs.saturating_sub(job.rank))
}

/// The schedule of `plan`.
pub(crate) fn schedule_from_levels(input: &PlanInput, plan: &Plan) -> Schedule {
    build_schedule(input, plan, |job| u32::from(job.level))
}

fn plan_schedule(
    input: &PlanInput,
    policy: &Policy,
    previous: Option<&Schedule>,
    read: fn(&PlanInput, &Plan) -> Schedule,
) -> Schedule {
    let previous = previous.and_then(|schedule| schedule.plan.as_ref());
    let (plan, report) = planner::plan(&all_waiting(input), policy, previous);
    let read = read(input, &plan);
    Schedule { findings: report.findings, plan: Some(plan), ..read }
}

/// The input with jobs that wait when they are asked to, as those of CASSINI do.
pub(crate) fn all_waiting(input: &PlanInput) -> PlanInput {
    let jobs = input.jobs.iter().map(|job| Job { can_wait: true, ..job.clone() });
    PlanInput { fabric: input.fabric.clone(), jobs: jobs.collect() }
}

fn build_schedule(input: &PlanInput, plan: &Plan, level: impl Fn(&PlannedJob) -> u32) -> Schedule {
    let mut paths: Vec<Vec<Vec<LinkId>>> = vec![Vec::new(); plan.jobs.len()];
    for flow in &plan.flows {
        paths[flow.job].push(flow.links.to_vec());
    }
    Schedule {
        jobs: input
            .jobs
            .iter()
            .map(|job| match plan.job(&job.id) {
                Some((position, planned)) => ScheduledJob {
                    start_shift_seconds: planned.start_shift.map_or(0.0, |shift| shift.seconds),
                    grid: planned.start_shift.map(StartShift::to_grid),
                    ..ScheduledJob::new(level(planned), std::mem::take(&mut paths[position]))
                },
                None => ScheduledJob::new(0, vec![Vec::new(); job.flows.len()]),
            })
            .collect(),
        ..Schedule::default()
    }
}
