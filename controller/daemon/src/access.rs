//! The access of the rest of the program to a running controller.
//!
//! [`runtime`](crate::runtime) is at the other end of its queue. The decision: callers submit
//! events and observations and read what is planned and held; no one changes the state in another
//! way.

mod stages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use topology::{Fabric, Finding, LinkId, SwitchId, one_line};

pub use self::stages::{LatencyHistogram, StageHistograms};
use crate::audit::AuditTrail;
use crate::certificates::CertificateEnds;
use crate::clock::Clock;
use crate::discovery::DiscoveryReport;
use crate::event_log::EventRing;
use crate::fabric_history::FabricHistory;
use crate::gnmi::FabricCounters;
use crate::learning::{HostQueuePairs, LearnedFlows};
use crate::liveness::{FabricPart, PartHealth};
use crate::pipelines::sai::ProgramInUse;
use crate::southbound::write_permit::WritePermit;
use crate::southbound::{ChangeTiming, DesiredTables, StatusBoard, SwitchStatus};
use crate::standing_findings::StandingFindings;
use crate::state::{
    ConsideredFabric, DrainProgress, DrainReport, EventSubmission, FabricProposal, LeadChange,
    LinkUse, PlanRollout, State, StateEvent, SubmitReceipt,
};
use crate::store::{EmbeddedStore, StoreError};
use crate::supervision::{LoopHeartbeat, TaskSupervisor};

