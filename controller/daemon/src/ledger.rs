//! Which policies were in force, who put them there, why, and for how long.
//!
//! [`state`](crate::state) has the one [`Ledger`] and puts into force what its latest edition says;
//! the [`store`](crate::store) keeps every edition. Sans-IO: time is an argument, in milliseconds
//! of Unix time, since what is written here must mean the same after a restart. Two decisions.
//! Nothing is ever taken out: going back is going on to an edition that says what an earlier one
//! said. And whatever ends by itself (a trial that nobody confirms, an override whose time is over)
//! carries what follows it, so that it can end wherever and whenever somebody reads it.

use std::collections::{BTreeMap, BTreeSet};

use planner::{FieldError, OverrideDocument, Policy, PolicyDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Editions that can be gone back to.
const KEPT: usize = 1_000;

/// Who signs what ends by itself.
pub const ITSELF: &str = "crux";

/// Milliseconds of Unix time.
pub type UnixMs = u64;

/// What is in force: a policy, and overrides for some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// The policy.
    pub policy: PolicyDocument,
    /// Overrides that count before those of the policy, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temporary: Vec<Temporary>,
}

/// An override that ends by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Temporary {
    /// What it says.
    pub rule: OverrideDocument,
    /// When it ends, milliseconds of Unix time.
    pub until_ms: UnixMs,
}

/// Who changed the policy, why and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Who, as they call themselves.
    pub who: String,
    /// Why.
    pub why: String,
    /// When, milliseconds of Unix time.
    pub at_ms: UnixMs,
}

/// What was in force from one change to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// Its number; rises by one with each.
    pub number: u64,
    /// What it says.
    pub content: Content,
    /// Whose it is.
    pub signature: Signature,
    /// If it is not confirmed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

/// An edition that ends by itself unless it is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// When, milliseconds of Unix time.
    pub until_ms: UnixMs,
    /// What is then in force again.
    pub before: Content,
}

/// Why the ledger takes no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// An edition is not confirmed yet.
    #[error("edition {0} is on trial; confirm it or roll it back first")]
    OnTrial(u64),
    /// There is nothing to confirm or to revert.
    #[error("no edition is on trial")]
    NoTrial,
}

impl Content {
    /// The policy that the planner takes, with the temporary overrides.
    ///
    /// # Errors
    /// The first field that makes no sense; `file` is how the error calls the document.
    pub fn validate(&self, file: &str) -> Result<Policy, FieldError> {
        let policy = self.policy.validate(file)?;
        let rules = self
            .temporary
            .iter()
            .map(|temporary| temporary.rule.clone());
        let overrides = PolicyDocument {
            jobs: rules.collect(),
            ..self.policy.clone()
        };
        let mut overrides = overrides.validate("temporary overrides")?.overrides;
        overrides.extend(policy.overrides);
        Ok(Policy {
            overrides,
            ..policy
        })
    }

    /// The fields in which `after` differs, each with both values.
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let value = |content: &Self| serde_json::to_value(content).unwrap_or_default();
        let mut changes = Vec::new();
        compare("", &value(self), &value(after), &mut changes);
        changes
    }

    /// What is left at `now`, if anything has ended.
    fn expired(&self, now: UnixMs) -> Option<Self> {
        let lasts = |temporary: &&Temporary| temporary.until_ms > now;
        let temporary: Vec<_> = self.temporary.iter().filter(lasts).cloned().collect();
        let policy = self.policy.clone();
        (temporary.len() < self.temporary.len()).then_some(Self { policy, temporary })
    }
}

impl From<&Policy> for Content {
    fn from(policy: &Policy) -> Self {
        Self {
            policy: PolicyDocument::from(policy),
            temporary: Vec::new(),
        }
    }
}

impl Edition {
    /// The first edition, of a policy that is there when nothing is stored.
    pub fn first(policy: &Policy) -> Self {
        Self {
            number: 1,
            content: Content::from(policy),
            ..Self::default()
        }
    }

    /// The edition as it is at `now`: what ended while nobody looked is over.
    #[must_use]
    pub fn at(self, now: UnixMs) -> Self {
        let follows = self.follows(now);
        follows.unwrap_or(self)
    }

    /// What follows it by itself at `now`, if anything does.
    fn follows(&self, now: UnixMs) -> Option<Self> {
        let over = self.trial.as_ref().filter(|trial| trial.until_ms <= now);
        let (content, why) = match over {
            Some(trial) => (trial.before.clone(), "not confirmed in time"),
            None => (
                self.content.expired(now)?,
                "the time of an override is over",
            ),
        };
        let still = self.trial.clone().filter(|_| over.is_none());
        Some(Self {
            trial: still,
            ..self.next(content, why, now)
        })
    }

