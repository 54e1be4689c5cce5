//! Synchronization with a leader that is followed: the loop applies and stores what it sends.
//!
//! The decision: an update is applied by the events that any other source of it would make, and
//! confirmed when it is applied and stored. The plan comes last, as it names jobs.

use std::sync::Arc;

use tokio::time::Instant;
use topology::Finding;

use super::Core;
use crate::policy_history::PolicyRevision;
use crate::replication::{ReplicatedDocuments, StateUpdate};
use crate::runtime::archive::{event_from_record, or_finding};
use crate::runtime::log::log_finding;
use crate::southbound::connection::{ComputationPanicked, SwitchNetwork};
use crate::state::StateEvent;
use crate::store::StoreRecord;

impl<N: SwitchNetwork> Core<N> {
    /// Applies the update that woke the loop, and confirms it.
    pub(super) async fn sync_following(&mut self) -> Result<(), ComputationPanicked> {
        let Some(follower) = self.cluster.follower_mut() else {
            return Ok(());
        };
        let Some(update) = follower.take_update() else {
            return Ok(());
        };
        let mut findings = Vec::new();
        self.apply_documents(&update.documents, &mut findings).await?;
        findings.iter().for_each(log_finding);
        self.confirm_update(&update).await;
        // The leader may have said that it leaves.
        self.observe_switches().await
    }

    async fn apply_documents(
        &mut self,
        documents: &ReplicatedDocuments,
        findings: &mut Vec<Finding>,
    ) -> Result<(), ComputationPanicked> {
        let now = Instant::now();
        if let Some(found) = &documents.fabric {
            let record = StoreRecord::Fabric(Box::new(found.clone()));
            findings.extend(self.state.archive_mut().store_or_report(record).await);
            let learned =
                self.state.archive().learned_fabric_of(found, self.state.state().fabric());
            if let Some(fabric) = or_finding(learned, findings).flatten() {
                let event = self.fabric_event(fabric, now);
                self.step_followed(event, now).await?;
            }
        }
        let history = self.state.state().policy_history();
        let is_known = |sent: &PolicyRevision| history.revisions().any(|known| known == sent);
        let revisions = documents.policy_revisions.iter().filter(|sent| !is_known(sent));
        let policies: Vec<StoreRecord> =
            revisions.map(|sent| StoreRecord::Policy(Box::new(sent.clone()))).collect();
        let jobs = documents.jobs.clone().map(StoreRecord::Jobs);
        let reported = documents.reported_jobs.clone().map(StoreRecord::ReportedJobs);
        for record in policies.into_iter().chain(jobs).chain(reported) {
            let event = event_from_record(&record, self.state.state().fabric());
            if let Some(event) = or_finding(event, findings) {
                self.step_followed(event, now).await?;
            }
        }
        if let Some(plan) = &documents.plan {
            let (plan, basis, lost) = plan.restore_on(self.state.state().fabric());
            findings.extend(lost);
            let decisions = Box::new((Arc::new(plan), basis));
            self.step_followed(StateEvent::PlanFollowed(decisions), now).await?;
        }
        Ok(())
    }

    async fn step_followed(
        &mut self,
        event: StateEvent,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let effects = self.step_and_store(event).await;
        self.apply_effects(effects, now).await
    }

    async fn confirm_update(&mut self, update: &StateUpdate) {
        let follower = self.cluster.follower_mut();
        if follower.is_some_and(|follower| follower.confirm_update(update)) {
            self.state.store_and_log(StoreRecord::StateTerm(update.term)).await;
        }
    }

    /// Prepares for the term that was chosen: skips the generations of earlier leaders, ends a
    /// trial that the last one would have confirmed itself, and waits until that is planned for.
    pub(super) async fn prepare_succession(
        &mut self,
        now: Instant,
    ) -> Result<(), ComputationPanicked> {
        let unprepared = self.cluster.follower_mut().and_then(|one| one.take_unprepared());
        let Some(spent) = unprepared else {
            return Ok(());
        };
        self.end_abandoned_trial(now).await?;
        let effects = self.step_state(StateEvent::ElectionWon(spent));
        let inputs = self.state.state().inputs();
        if let Some(follower) = self.cluster.follower_mut() {
            follower.await_inputs(inputs);
        }
        self.apply_effects(effects, now).await
    }

    /// Stores the term in which this controller leads, once it does.
    pub(super) async fn store_state_term(&mut self) {
        let term = self.cluster.follower_mut().and_then(|one| one.take_state_term());
        if let Some(term) = term {
            self.state.store_and_log(StoreRecord::StateTerm(term)).await;
        }
    }
}
