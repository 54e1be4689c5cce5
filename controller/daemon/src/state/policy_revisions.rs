//! Which edition of the policy is in force, and what a plan keeps of the one before.
//!
//! The [`ledger`](crate::ledger) knows editions; here is what [`State`] does with them. The
//! decision: an edition is checked against the fabric before anything changes, so that one that is
//! refused leaves no trace.

use std::sync::Arc;

use planner::Policy;
use topology::{Fabric, Finding};

use super::State;
use super::event::{Effects, PolicyProposal};
use super::event_refusal::{EventRefusal, check_names};
use crate::policy_history::{PolicyRevision, PolicyTrial, UnixMs};
use crate::store::StoreRecord;

impl State {
    /// An edition that says what is in force already is none.
    pub(super) fn propose_policy(
        &mut self,
        proposal: PolicyProposal,
    ) -> Result<Effects, EventRefusal> {
        let PolicyProposal { content, signature, trial_until } = proposal;
        let revision = self.history.propose_revision(content, signature, trial_until)?;
        let effects = match revision.content == self.history.latest().content {
            true => Effects::default(),
            false => self.enter_revision(revision)?,
        };
        // Whoever changes the policy may have changed the switches as well.
        self.pin_room = None;
        Ok(effects)
    }

    /// Puts an edition in force that follows by itself, unless it does not fit the fabric any more:
    /// then the latest stays for good, as nobody would see to it otherwise.
    pub(super) fn enter_due_revision(
        &mut self,
        revision: PolicyRevision,
        now: UnixMs,
    ) -> Result<Effects, EventRefusal> {
        let Err(refused) = self.checked_policy(&revision) else {
            return self.enter_revision(revision);
        };
        let mut effects = self.enter_revision(self.history.retain_latest(now))?;
        let text = format!("what was in force before the trial does not fit any more: {refused}");
        effects.findings.push(Finding::error("policy", text));
        Ok(effects)
    }

    /// Puts an edition in force.
    pub(super) fn enter_revision(
        &mut self,
        revision: PolicyRevision,
    ) -> Result<Effects, EventRefusal> {
        self.policy = self.checked_policy(&revision)?;
        self.keep_plan(&revision);
        self.history.append_revision(revision.clone());
        Ok(Effects::with_record(StoreRecord::Policy(Box::new(revision))))
    }

    /// The policy of an edition that may be entered.
    fn checked_policy(&self, revision: &PolicyRevision) -> Result<Policy, EventRefusal> {
        let policy = revision.content.validate("policy")?;
        self.check_policy(&policy, &self.fabric)?;
        Ok(policy)
    }

    pub(super) fn check_policy(
        &self,
        policy: &Policy,
        fabric: &Fabric,
    ) -> Result<(), EventRefusal> {
        if policy.levels > self.levels {
            return Err(EventRefusal::TooManyLevels {
                policy: policy.levels,
                switches: self.levels,
            });
        }
        check_names(policy, fabric)
    }

    /// Whoever takes a trial back gets the plan of before: planned from that one, nothing moves
    /// that did not move for the trial.
    fn keep_plan(&mut self, next: &PolicyRevision) {
        let latest = self.history.latest();
        let is_taken_back = |trial: &PolicyTrial| trial.before == next.content;
        match (&latest.trial, &next.trial) {
            (None, Some(_)) => {
                let decided = self.rollout.as_ref();
                self.before_trial = decided.map(|had| Arc::clone(&had.plan));
            }
            (Some(trial), None) => {
                let before = self.before_trial.take();
                let before = before.filter(|_| is_taken_back(trial));
                self.resumed = before.map(|plan| (self.inputs + 1, plan));
            }
            _ => {}
        }
    }
}
