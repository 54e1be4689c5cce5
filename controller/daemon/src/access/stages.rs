//! How long the stages of changes took, from the event to the last verified switch.
//!
//! The task looks when a session has something to say, and counts a generation once, when every
//! switch that is not down was seen to hold it. The decision: sums in fixed classes, as Prometheus
//! has histograms, so that memory does not grow and rates can be taken over any time.

use tokio::time::Instant;

use crate::southbound::ChangeTiming;

/// Upper bounds of the classes, seconds: from a millisecond, in steps of about two, to a minute.
pub(crate) const BUCKET_BOUNDS: [f64; 15] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Durations by class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyHistogram {
    /// How many were not longer than the bound of each class, and than that of no lower one.
    pub counts: [u64; BUCKET_BOUNDS.len()],
    /// All of them.
    pub count: u64,
    /// Their sum, seconds.
    pub sum: f64,
}

impl LatencyHistogram {
    /// Counts one.
    pub fn observe_seconds(&mut self, seconds: f64) {
        if let Some(bucket) = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// How many were not longer than each bound.
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let below = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        BUCKET_BOUNDS.into_iter().zip(below)
    }
}

/// The stages of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageHistograms {
    /// From the event to the plan.
    pub plan: LatencyHistogram,
    /// From the plan to tables.
    pub lower: LatencyHistogram,
    /// From tables to the first write; only of changes that took one.
    pub send: LatencyHistogram,
    /// From tables to the last verified switch.
    pub write: LatencyHistogram,
    /// From the event to the last verified switch.
    pub all: LatencyHistogram,
}

impl StageHistograms {
    /// By name.
    pub fn by_name(&self) -> [(&'static str, &LatencyHistogram); 5] {
        [
            ("plan", &self.plan),
            ("lower", &self.lower),
            ("send", &self.send),
            ("write", &self.write),
            ("all", &self.all),
        ]
    }

    pub(crate) fn observe_timing(&mut self, timing: &ChangeTiming) {
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let timestamps = timing.timestamps;
        self.plan.observe_seconds(seconds(timestamps.origin.received, timestamps.planned));
        self.lower.observe_seconds(seconds(timestamps.planned, timestamps.lowered));
        if let Some(first) = timing.first_write {
            self.send.observe_seconds(seconds(timestamps.lowered, first));
        }
        self.write.observe_seconds(seconds(timestamps.lowered, timing.verified));
        self.all.observe_seconds(seconds(timestamps.origin.received, timing.verified));
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
