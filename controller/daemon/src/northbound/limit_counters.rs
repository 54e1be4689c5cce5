//! How often each bound of the northbound address was reached, for metrics and findings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use topology::Finding;

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
    /// The time of threads that previews of a caller may use.
    PlanningTime,
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
const LIMITS: [(LimitReached, &str); 21] = [
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
    (LimitReached::PlanningTime, "planning_time"),
    (LimitReached::Document, "document"),
    (LimitReached::Text, "text"),
    (LimitReached::SessionEvicted, "session_evicted"),
    (LimitReached::ReportStreams, "report_streams"),
    (LimitReached::ReportRate, "report_rate"),
    (LimitReached::ReportQueue, "report_queue"),
    (LimitReached::LargeReport, "large_report"),
    (LimitReached::ReportRefused, "report_refused"),
];

/// For how long a limit that was reached is a finding.
const FINDING_LASTS: Duration = Duration::from_secs(600);

/// Counts of all limits.
#[derive(Clone, Debug)]
pub(super) struct LimitCounters(Arc<LimitCounts>);

#[derive(Debug)]
struct LimitCounts {
    counts: [AtomicU64; LIMITS.len()],
    /// When each was reached last, in milliseconds since `begun`, plus 1; 0 if never.
    latest: [AtomicU64; LIMITS.len()],
    begun: Instant,
}

impl Default for LimitCounters {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self(Arc::new(LimitCounts { counts: zeros(), latest: zeros(), begun: Instant::now() }))
    }
}

impl LimitReached {
    /// Whether it bounds what callers cost; the others are rights.
    fn is_bound(self) -> bool {
        !matches!(self, Self::Unauthenticated | Self::Forbidden | Self::ForeignOrigin)
    }
}

impl LimitCounters {
    pub(super) fn count(&self, reached: LimitReached) {
        let LimitCounts { counts, latest, begun } = &*self.0;
        counts[reached as usize].fetch_add(1, Ordering::Relaxed);
        let now = begun.elapsed().as_millis() as u64;
        latest[reached as usize].store(now + 1, Ordering::Relaxed);
    }

    /// The bounds that callers met a short time ago.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let now = self.0.begun.elapsed();
        let is_recent = |limit: LimitReached| {
            let latest = self.0.latest[limit as usize].load(Ordering::Relaxed);
            let at = latest.checked_sub(1).map(Duration::from_millis);
            at.is_some_and(|at| now.saturating_sub(at) < FINDING_LASTS)
        };
        let recent = LIMITS.iter().filter(|(limit, _)| limit.is_bound() && is_recent(*limit));
        let findings = recent.map(|(_, label)| {
            let text = "callers met this limit in the last ten minutes; \
                        crux_northbound_limited_total counts how often, and crux audit lists who was \
                        let in";
            Finding::warning(format!("limit {label}"), text)
        });
        findings.collect()
    }

    pub(super) fn count_of(&self, limit: LimitReached) -> u64 {
        self.0.counts[limit as usize].load(Ordering::Relaxed)
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

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_was_met_is_a_finding_for_ten_minutes() {
        let counters = LimitCounters::default();
        counters.count(LimitReached::Forbidden);
        assert_eq!(counters.findings(), []);
        counters.count(LimitReached::PlanningTime);
        assert_eq!(counters.findings()[0].about, "limit planning_time");
        tokio::time::advance(FINDING_LASTS).await;
        assert_eq!(counters.findings(), []);
    }

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
