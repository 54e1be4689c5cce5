//! How fast a stream may be read.
//!
//! Sans-IO: time is an argument and the wait is the result. The decision: nothing is dropped. Who
//! is too fast is read later, and the transport's own window tells it to wait.

use std::time::Duration;

use tokio::time::Instant;

/// What may come at once: that of one second.
const BURST: Duration = Duration::from_secs(1);

/// A steady rate with bursts of one second of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimiter {
    interval: Duration,
    /// When the next would be due at the steady rate.
    due: Instant,
}

impl RateLimiter {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), due: now }
    }

    /// Whether one more may be read now.
    pub(super) fn has_capacity(&self, now: Instant) -> bool {
        self.due <= now + BURST
    }

    /// Counts one more, and says from when on the next may be read.
    pub(super) fn reserve_slot(&mut self, now: Instant) -> Instant {
        self.due = self.due.max(now) + self.interval;
        self.due - BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let now = Instant::now() + Duration::from_secs(60);
        let mut limiter = RateLimiter::new(10, now);
        let waits: Vec<_> = (0..30).map(|_| limiter.reserve_slot(now)).collect();
        assert!(waits[9] <= now && waits[10] > now);
        assert_eq!(waits[29] - now, Duration::from_secs(2));
        let later = now + Duration::from_secs(30);
        assert!(limiter.reserve_slot(later) < later, "a rest is a new burst, no more");
    }
}
