//! Findings about the iterations of jobs: they are not what the plan was chosen for.

use planner::JobId;
use topology::Finding;

use super::controller_view::{ControllerView, JobRow};

/// Iterations that are outside of the band of their forecast by a larger share of that are a warning.
const FORECAST_TOLERANCE: f64 = 0.1;

impl ControllerView {
    /// What is to be said of the iterations of all jobs.
    pub(super) fn iteration_findings(&self) -> Vec<Finding> {
        let rows = self.job_rows();
        let under_plan = rows.iter().filter(|row| self.measured_under_plan(row).is_some());
        under_plan.filter_map(JobRow::forecast_finding).collect()
    }

    /// Seconds of an iteration of a job. What was measured under an earlier plan, that expected
    /// something else, is no evidence.
    fn measured_under_plan(&self, job: &JobRow) -> Option<f64> {
        let reported = self.reports.iterations.get(&JobId::from(job.id.as_str()));
        let is_evidence =
            reported.is_none_or(|reported| reported.forecast_seconds == job.forecast_seconds);
        job.measured_seconds().filter(|_| is_evidence)
    }
}

impl JobRow {
    /// How much longer its iterations take than the longest that is forecast, as a share; below 0
    /// where they are shorter than the shortest.
    fn forecast_error(&self) -> Option<f64> {
        let (measured, band) = self.measured_seconds().zip(self.forecast_band)?;
        Some(band.excess(measured))
    }

    /// How much longer its iterations take than forecast, in words, if they do.
    pub(super) fn longer_than_forecast(&self) -> Option<String> {
        let more = self.forecast_error().filter(|error| *error > FORECAST_TOLERANCE)?;
        Some(format!("job {} iterates {:.0} % longer", self.id, more * 100.0))
    }

    /// The warning that iterations are not what the plan was chosen for.
    fn forecast_finding(&self) -> Option<Finding> {
        let (measured, band) = self.measured_seconds().zip(self.forecast_band)?;
        let (error, forecast) = (band.excess(measured), band.nearest(measured));
        if error.abs() <= FORECAST_TOLERANCE {
            return None;
        }
        let relation = if error > 0.0 { "longer" } else { "shorter" };
        let text = format!(
            "iterations take {measured:.4} s, {:.0} % {relation} than the {forecast:.4} s that its \
             plan was chosen for: check its volumes and computation times, and links that carry \
             other traffic",
            100.0 * error.abs()
        );
        Some(Finding::warning(self.finding_about(), text))
    }

    /// What findings of the job are about.
    fn finding_about(&self) -> String {
        format!("job {}", self.id)
    }
}
