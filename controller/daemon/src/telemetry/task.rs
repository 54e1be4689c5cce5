//! The task that has the [`ReportedJobRegistry`], and the way to it.
//!
//! Streams put reports into a bounded queue; whoever reports faster than its share is read no
//! faster than that, so its own connection fills up and nobody else's. The decision: what changed
//! is submitted whole and one at a time. While the controller plans, the census goes on, and what
//! it knows then is the next submission; there is no queue of changes that could grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, Severity};
use tracing::{info, warn};

use super::counter_aggregator::MeasuredTraffic;
use super::{ReportFeedback, ReportedJobRegistry, ReporterId, TelemetryReport};
use crate::access::{ControllerAccess, ControllerError};
use crate::config::{Config, TelemetryConfig};
use crate::pipelines::FabricWiring;
use crate::state::{PlanRollout, StateEvent};

/// What streams say to the desk.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A stream begins; remarks go there, and one too many is lost.
    Opened(ReporterId, mpsc::Sender<ReportFeedback>),
    /// It says something.
    Reported(ReporterId, TelemetryReport),
    /// It has ended.
    Closed(ReporterId),
}

/// The task.
pub(crate) struct TelemetryTask {
    access: ControllerAccess,
    limits: TelemetryConfig,
    events: mpsc::Receiver<StreamEvent>,
    registry: ReportedJobRegistry,
    rollout: watch::Receiver<Option<PlanRollout>>,
    streams: BTreeMap<ReporterId, mpsc::Sender<ReportFeedback>>,
    /// The fabric that the census speaks of.
    fabric: Option<(Arc<FabricWiring>, Fabric)>,
    /// What switches count, and where differences from what jobs say are shown.
    measured: watch::Receiver<Arc<MeasuredTraffic>>,
    disputes: watch::Sender<Vec<Finding>>,
    disagree_min: f64,
    /// A change that the controller is planning for.
    submitted: Option<JoinHandle<Result<(), ControllerError>>>,
    /// Since when there is a change that is not submitted.
    changed_since: Option<Instant>,
}

impl TelemetryTask {
    /// A desk that tells `access` and compares with what is `measured`, and where to call it.
    pub(crate) fn new(
        access: ControllerAccess,
        config: &Config,
        measured: watch::Receiver<Arc<MeasuredTraffic>>,
    ) -> (Self, mpsc::Sender<StreamEvent>) {
        let limits = &config.telemetry;
        let (to_desk, calls) = mpsc::channel(limits.queue.get());
        let desk = Self {
            rollout: access.watch_rollout(),
            access,
            events: calls,
            registry: ReportedJobRegistry::new(limits.clone()),
            limits: limits.clone(),
            streams: BTreeMap::new(),
            fabric: None,
            measured,
            disputes: watch::Sender::default(),
            disagree_min: config.counters.disagreement_min,
            submitted: None,
            changed_since: None,
        };
        (desk, to_desk)
    }

    /// Where what jobs say differs from what switches count.
    pub(crate) fn dispute_receiver(&self) -> watch::Receiver<Vec<Finding>> {
        self.disputes.subscribe()
    }

    /// Serves until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // An error means that the controller has stopped.
        drop(stop.run_until_cancelled(self.process_events()).await);
    }

    async fn process_events(&mut self) -> Result<(), ControllerError> {
        let mut ticks = interval(self.limits.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut mandate = self.access.watch_permit();
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
                    let remarks = self.registry.advance_time(Instant::now());
                    self.send_feedback(remarks);
                    self.compare_measurements();
                }
                changed = wait_for_change(&mut mandate) => {
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

    /// Takes up the jobs that the controller was told of before, by another desk or another run.
    async fn restore_jobs(&mut self) -> Result<(), ControllerError> {
        let told = self.access.query_state(|state| state.reported_jobs().clone()).await?;
        self.follow_fabric();
        if let Some((_, fabric)) = &self.fabric {
            self.registry.restore_jobs(&told, fabric, Instant::now());
        }
        Ok(())
    }

    fn handle_stream_event(&mut self, call: StreamEvent) {
        match call {
            StreamEvent::Opened(reporter, remarks) => {
                self.streams.insert(reporter, remarks);
            }
            StreamEvent::Closed(reporter) => {
                self.streams.remove(&reporter);
                self.registry.close_stream(reporter);
            }
            StreamEvent::Reported(reporter, report) => {
                self.follow_fabric();
                // Before the first plan there is no fabric to speak of; who reports, reports again.
                let Some((_, fabric)) = &self.fabric else {
                    return;
                };
                let remark = self.registry.ingest_report(reporter, report, fabric, Instant::now());
                self.send_feedback(remark);
            }
        }
    }

    /// Settles the census on the fabric in force, if that is another than it was. What fails or is
    /// drained in a fabric makes no other of it.
    fn follow_fabric(&mut self) {
        if self.fabric.is_some() && !self.rollout.has_changed().unwrap_or(false) {
            return;
        }
        let realised = self.rollout.borrow_and_update().clone();
        let Some(PlanRollout { wiring, fabric, .. }) = realised else {
            return;
        };
        let settled = self.fabric.as_ref();
        if settled.is_some_and(|(settled, _)| Arc::ptr_eq(settled, &wiring)) {
            return;
        }
        let remarks = self.registry.move_to_fabric(&fabric);
        if self.fabric.replace((wiring, fabric)).is_some() {
            self.send_feedback(remarks);
        }
    }

    /// Gives the controller what has changed, unless it is still planning for what did before.
    fn submit_changes(&mut self) {
        if self.registry.take_change() {
            self.changed_since.get_or_insert_with(Instant::now);
        }
        if self.submitted.is_some() {
            return;
        }
        let Some(heard) = self.changed_since.take() else {
            return;
        };
        let (access, told) = (self.access.clone(), self.registry.reported_jobs());
        self.submitted = Some(tokio::spawn(async move {
            let submitted = access.submit_reported(StateEvent::JobsReported(told), heard);
            submitted.await.map(drop)
        }));
    }

    /// Compares what jobs say with what switches count, whenever that is known anew; whoever says
    /// something else hears of it once.
    fn compare_measurements(&mut self) {
        if !self.measured.has_changed().unwrap_or(false) {
            return;
        }
        let measured = Arc::clone(&self.measured.borrow_and_update());
        let disputes =
            measured.find_disputes(&self.registry.reported_iterations(), self.disagree_min);
        let findings: Vec<Finding> = disputes.iter().map(|(_, finding)| finding.clone()).collect();
        let before = self.disputes.send_replace(findings);
        let is_new = |finding: &Finding| !before.contains(finding);
        let news = disputes.into_iter().filter(|(_, finding)| is_new(finding));
        let remarks = news.filter_map(|(job, finding)| self.registry.feedback_for(&job, finding));
        let remarks: Vec<ReportFeedback> = remarks.collect();
        self.send_feedback(remarks);
    }

    fn send_feedback(&mut self, remarks: impl IntoIterator<Item = ReportFeedback>) {
        for remark in remarks {
            if self.registry.is_new_feedback(&remark) {
                log_feedback(&remark);
            }
            let stream = remark.to.and_then(|reporter| self.streams.get(&reporter));
            if let Some(stream) = stream {
                drop(stream.try_send(remark));
            }
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

fn log_feedback(remark: &ReportFeedback) {
    let text = &remark.finding.text;
    match remark.finding.severity {
        Severity::Info => info!(job = remark.job, "{text}"),
        Severity::Warning | Severity::Error => warn!(job = remark.job, "{text}"),
    }
}
