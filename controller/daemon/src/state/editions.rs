//! Which edition of the policy is in force, and what a plan keeps of the one before.
//!
//! The [`ledger`](crate::ledger) knows editions; here is what [`State`] does with them. The
//! decision: an edition is checked against the fabric before anything changes, so that one that is
//! refused leaves no trace.

use std::sync::Arc;

use planner::Policy;
use topology::{Fabric, Finding};

use super::State;
use super::event::{Effects, Proposal};
use super::refused::{Refused, check_names};
use crate::ledger::{Edition, Trial, UnixMs};
use crate::store::Record;

impl State {
    /// An edition that says what is in force already is none.
    pub(super) fn propose(&mut self, proposal: Proposal) -> Result<Effects, Refused> {
        let Proposal {
            content,
            signature,
            trial_until,
        } = proposal;
        let edition = self.ledger.propose(content, signature, trial_until)?;
        let effects = match edition.content == self.ledger.latest().content {
            true => Effects::default(),
            false => self.enter(edition)?,
        };
        // Whoever changes the policy may have changed the switches as well.
        self.pin_room = None;
        Ok(effects)
    }

    /// Puts an edition in force that follows by itself, unless it does not fit the fabric any more:
    /// then the latest stays for good, as nobody would see to it otherwise.
    pub(super) fn enter_due(&mut self, edition: Edition, now: UnixMs) -> Result<Effects, Refused> {
        let Err(refused) = self.checked(&edition) else {
            return self.enter(edition);
        };
        let mut effects = self.enter(self.ledger.stay(now))?;
        let text = format!("what was in force before the trial does not fit any more: {refused}");
        effects.findings.push(Finding::error("policy", text));
        Ok(effects)
    }

    /// Puts an edition in force.
    pub(super) fn enter(&mut self, edition: Edition) -> Result<Effects, Refused> {
        self.policy = self.checked(&edition)?;
        self.keep_plan(&edition);
        self.ledger.enter(edition.clone());
        Ok(Effects::recording(Record::Policy(Box::new(edition))))
    }

    /// The policy of an edition that may be entered.
    fn checked(&self, edition: &Edition) -> Result<Policy, Refused> {
        let policy = edition.content.validate("policy")?;
        self.check_policy(&policy, &self.fabric)?;
        Ok(policy)
    }

    pub(super) fn check_policy(&self, policy: &Policy, fabric: &Fabric) -> Result<(), Refused> {
        if policy.levels > self.levels {
            return Err(Refused::TooManyLevels {
                policy: policy.levels,
                switches: self.levels,
            });
        }
        check_names(policy, fabric)
    }

    /// Whoever takes a trial back gets the plan of before: planned from that one, nothing moves
    /// that did not move for the trial.
    fn keep_plan(&mut self, next: &Edition) {
        let latest = self.ledger.latest();
        let is_taken_back = |trial: &Trial| trial.before == next.content;
        match (&latest.trial, &next.trial) {
            (None, Some(_)) => {
                let decided = self.decided.as_ref();
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
