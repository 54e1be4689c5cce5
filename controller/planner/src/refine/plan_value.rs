//! What the decisions of a plan are worth if all jobs count alike: for reports.

use topology::LinkPath;

use super::horizon::SimulatedHorizon;
use super::judge::{DecisionValue, Judge};
use super::regions::find_regions;
use crate::policy::Policy;
use crate::traffic::IndexedTraffic;

/// What a plan is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanValue {
    /// Share of the jobs' GPUs that computes, in the mean over time and starts.
    pub gpu_utilization: f64,
    /// How many times longer than alone an iteration of the worst job takes.
    pub worst_slowdown: f64,
    /// The longest that a flow waits for service while it has bytes to send, seconds, from any of
    /// the starts; followed up to the timeout of a connection.
    pub worst_wait_seconds: f64,
}

/// The value of `paths`, by flow of the plan, with `levels`, by job, if all jobs count alike.
pub(crate) fn evaluate_decisions(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    levels: &[u8],
) -> PlanValue {
    sum_over_regions(traffic, paths, levels, |horizon| horizon)
}

/// The value from other starts than those that candidates are compared by.
pub(crate) fn evaluate_from_other_starts(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    levels: &[u8],
    count: u32,
) -> PlanValue {
    sum_over_regions(traffic, paths, levels, |horizon| {
        let (first, used) = horizon.starts;
        SimulatedHorizon { starts: (first + used, count), ..horizon }
    })
}

/// The value of all regions, each simulated as `horizon` says of its own.
fn sum_over_regions(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    levels: &[u8],
    horizon: impl Fn(SimulatedHorizon) -> SimulatedHorizon,
) -> PlanValue {
    let policy = Policy::default();
    let (mut sum, mut total) = (DecisionValue::NOTHING, 0.0);
    for region in find_regions(traffic) {
        let mut judge = Judge::new(traffic, &policy, &region);
        judge.horizon = horizon(judge.horizon);
        judge.wait_limit = policy.connection.timeout_seconds();
        for group in &*judge.contention_groups(paths) {
            let members = group.members.iter();
            let levels: Vec<u8> = members.map(|member| levels[region[*member]]).collect();
            let samples = judge.horizon.samples();
            judge.simulate_ahead(group, samples.map(|sample| (&levels[..], sample)));
            // Only a job that the model rejects has no value.
            sum = sum.combine(judge.mean_value(group, &levels).unwrap_or_default());
        }
        total += judge.job_worth().iter().sum::<f64>();
    }
    PlanValue {
        gpu_utilization: if total > 0.0 { sum.value / total } else { 0.0 },
        worst_slowdown: sum.worst_slowdown,
        worst_wait_seconds: sum.worst_wait,
    }
}