    /// The next edition, made by nobody, with what of `content` has not ended.
    fn next(&self, content: Content, why: &str, now: UnixMs) -> Self {
        Self {
            number: self.number + 1,
            content: content.expired(now).unwrap_or(content),
            signature: Signature {
                who: ITSELF.to_owned(),
                why: why.to_owned(),
                at_ms: now,
            },
            trial: None,
        }
    }

    /// When something ends by itself.
    fn ends(&self) -> Option<UnixMs> {
        let trial = self.trial.iter().map(|trial| trial.until_ms);
        let temporary = self.content.temporary.iter().map(|one| one.until_ms);
        trial.chain(temporary).min()
    }
}

/// All editions; the latest is in force.
#[derive(Clone, Debug)]
pub struct Ledger {
    latest: Edition,
    /// Those before it, by number.
    earlier: BTreeMap<u64, Edition>,
}

impl Ledger {
    /// Begins with an edition, and those before it as far as they are known.
    pub fn new(latest: Edition, earlier: impl IntoIterator<Item = Edition>) -> Self {
        let earlier = earlier.into_iter().map(|edition| (edition.number, edition));
        Self {
            latest,
            earlier: earlier.collect(),
        }
    }

    /// What is in force.
    pub fn latest(&self) -> &Edition {
        &self.latest
    }

    /// All editions that are known, the latest first, each with what it changed.
    pub fn history(&self) -> Vec<(&Edition, Vec<String>)> {
        let editions = std::iter::once(&self.latest).chain(self.earlier.values().rev());
        let mut history: Vec<(&Edition, Vec<String>)> =
            editions.map(|edition| (edition, Vec::new())).collect();
        for place in 1..history.len() {
            history[place - 1].1 = history[place]
                .0
                .content
                .changes(&history[place - 1].0.content);
        }
        history
    }

    /// The edition of this number.
    pub fn edition(&self, number: u64) -> Option<&Edition> {
        let latest = Some(&self.latest).filter(|latest| latest.number == number);
        latest.or_else(|| self.earlier.get(&number))
    }

    /// What was in force before the latest edition.
    pub fn before(&self) -> Option<&Edition> {
        self.earlier.values().next_back()
    }

    /// The edition that would say this, on trial until then, if it may be entered now.
    ///
    /// # Errors
    /// Another is on trial.
    pub fn propose(
        &self,
        content: Content,
        signature: Signature,
        trial_until: Option<UnixMs>,
    ) -> Result<Edition, LedgerError> {
        if self.latest.trial.is_some() {
            return Err(LedgerError::OnTrial(self.latest.number));
        }
        let before = || self.latest.content.clone();
        let trial = trial_until.map(|until_ms| Trial {
            until_ms,
            before: before(),
        });
        Ok(Edition {
            number: self.latest.number + 1,
            content,
            signature,
            trial,
        })
    }

    /// The edition that ends the trial: what was in force before it is in force again.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub fn revert(&self, signature: Signature) -> Result<Edition, LedgerError> {
        let trial = self.latest.trial.as_ref().ok_or(LedgerError::NoTrial)?;
        Ok(Edition {
            number: self.latest.number + 1,
            content: trial.before.clone(),
            signature,
            trial: None,
        })
    }

    /// The latest edition, no longer on trial.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub fn confirm(&self) -> Result<Edition, LedgerError> {
        let is_on_trial = self.latest.trial.is_some();
        let confirmed = Edition {
            trial: None,
            ..self.latest.clone()
        };
        is_on_trial.then_some(confirmed).ok_or(LedgerError::NoTrial)
    }

    /// What follows by itself at `now`.
    pub fn due(&self, now: UnixMs) -> Option<Edition> {
        self.latest.follows(now)
    }

    /// When to ask again.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.latest.ends()
    }

    /// The latest edition for good, where what would follow by itself cannot.
    pub fn stay(&self, now: UnixMs) -> Edition {
        let why = "not confirmed in time, but what was before does not fit any more";
        self.latest.next(self.latest.content.clone(), why, now)
    }

    /// Puts an edition in force. Those from its number on are no more than a leader's who could not
    /// store them.
    pub fn enter(&mut self, edition: Edition) {
        let before = std::mem::replace(&mut self.latest, edition);
        self.earlier.insert(before.number, before);
        self.earlier.split_off(&self.latest.number);
        if self.earlier.len() > KEPT {
            self.earlier.pop_first();
        }
    }
}

/// Adds the leaves in which two values differ.
fn compare(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before_fields), Value::Object(after_fields)) => {
            let fields = before_fields.keys().chain(after_fields.keys());
            let fields: BTreeSet<&String> = fields.collect();
            for field in fields {
                let inner = match path {
                    "" => field.clone(),
                    path => format!("{path}.{field}"),
                };
                compare(&inner, &before[field], &after[field], changes);
            }
        }
        _ if before == after => {}
        _ => changes.push(format!(
            "{}: {before} -> {after}",
            path.trim_start_matches("policy.")
        )),
    }
}

#[cfg(test)]
mod tests;
