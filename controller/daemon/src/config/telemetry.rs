//! Bounds and timing of job reports.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count, positive_duration, positive_rate};

/// The most bytes of reports that may be allowed to wait: what a semaphore counts.
const QUEUE_BYTES_MAX: usize = 1 << 29;

/// Bounds and timing of job reports.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Silence after which a job counts as ended.
    pub grace: Duration,
    /// Iterations after which a job has been profiled.
    pub profile_iterations: u64,
    /// A job is profiled for no longer than this.
    pub profile_longest: Duration,
    /// Jobs that are profiled at once.
    pub profiled_at_once: NonZeroUsize,
    /// Share by which a job must differ from its plan to be planned again.
    pub change_min: f64,
    /// Reported jobs in all.
    pub jobs: NonZeroUsize,
    /// Jobs of one stream.
    pub jobs_per_reporter: NonZeroUsize,
    /// Reports per second that are read from one stream.
    pub reports_per_second: NonZeroU32,
    /// Open streams.
    pub streams: NonZeroUsize,
    /// Open streams from one address.
    pub streams_per_address: NonZeroUsize,
    /// Reports that may wait, of all streams together.
    pub queue: NonZeroUsize,
    /// Bytes of the reports that wait, of all streams together.
    pub queue_bytes: NonZeroUsize,
    /// Bytes of a report.
    pub report_max: NonZeroUsize,
    /// Time between two checks for silent jobs.
    pub tick: Duration,
}

/// Bounds and timing of job reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTelemetry {
    /// Silence after which a job counts as ended.
    #[schemars(range(min = 1))]
    pub grace_ms: u64,
    /// Iterations after which a job is ranked.
    #[schemars(range(min = 1))]
    pub profile_iterations: u64,
    /// Longest time that a job of unknown intensity has the highest level.
    #[schemars(range(min = 1))]
    pub profile_longest_ms: u64,
    /// Jobs that are profiled at once. Others wait for their turn.
    #[schemars(range(min = 1))]
    pub profiled_at_once: usize,
    /// Difference from the planned job, as a share, from which the job is planned again.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub change_min: f64,
    /// Jobs in all.
    #[schemars(range(min = 1))]
    pub jobs: usize,
    /// Jobs of one stream.
    #[schemars(range(min = 1))]
    pub jobs_per_reporter: usize,
    /// Reports per second of one stream.
    #[schemars(range(min = 1))]
    pub reports_per_second: u32,
    /// Open streams.
    #[schemars(range(min = 1))]
    pub streams: usize,
    /// Open streams of one address.
    #[schemars(range(min = 1))]
    pub streams_per_address: usize,
    /// Reports that wait, of all streams together.
    #[schemars(range(min = 1))]
    pub queue: usize,
    /// Bytes of reports that wait, of all streams together; one stream has at most one report there
    /// that is larger than a sixteenth of it.
    #[schemars(range(min = 1, max = 536870912))]
    pub queue_bytes: usize,
    /// Largest report. A stream that sends a larger one is ended.
    #[schemars(range(min = 1))]
    pub report_max: usize,
    /// Time between two checks of deadlines.
    #[schemars(range(min = 1))]
    pub tick_ms: u64,
}

impl Default for RawTelemetry {
    fn default() -> Self {
        Self {
            grace_ms: 10_000,
            profile_iterations: 5,
            profile_longest_ms: 60_000,
            profiled_at_once: 4,
            change_min: 0.1,
            jobs: 10_000,
            jobs_per_reporter: 64,
            reports_per_second: 100,
            streams: 8_192,
            streams_per_address: 64,
            queue: 1_024,
            queue_bytes: 16 << 20,
            report_max: 1 << 20,
            tick_ms: 100,
        }
    }
}

impl TryFrom<&RawTelemetry> for TelemetryConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawTelemetry) -> Result<Self, ConfigError> {
        let share = (0.0..=1.0).contains(&raw.change_min);
        check_field("telemetry.change_min", &raw.change_min, "0 to 1", share)?;
        let (field, fits) = ("telemetry.queue_bytes", raw.queue_bytes <= QUEUE_BYTES_MAX);
        check_field(field, &raw.queue_bytes, "at most 536870912", fits)?;
        let iterations = raw.profile_iterations;
        let field = "telemetry.profile_iterations";
        check_field(field, &iterations, "above 0", iterations > 0)?;
        Ok(Self {
            grace: positive_duration("telemetry.grace_ms", raw.grace_ms)?,
            profile_iterations: iterations,
            profile_longest: positive_duration(
                "telemetry.profile_longest_ms",
                raw.profile_longest_ms,
            )?,
            profiled_at_once: positive_count("telemetry.profiled_at_once", raw.profiled_at_once)?,
            change_min: raw.change_min,
            jobs: positive_count("telemetry.jobs", raw.jobs)?,
            jobs_per_reporter: positive_count(
                "telemetry.jobs_per_reporter",
                raw.jobs_per_reporter,
            )?,
            reports_per_second: positive_rate(
                "telemetry.reports_per_second",
                raw.reports_per_second,
            )?,
            streams: positive_count("telemetry.streams", raw.streams)?,
            streams_per_address: positive_count(
                "telemetry.streams_per_address",
                raw.streams_per_address,
            )?,
            queue: positive_count("telemetry.queue", raw.queue)?,
            queue_bytes: positive_count("telemetry.queue_bytes", raw.queue_bytes)?,
            report_max: positive_count("telemetry.report_max", raw.report_max)?,
            tick: positive_duration("telemetry.tick_ms", raw.tick_ms)?,
        })
    }
}
