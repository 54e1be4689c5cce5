//! What the controller sees by itself: whether switches answer, what they hold and have room for,
//! and what has lasted long enough to be believed.
//!
//! [`runtime`](super) looks whenever a session has something to say, or something falls due. The
//! decision: everything is looked at each time. A look that finds nothing new changes nothing, so
//! it does not matter what woke it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use topology::{AvailabilityChange, SwitchId};
use tracing::{info, warn};

use super::drains::DrainEvent;
use super::task::Runtime;
use crate::etcd::ClusterNetwork;
use crate::liveness::{FabricPart, PartHealth};
use crate::southbound::arbitration::Mastership;
use crate::southbound::connection::ComputationPanicked;
use crate::southbound::{ChangeTiming, SwitchStatus};
use crate::state::{StateEvent, join_names};
use crate::trace_export::ChangeEnd;

/// What the sessions see together.
#[derive(Default)]
struct SwitchObservations {
    parts: Vec<(FabricPart, PartHealth)>,
    pin_rooms: Vec<(SwitchId, usize)>,
    masterships: Vec<Mastership>,
    /// The generation that each switch is seen to hold, if it is.
    held: Vec<(SwitchId, Option<u64>)>,
}

impl SwitchObservations {
    /// Whether any switch is led from here.
    fn has_primary(&self) -> bool {
        self.masterships.iter().any(|standing| standing.is_primary())
    }

    fn add_switch(&mut self, switch: SwitchId, line: &SwitchStatus) {
        let health = match line.mastership {
            Mastership::Disconnected | Mastership::Candidate => PartHealth::Down,
            _ => PartHealth::Up,
        };
        self.parts.push((FabricPart::Switch(switch), health));
        self.masterships.push(line.mastership);
        self.pin_rooms.extend(line.pin_room.map(|room| (switch, room)));
        let held = line.verified.map(|verified| verified.generation);
        self.held.push((switch, held));
    }
}

impl<N: ClusterNetwork> Runtime<N> {
    /// Looks at what the sessions see, and at what has lasted.
    pub(super) async fn observe_switches(&mut self) -> Result<(), ComputationPanicked> {
        let now = Instant::now();
        self.recorder.note_held(&self.shared.board, self.clock.unix_now());
        self.measure_change();
        let mut seen = SwitchObservations::default();
        let board = &self.shared.board;
        board.for_each_status(|switch, line| seen.add_switch(switch, line));
        let leads = seen.has_primary();
        for (part, health) in seen.parts {
            let change = self.liveness.observe_part(part, health, now);
            self.apply_change(change, now).await?;
        }
        for change in self.liveness.take_due_changes(now) {
            self.apply_change(Some(change), now).await?;
        }
        let held = self.held_everywhere(&seen.held);
        match leads {
            true => self.report_drains(held, now),
            false => self.drains.restart_deadline(now),
        }
        self.release_returning(held, now).await?;
        if self.membership.is_none() {
            self.choose_term(&seen.masterships, now).await;
        }
        if self.policy_due().is_some_and(|due| due <= now) {
            let effects =
                self.step_and_store(StateEvent::DeadlineReached(self.clock.unix_now())).await;
            self.apply_effects(effects, now).await?;
        }
        if self.archive.retry_due().is_some_and(|due| due <= now) {
            self.retry_store().await;
        }
        for (switch, room) in seen.pin_rooms {
            if self.pin_rooms.insert(switch, room) != Some(room) {
                let effects = self.step_state(StateEvent::PinRoomLearned(switch, room));
                self.apply_effects(effects, now).await?;
            }
        }
        Ok(())
    }

