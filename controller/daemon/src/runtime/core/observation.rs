//! What the loop observes by itself: whether switches answer, what they hold and have room for, and
//! which deadlines have passed.
//!
//! The decision: every pass reads everything. A pass that finds nothing new changes nothing, so the
//! reason of the wake-up does not matter.

use tokio::time::Instant;
use topology::{AvailabilityChange, Fabric, Finding};
use tracing::warn;

use super::{Core, OBSERVATION_PART, SHORTEST_WAIT};
use crate::audit::AuditAction;
use crate::policy_history::{AUTOMATIC_AUTHOR, RevisionMetadata};
use crate::runtime::log::log_finding;
use crate::runtime::observer::SwitchObservations;
use crate::southbound::arbitration::Mastership;
use crate::southbound::connection::ComputationPanicked;
use crate::state::{Effects, StateEvent};
use crate::store::StoreRecord;

impl Core {
    /// Handles what the sessions report and the deadlines that have passed.
    pub(super) async fn observe_switches(&mut self) -> Result<(), ComputationPanicked> {
        let now = Instant::now();
        // The recording shows first what switches hold, then the events that follow from it.
        self.state.note_held(self.publisher.board());
        self.publisher.measure_change(self.state.state().fabric());
        let seen = SwitchObservations::read(self.publisher.board());
        let parts = seen.parts.iter();
        let mut changes: Vec<AvailabilityChange> = parts
            .filter_map(|&(part, health)| self.observer.observe_part(part, health, now))
            .collect();
        changes.extend(self.observer.take_due_changes(now));
        self.apply_changes(changes, now).await?;
        let held = seen.held_everywhere(self.state.state().fabric());
        self.observer.check_drains(held, seen.has_primary(), now);
        self.release_returning(held, now).await?;
        if self.cluster.is_switch_led() {
            let term = self.cluster.choose_term(&seen.masterships, now);
            // Stored before any session may bid in it, so that no later run bids in it again.
            self.state.store_and_log(StoreRecord::Term(term)).await;
            self.cluster.permit_term(term);
        }
        self.cluster.publish_reach(&seen.masterships);
        self.outbid_refusals(&seen.masterships);
        // After failures were applied: an override that ends must not plan with parts that are
        // gone.
        if self.policy_due().is_some_and(|due| due <= now) {
            let event = self.state.deadline_event();
            let effects = self.step_and_store(event).await;
            self.record_expiry(&effects);
            self.apply_effects(effects, now).await?;
        }
        if self.cluster.may_decide() && self.quiet.take_due(now) {
            let effects = self.step_state(StateEvent::Quiet);
            self.apply_effects(effects, now).await?;
        }
        if self.state.archive().retry_due().is_some_and(|due| due <= now) {
            self.state.retry_store().await;
        }
        for (switch, room) in seen.pin_rooms {
            if self.observer.is_new_pin_room(switch, room) {
                let effects = self.step_state(StateEvent::PinRoomLearned(switch, room));
                self.apply_effects(effects, now).await?;
            }
        }
        // The pause follows the cost, so that reading a thousand switches leaves three quarters of
        // the loop for events.
        let pause = now.elapsed() * (OBSERVATION_PART - 1);
        if pause >= SHORTEST_WAIT {
            self.next_observation = Instant::now() + pause;
        }
        Ok(())
    }

    /// Records a revision that nobody asked for.
    fn record_expiry(&self, effects: &Effects) {
        let latest = self.state.state().policy_history().latest();
        if effects.refusal.is_none() && latest.metadata.author == AUTOMATIC_AUTHOR {
            let detail = format!("revision {}", latest.number);
            let RevisionMetadata { author, reason, .. } = &latest.metadata;
            self.audit.record_action(AuditAction::PolicyExpired, author, reason, &detail);
        }
    }

    /// Applies confirmed changes of the fabric. Those that come together are protected together:
    /// hundreds of switches may fail at once.
    pub(super) async fn apply_changes(
        &mut self,
        changes: impl IntoIterator<Item = AvailabilityChange>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let changes: Vec<AvailabilityChange> = changes.into_iter().collect();
        for change in &changes {
            warn!("{}", describe_change(*change, self.state.state().fabric()));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let effects = self.step_state(StateEvent::FabricChanged(changes));
        self.apply_effects(effects, now).await
    }

    /// Releases parts that work again, once every switch that is up holds tables with them. Where
    /// another controller writes, that is not observed here, and the deadline releases them.
    async fn release_returning(
        &mut self,
        held: Option<u64>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let Some(deadline) = self.observer.return_deadline(self.state.state().is_returning())
        else {
            return Ok(());
        };
        let latest = self.state.state().generation();
        // Past the deadline a silent switch must not keep a working part out of use.
        let generation = held.filter(|_| now < deadline).unwrap_or(latest);
        let effects = self.step_state(StateEvent::GenerationHeld(generation));
        self.apply_effects(effects, now).await
    }

    /// Leads in a higher term where etcd has forgotten the terms that the switches know.
    fn outbid_refusals(&mut self, masterships: &[Mastership]) {
        if self.cluster.outbid_refusals(masterships).is_some() {
            let text = "etcd was lost, or an older state of it was restored: switches have seen \
                        later terms, and this controller leads above them; check that policy and \
                        jobs are the latest";
            let finding = Finding::warning("etcd", text);
            log_finding(&finding);
            self.findings.report_finding("etcd term", finding);
        }
    }
}

/// A change of the fabric with the name of its part, for logs.
fn describe_change(change: AvailabilityChange, fabric: &Fabric) -> String {
    let switch = |switch| &fabric.switch(switch).name;
    match change {
        AvailabilityChange::LinkDown(link) => format!("{} failed", fabric.link_name(link)),
        AvailabilityChange::LinkUp(link) => format!("{} works again", fabric.link_name(link)),
        AvailabilityChange::DrainLink(link) => format!("{} is drained", fabric.link_name(link)),
        AvailabilityChange::UndrainLink(link) => {
            format!("{} is drained no more", fabric.link_name(link))
        }
        AvailabilityChange::SwitchDown(id) => format!("{} failed", switch(id)),
        AvailabilityChange::SwitchUp(id) => format!("{} works again", switch(id)),
        AvailabilityChange::DrainSwitch(id) => format!("{} is drained", switch(id)),
        AvailabilityChange::UndrainSwitch(id) => format!("{} is drained no more", switch(id)),
    }
}
