//! The policy revisions: which were in force, by whom, why, and for how long.
//!
//! [`state`](crate::state) has the one [`PolicyHistory`] and plans by its latest revision; the
//! [`store`](crate::store) keeps every revision. Sans-IO: time is an argument, in milliseconds of
//! Unix time, because stored times must mean the same after a restart. Two decisions. Revisions are
//! only appended: a rollback is a new revision with earlier content. And whatever expires (a trial
//! without confirmation, a temporary override) contains what follows it, so that any reader of the
//! store can apply the expiry, also after a restart.

use std::collections::{BTreeMap, BTreeSet};

use planner::{DocumentFieldError, OverrideDocument, Policy, PolicyDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::timestamp_from_unix;
pub use crate::revision::{RevisionMetadata, UnixMs};

/// Earlier revisions that are kept for a rollback, in memory and in the store.
pub const REVISIONS_KEPT: usize = 1_000;

/// Bytes of earlier revisions that are kept, as JSON; the one before the latest is kept in any
/// case.
pub const HISTORY_BYTES: usize = 16 << 20;

/// Bytes of the revisions of one page, as JSON.
pub const PAGE_BYTES: usize = 4 << 20;

/// The author of revisions that follow an expiry.
pub const AUTOMATIC_AUTHOR: &str = "crux";

/// Why a trial without an operator ends at the next start.
const ABANDONED: &str = "the controller ended before it had verified the change";

/// The content of a revision: a policy, and overrides for some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyContent {
    /// The policy.
    pub policy: PolicyDocument,
    /// Overrides that count before those of the policy, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temporary_overrides: Vec<TemporaryOverride>,
}

/// An override that expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemporaryOverride {
    /// The override.
    pub rule: OverrideDocument,
    /// When it ends, milliseconds of Unix time.
    pub until_ms: UnixMs,
}

/// A policy that is or was in force, with author, time and reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRevision {
    /// Its number, rising by one with every revision.
    pub number: u64,
    /// The policy and its temporary overrides.
    pub content: PolicyContent,
    /// Author, reason and time.
    pub metadata: RevisionMetadata,
    /// The trial, while the revision is not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<PolicyTrial>,
}

/// The trial of a revision, which is rolled back unless it is confirmed in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTrial {
    /// When it is rolled back, milliseconds of Unix time.
    pub until_ms: UnixMs,
    /// The content that is then in force again.
    pub before: PolicyContent,
    /// Whether an operator confirms it; if not, the controller that applied it does, once the
    /// switches hold it.
    #[serde(default)]
    pub awaits_confirmation: bool,
}

/// The terms of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialTerms {
    /// When it is rolled back, milliseconds of Unix time.
    pub until_ms: UnixMs,
    /// Whether an operator confirms it.
    pub awaits_confirmation: bool,
}

/// Why the history refuses a revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyHistoryError {
    /// A revision is on trial.
    #[error("revision {0} is on trial; confirm it or roll it back first")]
    OnTrial(u64),
    /// There is no trial to confirm or to roll back.
    #[error("no revision is on trial")]
    NoTrial,
}

impl PolicyContent {
    /// The policy that the planner takes, with the temporary overrides; one that states no levels
    /// has `levels` of them.
    ///
    /// # Errors
    /// The first invalid field; `file` is the name of the document in the error.
    pub fn validate(&self, file: &str, levels: u8) -> Result<Policy, DocumentFieldError> {
        let document = self.policy.clone().with_default_levels(levels);
        let policy = document.to_policy(file)?;
        let rules = self.temporary_overrides.iter().map(|temporary| temporary.rule.clone());
        let temporary = PolicyDocument { jobs: rules.collect(), ..document };
        // The first override that matches wins, so the temporary ones come first.
        let mut overrides = temporary.to_policy("temporary overrides")?.overrides;
        overrides.extend(policy.overrides);
        Ok(Policy { overrides, ..policy })
    }

    /// This content with the policy of a file, which leaves drains as they are: a change of policy
    /// never sends traffic back to a part that somebody repairs.
    ///
    /// # Errors
    /// The file states other drains than those in force.
    pub fn with_policy_file(self, file: PolicyDocument) -> Result<Self, DocumentFieldError> {
        let drained = self.policy.drained;
        let sorted = |parts: &[String]| parts.iter().cloned().collect::<BTreeSet<String>>();
        if !file.drained.is_empty() && sorted(&file.drained) != sorted(&drained) {
            let now = if drained.is_empty() { "nothing".to_owned() } else { drained.join(", ") };
            return Err(DocumentFieldError {
                file: "policy".to_owned(),
                field: "drained".to_owned(),
                problem: format!(
                    "drains are changed by crux drain and crux undrain alone, so that no change \
                     of policy ends one; remove the field (drained: {now})"
                ),
            });
        }
        Ok(Self { policy: PolicyDocument { drained, ..file }, ..self })
    }

