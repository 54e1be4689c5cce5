//! Tallies, kept as lazily as everything else: a total, and what runs since its last change.

use super::iteration::Running;
use super::{Engine, JobIndex};
use crate::clock::Ticks;
use crate::error::FluidError;
use crate::observer::Phase;
use crate::tallies::{JobTally, LinkTally, Tallies};

/// Bytes and time of use of one cell up to `since`, and its rate from then on, bytes/s.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    since: Ticks,
    rate: f64,
    bytes: f64,
    in_use: Ticks,
}

impl Meter {
    fn advance(&mut self, now: Ticks) {
        if self.rate > 0.0 {
            self.bytes += self.rate * now.seconds_since(self.since);
            self.in_use.0 += now.0 - self.since.0;
        }
        self.since = now;
    }
}

impl Engine {
    /// What `job` did so far.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_tally(&self, job: JobIndex) -> Result<JobTally, FluidError> {
        self.job(job).map(|running| self.tally(running))
    }

    /// What each class did on `link` so far, highest class first; nothing for an unknown link.
    #[must_use]
    pub fn link_tally(&self, link: u32) -> Vec<LinkTally> {
        if self.sharing.capacity(link).is_none() {
            return Vec::new();
        }
        let tally = |cell: u32| {
            let (_, class, _) = self.sharing.usage(cell);
            let mut meter = self.meters[cell as usize];
            meter.advance(self.now);
            LinkTally {
                class,
                bytes: meter.bytes,
                in_use_seconds: meter.in_use.seconds(),
            }
        };
        self.sharing.cells_of(link).map(tally).collect()
    }

    /// All tallies.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        let jobs = self.jobs.iter().map(|job| match job {
            Some(running) => self.tally(running),
            None => JobTally::default(),
        });
        Tallies {
            seconds: self.now(),
            jobs: jobs.collect(),
            links: (0..self.sharing.link_count() as u32)
                .map(|link| self.link_tally(link))
                .collect(),
        }
    }

    /// Books the rates that changed.
    pub(super) fn meter(&mut self) {
        for &cell in &self.changes.cells {
            let (_, _, rate) = self.sharing.usage(cell);
            let meter = &mut self.meters[cell as usize];
            if meter.rate != rate {
                meter.advance(self.now);
                meter.rate = rate;
            }
        }
    }

    /// Makes room for every cell there is.
    pub(super) fn grow_meters(&mut self) {
        let fresh = Meter {
            since: self.now,
            ..Meter::default()
        };
        self.meters.resize(self.sharing.cell_count(), fresh);
    }

    fn tally(&self, running: &Running) -> JobTally {
        let under_way = match running.phase {
            Phase::Waiting | Phase::Finished => Ticks(0),
            _ => running.compute.min(Ticks(self.now.0 - running.begun.0)),
        };
        let computed = running.compute.seconds() * running.iterations as f64;
        let until = match running.phase {
            Phase::Finished => running.ended,
            _ => self.now,
        };
        JobTally {
            iterations: running.iterations,
            iteration_seconds: running.iterated.seconds(),
            busy_seconds: computed + under_way.seconds(),
            bytes: running.bytes + self.bytes_under_way(running),
            present_seconds: Ticks(until.0.saturating_sub(running.start.0)).seconds(),
        }
    }

    /// Bytes that flows still sending have sent.
    fn bytes_under_way(&self, running: &Running) -> f64 {
        let sent = |&id: &u32| {
            let strand = &self.strands[id as usize];
            self.sharing.weight(id) * (strand.bytes - strand.left_at(self.now))
        };
        let sending = running
            .strands
            .iter()
            .filter(|id| self.sharing.is_sending(**id));
        sending.map(sent).sum()
    }
}
