//! Queries and commands of operators: the one layer that every protocol serves.
//!
//! Pure functions ([`preview`](crate::preview), [`policy_history`](crate::policy_history)) compute
//! the responses from snapshots of the state. The decision: every change of policy is a trial until
//! the switches are verified to hold it ([`policy_commit`](super::policy_commit)). If they do not
//! in time, if a required confirmation is missing, or if the controller dies meanwhile, the policy
//! history ends the trial by itself. In the end either the old or the new policy is in force, as a
//! whole.

use std::sync::{Arc, Weak};

use planner::{Interrupt, Job, PlanDocument};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use topology::Finding;
use topology::document;
use topology::spec::{self, FabricDocument};

use super::controller_view::{ControllerView, JobRow, LinkRow, SwitchRow};
pub use super::document_file::{DocumentFile, parse_policy};
use super::document_file::{check_policy_file, check_text};
use super::explanation::ExplainJobResponse;
use super::fabric_map::{FabricGraph, JobFlowRow, LinkLoadTable};
pub use super::fabric_revisions::{
    ApplyFabricRequest, FabricChangeResponse, FabricRevisionRow, PreviewFabricRequest,
    RollbackFabricRequest,
};
use super::learned_flow::{LearnedFlowRow, learned_flow_rows};
use super::limit_counters::{LimitCounters, LimitReached};
use super::metrics::MetricsText;
use super::planner_input::PlannerInput;
use super::planning_pool::{PlanningPool, PlanningSlot};
use super::policy_commit::PolicyCommitter;
use super::policy_messages::ChangeTerms;
pub use super::policy_messages::{
    ApplyPolicyRequest, ConfirmPolicyRequest, ListPolicyRevisionsRequest, PolicyChangeResponse,
    PolicyRevisionDiff, PreviewPolicyRequest, RollbackPolicyRequest, TemporaryOverrideRequest,
};
pub use super::service_error::ServiceError;
use super::utilization::{UtilizationHistory, UtilizationLog, UtilizationPage};
use crate::access::{ControllerAccess, ControllerError};
use crate::audit::AuditRecord;
use crate::config::Config;
use crate::policy_history::{PolicyContent, PolicyRevision, RevisionMetadata};
use crate::preview::{PlanPreview, PolicyPreview, PresentPlan, preview_plan};
use crate::state::PlanRequest;
use crate::store::STORE_ALARM;
use crate::telemetry::counter_aggregator::MeasuredTraffic;
use crate::telemetry::task::ReportSummary;

/// Bytes of the name of an author.
const AUTHOR_BYTES: usize = 128;
/// Bytes of a reason.
const REASON_BYTES: usize = 1_024;

/// Answers the queries and commands of operators, whatever protocol they use.
#[derive(Clone, Debug)]
pub struct NorthboundService {
    pub(super) access: ControllerAccess,
    pub(super) committer: PolicyCommitter,
    /// What switches count, and where reports differ; none where counters are not read.
    measured: Option<MeasurementReceivers>,
    /// Samples of the utilisation; none where nothing is sampled.
    utilization: Option<watch::Receiver<UtilizationLog>>,
    /// The caller, if a token identifies one.
    pub(super) caller: Option<Arc<str>>,
    /// The warning that anyone may do everything, if so.
    open_access: Option<Finding>,
    limited: LimitCounters,
    pub(super) pool: PlanningPool,
    /// For what changes something, which must not wait behind previews.
    pub(super) changes: PlanningPool,
    /// Held from reading the policy in force to proposing what is made of it.
    policy_changes: Arc<Mutex<()>>,
    document_max: usize,
}

/// What switches count, and where reports of jobs differ from that.
type MeasurementReceivers = (watch::Receiver<Arc<MeasuredTraffic>>, watch::Receiver<ReportSummary>);