    /// An earlier content with the drains of this one.
    #[must_use]
    pub fn with_drains_of(mut self, now: &Self) -> Self {
        self.policy.drained.clone_from(&now.policy.drained);
        self
    }

    /// The fields in which `after` differs, each with both values.
    pub fn changes_to(&self, after: &Self) -> Vec<String> {
        let [old, new] = [self, after].map(|content| {
            let mut fields = serde_json::to_value(&content.policy).unwrap_or_default();
            fields["drained"] = json!(content.policy.drained);
            fields
        });
        let mut changes = Vec::new();
        diff_values("", &old, &new, &mut changes);
        let is_new = |one: &&TemporaryOverride| !self.temporary_overrides.contains(one);
        let is_gone = |one: &&TemporaryOverride| !after.temporary_overrides.contains(one);
        changes.extend(after.temporary_overrides.iter().filter(is_new).map(|one| {
            format!("override until {}: {}", format_utc(one.until_ms), describe_rule(&one.rule))
        }));
        changes.extend(
            self.temporary_overrides
                .iter()
                .filter(is_gone)
                .map(|one| format!("no override any more: {}", describe_rule(&one.rule))),
        );
        changes
    }

    /// The parts that `after` drains in addition, if it changes nothing else.
    pub fn only_added_drains(&self, after: &Self) -> Option<Vec<String>> {
        let known: BTreeSet<&String> = self.policy.drained.iter().collect();
        let kept: BTreeSet<&String> = after.policy.drained.iter().collect();
        let added: Vec<String> = kept.difference(&known).map(|part| (*part).clone()).collect();
        let is_drain = !added.is_empty()
            && known.is_subset(&kept)
            && self.without_drains() == after.without_drains();
        is_drain.then_some(added)
    }

    /// The content without its drains.
    fn without_drains(&self) -> Self {
        let policy = PolicyDocument { drained: Vec::new(), ..self.policy.clone() };
        Self { policy, temporary_overrides: self.temporary_overrides.clone() }
    }

    /// The content without overrides that have expired at `now`, if any has.
    fn without_expired(&self, now: UnixMs) -> Option<Self> {
        let mut left = self.clone();
        left.temporary_overrides.retain(|temporary| temporary.until_ms > now);
        (left.temporary_overrides.len() < self.temporary_overrides.len()).then_some(left)
    }
}

impl From<&Policy> for PolicyContent {
    fn from(policy: &Policy) -> Self {
        Self { policy: PolicyDocument::from(policy), temporary_overrides: Vec::new() }
    }
}

impl PolicyTrial {
    /// The trial with these parts drained however it ends.
    fn with_drains(&self, parts: Vec<String>) -> Self {
        let mut trial = self.clone();
        let drained = &mut trial.before.policy.drained;
        drained.extend(parts);
        drained.sort();
        drained.dedup();
        trial
    }
}

impl PolicyRevision {
    /// The first revision, used when nothing is stored.
    pub fn from_initial_policy(policy: &Policy) -> Self {
        Self { number: 1, content: PolicyContent::from(policy), ..Self::default() }
    }

    /// The revision at `now`, after everything that expired since it was stored. A trial that no
    /// operator confirms ends with the run of the controller that applied it.
    ///
    /// Where the clock was set back since it was proposed, what expires lasts as long as was asked
    /// for, counted from `now`.
    #[must_use]
    pub fn effective_at(mut self, now: UnixMs) -> Self {
        self.shift_expiries(self.metadata.at_ms.saturating_sub(now));
        let is_abandoned = self.trial.as_ref().is_some_and(|trial| !trial.awaits_confirmation);
        if let Some(trial) = self.trial.take_if(|_| is_abandoned) {
            return self.automatic_revision(trial.before, ABANDONED, now);
        }
        let follows = self.automatic_successor(now);
        follows.unwrap_or(self)
    }

    /// Has everything expire earlier.
    fn shift_expiries(&mut self, by_ms: UnixMs) {
        let trial = self.trial.iter_mut().map(|trial| &mut trial.until_ms);
        let overrides = self.content.temporary_overrides.iter_mut();
        for until in trial.chain(overrides.map(|temporary| &mut temporary.until_ms)) {
            *until = until.saturating_sub(by_ms);
        }
    }

