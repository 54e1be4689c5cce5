//! A cluster in rounds, without a network: how a policy does if speeds are what a table says.
//!
//! This is how Crius is evaluated by its own authors (simulator.py of sjtu-epcc/arena): decisions
//! every so often, jobs that run as fast as a table of measurements says, and a stall whenever a
//! job's GPUs change. What jobs do to each other on shared links is not in it.

#[cfg(test)]
mod deadline_tests;
mod progress;

use std::collections::{BTreeMap, BTreeSet};

use placement::deadline::JobDeadlines;
use placement::throughput::{GpuShape, ThroughputTable};
use placement::{
    ClusterJobs, GpuCluster, PlacementDecision, PlacementDecisionError, PlacementPolicy,
    PlacementRequest,
};

use self::progress::JobProgress;
pub use self::progress::ProgressCount;

/// What there is to replay.
#[derive(Clone, Copy, Debug)]
pub struct RoundExperiment<'a> {
    /// Hosts of the cluster.
    pub cluster: &'a GpuCluster,
    /// How fast jobs are in truth.
    pub truth: &'a ThroughputTable,
    /// The jobs, by arrival.
    pub jobs: &'a [PlacementRequest],
    /// Seconds between decisions.
    pub round_seconds: f64,
    /// When it is over, in seconds.
    pub end_seconds: f64,
    /// How iterations are counted.
    pub count: ProgressCount,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundOutcome {
    /// Seconds from arrival to end, of the jobs that ended.
    pub completion_seconds: BTreeMap<u32, f64>,
    /// Samples per second of all jobs, in each round.
    pub samples_per_second: Vec<f64>,
    /// Jobs that the policy refused, or dropped at their deadlines.
    pub refused: BTreeSet<u32>,
    /// How often a job began or got other GPUs.
    pub starts: u32,
}

impl RoundOutcome {
    /// The mean over all rounds.
    pub fn mean_samples_per_second(&self) -> f64 {
        self.samples_per_second.iter().sum::<f64>() / self.samples_per_second.len().max(1) as f64
    }

    fn record_decision(&mut self, decision: &PlacementDecision) {
        match decision {
            PlacementDecision::Start(_) => self.starts += 1,
            PlacementDecision::Refuse { job, .. } => {
                self.refused.insert(*job);
            }
            PlacementDecision::Suspend { .. } => {}
        }
    }

    /// The jobs that ended by their deadlines; one without a deadline ends in time whenever it
    /// ends.
    pub fn jobs_in_time(
        &self,
        jobs: &[PlacementRequest],
        deadlines: &JobDeadlines,
    ) -> BTreeSet<u32> {
        let in_time = jobs.iter().filter(|job| {
            let seconds = self.completion_seconds.get(&job.job);
            seconds.is_some_and(|seconds| {
                deadlines.allow_end(job.job, job.submitted_seconds + seconds)
            })
        });
        in_time.map(|job| job.job).collect()
    }
}

/// Replays the experiment under a policy.
///
/// # Errors
/// A decision makes no sense: a mistake in the policy.
pub fn run_rounds(
    experiment: &RoundExperiment<'_>,
    policy: &mut dyn PlacementPolicy,
) -> Result<RoundOutcome, PlacementDecisionError> {
    let mut cluster_jobs = ClusterJobs::new(experiment.cluster.clone());
    let mut arrivals = experiment.jobs.iter().peekable();
    let mut progress = JobProgress::new(experiment.count, experiment.round_seconds);
    let mut achieved = RoundOutcome::default();
    let rounds = (experiment.end_seconds / experiment.round_seconds).ceil() as u64;
    for round in 0..rounds {
        let now = round as f64 * experiment.round_seconds;
        while let Some(job) = arrivals.next_if(|job| job.submitted_seconds <= now) {
            cluster_jobs.submit_job(job.clone())?;
        }
        for decision in policy.make_decisions(&cluster_jobs.state_at(now)) {
            cluster_jobs.apply_decision(&decision)?;
            progress.record_decision(&decision);
            achieved.record_decision(&decision);
        }
        progress.record_waiting(cluster_jobs.state_at(now).waiting);
        run_round(experiment, &mut cluster_jobs, &mut progress, &mut achieved, now)?;
    }
    Ok(achieved)
}

