//! How much longer the iterations of a job take than alone, by its reports.
//!
//! The decision: a plan must not follow every window. The estimate is smoothed, and what is
//! published for planning moves in steps, so that noise replans nothing.

/// Weight of the latest measurement.
const WEIGHT: f64 = 0.5;

/// What is published changes by this much at least.
const STEP: f64 = 0.1;

/// The slowdown of one job: 0 as fast as alone, 1 half as fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlowdownEstimate {
    smoothed: Option<f64>,
    published: f64,
}

impl SlowdownEstimate {
    /// Adds iterations of `measured` seconds of a job that takes `alone` seconds undisturbed.
    /// Returns whether the published slowdown has changed.
    pub(super) fn add_measurement(&mut self, measured: f64, alone: f64) -> bool {
        if !(alone > 0.0 && measured.is_finite()) {
            return false;
        }
        let slowdown = (measured / alone - 1.0).max(0.0);
        let smoothed = self.smoothed.map_or(slowdown, |had| had + WEIGHT * (slowdown - had));
        self.smoothed = Some(smoothed);
        let changes = (smoothed - self.published).abs() >= STEP;
        if changes {
            self.published = smoothed;
        }
        changes
    }

    /// What planning may use.
    pub(super) fn published(&self) -> f64 {
        self.published
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_publishes_nothing_and_a_slower_job_does() {
        let mut estimate = SlowdownEstimate::default();
        assert!(!estimate.add_measurement(1.04, 1.0));
        assert!(!estimate.add_measurement(0.97, 1.0));
        assert_eq!(estimate.published(), 0.0);
        assert!(estimate.add_measurement(1.5, 1.0));
        let first = estimate.published();
        assert!(first > 0.2 && first < 0.5, "{first}");
        for _ in 0..8 {
            estimate.add_measurement(1.5, 1.0);
        }
        assert!((estimate.published() - 0.5).abs() < STEP);
        for _ in 0..8 {
            estimate.add_measurement(1.0, 1.0);
        }
        assert!(estimate.published() < STEP);
        assert!(!estimate.add_measurement(1.0, 0.0) && !estimate.add_measurement(f64::NAN, 1.0));
    }
}
