//! How long the stages of changes took, from the event to the last verified switch.
//!
//! The task looks when a session has something to say, and counts a generation once, when every
//! switch that is not down was seen to hold it. The decision: sums in fixed classes, as Prometheus
//! has histograms, so that memory does not grow and rates can be taken over any time.

use tokio::sync::watch;
use tokio::time::Instant;

use super::Timing;

/// Upper bounds of the classes, seconds: from a millisecond, in steps of about two, to a minute.
pub(super) const BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// Durations by class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Histogram {
    /// How many were not longer than the bound of each class, and than that of no lower one.
    pub counts: [u64; BOUNDS.len()],
    /// All of them.
    pub count: u64,
    /// Their sum, seconds.
    pub sum: f64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, seconds: f64) {
        if let Some(class) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[class] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// How many were not longer than each bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let below = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        BOUNDS.into_iter().zip(below)
    }
}

/// The stages of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// From the event to the plan.
    pub plan: Histogram,
    /// From the plan to tables.
    pub lower: Histogram,
    /// From tables to the first write; only of changes that took one.
    pub send: Histogram,
    /// From tables to the last verified switch.
    pub write: Histogram,
    /// From the event to the last verified switch.
    pub all: Histogram,
}

impl Stages {
    /// By name.
    pub fn named(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("plan", &self.plan),
            ("lower", &self.lower),
            ("send", &self.send),
            ("write", &self.write),
            ("all", &self.all),
        ]
    }

    fn add(&mut self, timing: &Timing) {
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let made = timing.made;
        self.plan.add(seconds(made.origin.received, made.planned));
        self.lower.add(seconds(made.planned, made.lowered));
        if let Some(first) = timing.first_write {
            self.send.add(seconds(made.lowered, first));
        }
        self.write.add(seconds(made.lowered, timing.verified));
        self.all.add(seconds(made.origin.received, timing.verified));
    }
}

/// Who counts.
#[derive(Debug)]
pub(super) struct Stopwatch {
    stages: watch::Sender<Stages>,
    counted: u64,
}

impl Stopwatch {
    pub(super) fn new() -> Self {
        Self {
            stages: watch::Sender::new(Stages::default()),
            counted: 0,
        }
    }

    /// What was counted, as it changes.
    pub(super) fn watch(&self) -> watch::Receiver<Stages> {
        self.stages.subscribe()
    }

    /// Whether this generation is still to be counted.
    pub(super) fn awaits(&self, generation: u64) -> bool {
        generation > self.counted
    }

    /// Counts a generation that every switch holds.
    pub(super) fn count(&mut self, timing: &Timing) {
        self.counted = timing.generation;
        self.stages.send_modify(|stages| stages.add(timing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_every_bound_counts_in_none() {
        let mut histogram = Histogram::default();
        for seconds in [0.0005, 0.001, 0.003, 100.0] {
            histogram.add(seconds);
        }
        let below: Vec<_> = histogram.cumulative().map(|(_, below)| below).collect();
        assert_eq!(below[..4], [2, 2, 3, 3]);
        assert_eq!((below[14], histogram.count), (3, 4));
        assert!((histogram.sum - 100.0045).abs() < 1e-9);
    }
}
