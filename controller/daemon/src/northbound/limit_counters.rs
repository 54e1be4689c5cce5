//! How often each bound of the northbound address was reached, for metrics.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The metric of these counts.
const METRIC: &str = "crux_northbound_limited_total";

/// What was reached, or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// A connection was closed for a new one.
    ConnectionEvicted,
    /// A connection was refused.
    ConnectionRefused,
    /// A connection sent no request, or did not read its response, in time.
    ConnectionExpired,
    /// A request had no token, or an unknown one.
    Unauthenticated,
    /// A request needs another role.
    Forbidden,
    /// A request may come from a page of somebody else.
    ForeignOrigin,
    /// Requests per second.
    RateLimited,
    /// Requests or bytes in progress of one caller.
    CallerBusy,
    /// Requests or bytes in progress of all callers.
    Overloaded,
    /// The size of a body.
    LargeBody,
    /// The time for a body.
    SlowBody,
    /// Previews that wait.
    PlanningQueue,
}

/// Every limit with the value of its label.
const LIMITS: [(LimitReached, &str); 12] = [
    (LimitReached::ConnectionEvicted, "connection_evicted"),
    (LimitReached::ConnectionRefused, "connection_refused"),
    (LimitReached::ConnectionExpired, "connection_expired"),
    (LimitReached::Unauthenticated, "unauthenticated"),
    (LimitReached::Forbidden, "forbidden"),
    (LimitReached::ForeignOrigin, "foreign_origin"),
    (LimitReached::RateLimited, "rate"),
    (LimitReached::CallerBusy, "caller_busy"),
    (LimitReached::Overloaded, "overloaded"),
    (LimitReached::LargeBody, "large_body"),
    (LimitReached::SlowBody, "slow_body"),
    (LimitReached::PlanningQueue, "planning_queue"),
];

/// Counts of all limits.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitCounters(Arc<[AtomicU64; LIMITS.len()]>);

impl LimitCounters {
    pub(super) fn count(&self, reached: LimitReached) {
        self.0[reached as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts in the text format of Prometheus.
    pub(super) fn render(&self) -> String {
        let mut text = format!(
            "# HELP {METRIC} Connections and requests that a limit or a missing right ended\n\
             # TYPE {METRIC} counter\n"
        );
        for (limit, label) in LIMITS {
            let count = self.0[limit as usize].load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{METRIC}{{limit=\"{label}\"}} {count}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_line() {
        for (index, (limit, _)) in LIMITS.iter().enumerate() {
            assert_eq!(*limit as usize, index);
        }
        let counters = LimitCounters::default();
        counters.count(LimitReached::SlowBody);
        let text = counters.render();
        assert!(text.contains("{limit=\"slow_body\"} 1\n") && text.contains("{limit=\"rate\"} 0"));
    }
}
