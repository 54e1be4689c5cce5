//! Requests and responses of policy changes, as they stand on the wire.
//!
//! HTTP has them as JSON and gRPC as the messages of the same names; both protocols convert to
//! these types and call [`NorthboundService`](super::service::NorthboundService).

use planner::{DocumentFieldError, OverrideDocument, PolicyEdit, PolicyEditAction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Finding;

use super::document_file::{DocumentFile, parse_policy};
use crate::policy_history::{PolicyContent, PolicyRevision, TemporaryOverride, UnixMs};

/// Revisions of a page of the history, if the caller names no number, and at most.
const PAGE_REVISIONS: u32 = 100;
const PAGE_REVISIONS_MAX: u32 = 1_000;

/// Parts that a request drains at most without waiting for a thread.
const MAX_DRAINS: usize = 64;
/// Edits of a request. Each checks the whole policy anew.
const MAX_EDITS: usize = 1_000;

/// A change of policy, as an operator asks for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewPolicyRequest {
    /// The policy; without it, the one in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<DocumentFile>,
    /// Changes of single fields, made one after the other to that policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<PolicyEdit>,
    /// An override for some time, before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_override: Option<TemporaryOverrideRequest>,
}

impl PreviewPolicyRequest {
    /// The content that it leads to from what is in force at `now`.
    ///
    /// # Errors
    /// What is wrong with the file, an edit or the override.
    pub(super) fn resolve(
        &self,
        in_force: PolicyContent,
        now: UnixMs,
    ) -> Result<PolicyContent, Finding> {
        let refuse = |error: DocumentFieldError| Finding::error("policy", error.to_string());
        let mut content = in_force;
        if let Some(file) = &self.policy {
            content = content.with_policy_file(parse_policy(file)?).map_err(refuse)?;
        }
        if self.edits.len() > MAX_EDITS {
            let text = format!("{} edits; a request has at most {MAX_EDITS}", self.edits.len());
            return Err(Finding::error("policy", text));
        }
        for edit in &self.edits {
            content.policy = content.policy.with_edit(edit).map_err(refuse)?;
        }
        if let Some(wanted) = &self.temporary_override {
            let lasts = wanted.duration_seconds.saturating_mul(1_000);
            let until_ms = now.saturating_add(lasts);
            let temporary = TemporaryOverride { rule: wanted.rule.clone(), until_ms };
            content.temporary_overrides.insert(0, temporary);
        }
        Ok(content)
    }

    /// Whether it drains parts, or uses them again, and changes nothing else; not one with more
    /// parts than a person names.
    pub(super) fn only_drains(&self) -> bool {
        let is_drain = |edit: &PolicyEdit| {
            matches!(edit.action, PolicyEditAction::Drain | PolicyEditAction::Undrain)
        };
        self.policy.is_none()
            && self.temporary_override.is_none()
            && (1..=MAX_DRAINS).contains(&self.edits.len())
            && self.edits.iter().all(is_drain)
    }
}

/// Which revisions of the policy history are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListPolicyRevisionsRequest {
    /// Only revisions before this number; the latest ones without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Revisions at most; 100 without it, and never more than 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl ListPolicyRevisionsRequest {
    pub(super) fn page_limit(self) -> usize {
        self.limit.unwrap_or(PAGE_REVISIONS).clamp(1, PAGE_REVISIONS_MAX) as usize
    }
}

/// An override for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemporaryOverrideRequest {
    /// What it says.
    pub rule: OverrideDocument,
    /// For how long, seconds.
    pub duration_seconds: u64,
}

/// A change of policy that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPolicyRequest {
    /// Which.
    pub change: PreviewPolicyRequest,
    /// Who wants it.
    pub author: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Taken back after so many seconds unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_seconds: Option<u64>,
    /// Whether it may drain the last path of NICs, over which their traffic then goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl ApplyPolicyRequest {
    /// When it is taken back, and whether it may drain a last path.
    pub fn terms(&self) -> ChangeTerms {
        ChangeTerms { confirm_within: self.confirm_within_seconds, force: self.force }
    }
}

/// The terms of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeTerms {
    /// Taken back after so many seconds unless it is confirmed.
    pub confirm_within: Option<u64>,
    /// Whether it may drain the last path of NICs.
    pub force: bool,
}

/// Confirms the revision on trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmPolicyRequest {
    /// The operator who confirms it.
    pub author: String,
    /// Why, for the record of requests; the revision keeps the reason that it was applied with.
    #[serde(default)]
    pub reason: String,
}

/// Ends a trial, or applies an earlier revision again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackPolicyRequest {
    /// Who.
    pub author: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// To go back to this revision; without it, to what was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChangeResponse {
    /// The revision in force.
    pub revision: u64,
    /// Whether what was ordered is in force, and every switch holds it.
    pub applied: bool,
    /// When it ends unless it is confirmed, milliseconds of Unix time.
    pub trial_until_ms: Option<UnixMs>,
    /// What a person should know.
    pub findings: Vec<Finding>,
}

/// A revision, as history tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRevisionDiff {
    /// The revision.
    pub revision: PolicyRevision,
    /// What it changed, field by field.
    pub changes: Vec<String>,
}
