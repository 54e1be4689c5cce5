//! Health of the calls to one switch: whether it serves what is asked of it.
//!
//! A switch may keep its stream open and answer bids while it fails or refuses everything else.
//! [`session`](super::session) records the results here. The decision: quarantine takes several
//! failures in a row *and* time, so that neither one slow call nor a restart counts, and one
//! verified pass ends it.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row before a switch can be quarantined.
const FAILURES: u32 = 3;

/// The failures in a row of one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallHealth {
    failures: u32,
    failing_since: Option<Instant>,
}

impl CallHealth {
    /// Records that a connection ended, or that a pass left something missing.
    pub(super) fn record_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        // The first failure in the row counts: a later one must not restart the time.
        self.failing_since.get_or_insert(now);
    }

    /// Records that the switch was seen to hold what is desired.
    pub(super) fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Since when the switch fails, if it does so often and for so long that nobody waits for it.
    pub fn quarantined_since(&self, now: Instant, after: Duration) -> Option<Instant> {
        let since = self.failing_since?;
        let is_quarantined = self.failures >= FAILURES && now.duration_since(since) >= after;
        is_quarantined.then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(5);

    #[test]
    fn quarantine_takes_failures_and_time_and_ends_with_a_success() {
        let begun = Instant::now();
        let mut health = CallHealth::default();
        let later = begun + 2 * AFTER;
        assert_eq!(health.quarantined_since(later, AFTER), None);
        (0..2).for_each(|_| health.record_failure(begun));
        assert_eq!(health.quarantined_since(later, AFTER), None, "a restart fails twice");
        health.record_failure(begun + AFTER / 2);
        assert_eq!(health.quarantined_since(begun + AFTER / 2, AFTER), None);
        assert_eq!(health.quarantined_since(later, AFTER), Some(begun));
        health.record_success();
        assert_eq!(health.quarantined_since(later, AFTER), None);
    }
}
