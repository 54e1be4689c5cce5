//! The task that keeps the event log: takes snapshots of what the controller shows to everybody and
//! records what changed between two of them.
//!
//! The decision: it is an observer. The controller does not know of it, so neither a slow log nor
//! a slow reader delays the controller. What appears and disappears between two snapshots is not
//! recorded.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::access::{ControllerAccess, ControllerError};
use crate::discovery::DiscoveryReport;
use crate::event_log::{EventRing, EventSnapshot, SessionSummary, revisions_from};
use crate::southbound::write_permit::WritePermit;
use crate::state::{DrainProgress, LinkUse, PlanRollout, State};
use crate::supervision::TaskSupervisor;

/// Between two snapshots at least. A person sees no difference, and changes of a thousand sessions
/// at once make one snapshot.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The task that watches the controller and writes the event log.
#[derive(Debug)]
pub(crate) struct EventLogTask {
    ring: watch::Sender<EventRing>,
}

impl EventLogTask {
    /// A task that keeps the latest `kept` events of the run that started at `run`.
    pub(crate) fn new(run: u64, kept: usize) -> Self {
        let ring = watch::Sender::new(EventRing::new(run, kept));
        Self { ring }
    }

    /// The event log, as it grows.
    pub(crate) fn event_receiver(&self) -> watch::Receiver<EventRing> {
        self.ring.subscribe()
    }

    /// Watches until the controller ends or `stop`.
    pub(crate) async fn run(
        mut self,
        access: ControllerAccess,
        supervisor: TaskSupervisor,
        stop: CancellationToken,
    ) {
        let running = supervisor.run_restarting("event log", &mut self, |task| {
            let access = access.clone();
            // An error here means that the controller has stopped, which ends this task as well.
            async move { drop(task.record_changes(&access).await) }.boxed()
        });
        stop.run_until_cancelled(running).await;
    }

    async fn record_changes(&self, access: &ControllerAccess) -> Result<(), ControllerError> {
        let mut changes = ChangeWatcher::from_access(access);
        let mut snapshot = EventSnapshot::default();
        loop {
            let next = take_snapshot(access, &snapshot).await?;
            let events = next.events_since(&snapshot);
            if !events.is_empty() {
                let now = access.clock().unix_now();
                self.ring.send_modify(|ring| ring.push(now, events));
            }
            snapshot = next;
            // The watches were subscribed before the snapshot was taken, so a change between the
            // two is seen here.
            changes.wait_for_change(snapshot.drainage.has_drains()).await?;
            sleep(MIN_INTERVAL).await;
        }
    }
}

/// Takes a snapshot of everything that the event log compares.
async fn take_snapshot(
    access: &ControllerAccess,
    before: &EventSnapshot,
) -> Result<EventSnapshot, ControllerError> {
    let known = before.latest_revision();
    let (profiled, revisions) = access
        .query_state(move |state: &State| {
            (state.reported_jobs().profiled.clone(), revisions_from(state, known))
        })
        .await?;
    let mut sessions = Vec::new();
    access.status_board().for_each_status(|switch, status| {
        sessions.push(SessionSummary::from_status(switch, status));
    });
    let rollout = access.current_rollout();
    let discovered = access.watch_discovery().borrow().findings.clone();
    let planned = rollout.iter().flat_map(|had| &had.report.findings);
    let drainage = access.drain_report();
    let findings = planned.cloned().chain(discovered).chain(drainage.findings()).collect();
    Ok(EventSnapshot {
        profiled,
        revisions,
        fabrics: access.fabric_history(),
        sessions,
        findings,
        permit: *access.watch_permit().borrow(),
        timing: Some(access.latest_timing()),
        drainage,
        rollout,
    })
}

/// The watches of everything that a snapshot reads.
struct ChangeWatcher {
    rollout: watch::Receiver<Option<PlanRollout>>,
    revision: watch::Receiver<(u64, bool)>,
    board: watch::Receiver<()>,
    permit: watch::Receiver<WritePermit>,
    discovered: watch::Receiver<Arc<DiscoveryReport>>,
    drainage: watch::Receiver<DrainProgress>,
    link_use: watch::Receiver<Arc<LinkUse>>,
}

impl ChangeWatcher {
    fn from_access(access: &ControllerAccess) -> Self {
        Self {
            rollout: access.watch_rollout(),
            revision: access.watch_revision(),
            board: access.status_board().subscribe(),
            permit: access.watch_permit(),
            discovered: access.watch_discovery(),
            drainage: access.watch_drains(),
            link_use: access.watch_link_use(),
        }
    }

    /// Waits until one of them changes. What links carry matters to drains alone, and changes every
    /// second.
    async fn wait_for_change(&mut self, has_drains: bool) -> Result<(), ControllerError> {
        let (discovered, board) = (&mut self.discovered, &mut self.board);
        let changed = tokio::select! {
            changed = self.rollout.changed() => changed,
            changed = self.revision.changed() => changed,
            changed = self.permit.changed() => changed,
            changed = self.drainage.changed() => changed,
            changed = board.changed() => changed,
            changed = self.link_use.changed(), if has_drains => changed,
            // Without discovery the sender is dropped: that must not end the wait, so only a
            // change completes this branch.
            Ok(()) = discovered.changed() => Ok(()),
        };
        changed.map_err(|_| ControllerError::Stopped)
    }
}
