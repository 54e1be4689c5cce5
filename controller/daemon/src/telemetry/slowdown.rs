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
    /// Seconds of an iteration on the planned paths if the job were alone.
    alone_seconds: Option<f64>,
    smoothed: Option<f64>,
    published: f64,
}

impl SlowdownEstimate {
    /// Takes over what an iteration takes alone, if the job is planned.
    pub(super) fn follow_plan(&mut self, alone_seconds: Option<f64>) {
        self.alone_seconds = alone_seconds;
    }

    /// Adds iterations of `measured` seconds. Returns whether the published slowdown has changed.
    pub(super) fn add_measurement(&mut self, measured: f64) -> bool {
        let Some(alone) = self.alone_seconds.filter(|alone| *alone > 0.0) else {
            return false;
        };
        if !measured.is_finite() {
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
        assert!(!estimate.add_measurement(9.0), "there is nothing to compare with");
        estimate.follow_plan(Some(1.0));
        assert!(!estimate.add_measurement(1.04));
        assert!(!estimate.add_measurement(0.97));
        assert_eq!(estimate.published(), 0.0);
        assert!(estimate.add_measurement(1.5));
        let first = estimate.published();
        assert!(first > 0.2 && first < 0.5, "{first}");
        for _ in 0..8 {
            estimate.add_measurement(1.5);
        }
        assert!((estimate.published() - 0.5).abs() < STEP);
        for _ in 0..8 {
            estimate.add_measurement(1.0);
        }
        assert!(estimate.published() < STEP);
        assert!(!estimate.add_measurement(f64::NAN));
        estimate.follow_plan(Some(0.0));
        assert!(!estimate.add_measurement(1.0));
    }
}
