//! What the lead tells a controller of its jobs, as `crux agent` would of real ones.
//!
//! The lead sees every iteration, so it speaks for all hosts: it says what each took, and the agent
//! makes reports of that ([`agent::FileWatch`]). The decision: nothing is told that a process would not
//! know of itself before it has run, so a controller profiles these jobs first.

use agent::process_message::{FinishedIteration, ProcessMessage};
use agent::report_stream::{ControllerTarget, ReportStream, ReportStreamEvent};
use agent::{JobMonitor, ReportLimits};
use controller::store::jobs_document;
use planner::{Job, JobDocument};
use topology::Fabric;

use command_io::CommandError;

/// The one process that all jobs belong to.
const LEAD: u64 = 0;
/// How much is told; counters are not read.
const LIMITS: ReportLimits = ReportLimits {
    window_seconds: 0.5,
    presence_seconds: 3.0,
    jobs: 64,
    sample_seconds: 1.0,
    memory_seconds: 1.0,
};

/// The way to the controller, and what is told.
pub(super) struct JobReporter {
    watch: JobMonitor,
    uplink: ReportStream,
    jobs: Vec<IterationState>,
}

/// A job, and how far its iteration is.
struct IterationState {
    id: String,
    flop: f64,
    compute_seconds: f64,
    bytes: f64,
    flows: usize,
    began: Option<f64>,
    sending_since: f64,
    left: usize,
    communication_seconds: f64,
}

impl JobReporter {
    /// Begins to connect to a controller, and announces all jobs.
    pub(super) fn connect_and_announce(
        contact: &ControllerTarget,
        fabric: &Fabric,
        jobs: &[Job],
    ) -> Result<Self, CommandError> {
        let uplink = ReportStream::open(contact)
            .map_err(|error| CommandError::input("--controller", error))?;
        let mut watch = JobMonitor::new(LIMITS);
        for document in jobs_document(fabric, jobs).jobs {
            let said = ProcessMessage::Job(Box::new(without_profile(document)));
            watch.handle_message(LEAD, said, 0.0).map_err(CommandError::failed)?;
        }
        let jobs = jobs.iter().map(IterationState::new).collect();
        Ok(Self { watch, uplink, jobs })
    }

    /// Waits for the controller; what is to be said when it was away is said by itself.
    pub(super) async fn receive_feedback(&mut self) {
        match self.uplink.next_event().await {
            ReportStreamEvent::Opened => {
                for report in self.watch.announcements() {
                    self.uplink.send_report(report);
                }
            }
            ReportStreamEvent::Feedback(remark) => {
                tracing::info!(job = remark.job, "{}: {}", remark.severity, remark.text);
            }
        }
    }

    /// The flows of a job's iteration begin.
    pub(super) fn begin_sending(&mut self, job: usize, now: f64) {
        let told = &mut self.jobs[job];
        (told.sending_since, told.left) = (now, told.flows);
    }

    /// A flow of a job has ended.
    pub(super) fn finish_flow(&mut self, job: usize, now: f64) {
        let told = &mut self.jobs[job];
        told.left = told.left.saturating_sub(1);
        if told.left == 0 {
            told.communication_seconds = now - told.sending_since;
        }
    }

    /// An iteration of a job begins, and the one before it has ended.
    pub(super) fn begin_iteration(&mut self, job: usize, now: f64) {
        let told = &mut self.jobs[job];
        let Some(began) = told.began.replace(now).filter(|began| *began < now) else {
            return;
        };
        let iteration = FinishedIteration {
            job: told.id.clone(),
            seconds: now - began,
            flop: told.flop,
            compute_seconds: told.compute_seconds,
            communication_seconds: told.communication_seconds,
            bytes: Some(told.bytes),
        };
        self.submit_message(ProcessMessage::Iteration(iteration), now);
    }

    /// Time has passed.
    pub(super) fn advance_time(&mut self, now: f64) {
        for report in self.watch.tick_windows(now) {
            self.uplink.send_report(report);
        }
    }

    /// All jobs have ended.
    pub(super) async fn close(mut self) {
        for report in self.watch.end_all() {
            self.uplink.send_report(report);
        }
        self.uplink.close().await;
    }

    fn submit_message(&mut self, said: ProcessMessage, now: f64) {
        // The lead announced all its jobs, so nothing is refused.
        if let Ok(Some(report)) = self.watch.handle_message(LEAD, said, now) {
            self.uplink.send_report(report);
        }
    }
}

impl IterationState {
    fn new(job: &Job) -> Self {
        Self {
            id: job.id.to_string(),
            flop: job.flop_per_iteration,
            compute_seconds: job.compute_seconds,
            bytes: job.flows.iter().map(|flow| flow.bytes).sum(),
            flows: job.flows.len(),
            began: None,
            sending_since: 0.0,
            left: 0,
            communication_seconds: 0.0,
        }
    }
}

/// What is known before a job has run: its hosts and flows, and how its bytes are shared out.
fn without_profile(document: JobDocument) -> JobDocument {
    JobDocument { flop_per_iteration: None, compute_seconds: None, overlap_from: None, ..document }
}
