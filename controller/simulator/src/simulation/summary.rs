//! Converts the counts of the engine into the Outcome document.

use fluid::{JobTally, LinkLevelTally};
use topology::{Finding, LinkId};

use super::{SimulationResult, SimulationRun};
use crate::outcome::{JobOutcome, LevelOutcome, LinkOutcome, SimulationOutcome};

impl SimulationRun<'_> {
    /// The end: nothing runs any further.
    pub(super) fn into_result(mut self) -> SimulationResult {
        let seconds = self.experiment.seconds;
        let tallies: Vec<JobTally> =
            (0..self.engine_jobs.len()).map(|job| self.job_tally(job)).collect();
        self.report_unfinished(&tallies);
        let busy: f64 = (0..tallies.len())
            .map(|job| {
                let gpus = f64::from(self.input.jobs[job].gpu_count());
                gpus * tallies[job].busy_seconds
            })
            .sum();
        let used = self.input.jobs.iter().map(|job| f64::from(job.gpu_count()));
        let all = self.input.fabric.hosts().iter().map(|host| f64::from(host.gpus));
        self.findings.sort_by_key(|finding| finding.severity);
        let outcome = SimulationOutcome {
            scheduler: self.scheduler.name().to_owned(),
            seconds,
            gpu_utilization: ratio_or_zero(busy, used.sum::<f64>() * seconds),
            cluster_gpu_utilization: ratio_or_zero(busy, all.sum::<f64>() * seconds),
            flop: (0..tallies.len()).map(|job| self.completed_flop(job, &tallies[job])).sum(),
            jobs: (0..tallies.len()).map(|job| self.job_outcome(job, &tallies[job])).collect(),
            links: self.link_outcomes(),
            findings: std::mem::take(&mut self.findings),
        };
        let timelines = self.recorder.into_timelines(seconds);
        SimulationResult { outcome, timelines }
    }

    /// What a job did; nothing if it never ran.
    fn job_tally(&self, job: usize) -> JobTally {
        let place = self.engine_jobs[job];
        let tally = place.and_then(|place| self.engine.job_tally(place).ok());
        tally.unwrap_or_default()
    }

    fn report_unfinished(&mut self, tallies: &[JobTally]) {
        let idle = tallies.iter().enumerate();
        let idle =
            idle.filter(|(job, tally)| self.engine_jobs[*job].is_some() && tally.iterations == 0);
        let seconds = self.experiment.seconds;
        let found: Vec<Finding> = idle
            .map(|(job, _)| {
                let about = format!("job {}", self.input.jobs[job].id);
                Finding::warning(about, format!("no iteration ended within {seconds} s"))
            })
            .collect();
        self.findings.extend(found);
    }

    /// Work done: the share of each computation that passed.
    fn completed_flop(&self, job: usize, tally: &JobTally) -> f64 {
        let job = &self.input.jobs[job];
        let computations = if job.compute_seconds > 0.0 {
            tally.busy_seconds / job.compute_seconds
        } else {
            tally.iterations as f64
        };
        computations * job.flop_per_iteration
    }

    fn job_outcome(&self, job: usize, tally: &JobTally) -> JobOutcome {
        let iterated = tally.iteration_seconds + tally.waited_seconds;
        let mean = (tally.iterations > 0).then(|| iterated / tally.iterations as f64);
        JobOutcome {
            id: self.input.jobs[job].id.to_string(),
            gpus: self.input.jobs[job].gpu_count(),
            level: self.schedule.jobs[job].level,
            start_shift_seconds: self.schedule.jobs[job].start_shift_seconds,
            iterations: tally.iterations,
            mean_iteration_seconds: mean,
            gpu_busy_fraction: tally.busy_seconds / self.experiment.seconds,
        }
    }

    fn link_outcomes(&self) -> Vec<LinkOutcome> {
        let fabric = &self.input.fabric;
        let links = fabric.link_ids().chain(fabric.intra_host_link_ids());
        let tallied = links.map(|link| (link, self.engine.link_tally(link.0)));
        let carrying = tallied.filter(|(_, levels)| levels.iter().any(|level| level.bytes > 0.0));
        carrying.map(|(link, levels)| self.link_outcome(link, &levels)).collect()
    }

    fn link_outcome(&self, link: LinkId, tallies: &[LinkLevelTally]) -> LinkOutcome {
        let fabric = &self.input.fabric;
        let seconds = self.experiment.seconds;
        let could = fabric.link_bandwidth(link).bytes_per_second() * seconds;
        LinkOutcome {
            link: fabric.link_name(link),
            busy_fraction: tallies.iter().map(|tally| tally.bytes).sum::<f64>() / could,
            levels: tallies
                .iter()
                .map(|tally| LevelOutcome {
                    level: tally.level,
                    busy_fraction: tally.bytes / could,
                    in_use_fraction: tally.in_use_seconds / seconds,
                })
                .collect(),
        }
    }
}

fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
