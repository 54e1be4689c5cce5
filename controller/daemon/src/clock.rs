//! Unix time, derived from the runtime's monotonic clock.
//!
//! The decision: the wall clock is read once, at start, and advances with the runtime's clock from
//! then on. Setting the machine's clock cannot end a trial, and a test that pauses time pauses
//! both.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tokio::time::Instant;

/// Milliseconds since 1970-01-01T00:00:00Z as a time; none beyond the years of a calendar.
pub fn timestamp_from_unix(at_ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()
}

/// The monotonic clock and the wall clock, read at the same instant.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    instant: Instant,
    unix: Duration,
}

impl Clock {
    /// Reads both clocks now.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        // A machine whose clock is before 1970 starts at 1970.
        Self::showing(unix.unwrap_or_default())
    }

    /// A clock that shows `unix` now.
    pub fn showing(unix: Duration) -> Self {
        Self { instant: Instant::now(), unix }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z now.
    pub fn unix_now(&self) -> u64 {
        let unix = self.unix + self.instant.elapsed();
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z at an instant in the past.
    pub(crate) fn unix_time(&self, at: Instant) -> u64 {
        let unix = self.unix + at.saturating_duration_since(self.instant);
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall time of an instant in the past.
    pub(crate) fn wall_time(&self, at: Instant) -> SystemTime {
        UNIX_EPOCH + self.unix + at.saturating_duration_since(self.instant)
    }

    /// The instant of a time in milliseconds of Unix time.
    pub(crate) fn instant_at(&self, at: u64) -> Instant {
        let left = Duration::from_millis(at).saturating_sub(self.unix);
        self.instant + left
    }
}
