//! What one host knows of its jobs, made into reports.
//!
//! Sans-IO: what processes say, what counters show and time (seconds of a clock that never goes
//! back) are arguments, reports are the results. A job is either told by a process, whose
//! iterations are added up into windows, or watched, which is [`traffic_observer`](crate::traffic_observer)'s part.
//! The decision: a window of told iterations begins and ends with iterations, however long they
//! are. What happens in it then adds up, and a job whose iterations outlast a window is not told as
//! idle in between; it is told to be there.

use std::collections::BTreeMap;

use api::telemetry as proto;
use planner::JobDocument;
use proto::report::Said as Report;

use crate::announcement::{self, sent_share};
use crate::process_message::{FinishedIteration, ProcessMessage};
use crate::traffic_observer::TrafficObserver;

/// Seconds of the window that says no more than that a job is still there.
const PRESENCE_SECONDS: f64 = 1e-3;

/// Iterations of one window; a controller takes ten times as many.
const MAX_STARTS: usize = 1_000;

/// How much is reported, and of how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportLimits {
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
pub enum JobOwner {
    /// Nobody: it is watched.
    Observed,
    /// The process behind this connection.
    Process(u64),
}

/// Why something said is not reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportRefusal {
    /// A job that somebody else tells of.
    #[error("another process tells of this job")]
    OtherOwner,
    /// A job that nobody announced.
    #[error("announce the job first")]
    UnknownJob,
    /// Too many.
    #[error("this host has {0} jobs already")]
    TooManyJobs(usize),
}

/// The jobs of one host.
#[derive(Debug)]
pub struct JobMonitor {
    limits: ReportLimits,
    jobs: BTreeMap<String, MonitoredJob>,
}

#[derive(Debug)]
struct MonitoredJob {
    owner: JobOwner,
    document: JobDocument,
    /// When something of it was last reported.
    reported_at: f64,
    source: IterationSource,
}

#[derive(Debug)]
enum IterationSource {
    /// Iterations said since the last window.
    Reported(Option<Box<proto::Window>>),
    Observed(Box<TrafficObserver>),
}

impl JobMonitor {
    /// Without jobs.
    pub fn new(limits: ReportLimits) -> Self {
        Self { limits, jobs: BTreeMap::new() }
    }

    /// Takes up a job that does not tell of itself, of which `host` knows its own bytes.
    ///
    /// # Errors
    /// There are too many.
    pub fn observe_job(
        &mut self,
        document: JobDocument,
        host: &str,
        now: f64,
    ) -> Result<Report, ReportRefusal> {
        let share = sent_share(&document, host);
        let cadence = TrafficObserver::new(&self.limits, &document, share, now);
        let source = IterationSource::Observed(Box::new(cadence));
        self.add_job(JobOwner::Observed, document, source, now)
    }

    /// Takes in what a process says.
    ///
    /// # Errors
    /// It may not say that.
    pub fn handle_message(
        &mut self,
        from: u64,
        said: ProcessMessage,
        now: f64,
    ) -> Result<Option<Report>, ReportRefusal> {
        let owner = JobOwner::Process(from);
        match said {
            ProcessMessage::Job(document) => {
                self.add_job(owner, *document, IterationSource::Reported(None), now).map(Some)
            }
            ProcessMessage::Iteration(iteration) => self.add_iteration(owner, &iteration, now),
            ProcessMessage::End(job) => {
                self.owned_job(&job, owner).map(drop).map(|()| self.end_job(&job))
            }
        }
    }

    /// A process has gone, and its jobs with it.
    pub fn remove_process(&mut self, process: u64) -> Vec<Report> {
        let is_its = |job: &MonitoredJob| job.owner == JobOwner::Process(process);
        let own = self.jobs.iter().filter(|(_, job)| is_its(job));
        let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        own.iter().filter_map(|name| self.end_job(name)).collect()
    }

    /// Everything has ended.
    pub fn end_all(&mut self) -> Vec<Report> {
        let all: Vec<String> = self.jobs.keys().cloned().collect();
        all.iter().filter_map(|name| self.end_job(name)).collect()
    }

    /// All jobs, for a controller that knows none of them.
    pub fn announcements(&self) -> impl Iterator<Item = Report> {
        let documents = self.jobs.values().map(|job| &job.document);
        documents.map(|document| Report::Announcement(announcement::announce_job(document)))
    }

    /// The process that tells of a job.
    pub fn owner(&self, job: &str) -> Option<JobOwner> {
        self.jobs.get(job).map(|job| job.owner)
    }

