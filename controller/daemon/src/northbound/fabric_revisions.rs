//! Other fabrics on a running controller, as operators ask for them: what one would change, putting
//! one in force, its history, and the way back.
//!
//! HTTP has the messages as JSON and gRPC as the messages of the same names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use topology::spec::{FabricDocument, explicit_document};
use topology::{Fabric, Finding};

use super::document_file::{DocumentFile, check_format, parse_fabric};
use super::planning_pool::PlanningSlot;
use super::service::{NorthboundService, ServiceError, refuse_with};
use crate::access::ControllerError;
use crate::audit::AuditAction;
use crate::fabric_history::{FabricRevision, diff_documents};
use crate::policy_history::RevisionMetadata;
use crate::preview::FabricPreview;
use crate::state::FabricProposal;

/// A fabric, as an operator asks about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewFabricRequest {
    /// The whole fabric, as its file has it.
    pub fabric: DocumentFile,
}

/// A fabric that is to be in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyFabricRequest {
    /// The whole fabric, as its file has it.
    pub fabric: DocumentFile,
    /// Who wants it.
    pub author: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Whether running jobs may lose their hosts by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Has an earlier fabric in force again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackFabricRequest {
    /// Who.
    pub author: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// The revision; without it, the one before the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether running jobs may lose their hosts by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What became of a fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricChangeResponse {
    /// The revision in force.
    pub revision: u64,
    /// What it changed, a part a line.
    pub changes: Vec<String>,
    /// What a person should know, such as switches that do not hold its tables yet.
    pub findings: Vec<Finding>,
}

/// A revision of the fabric without its document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricRevisionRow {
    /// Its number.
    pub number: u64,
    /// Author, reason and time.
    pub metadata: RevisionMetadata,
    /// What it changed, a part a line.
    pub changes: Vec<String>,
}

impl NorthboundService {
    /// The revisions of the fabric, the latest first; none where discovery finds it.
    pub async fn list_fabric_revisions(&self) -> Result<Vec<FabricRevisionRow>, ServiceError> {
        let history = self.access.fabric_history();
        let rows = history.revisions().iter().rev().cloned().map(|revision| FabricRevisionRow {
            number: revision.number,
            metadata: revision.metadata,
            changes: revision.changes,
        });
        Ok(rows.collect())
    }

    /// What a fabric would change; nothing changes.
    ///
    /// # Errors
    /// It would be refused, except over jobs that it leaves without hosts.
    pub async fn preview_fabric(
        &self,
        request: &PreviewFabricRequest,
    ) -> Result<FabricPreview, ServiceError> {
        let slot = self.pool.acquire_slot(&self.caller).await?;
        let in_force = self.access.current_rollout().ok_or(ControllerError::Stopped)?.fabric;
        let (fabric, slot) = self.read_fabric(&request.fabric, slot).await?;
        let before = self.document_in_force(&in_force);
        let changes = diff_documents(&before, &explicit_document(&fabric));
        let considered = self.access.consider_fabric(fabric).await?.map_err(refuse_with)?;
        let lost_jobs = considered.lost_jobs.iter().map(ToString::to_string).collect();
        let plan = self.preview_request(considered.request, considered.jobs, slot).await?;
        Ok(FabricPreview { fabric: changes, lost_jobs, plan })
    }

    /// Has a fabric in force.
    ///
    /// # Errors
    /// It is refused: it is no sound fabric, lacks what the policy or a running job names, or
    /// cannot be stored.
    pub async fn apply_fabric(
        &self,
        request: &ApplyFabricRequest,
    ) -> Result<FabricChangeResponse, ServiceError> {
        let signature = self.sign_change(&request.author, &request.reason)?;
        let slot = self.changes.acquire_slot(&self.caller).await?;
        let (fabric, _) = self.read_fabric(&request.fabric, slot).await?;
        let proposal =
            FabricProposal { fabric, signature, is_of_file: false, force: request.force };
        self.propose_fabric(proposal, AuditAction::FabricApplied).await
    }

    /// Has an earlier fabric in force again.
    ///
    /// # Errors
    /// There is no such revision, or as for [`NorthboundService::apply_fabric`].
    pub async fn rollback_fabric(
        &self,
        request: &RollbackFabricRequest,
    ) -> Result<FabricChangeResponse, ServiceError> {
        let signature = self.sign_change(&request.author, &request.reason)?;
        let history = self.access.fabric_history();
        let found = history.find_revision(request.revision).ok_or_else(|| {
            ServiceError::Unknown(match request.revision {
                Some(number) => {
                    format!("fabric revision {number} is not kept; crux fabric history")
                }
                None => "no other fabric was in force before".to_owned(),
            })
        })?;
        let fabric = Fabric::try_from(&found.document)
            .map_err(|error| refuse_with(Finding::error("fabric", error.to_string())))?;
        let proposal =
            FabricProposal { fabric, signature, is_of_file: false, force: request.force };
        self.propose_fabric(proposal, AuditAction::FabricRolledBack).await
    }

    /// The fabric of a file, its parts in the order of those in force.
    async fn read_fabric(
        &self,
        file: &DocumentFile,
        slot: PlanningSlot,
    ) -> Result<(Fabric, PlanningSlot), ServiceError> {
        let (file, history) = (file.clone(), self.access.fabric_history());
        let work = move || {
            check_format("fabric", &file)?;
            history.prepare(&parse_fabric(&file)?)
        };
        let (fabric, slot) = slot.run_then_return(work).await?;
        Ok((fabric.map_err(refuse_with)?, slot))
    }

    /// The latest document that an operator gave; of a fabric that discovery found, its own.
    fn document_in_force(&self, fabric: &Fabric) -> FabricDocument {
        let history = self.access.fabric_history();
        let latest = history.latest().map(|latest| latest.document.clone());
        latest.unwrap_or_else(|| explicit_document(fabric))
    }

    async fn propose_fabric(
        &self,
        proposal: FabricProposal,
        action: AuditAction,
    ) -> Result<FabricChangeResponse, ServiceError> {
        let RevisionMetadata { author, reason, .. } = proposal.signature.clone();
        let audit = self.access.audit_trail();
        let proposed = Instant::now();
        let before = self.access.fabric_history().latest().map(|latest| latest.number);
        let receipt = self.access.apply_fabric(proposal).await?;
        if let Some(refusal) = receipt.refusal {
            let detail = refusal.to_string();
            audit.record_action(AuditAction::FabricRefused, &author, &reason, &detail);
            return Err(refuse_with(refusal));
        }
        let mut findings = receipt.findings;
        findings.extend(self.committer.missing_switches(receipt.generation, proposed).await?);
        let history = self.access.fabric_history();
        let FabricRevision { number, changes, .. } = history.latest().cloned().unwrap_or_default();
        if before == Some(number) {
            findings.push(Finding::info("fabric", "nothing changes"));
            return Ok(FabricChangeResponse { revision: number, changes: Vec::new(), findings });
        }
        audit.record_action(action, &author, &reason, &format!("revision {number}"));
        Ok(FabricChangeResponse { revision: number, changes, findings })
    }
}