/// All running jobs go on for a round; those that end do so within it, and free their GPUs after
/// it.
fn run_round(
    experiment: &RoundExperiment<'_>,
    cluster_jobs: &mut ClusterJobs,
    progress: &mut JobProgress,
    achieved: &mut RoundOutcome,
    now: f64,
) -> Result<(), PlacementDecisionError> {
    let mut samples = 0.0;
    let mut went_on = Vec::new();
    for running in cluster_jobs.state_at(now).running {
        let request = &running.request;
        let hosts = &experiment.cluster.hosts;
        let kind = running.gpus.keys().next().map(|host| hosts[host.index()].kind);
        let shape = kind.and_then(|kind| GpuShape::from_gpus(kind, &running.gpus));
        let speed = shape.and_then(|shape| experiment.truth.job_speed(request, shape));
        let batch = experiment.truth.job_batch(request);
        let rate = speed.unwrap_or(0.0) / batch;
        let ran = progress.run_job(request, rate);
        samples += ran.iterations * batch;
        let left = request.remaining_iterations - ran.iterations;
        let ended = (left <= 1e-9).then_some(now + ran.last_seconds - request.submitted_seconds);
        let left_seconds = request.remaining_seconds * left / request.remaining_iterations;
        went_on.push((request.job, left, left_seconds, ended));
    }
    for (job, left, left_seconds, ended) in went_on {
        cluster_jobs.record_progress(job, left, left_seconds)?;
        if let Some(seconds) = ended {
            cluster_jobs.finish_job(job)?;
            achieved.completion_seconds.insert(job, seconds);
        }
    }
    achieved.samples_per_second.push(samples / experiment.round_seconds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::ClusterHost;
    use placement::allocation::RestartStall;
    use placement::fcfs::FcfsPolicy;

    /// A job of 1,000 iterations on two GPUs.
    fn request(job: u32) -> PlacementRequest {
        PlacementRequest {
            job,
            gpus: 2,
            kind: Some(0),
            submitted_seconds: 0.0,
            remaining_seconds: 60.0,
            remaining_iterations: 1_000.0,
            model: Some("m/4".to_owned()),
            tenant: None,
        }
    }

    #[test]
    fn a_stall_delays_a_job_and_a_queue_the_next() {
        let cluster = GpuCluster {
            hosts: vec![ClusterHost { gpus: 2, leaf: 0, kind: 0 }],
            kinds: vec!["GPU".to_owned()],
        };
        // Two iterations a second: 500 s, and 20 s for the stall.
        let mut table = ThroughputTable::new(&cluster);
        table.insert("m/4", GpuShape { kind: 0, hosts: 1, gpus_per_host: 2 }, 8.0);
        let experiment = RoundExperiment {
            cluster: &cluster,
            truth: &table,
            jobs: &[request(1), request(2)],
            round_seconds: 300.0,
            end_seconds: 1_200.0,
            count: ProgressCount::AsRun,
        };
        let mut policy = FcfsPolicy { table: table.clone(), stall: RestartStall::PRUNED };
        let achieved = run_rounds(&experiment, &mut policy).unwrap();
        // The second starts with the round after the first has ended.
        assert_eq!(achieved.completion_seconds, BTreeMap::from([(1, 520.0), (2, 1_120.0)]));
        assert_eq!(achieved.samples_per_second.len(), 4);
        let samples = achieved.mean_samples_per_second() * 1_200.0;
        assert!((samples - 8_000.0).abs() < 1e-6, "{samples}");
    }
}
