//! The Outcome document: what jobs and links did in one simulation, by name.
//!
//! Shares refer to the whole horizon, from 0 to its end, for every job alike. The time that a job
//! waits before its first iteration therefore counts against its scheduler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Finding;

/// What came of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulationOutcome {
    /// The scheduler, by name.
    pub scheduler: String,
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// Share of the jobs' GPU time in which they computed.
    pub gpu_utilization: f64,
    /// GPU utilization of all GPUs of the fabric, idle ones included.
    pub cluster_gpu_utilization: f64,
    /// Work done by all jobs, FLOP.
    pub flop: f64,
    /// Jobs in the order of the input.
    pub jobs: Vec<JobOutcome>,
    /// Links that carried something, in the order of the fabric.
    pub links: Vec<LinkOutcome>,
    /// Findings for the reader, the worst first.
    pub findings: Vec<Finding>,
}

/// What one job did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobOutcome {
    /// Name of the job.
    pub id: String,
    /// Number of its GPUs.
    pub gpus: u32,
    /// Its priority level at the end; the highest is served first. Without compression every job
    /// has its own, and there may be more than switches have.
    pub level: u32,
    /// Seconds that its first iteration was made to wait.
    pub start_shift_seconds: f64,
    /// Number of iterations that ended.
    pub iterations: u64,
    /// Their mean duration; null if none ended.
    pub mean_iteration_seconds: Option<f64>,
    /// Share of the horizon in which its GPUs computed.
    pub gpu_busy_fraction: f64,
}

/// What one directed link carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkOutcome {
    /// Name of the directed link.
    pub link: String,
    /// Bytes carried, as a share of what it could have carried in the horizon.
    pub busy_fraction: f64,
    /// What jobs of each level sent, the highest level first.
    pub levels: Vec<LevelOutcome>,
}

/// What the jobs of one level sent over a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelOutcome {
    /// The priority level; the highest is served first.
    pub level: u32,
    /// Bytes carried, as a share of what the link could have carried in the horizon.
    pub busy_fraction: f64,
    /// Share of the horizon in which it sent at any rate.
    pub in_use_fraction: f64,
}

impl SimulationOutcome {
    /// The busiest `count` links, the busiest first.
    pub fn busiest_links(&self, count: usize) -> Vec<&LinkOutcome> {
        let mut links: Vec<&LinkOutcome> = self.links.iter().collect();
        links.sort_by(|a, b| b.busy_fraction.total_cmp(&a.busy_fraction));
        links.truncate(count);
        links
    }
}
