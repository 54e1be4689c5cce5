//! The cost of fairness (Crux §7.2): utilisation against the slowdown of the job that suffers most.
//!
//! A plan follows from the recent slowdowns of jobs and changes them. Plan and evaluation therefore
//! alternate for several rounds, as plan and telemetry do in a cluster, and the mean over the
//! rounds counts. The formula is tested alone, and with the search, in which recent slowdowns weigh
//! the GPUs of a job as they weigh its priority.

use planner::Policy;
use serde::Serialize;

use super::case::BenchmarkCase;
use super::optimum::OptimumSearch;
use super::steps::{isolated_shares, plan_candidate, policy_without_search, product_policy};

/// Turns of plan and judgement.
const ROUNDS: usize = 8;

/// A job that computes less counts as if it computed so much, so that its slowdown is a number.
const MIN_SHARE: f64 = 1e-3;

/// The planner under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FairPlanner {
    /// The product as it is.
    Crux,
    /// The formula of the paper alone.
    WithoutSearch,
}

/// What came of one weight of fairness on one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FairnessOutcome {
    /// GPUs that compute, as a share of all of jobs.
    pub utilization: f64,
    /// Iteration time of the job that suffers most, in units of that job alone; at least 1.
    pub worst_slowdown: f64,
}

/// A point of the curve: one weight of fairness on all cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FairnessPoint {
    /// The planner under test.
    pub planner: FairPlanner,
    /// `f`, 0..=1.
    pub fairness: f64,
    /// Mean of the GPUs that compute, as a share of all of jobs.
    pub utilization: f64,
    /// Mean over the cases of the iteration time of the job that suffers most there, in units of
    /// that job alone.
    pub worst_slowdown_mean: f64,
    /// The largest of them.
    pub worst_slowdown_largest: f64,
}

impl FairnessPoint {
    /// The point of `planner` at the weight `fairness`, from what came of all cases.
    pub fn new(planner: FairPlanner, fairness: f64, outcomes: &[FairnessOutcome]) -> Self {
        let count = outcomes.len().max(1) as f64;
        let mean =
            |value: fn(&FairnessOutcome) -> f64| outcomes.iter().map(value).sum::<f64>() / count;
        let slowdowns = outcomes.iter().map(|outcome| outcome.worst_slowdown);
        Self {
            planner,
            fairness,
            utilization: mean(|outcome| outcome.utilization),
            worst_slowdown_mean: mean(|outcome| outcome.worst_slowdown),
            worst_slowdown_largest: slowdowns.fold(1.0, f64::max),
        }
    }
}

/// What each of `weights` comes to on `case`.
pub fn measure_fairness(
    case: &BenchmarkCase,
    planner: FairPlanner,
    weights: &[f64],
) -> Vec<FairnessOutcome> {
    let search = OptimumSearch::new(&case.input, case.seed ^ (u64::from(case.number) << 32));
    let alone = isolated_shares(&case.input);
    weights
        .iter()
        .map(|weight| {
            let policy = Policy {
                fairness: *weight,
                ..match planner {
                    FairPlanner::Crux => product_policy(),
                    FairPlanner::WithoutSearch => policy_without_search(),
                }
            };
            alternate_rounds(case, &policy, &search, &alone)
        })
        .collect()
}

fn alternate_rounds(
    case: &BenchmarkCase,
    policy: &Policy,
    search: &OptimumSearch<'_>,
    alone: &[f64],
) -> FairnessOutcome {
    let mut input = case.input.clone();
    let mut busy = vec![0.0; alone.len()];
    for _ in 0..ROUNDS {
        let (paths, levels) = plan_candidate(&input, policy);
        let shares = search.compute_shares(&paths, &levels);
        for (job, share) in shares.into_iter().enumerate() {
            busy[job] += share / ROUNDS as f64;
            // Half of the weight is on the last turn, as in a moving mean of telemetry.
            let slowdown = (alone[job] / share.max(MIN_SHARE) - 1.0).max(0.0);
            let recent = &mut input.jobs[job].measured.over_alone;
            *recent = f64::midpoint(*recent, slowdown);
        }
    }
    let gpus: Vec<f64> = input.jobs.iter().map(|j| f64::from(j.gpu_count())).collect();
    let computing = busy.iter().zip(&gpus).map(|(busy, gpus)| busy * gpus);
    let slowdowns = busy.iter().zip(alone).map(|(busy, alone)| alone / busy.max(MIN_SHARE));
    FairnessOutcome {
        utilization: computing.sum::<f64>() / gpus.iter().sum::<f64>(),
        worst_slowdown: slowdowns.fold(1.0, f64::max),
    }
}
