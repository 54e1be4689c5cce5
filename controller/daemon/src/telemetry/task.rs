//! The task that owns the [`ReportedJobRegistry`].
//!
//! Streams put reports into a bounded queue. Each stream is read at its rate limit, so a reporter
//! that exceeds it fills its own connection only. The decision: all reported jobs are submitted
//! together, and one submission at a time. While the controller plans, the registry continues, and
//! its contents at the end are the next submission; no queue of changes can grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use planner::JobId;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, HostId, Severity};
use tracing::{info, warn};

use super::counter_aggregator::MeasuredTraffic;
use super::flow_feedback::FlowFeedback;
use super::host_levels::{LevelFeedback, levels_of_hosts};
use super::host_reporters::{self, HostReporters};
use super::host_statuses::HostStatuses;
use super::measured_iteration::MeasuredIteration;
use super::refused_reports::RefusedReports;
use super::{
    HostStatus, ReportFeedback, ReportedJobRegistry, ReporterId, ReporterIdentity, ReporterReply,
    TelemetryReport,
};
use crate::access::{ControllerAccess, ControllerError};
use crate::config::{Config, TelemetryConfig};
use crate::learning::HostQueuePairs;
use crate::pipelines::FabricWiring;
use crate::state::{PlanRollout, StateEvent};
use crate::supervision::TaskSupervisor;

/// What streams send to the telemetry task.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A stream begins; feedback goes there, and is lost while the queue is full.
    Opened(ReporterId, ReporterIdentity, mpsc::Sender<ReporterReply>),
    /// The stream received a report, which keeps its share of the queue until it is processed.
    Reported(ReporterId, TelemetryReport, QueueShare),
    /// The stream has ended.
    Closed(ReporterId),
}

/// The bytes of a report in the queue, of all streams and of its own.
pub(crate) type QueueShare = [OwnedSemaphorePermit; 2];

/// What the reports of all jobs come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportSummary {
    /// Where they differ from what switches count.
    pub(crate) disputes: Vec<Finding>,
    /// What reporters of hosts cannot do for them.
    pub(crate) host_findings: Vec<Finding>,
    /// Jobs whose reports are refused.
    pub(crate) refusals: Vec<Finding>,
    /// Iterations of jobs whose reports tell of them, under the plan in force.
    pub(crate) iterations: BTreeMap<JobId, MeasuredIteration>,
}

/// Applies reports to the registry and submits its changes to the controller.
pub(crate) struct TelemetryTask {
    access: ControllerAccess,
    limits: TelemetryConfig,
    events: mpsc::Receiver<StreamEvent>,
    registry: ReportedJobRegistry,
    hosts: HostReporters,
    host_statuses: HostStatuses,
    level_feedback: LevelFeedback,
    flow_feedback: FlowFeedback,
    refused_reports: RefusedReports,
    rollout: watch::Receiver<Option<PlanRollout>>,
    streams: BTreeMap<ReporterId, (ReporterIdentity, mpsc::Sender<ReporterReply>)>,
    /// The fabric in which the registry resolves jobs.
    fabric: Option<(Arc<FabricWiring>, Fabric)>,
    /// What switches count, and where reports are published beside it.
    measured: watch::Receiver<Arc<MeasuredTraffic>>,
    summary: watch::Sender<ReportSummary>,
    disagree_min: f64,
    /// A change that the controller is planning for.
    submitted: Option<JoinHandle<Result<(), ControllerError>>>,
    /// Since when there is a change that is not submitted.
    changed_since: Option<Instant>,
}

impl TelemetryTask {
    /// A task that submits to `access` and compares reports with what is `measured`, and the sender
    /// of its events.
    pub(crate) fn new(
        access: ControllerAccess,
        config: &Config,
        measured: watch::Receiver<Arc<MeasuredTraffic>>,
    ) -> (Self, mpsc::Sender<StreamEvent>) {
        let limits = &config.telemetry;
        let (event_sender, events) = mpsc::channel(limits.queue.get());
        let task = Self {
            rollout: access.watch_rollout(),
            access,
            events,
            registry: ReportedJobRegistry::new(*limits),
            hosts: HostReporters::new(limits.grace),
            host_statuses: HostStatuses::new(limits.grace, Instant::now()),
            level_feedback: LevelFeedback::default(),
            flow_feedback: FlowFeedback::default(),
            refused_reports: RefusedReports::default(),
            limits: *limits,
            streams: BTreeMap::new(),
            fabric: None,
            measured,
            summary: watch::Sender::default(),
            disagree_min: config.counters.disagreement_min,
            submitted: None,
            changed_since: None,
        };
        (task, event_sender)
    }

