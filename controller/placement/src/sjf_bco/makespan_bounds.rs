//! What the makespan of a problem is at least, and the factors of it within which SJF-BCO is: the
//! one of Theorem 5 (`MobiHoc` 2022 §6), which does not hold for single-GPU jobs, and one that
//! does (`docs/algorithms/sjf-bco.md` has the proof).
//!
//! Both factors rest on how much a placement can stretch a job, which is bounded here from the
//! sizes of servers and jobs alone.

use super::{PlacementProblem, RingJob, RingSpan};

/// Bounds for a problem without running jobs whose GPUs suffice for every job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MakespanBounds {
    /// No schedule has a smaller makespan, in slots.
    pub lower: f64,
    /// `phi`: the most that one placement of a job takes in units of another, at least 1; infinite
    /// if a job may get no iteration done in a slot.
    pub stretch: f64,
    /// `n_g`: GPUs of the largest job.
    pub most_job_gpus: u32,
    /// `N`: GPUs of the cluster.
    pub cluster_gpus: u32,
    /// `u / l`: the estimate of a job is between `l` and `u` times what it takes.
    pub estimate_error: f64,
}

impl MakespanBounds {
    /// The bounds of a problem.
    pub fn from_problem(problem: &PlacementProblem) -> Self {
        let cluster_gpus: u32 = problem.servers.iter().sum();
        let shortest: Vec<f64> =
            problem.jobs.iter().map(|job| shortest_slots(problem, job)).collect();
        let longest: Vec<f64> =
            problem.jobs.iter().map(|job| longest_slots(problem, job)).collect();
        let jobs = problem.jobs.iter().zip(&shortest);
        let gpu_slots: f64 = jobs.map(|(job, slots)| f64::from(job.gpus) * slots).sum();
        let estimates = problem.jobs.iter().map(|job| problem.communication.estimate_slots(job));
        Self {
            lower: shortest.iter().copied().fold(gpu_slots / f64::from(cluster_gpus), f64::max),
            stretch: largest_quotient(longest.iter().copied().zip(shortest)),
            most_job_gpus: problem.jobs.iter().map(|job| job.gpus).max().unwrap_or(0),
            cluster_gpus,
            estimate_error: problem.estimate_divisor
                * largest_quotient(longest.iter().copied().zip(estimates)),
        }
    }

    /// `n_g phi u / l`: what the makespan is at most in units of the least possible, as printed in
    /// Theorem 5. False for jobs of one GPU.
    pub fn printed_ratio(&self) -> f64 {
        f64::from(self.most_job_gpus) * self.stretch * self.estimate_error
    }

    /// `(2 - 1/N) phi`: what the makespan is at most in units of [`Self::lower`], for
    /// [`BoundSearch::Feasible`](super::BoundSearch::Feasible) with a horizon of at least twice as
    /// many slots, and links between servers no faster than those within.
    pub fn proven_ratio(&self) -> f64 {
        (2.0 - 1.0 / f64::from(self.cluster_gpus)) * self.stretch
    }
}

/// The largest quotient, at least 1; 0/0 is left out.
fn largest_quotient(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    pairs.map(|(value, unit)| value / unit).fold(1.0, f64::max)
}

/// The least that a job can take: alone on the fewest servers that hold it.
fn shortest_slots(problem: &PlacementProblem, job: &RingJob) -> f64 {
    let mut sizes = problem.servers.clone();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let before = sizes.iter().scan(0, |gpus, more| {
        let so_far = *gpus;
        *gpus += more;
        Some(so_far)
    });
    let servers = before.take_while(|gpus| *gpus < job.gpus).count() as u32;
    slots_under(problem, job, RingSpan { servers, contention: u32::from(servers > 1) })
}

/// The most that it can take: on as many servers as it has GPUs or as there are, and on one of them
/// with as many other rings as that has GPUs or as there are jobs with a ring (§5, before (10)).
fn longest_slots(problem: &PlacementProblem, job: &RingJob) -> f64 {
    let servers = job.gpus.min(problem.servers.len() as u32);
    let rings = problem.jobs.iter().filter(|job| job.gpus > 1).count() as u32;
    let most_gpus = problem.servers.iter().copied().max().unwrap_or(0);
    let contention = if servers > 1 { rings.min(most_gpus) } else { 0 };
    slots_under(problem, job, RingSpan { servers, contention })
}

fn slots_under(problem: &PlacementProblem, job: &RingJob, span: RingSpan) -> f64 {
    (job.iterations as f64 / problem.communication.iterations_per_slot(job, span)).ceil()
}
