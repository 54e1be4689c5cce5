//! Reports of the lead about its jobs to a controller, as `crux agent` sends them for real jobs.
//!
//! The lead measures every iteration, so it reports for all hosts, and the agent's library
//! aggregates the reports. The decision: nothing is reported that a process could not have
//! measured, so a controller profiles these jobs first.

use agent::process_message::{FinishedIteration, ProcessMessage, StartSlot};
use agent::report_stream::{ControllerTarget, ReportStream, ReportStreamEvent};
use agent::{JobMonitor, ReportLimits};
use controller::store::jobs_document;
use planner::{Job, JobDocument};
use topology::Fabric;

use command_io::CommandError;

/// The id of the one process that all jobs belong to.
const LEAD: u64 = 0;
/// Limits of the reports; counters are not read.
const LIMITS: ReportLimits = ReportLimits {
    window_seconds: 0.5,
    presence_seconds: 3.0,
    jobs: 64,
    sample_seconds: 1.0,
    memory_seconds: 1.0,
};

/// The connection to the controller, and the jobs that are reported.
pub(super) struct JobReporter {
    watch: JobMonitor,
    uplink: ReportStream,
    jobs: Vec<IterationState>,
    /// Unix time when the clock of the run was 0.
    since_unix: f64,
}

/// A job and the progress of its current iteration.
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
    slot: Option<StartSlot>,
    /// How long after its slot it began to send.
    slot_offset: Option<f64>,
}

impl JobReporter {
    /// Starts to connect to a controller, and announces all jobs.
    pub(super) fn connect_and_announce(
        contact: &ControllerTarget,
        fabric: &Fabric,
        jobs: &[Job],
        since_unix: f64,
    ) -> Result<Self, CommandError> {
        let uplink = ReportStream::open(contact)
            .map_err(|error| CommandError::input("--controller", error))?;
        let mut watch = JobMonitor::new(LIMITS);
        for document in jobs_document(fabric, jobs).jobs {
            let message = ProcessMessage::Job(Box::new(without_profile(document)));
            watch.handle_message(LEAD, message, 0.0).map_err(CommandError::failed)?;
        }
        let jobs = jobs.iter().map(IterationState::new).collect();
        Ok(Self { watch, uplink, jobs, since_unix })
    }

    /// Receives feedback; announces all jobs again after a reconnect. The result is a job that is to
    /// begin its iterations otherwise, with its slot by the clock of the run.
    pub(super) async fn receive_feedback(&mut self) -> Option<(usize, Option<StartSlot>)> {
        match self.uplink.next_event().await {
            ReportStreamEvent::Opened => {
                for report in self.watch.announcements() {
                    self.uplink.send_report(report);
                }
                None
            }
            ReportStreamEvent::Feedback(feedback) => {
                tracing::info!(job = feedback.job, "{}: {}", feedback.severity, feedback.text);
                let slot = StartSlot::from(feedback.slot?);
                let job = self.jobs.iter().position(|job| job.id == feedback.job)?;
                let slot = Some(slot).filter(StartSlot::is_given).map(|slot| StartSlot {
                    first_send_seconds: slot.first_send_seconds - self.since_unix,
                    ..slot
                });
                self.jobs[job].slot = slot;
                Some((job, slot))
            }
        }
    }

    /// Records that a job begins to send.
    pub(super) fn begin_sending(&mut self, job: usize, now: f64) {
        let reported = &mut self.jobs[job];
        (reported.sending_since, reported.left) = (now, reported.flows);
        reported.slot_offset = reported.slot.map(|slot| {
            let late = (now - slot.first_send_seconds).rem_euclid(slot.period_seconds);
            if late > slot.period_seconds / 2.0 { late - slot.period_seconds } else { late }
        });
    }

    /// Records that a flow of a job has finished.
    pub(super) fn finish_flow(&mut self, job: usize, now: f64) {
        let reported = &mut self.jobs[job];
        reported.left = reported.left.saturating_sub(1);
        if reported.left == 0 {
            reported.communication_seconds = now - reported.sending_since;
        }
    }

    /// Records that a job begins an iteration, which ends the one before.
    pub(super) fn begin_iteration(&mut self, job: usize, now: f64) {
        let reported = &mut self.jobs[job];
        let Some(began) = reported.began.replace(now).filter(|began| *began < now) else {
            return;
        };
        let iteration = FinishedIteration {
            job: reported.id.clone(),
            seconds: now - began,
            flop: reported.flop,
            compute_seconds: reported.compute_seconds,
            communication_seconds: reported.communication_seconds,
            bytes: Some(reported.bytes),
            slot_offset_seconds: reported.slot_offset,
        };
        self.submit_message(ProcessMessage::Iteration(iteration), now);
    }

    /// Advances time and sends the reports that are due.
    pub(super) fn advance_time(&mut self, now: f64) {
        for report in self.watch.tick_windows(now) {
            self.uplink.send_report(report);
        }
    }

    /// Reports the end of all jobs and closes the connection.
    pub(super) async fn close(mut self) {
        for report in self.watch.end_all() {
            self.uplink.send_report(report);
        }
        self.uplink.close().await;
    }

    fn submit_message(&mut self, message: ProcessMessage, now: f64) {
        // The lead announced all its jobs, so no report is refused.
        if let Ok(Some(report)) = self.watch.handle_message(LEAD, message, now) {
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
            slot: None,
            slot_offset: None,
        }
    }
}

/// Removes what only a run can measure: hosts, flows and the share of bytes of each remain.
fn without_profile(document: JobDocument) -> JobDocument {
    let begin_apart = document.flows.iter().flatten().any(|flow| flow.overlap_from.is_some());
    JobDocument {
        flop_per_iteration: None,
        compute_seconds: None,
        overlap_from: document.overlap_from.filter(|_| begin_apart),
        ..document
    }
}
