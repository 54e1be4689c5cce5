//! SJF-BCO for jobs that come over time: the offline search over those that wait, again whenever
//! a job arrives or ends.
//!
//! The paper's jobs are all there at the start. Here the jobs that run keep their GPUs and their
//! load; those that wait are scheduled as in the paper, and what the schedule begins at once
//! begins. Progress is real-valued and a slot is a minute, since a minute has no whole number of
//! iterations.

use topology::HostId;

use super::{
    BoundSearch, CommunicationModel, PlacementProblem, RingJob, SlotProgress, find_schedule,
};
use crate::queue::refuse_oversized;
use crate::{
    ClusterState, GpusByHost, PlacementDecision, PlacementPolicy, PlacementRequest, RunningJob,
    StartDecision,
};
use crate::{ModelTable, TrainingModel};

/// Seconds of a slot.
const SLOT_SECONDS: f64 = 60.0;

/// Jobs that are searched at once, the smallest first; those behind them wait.
const AT_ONCE: usize = 32;

/// SJF-BCO for jobs that arrive over time.
#[derive(Clone, Debug)]
pub struct SjfBcoPolicy {
    models: ModelTable,
    constants: CommunicationModel,
}

impl SjfBcoPolicy {
    /// The policy for a table of models and the speed of a NIC in bytes per
    /// second.
    ///
    /// The paper gives no constants; assumed are: within a server ten times the speed of the NIC,
    /// gradients reduced at a hundred times, an overhead of 1 ms for each server of a ring, and
    /// contention felt in full and a fifth worse than fair.
    pub fn new(models: ModelTable, nic_bytes_per_second: f64) -> Self {
        let external = nic_bytes_per_second * SLOT_SECONDS;
        Self {
            models,
            constants: CommunicationModel {
                external,
                internal: 10.0 * external,
                reduction: 100.0 * external,
                contention: 1.0,
                overhead: 1e-3 / SLOT_SECONDS,
                degradation: 0.2,
                progress: SlotProgress::Fractional,
            },
        }
    }

    fn ring_job(&self, request: &PlacementRequest) -> RingJob {
        let model = request.model.as_deref().and_then(|name| self.models.by_name(name));
        // A job of an unknown model computes for a second and sends nothing.
        let seconds = model.map_or(1.0, |model: &TrainingModel| model.compute_seconds);
        RingJob {
            gpus: request.gpus,
            iterations: request.remaining_iterations.ceil().max(1.0) as u64,
            gradient: model.map_or(0.0, |model| model.gradient_bytes),
            batch: 1.0,
            forward: 0.0,
            backward: seconds / SLOT_SECONDS,
        }
    }

    fn build_problem(
        &self,
        state: &ClusterState<'_>,
        waiting: &[&PlacementRequest],
    ) -> PlacementProblem {
        let jobs: Vec<RingJob> = waiting.iter().map(|request| self.ring_job(request)).collect();
        let hosts = state.cluster.hosts.len();
        let running: Vec<_> = state
            .running
            .iter()
            .map(|running| (self.ring_job(&running.request), gpus_by_server(running, hosts)))
            .collect();
        // Upper bound: all jobs one after the other, each as slow as possible.
        let most_gpus = state.cluster.hosts.iter().map(|host| host.gpus).max().unwrap_or(1);
        let all = jobs.iter().chain(running.iter().map(|(job, _)| job));
        PlacementProblem {
            servers: state.cluster.hosts.iter().map(|host| host.gpus).collect(),
            horizon: all
                .map(|job| {
                    let iteration = self.constants.worst_iteration(job, most_gpus);
                    (job.iterations as f64 * iteration).ceil() + 1.0
                })
                .sum::<f64>() as u64,
            jobs,
            running,
            communication: self.constants,
            estimate_divisor: 1.0,
            server_slack: 1.0,
        }
    }
}

/// GPUs of a running job on each of `servers`.
fn gpus_by_server(running: &RunningJob, servers: usize) -> Vec<u32> {
    let mut gpus_by_server = vec![0; servers];
    for (host, gpus) in &running.gpus {
        gpus_by_server[host.index()] = *gpus;
    }
    gpus_by_server
}

impl PlacementPolicy for SjfBcoPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let refused = |job: &PlacementRequest| refuse_oversized(state.cluster, job.job, job.gpus);
        let mut decisions: Vec<PlacementDecision> =
            state.waiting.iter().filter_map(refused).collect();
        let mut waiting: Vec<&PlacementRequest> =
            state.waiting.iter().filter(|job| refused(job).is_none()).collect();
        waiting.sort_by_key(|request| (request.gpus, request.job));
        waiting.truncate(AT_ONCE);
        if waiting.is_empty() || state.free_gpus().total_free() < waiting[0].gpus {
            return decisions;
        }
        let Some(found) =
            find_schedule(&self.build_problem(state, &waiting), BoundSearch::Feasible)
        else {
            return decisions;
        };
        for (request, placed) in waiting.iter().zip(found.jobs) {
            let Some(placed) = placed.filter(|placed| placed.start == 0) else {
                continue;
            };
            let on = placed.gpus_by_server.iter().enumerate().filter(|(_, gpus)| **gpus > 0);
            let gpus: GpusByHost = on.map(|(host, gpus)| (HostId::from(host), *gpus)).collect();
            decisions.push(StartDecision::new(request.job, gpus).into());
        }
        decisions
    }
}
