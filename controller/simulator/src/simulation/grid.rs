//! Jobs on a grid of start times: CASSINI's correction of drift (its section 5.7).
//!
//! A job on a grid should begin its iterations at `start + k * period`. A job that begins an
//! iteration more than 5 % of the period off the grid delays its next one to the next point of the
//! grid.

use std::collections::BTreeMap;

use fluid::{JobIndex, JobPhase, RunInstant};

use crate::baselines::cassini::DRIFT_MAX;

/// The jobs on a grid.
#[derive(Debug, Default)]
pub(crate) struct IterationGrid {
    lines: BTreeMap<JobIndex, GridJob>,
}

#[derive(Debug)]
struct GridJob {
    start: f64,
    period: f64,
    waited: f64,
}

impl IterationGrid {
    pub(crate) fn add_job(&mut self, job: JobIndex, start: f64, period: f64) {
        let waited = 0.0;
        self.lines.insert(job, GridJob { start, period, waited });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Seconds that a job waited for its grid so far.
    pub(crate) fn waited_seconds(&self, job: JobIndex) -> f64 {
        self.lines.get(&job).map_or(0.0, |line| line.waited)
    }

    /// The jobs that begin an iteration too far off their grid, and how long their next one waits.
    pub(crate) fn find_postponements(&mut self, instant: &RunInstant<'_>) -> Vec<(JobIndex, f64)> {
        let now = instant.seconds();
        let begun = instant.phase_changes().filter(|(_, phase)| *phase == JobPhase::Computing);
        let mut postponed = Vec::new();
        for (job, _) in begun {
            if let Some(line) = self.lines.get_mut(&job)
                && let Some(wait) = line.wait_seconds(now)
            {
                line.waited += wait;
                postponed.push((job, wait));
            }
        }
        postponed
    }
}

impl GridJob {
    /// How long to wait for the grid, if an iteration that begins now is too far off.
    fn wait_seconds(&self, now: f64) -> Option<f64> {
        let late = (now - self.start).rem_euclid(self.period);
        let early = self.period - late;
        (late.min(early) > DRIFT_MAX * self.period).then_some(early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_drift_is_let_pass_and_large_drift_waits_for_the_grid() {
        let line = GridJob { start: 10.0, period: 2.0, waited: 0.0 };
        for (now, wait) in
            [(10.0, None), (14.09, None), (13.91, None), (14.5, Some(1.5)), (13.75, Some(0.25))]
        {
            assert_eq!(line.wait_seconds(now), wait, "{now}");
        }
    }
}
