//! Totals of jobs and links, computed lazily: a sum, and a rate that holds since its last change.

use super::iteration::EngineJob;
use super::{Engine, JobIndex};
use crate::clock::Ticks;
use crate::error::FluidError;
use crate::observer::JobPhase;
use crate::tallies::{JobTally, LinkLevelTally, RunTallies};

/// Bytes and time of use of one link level up to `updated_at`, and its rate since then, bytes/s.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LevelMeter {
    updated_at: Ticks,
    rate: f64,
    bytes: f64,
    in_use: Ticks,
}

impl LevelMeter {
    fn advance_to(&mut self, now: Ticks) {
        // A level that is idle must not count the time.
        if self.rate > 0.0 {
            self.bytes += self.rate * now.seconds_since(self.updated_at);
            self.in_use.0 += now.0 - self.updated_at.0;
        }
        self.updated_at = now;
    }
}

impl Engine {
    /// Totals of `job` so far.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_tally(&self, job: JobIndex) -> Result<JobTally, FluidError> {
        self.find_job(job).map(|running| self.tally_of(running))
    }

    /// Totals of each level on `link` so far, highest level first; empty for an unknown link.
    #[must_use]
    pub fn link_tally(&self, link: u32) -> Vec<LinkLevelTally> {
        if self.rate_allocator.link_capacity(link).is_none() {
            return Vec::new();
        }
        let levels = self.rate_allocator.link_levels_of(link);
        levels
            .map(|link_level| {
                let mut meter = self.meters[link_level as usize];
                meter.advance_to(self.now);
                LinkLevelTally {
                    level: self.rate_allocator.link_level_usage(link_level).1,
                    bytes: meter.bytes,
                    in_use_seconds: meter.in_use.as_seconds(),
                }
            })
            .collect()
    }

    /// Totals of all jobs and links.
    #[must_use]
    pub fn tallies(&self) -> RunTallies {
        let jobs = self.jobs.iter().map(|job| match job {
            Some(running) => self.tally_of(running),
            None => JobTally::default(),
        });
        RunTallies {
            seconds: self.now_seconds(),
            jobs: jobs.collect(),
            links: (0..self.rate_allocator.link_count() as u32)
                .map(|link| self.link_tally(link))
                .collect(),
        }
    }

    /// Starts a new metering interval where the rate changed.
    pub(super) fn update_meters(&mut self) {
        for &link_level in &self.changes.link_levels {
            let (_, _, rate) = self.rate_allocator.link_level_usage(link_level);
            let meter = &mut self.meters[link_level as usize];
            // Equal rates are the common case; a sum over fewer and longer pieces also rounds less.
            if meter.rate != rate {
                meter.advance_to(self.now);
                meter.rate = rate;
            }
        }
    }

    /// Adds meters for new link levels.
    pub(super) fn grow_meters(&mut self) {
        let fresh = LevelMeter { updated_at: self.now, ..LevelMeter::default() };
        self.meters.resize(self.rate_allocator.link_level_count(), fresh);
    }

    fn tally_of(&self, running: &EngineJob) -> JobTally {
        let under_way = match running.phase {
            JobPhase::Waiting | JobPhase::Finished => Ticks(0),
            // Computation comes first in an iteration; the rest of it is waiting for flows.
            _ => running.compute_time.min(Ticks(self.now.0 - running.iteration_start.0)),
        };
        let computed = running.compute_time.as_seconds() * running.iterations as f64;
        let until = match running.phase {
            JobPhase::Finished => running.end_time,
            _ => self.now,
        };
        JobTally {
            iterations: running.iterations,
            iteration_seconds: running.iteration_time.as_seconds(),
            busy_seconds: computed + under_way.as_seconds(),
            bytes: running.bytes + self.unfinished_bytes(running),
            waited_seconds: running.waited.as_seconds(),
            present_seconds: Ticks(until.0.saturating_sub(running.start_time.0)).as_seconds(),
        }
    }

    /// Bytes that the flows still sending have sent in this iteration.
    fn unfinished_bytes(&self, running: &EngineJob) -> f64 {
        let sending = running.groups.iter().filter(|id| self.rate_allocator.is_sending(**id));
        sending
            .map(|&id| {
                let group = &self.group_progress[id as usize];
                self.rate_allocator.group_weight(id) * (group.bytes - group.bytes_left_at(self.now))
            })
            .sum()
    }
}
