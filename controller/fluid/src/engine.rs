//! The engine: jobs, time, and the loop that takes one instant after the other.
//!
//! `job` and `network` check what comes in, `sharing` says who gets how much, `agenda` what comes
//! next. Below, `iteration` is the life of a job, `changes` what may happen to it from outside,
//! `present` and `metering` what may be asked.
//!
//! The decision: bytes left are brought up to date only when a rate changes, so an instant costs
//! what it changes and nothing else.

mod changes;
mod iteration;
mod metering;
mod present;

use std::collections::VecDeque;

use crate::agenda::Agenda;
use crate::clock::Ticks;
use crate::error::FluidError;
use crate::job::JobIndex;
use crate::network::Network;
use crate::observer::{Instant, Observer, Phase};
use crate::sharing::{Changes, Sharing};
use crate::tallies::Work;
use iteration::Running;
use metering::Meter;

/// What holds for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// Time from link to link, seconds: the last byte of a flow arrives this long after it was
    /// sent, for each link of the path ("alpha"). The links are not held meanwhile.
    pub alpha_seconds_per_hop: f64,
}

/// Equal flows of one job on one path, as time sees them; `sharing` has their links and rates
/// under the same index.
#[derive(Debug, Clone)]
pub(crate) struct Strand {
    pub(crate) job: JobIndex,
    /// Bytes of an iteration, and those left at `since`, of each flow.
    bytes: f64,
    left: f64,
    /// Rate since then, bytes/s.
    rate: f64,
    since: Ticks,
    /// From sending to arriving.
    latency: Ticks,
}

/// A network and the jobs on it at one instant, and what they did before.
///
/// Cloning copies everything. Indices of jobs and links are dense; places of removed jobs are used
/// again, so memory follows the jobs present at once.
#[derive(Debug, Clone)]
pub struct Engine {
    now: Ticks,
    alpha: Ticks,
    pub(crate) sharing: Sharing,
    pub(crate) strands: Vec<Strand>,
    jobs: Vec<Option<Running>>,
    free_jobs: Vec<u32>,
    agenda: Agenda,
    meters: Vec<Meter>,
    finished: VecDeque<JobIndex>,
    events: u64,
    /// What the present instant made different.
    pub(crate) changes: Changes,
    pub(crate) turns: Vec<(JobIndex, Phase)>,
}

/// An entry of the agenda: even ids are strands that end, odd ids jobs whose time is up.
enum Due {
    Strand(u32),
    Job(JobIndex),
}

impl Due {
    fn of(id: u32) -> Self {
        if id & 1 == 0 {
            Self::Strand(id >> 1)
        } else {
            Self::Job(JobIndex(id >> 1))
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::Strand(strand) => strand << 1,
            Self::Job(job) => job.0 << 1 | 1,
        }
    }
}

impl Engine {
    /// An engine at 0 s without jobs.
    ///
    /// # Errors
    /// [`FluidError::Seconds`] for an alpha that is no duration.
    pub fn new(network: &Network, options: Options) -> Result<Self, FluidError> {
        Ok(Self {
            now: Ticks(0),
            alpha: Ticks::checked("alpha_seconds_per_hop", options.alpha_seconds_per_hop)?,
            sharing: Sharing::new(network.capacity()),
            strands: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            agenda: Agenda::default(),
            meters: Vec::new(),
            finished: VecDeque::new(),
            events: 0,
            changes: Changes::default(),
            turns: Vec::new(),
        })
    }

