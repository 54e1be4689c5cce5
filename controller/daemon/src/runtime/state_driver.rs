//! The state with the recorder, the store, and the watch of the policy revision in force.
//!
//! [`Core`](super::core::Core) calls it. The decision: a step itself never waits for a disk. The
//! caller stores before the step what must be durable first, and everything else after it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use topology::{Fabric, Finding, spec};

use super::archive::StateArchive;
use super::log::log_finding;
use crate::clock::Clock;
use crate::fabric_history::FabricHistory;
use crate::recorder::FlightRecorder;
use crate::southbound::{DesiredTables, StatusBoard};
use crate::state::{Effects, PlanRollout, State, StateEvent};
use crate::store::StoreRecord;

/// The state, recorded and stored.
pub(super) struct StateDriver {
    state: State,
    archive: StateArchive,
    recorder: FlightRecorder,
    clock: Clock,
    /// The number of the policy revision in force and whether it is on trial.
    revision: watch::Sender<(u64, bool)>,
    fabric_history: watch::Sender<Arc<FabricHistory>>,
}

impl StateDriver {
    pub(super) fn new(
        state: State,
        archive: StateArchive,
        recorder: FlightRecorder,
        clock: Clock,
        fabric_history: FabricHistory,
    ) -> Self {
        let revision = watch::Sender::default();
        let fabric_history = watch::Sender::new(Arc::new(fabric_history));
        Self { state, archive, recorder, clock, revision, fabric_history }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn archive(&self) -> &StateArchive {
        &self.archive
    }

    pub(super) fn archive_mut(&mut self) -> &mut StateArchive {
        &mut self.archive
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn watch_revision(&self) -> watch::Receiver<(u64, bool)> {
        self.revision.subscribe()
    }

    /// One transition of the state, recorded with its effects.
    pub(super) fn step(&mut self, event: StateEvent) -> Effects {
        let now = self.clock.unix_now();
        // Before the step, as a recording begins with the state that the event finds.
        let pending = self.recorder.begin_step(&event, &self.state, now);
        let effects = self.state.step(event);
        self.recorder.finish_step(pending, &effects, now);
        effects
    }

    /// The parts that the policy in force drains.
    pub(super) fn drained_parts(&self) -> &[String] {
        &self.state.policy_history().latest().content.policy.drained
    }

    /// When the policy in force changes by itself.
    pub(super) fn policy_due(&self) -> Option<Instant> {
        let due = self.state.policy_history().next_due_ms();
        due.map(|at| self.clock.instant_at(at))
    }

    pub(super) fn fabric_history(&self) -> Arc<FabricHistory> {
        Arc::clone(&self.fabric_history.borrow())
    }

    pub(super) fn watch_fabric_history(&self) -> watch::Receiver<Arc<FabricHistory>> {
        self.fabric_history.subscribe()
    }

    pub(super) fn publish_fabric_history(&mut self, history: FabricHistory) {
        self.fabric_history.send_replace(Arc::new(history));
    }

    pub(super) fn deadline_event(&self) -> StateEvent {
        StateEvent::DeadlineReached(self.clock.unix_now())
    }

    /// The event with which the controller continues on another fabric.
    pub(super) fn event_on_fabric(&self, fabric: Fabric) -> StateEvent {
        self.archive.event_on_fabric(fabric, &self.state, self.clock.unix_now())
    }

    pub(super) fn publish_revision(&self) {
        let latest = self.state.policy_history().latest();
        // Both parts: a confirmation ends a trial without another number.
        let revision = (latest.number, latest.trial.is_some());
        self.revision.send_if_modified(|shown| std::mem::replace(shown, revision) != revision);
    }

    /// Records the tables that the sessions get.
    pub(super) fn note_published(&mut self, desired: &Arc<DesiredTables>, rollout: &PlanRollout) {
        self.recorder.note_published(desired, rollout, self.clock.unix_now());
    }

    /// Records what switches hold, where it changed since the last call.
    pub(super) fn note_held(&mut self, board: &StatusBoard) {
        self.recorder.note_held(board, self.clock.unix_now());
    }

    /// Stores a record; a failure is logged.
    pub(super) async fn store_and_log(&mut self, record: StoreRecord) {
        self.archive.store_or_report(record).await.iter().for_each(log_finding);
    }

    /// Reserves the next block of generations in time.
    pub(super) async fn reserve_generations(&mut self) {
        let reserved = self.archive.reserve_generations(self.state.generation()).await;
        reserved.iter().for_each(log_finding);
    }

    /// Stores the records in force that no controller has stored yet.
    pub(super) async fn store_missing(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for record in self.archive.missing_records(self.state.stored_records()) {
            findings.extend(self.archive.store_or_report(record).await);
        }
        findings
    }

    /// Stores the records in force again, if the last attempt failed.
    pub(super) async fn retry_store(&mut self) {
        if self.archive.retry_due().is_none() {
            return;
        }
        let fabric = if self.archive.learns_fabric() {
            StoreRecord::Fabric(Box::new(spec::explicit_document(self.state.fabric())))
        } else {
            StoreRecord::FabricHistory(Box::new(FabricHistory::clone(&self.fabric_history())))
        };
        let records = self.state.stored_records().into_iter().chain([fabric]);
        self.archive.retry_records(records).await;
    }
}
