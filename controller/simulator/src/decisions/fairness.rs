//! What fairness costs (Crux §7.2): utilisation against the slowdown of the job that suffers most.
//!
//! A plan is made from what jobs suffered lately, and then they suffer otherwise. So plan and
//! judgement take turns, as plan and telemetry do in a cluster, and what counts is the mean over
//! the turns. The search is off: its worth of a job would mix with the formula that is asked about.

use planner::Policy;

use super::case::Case;
use super::optimum::Court;
use super::steps::{planned, shares_alone, without_search};

/// Turns of plan and judgement.
const TURNS: usize = 8;

/// A job that computes less counts as if it computed so much, so that its slowdown is a number.
const STILL: f64 = 1e-3;

/// What came of one weight of fairness on one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    /// `f`, 0..=1.
    pub weight: f64,
    /// GPUs that compute, as a share of all of jobs.
    pub utilization: f64,
    /// Iteration time of the job that suffers most, in units of that job alone; at least 1.
    pub worst_slowdown: f64,
}

/// What each of `weights` comes to on `case`.
pub fn fairness(case: &Case, weights: &[f64]) -> Vec<Fairness> {
    let court = Court::new(&case.input, case.seed ^ (u64::from(case.number) << 32));
    let alone = shares_alone(&case.input);
    let of = |weight: &f64| outcome(case, *weight, &court, &alone);
    weights.iter().map(of).collect()
}

fn outcome(case: &Case, weight: f64, court: &Court<'_>, alone: &[f64]) -> Fairness {
    let policy = Policy {
        fairness: weight,
        ..without_search()
    };
    let mut input = case.input.clone();
    let mut busy = vec![0.0; alone.len()];
    for _ in 0..TURNS {
        let (paths, levels) = planned(&input, &policy);
        let shares = court.shares(&paths, &levels);
        for (job, share) in shares.into_iter().enumerate() {
            busy[job] += share / TURNS as f64;
            // Half of what is recent is the last turn, as in a moving mean of telemetry.
            let slowdown = (alone[job] / share.max(STILL) - 1.0).max(0.0);
            let recent = &mut input.jobs[job].recent_slowdown;
            *recent = f64::midpoint(*recent, slowdown);
        }
    }
    let gpus: Vec<f64> = input
        .jobs
        .iter()
        .map(|j| f64::from(j.gpu_count()))
        .collect();
    let computing = busy.iter().zip(&gpus).map(|(busy, gpus)| busy * gpus);
    let slowdowns = busy.iter().zip(alone);
    let slowdowns = slowdowns.map(|(busy, alone)| alone / busy.max(STILL));
    Fairness {
        weight,
        utilization: computing.sum::<f64>() / gpus.iter().sum::<f64>(),
        worst_slowdown: slowdowns.fold(1.0, f64::max),
    }
}