impl NorthboundService {
    /// A service that queries and changes the controller through `access`.
    pub fn new(access: ControllerAccess, config: &Config) -> Self {
        let limits = &config.northbound.limits;
        let limited = LimitCounters::default();
        Self {
            committer: PolicyCommitter::new(access.clone(), config),
            access,
            measured: None,
            utilization: None,
            caller: None,
            pool: PlanningPool::new(limits, limited.clone()),
            changes: PlanningPool::new(limits, limited.clone()),
            limited,
            policy_changes: Arc::default(),
            open_access: config.northbound.is_open().then(open_access_finding),
            document_max: limits.document.get(),
        }
    }

    /// The service on behalf of the caller that a token identifies.
    #[must_use]
    pub(super) fn with_caller(&self, caller: Option<Arc<str>>) -> Self {
        Self { caller, ..self.clone() }
    }

    /// Counts of the limits that callers reach.
    pub(super) fn limit_counters(&self) -> LimitCounters {
        self.limited.clone()
    }

    /// Adds what switches count, and what reports of jobs come to.
    #[must_use]
    pub(crate) fn with_measurements(
        self,
        measured: watch::Receiver<Arc<MeasuredTraffic>>,
        reports: watch::Receiver<ReportSummary>,
    ) -> Self {
        Self { measured: Some((measured, reports)), ..self }
    }

    /// Adds the samples of the utilisation.
    #[must_use]
    pub(super) fn with_utilization(self, samples: watch::Receiver<UtilizationLog>) -> Self {
        Self { utilization: Some(samples), ..self }
    }

    fn latest_measurements(&self) -> (Arc<MeasuredTraffic>, ReportSummary) {
        let counting = self.measured.as_ref();
        counting.map_or_else(Default::default, |(measured, reports)| {
            (Arc::clone(&measured.borrow()), reports.borrow().clone())
        })
    }

    /// What is known and decided now.
    ///
    /// # Errors
    /// The controller has stopped, or has no plan yet.
    pub async fn current_view(&self) -> Result<ControllerView, ServiceError> {
        let (plan_request, reported_jobs, trial) =
            self.access.query_state(ControllerView::read_inputs).await?;
        let rollout = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        let (measured, reports) = self.latest_measurements();
        Ok(ControllerView {
            now: Instant::now(),
            request: plan_request,
            reported_jobs,
            trial,
            quarantined: self.access.quarantined_switches(),
            rollout,
            measured,
            reports,
            open_access: self.open_access.clone(),
            standing: self.standing_findings(),
            drainage: self.access.drain_report(),
            switches: self.access.status_board().all_statuses(),
            other_leader: self.access.watch_permit().borrow().other_leader(),
            learned: Arc::clone(&self.access.watch_learned_flows().borrow()),
            port_counters: Arc::clone(&self.access.watch_port_counters().borrow()),
        })
    }

    fn standing_findings(&self) -> Vec<Finding> {
        let mut findings = self.access.standing_findings().list_findings();
        findings.extend(self.access.audit_trail().damage_finding());
        findings.extend(self.limited.findings());
        let store = self.access.store.as_ref().and_then(Weak::upgrade);
        let lost = store.as_ref().and_then(|store| store.lost_file());
        findings.extend(lost.map(|path| {
            let text = format!(
                "{} was deleted or replaced while the controller runs, which loses what it stores; \
                 save the state (crux state backup), put it there and start the controller again",
                path.display()
            );
            Finding::error("store", text)
        }));
        findings
    }

    /// The jobs in force, by rank.
    ///
    /// # Errors
    /// As for [`NorthboundService::current_view`], and so below.
    pub async fn list_jobs(&self) -> Result<Vec<JobRow>, ServiceError> {
        Ok(self.current_view().await?.job_rows())
    }

    /// Every switch of the fabric, with what it holds.
    pub async fn list_switches(&self) -> Result<Vec<SwitchRow>, ServiceError> {
        Ok(self.current_view().await?.switch_rows())
    }

    /// Every link of the fabric, with its planned load by level.
    pub async fn list_links(&self) -> Result<Vec<LinkRow>, ServiceError> {
        Ok(self.current_view().await?.link_rows())
    }