    /// The revision that follows by expiry at `now`, if anything has expired.
    fn automatic_successor(&self, now: UnixMs) -> Option<Self> {
        let over = self.trial.as_ref().filter(|trial| trial.until_ms <= now);
        let (content, why) = match over {
            Some(trial) => (trial.before.clone(), "not confirmed in time"),
            None => (self.content.without_expired(now)?, "a temporary override expired"),
        };
        let still = self.trial.clone().filter(|_| over.is_none());
        Some(Self { trial: still, ..self.automatic_revision(content, why, now) })
    }

    /// The next revision, without an operator, with `content` less what has expired.
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

    /// The next time at which something expires.
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
    /// Bytes of each of them as JSON.
    sizes: BTreeMap<u64, usize>,
    /// Revisions that the bounds have cost.
    dropped: u64,
}

impl PolicyHistory {
    /// A history that begins with known revisions.
    pub fn new(latest: PolicyRevision, earlier: impl IntoIterator<Item = PolicyRevision>) -> Self {
        let mut history =
            Self { latest, earlier: BTreeMap::new(), sizes: BTreeMap::new(), dropped: 0 };
        earlier.into_iter().for_each(|revision| history.keep_earlier(revision));
        history.drop_oldest();
        history
    }

    fn keep_earlier(&mut self, revision: PolicyRevision) {
        let size = serde_json::to_vec(&revision).map_or(0, |text| text.len());
        self.sizes.insert(revision.number, size);
        self.earlier.insert(revision.number, revision);
    }

    /// Drops the oldest revisions beyond the bounds.
    fn drop_oldest(&mut self) {
        let mut bytes: usize = self.sizes.values().sum();
        while self.earlier.len() > 1
            && (self.earlier.len() > REVISIONS_KEPT || bytes > HISTORY_BYTES)
        {
            self.earlier.pop_first();
            bytes -= self.sizes.pop_first().map_or(0, |(_, size)| size);
            self.dropped += 1;
        }
    }

    /// How many revisions the bounds have cost, in this run.
    pub fn dropped_revisions(&self) -> u64 {
        self.dropped
    }

    /// The revision in force.
    pub fn latest(&self) -> &PolicyRevision {
        &self.latest
    }

    /// All known revisions, the latest first, each with its changes.
    pub fn revisions_with_changes(&self) -> Vec<(&PolicyRevision, Vec<String>)> {
        Self::with_changes(self.revisions())
    }

