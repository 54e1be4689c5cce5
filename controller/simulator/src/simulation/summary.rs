//! From what the engine counted to the Outcome document.

use fluid::{JobTally, LinkTally};
use topology::{Finding, LinkId};

use super::{Simulated, World};
use crate::outcome::{JobOutcome, LevelOutcome, LinkOutcome, Outcome};

impl World<'_> {
    /// The end: nothing runs any further.
    pub(super) fn finish(mut self) -> Simulated {
        let seconds = self.experiment.seconds;
        let tallies: Vec<JobTally> = (0..self.places.len()).map(|job| self.tally(job)).collect();
        self.find_unfinished(&tallies);
        let gpu_seconds = |job: usize| {
            let gpus = f64::from(self.input.jobs[job].gpu_count());
            gpus * tallies[job].busy_seconds
        };
        let busy: f64 = (0..tallies.len()).map(gpu_seconds).sum();
        let used = self.input.jobs.iter().map(|job| f64::from(job.gpu_count()));
        let all = self
            .input
            .fabric
            .hosts()
            .iter()
            .map(|host| f64::from(host.gpus));
        self.findings.sort_by_key(|finding| finding.severity);
        let outcome = Outcome {
            scheduler: self.scheduler.name().to_owned(),
            seconds,
            gpu_utilization: share(busy, used.sum::<f64>() * seconds),
            cluster_gpu_utilization: share(busy, all.sum::<f64>() * seconds),
            flop: (0..tallies.len())
                .map(|job| self.flop(job, &tallies[job]))
                .sum(),
            jobs: (0..tallies.len())
                .map(|job| self.job(job, &tallies[job]))
                .collect(),
            links: self.links(),
            findings: std::mem::take(&mut self.findings),
        };
        let timelines = self.recorder.finish(seconds);
        Simulated { outcome, timelines }
    }

    /// What a job did; nothing if it never ran.
    fn tally(&self, job: usize) -> JobTally {
        let place = self.places[job];
        let tally = place.and_then(|place| self.engine.job_tally(place).ok());
        tally.unwrap_or_default()
    }

    fn find_unfinished(&mut self, tallies: &[JobTally]) {
        let idle = tallies.iter().enumerate();
        let idle = idle.filter(|(job, tally)| self.places[*job].is_some() && tally.iterations == 0);
        let seconds = self.experiment.seconds;
        let finding = |(job, _): (usize, &JobTally)| {
            let about = format!("job {}", self.input.jobs[job].id);
            Finding::warning(about, format!("no iteration ended within {seconds} s"))
        };
        let found: Vec<Finding> = idle.map(finding).collect();
        self.findings.extend(found);
    }

    /// Work done: the share of each computation that passed.
    fn flop(&self, job: usize, tally: &JobTally) -> f64 {
        let job = &self.input.jobs[job];
        let computations = if job.compute_seconds > 0.0 {
            tally.busy_seconds / job.compute_seconds
        } else {
            tally.iterations as f64
        };
        computations * job.flop_per_iteration
    }

    fn job(&self, job: usize, tally: &JobTally) -> JobOutcome {
        let waited = self.places[job].map_or(0.0, |place| self.grid.waited(place));
        let iterated = tally.iteration_seconds + waited;
        let mean = (tally.iterations > 0).then(|| iterated / tally.iterations as f64);
        JobOutcome {
            id: self.input.jobs[job].id.to_string(),
            gpus: self.input.jobs[job].gpu_count(),
            level: self.schedule.jobs[job].class,
            start_shift_seconds: self.schedule.jobs[job].start_shift_seconds,
            iterations: tally.iterations,
            mean_iteration_seconds: mean,
            gpu_busy_fraction: tally.busy_seconds / self.experiment.seconds,
        }
    }

    fn links(&self) -> Vec<LinkOutcome> {
        let fabric = &self.input.fabric;
        let links = (0..fabric.links().len()).map(LinkId::from);
        let tallied = links.map(|link| (link, self.engine.link_tally(link.0)));
        let carrying = tallied.filter(|(_, levels)| levels.iter().any(|level| level.bytes > 0.0));
        carrying
            .map(|(link, levels)| self.link(link, &levels))
            .collect()
    }

    fn link(&self, link: LinkId, tallies: &[LinkTally]) -> LinkOutcome {
        let fabric = &self.input.fabric;
        let seconds = self.experiment.seconds;
        let could = fabric.link(link).bandwidth.bytes_per_second() * seconds;
        let level = |tally: &LinkTally| LevelOutcome {
            level: tally.class,
            busy_fraction: tally.bytes / could,
            in_use_fraction: tally.in_use_seconds / seconds,
        };
        LinkOutcome {
            link: fabric.link_name(link),
            busy_fraction: tallies.iter().map(|tally| tally.bytes).sum::<f64>() / could,
            levels: tallies.iter().map(level).collect(),
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
