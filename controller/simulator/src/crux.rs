//! Crux in parts, as the paper's evaluation takes it apart (Crux §6.2): priority assignment alone
//! (`crux-pa`), paths and assignment (`crux-ps-pa`), and all with compression (`crux`).
//!
//! Nothing is decided here: each part is [`planner::plan`] read in a different way. Without
//! compression a job's class is its rank, one for each job. Without path selection ECMP's paths are
//! the plan in force and no gain moves a flow off them.

use planner::{Flow, Input, Plan, PlannedFlow, PlannedJob, Policy};
use topology::{LinkId, Path};

use crate::baseline::ecmp;
use crate::schedule::{Schedule, ScheduledJob};

/// ECMP's paths; classes by rank.
pub(crate) fn assignment(input: &Input, policy: &Policy) -> Schedule {
    let hashed = plan_of(input, &ecmp::paths(input));
    let policy = Policy {
        move_gain_min: f64::INFINITY,
        ..policy.clone()
    };
    let (plan, report) = planner::plan(input, &policy, Some(&hashed));
    schedule(input, plan, report.findings, by_rank)
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

/// A plan that says no more than where flows are: `paths` by job in the order of the input.
fn plan_of(input: &Input, paths: &[Vec<Vec<LinkId>>]) -> Plan {
    let mut order: Vec<usize> = (0..input.jobs.len()).collect();
    order.sort_by_key(|job| &input.jobs[*job].id);
    let job = |(number, index): (u32, &usize)| PlannedJob {
        id: input.jobs[*index].id.clone(),
        number,
        intensity: 0.0,
        bottleneck_seconds: 0.0,
        correction: 1.0,
        priority: 0.0,
        rank: number,
        level: 0,
    };
    let flows = order.iter().enumerate().flat_map(|(position, index)| {
        let flows = input.jobs[*index].flows.iter().zip(&paths[*index]);
        flows.map(move |(flow, links)| planned_flow(position, flow, links))
    });
    Plan {
        generation: 1,
        levels: 1,
        flows: flows.collect(),
        jobs: (1..).zip(&order).map(job).collect(),
    }
}

fn planned_flow(job: usize, flow: &Flow, links: &[LinkId]) -> PlannedFlow {
    PlannedFlow {
        job,
        src: flow.src,
        dst: flow.dst,
        udp_src_port: flow.udp_src_port,
        links: Path::new(links).unwrap_or(Path::EMPTY),
        pinned: true,
    }
}
