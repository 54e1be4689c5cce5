//! Bounds and timing of job reports.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::section::config_section;
use super::{ConfigError, check_field};

/// The most bytes of reports that may be allowed to wait: what a semaphore counts.
const QUEUE_BYTES_MAX: usize = 1 << 29;

config_section! {
    /// Bounds and timing of job reports.
    RawTelemetry => TelemetryConfig in "telemetry", check check_telemetry;

    /// Silence after which a job counts as ended whose reporter is gone.
    #[schemars(range(min = 1))]
    grace_ms: u64 = 10_000 => grace: Duration,
    /// Silence after which a job counts as ended whose reporter is still connected: the longest
    /// pause of a job, as for a checkpoint.
    #[schemars(range(min = 1))]
    pause_ms: u64 = 600_000 => pause: Duration,
    /// Iterations after which a job is ranked.
    #[schemars(range(min = 1))]
    profile_iterations: u64 = 5 => profile_iterations: u64,
    /// Longest time that a job of unknown intensity has the highest level.
    #[schemars(range(min = 1))]
    profile_longest_ms: u64 = 60_000 => profile_longest: Duration,
    /// Jobs that are profiled at once. Others wait for their turn.
    #[schemars(range(min = 1))]
    profiled_at_once: usize = 4 => profiled_at_once: NonZeroUsize,
    /// Difference from the planned job, as a share, from which the job is planned again.
    #[schemars(range(min = 0.0, max = 1.0))]
    change_min: f64 = 0.1 => change_min: f64,
    /// Jobs in all.
    #[schemars(range(min = 1))]
    jobs: usize = 10_000 => jobs: NonZeroUsize,
    /// Jobs of one stream.
    #[schemars(range(min = 1))]
    jobs_per_reporter: usize = 64 => jobs_per_reporter: NonZeroUsize,
    /// Reports per second of one stream.
    #[schemars(range(min = 1))]
    reports_per_second: u32 = 100 => reports_per_second: NonZeroU32,
    /// Open streams.
    #[schemars(range(min = 1))]
    streams: usize = 8_192 => streams: NonZeroUsize,
    /// Open streams of one address.
    #[schemars(range(min = 1))]
    streams_per_address: usize = 64 => streams_per_address: NonZeroUsize,
    /// Reports that wait, of all streams together.
    #[schemars(range(min = 1))]
    queue: usize = 1_024 => queue: NonZeroUsize,
    /// Bytes of reports that wait, of all streams together; one stream has at most one report there
    /// that is larger than a sixteenth of it.
    #[schemars(range(min = 1, max = 536870912))]
    queue_bytes: usize = 16 << 20 => queue_bytes: NonZeroUsize,
    /// Largest report. A stream that sends a larger one is ended.
    #[schemars(range(min = 1))]
    report_max: usize = 1 << 20 => report_max: NonZeroUsize,
    /// Time between two checks of deadlines.
    #[schemars(range(min = 1))]
    tick_ms: u64 = 100 => tick: Duration,
}

fn check_telemetry(raw: &RawTelemetry) -> Result<(), ConfigError> {
    let share = (0.0..=1.0).contains(&raw.change_min);
    check_field("telemetry.change_min", &raw.change_min, "0 to 1", share)?;
    let (field, fits) = ("telemetry.queue_bytes", raw.queue_bytes <= QUEUE_BYTES_MAX);
    check_field(field, &raw.queue_bytes, "at most 536870912", fits)?;
    let iterations = raw.profile_iterations;
    check_field("telemetry.profile_iterations", &iterations, "above 0", iterations > 0)
}
