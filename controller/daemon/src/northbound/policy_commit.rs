//! Commits a policy: a trial until the switches that answer are verified to hold it.
//!
//! [`service`](super::service) commits what callers ask for, `crux controller` what it reads from a
//! document again. Two decisions. A switch whose calls already failed when a change was proposed is
//! no evidence against it: the change commits without it and the response names it. And drains are
//! not on trial: one sick switch must not keep an operator from draining it or another.

use std::time::Duration;

use planner::{DocumentFieldError, PolicyDocument};
use tokio::time::Instant;
use topology::{Finding, one_line};

use super::policy_messages::{ChangeTerms, PolicyChangeResponse};
use super::service::ServiceError;
use crate::access::{ControllerAccess, ControllerError};
use crate::audit::AuditAction;
use crate::config::Config;
use crate::policy_history::{PolicyContent, RevisionMetadata, TrialTerms};
use crate::state::{PolicyProposal, StateEvent, SubmitReceipt};

/// How long a trial outlives the deadline of the switches, so that it does not expire by itself
/// while its rollback is being submitted.
const TRIAL_MARGIN: Duration = Duration::from_secs(5);

/// Proposes policies and confirms or rolls them back.
#[derive(Clone, Debug)]
pub struct PolicyCommitter {
    access: ControllerAccess,
    verify: Duration,
}

/// A policy that is in force and not yet verified.
#[derive(Clone, Debug)]
pub struct ProposedPolicy {
    receipt: SubmitReceipt,
    signature: RevisionMetadata,
    proposed: Instant,
    end: TrialEnd,
}

/// What ends the trial of a proposed policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialEnd {
    /// The policy was not applied as a trial.
    NoTrial,
    /// The switches.
    Verification,
    /// An operator.
    Confirmation,
}

impl PolicyCommitter {
    /// A committer for the controller of `access`.
    pub fn new(access: ControllerAccess, config: &Config) -> Self {
        Self { access, verify: config.verify_deadline }
    }

    /// Puts a content in force, and keeps it if the switches hold it in time.
    ///
    /// # Errors
    /// It is refused. If switches do not hold it in time, the response reports the rollback.
    pub async fn commit_content(
        &self,
        content: PolicyContent,
        signature: RevisionMetadata,
        terms: ChangeTerms,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let proposed = self.propose_content(content, signature, terms).await?;
        self.settle_proposal(proposed).await
    }

    /// Puts a content in force, on trial unless it only adds drains.
    ///
    /// # Errors
    /// It is refused.
    pub async fn propose_content(
        &self,
        content: PolicyContent,
        signature: RevisionMetadata,
        terms: ChangeTerms,
    ) -> Result<ProposedPolicy, ServiceError> {
        let ChangeTerms { confirm_within, force } = terms;
        let wanted = content.clone();
        let latest = self.access.query_state(move |state| {
            let latest = &state.policy_history().latest().content;
            // A policy that is in force already makes no revision that could be taken back.
            *latest == wanted || latest.only_added_drains(&wanted).is_some()
        });
        let end = match (confirm_within, latest.await?) {
            (Some(_), _) => TrialEnd::Confirmation,
            (None, true) => TrialEnd::NoTrial,
            (None, false) => TrialEnd::Verification,
        };
        let within = confirm_within.map_or(self.verify + TRIAL_MARGIN, Duration::from_secs);
        let terms = TrialTerms {
            until_ms: signature.at_ms.saturating_add(within.as_millis() as u64),
            awaits_confirmation: end == TrialEnd::Confirmation,
        };
        let trial = Some(terms).filter(|_| end != TrialEnd::NoTrial);
        let proposal = PolicyProposal { content, signature: signature.clone(), trial, force };
        let proposed = Instant::now();
        let event = StateEvent::PolicyProposed(Box::new(proposal));
        let receipt = self.submit_signed(event, &signature).await?;
        Ok(ProposedPolicy { receipt, signature, proposed, end })
    }

    /// Puts the policy of a file in force as [`PolicyCommitter::propose_content`] does; drains and
    /// temporary overrides stay.
    ///
    /// # Errors
    /// It is refused.
    pub async fn propose_file(
        &self,
        policy: PolicyDocument,
        signature: RevisionMetadata,
    ) -> Result<ProposedPolicy, ServiceError> {
        let now = self.access.query_state(|state| state.policy_history().latest().content.clone());
        let content = now.await?.with_policy_file(policy);
        let refuse = |error: DocumentFieldError| {
            ServiceError::Refused(vec![Finding::error("policy", error.to_string())])
        };
        self.propose_content(content.map_err(refuse)?, signature, ChangeTerms::default()).await
    }

