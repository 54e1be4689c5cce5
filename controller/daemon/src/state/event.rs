//! The events of the state and their effects: values, so that the runtime can queue and record
//! them, and a replay can apply them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Job, LearnedConnection, Plan, PlanDocument, PlanReport, PlannedFlow, Policy};
use topology::{AvailabilityChange, Fabric, Finding, NicId, SwitchId};

use super::State;
use super::plan_request::{PlanRequest, PlanResult};
use super::reported_jobs::ReportedJobs;
use crate::liveness::FabricPart;
use crate::pipelines::FabricWiring;
use crate::policy_history::{
    PolicyContent, PolicyHistory, PolicyRevision, RevisionMetadata, TrialTerms, UnixMs,
};
use crate::store::{PlanBasis, StoreRecord, StoredPlan};

/// Something the controller has learned.
#[derive(Clone, Debug)]
pub enum StateEvent {
    /// The controller starts with everything that it restored, in one event, so that switches that
    /// hold the right tables are not written in between.
    Started(Box<StartingState>),
    /// The fabric, from its document or from discovery. Ids of the previous fabric are void, so the
    /// jobs are dropped; the runtime sends [`StateEvent::Started`] instead, with the jobs whose
    /// hosts still exist.
    FabricLearned(Fabric),
    /// Cables or switches of the fabric failed or work again, all at once.
    FabricChanged(Vec<AvailabilityChange>),
    /// All jobs of documents, in the ids of the present fabric.
    JobsChanged(Vec<Job>),
    /// All reported jobs, in the ids of the present fabric.
    JobsReported(ReportedJobs),
    /// A policy without author or reason.
    PolicyChanged(Policy),
    /// A policy as an operator proposes it.
    PolicyProposed(Box<PolicyProposal>),
    /// The operator confirms the revision on trial.
    PolicyConfirmed,
    /// An operator rolls the revision on trial back.
    PolicyRolledBack(RevisionMetadata),
    /// The revision in force, as another controller has stored it.
    RevisionStored(Box<PolicyRevision>),
    /// The time at which the policy may change by itself.
    DeadlineReached(UnixMs),
    /// A switch has room for only this many pins.
    PinRoomLearned(SwitchId, usize),
    /// Every switch that works was seen to hold this generation, or the deadline has passed.
    GenerationHeld(u64),
    /// This controller is elected; earlier leaders may have used generations up to this one.
    ElectionWon(u64),
    /// The plan that the leader has in force, with what its tables follow from: the next plan
    /// starts from it.
    PlanResumed(Box<(Arc<Plan>, PlanBasis)>),
    /// All connections that switches have reported and that live.
    FlowsLearned(Vec<LearnedConnection>),
    /// Nothing has happened for some time: the plan is to be what it would be from nothing.
    Quiet,
    /// The result of the latest plan request.
    Planned(Box<PlanResult>),
}

impl StateEvent {
    /// The kind of the event, for logs, traces and receipts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started(_) => "a start",
            Self::FabricLearned(_) => "a fabric",
            Self::FabricChanged(_) => "a change of the fabric",
            Self::JobsChanged(_) => "jobs of a document",
            Self::JobsReported(_) => "jobs of telemetry",
            Self::PolicyChanged(_) | Self::PolicyProposed(_) => "a policy",
            Self::PolicyConfirmed => "a confirmation",
            Self::PolicyRolledBack(_) => "a reversal",
            Self::RevisionStored(_) => "a stored revision",
            Self::DeadlineReached(_) => "time",
            Self::PinRoomLearned(..) => "room for pins",
            Self::GenerationHeld(_) => "a generation held",
            Self::ElectionWon(_) => "an election",
            Self::PlanResumed(_) => "the plan of the leader",
            Self::FlowsLearned(_) => "learned flows",
            Self::Quiet => "quiet",
            Self::Planned(_) => "a plan",
        }
    }

    /// What it changes of that which all controllers of a fabric share, if it does.
    pub(crate) fn shared_subject(&self) -> Option<&'static str> {
        match self {
            Self::JobsChanged(_) | Self::JobsReported(_) => Some("jobs"),
            event => event.changes_policy().then_some("policy"),
        }
    }

    /// Whether an operator orders it, and is to have an answer that a restart does not belie.
    pub(crate) fn is_ordered(&self) -> bool {
        self.changes_policy() || matches!(self, Self::JobsChanged(_))
    }

    /// Whether it is an operator's change of the policy.
    pub fn changes_policy(&self) -> bool {
        matches!(
            self,
            Self::PolicyChanged(_)
                | Self::PolicyProposed(_)
                | Self::PolicyConfirmed
                | Self::PolicyRolledBack(_)
        )
    }
}

