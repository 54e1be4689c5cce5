//! Which policies were in force, who put them there, why, and for how long.
//!
//! [`state`](crate::state) has the one [`PolicyHistory`] and puts into force what its latest
//! revision says; the [`store`](crate::store) keeps every revision. Sans-IO: time is an argument,
//! in milliseconds of Unix time, since what is written here must mean the same after a restart. Two
//! decisions. Nothing is ever taken out: going back is going on to a revision that says what an
//! earlier one said. And whatever ends by itself (a trial that nobody confirms, an override whose
//! time is over) carries what follows it, so that it can end wherever and whenever somebody reads
//! it.

use std::collections::{BTreeMap, BTreeSet};

use planner::{DocumentFieldError, OverrideDocument, Policy, PolicyDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Revisions that can be gone back to.
const REVISIONS_KEPT: usize = 1_000;

/// Who signs what ends by itself.
pub const AUTOMATIC_AUTHOR: &str = "crux";

/// Milliseconds of Unix time.
pub type UnixMs = u64;

/// What is in force: a policy, and overrides for some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyContent {
    /// The policy.
    pub policy: PolicyDocument,
    /// Overrides that count before those of the policy, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temporary_overrides: Vec<TemporaryOverride>,
}

/// An override that ends by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemporaryOverride {
    /// What it says.
    pub rule: OverrideDocument,
    /// When it ends, milliseconds of Unix time.
    pub until_ms: UnixMs,
}

/// Who changed the policy, why and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevisionMetadata {
    /// Who, as they call themselves.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When, milliseconds of Unix time.
    pub at_ms: UnixMs,
}

/// What was in force from one change to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRevision {
    /// Its number; rises by one with each.
    pub number: u64,
    /// What it says.
    pub content: PolicyContent,
    /// Whose it is.
    pub metadata: RevisionMetadata,
    /// If it is not confirmed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<PolicyTrial>,
}

/// A revision that ends by itself unless it is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTrial {
    /// When, milliseconds of Unix time.
    pub until_ms: UnixMs,
    /// What is then in force again.
    pub before: PolicyContent,
}

/// Why the ledger takes no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyHistoryError {
    /// A revision is not confirmed yet.
    #[error("revision {0} is on trial; confirm it or roll it back first")]
    OnTrial(u64),
    /// There is nothing to confirm or to revert.
    #[error("no revision is on trial")]
    NoTrial,
}

impl PolicyContent {
    /// The policy that the planner takes, with the temporary overrides.
    ///
    /// # Errors
    /// The first field that makes no sense; `file` is how the error calls the document.
    pub fn validate(&self, file: &str) -> Result<Policy, DocumentFieldError> {
        let policy = self.policy.to_policy(file)?;
        let rules = self.temporary_overrides.iter().map(|temporary| temporary.rule.clone());
        let overrides = PolicyDocument { jobs: rules.collect(), ..self.policy.clone() };
        let mut overrides = overrides.to_policy("temporary overrides")?.overrides;
        overrides.extend(policy.overrides);
        Ok(Policy { overrides, ..policy })
    }

    /// The fields in which `after` differs, each with both values.
    pub fn changes_to(&self, after: &Self) -> Vec<String> {
        let value = |content: &Self| serde_json::to_value(content).unwrap_or_default();
        let mut changes = Vec::new();
        diff_values("", &value(self), &value(after), &mut changes);
        changes
    }

    /// What is left at `now`, if anything has ended.
    fn without_expired(&self, now: UnixMs) -> Option<Self> {
        let lasts = |temporary: &&TemporaryOverride| temporary.until_ms > now;
        let temporary: Vec<_> = self.temporary_overrides.iter().filter(lasts).cloned().collect();
        let policy = self.policy.clone();
        (temporary.len() < self.temporary_overrides.len())
            .then_some(Self { policy, temporary_overrides: temporary })
    }
}

impl From<&Policy> for PolicyContent {
    fn from(policy: &Policy) -> Self {
        Self { policy: PolicyDocument::from(policy), temporary_overrides: Vec::new() }
    }
}

impl PolicyRevision {
    /// The first revision, of a policy that is there when nothing is stored.
    pub fn from_initial_policy(policy: &Policy) -> Self {
        Self { number: 1, content: PolicyContent::from(policy), ..Self::default() }
    }

    /// The revision as it is at `now`: what ended while nobody looked is over.
    #[must_use]
    pub fn effective_at(self, now: UnixMs) -> Self {
        let follows = self.automatic_successor(now);
        follows.unwrap_or(self)
    }

    /// What follows it by itself at `now`, if anything does.
    fn automatic_successor(&self, now: UnixMs) -> Option<Self> {
        let over = self.trial.as_ref().filter(|trial| trial.until_ms <= now);
        let (content, why) = match over {
            Some(trial) => (trial.before.clone(), "not confirmed in time"),
            None => (self.content.without_expired(now)?, "the time of an override is over"),
        };
        let still = self.trial.clone().filter(|_| over.is_none());
        Some(Self { trial: still, ..self.automatic_revision(content, why, now) })
    }

    /// The next revision, made by nobody, with what of `content` has not ended.
    fn automatic_revision(&self, content: PolicyContent, reason: &str, now: UnixMs) -> Self {
        Self {
            number: self.number + 1,
            content: content.without_expired(now).unwrap_or(content),
            metadata: RevisionMetadata {
                author: AUTOMATIC_AUTHOR.to_owned(),
                reason: reason.to_owned(),
                at_ms: now,
            },
            trial: None,
        }
    }