/// A failure of a controller, at its start or later.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The controller has stopped.
    #[error("the controller has stopped")]
    Stopped,
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The flight recorder cannot be opened.
    #[error("cannot open the flight recorder's folder")]
    Recorder(#[from] std::io::Error),
    /// The audit trail cannot be opened.
    #[error("cannot open the audit trail")]
    Audit(#[source] std::io::Error),
    /// The trace exporter cannot be created.
    #[error("cannot send traces")]
    Traces(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Its SAI P4 program cannot be used.
    #[error("cannot push the program of sai.p4info")]
    Program(#[from] ProgramInUse),
    /// The controller refused its fabric, policy or jobs.
    #[error("the controller cannot start: {}", one_line(.0))]
    Refused(Vec<Finding>),
    /// Not every switch holds the tables in time.
    #[error("not verified within {} ms: {}", .within.as_millis(), .missing.join(", "))]
    NotVerified {
        /// How long the caller waited.
        within: Duration,
        /// The switches that miss tables, each with the reason as far as it is known.
        missing: Vec<String>,
    },
}

/// Access to a running controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerAccess {
    pub(crate) controller: u32,
    pub(crate) clock: Clock,
    pub(crate) events: mpsc::Sender<EventSubmission>,
    pub(crate) desired: watch::Receiver<Arc<DesiredTables>>,
    pub(crate) rollout: watch::Receiver<Option<PlanRollout>>,
    pub(crate) revision: watch::Receiver<(u64, bool)>,
    pub(crate) fabric_history: watch::Receiver<Arc<FabricHistory>>,
    pub(crate) certificate_ends: watch::Receiver<Arc<CertificateEnds>>,
    pub(crate) board: StatusBoard,
    pub(crate) write_permit: watch::Receiver<WritePermit>,
    pub(crate) stages: watch::Receiver<StageHistograms>,
    pub(crate) discovered: watch::Receiver<Arc<DiscoveryReport>>,
    pub(crate) learned: watch::Receiver<Arc<LearnedFlows>>,
    /// Where the queue pairs of hosts go; none if learning is disabled.
    pub(crate) queue_pairs: Option<mpsc::Sender<HostQueuePairs>>,
    pub(crate) drains: watch::Receiver<DrainProgress>,
    pub(crate) link_use: watch::Sender<Arc<LinkUse>>,
    pub(crate) recent_events: watch::Receiver<EventRing>,
    /// How long calls to a switch must fail before changes do not wait for it.
    pub(crate) quarantine_after: Duration,
    pub(crate) findings: StandingFindings,
    pub(crate) port_counters: watch::Receiver<FabricCounters>,
    pub(crate) audit: AuditTrail,
    pub(crate) supervisor: TaskSupervisor,
    pub(crate) heartbeat: LoopHeartbeat,
    /// Whether the switches elect, without etcd.
    pub(crate) is_switch_led: bool,
    /// The store of this controller, if it has one. The controller owns it: connections that are
    /// open for longer do not keep it open.
    pub(crate) store: Option<Weak<EmbeddedStore>>,
}

impl ControllerAccess {
    /// Submits an event and waits until the controller has planned for it. Waits longer if more
    /// events are under way than the queue holds.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn submit_event(&self, event: StateEvent) -> Result<SubmitReceipt, ControllerError> {
        self.submit_reported(event, Instant::now()).await
    }

    /// Submits an event that combines reports since `first_reported`.
    pub(crate) async fn submit_reported(
        &self,
        event: StateEvent,
        first_reported: Instant,
    ) -> Result<SubmitReceipt, ControllerError> {
        let (submission, receipt) = EventSubmission::event(event, first_reported);
        self.send_submission(submission).await?;
        receipt.await.map_err(|_| ControllerError::Stopped)
    }

    /// What would follow from a fabric, or why it would be refused.
    ///
    /// # Errors
    /// The controller has stopped.
    pub(crate) async fn consider_fabric(
        &self,
        fabric: Fabric,
    ) -> Result<Result<ConsideredFabric, Finding>, ControllerError> {
        let (submission, answer) = EventSubmission::fabric_preview(fabric);
        self.send_submission(submission).await?;
        answer.await.map_err(|_| ControllerError::Stopped)
    }

    /// Has a fabric in force, and waits until the controller has planned for it.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn apply_fabric(
        &self,
        proposal: FabricProposal,
    ) -> Result<SubmitReceipt, ControllerError> {
        let (submission, receipt) = EventSubmission::fabric_proposal(proposal);
        self.send_submission(submission).await?;
        receipt.await.map_err(|_| ControllerError::Stopped)
    }

    /// The fabrics that operators gave, the last in force; empty where discovery finds it.
    pub fn fabric_history(&self) -> Arc<FabricHistory> {
        Arc::clone(&self.fabric_history.borrow())
    }

    /// The number of this controller.
    pub fn controller_number(&self) -> u32 {
        self.controller
    }

    /// Has this controller take the lead, which is refused where etcd elects; or leave
    /// the lead, which is refused where nobody can take it. The refusal, if any.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn change_lead(
        &self,
        change: LeadChange,
    ) -> Result<Option<Finding>, ControllerError> {
        let (submission, refusal) = EventSubmission::lead(change);
        self.send_submission(submission).await?;
        refusal.await.map_err(|_| ControllerError::Stopped)
    }

    /// When the event loop last answered its watchdog.
    pub fn heartbeat(&self) -> &LoopHeartbeat {
        &self.heartbeat
    }

    /// Reports the observed health of a cable or a switch, at every check or only when it changes.
    /// A cable that goes down is confirmed at once, see [`liveness`](crate::liveness).
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn report_health(
        &self,
        part: FabricPart,
        health: PartHealth,
    ) -> Result<(), ControllerError> {
        self.send_submission(EventSubmission::part_health(part, health)).await
    }

    /// The result of a query of the state. It runs in the event loop between two events, so it must
    /// do no more than copy what it needs.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn query_state<R: Send + 'static>(
        &self,
        query: impl FnOnce(&State) -> R + Send + 'static,
    ) -> Result<R, ControllerError> {
        let (submission, result) = EventSubmission::query(query);
        self.send_submission(submission).await?;
        result.await.map_err(|_| ControllerError::Stopped)
    }

    /// The clock of the controller, for Unix time.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The tables that the switches should hold now.
    pub fn desired_tables(&self) -> Arc<DesiredTables> {
        Arc::clone(&self.desired.borrow())
    }

    /// The fabric, plan and report in force; `None` before the first.
    pub fn current_rollout(&self) -> Option<PlanRollout> {
        self.rollout.borrow().clone()
    }

    /// The rollout in force, as it changes.
    pub(crate) fn watch_rollout(&self) -> watch::Receiver<Option<PlanRollout>> {
        self.rollout.clone()
    }

    /// The number of the policy revision in force and whether it is on trial, as they change.
    pub(crate) fn watch_revision(&self) -> watch::Receiver<(u64, bool)> {
        self.revision.clone()
    }

    /// The latest events, as they are added.
    pub fn watch_events(&self) -> watch::Receiver<EventRing> {
        self.recent_events.clone()
    }

    /// Waits until `what` holds of the rollout in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn await_rollout(
        &self,
        what: impl Fn(&PlanRollout) -> bool,
    ) -> Result<PlanRollout, ControllerError> {
        let mut rollouts = self.rollout.clone();
        let found = rollouts.wait_for(|rollout| rollout.as_ref().is_some_and(&what)).await;
        found.ok().and_then(|rollout| rollout.clone()).ok_or(ControllerError::Stopped)
    }

    /// The switches whose calls have failed for so long that policy changes do not wait for them.
    pub fn quarantined_switches(&self) -> BTreeSet<SwitchId> {
        self.board.quarantined_switches(Instant::now(), self.quarantine_after)
    }

    /// What supervises the tasks of the controller.
    pub(crate) fn supervisor(&self) -> &TaskSupervisor {
        &self.supervisor
    }

    /// Who was let in, refused, and changed the policy.
    pub fn audit_trail(&self) -> &AuditTrail {
        &self.audit
    }

    /// Findings that stand until their cause is gone.
    pub fn standing_findings(&self) -> &StandingFindings {
        &self.findings
    }

    /// What switches with gNMI count at their ports, as they report it.
    pub fn watch_port_counters(&self) -> watch::Receiver<FabricCounters> {
        self.port_counters.clone()
    }

    /// The status of all sessions.
    pub fn status_board(&self) -> &StatusBoard {
        &self.board
    }

    /// Whether this controller may write to switches, and the term in which it bids, as they
    /// change.
    pub fn watch_permit(&self) -> watch::Receiver<WritePermit> {
        self.write_permit.clone()
    }

    /// What discovery finds of the fabric and how that differs from its document, as it changes;
    /// empty if discovery is disabled.
    pub fn watch_discovery(&self) -> watch::Receiver<Arc<DiscoveryReport>> {
        self.discovered.clone()
    }

    /// Where the queue pairs of hosts go; none if learning is disabled.
    pub(crate) fn queue_pair_queue(&self) -> Option<&mpsc::Sender<HostQueuePairs>> {
        self.queue_pairs.as_ref()
    }

    /// The flows that were learned from switches, as they change; empty if learning is disabled.
    pub fn watch_learned_flows(&self) -> watch::Receiver<Arc<LearnedFlows>> {
        self.learned.clone()
    }

    /// What drains have come to: tables, paths and counters together.
    pub(crate) fn drain_report(&self) -> DrainReport {
        let tables = self.drains.borrow().clone();
        let seen = Arc::clone(&self.link_use.borrow());
        let rollout = self.rollout.borrow();
        rollout
            .as_ref()
            .map_or_else(DrainReport::default, |had| DrainReport::new(tables, &had.fabric, &seen))
    }

    /// The links by which switches could send to drained parts.
    pub(crate) fn links_into_drained(&self) -> BTreeSet<LinkId> {
        let tables = self.drains.borrow().clone();
        let rollout = self.rollout.borrow();
        rollout.as_ref().map_or_else(BTreeSet::new, |had| tables.links_into(&had.fabric))
    }

    /// Which links carry anything, as it changes.
    pub(crate) fn watch_link_use(&self) -> watch::Receiver<Arc<LinkUse>> {
        self.link_use.subscribe()
    }

    /// Says which links carry anything.
    pub(crate) fn publish_link_use(&self, seen: LinkUse) {
        self.link_use.send_if_modified(|shown| {
            let is_new = **shown != seen;
            if is_new {
                *shown = Arc::new(seen);
            }
            is_new
        });
    }

    /// The progress of drains as this controller observes it while it leads, as it changes.
    pub fn watch_drains(&self) -> watch::Receiver<DrainProgress> {
        self.drains.clone()
    }

    /// Waits until it is known whether this controller or another one leads.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn await_leader(&self) -> Result<WritePermit, ControllerError> {
        let mut permit = self.write_permit.clone();
        let settled = permit.wait_for(|permit| permit.is_settled()).await;
        settled.map(|permit| *permit).map_err(|_| ControllerError::Stopped)
    }

    /// Waits until every switch that is not down is verified to hold the tables of `generation`, or
    /// later ones.
    ///
    /// # Errors
    /// Some were not within `deadline`; the error lists them, with the reasons that are known.
    pub async fn await_verified(
        &self,
        generation: u64,
        deadline: Duration,
    ) -> Result<ChangeTiming, ControllerError> {
        let everywhere = self
            .board
            .wait_for_all(|id, status| is_verified(status, generation) || self.is_down(id));
        match timeout(deadline, everywhere).await {
            Ok(statuses) => Ok(self.change_timing(&statuses)),
            Err(_) => Err(ControllerError::NotVerified {
                within: deadline,
                missing: missing_switches(&self.board.all_statuses(), generation),
            }),
        }
    }

    /// Waits until every switch that is not down is verified to hold the tables of `generation`, or
    /// later ones, except those in quarantine since before `proposed`; these are returned.
    ///
    /// # Errors
    /// As for [`ControllerAccess::await_verified`].
    pub(crate) async fn await_committed(
        &self,
        generation: u64,
        proposed: Instant,
        deadline: Duration,
    ) -> Result<Vec<String>, ControllerError> {
        let has_no_vote = |status: &SwitchStatus| {
            let since = status.health.quarantined_since(Instant::now(), self.quarantine_after);
            since.is_some_and(|since| since <= proposed)
        };
        let committed = self.board.wait_for_all(|id, status| {
            is_verified(status, generation) || self.is_down(id) || has_no_vote(status)
        });
        // A quarantine that began just before the deadline wakes nobody.
        drop(timeout(deadline, committed).await);
        let mut statuses = self.board.all_statuses();
        statuses.retain(|id, _| !self.is_down(*id));
        let missing = missing_switches(&statuses, generation);
        statuses.retain(|_, status| !has_no_vote(status));
        if missing_switches(&statuses, generation).is_empty() {
            Ok(missing)
        } else {
            Err(ControllerError::NotVerified { within: deadline, missing })
        }
    }

    /// How long the latest change took, up to the switches that hold it so far.
    pub(crate) fn latest_timing(&self) -> ChangeTiming {
        self.change_timing(&self.board.all_statuses())
    }

    /// How long the stages of all changes took.
    pub fn stage_histograms(&self) -> StageHistograms {
        *self.stages.borrow()
    }

    fn is_down(&self, switch: SwitchId) -> bool {
        let rollout = self.rollout.borrow();
        rollout.as_ref().is_some_and(|rollout| !rollout.fabric.is_switch_up(switch))
    }

    async fn send_submission(&self, submission: EventSubmission) -> Result<(), ControllerError> {
        let sent = self.events.send(submission).await;
        sent.map_err(|_| ControllerError::Stopped)
    }

    fn change_timing(&self, statuses: &BTreeMap<SwitchId, SwitchStatus>) -> ChangeTiming {
        ChangeTiming::new(&self.desired_tables(), statuses)
    }
}

fn is_verified(status: &SwitchStatus, generation: u64) -> bool {
    status.holds_generation(generation) && status.mastership.is_primary()
}

fn missing_switches(statuses: &BTreeMap<SwitchId, SwitchStatus>, generation: u64) -> Vec<String> {
    let mut missing = Vec::new();
    for status in statuses.values().filter(|status| !is_verified(status, generation)) {
        let error = status.refusals.first().or(status.last_error.as_ref());
        let reason = error.map_or("no error reported", String::as_str);
        missing.push(format!("{} ({}; {reason})", status.name, status.mastership.name()));
    }
    missing
}
