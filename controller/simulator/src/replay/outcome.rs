//! The Replay document: what came of a trace under one placement and one scheduler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Finding;

use super::alternatives::AlternativeOutcome;
pub use super::hourly_usage::HourlyUsage;

/// One trace under several schedulers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayComparison {
    /// What a reader of the figures should know of the trace: whether it is synthetic, what was
    /// drawn, what was skipped.
    pub notes: Vec<String>,
    /// Factor on every byte that jobs send.
    pub volume: f64,
    /// In the order asked for.
    pub outcomes: Vec<ReplayOutcome>,
}

/// What came of one replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayOutcome {
    /// The placement policy, by name.
    pub placement: String,
    /// The communication scheduler, by name.
    pub scheduler: String,
    /// The seed of what is drawn.
    pub seed: u64,
    /// When the last job ended, in seconds from the first arrival.
    pub seconds: f64,
    /// Share of the GPU time that jobs held in which they computed.
    pub gpu_utilization: f64,
    /// GPU utilization of all GPUs of the cluster, in the hours until the last arrival.
    pub cluster_gpu_utilization: f64,
    /// Number of jobs that ended.
    pub completed: usize,
    /// Jobs that never ended: they were refused, or got nothing of the network.
    pub not_completed: usize,
    /// Mean time from submission to end of the jobs that ended, in seconds.
    pub mean_completion_seconds: f64,
    /// Mean time without GPUs of the jobs that ended, in seconds.
    pub mean_wait_seconds: f64,
    /// How much longer than alone the jobs that ended ran: mean over GPU time.
    pub mean_slowdown: f64,
    /// The largest slowdown of a job that ended.
    pub worst_slowdown: f64,
    /// How often jobs gave GPUs back before their end.
    pub suspensions: u64,
    /// How often the scheduler was asked.
    pub schedules: u64,
    /// By which part iteration times that were jumped over may be unsure: mean over the GPU time
    /// of jobs.
    pub unsure: f64,
    /// What else could have been in force, judged at every event of this replay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<AlternativeOutcome>,
    /// Usage of the cluster by hour.
    pub hours: Vec<HourlyUsage>,
    /// The jobs, in order of arrival.
    pub jobs: Vec<ReplayedJob>,
    /// What a person should know about it.
    pub findings: Vec<Finding>,
}

/// What became of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayedJob {
    /// Its name in the trace.
    pub id: String,
    /// The model that it trains.
    pub model: Option<String>,
    /// GPUs that it wanted.
    pub gpus: u32,
    /// Time of its submission, in seconds.
    pub submitted_seconds: f64,
    /// When it first had GPUs; null if never.
    pub started_seconds: Option<f64>,
    /// When it ended; null if never.
    pub ended_seconds: Option<f64>,
    /// Time during which it had GPUs.
    pub held_seconds: f64,
    /// That time over the time that its iterations take alone; null if it did not end.
    pub slowdown: Option<f64>,
}
