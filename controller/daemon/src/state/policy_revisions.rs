//! How [`State`] enters policy revisions, and which plan it starts from after a trial.
//!
//! [`policy_history`](crate::policy_history) keeps the revisions. The decision: a revision is
//! checked against the fabric before anything changes, so that a refused one leaves no trace.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::Policy;
use topology::{Fabric, Finding, LostPaths};

use super::State;
use super::event::{Effects, PolicyProposal};
use super::event_refusal::{EventRefusal, check_names};
use crate::policy_history::{PolicyContent, PolicyRevision, UnixMs};
use crate::store::StoreRecord;

impl State {
    /// Enters a proposed policy; content that is in force already makes no revision.
    pub(super) fn propose_policy(
        &mut self,
        proposal: PolicyProposal,
    ) -> Result<Effects, EventRefusal> {
        let PolicyProposal { content, signature, trial, force } = proposal;
        if !force {
            self.check_last_paths(&self.checked_content(&content)?)?;
        }
        let revision = self.history.propose_revision(content, signature, trial)?;
        let effects = if revision.content == self.history.latest().content {
            Effects::default()
        } else {
            self.enter_revision(revision)?
        };
        // The operator may have replaced switches too, so the room for pins is learned again.
        Arc::make_mut(&mut self.basis).pin_room = None;
        Ok(effects)
    }

    /// Enters the automatic revision at a deadline. If it no longer fits the fabric, the latest one
    /// stays for good; else the deadline would come again at once and fail again.
    pub(super) fn enter_due_revision(
        &mut self,
        revision: PolicyRevision,
        now: UnixMs,
    ) -> Result<Effects, EventRefusal> {
        let Err(refused) = self.checked_content(&revision.content) else {
            return self.enter_revision(revision);
        };
        let mut effects = self.enter_revision(self.history.retain_latest(now))?;
        let text =
            format!("cannot restore the policy from before the trial: {refused}; the trial stays");
        effects.findings.push(Finding::error("policy", text));
        Ok(effects)
    }

    /// Puts a revision in force.
    pub(super) fn enter_revision(
        &mut self,
        revision: PolicyRevision,
    ) -> Result<Effects, EventRefusal> {
        self.policy = self.checked_content(&revision.content)?;
        self.keep_plan(&revision);
        self.history.append_revision(revision.clone());
        Ok(Effects::with_record(StoreRecord::Policy(Box::new(revision))))
    }

    /// The policy of this content, if it is valid and fits the fabric and the switches.
    pub(super) fn checked_content(&self, content: &PolicyContent) -> Result<Policy, EventRefusal> {
        let policy = content.validate("policy", self.levels)?;
        self.check_policy(&policy, &self.fabric)?;
        Ok(policy)
    }

    /// Refuses further drains that leave NICs without a path: their traffic would stay where it is,
    /// on parts that somebody is about to switch off.
    pub(super) fn check_last_paths(&self, policy: &Policy) -> Result<(), EventRefusal> {
        let had: BTreeSet<&String> = self.policy.drained.iter().collect();
        let wanted: BTreeSet<&String> = policy.drained.iter().collect();
        if wanted.is_subset(&had) {
            return Ok(());
        }
        let before = self.policy.apply_drains(&self.fabric)?;
        let lost = LostPaths::between(&before, &policy.apply_drains(&self.fabric)?);
        if lost.is_empty() {
            return Ok(());
        }
        let names = |parts: Vec<&&String>| {
            parts.into_iter().map(|part| part.as_str()).collect::<Vec<_>>().join(", ")
        };
        Err(EventRefusal::LastPath {
            parts: names(wanted.difference(&had).collect()),
            lost: lost.describe(&self.fabric),
            drained: names(had.iter().collect()),
        })
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

    /// Keeps the plan from before a trial. When the trial is rolled back, planning starts from it,
    /// so that only flows that moved for the trial move back.
    fn keep_plan(&mut self, next: &PolicyRevision) {
        let latest = self.history.latest();
        match (&latest.trial, &next.trial) {
            (None, Some(_)) => {
                let decided = self.rollout.as_ref();
                self.before_trial = decided.map(|had| Arc::clone(&had.plan));
            }
            (Some(trial), None) => {
                let is_rolled_back = trial.before == next.content;
                let before = self.before_trial.take().filter(|_| is_rolled_back);
                self.resumed = before.map(|plan| (self.inputs + 1, plan));
            }
            _ => {}
        }
    }
}
