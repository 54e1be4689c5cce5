//! A replay between two events, to go on from: everything that the rest of it depends on.
//!
//! What follows from that (the board, plans, how long iterations take) is made again, so the rest
//! comes out to the last digit as it would have.

use std::hash::{DefaultHasher, Hash, Hasher};

use planner::{Input, PlanDocument};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dispatcher::Dispatcher;
use super::{Progress, Replay, ReplayError, Setup};
use crate::placement::{Gpus, Pace, Start};

/// A replay between two events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Of what it is a replay.
    setup: u64,
    progress: Progress,
    holders: Vec<Holder>,
    /// Jobs on the network, in the order in which they came.
    network: Vec<u32>,
    /// What the placement policy remembers.
    memory: Value,
    /// The plan in force.
    plan: Option<PlanDocument>,
}

/// A job with GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Holder {
    job: u32,
    gpus: Gpus,
    group: Option<u32>,
    pace: Pace,
    ready_seconds: f64,
}

/// Why a replay cannot go on from a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Trace, fabric, policy, seed or names differ.
    #[error("it is of another replay: trace, fabric, policies and seed must be the same")]
    Other,
    /// The policy cannot read what it remembered.
    #[error("what the placement remembers cannot be read")]
    Memory(#[source] serde_json::Error),
}

impl<'a> Replay<'a> {
    /// The replay as it is now.
    pub fn checkpoint(&self) -> Checkpoint {
        let running = self.board.state(self.progress.now).running.iter();
        let holder = |running: &crate::placement::Running| Holder {
            job: running.request.job,
            gpus: running.gpus.clone(),
            group: running.group,
            pace: running.pace.clone(),
            ready_seconds: (self.active.get(&running.request.job))
                .map_or(self.progress.now, |active| active.ready_seconds),
        };
        let plan = self.dispatcher.standing().map(|standing| {
            PlanDocument::new(&self.setup.fabric, standing.plan(), &standing.report())
        });
        Checkpoint {
            setup: fingerprint(self.setup),
            progress: self.progress.clone(),
            holders: running.map(holder).collect(),
            network: self.dispatcher.jobs().map(|(number, _)| number).collect(),
            memory: self.policy.memory(),
            plan,
        }
    }

    /// The replay of `setup` that goes on from `checkpoint`.
    ///
    /// # Errors
    /// The checkpoint is of another replay, or what [`Replay::new`] says.
    pub fn resume(setup: &'a Setup, checkpoint: &Checkpoint) -> Result<Self, ReplayError> {
        let count = checkpoint.progress.records.len();
        if checkpoint.setup != fingerprint(setup) || count != setup.trace.jobs.len() {
            return Err(CheckpointError::Other.into());
        }
        let mut replay = Self::new(setup)?;
        replay.progress = checkpoint.progress.clone();
        replay
            .policy
            .recall(&checkpoint.memory)
            .map_err(CheckpointError::Memory)?;
        replay.recall_board(&checkpoint.holders)?;
        replay.recall_network(checkpoint);
        replay.settle()?;
        Ok(replay)
    }

    fn recall_board(&mut self, holders: &[Holder]) -> Result<(), ReplayError> {
        let arrived = self.progress.arrived.min(self.progress.records.len());
        for number in (0..).take(arrived) {
            let record = &self.progress.records[number as usize];
            if record.ended_seconds.is_none() && !record.is_refused {
                self.board.submit(self.request(number))?;
            }
        }
        for holder in holders {
            let start = Start {
                group: holder.group,
                pace: holder.pace.clone(),
                ..Start::new(holder.job, holder.gpus.clone())
            };
            self.board.apply(&start.into())?;
            let active = self.activate(holder.job, holder.ready_seconds)?;
            self.active.insert(holder.job, active);
        }
        Ok(())
    }

    fn recall_network(&mut self, checkpoint: &Checkpoint) {
        let active = |number: &u32| Some((*number, self.active.get(number)?));
        let (numbers, jobs) = (checkpoint.network.iter().filter_map(active))
            .map(|(number, active)| (number, active.training.job.clone()))
            .unzip();
        let fabric = self.setup.fabric.clone();
        let plan = checkpoint.plan.as_ref();
        let plan = plan.map(|document| document.recall(&fabric).0);
        let input = Input { fabric, jobs };
        self.dispatcher = Dispatcher::new(
            self.setup.scheduler,
            &self.setup.policy,
            input,
            plan.as_ref(),
        )
        .with_numbers(numbers);
    }
}

/// What tells one replay from another.
fn fingerprint(setup: &Setup) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Setup {
        fabric,
        cluster,
        trace,
        models,
        ..
    } = setup;
    let hosts = cluster
        .hosts
        .iter()
        .map(|host| (host.gpus, host.leaf, host.kind));
    hosts.collect::<Vec<_>>().hash(&mut hasher);
    (fabric.name(), fabric.links().len()).hash(&mut hasher);
    let Setup {
        placement,
        scheduler,
        hindrance,
        seed,
        ..
    } = setup;
    (placement, scheduler, hindrance, seed).hash(&mut hasher);
    setup.volume.to_bits().hash(&mut hasher);
    format!("{:?}", setup.policy).hash(&mut hasher);
    format!("{models:?}").hash(&mut hasher);
    for job in &trace.jobs {
        format!("{job:?}").hash(&mut hasher);
    }
    hasher.finish()
}
