//! Publishes desired tables to the sessions, one for each switch.
//!
//! The decision: a session gets only tables with a generation, over a `watch`. A slow session gets
//! the latest generation and skips those between.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, SwitchId};
use tracing::{error, info};

use super::change_meter::ChangeMeter;
use crate::pipelines::protect_tables;
use crate::southbound::session::{SessionContext, SwitchSession};
use crate::southbound::{
    ChangeOrigin, DesiredTables, DesiredTimestamps, StatusBoard, SwitchStatus, SwitchTarget,
};
use crate::state::PlanRollout;
use crate::supervision::TaskSupervisor;

/// Publishes tables and runs the sessions.
pub(super) struct Publisher {
    context: SessionContext,
    desired: watch::Sender<Arc<DesiredTables>>,
    rollout: watch::Sender<Option<PlanRollout>>,
    sessions: BTreeMap<SwitchTarget, SessionTask>,
    meter: ChangeMeter,
    supervisor: TaskSupervisor,
}

/// A session that was started.
struct SessionTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SessionTask {
    /// Stops the session at its next await, and waits for that.
    async fn stop_session(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            error!("a session panicked");
        }
    }
}

impl Publisher {
    /// A publisher to sessions that read `desired` in this context.
    pub(super) fn new(
        context: SessionContext,
        desired: watch::Sender<Arc<DesiredTables>>,
        meter: ChangeMeter,
        supervisor: TaskSupervisor,
    ) -> Self {
        let rollout = watch::Sender::new(None);
        Self { context, desired, rollout, sessions: BTreeMap::new(), meter, supervisor }
    }

    pub(super) fn board(&self) -> &StatusBoard {
        &self.context.board
    }

    pub(super) fn supervisor(&self) -> &TaskSupervisor {
        &self.supervisor
    }

    pub(super) fn meter(&self) -> &ChangeMeter {
        &self.meter
    }

    pub(super) fn watch_desired(&self) -> watch::Receiver<Arc<DesiredTables>> {
        self.desired.subscribe()
    }

    pub(super) fn watch_rollout(&self) -> watch::Receiver<Option<PlanRollout>> {
        self.rollout.subscribe()
    }

    /// What is published.
    pub(super) fn in_force(&self) -> Arc<DesiredTables> {
        Arc::clone(&self.desired.borrow())
    }

    /// The tables in force with the ports of failed parts out of use; none where they are still
    /// those of another fabric.
    pub(super) fn protected_tables(
        &self,
        protection: &PlanRollout,
        origin: ChangeOrigin,
    ) -> Option<DesiredTables> {
        let is_published = |had: &PlanRollout| Arc::ptr_eq(&had.wiring, &protection.wiring);
        self.rollout.borrow().as_ref().filter(|had| is_published(had))?;
        let (now, in_force) = (Instant::now(), self.in_force());
        Some(DesiredTables {
            generation: protection.generation,
            lowered_generation: in_force.lowered_generation,
            tables: protect_tables(&protection.wiring, &protection.fabric, &in_force.tables),
            unknown_entries: in_force.unknown_entries,
            timestamps: DesiredTimestamps { origin, planned: now, lowered: now },
        })
    }

    /// Notes that a rollout is not published, for those who wait until it is.
    pub(super) fn pass_over(&self, generation: u64) {
        self.desired.send_if_modified(|desired| {
            let is_later = generation > desired.lowered_generation;
            if is_later {
                Arc::make_mut(desired).lowered_generation = generation;
            }
            is_later
        });
    }