    /// When something ends by itself.
    fn next_expiry(&self) -> Option<UnixMs> {
        let trial = self.trial.iter().map(|trial| trial.until_ms);
        let temporary = self.content.temporary_overrides.iter().map(|one| one.until_ms);
        trial.chain(temporary).min()
    }
}

/// All revisions; the latest is in force.
#[derive(Clone, Debug)]
pub struct PolicyHistory {
    latest: PolicyRevision,
    /// Those before it, by number.
    earlier: BTreeMap<u64, PolicyRevision>,
}

impl PolicyHistory {
    /// Begins with a revision, and those before it as far as they are known.
    pub fn new(latest: PolicyRevision, earlier: impl IntoIterator<Item = PolicyRevision>) -> Self {
        let earlier = earlier.into_iter().map(|revision| (revision.number, revision));
        Self { latest, earlier: earlier.collect() }
    }

    /// What is in force.
    pub fn latest(&self) -> &PolicyRevision {
        &self.latest
    }

    /// All revisions that are known, the latest first, each with what it changed.
    pub fn revisions_with_changes(&self) -> Vec<(&PolicyRevision, Vec<String>)> {
        let revisions = std::iter::once(&self.latest).chain(self.earlier.values().rev());
        let mut history: Vec<(&PolicyRevision, Vec<String>)> =
            revisions.map(|revision| (revision, Vec::new())).collect();
        for place in 1..history.len() {
            history[place - 1].1 =
                history[place].0.content.changes_to(&history[place - 1].0.content);
        }
        history
    }

    /// The revision of this number.
    pub fn find_revision(&self, number: u64) -> Option<&PolicyRevision> {
        let latest = Some(&self.latest).filter(|latest| latest.number == number);
        latest.or_else(|| self.earlier.get(&number))
    }

    /// What was in force before the latest revision.
    pub fn previous_revision(&self) -> Option<&PolicyRevision> {
        self.earlier.values().next_back()
    }

    /// The revision that would say this, on trial until then, if it may be entered now.
    ///
    /// # Errors
    /// Another is on trial.
    pub fn propose_revision(
        &self,
        content: PolicyContent,
        metadata: RevisionMetadata,
        trial_until: Option<UnixMs>,
    ) -> Result<PolicyRevision, PolicyHistoryError> {
        if self.latest.trial.is_some() {
            return Err(PolicyHistoryError::OnTrial(self.latest.number));
        }
        let before = || self.latest.content.clone();
        let trial = trial_until.map(|until_ms| PolicyTrial { until_ms, before: before() });
        Ok(PolicyRevision { number: self.latest.number + 1, content, metadata, trial })
    }

    /// The revision that ends the trial: what was in force before it is in force again.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub fn revert_trial(
        &self,
        metadata: RevisionMetadata,
    ) -> Result<PolicyRevision, PolicyHistoryError> {
        let trial = self.latest.trial.as_ref().ok_or(PolicyHistoryError::NoTrial)?;
        Ok(PolicyRevision {
            number: self.latest.number + 1,
            content: trial.before.clone(),
            metadata,
            trial: None,
        })
    }

    /// The latest revision, no longer on trial.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub fn confirm_trial(&self) -> Result<PolicyRevision, PolicyHistoryError> {
        let is_on_trial = self.latest.trial.is_some();
        let confirmed = PolicyRevision { trial: None, ..self.latest.clone() };
        is_on_trial.then_some(confirmed).ok_or(PolicyHistoryError::NoTrial)
    }

    /// What follows by itself at `now`.
    pub fn due_revision(&self, now: UnixMs) -> Option<PolicyRevision> {
        self.latest.automatic_successor(now)
    }

    /// When to ask again.
    pub fn next_due_ms(&self) -> Option<UnixMs> {
        self.latest.next_expiry()
    }

    /// The latest revision for good, where what would follow by itself cannot.
    pub fn retain_latest(&self, now: UnixMs) -> PolicyRevision {
        let why = "not confirmed in time, but what was before does not fit any more";
        self.latest.automatic_revision(self.latest.content.clone(), why, now)
    }

    /// Puts a revision in force. Those from its number on are no more than a leader's who could not
    /// store them.
    pub fn append_revision(&mut self, revision: PolicyRevision) {
        let before = std::mem::replace(&mut self.latest, revision);
        self.earlier.insert(before.number, before);
        self.earlier.split_off(&self.latest.number);
        if self.earlier.len() > REVISIONS_KEPT {
            self.earlier.pop_first();
        }
    }
}

/// Adds the leaves in which two values differ.
fn diff_values(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before_fields), Value::Object(after_fields)) => {
            let fields = before_fields.keys().chain(after_fields.keys());
            let fields: BTreeSet<&String> = fields.collect();
            for field in fields {
                let inner = match path {
                    "" => field.clone(),
                    path => format!("{path}.{field}"),
                };
                diff_values(&inner, &before[field], &after[field], changes);
            }
        }
        _ if before == after => {}
        _ => changes.push(format!("{}: {before} -> {after}", path.trim_start_matches("policy."))),
    }
}

#[cfg(test)]
mod tests;
