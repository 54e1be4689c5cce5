//! What wrong telemetry costs: plans made from what is known badly, on jobs as they are.
//!
//! The jobs of a case stay as they are; only what the planner is given of them differs. Start times
//! need no error of their own: the planner does not know them, and every plan is evaluated from
//! several.

use std::collections::BTreeMap;

use planner::{JobId, Plan, PlanInput, Policy};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{mean_over_hashes, value_of_schedule};
use crate::routes::EqualCostRoutes;
use crate::schedule::{Schedule, ScheduledJob};
use crate::scheduler::Scheduler;

/// Share of the jobs that the planner does not know of, where some are unknown.
const UNKNOWN_SHARE: f64 = 0.25;

/// By how much a job that lies multiplies its computation.
const LIE_FACTOR: f64 = 10.0;

/// GPU utilisation of plans on one case, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustnessResult {
    /// Number of the case.
    pub number: u32,
    /// Everything is known.
    pub known: f64,
    /// Volumes and computation times are wrong.
    pub inexact: f64,
    /// Some jobs are unknown: their flows go as ECMP leads them, at the lowest level.
    pub unknown: f64,
    /// One job claims more computation than it has.
    pub lying: f64,
    /// ECMP, the mean over hashes.
    pub ecmp: f64,
}

/// Plans a case with volumes and computation times that are wrong by up to the share `error`, with
/// jobs unknown and with a job that lies.
pub fn examine_robustness(
    number: u32,
    input: &PlanInput,
    policy: &Policy,
    error: f64,
) -> RobustnessResult {
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(number));
    let mut inexact = input.clone();
    for job in &mut inexact.jobs {
        let mut wrong = || 1.0 + random.random_range(-error..=error);
        job.compute_seconds *= wrong();
        let volume = wrong();
        job.flows.iter_mut().for_each(|flow| flow.bytes *= volume);
    }
    let mut unknown = input.clone();
    unknown.jobs.retain(|_| !random.random_bool(UNKNOWN_SHARE));
    let mut lying = input.clone();
    let liar = random.random_range(0..lying.jobs.len());
    lying.jobs[liar].flop_per_iteration *= LIE_FACTOR;
    let routes = EqualCostRoutes::for_input(input);
    let value = |known: &PlanInput| {
        let (plan, _) = planner::plan(known, policy, None);
        let schedule = schedule_with_unknown(input, &routes, known, &plan);
        value_of_schedule(input, &schedule).gpu_utilization
    };
    RobustnessResult {
        number,
        known: value(input),
        inexact: value(&inexact),
        unknown: value(&unknown),
        lying: value(&lying),
        ecmp: mean_over_hashes(input, &routes).gpu_utilization,
    }
}

/// The plan for the jobs it knows of, and ECMP's paths at the lowest level for the others.
fn schedule_with_unknown(
    input: &PlanInput,
    routes: &EqualCostRoutes,
    known: &PlanInput,
    plan: &Plan,
) -> Schedule {
    let mut schedule = Scheduler::Ecmp.schedule_along_routes(routes, input, &Policy::default());
    let flow_counts: BTreeMap<&JobId, usize> =
        known.jobs.iter().map(|job| (&job.id, job.flows.len())).collect();
    let mut flows = plan.flows.iter();
    let planned: BTreeMap<&JobId, ScheduledJob> = plan
        .jobs
        .iter()
        .map(|job| {
            let paths = flows.by_ref().take(flow_counts[&job.id]).map(|flow| flow.links.to_vec());
            (&job.id, ScheduledJob::new(u32::from(job.level), paths.collect()))
        })
        .collect();
    for (job, scheduled) in input.jobs.iter().zip(&mut schedule.jobs) {
        match planned.get(&job.id) {
            Some(known) => scheduled.clone_from(known),
            None => scheduled.level = 0,
        }
    }
    schedule
}
