//! Queries and commands of operators: the one layer that every protocol serves.
//!
//! Pure functions ([`preview`](crate::preview), [`policy_history`](crate::policy_history)) compute
//! the responses from snapshots of the state. The decision: every change of policy is a trial until
//! all switches are verified to hold it. If they do not in time, if a required confirmation is
//! missing, or if the controller dies meanwhile, the policy history ends the trial by itself. In
//! the end either the old or the new policy is in force, as a whole.

use std::sync::Arc;
use std::time::Duration;

use planner::{DocumentFieldError, PlanDocument, PolicyDocument};
use tokio::sync::watch;
use topology::document::{self, DocumentError, DocumentFormat};
use topology::spec::{self, FabricDocument};
use topology::{Finding, one_line};

use super::controller_view::{ControllerView, JobRow, LinkRow, SwitchRow};
use super::explanation::ExplainJobResponse;
use super::metrics;
use super::planner_input::PlannerInput;
pub use super::policy_messages::{
    ApplyPolicyRequest, ConfirmPolicyRequest, PolicyChangeResponse, PolicyFile, PolicyRevisionDiff,
    PreviewPolicyRequest, RollbackPolicyRequest, TemporaryOverrideRequest,
};
use crate::access::{ControllerAccess, ControllerError};
use crate::config::Config;
use crate::policy_history::{PolicyContent, PolicyRevision, RevisionMetadata, TemporaryOverride};
use crate::preview::{PolicyPreview, preview_policy};
use crate::state::SubmitReceipt;
use crate::state::{PolicyProposal, State, StateEvent};
use crate::telemetry::counter_aggregator::MeasuredTraffic;

/// How long a trial outlives the time that switches have to hold it, so that it does not end while
/// its end is being told.
const MARGIN: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// What was asked for makes no sense, or is refused; why.
    #[error("{}", one_line(.0))]
    Refused(Vec<Finding>),
    /// There is nothing of this name.
    #[error("{0}")]
    Unknown(String),
    /// The controller has no answer now.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// The service.
#[derive(Clone, Debug)]
pub struct NorthboundService {
    pub(super) access: ControllerAccess,
    verify: Duration,
    /// What switches count, and where jobs say something else; nothing where nobody reads it.
    measured: Option<MeasurementReceivers>,
    /// Whose request this is, by their token.
    caller: Option<Arc<str>>,
}

/// What switches count, and where jobs say something else.
type MeasurementReceivers = (watch::Receiver<Arc<MeasuredTraffic>>, watch::Receiver<Vec<Finding>>);

impl NorthboundService {
    /// One that asks and tells `access`.
    pub fn new(access: ControllerAccess, config: &Config) -> Self {
        let verify = config.verify_deadline;
        Self { access, verify, measured: None, caller: None }
    }

    /// The same, for who is known by a token.
    #[must_use]
    pub(super) fn with_caller(&self, caller: Option<Arc<str>>) -> Self {
        Self { caller, ..self.clone() }
    }

    /// The same, which also tells what switches count and where jobs say something else.
    #[must_use]
    pub(crate) fn with_measurements(
        self,
        measured: watch::Receiver<Arc<MeasuredTraffic>>,
        disputes: watch::Receiver<Vec<Finding>>,
    ) -> Self {
        Self { measured: Some((measured, disputes)), ..self }
    }

    fn latest_measurements(&self) -> (Arc<MeasuredTraffic>, Vec<Finding>) {
        let counting = self.measured.as_ref();
        counting.map_or_else(Default::default, |(measured, disputes)| {
            (Arc::clone(&measured.borrow()), disputes.borrow().clone())
        })
    }

    /// What is known and decided now.
    ///
    /// # Errors
    /// The controller has stopped, or has no plan yet.
    pub async fn current_view(&self) -> Result<ControllerView, ServiceError> {
        let (question, told) = self.access.query_state(ControllerView::read_inputs).await?;
        let realised = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        let (measured, disputes) = self.latest_measurements();
        Ok(ControllerView {
            request: question,
            reported_jobs: told,
            rollout: realised,
            measured,
            disputes,
            drainage: self.access.watch_drains().borrow().clone(),
            switches: self.access.status_board().all_statuses(),
        })
    }

    /// The jobs in force, by rank.
    ///
    /// # Errors
    /// As for [`NorthboundService::current_view`], and so below.
    pub async fn list_jobs(&self) -> Result<Vec<JobRow>, ServiceError> {
        Ok(self.current_view().await?.job_rows())
    }

    /// All switches.
    ///
    /// # Errors
    /// As above.
    pub async fn list_switches(&self) -> Result<Vec<SwitchRow>, ServiceError> {
        Ok(self.current_view().await?.switch_rows())
    }

