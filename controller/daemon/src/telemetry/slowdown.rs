//! How much longer the iterations of a job take than expected, by its reports: than alone, and than
//! the forecast of the plan that they were measured under.
//!
//! The decision: a plan must not follow every window. A job that is slower once may have saved a
//! checkpoint, so it counts as slow as it was twice in turn; the first measurement counts alone.
//! Each estimate is smoothed, and what is published for planning moves in steps, so that noise
//! replans nothing. The loss against alone belongs to the plans that caused it, and half of it is
//! that of the latest measurement. The loss against the forecast belongs to the model, whichever
//! plan is in force: it is believed soon and forgotten slowly, or a plan that the forecast is too
//! good for would come back as soon as another one runs as forecast.

use planner::MeasuredSlowdown;

use super::measured_iteration::ExpectedIteration;

/// How an estimate follows what is measured.
struct SmoothingRule {
    /// Weight of the latest measurement if it is above the estimate, and if it is below.
    rising: f64,
    falling: f64,
    /// What is published changes by this much at least.
    step: f64,
}

/// A job this much slower stands still.
const MAX_SLOWDOWN: f64 = 1_000.0;

const OVER_ALONE: SmoothingRule = SmoothingRule { rising: 0.5, falling: 0.5, step: 0.1 };

const OVER_FORECAST: SmoothingRule = SmoothingRule { rising: 0.5, falling: 0.1, step: 0.02 };

/// The slowdown of one job: 0 as fast as expected, 1 half as fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlowdownEstimate {
    over_alone: SmoothedSlowdown,
    over_forecast: SmoothedSlowdown,
}

/// One of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SmoothedSlowdown {
    /// The latest measurement, as it was.
    latest: Option<f64>,
    smoothed: Option<f64>,
    published: f64,
}

impl SlowdownEstimate {
    /// Adds iterations of `measured` seconds, if there were any. Returns whether what is published
    /// has changed.
    pub(super) fn add_measurement(
        &mut self,
        measured: Option<f64>,
        expected: ExpectedIteration,
    ) -> bool {
        let alone = self.over_alone.add_measurement(measured, expected.alone, &OVER_ALONE);
        let forecast =
            self.over_forecast.add_measurement(measured, expected.forecast, &OVER_FORECAST);
        alone || forecast
    }

    /// What planning may use.
    pub(super) fn published(&self) -> MeasuredSlowdown {
        MeasuredSlowdown {
            over_alone: self.over_alone.published,
            over_forecast: self.over_forecast.published,
        }
    }
}

impl SmoothedSlowdown {
    fn add_measurement(
        &mut self,
        measured: Option<f64>,
        expected: Option<f64>,
        rule: &SmoothingRule,
    ) -> bool {
        let known = measured.filter(|seconds| seconds.is_finite());
        let Some((measured, expected)) = known.zip(expected.filter(|seconds| *seconds > 0.0))
        else {
            return false;
        };
        let now = (measured / expected - 1.0).clamp(0.0, MAX_SLOWDOWN);
        let slowdown = self.latest.replace(now).map_or(now, |before| now.min(before));
        let smoothed = self.smoothed.map_or(slowdown, |had| {
            let weight = if slowdown > had { rule.rising } else { rule.falling };
            had + weight * (slowdown - had)
        });
        self.smoothed = Some(smoothed);
        let changes = (smoothed - self.published).abs() >= rule.step;
        if changes {
            self.published = smoothed;
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: ExpectedIteration = ExpectedIteration { alone: None, forecast: None };

    fn expect(alone: f64, forecast: f64) -> ExpectedIteration {
        ExpectedIteration { alone: Some(alone), forecast: Some(forecast) }
    }

    #[test]
    fn noise_publishes_nothing_and_a_slower_job_does() {
        let mut estimate = SlowdownEstimate::default();
        assert!(!estimate.add_measurement(Some(9.0), UNKNOWN), "there is nothing to compare with");
        let alone = ExpectedIteration { alone: Some(1.0), ..UNKNOWN };
        assert!(!estimate.add_measurement(Some(1.04), alone));
        assert!(!estimate.add_measurement(Some(0.97), alone));
        assert_eq!(estimate.published(), MeasuredSlowdown::default());
        assert!(!estimate.add_measurement(Some(1.5), alone), "once may be a pause");
        assert!(estimate.add_measurement(Some(1.5), alone));
        let first = estimate.published().over_alone;
        assert!(first > 0.2 && first < 0.5, "{first}");
        for _ in 0..8 {
            estimate.add_measurement(Some(1.5), alone);
        }
        assert!((estimate.published().over_alone - 0.5).abs() < OVER_ALONE.step);
        for _ in 0..8 {
            estimate.add_measurement(Some(1.0), alone);
        }
        assert!(estimate.published().over_alone < OVER_ALONE.step);
        assert_eq!(estimate.published().over_forecast, 0.0, "there was no forecast");
        assert!(!estimate.add_measurement(Some(f64::NAN), alone));
        assert!(!estimate.add_measurement(Some(1.0), expect(0.0, 0.0)));
    }

    /// What a job lost under a plan that was forecast to be as slow says nothing about the model.
    #[test]
    fn a_slow_job_as_forecast_is_slower_only_than_alone() {
        let mut estimate = SlowdownEstimate::default();
        assert!(estimate.add_measurement(Some(2.0), expect(1.0, 2.0)));
        let published = MeasuredSlowdown { over_alone: 1.0, over_forecast: 0.0 };
        assert_eq!(estimate.published(), published);
        // The plan that follows is too good to be true by a tenth, and is left for one that is not.
        estimate.add_measurement(Some(1.32), expect(1.0, 1.2));
        assert!(estimate.add_measurement(Some(1.32), expect(1.0, 1.2)));
        let too_good = estimate.published().over_forecast;
        assert!((too_good - 0.05).abs() < 1e-9, "{too_good}");
        for _ in 0..4 {
            estimate.add_measurement(Some(1.1), expect(1.0, 1.1));
        }
        assert!(estimate.published().over_forecast > 0.02, "{estimate:?}");
    }
}
