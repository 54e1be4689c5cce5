//! How often each bound of the northbound address was reached, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::MetricsText;

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
    /// The size or the language of a document.
    Document,
    /// The length or the alphabet of an author or a reason.
    Text,
    /// A browser session ended for a new one.
    SessionEvicted,
    /// Open streams of reports.
    ReportStreams,
    /// Reports per second of a stream, which waited.
    ReportRate,
    /// Bytes of reports that wait; the report waited for room.
    ReportQueue,
    /// The size of a report.
    LargeReport,
    /// A report was answered with an error: its names, its numbers, or how many jobs there are.
    ReportRefused,
}

/// Every limit with the value of its label.
const LIMITS: [(LimitReached, &str); 20] = [
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
    (LimitReached::Document, "document"),
    (LimitReached::Text, "text"),
    (LimitReached::SessionEvicted, "session_evicted"),
    (LimitReached::ReportStreams, "report_streams"),
    (LimitReached::ReportRate, "report_rate"),
    (LimitReached::ReportQueue, "report_queue"),
    (LimitReached::LargeReport, "large_report"),
    (LimitReached::ReportRefused, "report_refused"),
];

/// Counts of all limits.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitCounters(Arc<[AtomicU64; LIMITS.len()]>);

impl LimitCounters {
    pub(super) fn count(&self, reached: LimitReached) {
        self.0[reached as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_of(&self, limit: LimitReached) -> u64 {
        self.0[limit as usize].load(Ordering::Relaxed)
    }

    pub(super) fn add_metrics(&self, text: &mut MetricsText) {
        let samples = LIMITS
            .map(|(limit, label)| (vec![("limit", label.to_owned())], self.count_of(limit) as f64));
        let help = "Connections, requests and reports that met a limit or lacked a right";
        text.add_counter("crux_northbound_limited_total", help, samples);
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
        let mut text = MetricsText::default();
        counters.add_metrics(&mut text);
        let text = text.into_text();
        assert!(text.contains("{limit=\"slow_body\"} 1\n") && text.contains("{limit=\"rate\"} 0"));
    }
}
