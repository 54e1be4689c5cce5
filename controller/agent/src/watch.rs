//! What one host knows of its jobs, made into reports.
//!
//! Sans-IO: what processes say, what counters show and time (seconds of a clock that never goes
//! back) are arguments, reports are the results. A job is either told by a process, whose
//! iterations are added up into windows, or watched, which is [`cadence`](crate::cadence)'s part.
//! The decision: a window of told iterations begins and ends with iterations, however long they
//! are. What happens in it then adds up, and a job whose iterations outlast a window is not told as
//! idle in between; it is told to be there.

use std::collections::BTreeMap;

use api::telemetry as proto;
use planner::JobDocument;
use proto::report::Said as Report;

use crate::announcement::{self, own_share};
use crate::cadence::Cadence;
use crate::said::{Iteration, Said};

/// Seconds of the window that says no more than that a job is still there.
const PRESENCE_SECONDS: f64 = 1e-3;

/// Iterations of one window; a controller takes ten times as many.
const MOST_STARTS: usize = 1_000;

/// How much is reported, and of how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The shortest window, seconds.
    pub window_seconds: f64,
    /// A job of which nothing was reported for so long is reported to be there, seconds.
    pub presence_seconds: f64,
    /// Jobs of this host at most.
    pub jobs: usize,
    /// Between two readings of counters, seconds.
    pub sample_seconds: f64,
    /// Seconds that are looked at to find a period.
    pub memory_seconds: f64,
}

/// Who tells of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Nobody: it is watched.
    Watched,
    /// The process behind this connection.
    Process(u64),
}

/// Why something said is not reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A job that somebody else tells of.
    #[error("another process tells of this job")]
    NotYours,
    /// A job that nobody announced.
    #[error("announce the job first")]
    Unknown,
    /// Too many.
    #[error("this host has {0} jobs already")]
    Full(usize),
}

/// The jobs of one host.
#[derive(Debug)]
pub struct Watch {
    limits: Limits,
    jobs: BTreeMap<String, Job>,
}

#[derive(Debug)]
struct Job {
    owner: Owner,
    document: JobDocument,
    /// When something of it was last reported.
    told_at: f64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Iterations said since the last window.
    Told(Option<Box<proto::Window>>),
    Watched(Box<Cadence>),
}

