//! What Crux changes against ECMP where some jobs run together: the measure of Crux, Figs. 19 to
//! 22.
//!
//! The paper draws what its text gives as changes: utilisation and completion without Crux, with
//! it, and "when running alone". [`drawn_rows`] are the bars of such a figure.

use planner::Job;
use simulator::{HashedScheduler, IsolatedJob, Scheduler, SimulationExperiment, SwitchHash};

use super::report::{MeasureRow, mean_value, percent_change};
use super::testbed::simulate_outcome;
use command_io::CommandError;

/// One run with ECMP, one with Crux, and each job alone.
pub(super) struct CruxGain {
    /// Share of GPU time in computation, in per cent, of each of [`SCHEMES`].
    utilisation: [f64; 3],
    jobs: Vec<JobSeconds>,
}

/// Names of what is compared, as rows and figures have them.
pub(super) const SCHEMES: [&str; 3] = ["ECMP", "Crux", "alone"];

/// Seconds of an iteration of a job under each of [`SCHEMES`].
struct JobSeconds {
    id: String,
    seconds: [f64; 3],
}

impl CruxGain {
    pub(super) fn measure(experiment: &SimulationExperiment) -> Result<Self, CommandError> {
        Self::measure_on(experiment, SwitchHash::Independent)
    }

    /// With switches that hash so where ECMP does.
    pub(super) fn measure_on(
        experiment: &SimulationExperiment,
        hash: SwitchHash,
    ) -> Result<Self, CommandError> {
        let ecmp = HashedScheduler { scheduler: Scheduler::Ecmp, hash };
        let without = simulate_outcome(experiment, ecmp)?;
        let with = simulate_outcome(experiment, Scheduler::Crux)?;
        let alone = IsolatedJob::for_experiment(experiment).map_err(CommandError::failed)?;
        let runs = without.jobs.iter().zip(&with.jobs).zip(&alone);
        let jobs = runs.filter_map(|((without, with), alone)| {
            let [without_seconds, with_seconds] =
                [without, with].map(|run| run.mean_iteration_seconds);
            let seconds = [without_seconds?, with_seconds?, alone.iteration_seconds?];
            Some(JobSeconds { id: with.id.clone(), seconds })
        });
        let jobs = jobs.collect();
        let shares =
            [without.gpu_utilization, with.gpu_utilization, ideal_share(experiment, &alone)];
        Ok(Self { utilisation: shares.map(|share| share * 100.0), jobs })
    }

    /// Per cent by which Crux changes the utilisation.
    pub(super) fn utilisation_change(&self) -> f64 {
        let [without, with, _] = self.utilisation;
        percent_change(without, with)
    }

    /// Utilisation without Crux, with it, and if every job were alone, in per cent.
    #[cfg(test)]
    pub(super) fn utilisation(&self) -> [f64; 3] {
        self.utilisation
    }

    /// Seconds of the jobs whose names begin so.
    fn seconds_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = [f64; 3]> + 'a {
        let jobs = self.jobs.iter().filter(move |job| job.id.starts_with(prefix));
        jobs.map(|job| job.seconds)
    }

    /// Per cent by which Crux changes the completion of a job, in the mean over the jobs whose
    /// names begin so.
    pub(super) fn mean_change(&self, prefix: &str) -> f64 {
        let seconds = self.seconds_of(prefix);
        let changes = seconds.map(|[without, with, _]| percent_change(without, with));
        mean_value(&changes.collect::<Vec<f64>>())
    }

    /// Per cent by which Crux changes the mean completion of the jobs whose names begin so.
    pub(super) fn change_of_mean(&self, prefix: &str) -> f64 {
        let mean = |scheme: usize| {
            let seconds = self.seconds_of(prefix).map(|seconds| seconds[scheme]);
            mean_value(&seconds.collect::<Vec<f64>>())
        };
        percent_change(mean(0), mean(1))
    }

    /// How much longer than alone the jobs whose names begin so take under a scheme.
    fn mean_slowdown(&self, prefix: &str, scheme: usize) -> f64 {
        let slowdowns = self.seconds_of(prefix).map(|seconds| seconds[scheme] / seconds[2]);
        mean_value(&slowdowns.collect::<Vec<f64>>())
    }
}

/// Share of GPU time in computation if every job ran alone.
pub(super) fn ideal_share(experiment: &SimulationExperiment, alone: &[IsolatedJob]) -> f64 {
    let jobs: &[Job] = &experiment.input.jobs;
    let busy = jobs.iter().zip(alone).map(|(job, alone)| {
        let share = alone.iteration_seconds.map_or(0.0, |seconds| job.compute_seconds / seconds);
        f64::from(job.gpu_count()) * share
    });
    let all: u32 = jobs.iter().map(Job::gpu_count).sum();
    busy.sum::<f64>() / f64::from(all)
}

/// The name of a case, and what Crux changes in it by seed.
pub(super) type NamedGains = (String, Vec<CruxGain>);

/// What the paper's figures have bars for, under the heading `part`: utilisation and, for each
/// kind of job, completion, by case.
pub(super) fn drawn_rows(part: &str, cases: &[NamedGains], kinds: &[&str]) -> Vec<MeasureRow> {
    let mut rows = Vec::new();
    for (case, gains) in cases {
        for (scheme, name) in SCHEMES.iter().enumerate() {
            let measure = format!("utilisation, {case}, {name}");
            let value = |gain: &CruxGain| gain.utilisation[scheme];
            rows.push(MeasureRow::of_runs(measure, "% of GPU time", None, (gains, value)));
        }
    }
    for kind in kinds {
        let prefix = kind.to_lowercase();
        for (case, gains) in cases {
            for (scheme, name) in SCHEMES.iter().enumerate().take(2) {
                let measure = format!("time of {kind}, {case}, {name}");
                let value = |gain: &CruxGain| gain.mean_slowdown(&prefix, scheme);
                rows.push(MeasureRow::of_runs(measure, "times alone", None, (gains, value)));
            }
        }
    }
    rows.into_iter().map(|row| row.in_part(part)).collect()
}
