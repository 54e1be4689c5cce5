//! Waits before retries that grow with the failures in a row.

use std::time::Duration;

/// Waits before retries: the first, then each twice the one before, up to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Before the first retry; above zero.
    pub first: Duration,
    /// The longest wait; not shorter than the first.
    pub longest: Duration,
}

impl RetryBackoff {
    /// The wait after `failures` failures in a row, of which there is at least one.
    pub fn wait_after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}