    /// Waits until the rollout `generation`, if one is being lowered, is published.
    pub(super) fn wait_for_rollout(
        &self,
        generation: Option<u64>,
    ) -> impl Future<Output = u64> + use<> {
        let mut desired = self.desired.subscribe();
        async move {
            let awaited = generation.unwrap_or_default();
            let published = desired.wait_for(|desired| desired.lowered_generation >= awaited);
            let generation = published.await.ok().map(|desired| desired.generation);
            match generation {
                Some(generation) => generation,
                // The controller ends.
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until every switch that this controller writes holds a generation, or until a repair
    /// should have been done.
    pub(super) fn wait_for_repair<F: Future<Output = u64>>(
        &self,
        published: F,
    ) -> impl Future<Output = ()> + use<F> {
        let (board, deadline) = (self.context.board.clone(), self.context.config.repair_deadline);
        async move {
            let generation = published.await;
            let repaired = async {
                // Subscribed before the first look, so that no status is missed in between.
                let mut changes = board.subscribe();
                // The board itself holds the sender.
                while !board.is_generation_held(generation) && changes.changed().await.is_ok() {}
            };
            drop(timeout(deadline, repaired).await);
        }
    }

    /// Stops the sessions with switches that `fabric` does not have.
    pub(super) async fn stop_stale_sessions(&mut self, fabric: &Fabric) {
        let targets = SwitchTarget::all_in_fabric(fabric);
        let stale = self.sessions.extract_if(.., |target, _| !targets.contains(target));
        for (target, session) in stale {
            session.stop_session().await;
            self.context.board.remove_switch(target.switch);
        }
    }

    /// Has the rollout in force explained by the report of this one, if they are the same.
    pub(super) fn explain_rollout(&self, explained: PlanRollout) {
        self.rollout.send_if_modified(|in_force| match in_force {
            Some(had) if had.generation == explained.generation => {
                let is_new = !Arc::ptr_eq(&had.report, &explained.report);
                *had = explained;
                is_new
            }
            _ => false,
        });
    }

    /// Publishes tables, and starts the sessions that are missing.
    pub(super) fn publish(&mut self, desired: Arc<DesiredTables>, rollout: PlanRollout) {
        let (generation, plan) = (desired.generation, rollout.plan.generation);
        info!(generation, plan, "publishing");
        self.trace_superseded(Instant::now());
        let targets = SwitchTarget::all_in_fabric(&rollout.fabric);
        // Tables first: who sees a rollout may wait for its generation among the published tables.
        self.desired.send_replace(desired);
        self.rollout.send_replace(Some(rollout));
        for target in targets {
            self.sessions.entry(target).or_insert_with_key(|target| {
                // On the board before the session first runs: a reader would otherwise take a board
                // without the switch as complete.
                self.context.board.add_switch(target.switch, &target.name);
                let stop = self.supervisor.child_stop();
                let session = SwitchSession::new(target.clone(), self.context.clone());
                let run = session.run_session(self.supervisor.clone(), stop.clone());
                SessionTask { stop, task: tokio::spawn(run) }
            });
        }
    }

    /// Measures the latest change, once every switch that is up holds it.
    pub(super) fn measure_change(&mut self, fabric: &Fabric) {
        let desired = Arc::clone(&self.desired.borrow());
        if !self.meter.is_unmeasured(desired.generation) {
            return;
        }
        let (mut is_everywhere, mut is_anywhere) = (true, false);
        self.context.board.for_each_status(|switch, status| {
            let is_held = is_exactly(status, desired.generation);
            is_anywhere |= is_held;
            is_everywhere &= is_held || !fabric.is_switch_up(switch);
        });
        // Statuses are copied only then: this is asked at every change of one of them.
        if is_everywhere && is_anywhere {
            self.meter.record_verified(&desired, &self.statuses_holding(desired.generation));
        }
    }

    /// Traces the change that the next one supersedes, if any switch was seen to hold it.
    fn trace_superseded(&self, now: Instant) {
        let desired = Arc::clone(&self.desired.borrow());
        if self.meter.is_unmeasured(desired.generation) {
            let holding = self.statuses_holding(desired.generation);
            self.meter.record_superseded(&desired, &holding, now);
        }
    }

    /// The statuses of the switches that were seen to hold exactly this generation.
    fn statuses_holding(&self, generation: u64) -> BTreeMap<SwitchId, SwitchStatus> {
        let mut holding = BTreeMap::new();
        self.context.board.for_each_status(|switch, status| {
            if is_exactly(status, generation) {
                holding.insert(switch, status.clone());
            }
        });
        holding
    }

    /// Stops all sessions. They delete no entry: switches keep forwarding by their tables.
    pub(super) async fn stop_sessions(self) -> ChangeMeter {
        for session in self.sessions.into_values() {
            session.stop_session().await;
        }
        self.meter
    }
}

/// Whether a switch was seen to hold exactly this generation.
fn is_exactly(status: &SwitchStatus, generation: u64) -> bool {
    status.verified.is_some_and(|verified| verified.generation == generation)
}
