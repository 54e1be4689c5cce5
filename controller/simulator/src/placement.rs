//! Placement: which GPUs a job gets, the floor above communication scheduling.
//!
//! A [`Policy`] looks at the [`State`] of a cluster (jobs that wait, jobs that run and where) and
//! says what to do now, as [`Decision`]s; the [`Board`] holds that state, carries decisions out and
//! refuses those that make no sense. So every policy is asked in the same way, whether a trace is
//! replayed or one job is to be placed in a running fabric, and none keeps books of its own about
//! what is free. All are gang scheduled: a job has all of its GPUs or none.
//!
//! The plain references are [`queue`]'s; [`hived`], [`muri`], [`sjf_bco`] and [`crius`] follow
//! their papers. [`fcfs`], [`gavel`] and [`elastic_flow`] are what Crius is compared with: like it,
//! they look up how fast models are on each kind of GPU ([`throughput`]) and think ahead on an
//! [`allocation`].

pub mod allocation;
mod board;
mod cluster;
pub mod crius;
mod decision;
pub mod elastic_flow;
pub mod fcfs;
pub mod gavel;
pub mod hived;
pub mod muri;
mod named;
pub mod queue;
pub mod rounds;
pub mod sjf_bco;
pub mod throughput;

pub use board::{Board, BoardError};
pub use cluster::{Cluster, Free, Host};
pub use decision::{Decision, Iteration, Pace, Start};
pub use named::{Beliefs, Placement, PlacementError, UnknownPlacement};

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use topology::HostId;

/// GPUs of one job on each of its hosts; no host has none.
pub type Gpus = BTreeMap<HostId, u32>;

/// What a job asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its number; unique on a board.
    pub job: u32,
    /// GPUs that it wants.
    pub gpus: u32,
    /// The kind of GPU that it wants, a position in [`Cluster::kinds`]; none if any will do.
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
    /// Whose it is.
    pub tenant: Option<String>,
}

/// A job that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// What it asked for; the remaining time is that of now.
    pub request: Request,
    /// The GPUs it has.
    pub gpus: Gpus,
    /// The group that takes turns on these GPUs, if it shares them (Muri).
    pub group: Option<u32>,
    /// What an iteration is there.
    pub pace: Pace,
}

/// What a policy sees.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The time, in seconds.
    pub now_seconds: f64,
    /// The hosts.
    pub cluster: &'a Cluster,
    /// Jobs without GPUs, in order of arrival.
    pub waiting: &'a [Request],
    /// Jobs with GPUs, by number.
    pub running: &'a [Running],
}

impl State<'_> {
    /// GPUs that no job has.
    pub fn free(&self) -> Free {
        Free::of(self.cluster, self.running)
    }
}

/// A way to place jobs. Deterministic: the same calls give the same decisions.
pub trait Policy {
    /// What to do now, in order: what an earlier decision frees, a later one may use.
    fn decide(&mut self, state: &State<'_>) -> Vec<Decision>;

    /// The time between decisions of a policy that works in rounds, in seconds; others decide when
    /// a job comes or goes.
    fn round_seconds(&self) -> Option<f64> {
        None
    }

    /// What it remembers from one decision to the next, so that an interrupted replay can go on;
    /// `null` if all that it knows is in the [`State`].
    fn memory(&self) -> Value {
        Value::Null
    }

    /// Goes on from the `memory` of a policy of the same kind on the same cluster.
    ///
    /// # Errors
    /// It is no such memory.
    fn recall(&mut self, memory: &Value) -> Result<(), serde_json::Error> {
        <()>::deserialize(memory)
    }
}

#[cfg(test)]
mod tests;
