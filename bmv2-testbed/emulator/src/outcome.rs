//! What the jobs measured of themselves, in unscaled seconds.
//!
//! All jobs are measured over one window of virtual time, in which all of them are present: from
//! the end of the slowest job's first iteration to the end of its last. `gpu_utilization` is that
//! of the fluid model: `sum_j G_j * busy_j / sum_j G_j * present_j`.

use std::ops::Range;

use planner::{Job, JobId};

use crate::job::TrainingJob;
use crate::scale::TimeScale;
use crate::transport::Nanos;

/// One job over the window.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedJobOutcome {
    /// Its name.
    pub id: JobId,
    /// Its GPUs.
    pub gpus: u32,
    /// Iterations that began and ended in the window.
    pub iterations: usize,
    /// Their mean duration, unscaled seconds; none if there was none.
    pub mean_iteration_seconds: Option<f64>,
    /// Share of the window in which its GPUs computed.
    pub gpu_busy_fraction: f64,
}

/// All jobs over the window.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulationOutcome {
    /// The window, in virtual time.
    pub window: Range<Nanos>,
    /// The jobs, in the order given.
    pub jobs: Vec<EmulatedJobOutcome>,
}

impl EmulationOutcome {
    /// What `trainings` of `jobs` (in the same order) measured; none before every job has ended
    /// `iterations` iterations after those that are skipped. Jobs without a number skip one.
    pub fn measure_jobs<'a>(
        jobs: &[Job],
        trainings: impl Iterator<Item = &'a TrainingJob> + Clone,
        (skipped, iterations): (&[usize], usize),
        scale: TimeScale,
    ) -> Option<Self> {
        let skipped = skipped.iter().copied().chain(std::iter::repeat(1));
        let ends = |(training, skipped): (&TrainingJob, usize)| {
            let begun = training.iteration_starts();
            Some((*begun.get(skipped)?, *begun.get(skipped + iterations)?))
        };
        let ends: Option<Vec<_>> = trainings.clone().zip(skipped).map(ends).collect();
        let (from, to) = ends?.into_iter().max_by_key(|(_, last)| *last)?;
        let window = from..to;
        let jobs = jobs.iter().zip(trainings);
        let jobs = jobs.map(|(job, training)| measure_job(job, training, &window, scale)).collect();
        Some(Self { window, jobs })
    }

    /// Share of the jobs' GPU time in which they computed.
    pub fn gpu_utilization(&self) -> f64 {
        let gpus = |job: &EmulatedJobOutcome| f64::from(job.gpus);
        let busy: f64 = self.jobs.iter().map(|job| gpus(job) * job.gpu_busy_fraction).sum();
        busy / self.jobs.iter().map(gpus).sum::<f64>()
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
    let computed = training.iteration_starts().iter().map(|begun| {
        let (start, end) = (*begun.max(&window.start), (begun + compute_ns).min(window.end));
        end.saturating_sub(start)
    });
    let computed: Nanos = computed.sum();
    EmulatedJobOutcome {
        id: job.id.clone(),
        gpus: job.gpu_count(),
        iterations,
        mean_iteration_seconds: mean,
        gpu_busy_fraction: computed as f64 / (window.end - window.start).max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use topology::HostId;

    use super::*;
    use crate::job::IterationSpec;

    fn job(id: &str, gpus: u32) -> Job {
        Job {
            id: id.into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), gpus)]),
            flop_per_iteration: 1.0,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            recent_slowdown: 0.0,
            flows: Vec::new(),
        }
    }

    /// A job that computes for 60 of every `period`, until `until`.
    fn trained(period: Nanos, until: Nanos) -> TrainingJob {
        let rhythm = IterationSpec { compute_ns: 60, communicate_after_ns: 60, flows: 1 };
        let mut training = TrainingJob::new(rhythm);
        for begun in (0..until).step_by(period as usize) {
            training.handle_wake(begun);
            training.handle_wake(begun + 60);
            training.handle_flow_done(begun + period);
        }
        training
    }

    #[test]
    fn everyone_is_measured_over_the_window_of_the_slowest() {
        let jobs = [job("slow", 3), job("fast", 1)];
        let trainings = [trained(120, 400), trained(80, 400)];
        let scale = TimeScale::new(10.0).unwrap();
        let outcome =
            EmulationOutcome::measure_jobs(&jobs, trainings.iter(), (&[], 2), scale).unwrap();
        assert_eq!(outcome.window, 120..360);
        let slow = &outcome.jobs[0];
        assert_eq!((slow.iterations, slow.gpu_busy_fraction), (2, 0.5));
        assert!((slow.mean_iteration_seconds.unwrap() - 1.2e-6).abs() < 1e-18);
        // 160..240 and 240..320 are whole; computed 120..140, 160..220, 240..300, 320..360.
        let fast = &outcome.jobs[1];
        assert_eq!((fast.iterations, fast.gpu_busy_fraction), (2, 0.75));
        let later =
            EmulationOutcome::measure_jobs(&jobs, trainings.iter(), (&[2, 2], 1), scale).unwrap();
        assert_eq!(later.window, 240..360);
        assert!((outcome.gpu_utilization() - (3.0 * 0.5 + 0.75) / 4.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_measured_before_all_have_iterated() {
        let jobs = [job("slow", 3), job("fast", 1)];
        let trainings = [trained(120, 300), trained(80, 400)];
        let scale = TimeScale::new(1.0).unwrap();
        assert_eq!(EmulationOutcome::measure_jobs(&jobs, trainings.iter(), (&[], 3), scale), None);
        assert!(EmulationOutcome::measure_jobs(&jobs, trainings.iter(), (&[], 2), scale).is_some());
    }
}
