//! Iterations of one job, beside what the plan expects that they were measured under.
//!
//! The decision: a window counts only if the plan was in force for all of it, and what is measured
//! carries its forecast with it. A job that reports once a minute would else be compared with a
//! plan of a second ago, and be said to run unlike its forecast. A plan that expects of the job
//! nearly what the plan before it expected continues the measurement: where jobs contend, what one
//! of them is known to send changes in its last digits again and again.

use planner::{Job, Plan, PlanReport};
use tokio::time::Instant;

use super::ReportWindow;
use super::profile::{Stretches, differs_by};
use crate::forecast::WIRE_BYTES_PER_BYTE;

/// Two plans expect the same of a job if their times differ by at most this share.
const SAME_WITHIN: f64 = 0.01;

/// What a plan expects of one job, seconds of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ExpectedIteration {
    /// Alone on its planned paths, if the job is planned.
    pub(super) alone: Option<f64>,
    /// Beside the other jobs, if that was simulated.
    pub(super) forecast: Option<f64>,
}

/// What a job reports of its iterations under a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredIteration {
    /// Seconds of an iteration.
    pub seconds: f64,
    /// What the plan expected, if it was simulated.
    pub forecast_seconds: Option<f64>,
}

/// The measurement of one job.
#[derive(Clone, Debug, Default)]
pub(super) struct IterationMeasurement {
    expected: ExpectedIteration,
    /// Since when plans expect that.
    since: Option<Instant>,
    windows: Stretches,
    /// Seconds of an iteration by the windows before those.
    concluded: Option<f64>,
}

impl ExpectedIteration {
    /// What a plan expects of `job`; nothing if it is not planned.
    pub(super) fn of_plan(plan: &Plan, report: &PlanReport, job: &Job) -> Self {
        let Some((position, planned)) = plan.job(&job.id) else {
            return Self::default();
        };
        let link_seconds = planned.bottleneck_seconds * WIRE_BYTES_PER_BYTE;
        let known = report.rationales.get(position).map(|why| why.iteration_seconds);
        // Where the plan has it communicate last, the headers come on top of what the plan knows.
        let exact = known.filter(|seconds| *seconds > job.compute_seconds);
        let exact = exact.map(|seconds| seconds + link_seconds - planned.bottleneck_seconds);
        Self {
            alone: Some(exact.unwrap_or_else(|| job.iteration_seconds(link_seconds))),
            forecast: report.comparison.forecast(position).map(|forecast| forecast.seconds),
        }
    }

    fn is_nearly(&self, other: &Self) -> bool {
        let is_same = |pair: (Option<f64>, Option<f64>)| match pair {
            (Some(a), Some(b)) => !differs_by(a, b, SAME_WITHIN),
            (a, b) => a == b,
        };
        is_same((self.alone, other.alone)) && is_same((self.forecast, other.forecast))
    }
}

impl IterationMeasurement {
    /// Begins anew if a plan expects something else than the one before.
    pub(super) fn follow_plan(&mut self, expected: ExpectedIteration, now: Instant) {
        if self.since.is_none() || !self.expected.is_nearly(&expected) {
            *self = Self { expected, since: Some(now), ..Self::default() };
        }
    }

    /// Adds a plausible window that has just ended.
    pub(super) fn add_window(&mut self, window: &ReportWindow, now: Instant) {
        let lasted = |since| now.saturating_duration_since(since).as_secs_f64();
        if self.since.is_some_and(|since| lasted(since) >= window.seconds) {
            self.windows.add_window(window);
        }
    }

    /// Concludes from the windows since the last time; none where they say nothing.
    pub(super) fn conclude(&mut self) -> Option<f64> {
        let seconds = std::mem::take(&mut self.windows).iteration_seconds();
        self.concluded = seconds.or(self.concluded);
        seconds
    }

    /// What the plan expects that the next windows count for.
    pub(super) fn expected(&self) -> ExpectedIteration {
        self.expected
    }

    /// What was concluded last.
    pub(super) fn concluded(&self) -> Option<MeasuredIteration> {
        let forecast_seconds = self.expected.forecast;
        self.concluded.map(|seconds| MeasuredIteration { seconds, forecast_seconds })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn window(seconds: f64) -> ReportWindow {
        ReportWindow { seconds, iteration_starts: vec![0.0, seconds / 2.0], ..Default::default() }
    }

    #[test]
    fn a_window_counts_for_the_plan_that_was_in_force_all_the_time() {
        let begin = Instant::now();
        let at = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        let expect = |forecast| ExpectedIteration { alone: Some(1.0), forecast: Some(forecast) };
        let mut measurement = IterationMeasurement::default();
        measurement.add_window(&window(4.0), at(0.0));
        assert_eq!(measurement.conclude(), None, "there was no plan");

        measurement.follow_plan(expect(2.0), at(10.0));
        measurement.add_window(&window(4.0), at(13.0));
        assert_eq!(measurement.conclude(), None, "a second of it was before the plan");
        measurement.add_window(&window(4.0), at(15.0));
        assert_eq!(measurement.conclude(), Some(2.0));
        let measured = MeasuredIteration { seconds: 2.0, forecast_seconds: Some(2.0) };
        assert_eq!(measurement.concluded(), Some(measured));

        measurement.follow_plan(expect(2.0), at(16.0));
        assert_eq!(measurement.concluded(), Some(measured), "the plan expects what it did");
        measurement.follow_plan(expect(2.01), at(16.0));
        assert_eq!(measurement.concluded(), Some(measured), "the plan expects what it did");
        measurement.add_window(&window(5.0), at(18.0));
        assert_eq!(measurement.conclude(), Some(2.5));
        measurement.follow_plan(expect(3.0), at(19.0));
        assert_eq!(measurement.concluded(), None);
    }
}
