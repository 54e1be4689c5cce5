//! Conclusions from what the sessions report: failed parts, drains, returning parts and room for
//! pins.
//!
//! Sans-IO except for the watch that publishes drains: observations and time are arguments.
//! [`Core`](super::core::Core) turns the conclusions into events of the state.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use topology::{AvailabilityChange, Fabric, SwitchId};
use tracing::{info, warn};

use super::drains::{DrainEvent, DrainTracker};
use crate::config::Config;
use crate::liveness::{FabricPart, LivenessTracker, PartHealth};
use crate::southbound::arbitration::Mastership;
use crate::southbound::{StatusBoard, SwitchStatus};
use crate::state::{DrainProgress, join_names};

/// What all sessions report at one instant.
#[derive(Default)]
pub(super) struct SwitchObservations {
    pub(super) parts: Vec<(FabricPart, PartHealth)>,
    pub(super) pin_rooms: Vec<(SwitchId, usize)>,
    pub(super) masterships: Vec<Mastership>,
    /// The generation whose plan each switch was seen to hold, if any.
    held: Vec<(SwitchId, Option<u64>)>,
}

impl SwitchObservations {
    pub(super) fn read(board: &StatusBoard) -> Self {
        let mut seen = Self::default();
        board.for_each_status(|switch, status| seen.add_switch(switch, status));
        seen
    }

    fn add_switch(&mut self, switch: SwitchId, status: &SwitchStatus) {
        let health = match status.mastership {
            // The switch of a candidate has not answered yet: an open stream proves only that
            // something listens there.
            Mastership::Disconnected | Mastership::Candidate => PartHealth::Down,
            _ => PartHealth::Up,
        };
        self.parts.push((FabricPart::Switch(switch), health));
        self.masterships.push(status.mastership);
        self.pin_rooms.extend(status.pin_room.map(|room| (switch, room)));
        self.held.push((switch, status.verified.map(|held| held.lowered_generation)));
    }

    /// Whether this controller writes any switch.
    pub(super) fn has_primary(&self) -> bool {
        self.masterships.iter().any(|mastership| mastership.is_primary())
    }

    /// The generation whose plan every switch that is up holds; 0 if one is not known to hold any.
    pub(super) fn held_everywhere(&self, fabric: &Fabric) -> Option<u64> {
        let held = self.held.iter().filter(|(switch, _)| fabric.is_switch_up(*switch));
        held.map(|(_, held)| held.unwrap_or(0)).min()
    }
}

/// Failure detection, drain progress and room for pins.
pub(super) struct Observer {
    liveness: LivenessTracker,
    drains: DrainTracker,
    drain_progress: watch::Sender<DrainProgress>,
    return_limit: Duration,
    /// When parts that work again are used at the latest; none while no part waits.
    return_deadline: Option<Instant>,
    /// The room for pins that each switch last reported.
    pin_rooms: BTreeMap<SwitchId, usize>,
}

impl Observer {
    /// An observer of `fabric`, whose failed parts stay failed until they are seen to work.
    pub(super) fn new(config: &Config, fabric: &Fabric) -> Self {
        let mut liveness = LivenessTracker::new(config.liveness);
        liveness.adopt_fabric(fabric, fabric, Instant::now());
        Self {
            liveness,
            drains: DrainTracker::new(config.drain_deadline),
            drain_progress: watch::Sender::default(),
            return_limit: config.liveness.return_limit,
            return_deadline: None,
            pin_rooms: BTreeMap::new(),
        }
    }

    pub(super) fn watch_drains(&self) -> watch::Receiver<DrainProgress> {
        self.drain_progress.subscribe()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        [self.liveness.next_due(), self.drains.next_due()].into_iter().flatten().min()
    }

    /// Keeps the known failures of `before` on the next fabric, and learns the room for pins anew.
    pub(super) fn adopt_fabric(&mut self, before: &Fabric, fabric: &Fabric, now: Instant) {
        self.liveness.adopt_fabric(before, fabric, now);
        self.pin_rooms.clear();
    }

    /// Records the health of a part; the change that it confirms.
    pub(super) fn observe_part(
        &mut self,
        part: FabricPart,
        health: PartHealth,
        now: Instant,
    ) -> Option<AvailabilityChange> {
        self.liveness.observe_part(part, health, now)
    }

    /// Takes over failures that another controller has seen; those that are new here.
    pub(super) fn adopt_failures(
        &mut self,
        failures: impl IntoIterator<Item = AvailabilityChange>,
        now: Instant,
    ) -> Vec<AvailabilityChange> {
        failures.into_iter().filter(|failure| self.liveness.adopt_failure(*failure, now)).collect()
    }

    /// Changes that have lasted long enough by now.
    pub(super) fn take_due_changes(&mut self, now: Instant) -> Vec<AvailabilityChange> {
        self.liveness.take_due_changes(now)
    }

    /// When returning parts are used at the latest; the time counts from when the first returned.
    pub(super) fn return_deadline(&mut self, is_returning: bool) -> Option<Instant> {
        self.return_deadline = is_returning
            .then(|| self.return_deadline.unwrap_or_else(|| Instant::now() + self.return_limit));
        self.return_deadline
    }

    /// Whether a switch has room for another number of pins than before.
    pub(super) fn is_new_pin_room(&mut self, switch: SwitchId, room: usize) -> bool {
        self.pin_rooms.insert(switch, room) != Some(room)
    }

    /// Sets the drained parts from now on, while `generation` is in force.
    pub(super) fn track_drains(&mut self, drained: &[String], generation: u64) {
        self.drains.update_drained(drained, generation, Instant::now());
        self.publish_drains();
    }

    /// Checks drains against the generation that every switch holds. Where another controller
    /// writes, that is not observed here, and the deadline of drains restarts.
    pub(super) fn check_drains(&mut self, held: Option<u64>, has_primary: bool, now: Instant) {
        if !has_primary {
            self.drains.restart_deadline(now);
            return;
        }
        match self.drains.check_progress(held, now) {
            None => return,
            Some(DrainEvent::Settled) => {}
            Some(DrainEvent::Complete(parts)) => {
                info!(
                    parts = join_names(&parts),
                    "drained: no table of a switch leads there any more"
                );
            }
            Some(DrainEvent::Late(parts)) => warn!(
                parts = join_names(&parts),
                "not drained within deadlines.drain_ms: some switch does not hold the tables for it"
            ),
        }
        self.publish_drains();
    }

    fn publish_drains(&self) {
        let progress = self.drains.progress();
        self.drain_progress.send_if_modified(|shown| {
            let is_new = shown != progress;
            if is_new {
                shown.clone_from(progress);
            }
            is_new
        });
    }
}
