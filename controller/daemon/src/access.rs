//! What the rest of the program has of a running controller.
//!
//! [`runtime`](crate::runtime) is at the other end of its queue. The decision: whoever has access
//! can give events and observations and look at what is decided and held; nobody reaches around
//! the state.

mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use topology::{Finding, SwitchId, one_line};

pub use self::stages::{LatencyHistogram, StageHistograms};
use crate::clock::Clock;
use crate::discovery::DiscoveryReport;
use crate::event_log::EventRing;
use crate::liveness::{FabricPart, PartHealth};
use crate::southbound::write_permit::WritePermit;
use crate::southbound::{ChangeTiming, DesiredTables, StatusBoard, SwitchStatus};
use crate::state::{DrainProgress, EventSubmission, PlanRollout, State, StateEvent, SubmitReceipt};
use crate::store::StoreError;

/// A controller that is not there any more, or not there yet.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// It has stopped.
    #[error("the controller has stopped")]
    Stopped,
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot record.
    #[error("cannot open the flight recorder's folder")]
    Recorder(#[from] std::io::Error),
    /// It cannot tell of its changes.
    #[error("cannot send traces")]
    Traces(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It refused what it was started with.
    #[error("the controller cannot start: {}", one_line(.0))]
    Refused(Vec<Finding>),
    /// Not every switch holds the tables in time.
    #[error("not verified within {} ms: {}", .within.as_millis(), .missing.join(", "))]
    NotVerified {
        /// How long it was waited for.
        within: Duration,
        /// The switches that miss something, and what is known of why.
        missing: Vec<String>,
    },
}

/// A way to a running controller, as many as are wanted.
#[derive(Clone, Debug)]
pub struct ControllerAccess {
    pub(crate) clock: Clock,
    pub(crate) events: mpsc::Sender<EventSubmission>,
    pub(crate) desired: watch::Receiver<Arc<DesiredTables>>,
    pub(crate) rollout: watch::Receiver<Option<PlanRollout>>,
    pub(crate) revision: watch::Receiver<(u64, bool)>,
    pub(crate) board: StatusBoard,
    pub(crate) write_permit: watch::Receiver<WritePermit>,
    pub(crate) stages: watch::Receiver<StageHistograms>,
    pub(crate) discovered: watch::Receiver<Arc<DiscoveryReport>>,
    pub(crate) drains: watch::Receiver<DrainProgress>,
    pub(crate) recent_events: watch::Receiver<EventRing>,
}

impl ControllerAccess {
    /// Gives the controller an event and waits until it has planned for it. Waits longer where more
    /// events are under way than the queue holds.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn submit_event(&self, event: StateEvent) -> Result<SubmitReceipt, ControllerError> {
        self.submit_reported(event, Instant::now()).await
    }

    /// The same, of an event that sums up what was heard from then on.
    pub(crate) async fn submit_reported(
        &self,
        event: StateEvent,
        first_reported: Instant,
    ) -> Result<SubmitReceipt, ControllerError> {
        let (submission, receipt) = EventSubmission::event(event, first_reported);
        self.send_submission(submission).await?;
        receipt.await.map_err(|_| ControllerError::Stopped)
    }

    /// Tells the controller how a cable or a switch looks, each time that it is looked at or only
    /// when that changes. Bad news about a cable is believed at once, see
    /// [`liveness`](crate::liveness).
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn report_health(
        &self,
        part: FabricPart,
        seen: PartHealth,
    ) -> Result<(), ControllerError> {
        self.send_submission(EventSubmission::part_health(part, seen)).await
    }

    /// What `question` finds in the state. It is asked between two events, so it takes no longer
    /// than to copy what it needs.
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

    /// The controller's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What the switches shall hold now.
    pub fn desired_tables(&self) -> Arc<DesiredTables> {
        Arc::clone(&self.desired.borrow())
    }

    /// The fabric, plan and report in force; `None` before the first.
    pub fn current_rollout(&self) -> Option<PlanRollout> {
        self.rollout.borrow().clone()
    }

    /// The same, as it changes.
    pub(crate) fn watch_rollout(&self) -> watch::Receiver<Option<PlanRollout>> {
        self.rollout.clone()
    }

    /// The number of the edition in force and whether it is on trial, as they change.
    pub(crate) fn watch_revision(&self) -> watch::Receiver<(u64, bool)> {
        self.revision.clone()
    }

    /// What happened, the latest of it; tells when more does.
    pub fn watch_events(&self) -> watch::Receiver<EventRing> {
        self.recent_events.clone()
    }

    /// Waits until `what` holds of what is in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn await_rollout(
        &self,
        what: impl Fn(&PlanRollout) -> bool,
    ) -> Result<PlanRollout, ControllerError> {
        let mut realised = self.rollout.clone();
        let holds = |realised: &Option<PlanRollout>| realised.as_ref().is_some_and(&what);
        let found = realised.wait_for(holds).await;
        let found = found.ok().and_then(|found| found.clone());
        found.ok_or(ControllerError::Stopped)
    }

    /// What the sessions are up to.
    pub fn status_board(&self) -> &StatusBoard {
        &self.board
    }

    /// Whether this controller may write to switches, and in which term it bids; tells when that
    /// changes.
    pub fn watch_permit(&self) -> watch::Receiver<WritePermit> {
        self.write_permit.clone()
    }

    /// What probes find of the fabric, and how that differs from its document; tells when it
    /// changes. Nothing where the configuration does not want probes.
    pub fn watch_discovery(&self) -> watch::Receiver<Arc<DiscoveryReport>> {
        self.discovered.clone()
    }

    /// How far the drains of the policy are, as this controller sees it while it leads; tells when
    /// that changes.
    pub fn watch_drains(&self) -> watch::Receiver<DrainProgress> {
        self.drains.clone()
    }

    /// Waits until it is known who writes to switches, this controller or another.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn await_leader(&self) -> Result<WritePermit, ControllerError> {
        let mut permit = self.write_permit.clone();
        let settled = permit.wait_for(|permit| permit.is_settled()).await;
        settled.map(|permit| *permit).map_err(|_| ControllerError::Stopped)
    }

    /// Waits until every switch that is not down was seen to hold the tables of `generation`, or
    /// later ones.
    ///
    /// # Errors
    /// Some were not within `deadline`; the error says which, and why as far as it is known.
    pub async fn await_verified(
        &self,
        generation: u64,
        deadline: Duration,
    ) -> Result<ChangeTiming, ControllerError> {
        let holds = |(switch, line): (&SwitchId, &SwitchStatus)| {
            is_verified(line, generation) || self.is_down(*switch)
        };
        let everywhere = self.board.wait_until(|lines| lines.iter().all(holds));
        match timeout(deadline, everywhere).await {
            Ok(lines) => Ok(self.change_timing(&lines)),
            Err(_) => Err(ControllerError::NotVerified {
                within: deadline,
                missing: missing_switches(&self.board.all_statuses(), generation),
            }),
        }
    }

    /// How long the latest change took, as far as it has come.
    pub(crate) fn latest_timing(&self) -> ChangeTiming {
        self.change_timing(&self.board.all_statuses())
    }

    /// How long the stages of all changes took.
    pub fn stage_histograms(&self) -> StageHistograms {
        *self.stages.borrow()
    }

    fn is_down(&self, switch: SwitchId) -> bool {
        let realised = self.rollout.borrow();
        let fabric = realised.as_ref().map(|realised| &realised.fabric);
        fabric.is_some_and(|fabric| !fabric.is_switch_up(switch))
    }

    async fn send_submission(&self, submission: EventSubmission) -> Result<(), ControllerError> {
        let sent = self.events.send(submission).await;
        sent.map_err(|_| ControllerError::Stopped)
    }

    fn change_timing(&self, lines: &BTreeMap<SwitchId, SwitchStatus>) -> ChangeTiming {
        ChangeTiming::new(&self.desired_tables(), lines)
    }
}

fn is_verified(line: &SwitchStatus, generation: u64) -> bool {
    line.holds_generation(generation) && line.mastership.is_primary()
}

fn missing_switches(lines: &BTreeMap<SwitchId, SwitchStatus>, generation: u64) -> Vec<String> {
    let late = lines.values().filter(|line| !is_verified(line, generation));
    let why = |line: &SwitchStatus| {
        let reason = line.refusals.first().or(line.last_error.as_ref());
        let reason = reason.map_or("nothing known", String::as_str);
        format!("{} ({:?}; {reason})", line.name, line.mastership)
    };
    late.map(why).collect()
}