    /// Counts how long the latest change took, once every switch that is not down holds it.
    fn measure_change(&mut self) {
        let desired = Arc::clone(&self.desired.borrow());
        if !self.stage_timer.is_uncounted(desired.generation) {
            return;
        }
        let (lines, is_held) = self.statuses_holding(desired.generation);
        if !is_held || lines.is_empty() {
            return;
        }
        let timing = ChangeTiming::new(&desired, &lines);
        self.stage_timer.count_change(&timing);
        if let Some(teller) = &self.trace_exporter {
            teller.export_change(&desired, lines.values(), ChangeEnd::Verified(timing.verified));
        }
    }

    /// Tells of the change that the next one overtakes, if any switch was seen to hold it.
    pub(super) fn trace_superseded(&self, now: Instant) {
        let Some(teller) = &self.trace_exporter else {
            return;
        };
        let desired = Arc::clone(&self.desired.borrow());
        let (lines, _) = self.statuses_holding(desired.generation);
        if self.stage_timer.is_uncounted(desired.generation) && !lines.is_empty() {
            teller.export_change(&desired, lines.values(), ChangeEnd::Superseded(now));
        }
    }

    /// The lines of the switches that are seen to hold a generation, and whether those are all that
    /// are not down.
    fn statuses_holding(&self, generation: u64) -> (BTreeMap<SwitchId, SwitchStatus>, bool) {
        let mut lines = BTreeMap::new();
        let fabric = self.state.fabric();
        let mut is_held = true;
        self.shared.board.for_each_status(|switch, line| {
            let seen = line.verified.filter(|seen| seen.generation == generation);
            is_held &= seen.is_some() || !fabric.is_switch_up(switch);
            lines.extend(seen.map(|_| (switch, line.clone())));
        });
        (lines, is_held)
    }

    /// Believes a change, if there is one.
    pub(super) async fn apply_change(
        &mut self,
        change: Option<AvailabilityChange>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let Some(change) = change else { return Ok(()) };
        warn!(?change, "the fabric changed");
        let effects = self.step_state(StateEvent::FabricChanged(change));
        self.apply_effects(effects, now).await
    }

    /// The generation that every switch which works is seen to hold; 0 where one is not.
    fn held_everywhere(&self, held: &[(SwitchId, Option<u64>)]) -> Option<u64> {
        let works = |switch: SwitchId| self.state.fabric().is_switch_up(switch);
        let held = held.iter().filter(|(switch, _)| works(*switch));
        held.map(|(_, held)| held.unwrap_or(0)).min()
    }

    /// Lets what works again be used, once every switch that works is seen to know of it. Where
    /// another controller writes that is never seen here, and only time tells.
    async fn release_returning(
        &mut self,
        held: Option<u64>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let Some(due) = self.return_due() else {
            return Ok(());
        };
        let latest = self.state.generation();
        let generation = held.filter(|_| now < due).unwrap_or(latest);
        let effects = self.step_state(StateEvent::GenerationHeld(generation));
        self.apply_effects(effects, now).await
    }

    /// Says what is drained, or not yet.
    fn report_drains(&mut self, held: Option<u64>, now: Instant) {
        match self.drains.check_progress(held, now) {
            None => return,
            Some(DrainEvent::Complete(parts)) => {
                let parts = join_names(&parts);
                info!(parts, "drained: nothing sends there any more");
            }
            Some(DrainEvent::Late(parts)) => {
                let parts = join_names(&parts);
                warn!(parts, "not drained in time: not every switch holds the tables for it");
            }
        }
        self.publish_drains();
    }

    /// Shows how far drains are to whoever looks.
    pub(super) fn publish_drains(&self) {
        let now = self.drains.progress();
        self.drain_progress.send_if_modified(|shown| {
            let is_news = shown != now;
            if is_news {
                shown.clone_from(now);
            }
            is_news
        });
    }

    /// When what works again is used at the latest.
    pub(super) fn return_due(&mut self) -> Option<Instant> {
        let due = || Instant::now() + self.shared.config.liveness.return_limit;
        self.return_deadline = match self.state.is_returning() {
            true => self.return_deadline.or_else(|| Some(due())),
            false => None,
        };
        self.return_deadline
    }
}
