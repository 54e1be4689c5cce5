//! Synchronization with other controllers: the loop applies what the leader stores.
//!
//! The decision: an elected controller reads everything once more before it writes. From then on no
//! other controller can store anything, so a leader applies no update: what it reads may be older
//! than what it has stored since.

use std::sync::Arc;

use tokio::time::Instant;
use topology::Finding;

use super::Core;
use crate::etcd::ClusterUpdate;
use crate::runtime::archive::{event_from_record, or_finding};
use crate::runtime::log::log_finding;
use crate::southbound::connection::ComputationPanicked;
use crate::state::StateEvent;

impl Core {
    /// Applies what the leader has stored: at the own election everything, and then nothing.
    pub(super) async fn sync_cluster(&mut self) -> Result<(), ComputationPanicked> {
        let Some(membership) = self.cluster.membership_mut() else {
            return Ok(());
        };
        let Some(update) = membership.latest_update() else {
            return Ok(());
        };
        let is_leader = update.elected.is_some();
        if membership.update_election(update.elected) {
            let store = is_leader.then(|| membership.store_client());
            self.state.archive_mut().use_cluster_store(store);
        } else if is_leader {
            // etcd could be read, so what could not be stored before may be storable now.
            self.state.retry_store().await;
            return Ok(());
        }
        let now = Instant::now();
        let mut findings = Vec::new();
        self.adopt_stored(&update, &mut findings, now).await?;
        self.adopt_plan_of_leader(&update, &mut findings, now).await?;
        if is_leader {
            self.prepare_leadership(update.stored.generation, &mut findings, now).await?;
        }
        findings.iter().for_each(log_finding);
        Ok(())
    }

    /// Applies the records that changed: the fabric first, as the other documents are resolved on
    /// it.
    async fn adopt_stored(
        &mut self,
        update: &ClusterUpdate,
        findings: &mut Vec<Finding>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        // The comparison with what was stored before has to come first: the fabric below is read
        // from the result.
        let records = self.state.archive_mut().adopt_stored(update.stored.clone());
        let learned = self.state.archive().learned_fabric(self.state.state().fabric());
        let learned = or_finding(learned, findings).flatten();
        if let Some(fabric) = learned.or_else(|| self.adopt_stored_history(findings)) {
            let effects = self.step_to_fabric(self.fabric_event(&fabric), now).await;
            self.apply_effects(effects, now).await?;
        }
        for record in records {
            let fabric = self.state.state().fabric();
            if let Some(event) = event_from_record(&record, fabric, findings) {
                let effects = self.step_state(event);
                self.apply_effects(effects, now).await?;
            }
        }
        Ok(())
    }

    /// Continues from the plan of the leader, if it is another one. After the records, as it names
    /// their jobs: a plan that is older than them is brought up to date by the next one.
    async fn adopt_plan_of_leader(
        &mut self,
        update: &ClusterUpdate,
        findings: &mut Vec<Finding>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let membership = self.cluster.membership_mut();
        let Some(stored) = membership.and_then(|membership| membership.take_plan(update)) else {
            return Ok(());
        };
        if update.elected.is_some() {
            // Parts that the last leader saw fail stay out of use until they are seen to work. Only
            // now: a standby is not told by anybody when the leader sees them work again.
            let failures = stored.failures_on(self.state.state().fabric());
            let changes = self.observer.adopt_failures(failures, now);
            self.apply_changes(changes, now).await?;
        }
        let (plan, basis, lost) = stored.restore_on(self.state.state().fabric());
        findings.extend(lost);
        let decisions = Box::new((Arc::new(plan), basis));
        let effects = self.step_state(StateEvent::PlanResumed(decisions));
        self.apply_effects(effects, now).await
    }

    /// Skips the generations that earlier leaders may have used, stores missing records, and lets
    /// the membership wait until all of it is planned for.
    async fn prepare_leadership(
        &mut self,
        used_generation: u64,
        findings: &mut Vec<Finding>,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        // Before the generation is raised, so that the rollback is part of the first plan of this
        // leader.
        self.end_abandoned_trial(now).await?;
        let effects = self.step_state(StateEvent::ElectionWon(used_generation));
        findings.extend(self.state.store_missing().await);
        if let Some(membership) = self.cluster.membership_mut() {
            membership.await_inputs(self.state.state().inputs());
        }
        self.apply_effects(effects, now).await
    }

    /// Rolls back a trial that an earlier leader would have confirmed itself.
    async fn end_abandoned_trial(&mut self, now: Instant) -> Result<(), ComputationPanicked> {
        let at = self.state.clock().unix_now();
        let latest = self.state.state().policy_history().latest();
        let ended = latest.clone().effective_at(at);
        if ended.number == latest.number {
            return Ok(());
        }
        // Stored, too: others would otherwise find the trial again.
        let effects = self.step_and_store(StateEvent::PolicyRolledBack(ended.metadata)).await;
        self.apply_effects(effects, now).await
    }
}
