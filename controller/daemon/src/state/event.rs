//! What a state takes in and what follows from it: values, so that whoever runs a state can wait,
//! record and play them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Job, Plan, PlanDocument, PlanReport, Policy};
use topology::{AvailabilityChange, Fabric, Finding, SwitchId};

use super::plan_request::{PlanRequest, PlanResult};
use super::reported_jobs::ReportedJobs;
use crate::liveness::FabricPart;
use crate::pipelines::FabricWiring;
use crate::policy_history::{
    PolicyContent, PolicyHistory, PolicyRevision, RevisionMetadata, UnixMs,
};
use crate::store::StoreRecord;

/// Something the controller has learned.
#[derive(Clone, Debug)]
pub enum StateEvent {
    /// The controller starts with all that it knows, so that switches that hold what they shall are
    /// not told anything else in between.
    Started(Box<StartingState>),
    /// The fabric, from its document or from discovery. Ids of the fabric before mean nothing any
    /// more, so the jobs are forgotten; the runtime makes it [`StateEvent::Started`] with those
    /// whose hosts are still there.
    FabricLearned(Fabric),
    /// A cable or a switch of the fabric failed, or works again.
    FabricChanged(AvailabilityChange),
    /// All jobs that documents tell of, in the ids of the present fabric.
    JobsChanged(Vec<Job>),
    /// All jobs that tell of themselves, in the ids of the present fabric.
    JobsReported(ReportedJobs),
    /// The operator's policy, by nobody in particular and for no reason that is told.
    PolicyChanged(Policy),
    /// A policy as an operator proposes it.
    PolicyProposed(Box<PolicyProposal>),
    /// The edition on trial is to stay.
    PolicyConfirmed,
    /// The edition on trial is to go, and by whom that is said.
    PolicyRolledBack(RevisionMetadata),
    /// The edition in force, as another controller has stored it.
    RevisionStored(Box<PolicyRevision>),
    /// It is this late.
    DeadlineReached(UnixMs),
    /// A switch has room for no more than this many pins.
    PinRoomLearned(SwitchId, usize),
    /// Every switch that works was seen to hold this generation, or has had time enough.
    GenerationHeld(u64),
    /// This controller is to lead, and leaders before it may have used the generations up to this
    /// one.
    ElectionWon(u64),
    /// The answer to the question that was asked last.
    Planned(Box<PlanResult>),
}

impl StateEvent {
    /// What kind of event it is, for people.
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
            Self::RevisionStored(_) => "an edition",
            Self::DeadlineReached(_) => "time",
            Self::PinRoomLearned(..) => "room for pins",
            Self::GenerationHeld(_) => "a generation held",
            Self::ElectionWon(_) => "an election",
            Self::Planned(_) => "a plan",
        }
    }

    /// Whether an operator changes the policy by it.
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

/// What a controller starts with.
#[derive(Clone, Debug)]
pub struct StartingState {
    /// The fabric.
    pub fabric: Fabric,
    /// The policy with its history.
    pub history: PolicyHistory,
    /// Jobs that documents tell of.
    pub jobs: Vec<Job>,
    /// Jobs that told of themselves.
    pub reported_jobs: ReportedJobs,
}

/// A policy as an operator proposes it.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyProposal {
    /// What it says.
    pub content: PolicyContent,
    /// Who proposes it.
    pub signature: RevisionMetadata,
    /// When it ends unless it is confirmed; without, it stays.
    pub trial_until: Option<UnixMs>,
}

/// What follows from an event.
#[derive(Debug, Default)]
pub struct Effects {
    /// What kind of event they follow from.
    pub cause: &'static str,
    /// The generation in force.
    pub generation: u64,
    /// What has failed just now: its ports are to be taken out of use before anything else.
    pub protection: Option<PlanRollout>,
    /// What the switches shall realise, if it is not what they already do.
    pub rollout: Option<PlanRollout>,
    /// What is to be planned now.
    pub plan_request: Option<PlanRequest>,
    /// What the next run of the controller must know.
    pub record: Option<StoreRecord>,
    /// Why the event was not taken in, if it was not; among the findings as well.
    pub refusal: Option<Finding>,
    /// What a person should know, the event's own refusal included.
    pub findings: Vec<Finding>,
}

impl Effects {
    /// Nothing, for this reason.
    pub(crate) fn from_refusal(finding: Finding) -> Self {
        Self { refusal: Some(finding.clone()), findings: vec![finding], ..Self::default() }
    }

    pub(super) fn with_record(record: StoreRecord) -> Self {
        let record = Some(record);
        Self { record, ..Self::default() }
    }
}

/// A plan to be lowered and written.
#[derive(Clone, Debug)]
pub struct PlanRollout {
    /// Its number; rises with every one.
    pub generation: u64,
    /// The fabric it was made for, with what has failed and what is drained.
    pub fabric: Fabric,
    /// What of it is out of use only until every switch knows that it works again.
    pub returning: BTreeSet<FabricPart>,
    /// That fabric in the switches' terms.
    pub wiring: Arc<FabricWiring>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// Why it is so.
    pub report: Arc<PlanReport>,
}

impl PlanRollout {
    /// The plan on another fabric, by names; what is not there is not in it.
    pub(super) fn plan_on(&self, fabric: &Fabric) -> Plan {
        let document = PlanDocument::new(&self.fabric, &self.plan, &self.report);
        document.restore_plan(fabric).0
    }
}