/// Everything that a controller starts with.
#[derive(Clone, Debug)]
pub struct StartingState {
    /// The fabric.
    pub fabric: Fabric,
    /// The policy with its history.
    pub history: PolicyHistory,
    /// Jobs of documents.
    pub jobs: Vec<Job>,
    /// Jobs known from reports.
    pub reported_jobs: ReportedJobs,
    /// The plan that the last run had in force, with what its tables follow from.
    pub decisions: Option<(Arc<Plan>, PlanBasis)>,
}

/// A policy as an operator proposes it.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyProposal {
    /// The proposed policy and temporary overrides.
    pub content: PolicyContent,
    /// Who proposes it, why and when.
    pub signature: RevisionMetadata,
    /// The terms on which it is rolled back unless it is confirmed; without them, it stays.
    pub trial: Option<TrialTerms>,
    /// Whether it may drain the last path of NICs.
    pub force: bool,
}

/// What follows from an event.
#[derive(Debug, Default)]
pub struct Effects {
    /// The kind of the event, as [`StateEvent::kind`] names it.
    pub cause: &'static str,
    /// The generation in force.
    pub generation: u64,
    /// The rollout to protect first, where a part has just failed: only its ports go out of use.
    pub protection: Option<PlanRollout>,
    /// The rollout for the switches, if it differs from the one in force.
    pub rollout: Option<PlanRollout>,
    /// The rollout in force with another report: a comparison of plans that kept its plan.
    pub explanation: Option<PlanRollout>,
    /// The plan to compute now.
    pub plan_request: Option<PlanRequest>,
    /// The record to store for the next run of the controller.
    pub record: Option<StoreRecord>,
    /// Why the event was refused, if it was; among the findings as well.
    pub refusal: Option<Finding>,
    /// Findings about the event, its refusal included.
    pub findings: Vec<Finding>,
}

impl Effects {
    /// The effects of a refused event: only the finding.
    pub(crate) fn from_refusal(finding: Finding) -> Self {
        Self { refusal: Some(finding.clone()), findings: vec![finding], ..Self::default() }
    }

    pub(super) fn with_record(record: StoreRecord) -> Self {
        let record = Some(record);
        Self { record, ..Self::default() }
    }
}

impl State {
    /// The latest rollout, with the latest report of its plan.
    pub(crate) fn latest_rollout(&self) -> Option<&PlanRollout> {
        self.rollout.as_ref()
    }
}

/// A plan to be lowered and written.
#[derive(Clone, Debug)]
pub struct PlanRollout {
    /// Its number; rises with every one.
    pub generation: u64,
    /// The fabric it was made for, with what has failed and what is drained.
    pub fabric: Fabric,
    /// Parts of it that work again but are kept out of use until every switch holds them.
    pub returning: BTreeSet<FabricPart>,
    /// That fabric, prepared for lowering.
    pub wiring: Arc<FabricWiring>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// Why the plan is as it is.
    pub report: Arc<PlanReport>,
    /// Connections that switches have reported, as flows of its jobs.
    pub learned: Arc<Vec<PlannedFlow>>,
    /// What tables follow from beside jobs and policy.
    pub basis: Arc<PlanBasis>,
}

impl PlanRollout {
    /// The plan with what switches have reported, as they get it.
    pub fn lowered_plan(&self) -> Arc<Plan> {
        let counted = self.counted_pairs();
        if self.learned.is_empty() && counted.is_empty() {
            Arc::clone(&self.plan)
        } else {
            Arc::new(planner::with_learned_flows(&self.plan, &self.learned, &counted))
        }
    }

    /// Pairs of NICs whose flows of no job are counted.
    pub fn counted_pairs(&self) -> Vec<(NicId, NicId)> {
        planner::find_counted_pairs(&self.fabric, &self.plan, &self.basis.connections)
    }

    /// Whether both have one [`PlanRollout::stored_plan`]. Generations are no part of it.
    pub(crate) fn has_plan_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan)
            && self.basis == other.basis
            && self.fabric == other.fabric
    }

    /// What the next run of the controller continues from.
    pub fn stored_plan(&self) -> StoredPlan {
        StoredPlan::new(&self.fabric, &self.plan, &self.basis)
    }

    /// The plan on another fabric, by names; jobs and paths that it lacks are left out.
    pub(super) fn plan_on(&self, fabric: &Fabric) -> Plan {
        let document = PlanDocument::new(&self.fabric, &self.plan, &self.report);
        document.restore_plan(fabric).0
    }
}