    /// What the reports of all jobs come to.
    pub(crate) fn summary_receiver(&self) -> watch::Receiver<ReportSummary> {
        self.summary.subscribe()
    }

    /// Serves until `stop`.
    pub(crate) async fn run(mut self, supervisor: TaskSupervisor, stop: CancellationToken) {
        let running = supervisor.run_restarting("telemetry", &mut self, |task| {
            // An error means that the controller has stopped.
            task.process_events().map(drop).boxed()
        });
        stop.run_until_cancelled(running).await;
    }

    async fn process_events(&mut self) -> Result<(), ControllerError> {
        let mut ticks = interval(self.limits.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut permit = self.access.watch_permit();
        self.restore_jobs().await?;
        loop {
            let submitted = &mut self.submitted;
            tokio::select! {
                biased;
                done = submission_done(submitted), if submitted.is_some() => {
                    self.submitted = None;
                    done?;
                }
                _ = ticks.tick() => {
                    self.follow_fabric();
                    let feedback = self.registry.advance_time(Instant::now());
                    self.send_feedback(feedback);
                    self.publish_iterations();
                    self.publish_host_findings();
                    self.publish_refusals();
                    self.send_levels();
                    self.send_slots();
                    self.compare_measurements();
                }
                changed = wait_for_change(&mut permit) => {
                    changed?;
                    self.restore_jobs().await?;
                }
                event = self.events.recv() => {
                    self.handle_stream_event(event.ok_or(ControllerError::Stopped)?);
                }
            }
            self.submit_changes();
        }
    }

    /// Restores the jobs of the state, which another member or an earlier run may have put there.
    async fn restore_jobs(&mut self) -> Result<(), ControllerError> {
        let reported = self.access.query_state(|state| state.reported_jobs().clone()).await?;
        self.follow_fabric();
        if let Some((_, fabric)) = &self.fabric {
            self.registry.restore_jobs(&reported, fabric, Instant::now());
        }
        Ok(())
    }

    fn handle_stream_event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened(reporter, identity, feedback) => {
                self.registry.open_stream(reporter, identity.clone());
                self.streams.insert(reporter, (identity, feedback));
            }
            StreamEvent::Closed(reporter) => {
                if let Some((identity, _)) = self.streams.remove(&reporter) {
                    self.hosts.close_stream(reporter, &identity);
                    self.host_statuses.close_stream(reporter, &identity);
                }
                self.registry.close_stream(reporter);
            }
            StreamEvent::Reported(reporter, report, share) => {
                drop(share);
                self.follow_fabric();
                // Before the first plan there is no fabric to resolve jobs in; reports repeat.
                let Some((_, fabric)) = &self.fabric else {
                    return;
                };
                let now = Instant::now();
                let feedback = match report {
                    TelemetryReport::Job(report) => {
                        self.registry.ingest_report(reporter, report, fabric, now)
                    }
                    TelemetryReport::QueuePairs(report) => {
                        let finding = self.pass_queue_pairs(reporter, report).unwrap_or_else(Some);
                        let (to, job) = (Some(reporter), String::new());
                        finding.map(|finding| ReportFeedback { to, job, finding })
                    }
                    TelemetryReport::HostStatus(status) => {
                        let finding = self.keep_status(reporter, status).err();
                        let (to, job) = (Some(reporter), String::new());
                        finding.map(|finding| ReportFeedback { to, job, finding })
                    }
                };
                self.send_feedback(feedback);
            }
        }
    }

    fn keep_status(&mut self, from: ReporterId, status: HostStatus) -> Result<(), Finding> {
        let known = self.streams.get(&from).zip(self.fabric.as_ref());
        let Some(((identity, _), (_, fabric))) = known else {
            return Ok(());
        };
        host_reporters::check_host(&status.host, fabric)?;
        let (host, levels) = (status.host.clone(), status.levels.clone());
        self.host_statuses.set_status((from, identity), status, Instant::now())?;
        let behind =
            levels.and_then(|levels| self.level_feedback.levels_after(&host, levels.revision));
        if let Some(levels) = behind {
            self.send_reply(from, ReporterReply::Levels(levels));
        }
        Ok(())
    }

    /// Sends the levels in force to the hosts that set them and do not have them yet.
    fn send_levels(&mut self) {
        let rollout = self.rollout.borrow().clone();
        let Some(rollout) = rollout.filter(|_| self.level_feedback.take_stale()) else {
            return;
        };
        let setters = self
            .host_statuses
            .level_setters()
            .filter_map(|(host, reporter)| Some((rollout.fabric.host_named(host)?, reporter)));
        let setters: BTreeMap<HostId, ReporterId> = setters.collect();
        let is_visible = |host: HostId, job: &JobId| {
            let scope = setters.get(&host).and_then(|reporter| self.streams.get(reporter));
            scope.is_some_and(|(identity, _)| {
                let scope = &identity.scope;
                scope.has_tenant(None) || scope.has_tenant(self.registry.tenant_of(job).as_deref())
            })
        };
        let hosts = setters.keys().copied().collect();
        let found = levels_of_hosts(&rollout, &hosts, is_visible);
        let reporters: BTreeMap<String, ReporterId> = found
            .iter()
            .filter_map(|(host, levels)| Some((levels.host.clone(), *setters.get(host)?)))
            .collect();
        for levels in self.level_feedback.replace_levels(found.into_values()) {
            if let Some(reporter) = reporters.get(&levels.host) {
                self.send_reply(*reporter, ReporterReply::Levels(levels));
            }
        }
    }

    /// Sends jobs that wait their slots, where these are new.
    fn send_slots(&mut self) {
        for change in self.registry.take_slot_changes(Instant::now()) {
            self.send_reply(change.to, ReporterReply::Slot(change));
        }
    }

    /// Passes the queue pairs of a host on to learning, where its reporter may report them. A full
    /// queue loses the report; the next one has all of it again.
    fn pass_queue_pairs(
        &mut self,
        from: ReporterId,
        mut report: HostQueuePairs,
    ) -> Result<Option<Finding>, Finding> {
        let known = self.streams.get(&from).zip(self.fabric.as_ref());
        let Some(((identity, _), (_, fabric))) = known else {
            return Ok(None);
        };
        host_reporters::check_host(&report.host, fabric)?;
        let is_first = self.hosts.claim_host(&report.host, (from, identity), Instant::now())?;
        host_reporters::name_pods(&mut report, |uid| self.registry.job_of_pod(uid));
        let tenant_of = |job: &JobId| self.registry.tenant_of(job);
        let foreign = host_reporters::leave_out_foreign(&mut report, &identity.scope, tenant_of);
        let subject = format!("queue pairs of {}", report.host);
        let text = match self.access.queue_pair_queue() {
            None => "not used: learning.enabled of the controller is false".to_owned(),
            Some(queue) => {
                drop(queue.try_send(report));
                format!(
                    "joined with those of other hosts; {foreign} groups left out, of jobs that \
                     this token may not report"
                )
            }
        };
        Ok(is_first.then(|| Finding::info(subject, text)))
    }

    /// Moves the registry to the fabric in force, if that has changed. Failures and drains in a
    /// fabric do not count as a change.
    fn follow_fabric(&mut self) {
        if self.fabric.is_some() && !self.rollout.has_changed().unwrap_or(false) {
            return;
        }
        let rollout = self.rollout.borrow_and_update().clone();
        let Some(rollout) = &rollout else {
            return;
        };
        let PlanRollout { wiring, fabric, plan, report, .. } = rollout.clone();
        self.registry.follow_plan(&plan, &report, Instant::now());
        self.level_feedback.mark_stale();
        let outcomes = self.flow_feedback.follow_rollout(rollout);
        let outcomes: Vec<ReportFeedback> = outcomes
            .into_iter()
            .filter_map(|(job, finding)| self.registry.feedback_for(&job, finding))
            .collect();
        self.send_feedback(outcomes);
        let settled = self.fabric.as_ref();
        if settled.is_some_and(|(settled, _)| Arc::ptr_eq(settled, &wiring)) {
            return;
        }
        self.host_statuses.set_fabric(&fabric);
        let feedback = self.registry.move_to_fabric(&fabric);
        if self.fabric.replace((wiring, fabric)).is_some() {
            self.send_feedback(feedback);
        }
    }

    /// Submits all jobs if any has changed, unless an earlier submission is still being planned.
    fn submit_changes(&mut self) {
        if self.registry.take_change() {
            self.changed_since.get_or_insert_with(Instant::now);
        }
        if self.submitted.is_some() {
            return;
        }
        let Some(reported_at) = self.changed_since.take() else {
            return;
        };
        let (access, reported) = (self.access.clone(), self.registry.reported_jobs());
        self.submitted = Some(tokio::spawn(async move {
            let submitted = access.submit_reported(StateEvent::JobsReported(reported), reported_at);
            submitted.await.map(drop)
        }));
    }

    fn publish_iterations(&mut self) {
        let iterations = self.registry.measured_iterations();
        self.summary.send_if_modified(|summary| {
            let is_new = summary.iterations != iterations;
            summary.iterations = iterations;
            is_new
        });
    }

    /// Publishes the findings of hosts; a host that had none is logged.
    fn publish_host_findings(&mut self) {
        let findings = self.host_statuses.current_findings(Instant::now());
        self.summary.send_if_modified(|summary| {
            let before = std::mem::replace(&mut summary.host_findings, findings);
            let is_known = |about: &str| before.iter().any(|finding| finding.about == about);
            for finding in summary.host_findings.iter().filter(|new| !is_known(&new.about)) {
                warn!(about = finding.about, "{}", finding.text);
            }
            before != summary.host_findings
        });
    }

    /// Compares reports with what switches count after every new measurement; a reporter receives
    /// each difference once.
    fn compare_measurements(&mut self) {
        if !self.measured.has_changed().unwrap_or(false) {
            return;
        }
        let measured = Arc::clone(&self.measured.borrow_and_update());
        let disputes =
            measured.find_disputes(&self.registry.reported_iterations(), self.disagree_min);
        let findings: Vec<Finding> = disputes.iter().map(|(_, finding)| finding.clone()).collect();
        let mut before = Vec::new();
        self.summary.send_modify(|summary| {
            before = std::mem::replace(&mut summary.disputes, findings);
        });
        let new = disputes.into_iter().filter(|(_, finding)| !before.contains(finding));
        let feedback: Vec<ReportFeedback> =
            new.filter_map(|(job, finding)| self.registry.feedback_for(&job, finding)).collect();
        self.send_feedback(feedback);
    }

    /// Publishes which jobs have reports that are refused.
    fn publish_refusals(&mut self) {
        let mut refusals = self.refused_reports.current_findings(Instant::now());
        refusals.extend(self.registry.distrust_findings());
        self.summary.send_if_modified(|summary| {
            let before = std::mem::replace(&mut summary.refusals, refusals);
            before != summary.refusals
        });
    }

    fn send_feedback(&mut self, feedback: impl IntoIterator<Item = ReportFeedback>) {
        for reply in feedback {
            let is_new_refusal = reply.is_refusal() && self.record_refusal(&reply);
            if self.registry.is_new_feedback(&reply) || is_new_refusal {
                log_feedback(&reply);
            }
            if is_new_refusal {
                self.publish_refusals();
            }
            if let Some(reporter) = reply.to {
                self.send_reply(reporter, ReporterReply::Feedback(reply));
            }
        }
    }

    /// Keeps a refusal for doctor; whether it is a new one.
    fn record_refusal(&mut self, reply: &ReportFeedback) -> bool {
        let stream = reply.to.and_then(|to| self.streams.get(&to));
        let unknown = ReporterIdentity::default();
        let reporter = stream.map_or(&unknown, |(identity, _)| identity);
        let refused = (reply.job.as_str(), &reply.finding);
        self.refused_reports.record_refusal(reporter, refused, Instant::now())
    }

    /// A reporter that does not read its feedback loses it; the task must not wait.
    fn send_reply(&self, to: ReporterId, reply: ReporterReply) {
        if let Some((_, stream)) = self.streams.get(&to) {
            drop(stream.try_send(reply));
        }
    }
}

async fn submission_done(
    submitted: &mut Option<JoinHandle<Result<(), ControllerError>>>,
) -> Result<(), ControllerError> {
    let task = submitted.as_mut().expect("asked only if there is one");
    task.await.unwrap_or(Err(ControllerError::Stopped))
}

async fn wait_for_change<T>(watched: &mut watch::Receiver<T>) -> Result<(), ControllerError> {
    watched.changed().await.map_err(|_| ControllerError::Stopped)
}

fn log_feedback(feedback: &ReportFeedback) {
    let text = &feedback.finding.text;
    match feedback.finding.severity {
        Severity::Info => info!(job = feedback.job, "{text}"),
        Severity::Warning | Severity::Error => warn!(job = feedback.job, "{text}"),
    }
}
