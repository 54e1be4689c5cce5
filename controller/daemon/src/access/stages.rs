//! How long the stages of changes took, from the event to the last verified switch.
//!
//! A generation counts once, when every switch that is not down is verified to hold it. The
//! decision: fixed buckets as in Prometheus histograms, so that memory does not grow and rates can
//! be computed over any time.

use tokio::time::Instant;

use crate::southbound::ChangeTiming;

/// Upper bounds of the buckets, seconds: from a millisecond, in steps of about two, to a minute.
pub(crate) const BUCKET_BOUNDS: [f64; 15] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyHistogram {
    /// How many fell into each bucket: within its bound, and above the bound before it.
    pub counts: [u64; BUCKET_BOUNDS.len()],
    /// How many there were in all.
    pub count: u64,
    /// Their sum, seconds.
    pub sum: f64,
}

impl LatencyHistogram {
    /// Counts one duration, in seconds.
    pub fn observe_seconds(&mut self, seconds: f64) {
        if let Some(bucket) = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Counts the time between two instants.
    fn observe_interval(&mut self, from: Instant, to: Instant) {
        self.observe_seconds(to.saturating_duration_since(from).as_secs_f64());
    }

    /// How many were within each bound.
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let below = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        BUCKET_BOUNDS.into_iter().zip(below)
    }
}

/// Durations of the stages of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageHistograms {
    /// From the event to the plan.
    pub plan: LatencyHistogram,
    /// From the plan to tables.
    pub lower: LatencyHistogram,
    /// From tables to the first write; only of changes that took one.
    pub send: LatencyHistogram,
    /// From tables to the answer to the last write; only of changes that took one.
    pub answer: LatencyHistogram,
    /// From tables to the last verified switch.
    pub write: LatencyHistogram,
    /// From the event to the last verified switch.
    pub all: LatencyHistogram,
}

impl StageHistograms {
    /// The histograms with the names of their stages.
    pub fn by_name(&self) -> [(&'static str, &LatencyHistogram); 6] {
        [
            ("plan", &self.plan),
            ("lower", &self.lower),
            ("send", &self.send),
            ("answer", &self.answer),
            ("write", &self.write),
            ("all", &self.all),
        ]
    }

    pub(crate) fn observe_timing(&mut self, timing: &ChangeTiming) {
        let timestamps = timing.timestamps;
        self.plan.observe_interval(timestamps.origin.received, timestamps.planned);
        self.lower.observe_interval(timestamps.planned, timestamps.lowered);
        if let Some(first) = timing.first_write {
            self.send.observe_interval(timestamps.lowered, first);
            self.answer.observe_interval(timestamps.lowered, timing.written);
        }
        self.write.observe_interval(timestamps.lowered, timing.verified);
        self.all.observe_interval(timestamps.origin.received, timing.verified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_above_every_bound_count_in_no_bucket() {
        let mut histogram = LatencyHistogram::default();
        for seconds in [0.0005, 0.001, 0.003, 100.0] {
            histogram.observe_seconds(seconds);
        }
        let below: Vec<_> = histogram.cumulative_counts().map(|(_, below)| below).collect();
        assert_eq!(below[..4], [2, 2, 3, 3]);
        assert_eq!((below[14], histogram.count), (3, 4));
        assert!((histogram.sum - 100.0045).abs() < 1e-9);
    }
}