    /// A reading of the bytes that this host has sent for a job that is watched.
    pub fn record_counter(&mut self, job: &str, now: f64, sent: u64) {
        if let Some(cadence) = self.observed_job(job) {
            cadence.record_counter(now, sent);
        }
    }

    /// The share of the last `seconds` that GPUs were busy, for all jobs that are watched.
    pub fn record_gpu_busy(&mut self, seconds: f64, share: f64) {
        for job in self.jobs.values_mut() {
            if let IterationSource::Observed(cadence) = &mut job.source {
                cadence.record_gpu_busy(seconds, share);
            }
        }
    }

    /// What repeats in the bytes of a job that is watched.
    pub fn period(&mut self, job: &str) -> Option<crate::IterationPeriod> {
        self.observed_job(job)?.period()
    }

    /// What follows from time alone: windows of what is watched, and that others are still there.
    pub fn tick_windows(&mut self, now: f64) -> Vec<Report> {
        let limits = self.limits;
        let mut reports = Vec::new();
        for (name, job) in &mut self.jobs {
            let silent = now - job.reported_at;
            let window = match &mut job.source {
                IterationSource::Observed(cadence) if silent >= limits.window_seconds => {
                    cadence.take_window(silent, now)
                }
                IterationSource::Reported(_) if silent >= limits.presence_seconds => {
                    proto::Window { seconds: PRESENCE_SECONDS, ..proto::Window::default() }
                }
                _ => continue,
            };
            job.reported_at = now;
            let job = name.clone();
            reports.push(Report::Window(proto::Window { job, ..window }));
        }
        reports
    }

    fn add_job(
        &mut self,
        owner: JobOwner,
        document: JobDocument,
        source: IterationSource,
        now: f64,
    ) -> Result<Report, ReportRefusal> {
        match self.jobs.get(&document.id) {
            Some(had) if had.owner != owner => return Err(ReportRefusal::OtherOwner),
            None if self.jobs.len() >= self.limits.jobs => {
                return Err(ReportRefusal::TooManyJobs(self.jobs.len()));
            }
            _ => {}
        }
        let report = Report::Announcement(announcement::announce_job(&document));
        let job = MonitoredJob { owner, reported_at: now, source, document };
        self.jobs.insert(job.document.id.clone(), job);
        Ok(report)
    }

    fn owned_job(
        &mut self,
        job: &str,
        owner: JobOwner,
    ) -> Result<&mut MonitoredJob, ReportRefusal> {
        let job = self.jobs.get_mut(job).ok_or(ReportRefusal::UnknownJob)?;
        let is_owner = job.owner == owner;
        is_owner.then_some(job).ok_or(ReportRefusal::OtherOwner)
    }

    fn observed_job(&mut self, job: &str) -> Option<&mut TrafficObserver> {
        match &mut self.jobs.get_mut(job)?.source {
            IterationSource::Observed(cadence) => Some(cadence),
            IterationSource::Reported(_) => None,
        }
    }

    /// Adds an iteration that ends now; the window that it completes.
    fn add_iteration(
        &mut self,
        owner: JobOwner,
        iteration: &FinishedIteration,
        now: f64,
    ) -> Result<Option<Report>, ReportRefusal> {
        let least = self.limits.window_seconds;
        let job = self.owned_job(&iteration.job, owner)?;
        let IterationSource::Reported(open) = &mut job.source else {
            return Err(ReportRefusal::OtherOwner);
        };
        let mut window = open.take().unwrap_or_else(|| Box::new(empty_window(iteration)));
        // Processes are heard late at times: an iteration begins where the last one ended.
        window.iteration_starts.push(window.seconds);
        window.seconds += iteration.seconds;
        window.flop += iteration.flop;
        window.compute_seconds += iteration.compute_seconds;
        window.communication_seconds += iteration.communication_seconds;
        window.bytes = window.bytes.zip(iteration.bytes).map(|(a, b)| a + b);
        if window.seconds < least && window.iteration_starts.len() < MAX_STARTS {
            *open = Some(window);
            return Ok(None);
        }
        job.reported_at = now;
        Ok(Some(Report::Window(*window)))
    }

    fn end_job(&mut self, job: &str) -> Option<Report> {
        let job = self.jobs.remove(job)?.document.id;
        Some(Report::End(proto::End { job }))
    }
}

fn empty_window(iteration: &FinishedIteration) -> proto::Window {
    proto::Window { job: iteration.job.clone(), bytes: Some(0.0), ..proto::Window::default() }
}

#[cfg(test)]
mod tests;