    /// All links.
    ///
    /// # Errors
    /// As above.
    pub async fn list_links(&self) -> Result<Vec<LinkRow>, ServiceError> {
        Ok(self.current_view().await?.link_rows())
    }

    /// The fabric, as an explicit document.
    ///
    /// # Errors
    /// As above.
    pub async fn get_fabric(&self) -> Result<FabricDocument, ServiceError> {
        let realised = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        Ok(spec::explicit_document(&realised.fabric))
    }

    /// The plan in force.
    ///
    /// # Errors
    /// As above.
    pub async fn get_plan(&self) -> Result<PlanDocument, ServiceError> {
        Ok(self.current_view().await?.plan_document())
    }

    /// What is planned for.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn get_planner_input(&self) -> Result<PlannerInput, ServiceError> {
        Ok(self.access.query_state(PlannerInput::from_state).await?)
    }

    /// What an operator should look at.
    ///
    /// # Errors
    /// As above.
    pub async fn list_findings(&self) -> Result<Vec<Finding>, ServiceError> {
        Ok(self.current_view().await?.health_findings())
    }

    /// Why a job, or the job of a flow, is treated as it is.
    ///
    /// # Errors
    /// There is neither; the error has the nearest name.
    pub async fn explain_job(&self, name: &str) -> Result<ExplainJobResponse, ServiceError> {
        let view = self.current_view().await?;
        let unknown = || {
            let jobs = view.rollout.plan.jobs.iter().map(|job| job.id.as_str());
            let near = document::nearest_name(name, jobs);
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            ServiceError::Unknown(format!("no job and no flow is called `{name}`{near}"))
        };
        view.find_explanation(name).ok_or_else(unknown)
    }

    /// Metrics as Prometheus reads them.
    ///
    /// # Errors
    /// As above.
    pub async fn render_metrics(&self) -> Result<String, ServiceError> {
        Ok(metrics::render_metrics(
            &self.current_view().await?,
            &self.access.latest_timing(),
            &self.access.stage_histograms(),
        ))
    }

    /// The revision of the policy that is in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn get_policy(&self) -> Result<PolicyRevision, ServiceError> {
        Ok(self.access.query_state(|state| state.policy_history().latest().clone()).await?)
    }

    /// All revisions, the latest first.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn list_policy_revisions(&self) -> Result<Vec<PolicyRevisionDiff>, ServiceError> {
        let history = |state: &State| {
            let history = state.policy_history().revisions_with_changes().into_iter();
            let chapter = |(revision, changes): (&PolicyRevision, _)| PolicyRevisionDiff {
                revision: revision.clone(),
                changes,
            };
            history.map(chapter).collect()
        };
        Ok(self.access.query_state(history).await?)
    }

    /// What a change would do; nothing changes.
    ///
    /// # Errors
    /// It would be refused.
    pub async fn preview_policy(
        &self,
        wish: &PreviewPolicyRequest,
    ) -> Result<PolicyPreview, ServiceError> {
        let content = self.resolve_content(wish).await?;
        let considered = content.clone();
        let look = move |state: &State| {
            let changes = state.policy_history().latest().content.changes_to(&considered);
            (changes, state.preview_request(&considered))
        };
        let (policy, question) = self.access.query_state(look).await?;
        let question = question.map_err(refuse_with)?;
        let tables = self.access.desired_tables().tables.clone();
        let present = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        let work = move || preview_policy(question, &present, &tables);
        let preview = tokio::task::spawn_blocking(work).await;
        let preview = preview.map_err(|_| ControllerError::Stopped)?;
        let preview =
            preview.map_err(|why| refuse_with(Finding::error("forecast", why.to_string())))?;
        Ok(PolicyPreview { policy, ..preview })
    }

    /// Makes a change: all of it, or none.
    ///
    /// # Errors
    /// It is refused. That switches do not hold it in time is no error but the answer that it was
    /// taken back.
    pub async fn apply_policy(
        &self,
        order: &ApplyPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let content = self.resolve_content(&order.change).await?;
        let signature = self.sign_change(&order.author, &order.reason);
        self.put_in_force(content, signature, order.confirm_within_seconds).await
    }

    /// Lets the revision on trial stay.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub async fn confirm_policy(
        &self,
        _: &ConfirmPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let receipt = self.submit_event(StateEvent::PolicyConfirmed).await?;
        self.change_response(true, receipt.findings).await
    }

    /// Goes back: from a trial, to what was before it, or to any revision.
    ///
    /// # Errors
    /// There is nothing to go back to.
    pub async fn rollback_policy(
        &self,
        say: &RollbackPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let signature = self.sign_change(&say.author, &say.reason);
        let wanted = say.revision;
        let target = move |state: &State| {
            let ledger = state.policy_history();
            let revision = wanted
                .map_or_else(|| ledger.previous_revision(), |number| ledger.find_revision(number));
            let content = revision.map(|revision| revision.content.clone());
            (ledger.latest().trial.is_some(), content)
        };
        let (on_trial, content) = self.access.query_state(target).await?;
        if on_trial && wanted.is_none() {
            return self.revert_trial(signature, Vec::new()).await;
        }
        let unknown = || match wanted {
            Some(number) => ServiceError::Unknown(format!("there is no revision {number}")),
            None => ServiceError::Unknown("nothing was in force before".to_owned()),
        };
        self.put_in_force(content.ok_or_else(unknown)?, signature, None).await
    }

    /// Puts a content in force, and keeps it if every switch holds it in time.
    async fn put_in_force(
        &self,
        content: PolicyContent,
        signature: RevisionMetadata,
        confirm_within: Option<u64>,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let within = confirm_within.map_or(self.verify + MARGIN, Duration::from_secs);
        let until = signature.at_ms.saturating_add(within.as_millis() as u64);
        let proposal =
            PolicyProposal { content, signature: signature.clone(), trial_until: Some(until) };
        let receipt = self.submit_event(StateEvent::PolicyProposed(Box::new(proposal))).await?;
        let verified = self.access.await_verified(receipt.generation, self.verify);
        if let Err(why) = verified.await {
            let told = Finding::error("policy", format!("taken back: {why}"));
            let reason = "not every switch held it in time".to_owned();
            let signature = RevisionMetadata { reason, ..signature };
            return self.revert_trial(signature, vec![told]).await;
        }
        let is_on_trial = |state: &State| state.policy_history().latest().trial.is_some();
        if confirm_within.is_none() && self.access.query_state(is_on_trial).await? {
            self.submit_event(StateEvent::PolicyConfirmed).await?;
        }
        self.change_response(true, receipt.findings).await
    }

    async fn revert_trial(
        &self,
        signature: RevisionMetadata,
        mut findings: Vec<Finding>,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let receipt = self.submit_event(StateEvent::PolicyRolledBack(signature)).await?;
        findings.extend(receipt.findings);
        self.change_response(false, findings).await
    }

    async fn change_response(
        &self,
        applied: bool,
        findings: Vec<Finding>,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let latest = self.get_policy().await?;
        Ok(PolicyChangeResponse {
            revision: latest.number,
            applied,
            trial_until_ms: latest.trial.map(|trial| trial.until_ms),
            findings,
        })
    }

    /// Submits an event of which a refusal is an error.
    async fn submit_event(&self, event: StateEvent) -> Result<SubmitReceipt, ServiceError> {
        let receipt = self.access.submit_event(event).await?;
        match receipt.refusal {
            Some(finding) => Err(refuse_with(finding)),
            None => Ok(receipt),
        }
    }

    fn sign_change(&self, author: &str, reason: &str) -> RevisionMetadata {
        // What somebody says of themselves stands beside what is known of them.
        let author = match self.caller.as_deref() {
            None => author.to_owned(),
            Some(known) if author.is_empty() || author == known => known.to_owned(),
            Some(known) => format!("{known} (says {author})"),
        };
        RevisionMetadata {
            author,
            reason: reason.to_owned(),
            at_ms: self.access.clock().unix_now(),
        }
    }

    /// What a wish comes to, on what is in force.
    async fn resolve_content(
        &self,
        wish: &PreviewPolicyRequest,
    ) -> Result<PolicyContent, ServiceError> {
        let mut content = self.get_policy().await?.content;
        if let Some(text) = &wish.policy {
            content.policy = parse_policy(text).map_err(refuse_with)?;
        }
        if let Some(wanted) = &wish.temporary_override {
            let lasts = wanted.duration_seconds.saturating_mul(1_000);
            let temporary = TemporaryOverride {
                rule: wanted.rule.clone(),
                until_ms: self.access.clock().unix_now().saturating_add(lasts),
            };
            content.temporary_overrides.insert(0, temporary);
        }
        Ok(content)
    }
}

/// The policy document that a text is, with the line of whatever is wrong.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn parse_policy(text: &PolicyFile) -> Result<PolicyDocument, Finding> {
    let PolicyFile { file, text } = text;
    let wrong = |error: DocumentError| Finding::error("policy", error.to_string());
    let format = DocumentFormat::from_file_name(file).map_err(wrong)?;
    let document: PolicyDocument = document::parse_document(text, format, file).map_err(wrong)?;
    let sound = document.to_policy(file);
    let located = |error: DocumentFieldError| error.with_line_in(text, format);
    sound.map_err(|error| Finding::error("policy", located(error).to_string()))?;
    Ok(document)
}

fn refuse_with(finding: Finding) -> ServiceError {
    ServiceError::Refused(vec![finding])
}