    /// The present, seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.now.seconds()
    }

    /// Instants so far at which rates were shared anew.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Effort so far.
    #[must_use]
    pub fn work(&self) -> Work {
        Work {
            events: self.events,
            flows_touched: self.sharing.touched(),
        }
    }

    /// Runs to `seconds` inclusive.
    ///
    /// # Errors
    /// [`FluidError::Seconds`] for what is no instant, [`FluidError::Past`] for one that is over.
    pub fn run_until(&mut self, seconds: f64) -> Result<(), FluidError> {
        let until = self.future(seconds)?;
        while self.instant(until) {}
        self.now = until;
        Ok(())
    }

    /// Runs to `seconds` inclusive, and shows `observer` every instant at which something happens.
    ///
    /// # Errors
    /// As [`Engine::run_until`].
    pub fn run_observed(
        &mut self,
        seconds: f64,
        observer: &mut dyn Observer,
    ) -> Result<(), FluidError> {
        let until = self.future(seconds)?;
        while self.instant(until) {
            observer.instant(&Instant { engine: self });
        }
        self.now = until;
        Ok(())
    }

    /// Takes the next instant if it is not later than `seconds`; false, and no time passes, if
    /// there is none. For callers with a budget of events, and for those who wait for
    /// [`Engine::take_finished`].
    ///
    /// # Errors
    /// As [`Engine::run_until`].
    pub fn step(&mut self, seconds: f64) -> Result<bool, FluidError> {
        let until = self.future(seconds)?;
        Ok(self.instant(until))
    }

    /// The instant that was taken last, as an observer sees it: for callers of [`Engine::step`]
    /// who change something between instants.
    #[must_use]
    pub fn latest(&self) -> Instant<'_> {
        Instant { engine: self }
    }

    /// Runs until rates were shared `max` more times, or nothing happens any more. Returns how
    /// often they were.
    pub fn run_events(&mut self, max: u64) -> u64 {
        let before = self.events;
        while self.events - before < max && self.instant(Ticks::LAST) {}
        self.events - before
    }

    /// A job that has run all its iterations since this was last asked, in order of time. It stays
    /// until it is removed.
    pub fn take_finished(&mut self) -> Option<JobIndex> {
        self.finished.pop_front()
    }

    fn future(&self, seconds: f64) -> Result<Ticks, FluidError> {
        let until = Ticks::checked("the end of the run", seconds)?;
        if until < self.now {
            return Err(FluidError::Past {
                to: seconds,
                now: self.now(),
            });
        }
        Ok(until)
    }

    /// Handles everything that happens at the next instant, if that is not later than `until`:
    /// phases of jobs first, then rates, once. Changes from outside make the present an instant.
    fn instant(&mut self, until: Ticks) -> bool {
        self.changes.strands.clear();
        self.changes.cells.clear();
        self.turns.clear();
        if self.sharing.is_settled() {
            match self.agenda.next() {
                Some(at) if at <= until => self.now = at,
                _ => return false,
            }
        }
        while let Some(id) = self.agenda.take_due(self.now) {
            match Due::of(id) {
                Due::Strand(strand) => self.strand_ends(strand),
                Due::Job(job) => self.job_is_due(job),
            }
        }
        if self.sharing.settle(&mut self.changes) {
            self.events += 1;
            self.follow_rates();
            self.meter();
        }
        true
    }

    /// Takes over the rates that changed and works out when those strands end now.
    fn follow_rates(&mut self) {
        for index in 0..self.changes.strands.len() {
            let id = self.changes.strands[index];
            if !self.sharing.is_sending(id) {
                continue;
            }
            let rate = self.sharing.rate(id);
            let strand = &mut self.strands[id as usize];
            strand.advance(self.now);
            strand.rate = rate;
            let end = strand.end();
            self.agenda.set(Due::Strand(id).id(), end);
        }
    }
}

/// What would end this soon has ended, seconds: 1 ns, 50 bytes at 400 Gb/s. Instants that should
/// be equal differ by rounding, and a residue of it must not wait for a whole burst of a higher
/// class that begins as its flow ends.
const GRACE: f64 = 1e-9;

impl Strand {
    /// Brings the bytes left up to date, before the rate changes.
    fn advance(&mut self, now: Ticks) {
        let left = self.left_at(now);
        self.left = if left > self.rate * GRACE { left } else { 0.0 };
        self.since = now;
    }

    fn left_at(&self, now: Ticks) -> f64 {
        (self.left - self.rate * now.seconds_since(self.since)).max(0.0)
    }

    /// When the last byte is sent if the rate stays.
    fn end(&self) -> Ticks {
        if self.left <= 0.0 {
            self.since
        } else if self.rate > 0.0 {
            self.since.after(Ticks::rounded(self.left / self.rate))
        } else {
            Ticks::NEVER
        }
    }
}
