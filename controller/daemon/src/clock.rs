//! Time as people and stores count it, from the runtime's own.
//!
//! The decision: the wall clock is read once, at start. From then on it goes as the runtime's does,
//! so nobody who sets a clock can end a trial, and a test that holds time holds both.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Two clocks that were read together.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    instant: Instant,
    unix: Duration,
}

impl Clock {
    /// Reads both.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            instant: Instant::now(),
            // A machine that believes to be before 1970 counts from there.
            unix: unix.unwrap_or_default(),
        }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z now.
    pub fn unix_now(&self) -> u64 {
        let unix = self.unix + self.instant.elapsed();
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }

    /// The time of day at an instant that has passed.
    pub(crate) fn wall_time(&self, at: Instant) -> SystemTime {
        UNIX_EPOCH + self.unix + at.saturating_duration_since(self.instant)
    }

    /// When it will be so late.
    pub(crate) fn instant_at(&self, at: u64) -> Instant {
        let left = Duration::from_millis(at).saturating_sub(self.unix);
        self.instant + left
    }
}
