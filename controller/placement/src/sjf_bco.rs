//! SJF-BCO: smallest job first with balanced contention and overhead (Yu, Ji, Rajan, Liu, `MobiHoc`
//! 2022, DOI 10.1145/3492866.3549716).
//!
//! A ring over several servers is slowed by every other ring that leaves one of its servers
//! ([`CommunicationModel`]). Small jobs therefore fill gaps (**FA-FFP**, fragment-aware first fit),
//! and large jobs go to as few, least loaded servers as suffice (**LBSGF**, least busy server-GPU
//! first). The bound `kappa` between small and large is found by trying all sizes, under the
//! smallest bound `theta` on the load of a GPU that still admits all jobs.
//!
//! ```text
//! sort jobs by GPUs
//! bisect theta in 1..=horizon:
//!     for each kappa: place all jobs in order, waiting for exits     (placement_run.rs)
//!     theta is feasible if some kappa placed them all
//!     of all complete schedules keep the one with the least makespan
//! ```
//!
//! The printed search (Algorithm 1, lines 4 to 24) compares makespans of schedules that may lack
//! jobs. This module discards those and bisects on feasibility, as §5 describes the search;
//! [`BoundSearch::Literal`] is the printed one. [`MakespanBounds`] has the ratio that Theorem 5
//! prints and the one that holds; `docs/algorithms/sjf-bco.md` has the proof.

mod communication_model;
mod makespan_bounds;
mod placement_run;
mod policy;

use std::collections::BTreeSet;

pub use communication_model::{CommunicationModel, RingSpan, SlotProgress};
pub use makespan_bounds::MakespanBounds;
pub use placement_run::{PlacementRule, ring_contention};
pub use policy::SjfBcoPolicy;

/// A job: a ring of as many workers as it has GPUs. Times are in slots, `gradient` in the unit of
/// bandwidth times slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingJob {
    /// `G_j`: GPUs.
    pub gpus: u32,
    /// `F_j`: iterations.
    pub iterations: u64,
    /// `m_j`: size of the gradients.
    pub gradient: f64,
    /// `M_j`: samples of a mini-batch.
    pub batch: f64,
    /// Time of the forward pass of one sample.
    pub forward: f64,
    /// Time of the backward pass.
    pub backward: f64,
}

/// A cluster and jobs that are all there at the start.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementProblem {
    /// `O_s`: GPUs of each server.
    pub servers: Vec<u32>,
    /// The jobs to place.
    pub jobs: Vec<RingJob>,
    /// Jobs that run already, with their GPUs on each server.
    pub running: Vec<(RingJob, Vec<u32>)>,
    /// The communication model.
    pub communication: CommunicationModel,
    /// `T`: slots until which everything must be over.
    pub horizon: u64,
    /// `u`: the loads count an estimate divided by this, at least 1.
    pub estimate_divisor: f64,
    /// `lambda`: LBSGF considers servers with this many times the GPUs of the job, at least 1.
    pub server_slack: f64,
}

/// How the bound on load is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundSearch {
    /// Bisects on whether all jobs can be placed, and keeps the complete schedule with the least
    /// makespan.
    Feasible,
    /// Algorithm 1, lines 4 to 24, as printed: a shorter makespan than all before moves the search
    /// to smaller bounds, everything else to larger ones.
    ///
    /// The makespan of a schedule that lacks jobs is that of the placed ones, since line 15 leaves
    /// the loop before line 16 reads the `T` that Algorithms 2 and 3 return for a job without
    /// room. Such a schedule therefore wins, and the search may return one without any job.
    Literal,
}

/// When and where a job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPlacement {
    /// The slot in which it begins, from 0.
    pub start: u64,
    /// The slot before which it is over.
    pub end: u64,
    /// Its GPUs on each server.
    pub gpus_by_server: Vec<u32>,
}

/// A schedule of all jobs of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchSchedule {
    /// The bound on the load of a GPU under which it was made, in slots.
    pub theta: u64,
    /// Jobs of up to this many GPUs were placed by FA-FFP; none for another [`PlacementRule`].
    pub kappa: Option<u32>,
    /// The slot before which everything is over, among the placed jobs; the horizon if one of them
    /// does not end within it.
    pub makespan: u64,
    /// The jobs, as ordered in the problem; none if it was not placed, which only the literal
    /// search leaves so, or if the placed ones do not end within the horizon.
    pub jobs: Vec<Option<JobPlacement>>,
}

/// The best schedule that the search finds; none if not even the horizon as bound admits all jobs.
pub fn find_schedule(problem: &PlacementProblem, search: BoundSearch) -> Option<BatchSchedule> {
    match search {
        BoundSearch::Feasible => search_feasible(problem),
        BoundSearch::Literal => search_literal(problem),
    }
}

fn search_feasible(problem: &PlacementProblem) -> Option<BatchSchedule> {
    let mut best: Option<BatchSchedule> = None;
    let (mut low, mut high) = (1, problem.horizon);
    while low <= high {
        let theta = low.midpoint(high);
        let found = schedules_by_kappa(problem, theta)
            .filter(|found| found.jobs.iter().all(Option::is_some));
        match found.min_by_key(|found| found.makespan) {
            Some(found) => {
                // A smaller bound with the same makespan is the better balance.
                if best.as_ref().is_none_or(|best| found.makespan <= best.makespan) {
                    best = Some(found);
                }
                // `theta` is at least 1, as `low` is.
                high = theta - 1;
            }
            None => low = theta + 1,
        }
    }
    best
}

/// Algorithm 1, lines 4 to 24.
fn search_literal(problem: &PlacementProblem) -> Option<BatchSchedule> {
    let mut best: Option<BatchSchedule> = None;
    let (mut low, mut high) = (1, problem.horizon);
    while low <= high {
        let theta = low.midpoint(high);
        let least = best.as_ref().map_or(problem.horizon, |best| best.makespan);
        let found = schedules_by_kappa(problem, theta).min_by_key(|found| found.makespan)?;
        if found.makespan < least {
            best = Some(found);
            high = theta - 1;
        } else {
            low = theta + 1;
        }
    }
    best
}

/// The schedules of all bounds on size that differ: 1 and the sizes of the jobs.
fn schedules_by_kappa(
    problem: &PlacementProblem,
    theta: u64,
) -> impl Iterator<Item = BatchSchedule> {
    let sizes = problem.jobs.iter().map(|job| job.gpus);
    let kappas: BTreeSet<u32> = sizes.chain([1]).collect();
    kappas
        .into_iter()
        .map(move |kappa| place_jobs(problem, &mut PlacementRule::Kappa(kappa), theta))
}

/// The schedule under one rule and one bound; jobs that cannot be placed are missing in it, and so
/// are all behind them.
pub fn place_jobs(
    problem: &PlacementProblem,
    rule: &mut PlacementRule,
    theta: u64,
) -> BatchSchedule {
    placement_run::place_jobs(problem, rule, theta)
}

#[cfg(test)]
mod tests;
