//! Iteration times and GPU utilisation of a run, in unscaled seconds.
//!
//! All jobs are measured over one window of virtual time, in which all of them are present: from
//! the end of the slowest job's first iteration to the end of its last. `gpu_utilization` is that
//! of the fluid model: `sum_j G_j * busy_j / sum_j G_j * present_j`.

use std::ops::Range;

use planner::{Job, JobId};

use crate::job::TrainingJob;
use crate::scale::TimeScale;
use switch::Nanos;

/// Measurements of one job over the window.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedJobOutcome {
    /// The job's id in the jobs document.
    pub id: JobId,
    /// The job's number of GPUs.
    pub gpus: u32,
    /// Iterations that began and ended in the window.
    pub iterations: usize,
    /// Mean duration of these iterations, unscaled seconds; none without iterations.
    pub mean_iteration_seconds: Option<f64>,
    /// Share of the window in which its GPUs computed.
    pub gpu_busy_fraction: f64,
}

/// Measurements of all jobs over one window.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulationOutcome {
    /// The window, in virtual time.
    pub window: Range<Nanos>,
    /// The jobs, in the order given.
    pub jobs: Vec<EmulatedJobOutcome>,
}

/// Which iterations are measured.
#[derive(Clone, Debug)]
pub struct MeasuredIterations {
    /// By job, how many iterations at its start are not measured; jobs beyond the end skip one.
    pub skipped: Vec<usize>,
    /// How many iterations of each job are measured after those.
    pub measured: usize,
}

impl EmulationOutcome {
    /// Measures `trainings` of `jobs` (in the same order); none before every job has completed the
    /// iterations of `range`.
    pub fn measure_jobs<'a>(
        jobs: &[Job],
        trainings: impl Iterator<Item = &'a TrainingJob> + Clone,
        range: &MeasuredIterations,
        scale: TimeScale,
    ) -> Option<Self> {
        let skipped = range.skipped.iter().copied().chain(std::iter::repeat(1));
        let mut windows = Vec::new();
        for (training, skipped) in trainings.clone().zip(skipped) {
            let starts = training.iteration_starts();
            windows.push(*starts.get(skipped)?..*starts.get(skipped + range.measured)?);
        }
        // The job that ends last sets the window: all others are present in all of it.
        let window = windows.into_iter().max_by_key(|window| window.end)?;
        let outcomes = jobs
            .iter()
            .zip(trainings)
            .map(|(job, training)| measure_job(job, training, &window, scale))
            .collect();
        Some(Self { window, jobs: outcomes })
    }

    /// Share of the jobs' GPU time in which they computed.
    pub fn gpu_utilization(&self) -> f64 {
        let jobs = self.jobs.iter();
        let busy: f64 = jobs.map(|job| f64::from(job.gpus) * job.gpu_busy_fraction).sum();
        busy / self.jobs.iter().map(|job| f64::from(job.gpus)).sum::<f64>()
    }
}

fn measure_job(
    job: &Job,
    training: &TrainingJob,
    window: &Range<Nanos>,
    scale: TimeScale,
) -> EmulatedJobOutcome {
    let whole = training
        .iteration_starts()
        .windows(2)
        .filter(|ends| window.start <= ends[0] && ends[1] <= window.end);
    let (mut iterations, mut total) = (0_usize, 0);
    for ends in whole {
        iterations += 1;
        total += ends[1] - ends[0];
    }
    let mean = (iterations > 0).then(|| scale.real_seconds(total) / iterations as f64);
    let compute_ns = training.iteration_spec().compute_ns;
    let computed_ns: Nanos = training
        .iteration_starts()
        .iter()
        .map(|begun| (begun + compute_ns).min(window.end).saturating_sub(*begun.max(&window.start)))
        .sum();
    EmulatedJobOutcome {
        id: job.id.clone(),
        gpus: job.gpu_count(),
        iterations,
        mean_iteration_seconds: mean,
        gpu_busy_fraction: computed_ns as f64 / (window.end - window.start).max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use planner::MeasuredSlowdown;
    use topology::HostId;

    use super::*;
    use crate::job::{FlowStart, IterationSpec};

    fn job(id: &str, gpus: u32) -> Job {
        Job {
            id: id.into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), gpus)]),
            flop_per_iteration: 1.0,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: Vec::new(),
        }
    }

    /// A job that computes for 60 of every `period`, until `until`.
    fn trained(period: Nanos, until: Nanos) -> TrainingJob {
        let starts = vec![FlowStart { after_ns: 60, flows: 1 }];
        let spec = IterationSpec { compute_ns: 60, starts };
        let mut training = TrainingJob::new(spec);
        for begun in (0..until).step_by(period as usize) {
            training.handle_wake(begun);
            training.handle_wake(begun + 60);
            training.handle_flow_done(begun + period);
        }
        training
    }

    /// Iterations `skipped` and `measured` of a slow job that ends at `slow_until` and a fast one.
    fn measure(slow_until: Nanos, skipped: &[usize], measured: usize) -> Option<EmulationOutcome> {
        let jobs = [job("slow", 3), job("fast", 1)];
        let trainings = [trained(120, slow_until), trained(80, 400)];
        let range = MeasuredIterations { skipped: skipped.to_vec(), measured };
        let scale = TimeScale::new(10.0).unwrap();
        EmulationOutcome::measure_jobs(&jobs, trainings.iter(), &range, scale)
    }

    #[test]
    fn all_jobs_are_measured_over_the_window_of_the_slowest() {
        let outcome = measure(400, &[], 2).unwrap();
        assert_eq!(outcome.window, 120..360);
        let slow = &outcome.jobs[0];
        assert_eq!((slow.iterations, slow.gpu_busy_fraction), (2, 0.5));
        assert!((slow.mean_iteration_seconds.unwrap() - 1.2e-6).abs() < 1e-18);
        // 160..240 and 240..320 are whole; computed 120..140, 160..220, 240..300, 320..360.
        let fast = &outcome.jobs[1];
        assert_eq!((fast.iterations, fast.gpu_busy_fraction), (2, 0.75));
        assert_eq!(measure(400, &[2, 2], 1).unwrap().window, 240..360);
        assert!((outcome.gpu_utilization() - (3.0 * 0.5 + 0.75) / 4.0).abs() < 1e-12);
    }

    #[test]
    fn there_is_no_outcome_before_all_jobs_have_iterated() {
        assert_eq!(measure(300, &[], 3), None);
        assert!(measure(300, &[], 2).is_some());
    }
}
