//! The jobs of one host, and the reports about them.
//!
//! Sans-IO: messages of processes, readings of counters and time (seconds of a monotonic clock) are
//! arguments, reports are results. A job is either reported by a process, whose iterations are
//! summed up into windows, or observed by a [`traffic_observer`](crate::traffic_observer). The
//! decision: a window of reported iterations begins and ends with an iteration, however long that
//! is. Its sums are then consistent, and a job whose iterations last longer than a window is not
//! reported as idle in between: a window of almost no length keeps it alive.

use std::collections::BTreeMap;

use api::telemetry as proto;
use planner::JobDocument;
use proto::job_report::Report;

use crate::announcement::{self, sent_share};
use crate::process_message::{FinishedIteration, ProcessMessage};
use crate::report_limits::ReportLimits;
use crate::traffic_observer::TrafficObserver;
use crate::unreported_jobs::UnreportedJobs;

/// Length of the window that only keeps a job alive, seconds.
const PRESENCE_SECONDS: f64 = 1e-3;

/// Iterations of one window; a controller accepts ten times as many.
const MAX_STARTS: usize = 1_000;

/// Where the iterations of a job come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobOwner {
    /// No process reports it: its traffic is observed.
    Observed,
    /// The process behind this connection.
    Process(u64),
    /// A scheduler has started it, and no process reports it yet.
    Scheduler,
}

/// Why a message of a process is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportRefusal {
    /// The job was announced by another process.
    #[error("another process reports this job")]
    OtherOwner,
    /// The job was not announced.
    #[error("unknown job: announce it first")]
    UnknownJob,
    /// The limit of jobs is reached.
    #[error("this host already reports {0} jobs, its maximum")]
    TooManyJobs(usize),
}

/// The jobs of one host and their open windows.
#[derive(Debug)]
pub struct JobMonitor {
    limits: ReportLimits,
    jobs: BTreeMap<String, MonitoredJob>,
    unreported: UnreportedJobs,
}

#[derive(Debug)]
struct MonitoredJob {
    owner: JobOwner,
    document: JobDocument,
    /// Time of the last report.
    reported_at: f64,
    source: IterationSource,
}

#[derive(Debug)]
enum IterationSource {
    /// Sum of the iterations since the last window.
    Reported(Option<Box<proto::JobWindow>>),
    Observed(Box<TrafficObserver>),
}

impl JobMonitor {
    /// A monitor that has no jobs yet.
    pub fn new(limits: ReportLimits) -> Self {
        Self { limits, jobs: BTreeMap::new(), unreported: UnreportedJobs::default() }
    }

    /// Adds a job that no process reports; its traffic is that of `host`.
    ///
    /// # Errors
    /// The limit of jobs is reached, or a process reports this job.
    pub fn observe_job(
        &mut self,
        document: JobDocument,
        host: &str,
        now: f64,
    ) -> Result<Report, ReportRefusal> {
        let share = sent_share(&document, host);
        let observer = TrafficObserver::new(&self.limits, &document, share, now);
        let source = IterationSource::Observed(Box::new(observer));
        self.add_job(JobOwner::Observed, document, source, now)
    }

    /// Makes the jobs of schedulers those in `started`: new ones are announced, absent ones end. A
    /// job that a process reports stays with the process. One that exceeds the limit of jobs is
    /// counted, and announced when there is room.
    pub fn sync_scheduled_jobs(&mut self, started: Vec<JobDocument>, now: f64) -> Vec<Report> {
        let is_ended = |(name, job): &(&String, &MonitoredJob)| {
            job.owner == JobOwner::Scheduler && !started.iter().any(|other| other.id == **name)
        };
        let ended: Vec<String> =
            self.jobs.iter().filter(is_ended).map(|(name, _)| name.clone()).collect();
        let mut reports: Vec<Report> = ended.iter().filter_map(|name| self.end_job(name)).collect();
        self.unreported.clear_scheduled();
        for document in started {
            let known = self.jobs.get(&document.id);
            let is_new = known
                .is_none_or(|job| job.owner == JobOwner::Scheduler && job.document != document);
            if is_new {
                let (name, source) = (document.id.clone(), IterationSource::Reported(None));
                match self.add_job(JobOwner::Scheduler, document, source, now) {
                    Ok(report) => reports.push(report),
                    Err(ReportRefusal::TooManyJobs(_)) => self.unreported.add_scheduled(&name),
                    // A process has it, and reports it.
                    Err(ReportRefusal::OtherOwner | ReportRefusal::UnknownJob) => {}
                }
            }
        }
        reports
    }

    /// Handles a message of the process `from`. Traffic of a communicator is no report of a job
    /// yet; [`communicator_jobs`](crate::communicator_jobs) makes messages of jobs from it.
    ///
    /// # Errors
    /// The job is unknown or belongs to another process, or there are too many.
    pub fn handle_message(
        &mut self,
        from: u64,
        message: ProcessMessage,
        now: f64,
    ) -> Result<Option<Report>, ReportRefusal> {
        let owner = JobOwner::Process(from);
        match message {
            ProcessMessage::Job(document) => {
                let (name, source) = (document.id.clone(), IterationSource::Reported(None));
                let added = self.add_job(owner, *document, source, now);
                if let Err(ReportRefusal::TooManyJobs(_)) = added {
                    self.unreported.add_announced(from, &name);
                }
                added.map(Some)
            }
            ProcessMessage::Iteration(iteration) => self.add_iteration(owner, &iteration, now),
            ProcessMessage::End(job) => {
                self.unreported.remove_announced(from, &job);
                self.owned_job(&job, owner).map(drop).map(|()| self.end_job(&job))
            }
            ProcessMessage::Communicator(_) => Ok(None),
        }
    }