    /// RoCEv2 flows that no job has announced, by leaf and port.
    ///
    /// # Errors
    /// The controller has no plan yet.
    pub async fn list_learned_flows(&self) -> Result<Vec<LearnedFlowRow>, ServiceError> {
        let rollout = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        let learned = Arc::clone(&self.access.watch_learned_flows().borrow());
        Ok(learned_flow_rows(&learned.flows, &rollout, &self.access.clock()))
    }

    /// The fabric, as an explicit document.
    pub async fn get_fabric(&self) -> Result<FabricDocument, ServiceError> {
        let rollout = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        Ok(spec::explicit_document(&rollout.fabric))
    }

    /// The plan in force.
    pub async fn get_plan(&self) -> Result<PlanDocument, ServiceError> {
        Ok(self.current_view().await?.plan_document())
    }

    /// The input of the planner in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn get_planner_input(&self) -> Result<PlannerInput, ServiceError> {
        Ok(self.access.query_state(PlannerInput::from_state).await?)
    }

    /// GPU utilisation over time: measured, forecast, and as ECMP would give it.
    pub async fn get_utilization(
        &self,
        page: &UtilizationPage,
    ) -> Result<UtilizationHistory, ServiceError> {
        let log = self.utilization.as_ref().map(|log| log.borrow().clone()).unwrap_or_default();
        Ok(UtilizationHistory::from_log(&log, page))
    }

    /// Findings that need the attention of an operator.
    pub async fn list_findings(&self) -> Result<Vec<Finding>, ServiceError> {
        Ok(self.current_view().await?.health_findings())
    }

    /// Explains the level and paths of a job, or of the job of a flow.
    ///
    /// # Errors
    /// There is neither; the error has the nearest name.
    pub async fn explain_job(&self, name: &str) -> Result<ExplainJobResponse, ServiceError> {
        let view = self.current_view().await?;
        view.find_explanation(name).ok_or_else(|| unknown_job(&view, "job and no flow", name))
    }

    /// The flows of a job, with their paths and how they are known.
    ///
    /// # Errors
    /// There is no such job; the error has the nearest name.
    pub async fn list_job_flows(&self, name: &str) -> Result<Vec<JobFlowRow>, ServiceError> {
        let view = self.current_view().await?;
        view.job_flow_rows(name).ok_or_else(|| unknown_job(&view, "job", name))
    }

    /// The fabric as a graph, for maps of it.
    ///
    /// # Errors
    /// The controller has no plan yet.
    pub async fn get_fabric_graph(&self) -> Result<FabricGraph, ServiceError> {
        let rollout = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        Ok(FabricGraph::new(&rollout.fabric))
    }

    /// What the links carry, for maps of them.
    ///
    /// # Errors
    /// As for [`NorthboundService::current_view`].
    pub async fn get_link_loads(&self) -> Result<LinkLoadTable, ServiceError> {
        Ok(self.current_view().await?.link_load_table())
    }

    /// Metrics as Prometheus reads them.
    pub async fn render_metrics(&self) -> Result<String, ServiceError> {
        let (timing, stages) = (self.access.latest_timing(), self.access.stage_histograms());
        let mut text = MetricsText::default();
        text.add_view(&self.current_view().await?, &timing, &stages);
        let permit = *self.access.watch_permit().borrow();
        text.add_leadership(permit, Instant::now());
        let latest = UtilizationPage { samples: None, seconds: Some(UtilizationPage::LATEST) };
        text.add_utilization(&self.get_utilization(&latest).await?);
        let dropped = self.access.query_state(|state| state.policy_history().dropped_revisions());
        text.add_dropped_revisions(dropped.await?);
        text.add_certificate_ends(&self.access.certificate_ends.borrow());
        text.add_store(!self.access.standing_findings().has_finding(STORE_ALARM));
        self.limited.add_metrics(&mut text);
        Ok(text.into_text())
    }

    /// The latest records of the audit trail, the latest first.
    pub async fn list_audit_records(&self) -> Result<Vec<AuditRecord>, ServiceError> {
        Ok(self.access.audit_trail().latest_records())
    }

    /// The revision of the policy that is in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn get_policy(&self) -> Result<PolicyRevision, ServiceError> {
        Ok(self.access.query_state(|state| state.policy_history().latest().clone()).await?)
    }

    /// A page of revisions, the latest first.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn list_policy_revisions(
        &self,
        page: &ListPolicyRevisionsRequest,
    ) -> Result<Vec<PolicyRevisionDiff>, ServiceError> {
        let (before, limit) = (page.before, page.page_limit());
        let history = self.access.query_state(move |state| {
            let revisions = state.policy_history().revision_page(before, limit).into_iter();
            let diffs = revisions.map(|(revision, changes)| {
                let revision = revision.clone();
                PolicyRevisionDiff { revision, changes }
            });
            diffs.collect()
        });
        Ok(history.await?)
    }

    /// What a change would do; nothing changes.
    ///
    /// # Errors
    /// It would be refused.
    pub async fn preview_policy(
        &self,
        request: &PreviewPolicyRequest,
    ) -> Result<PolicyPreview, ServiceError> {
        let slot = self.pool.acquire_slot(&self.caller).await?;
        let in_force = self.get_policy().await?.content;
        let (content, slot) = self.resolve_content(request, in_force, slot).await?;
        let considered = content.clone();
        let query = self.access.query_state(move |state| {
            let changes = state.policy_history().latest().content.changes_to(&considered);
            (changes, state.preview_request(&considered))
        });
        let (policy, prepared) = query.await?;
        let plan_request = prepared.map_err(refuse_with)?;
        let jobs = plan_request.jobs.clone();
        let plan = self.preview_request(plan_request, jobs, slot).await?;
        Ok(PolicyPreview { policy, plan })
    }

    /// What a plan request would change, which has these `jobs` now.
    pub(super) async fn preview_request(
        &self,
        request: PlanRequest,
        jobs: Vec<Job>,
        slot: PlanningSlot,
    ) -> Result<PlanPreview, ServiceError> {
        let tables = self.access.desired_tables().tables.clone();
        let rollout = self.access.current_rollout().ok_or(ControllerError::Stopped)?;
        let planning = move |interrupt: Interrupt| {
            let request = request.with_interrupt(interrupt);
            let present = PresentPlan { rollout: &rollout, jobs: &jobs, tables: &tables };
            preview_plan(request, present)
        };
        slot.run_interruptible(planning).await
    }

    /// Makes a change: all of it, or none.
    ///
    /// # Errors
    /// It is refused. If switches do not hold it in time, the response reports the rollback.
    pub async fn apply_policy(
        &self,
        request: &ApplyPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let signature = self.sign_change(&request.author, &request.reason)?;
        // A drain takes no work worth a thread, and must not wait behind other changes.
        let slot = match request.change.only_drains() {
            true => None,
            false => Some(self.changes.acquire_slot(&self.caller).await?),
        };
        // The lock keeps other changes out between this read and the proposal.
        let alone = self.policy_changes.lock().await;
        let in_force = self.get_policy().await?.content;
        let content = match slot {
            None => {
                let now = self.access.clock().unix_now();
                request.change.resolve(in_force, now).map_err(refuse_with)?
            }
            Some(slot) => self.resolve_content(&request.change, in_force, slot).await?.0,
        };
        let proposed = self.committer.propose_content(content, signature, request.terms()).await?;
        drop(alone);
        self.committer.settle_proposal(proposed).await
    }

    /// Lets the revision on trial stay.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub async fn confirm_policy(
        &self,
        request: &ConfirmPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let signature = self.sign_change(&request.author, &request.reason)?;
        self.committer.confirm_trial(signature).await
    }

    /// Rolls back: a trial to what was before it, or to any earlier revision.
    ///
    /// # Errors
    /// There is nothing to go back to.
    pub async fn rollback_policy(
        &self,
        request: &RollbackPolicyRequest,
    ) -> Result<PolicyChangeResponse, ServiceError> {
        let signature = self.sign_change(&request.author, &request.reason)?;
        let wanted = request.revision;
        let target = self.access.query_state(move |state| {
            let history = state.policy_history();
            let revision = wanted.map_or_else(
                || history.previous_revision(),
                |number| history.find_revision(number),
            );
            let latest = &history.latest().content;
            let content = revision.map(|revision| {
                let content = revision.content.clone().with_drains_of(latest);
                let is_same = content == *latest && revision.content != content;
                (content, is_same)
            });
            (history.latest().trial.is_some(), content)
        });
        let (on_trial, content) = target.await?;
        if on_trial && wanted.is_none() {
            return self.committer.revert_trial(signature, Vec::new()).await;
        }
        let (content, is_same) = content.ok_or_else(|| match wanted {
            Some(number) => ServiceError::Unknown(format!("there is no revision {number}")),
            None => ServiceError::Unknown("nothing was in force before".to_owned()),
        })?;
        if is_same {
            let text = "that revision differs in its drains alone, which a rollback leaves as they \
                        are; crux undrain ends a drain";
            return Err(refuse_with(Finding::error("policy", text)));
        }
        self.committer.commit_content(content, signature, ChangeTerms::default()).await
    }

    pub(super) fn sign_change(
        &self,
        author: &str,
        reason: &str,
    ) -> Result<RevisionMetadata, ServiceError> {
        check_text("author", author, AUTHOR_BYTES)
            .and_then(|()| check_text("reason", reason, REASON_BYTES))
            .map_err(|finding| self.refuse_limited(LimitReached::Text, finding))?;
        // The name in the request is not authenticated; it stands beside the name of the token.
        let author = match self.caller.as_deref() {
            None => author.to_owned(),
            Some(known) if author.is_empty() || author == known => known.to_owned(),
            Some(known) => format!("{known} (says {author})"),
        };
        Ok(RevisionMetadata {
            author,
            reason: reason.to_owned(),
            at_ms: self.access.clock().unix_now(),
        })
    }

    /// Counts a limit that a request has reached.
    fn refuse_limited(&self, limit: LimitReached, finding: Finding) -> ServiceError {
        self.limited.count(limit);
        refuse_with(finding)
    }

    /// The content that a request leads to from what is in force, made in the slot, which is for
    /// the caller to use again.
    async fn resolve_content(
        &self,
        request: &PreviewPolicyRequest,
        in_force: PolicyContent,
        slot: PlanningSlot,
    ) -> Result<(PolicyContent, PlanningSlot), ServiceError> {
        if let Some(file) = &request.policy {
            check_policy_file(file, self.document_max)
                .map_err(|finding| self.refuse_limited(LimitReached::Document, finding))?;
        }
        let (request, now) = (request.clone(), self.access.clock().unix_now());
        let resolving = slot.run_then_return(move || request.resolve(in_force, now));
        let (content, slot) = resolving.await?;
        Ok((content.map_err(refuse_with)?, slot))
    }
}

/// The warning about a controller that asks nobody who they are.
fn open_access_finding() -> Finding {
    Finding::warning(
        "northbound",
        "every client of the address may do everything (northbound.anyone); remove it, or add \
         northbound.tokens",
    )
}

/// The error about a name that nothing has.
fn unknown_job(view: &ControllerView, kind: &str, name: &str) -> ServiceError {
    let jobs = view.rollout.plan.jobs.iter().map(|job| job.id.as_str());
    let nearest = document::nearest_name(name, jobs);
    let hint = nearest.map_or_else(String::new, |job| format!("; did you mean `{job}`?"));
    ServiceError::Unknown(format!("no {kind} is called `{name}`{hint}"))
}

pub(super) fn refuse_with(finding: Finding) -> ServiceError {
    ServiceError::Refused(vec![finding])
}
