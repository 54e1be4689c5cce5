//! Placement policies: which GPUs each job gets, on which hosts.
//!
//! A [`PlacementPolicy`] reads a [`ClusterState`] (waiting jobs, running jobs and their GPUs) and
//! returns [`PlacementDecision`]s. [`ClusterJobs`] holds that state, applies the decisions and
//! rejects invalid ones. A policy therefore has one interface, whether a trace is replayed or one
//! job is placed on a running fabric, and keeps no second record of free GPUs. All policies are
//! gang schedulers: a job gets all of its GPUs or none.
//!
//! [`queue`] has the simple reference policies. [`hived`], [`muri`], [`sjf_bco`] and [`crius`]
//! follow their papers. [`fcfs`], [`gavel`] and [`elastic_flow`] are the baselines of Crius: like
//! it, they look up the speed of models per kind of GPU ([`throughput`]) and try changes on an
//! [`allocation`]. [`deadline`] has when jobs must be over. [`ModelTable`] has what one iteration
//! of a model computes and sends.
//!
//! Pure: no I/O, no clock, no randomness but from a seed.

pub mod allocation;
mod cluster;
mod cluster_jobs;
pub mod crius;
pub mod deadline;
mod decision;
pub mod elastic_flow;
pub mod fcfs;
pub mod gavel;
mod gpu_selection;
pub mod hived;
mod models;
pub mod muri;
mod policies;
pub mod queue;
pub mod sjf_bco;
pub mod throughput;

pub use cluster::{ClusterHost, FreeGpus, GpuCluster};
pub use cluster_jobs::{ClusterJobs, PlacementDecisionError};
pub use decision::{IterationPace, PlacementDecision, PlannedIteration, StartDecision};
pub use models::{ModelParallelism, ModelTable, ModelTableError, TrainingModel};
pub use policies::{PlacementAlgorithm, PlacementContext, PlacementError, UnknownPlacement};

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use topology::HostId;

/// GPUs of one job on each of its hosts; no host has none.
pub type GpusByHost = BTreeMap<HostId, u32>;

/// The GPUs of one job, counted from 0 in each host, on the hosts whose inside is described.
pub type GpuIndices = BTreeMap<HostId, Vec<u32>>;

/// The request of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementRequest {
    /// Its number, unique in the cluster.
    pub job: u32,
    /// GPUs that it requests.
    pub gpus: u32,
    /// The kind of GPU that it requests, a position in [`GpuCluster::kinds`]; none for any kind.
    pub kind: Option<u32>,
    /// When it came, in seconds.
    pub submitted_seconds: f64,
    /// How long it has still to run on those GPUs with the network for itself, in seconds; an
    /// estimate.
    pub remaining_seconds: f64,
    /// Iterations that it has still to run, on however many GPUs: an iteration is the same work
    /// wherever it runs.
    pub remaining_iterations: f64,
    /// The model that it trains, if known.
    pub model: Option<String>,
    /// The tenant that submitted it.
    pub tenant: Option<String>,
}

/// A job that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningJob {
    /// Its request, with the time that remains now.
    pub request: PlacementRequest,
    /// The GPUs it has.
    pub gpus: GpusByHost,
    /// Which they are, where it matters.
    pub gpu_indices: GpuIndices,
    /// The group that takes turns on these GPUs, if it shares them (Muri).
    pub group: Option<u32>,
    /// What an iteration is there.
    pub pace: IterationPace,
}

/// What a policy sees.
#[derive(Clone, Copy, Debug)]
pub struct ClusterState<'a> {
    /// The time, in seconds.
    pub now_seconds: f64,
    /// Hosts of the cluster.
    pub cluster: &'a GpuCluster,
    /// Jobs without GPUs, in order of arrival.
    pub waiting: &'a [PlacementRequest],
    /// Jobs with GPUs, by number.
    pub running: &'a [RunningJob],
}

impl ClusterState<'_> {
    /// GPUs that no job has.
    pub fn free_gpus(&self) -> FreeGpus {
        FreeGpus::not_held_by(self.cluster, self.running)
    }
}

/// A way to place jobs. Deterministic: the same calls give the same decisions.
pub trait PlacementPolicy {
    /// What to do now, in order: what an earlier decision frees, a later one may use.
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision>;

    /// The time between decisions of a policy that works in rounds, in seconds; others decide when
    /// a job comes or goes.
    fn round_seconds(&self) -> Option<f64> {
        None
    }

    /// What it remembers from one decision to the next, so that an interrupted replay can go on;
    /// `null` if all that it knows is in the [`ClusterState`].
    fn save_state(&self) -> Value {
        Value::Null
    }

    /// Goes on from the `memory` of a policy of the same kind on the same cluster.
    ///
    /// # Errors
    /// It is no such memory.
    fn restore_state(&mut self, memory: &Value) -> Result<(), serde_json::Error> {
        <()>::deserialize(memory)
    }
}

#[cfg(test)]
mod tests;