    /// Ends the jobs of a process that has disconnected.
    pub fn remove_process(&mut self, process: u64) -> Vec<Report> {
        self.unreported.remove_process(process);
        let owner = JobOwner::Process(process);
        let own = self.jobs.iter().filter(|(_, job)| job.owner == owner);
        let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        own.iter().filter_map(|name| self.end_job(name)).collect()
    }

    /// Ends all jobs when the agent stops.
    pub fn end_all(&mut self) -> Vec<Report> {
        let all: Vec<String> = self.jobs.keys().cloned().collect();
        all.iter().filter_map(|name| self.end_job(name)).collect()
    }

    /// Announcements of all jobs, for a controller that has just connected.
    pub fn announcements(&self) -> impl Iterator<Item = Report> {
        let documents = self.jobs.values().map(|job| &job.document);
        documents.map(|document| Report::Announcement(announcement::announce_job(document)))
    }

    /// So many jobs of schedulers are there that nobody has read.
    pub fn set_unread_jobs(&mut self, unread: usize) {
        self.unreported.unread = unread;
    }

    /// How many jobs of this host are not reported, because the limit of jobs is reached.
    pub fn unreported_jobs(&self) -> usize {
        self.unreported.count()
    }

    /// The owner of a job, if the job is known.
    pub fn owner(&self, job: &str) -> Option<JobOwner> {
        self.jobs.get(job).map(|job| job.owner)
    }

    /// Records how many bytes this host has sent for an observed job.
    pub fn record_counter(&mut self, job: &str, now: f64, sent: u64) {
        if let Some(observer) = self.observed_job(job) {
            observer.record_counter(now, sent);
        }
    }

    /// Records the share of the last `seconds` in which GPUs were busy, for all observed jobs.
    pub fn record_gpu_busy(&mut self, seconds: f64, share: f64) {
        for job in self.jobs.values_mut() {
            if let IterationSource::Observed(observer) = &mut job.source {
                observer.record_gpu_busy(seconds, share);
            }
        }
    }

    /// The period of an observed job, if one was found.
    pub fn period(&mut self, job: &str) -> Option<period::IterationPeriod> {
        self.observed_job(job)?.period()
    }

    /// Reports that are due: windows of observed jobs, and empty windows that keep others alive.
    pub fn tick_windows(&mut self, now: f64) -> Vec<Report> {
        let limits = self.limits;
        let mut reports = Vec::new();
        for (name, job) in &mut self.jobs {
            let silent = now - job.reported_at;
            let window = match &mut job.source {
                IterationSource::Observed(observer) if silent >= limits.window_seconds => {
                    observer.take_window(silent, now)
                }
                IterationSource::Reported(_) if silent >= limits.presence_seconds => {
                    proto::JobWindow { seconds: PRESENCE_SECONDS, ..proto::JobWindow::default() }
                }
                _ => continue,
            };
            job.reported_at = now;
            let job = name.clone();
            reports.push(Report::Window(proto::JobWindow { job, ..window }));
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
            Some(known) if known.owner != owner && known.owner != JobOwner::Scheduler => {
                return Err(ReportRefusal::OtherOwner);
            }
            None if self.jobs.len() >= self.limits.jobs => {
                return Err(ReportRefusal::TooManyJobs(self.jobs.len()));
            }
            _ => {}
        }
        self.unreported.remove_job(&document.id);
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
            IterationSource::Observed(observer) => Some(observer),
            IterationSource::Reported(_) => None,
        }
    }

    /// Adds an iteration that ends now and returns the window that it completes, if it does.
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
        // Messages may arrive late, so arrival times are no use: iterations are taken to be
        // adjacent.
        window.iteration_starts.push(window.seconds);
        window.seconds += iteration.seconds;
        window.flop += iteration.flop;
        window.compute_seconds += iteration.compute_seconds;
        window.communication_seconds += iteration.communication_seconds;
        window.bytes = window.bytes.zip(iteration.bytes).map(|(a, b)| a + b);
        let offsets = window.slot_offset_seconds.zip(iteration.slot_offset_seconds);
        window.slot_offset_seconds = offsets.map(|(a, b)| a + b);
        if window.seconds < least && window.iteration_starts.len() < MAX_STARTS {
            *open = Some(window);
            return Ok(None);
        }
        job.reported_at = now;
        let iterations = window.iteration_starts.len() as f64;
        window.slot_offset_seconds = window.slot_offset_seconds.map(|sum| sum / iterations);
        Ok(Some(Report::Window(*window)))
    }

    fn end_job(&mut self, job: &str) -> Option<Report> {
        let job = self.jobs.remove(job)?.document.id;
        Some(Report::End(proto::JobEnd { job }))
    }
}

fn empty_window(iteration: &FinishedIteration) -> proto::JobWindow {
    proto::JobWindow {
        job: iteration.job.clone(),
        bytes: Some(0.0),
        slot_offset_seconds: Some(0.0),
        ..proto::JobWindow::default()
    }
}

#[cfg(test)]
mod tests;