impl Watch {
    /// Without jobs.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
        }
    }

    /// Takes up a job that does not tell of itself, of which `host` knows its own bytes.
    ///
    /// # Errors
    /// There are too many.
    pub fn observe(
        &mut self,
        document: JobDocument,
        host: &str,
        now: f64,
    ) -> Result<Report, Refused> {
        let share = own_share(&document, host);
        let cadence = Cadence::new(&self.limits, &document, share, now);
        let source = Source::Watched(Box::new(cadence));
        self.put(Owner::Watched, document, source, now)
    }

    /// Takes in what a process says.
    ///
    /// # Errors
    /// It may not say that.
    pub fn hear(&mut self, from: u64, said: Said, now: f64) -> Result<Option<Report>, Refused> {
        let owner = Owner::Process(from);
        match said {
            Said::Job(document) => self
                .put(owner, *document, Source::Told(None), now)
                .map(Some),
            Said::Iteration(iteration) => self.add(owner, &iteration, now),
            Said::End(job) => self.of(&job, owner).map(drop).map(|()| self.end(&job)),
        }
    }

    /// A process has gone, and its jobs with it.
    pub fn leave(&mut self, process: u64) -> Vec<Report> {
        let is_its = |job: &Job| job.owner == Owner::Process(process);
        let own = self.jobs.iter().filter(|(_, job)| is_its(job));
        let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        own.iter().filter_map(|name| self.end(name)).collect()
    }

    /// Everything has ended.
    pub fn close(&mut self) -> Vec<Report> {
        let all: Vec<String> = self.jobs.keys().cloned().collect();
        all.iter().filter_map(|name| self.end(name)).collect()
    }

    /// All jobs, for a controller that knows none of them.
    pub fn announcements(&self) -> impl Iterator<Item = Report> {
        let documents = self.jobs.values().map(|job| &job.document);
        documents.map(|document| Report::Announcement(announcement::of(document)))
    }

    /// The process that tells of a job.
    pub fn owner(&self, job: &str) -> Option<Owner> {
        self.jobs.get(job).map(|job| job.owner)
    }

    /// A reading of the bytes that this host has sent for a job that is watched.
    pub fn read(&mut self, job: &str, now: f64, sent: u64) {
        if let Some(cadence) = self.watched(job) {
            cadence.read(now, sent);
        }
    }

    /// The share of the last `seconds` that GPUs were busy, for all jobs that are watched.
    pub fn busy(&mut self, seconds: f64, share: f64) {
        for job in self.jobs.values_mut() {
            if let Source::Watched(cadence) = &mut job.source {
                cadence.busy(seconds, share);
            }
        }
    }

    /// What repeats in the bytes of a job that is watched.
    pub fn period(&mut self, job: &str) -> Option<crate::Period> {
        self.watched(job)?.period()
    }

    /// What follows from time alone: windows of what is watched, and that others are still there.
    pub fn tick(&mut self, now: f64) -> Vec<Report> {
        let limits = self.limits;
        let mut reports = Vec::new();
        for (name, job) in &mut self.jobs {
            let silent = now - job.told_at;
            let window = match &mut job.source {
                Source::Watched(cadence) if silent >= limits.window_seconds => {
                    cadence.window(silent, now)
                }
                Source::Told(_) if silent >= limits.presence_seconds => proto::Window {
                    seconds: PRESENCE_SECONDS,
                    ..proto::Window::default()
                },
                _ => continue,
            };
            job.told_at = now;
            let job = name.clone();
            reports.push(Report::Window(proto::Window { job, ..window }));
        }
        reports
    }

    fn put(
        &mut self,
        owner: Owner,
        document: JobDocument,
        source: Source,
        now: f64,
    ) -> Result<Report, Refused> {
        match self.jobs.get(&document.id) {
            Some(had) if had.owner != owner => return Err(Refused::NotYours),
            None if self.jobs.len() >= self.limits.jobs => {
                return Err(Refused::Full(self.jobs.len()));
            }
            _ => {}
        }
        let report = Report::Announcement(announcement::of(&document));
        let job = Job {
            owner,
            told_at: now,
            source,
            document,
        };
        self.jobs.insert(job.document.id.clone(), job);
        Ok(report)
    }

    fn of(&mut self, job: &str, owner: Owner) -> Result<&mut Job, Refused> {
        let job = self.jobs.get_mut(job).ok_or(Refused::Unknown)?;
        let is_owner = job.owner == owner;
        is_owner.then_some(job).ok_or(Refused::NotYours)
    }

    fn watched(&mut self, job: &str) -> Option<&mut Cadence> {
        match &mut self.jobs.get_mut(job)?.source {
            Source::Watched(cadence) => Some(cadence),
            Source::Told(_) => None,
        }
    }

    /// Adds an iteration that ends now; the window that it completes.
    fn add(
        &mut self,
        owner: Owner,
        iteration: &Iteration,
        now: f64,
    ) -> Result<Option<Report>, Refused> {
        let least = self.limits.window_seconds;
        let job = self.of(&iteration.job, owner)?;
        let Source::Told(open) = &mut job.source else {
            return Err(Refused::NotYours);
        };
        let mut window = open.take().unwrap_or_else(|| Box::new(empty(iteration)));
        // Processes are heard late at times: an iteration begins where the last one ended.
        window.iteration_starts.push(window.seconds);
        window.seconds += iteration.seconds;
        window.flop += iteration.flop;
        window.compute_seconds += iteration.compute_seconds;
        window.communication_seconds += iteration.communication_seconds;
        window.bytes = window.bytes.zip(iteration.bytes).map(|(a, b)| a + b);
        if window.seconds < least && window.iteration_starts.len() < MOST_STARTS {
            *open = Some(window);
            return Ok(None);
        }
        job.told_at = now;
        Ok(Some(Report::Window(*window)))
    }

    fn end(&mut self, job: &str) -> Option<Report> {
        let job = self.jobs.remove(job)?.document.id;
        Some(Report::End(proto::End { job }))
    }
}

fn empty(iteration: &Iteration) -> proto::Window {
    proto::Window {
        job: iteration.job.clone(),
        bytes: Some(0.0),
        ..proto::Window::default()
    }
}

#[cfg(test)]
mod tests;
