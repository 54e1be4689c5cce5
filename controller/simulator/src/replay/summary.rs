//! Converts the sums of a replay into the Replay document.

use topology::Finding;

use super::{JobRecord, ReplayOutcome, ReplayedJob, TraceReplay};

impl TraceReplay<'_> {
    /// What came of the replay so far.
    pub fn to_outcome(&self) -> ReplayOutcome {
        let progress = &self.progress;
        let ended: Vec<(f64, &JobRecord)> = (self.setup.trace.jobs.iter().zip(&progress.records))
            .filter(|(_, record)| record.ended_seconds.is_some())
            .map(|(job, record)| (job.submitted_seconds, record))
            .collect();
        let jobs: Vec<ReplayedJob> =
            (0..progress.records.len()).map(|job| self.job_outcome(job)).collect();
        let slowdowns = jobs.iter().filter_map(|job| job.slowdown);
        ReplayOutcome {
            placement: self.setup.placement.name().to_owned(),
            scheduler: match &self.program {
                Some(program) => program.name().to_owned(),
                None => self.setup.scheduler.name().to_owned(),
            },
            seed: self.setup.seed,
            seconds: ended
                .iter()
                .filter_map(|(_, record)| record.ended_seconds)
                .fold(0.0, f64::max),
            gpu_utilization: ratio_or_zero(progress.busy_gpu_seconds, progress.held_gpu_seconds),
            cluster_gpu_utilization: self.cluster_utilization(),
            completed: ended.len(),
            not_completed: progress.records.len() - ended.len(),
            mean_completion_seconds: mean_of(ended.iter().map(completion_seconds)),
            // Not below 0: sums of many terms differ from one difference by rounding.
            mean_wait_seconds: mean_of(
                ended.iter().map(|job| (completion_seconds(job) - job.1.held_seconds).max(0.0)),
            ),
            mean_slowdown: mean_slowdown(&jobs),
            worst_slowdown: slowdowns.fold(0.0, f64::max),
            suspensions: progress.suspensions,
            schedules: progress.schedules,
            unsure: ratio_or_zero(progress.unsure_gpu_seconds, progress.held_gpu_seconds),
            alternatives: self.alternative_outcomes(),
            hours: progress.hours.hourly_means().to_vec(),
            findings: self.report_findings(),
            jobs,
        }
    }

    fn job_outcome(&self, number: usize) -> ReplayedJob {
        let (traced, record) = (&self.setup.trace.jobs[number], &self.progress.records[number]);
        let alone = self.alone_run_seconds[number];
        ReplayedJob {
            id: traced.id.clone(),
            model: traced.model.clone(),
            gpus: traced.gpus,
            submitted_seconds: traced.submitted_seconds,
            started_seconds: record.started_seconds,
            ended_seconds: record.ended_seconds,
            held_seconds: record.held_seconds,
            slowdown: record.ended_seconds.map(|_| record.held_seconds / alone),
        }
    }

    /// Computing GPUs of all there are, until the last arrival.
    fn cluster_utilization(&self) -> f64 {
        let last = self.setup.trace.jobs.last();
        let hours = last.map_or(0.0, |job| job.submitted_seconds / 3600.0).ceil().max(1.0);
        let busy: f64 = self
            .progress
            .hours
            .hourly_means()
            .iter()
            .take(hours as usize)
            .map(|hour| hour.busy_gpus)
            .sum();
        ratio_or_zero(busy, hours * f64::from(self.setup.cluster.total_gpus()))
    }

    fn report_findings(&self) -> Vec<Finding> {
        let records = self.progress.records.iter();
        let refused = records.clone().filter(|record| record.is_refused).count();
        let unended = records.filter(|r| r.ended_seconds.is_none() && !r.is_refused);
        let counted = [
            (refused, "jobs were refused: the cluster can never give them their GPUs"),
            (unended.count(), "jobs did not end"),
        ];
        let reported = counted.into_iter().filter(|(count, _)| *count > 0);
        reported.map(|(count, text)| Finding::warning("trace", format!("{count} {text}"))).collect()
    }
}

/// Seconds from submission to end.
fn completion_seconds((submitted, record): &(f64, &JobRecord)) -> f64 {
    record.ended_seconds.map_or(0.0, |end| end - submitted)
}

/// The mean weighted by GPUs and time alone.
fn mean_slowdown(jobs: &[ReplayedJob]) -> f64 {
    let weighted = jobs.iter().filter_map(|job| {
        let held = job.held_seconds * f64::from(job.gpus);
        Some((held, held / job.slowdown?))
    });
    let (held, alone) = weighted.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    ratio_or_zero(held, alone)
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    ratio_or_zero(sum, count)
}

fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
