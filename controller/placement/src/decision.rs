//! The decisions of a policy: a job starts, is suspended, or is refused.

use planner::CollectiveDocument;
use serde::{Deserialize, Serialize};

use super::{GpuIndices, GpusByHost};

/// What to do with a job now.
#[derive(Clone, Debug, PartialEq)]
pub enum PlacementDecision {
    /// A waiting job begins, or goes on.
    Start(StartDecision),
    /// A running job gives its GPUs back and waits; what it did is kept.
    Suspend {
        /// Number of the job.
        job: u32,
    },
    /// A waiting job leaves: the cluster can never satisfy its request.
    Refuse {
        /// Number of the job.
        job: u32,
        /// Reason, for people to read.
        reason: String,
    },
}

/// Where a job begins, and how it goes on there.
#[derive(Clone, Debug, PartialEq)]
pub struct StartDecision {
    /// Number of the job.
    pub job: u32,
    /// Its GPUs: as many as requested, unless the policy also decides the number (Crius).
    pub gpus: GpusByHost,
    /// Which they are on hosts whose inside is described; if empty, they are selected.
    pub gpu_indices: GpuIndices,
    /// The group with which it shares them, if it does not have them alone (Muri).
    pub group: Option<u32>,
    /// What an iteration is there.
    pub pace: IterationPace,
    /// Seconds until its first iteration there, for what it takes to move.
    pub stall_seconds: f64,
}

impl StartDecision {
    /// A job that has its GPUs alone, iterates as its model says, and begins at once.
    pub fn new(job: u32, gpus: GpusByHost) -> Self {
        Self {
            job,
            gpus,
            gpu_indices: GpuIndices::new(),
            group: None,
            pace: IterationPace::Model,
            stall_seconds: 0.0,
        }
    }
}

impl From<StartDecision> for PlacementDecision {
    fn from(start: StartDecision) -> Self {
        Self::Start(start)
    }
}

/// What an iteration of a job is on the GPUs that it is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IterationPace {
    /// What its model says. On other GPUs than it asked for the global batch stays, so that with
    /// half of them it computes twice as long.
    #[default]
    Model,
    /// That, but so many times as long as alone, since others take turns on its GPUs (Muri).
    Shared(f64),
    /// Speed by the policy's own plan of the job (Crius).
    Planned(PlannedIteration),
}

/// One iteration as a policy plans it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedIteration {
    /// Seconds of computation.
    pub compute_seconds: f64,
    /// Fraction of the computation after which communication may begin.
    pub overlap_from: f64,
    /// What its hosts exchange.
    pub collective: CollectiveDocument,
}

impl IterationPace {
    /// Whether an iteration can go so.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::Model => true,
            Self::Shared(factor) => factor.is_finite() && *factor >= 1.0,
            Self::Planned(iteration) => {
                iteration.compute_seconds.is_finite()
                    && iteration.compute_seconds > 0.0
                    && (0.0..=1.0).contains(&iteration.overlap_from)
            }
        }
    }
}
