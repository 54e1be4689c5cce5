//! GPU utilisation over time: as measured, as forecast, and as ECMP would give it.
//!
//! Pure. A job's utilisation is the time in which its GPUs compute, as a share of all of its time
//! (`comp_j` over the seconds of an iteration); of several jobs it is the mean by GPUs. The
//! decision: a log has a bounded number of samples. When it is full, neighbours are merged, so it
//! reaches further back and is coarser; at its coarsest it drops the oldest.

mod series;
mod task;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use planner::PlanForecast;

pub use self::series::{UtilizationHistory, UtilizationMeans, UtilizationPage, UtilizationSeries};
pub(super) use self::task::UtilizationTask;
use super::controller_view::ControllerView;

/// Milliseconds between two samples at first.
pub(super) const SAMPLE_MS: u64 = 5_000;

/// Samples that are kept.
const MAX_SAMPLES: usize = 720;

/// Milliseconds between two samples at most, after merging: with all samples, 32 hours.
const COARSEST_MS: u64 = 32 * SAMPLE_MS;

/// The utilisation of one job at one time, each a share of 1; none where it is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobUtilization {
    pub(super) tenant: Option<String>,
    pub(super) gpus: u32,
    /// By the iterations that the job reports, else by what switches count of them.
    pub(super) measured: Option<f64>,
    /// By the fluid model, under the plan in force.
    pub(super) forecast: Option<f64>,
    /// By the fluid model, under ECMP.
    pub(super) ecmp: Option<f64>,
}

/// The utilisation of all jobs at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UtilizationSample {
    /// Milliseconds of Unix time.
    pub(super) at_ms: u64,
    pub(super) jobs: BTreeMap<String, JobUtilization>,
}

/// What the fluid model says of one plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UtilizationForecast {
    /// Of which generation.
    pub(super) generation: u64,
    pub(super) planned: PlanForecast,
    pub(super) ecmp: PlanForecast,
}

/// Samples in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UtilizationLog {
    interval_ms: u64,
    /// Shared, so that readers copy pointers.
    samples: VecDeque<Arc<UtilizationSample>>,
}

impl Default for UtilizationLog {
    fn default() -> Self {
        Self { interval_ms: SAMPLE_MS, samples: VecDeque::new() }
    }
}

impl UtilizationSample {
    /// The jobs of a view; a forecast of another plan than its own says nothing about them.
    pub(super) fn from_view(
        view: &ControllerView,
        at_ms: u64,
        forecast: Option<&UtilizationForecast>,
    ) -> Self {
        let forecast = forecast.filter(|known| known.generation == view.rollout.generation);
        let measured: BTreeMap<String, f64> = view
            .job_rows()
            .into_iter()
            .filter_map(|row| Some((row.measured_seconds()?, row.id)))
            .map(|(seconds, id)| (id, seconds))
            .collect();
        let jobs = view.request.jobs.iter().map(|job| {
            let share = |seconds: Option<f64>| {
                seconds.map(|seconds| (job.compute_seconds / seconds).clamp(0.0, 1.0))
            };
            let row = JobUtilization {
                tenant: job.tenant.clone(),
                gpus: job.gpu_count(),
                measured: share(measured.get(job.id.as_str()).copied()),
                forecast: forecast.and_then(|known| share(known.planned.seconds(&job.id))),
                ecmp: forecast.and_then(|known| share(known.ecmp.seconds(&job.id))),
            };
            (job.id.to_string(), row)
        });
        Self { at_ms, jobs: jobs.collect() }
    }

    /// Two neighbours as one, at the time of the later: the mean of what either knows.
    fn merged_with(&self, later: &Self) -> Self {
        let mut jobs = self.jobs.clone();
        for (id, row) in &later.jobs {
            let merged = jobs.get(id).map_or_else(|| row.clone(), |earlier| earlier.mean(row));
            jobs.insert(id.clone(), merged);
        }
        Self { at_ms: later.at_ms, jobs }
    }
}

impl JobUtilization {
    fn mean(&self, later: &Self) -> Self {
        let mean = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(f64::midpoint(a, b)),
            (a, b) => a.or(b),
        };
        Self {
            tenant: later.tenant.clone(),
            gpus: later.gpus,
            measured: mean(self.measured, later.measured),
            forecast: mean(self.forecast, later.forecast),
            ecmp: mean(self.ecmp, later.ecmp),
        }
    }
}

impl UtilizationLog {
    /// Adds a sample, unless the last one is newer than the interval.
    pub(super) fn add_sample(&mut self, sample: UtilizationSample) {
        let last = self.samples.back().map_or(0, |last| last.at_ms);
        // Half of the shortest interval allows for a timer that is late, then in time.
        if sample.at_ms < last + self.interval_ms - SAMPLE_MS / 2 {
            return;
        }
        self.samples.push_back(Arc::new(sample));
        if self.samples.len() > MAX_SAMPLES {
            self.make_room();
        }
    }

    /// The latest sample.
    fn latest_sample(&self) -> Option<&UtilizationSample> {
        self.samples.back().map(Arc::as_ref)
    }

    fn make_room(&mut self) {
        if self.interval_ms >= COARSEST_MS {
            self.samples.pop_front();
            return;
        }
        self.interval_ms *= 2;
        self.samples = merge_pairs(&self.samples);
    }

    /// The samples after `since_ms`, merged until there are at most `count`.
    fn select_samples(&self, since_ms: u64, count: usize) -> VecDeque<Arc<UtilizationSample>> {
        let recent = self.samples.iter().filter(|sample| sample.at_ms > since_ms);
        let mut samples: VecDeque<_> = recent.cloned().collect();
        while samples.len() > count.max(1) {
            samples = merge_pairs(&samples);
        }
        samples
    }
}

/// Every second sample merged with the one before it; a last one without a partner stays.
fn merge_pairs(samples: &VecDeque<Arc<UtilizationSample>>) -> VecDeque<Arc<UtilizationSample>> {
    let all: Vec<_> = samples.iter().collect();
    let merged = all.chunks(2).map(|pair| match pair {
        [earlier, later] => Arc::new(earlier.merged_with(later)),
        rest => Arc::clone(rest[0]),
    });
    merged.collect()
}

#[cfg(test)]
mod tests;