    /// The latest `limit` revisions before one, or of all, as far as they fit in [`PAGE_BYTES`] and
    /// at least one; each with its changes.
    pub fn revision_page(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Vec<(&PolicyRevision, Vec<String>)> {
        let mut bytes = 0;
        let fits = |revision: &&PolicyRevision| {
            let is_first = bytes == 0;
            bytes += self.sizes.get(&revision.number).copied().unwrap_or(1);
            is_first || bytes <= PAGE_BYTES
        };
        let older = self.revisions().filter(|one| before.is_none_or(|before| one.number < before));
        let page: Vec<&PolicyRevision> = older.take(limit).take_while(fits).collect();
        // The changes of the last one are those from the revision before it.
        let next = page
            .last()
            .and_then(|last| self.revisions().find(|revision| revision.number < last.number));
        let length = page.len();
        let mut page = Self::with_changes(page.into_iter().chain(next));
        page.truncate(length);
        page
    }

    /// All known revisions, the latest first.
    pub fn revisions(&self) -> impl Iterator<Item = &PolicyRevision> {
        std::iter::once(&self.latest).chain(self.earlier.values().rev())
    }

    /// Revisions, each before the next one in time, with the changes that it made.
    fn with_changes<'a>(
        revisions: impl Iterator<Item = &'a PolicyRevision>,
    ) -> Vec<(&'a PolicyRevision, Vec<String>)> {
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

    /// The revision before the latest.
    pub fn previous_revision(&self) -> Option<&PolicyRevision> {
        self.earlier.values().next_back()
    }

    /// Whether a content was in force before or is now, drains aside: an operator drains, or goes
    /// back to what worked.
    pub fn is_known(&self, content: &PolicyContent) -> bool {
        let wanted = content.without_drains();
        self.revisions().any(|revision| revision.content.without_drains() == wanted)
    }

    /// The next revision with this content, on trial on these terms if there are any.
    ///
    /// Drains are accepted during a trial, which goes on and keeps them however it ends: a broken
    /// part must not wait for anybody.
    ///
    /// # Errors
    /// The latest revision is on trial, and the content differs from it in more than added drains.
    pub fn propose_revision(
        &self,
        content: PolicyContent,
        metadata: RevisionMetadata,
        terms: Option<TrialTerms>,
    ) -> Result<PolicyRevision, PolicyHistoryError> {
        let trial = match &self.latest.trial {
            None => terms.map(|terms| PolicyTrial {
                until_ms: terms.until_ms,
                before: self.latest.content.clone(),
                awaits_confirmation: terms.awaits_confirmation,
            }),
            Some(trial) => {
                let added = self.latest.content.only_added_drains(&content);
                let added = added.ok_or(PolicyHistoryError::OnTrial(self.latest.number))?;
                Some(trial.with_drains(added))
            }
        };
        Ok(PolicyRevision { number: self.latest.number + 1, content, metadata, trial })
    }

    /// The revision that rolls the trial back: the content from before it.
    ///
    /// # Errors
    /// No revision is on trial.
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
    /// No revision is on trial.
    pub fn confirm_trial(&self) -> Result<PolicyRevision, PolicyHistoryError> {
        let is_on_trial = self.latest.trial.is_some();
        let confirmed = PolicyRevision { trial: None, ..self.latest.clone() };
        is_on_trial.then_some(confirmed).ok_or(PolicyHistoryError::NoTrial)
    }

    /// The revision that follows by expiry at `now`, if anything has expired.
    pub fn due_revision(&self, now: UnixMs) -> Option<PolicyRevision> {
        self.latest.automatic_successor(now)
    }

    /// When to call [`Self::due_revision`] again, milliseconds of Unix time.
    pub fn next_due_ms(&self) -> Option<UnixMs> {
        self.latest.next_expiry()
    }

    /// The latest content for good, for a trial whose earlier content cannot be restored.
    pub fn retain_latest(&self, now: UnixMs) -> PolicyRevision {
        let why = "not confirmed in time, but the policy before it no longer fits the fabric";
        self.latest.automatic_revision(self.latest.content.clone(), why, now)
    }

    /// Ends the drains of parts that a fabric does not have any more, also those that the end of a
    /// trial would bring back.
    pub fn end_drains_without(&mut self, is_there: impl Fn(&str) -> bool, now: UnixMs) {
        let latest = self.latest();
        let kept = |content: &PolicyContent| {
            let mut content = content.clone();
            content.policy.drained.retain(|part| is_there(part));
            content
        };
        let content = kept(&latest.content);
        let trial = latest.trial.as_ref();
        let trial = trial.map(|trial| PolicyTrial { before: kept(&trial.before), ..trial.clone() });
        if content == latest.content && trial == latest.trial {
            return;
        }
        let next = latest.automatic_revision(content, "the fabric lacks what was drained", now);
        self.append_revision(PolicyRevision { trial, ..next });
    }

    /// Puts a revision in force, in place of those from its number on: an earlier leader entered
    /// them but could not store them.
    pub fn append_revision(&mut self, revision: PolicyRevision) {
        let before = std::mem::replace(&mut self.latest, revision);
        self.keep_earlier(before);
        self.earlier.split_off(&self.latest.number);
        self.sizes.split_off(&self.latest.number);
        self.drop_oldest();
    }
}

/// A rule as a policy file has it, in one line.
fn describe_rule(rule: &OverrideDocument) -> String {
    let fields = serde_json::to_value(rule).unwrap_or_default();
    let fields = fields.as_object().into_iter().flatten();
    fields.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

/// A time that reads the same in every log.
fn format_utc(at_ms: UnixMs) -> String {
    timestamp_from_unix(at_ms).map_or_else(
        || format!("{at_ms} ms"),
        |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Adds the leaves in which two values differ.
fn diff_values(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before_fields), Value::Object(after_fields)) => {
            let fields: BTreeSet<&String> =
                before_fields.keys().chain(after_fields.keys()).collect();
            for field in fields {
                let inner = match path {
                    "" => field.clone(),
                    path => format!("{path}.{field}"),
                };
                diff_values(&inner, &before[field], &after[field], changes);
            }
        }
        _ if before == after => {}
        _ => {
            let [before, after] = [before, after].map(describe_value);
            changes.push(format!("{path}: {before} -> {after}"));
        }
    }
}

/// A value as a policy file has it; a field without one is unset there.
fn describe_value(value: &Value) -> String {
    if value.is_null() { "unset".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests;
