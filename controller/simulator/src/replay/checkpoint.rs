//! The state of a replay between two events, from which it can be resumed.
//!
//! A checkpoint has everything that the rest of the replay depends on. Derived state (placed jobs,
//! plans, iteration times) is computed again, so a resumed replay gives the same figures to the
//! last digit.

use std::hash::{DefaultHasher, Hash, Hasher};

use planner::{PlanDocument, PlanInput};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::online_scheduler::OnlineScheduler;
use super::{ReplayProgress, ReplaySetup, TraceReplay, TraceReplayError};
use placement::{GpuIndices, GpusByHost, IterationPace, StartDecision};

/// A replay between two events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayCheckpoint {
    /// Of what it is a replay.
    setup: u64,
    progress: ReplayProgress,
    holders: Vec<CheckpointJob>,
    /// Jobs on the network, in the order in which they came.
    network: Vec<u32>,
    /// State of the placement policy.
    memory: Value,
    /// The plan in force.
    plan: Option<PlanDocument>,
}

/// A job with GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CheckpointJob {
    job: u32,
    gpus: GpusByHost,
    #[serde(default, skip_serializing_if = "GpuIndices::is_empty")]
    gpu_indices: GpuIndices,
    group: Option<u32>,
    pace: IterationPace,
    ready_seconds: f64,
}

/// Why a replay cannot go on from a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Trace, fabric, policy, seed or names differ.
    #[error("it belongs to another replay: trace, fabric, policies and seed must be the same")]
    SetupMismatch,
    /// The policy cannot read what it remembered.
    #[error("cannot read the state of the placement policy")]
    PolicyState(#[source] serde_json::Error),
}

impl<'a> TraceReplay<'a> {
    /// The replay as it is now.
    pub fn save_checkpoint(&self) -> ReplayCheckpoint {
        let running = self.cluster_jobs.state_at(self.progress.now).running.iter();
        let plan = self.dispatcher.incremental_planner().map(|incremental| {
            PlanDocument::new(&self.setup.fabric, incremental.plan(), &incremental.report())
        });
        ReplayCheckpoint {
            setup: setup_fingerprint(self.setup),
            progress: self.progress.clone(),
            holders: running
                .map(|running| CheckpointJob {
                    job: running.request.job,
                    gpus: running.gpus.clone(),
                    gpu_indices: running.gpu_indices.clone(),
                    group: running.group,
                    pace: running.pace.clone(),
                    ready_seconds: (self.active.get(&running.request.job))
                        .map_or(self.progress.now, |active| active.ready_seconds),
                })
                .collect(),
            network: self.dispatcher.jobs().map(|(number, _)| number).collect(),
            memory: self.policy.save_state(),
            plan,
        }
    }

    /// The replay of `setup` that goes on from `checkpoint`.
    ///
    /// # Errors
    /// The checkpoint is of another replay, or what [`TraceReplay::new`] says.
    pub fn resume_from(
        setup: &'a ReplaySetup,
        checkpoint: &ReplayCheckpoint,
    ) -> Result<Self, TraceReplayError> {
        let count = checkpoint.progress.records.len();
        if checkpoint.setup != setup_fingerprint(setup) || count != setup.trace.jobs.len() {
            return Err(CheckpointError::SetupMismatch.into());
        }
        let mut replay = Self::new(setup)?;
        replay.progress = checkpoint.progress.clone();
        replay.policy.restore_state(&checkpoint.memory).map_err(CheckpointError::PolicyState)?;
        replay.restore_jobs(&checkpoint.holders)?;
        // After the jobs: the scheduler takes their flows from the jobs that run.
        replay.restore_network(checkpoint);
        replay.update_steady_states()?;
        Ok(replay)
    }

    fn restore_jobs(&mut self, holders: &[CheckpointJob]) -> Result<(), TraceReplayError> {
        let arrived = self.progress.arrived.min(self.progress.records.len());
        for number in (0..).take(arrived) {
            let record = &self.progress.records[number as usize];
            if record.ended_seconds.is_none() && !record.is_refused {
                self.cluster_jobs.submit_job(self.placement_request(number))?;
            }
        }
        for holder in holders {
            let start = StartDecision {
                gpu_indices: holder.gpu_indices.clone(),
                group: holder.group,
                pace: holder.pace.clone(),
                ..StartDecision::new(holder.job, holder.gpus.clone())
            };
            self.cluster_jobs.apply_decision(&start.into())?;
            let active = self.activate_job(holder.job, holder.ready_seconds)?;
            self.active.insert(holder.job, active);
        }
        Ok(())
    }

    fn restore_network(&mut self, checkpoint: &ReplayCheckpoint) {
        let network = checkpoint.network.iter();
        let (numbers, jobs) = network
            .filter_map(|number| Some((*number, self.active.get(number)?.training.job.clone())))
            .unzip();
        let fabric = self.setup.fabric.clone();
        let plan = checkpoint.plan.as_ref().map(|document| document.restore_plan(&fabric).0);
        let input = PlanInput { fabric, jobs };
        self.dispatcher =
            OnlineScheduler::new(self.setup.scheduler, &self.setup.policy, input, plan.as_ref())
                .with_job_numbers(numbers);
    }
}

/// A hash of all inputs of a replay.
fn setup_fingerprint(setup: &ReplaySetup) -> u64 {
    let mut hasher = DefaultHasher::new();
    let ReplaySetup { fabric, cluster, trace, models, .. } = setup;
    let hosts = cluster.hosts.iter().map(|host| (host.gpus, host.leaf, host.kind));
    hosts.collect::<Vec<_>>().hash(&mut hasher);
    (fabric.name(), fabric.links().len()).hash(&mut hasher);
    let ReplaySetup { placement, scheduler, interference, seed, .. } = setup;
    (placement, scheduler, interference, seed).hash(&mut hasher);
    setup.alternatives.hash(&mut hasher);
    (setup.volume.to_bits(), setup.connections).hash(&mut hasher);
    format!("{:?}", setup.fragmentation).hash(&mut hasher);
    setup.quotas.hash(&mut hasher);
    format!("{:?}", setup.policy).hash(&mut hasher);
    format!("{models:?}").hash(&mut hasher);
    for job in &trace.jobs {
        format!("{job:?}").hash(&mut hasher);
    }
    hasher.finish()
}