    /// Waits until the switches hold a proposed policy, then confirms it or rolls it back.
    ///
    /// # Errors
    /// The trial was ended by somebody else.
    pub async fn settle_proposal(
        &self,
        proposal: ProposedPolicy,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let ProposedPolicy { receipt, signature, proposed, end } = proposal;
        let mut findings = receipt.findings;
        let held = self.access.await_committed(receipt.generation, proposed, self.verify);
        match held.await {
            Ok(quarantined) => findings.extend(quarantined.iter().map(missing_finding)),
            Err(ControllerError::NotVerified { missing, .. }) if end == TrialEnd::NoTrial => {
                findings.extend(missing.iter().map(missing_finding));
            }
            Err(why) => {
                let failure = Finding::error("policy", format!("taken back: {why}"));
                let reason = "not every switch held it in time".to_owned();
                let signature = RevisionMetadata { reason, ..signature };
                return self.revert_trial(signature, vec![failure]).await;
            }
        }
        if end == TrialEnd::Verification && self.is_on_trial().await? {
            match self.submit_event(StateEvent::PolicyConfirmed).await {
                Ok(confirmed) => findings.extend(confirmed.findings),
                // The trial would end by itself, and later than the answer to it.
                Err(ServiceError::Refused(why)) => {
                    let reason = "it could not be confirmed".to_owned();
                    let signature = RevisionMetadata { reason, ..signature };
                    return self.revert_trial(signature, why).await;
                }
                Err(error) => return Err(error),
            }
        }
        let response = self.change_response(true, findings).await?;
        self.record_change(AuditAction::PolicyApplied, &signature, &response);
        Ok(response)
    }

    /// Waits until switches hold a generation; warnings about those that do not in time.
    ///
    /// # Errors
    /// The controller has stopped.
    pub(super) async fn missing_switches(
        &self,
        generation: u64,
        since: Instant,
    ) -> Result<Vec<Finding>, ServiceError> {
        let missing = match self.access.await_committed(generation, since, self.verify).await {
            Ok(missing) | Err(ControllerError::NotVerified { missing, .. }) => missing,
            Err(error) => return Err(error.into()),
        };
        Ok(missing.iter().map(missing_finding).collect())
    }

    /// Rolls the trial back.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub(super) async fn revert_trial(
        &self,
        signature: RevisionMetadata,
        mut findings: Vec<Finding>,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let event = StateEvent::PolicyRolledBack(signature.clone());
        let receipt = self.submit_signed(event, &signature).await?;
        findings.extend(receipt.findings);
        let response = self.change_response(false, findings).await?;
        self.record_change(AuditAction::PolicyRolledBack, &signature, &response);
        Ok(response)
    }

    /// Confirms the trial.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub(super) async fn confirm_trial(
        &self,
        signature: RevisionMetadata,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let receipt = self.submit_signed(StateEvent::PolicyConfirmed, &signature).await?;
        let response = self.change_response(true, receipt.findings).await?;
        self.record_change(AuditAction::PolicyConfirmed, &signature, &response);
        Ok(response)
    }

    async fn is_on_trial(&self) -> Result<bool, ServiceError> {
        let query =
            self.access.query_state(|state| state.policy_history().latest().trial.is_some());
        Ok(query.await?)
    }

    async fn change_response(
        &self,
        applied: bool,
        findings: Vec<Finding>,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let query = self.access.query_state(|state| {
            let latest = state.policy_history().latest();
            (latest.number, latest.trial.as_ref().map(|trial| trial.until_ms))
        });
        let (revision, trial_until_ms) = query.await?;
        Ok(PolicyChangeResponse { revision, applied, trial_until_ms, findings })
    }

    /// Submits a change, the refusal of which is recorded.
    async fn submit_signed(
        &self,
        event: StateEvent,
        signature: &RevisionMetadata,
    ) -> Result<SubmitReceipt, ServiceError> {
        let submitted = self.submit_event(event).await;
        submitted.inspect_err(|refused| {
            let RevisionMetadata { author, reason, .. } = signature;
            let audit = self.access.audit_trail();
            audit.record_action(AuditAction::PolicyRefused, author, reason, &refused.to_string());
        })
    }

    /// Records a change that was made.
    fn record_change(
        &self,
        action: AuditAction,
        signature: &RevisionMetadata,
        response: &PolicyChangeResponse,
    ) {
        let RevisionMetadata { author, reason, .. } = signature;
        let findings = if response.findings.is_empty() {
            String::new()
        } else {
            format!("; {}", one_line(&response.findings))
        };
        let detail = format!("revision {}{findings}", response.revision);
        self.access.audit_trail().record_action(action, author, reason, &detail);
    }

    /// Submits an event of which a refusal is an error.
    async fn submit_event(&self, event: StateEvent) -> Result<SubmitReceipt, ServiceError> {
        let receipt = self.access.submit_event(event).await?;
        match receipt.refusal {
            Some(finding) => Err(ServiceError::Refused(vec![finding])),
            None => Ok(receipt),
        }
    }
}

/// The warning about a switch that does not hold a change which is in force.
fn missing_finding(switch: &String) -> Finding {
    Finding::warning("policy", format!("in force without {switch}"))
}
