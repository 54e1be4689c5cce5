//! Windows of an observed job, from the bytes that its host sends and the use of its GPUs.
//!
//! [`period`] says how long an iteration is and how much it sends; here that becomes
//! iterations that began in a window. The decision: what counters do not show is left out, never
//! made up. Work is what the job's document says of an iteration or nothing, and computation
//! without GPU counters is the time in which nothing was sent.

use api::telemetry as proto;
use planner::JobDocument;

use crate::report_limits::ReportLimits;
use period::{ByteSeries, IterationPeriod};

/// An interval counts as communication from this share of the busiest interval's bytes on.
const BUSY_SHARE: f64 = 0.1;

/// Observations of one job.
#[derive(Debug)]
pub(crate) struct TrafficObserver {
    series: ByteSeries,
    /// Share of the job's bytes that this host sends.
    sent_share: f64,
    flop_per_iteration: f64,
    /// Start of the latest reported iteration.
    last_start: f64,
    /// Since the last window: seconds in which GPUs were sampled, and seconds in which they were
    /// busy.
    gpus: Option<(f64, f64)>,
}

impl TrafficObserver {
    pub(crate) fn new(limits: &ReportLimits, job: &JobDocument, own_share: f64, now: f64) -> Self {
        let intervals = (limits.memory_seconds / limits.sample_seconds).ceil();
        Self {
            series: ByteSeries::new(limits.sample_seconds, intervals as usize),
            sent_share: own_share,
            flop_per_iteration: job.flop_per_iteration.unwrap_or(0.0),
            last_start: now,
            gpus: None,
        }
    }

    pub(crate) fn record_counter(&mut self, now: f64, sent: u64) {
        self.series.record_counter(now, sent);
    }

    pub(crate) fn record_gpu_busy(&mut self, seconds: f64, share: f64) {
        let (watched, busy) = self.gpus.unwrap_or_default();
        self.gpus = Some((watched + seconds, busy + seconds * share));
    }

    pub(crate) fn period(&self) -> Option<IterationPeriod> {
        self.series.period()
    }

    /// The window of the last `seconds`; without iterations as long as none are found.
    pub(crate) fn take_window(&mut self, seconds: f64, now: f64) -> proto::JobWindow {
        let gpus = self.gpus.take();
        let Some(period) = self.period() else {
            self.last_start = now;
            return proto::JobWindow { seconds, ..proto::JobWindow::default() };
        };
        let starts = self.advance_starts(period.seconds, now - seconds, now);
        let iterations = starts.len() as f64;
        let communication_seconds = seconds * self.sending_share();
        let computed = gpus.filter(|(watched, _)| *watched > 0.0);
        let computed = computed.map(|(watched, busy)| seconds * busy / watched);
        proto::JobWindow {
            seconds,
            iteration_starts: starts,
            flop: iterations * self.flop_per_iteration,
            compute_seconds: computed.unwrap_or(seconds - communication_seconds),
            communication_seconds,
            bytes: (self.sent_share > 0.0).then(|| iterations * period.bytes / self.sent_share),
            ..proto::JobWindow::default()
        }
    }

    /// When iterations began from `from` to `to`, in seconds from there: one period after another.
    fn advance_starts(&mut self, period: f64, from: f64, to: f64) -> Vec<f64> {
        let mut starts = Vec::new();
        self.last_start = self.last_start.max(from - period);
        while self.last_start + period <= to {
            self.last_start += period;
            starts.push((self.last_start - from).max(0.0));
        }
        starts
    }

    /// Share of the intervals that count as communication.
    fn sending_share(&self) -> f64 {
        let bytes = self.series.interval_bytes();
        let most = bytes.iter().copied().fold(0.0, f64::max);
        let busy = bytes.iter().filter(|bytes| **bytes > BUSY_SHARE * most);
        busy.count() as f64 / bytes.len().max(1) as f64
    }
}
