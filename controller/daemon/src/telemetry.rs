//! Telemetry: reports of running jobs, and counters of switches.
//!
//! ```text
//! gRPC stream -> TelemetryReport -> ReportedJobRegistry -> ReportedJobs -> State
//!                               \-> HostReporters -> learning
//! ```
//!
//! ```text
//! switches -> CounterReading -> CounterAggregator -> MeasuredTraffic: links, jobs
//! ```
//!
//! [`ReportedJobRegistry`] has the reported jobs and what is known of each; `TelemetryTask` owns
//! it, and [`northbound`](crate::northbound) serves the streams. The decision: reports stop here.
//! A report changes sums of its own job and nothing else. The state receives only jobs that came,
//! went or changed, so the rate of reports has no effect on the rate of planning.

mod announced_job;
mod conversion;
pub mod counter_aggregator;
pub(crate) mod counter_reader;
mod flow_feedback;
mod host_levels;
mod host_reporters;
mod host_statuses;
mod measured_iteration;
mod name_claims;
pub mod pin_hits;
mod plausibility;
mod profile;
pub mod refused_packets;
mod refused_reports;
mod reported_jobs;
mod reporter_identity;
mod slowdown;
mod start_slots;
pub(crate) mod task;

use std::sync::Arc;

use planner::JobDocument;
use topology::Finding;

pub use self::conversion::InvalidReport;
use self::host_levels::HostLevels;
pub use self::measured_iteration::MeasuredIteration;
pub use self::plausibility::ImplausibleWindow;
pub use self::profile::ReportedProfile;
pub use self::reported_jobs::{ReportFeedback, ReportedJobRegistry};
pub use self::reporter_identity::{ReporterIdentity, ReporterScope};
use self::start_slots::SlotChange;
use crate::learning::HostQueuePairs;

/// One stream of reports, by a number that is given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReporterId(pub u64);

/// One message of a reporter.
#[derive(Clone, Debug, PartialEq)]
pub enum TelemetryReport {
    /// About a job.
    Job(JobReport),
    /// All queue pairs of a host.
    QueuePairs(HostQueuePairs),
    /// What the reporter of a host does and cannot do for it.
    HostStatus(HostStatus),
}

/// What the reporter of a host does and cannot do for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Name of the host.
    pub host: String,
    /// Jobs that it knows of and does not report.
    pub unreported_jobs: u32,
    /// Jobs that it reports at a time.
    pub max_jobs: u32,
    /// Which levels it has set in what the host sends, if it sets any.
    pub levels: Option<LevelStatus>,
}

/// Which levels the reporter of a host has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStatus {
    /// Stands for their contents.
    pub revision: u64,
    /// What it cannot set; empty if nothing.
    pub problem: String,
}

/// What a reporter is sent.
#[derive(Clone, Debug)]
pub(crate) enum ReporterReply {
    /// About a report.
    Feedback(ReportFeedback),
    /// The levels of its host.
    Levels(Arc<HostLevels>),
    /// The slot of a job of its, or none any more.
    Slot(SlotChange),
}

/// What a reporter says of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobReport {
    /// A job has begun; unknown fields are left out.
    Announcement(Box<JobDocument>),
    /// What a job did.
    Window(ReportWindow),
    /// The job of this name has ended.
    End(String),
}

/// What a job did in some seconds that have just passed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportWindow {
    /// Its name.
    pub job: String,
    /// The length of the window.
    pub seconds: f64,
    /// When iterations began, in seconds from the beginning of the window, ascending.
    pub iteration_starts: Vec<f64>,
    /// Work done by all its GPUs, FLOP.
    pub flop: f64,
    /// Time spent computing.
    pub compute_seconds: f64,
    /// Time spent communicating, whether or not it computed meanwhile.
    pub communication_seconds: f64,
    /// Bytes sent by each of its flows; empty if not known.
    pub flow_bytes: Vec<f64>,
    /// Bytes sent by all of them together, where they are not known by flow.
    pub bytes: Option<f64>,
    /// How long after its slot it began to send, in the mean.
    pub slot_offset_seconds: Option<f64>,
}

impl ReportWindow {
    /// Splits the bytes of all flows among them where they are not known by flow: in the announced
    /// proportions, equally if none were announced.
    fn split_bytes_by_flow(&mut self, job: &planner::Job) {
        let Some(bytes) = self.bytes.take().filter(|_| self.flow_bytes.is_empty()) else {
            return;
        };
        let announced: f64 = job.flows.iter().map(|flow| flow.bytes).sum();
        let shares = job.flows.iter().map(|flow| {
            if announced > 0.0 { flow.bytes / announced } else { 1.0 / job.flows.len() as f64 }
        });
        self.flow_bytes = shares.map(|share| bytes * share).collect();
    }
}

/// A finding about the job of this name.
fn job_finding(
    job: &str,
    finding: impl FnOnce(String, String) -> Finding,
    text: impl Into<String>,
) -> Finding {
    finding(format!("job {job}"), text.into())
}
