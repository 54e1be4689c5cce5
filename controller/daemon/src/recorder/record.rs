//! The lines of a recording.
//!
//! The decision: names where documents have names, so that a person can read a recording; the first
//! line of a file is the state, and every other is one step or observation.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::{JobsDocument, LearnedConnection, PolicyDocument};
use serde::{Deserialize, Serialize};
use topology::{AvailabilityChange, Fabric, SwitchId};

use super::digest;
use super::{HeldTables, StepEffects, StepNote};
use crate::policy_history::{PolicyContent, PolicyRevision, RevisionMetadata, TrialTerms, UnixMs};
use crate::state::{
    FabricRecord, PlanRecord, PlanResult, PolicyProposal, RecordedPlan, ReportedJobsRecord,
    SnapshotError, StartingState, StateEvent, StateSnapshot, history_from_revisions,
    jobs_from_document,
};
use crate::store::{PlanBasis, jobs_document};

/// The format of the lines; a recording of another format is refused.
pub(super) const FORMAT: u32 = 3;

/// One line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordLine {
    /// The first line, with the state.
    Begin { format: u32, crux: String, at_ms: UnixMs, state: Box<StateSnapshot> },
    /// The state applied or refused an event.
    Step { step: u64, at_ms: UnixMs, event: Box<RecordedEvent>, outcome: StepOutcome },
    /// Tables were published: their digests by switch.
    Published { at_ms: UnixMs, generation: u64, tables: BTreeMap<String, String> },
    /// A switch was verified to hold tables.
    Held {
        at_ms: UnixMs,
        switch: String,
        generation: u64,
        entries: usize,
        written: u64,
        refused: u64,
    },
}

/// An event of the state, with names instead of ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedEvent {
    Started(Box<StartRecord>),
    FabricLearned(FabricRecord),
    FabricChanged(Vec<AvailabilityChange>),
    JobsChanged(JobsDocument),
    JobsReported(ReportedJobsRecord),
    PolicyChanged(PolicyDocument),
    PolicyProposed {
        content: PolicyContent,
        signature: RevisionMetadata,
        trial_until: Option<UnixMs>,
        #[serde(default)]
        awaits_confirmation: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    PolicyConfirmed,
    PolicyRolledBack(RevisionMetadata),
    RevisionStored(Box<PolicyRevision>),
    DeadlineReached(UnixMs),
    PinRoomLearned(SwitchId, usize),
    GenerationHeld(u64),
    ElectionWon(u64),
    PlanResumed(Box<ResumedPlanRecord>),
    FlowsLearned(Vec<LearnedConnection>),
    Quiet,
    /// A plan was computed: the inputs of its request, and its digest. The whole plan if the
    /// request is in an earlier file.
    Planned {
        inputs: u64,
        digest: String,
        /// Whether candidates were compared for it.
        #[serde(default)]
        is_refined: bool,
        /// Whether it was made from nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_settled: bool,
        /// Whether they should have been.
        #[serde(default)]
        is_provisional: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<PlanRecord>,
    },
    /// A refused event, by its kind.
    Refused(String),
}

/// Everything that a controller starts with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StartRecord {
    fabric: FabricRecord,
    revisions: Vec<PolicyRevision>,
    jobs: JobsDocument,
    reported_jobs: ReportedJobsRecord,
    /// The plan of the last run, in the ids of this fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    connections: Vec<LearnedConnection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin_room: Option<(SwitchId, usize)>,
}

/// The plan of the leader, in the ids of the fabric, with what its tables follow from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ResumedPlanRecord {
    plan: PlanRecord,
    connections: Vec<LearnedConnection>,
    pin_room: Option<(SwitchId, usize)>,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepOutcome {
    pub(super) generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Whether the step requested a plan.
    pub(super) requested: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) protection: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rollout: Option<String>,
}

impl StepOutcome {
    pub(super) fn new(effects: &StepEffects) -> Self {
        Self {
            generation: effects.generation,
            refused: effects.refused.clone(),
            requested: effects.requested,
            protection: effects.protection.as_ref().map(digest::rollout_digest),
            rollout: effects.rollout.as_ref().map(digest::rollout_digest),
        }
    }
}

impl RecordLine {
    /// The line of a step, in the names of the fabric as it is after it.
    pub(super) fn from_step(number: u64, step: &StepNote, fabric: &Fabric) -> Self {
        Self::Step {
            step: number,
            at_ms: step.at_ms,
            event: Box::new(match &step.effects.refused {
                Some(_) => RecordedEvent::Refused(step.event.kind().to_owned()),
                None => RecordedEvent::new(&step.event, fabric, step.has_whole_plan),
            }),
            outcome: StepOutcome::new(&step.effects),
        }
    }

    pub(super) fn from_held(at_ms: UnixMs, held: HeldTables) -> Self {
        let HeldTables { switch, generation, entries, written, refused } = held;
        Self::Held { at_ms, switch, generation, entries, written, refused }
    }
}

impl StartRecord {
    fn new(start: &StartingState) -> Self {
        let StartingState { fabric, history, jobs, reported_jobs: reported, decisions } = start;
        let (plan, basis) = decisions.clone().unzip();
        let basis = basis.unwrap_or_default();
        let history = history.revisions_with_changes().into_iter().rev();
        Self {
            fabric: FabricRecord::new(fabric),
            revisions: history.map(|(revision, _)| revision.clone()).collect(),
            jobs: jobs_document(fabric, jobs),
            reported_jobs: ReportedJobsRecord::new(fabric, reported),
            plan: plan.as_deref().map(PlanRecord::new),
            connections: basis.connections,
            pin_room: basis.pin_room,
        }
    }

    fn to_state(&self) -> Result<StartingState, SnapshotError> {
        let Self { fabric, revisions, jobs, reported_jobs, plan, connections, pin_room } = self;
        let fabric = fabric.to_fabric()?;
        let basis = PlanBasis { connections: connections.clone(), pin_room: *pin_room };
        let plan = plan.as_ref().map(PlanRecord::to_plan).transpose()?;
        Ok(StartingState {
            history: history_from_revisions(revisions)?,
            jobs: jobs_from_document(jobs, &fabric)?,
            reported_jobs: reported_jobs.to_reported_jobs(&fabric)?,
            decisions: plan.map(|plan| (Arc::new(plan), basis)),
            fabric,
        })
    }
}

impl RecordedEvent {
    fn new(event: &StateEvent, fabric: &Fabric, whole: bool) -> Self {
        match event {
            StateEvent::Started(start) => Self::Started(Box::new(StartRecord::new(start))),
            StateEvent::FabricLearned(fabric) => Self::FabricLearned(FabricRecord::new(fabric)),
            StateEvent::FabricChanged(changes) => Self::FabricChanged(changes.clone()),
            StateEvent::JobsChanged(jobs) => Self::JobsChanged(jobs_document(fabric, jobs)),
            StateEvent::JobsReported(reported) => {
                Self::JobsReported(ReportedJobsRecord::new(fabric, reported))
            }
            StateEvent::PolicyChanged(policy) => Self::PolicyChanged(PolicyDocument::from(policy)),
            StateEvent::PolicyProposed(proposal) => Self::PolicyProposed {
                content: proposal.content.clone(),
                signature: proposal.signature.clone(),
                trial_until: proposal.trial.map(|terms| terms.until_ms),
                awaits_confirmation: proposal.trial.is_some_and(|terms| terms.awaits_confirmation),
                force: proposal.force,
            },
            StateEvent::PolicyConfirmed => Self::PolicyConfirmed,
            StateEvent::PolicyRolledBack(signature) => Self::PolicyRolledBack(signature.clone()),
            StateEvent::RevisionStored(revision) => Self::RevisionStored(revision.clone()),
            StateEvent::DeadlineReached(now) => Self::DeadlineReached(*now),
            StateEvent::PinRoomLearned(switch, pins) => Self::PinRoomLearned(*switch, *pins),
            StateEvent::GenerationHeld(generation) => Self::GenerationHeld(*generation),
            StateEvent::ElectionWon(spent) => Self::ElectionWon(*spent),
            StateEvent::PlanResumed(decisions) => {
                let (plan, basis) = &**decisions;
                Self::PlanResumed(Box::new(ResumedPlanRecord {
                    plan: PlanRecord::new(plan),
                    connections: basis.connections.clone(),
                    pin_room: basis.pin_room,
                }))
            }
            StateEvent::FlowsLearned(seen) => Self::FlowsLearned(seen.clone()),
            StateEvent::Quiet => Self::Quiet,
            StateEvent::Planned(result) => Self::Planned {
                inputs: result.inputs(),
                digest: digest::plan_digest(&result.plan),
                is_refined: result.is_refined(),
                is_settled: result.is_settled(),
                is_provisional: result.report.comparison.is_provisional,
                plan: whole.then(|| PlanRecord::new(&result.plan)),
            },
        }
    }

    /// The event; none for a refused one, or for a plan that the replay computes itself.
    ///
    /// # Errors
    /// The recorded event is invalid.
    pub(super) fn to_event(&self, fabric: &Fabric) -> Result<Option<StateEvent>, SnapshotError> {
        Ok(Some(match self {
            Self::Started(start) => StateEvent::Started(Box::new(start.to_state()?)),
            Self::FabricLearned(fabric) => StateEvent::FabricLearned(fabric.to_fabric()?),
            Self::FabricChanged(changes) => StateEvent::FabricChanged(changes.clone()),
            Self::JobsChanged(jobs) => StateEvent::JobsChanged(jobs_from_document(jobs, fabric)?),
            Self::JobsReported(reported) => {
                StateEvent::JobsReported(reported.to_reported_jobs(fabric)?)
            }
            Self::PolicyChanged(policy) => match policy.to_policy("policy") {
                Ok(policy) => StateEvent::PolicyChanged(policy),
                Err(error) => return Err(SnapshotError::new("the policy", &error)),
            },
            Self::PolicyProposed {
                content,
                signature,
                trial_until,
                awaits_confirmation,
                force,
            } => StateEvent::PolicyProposed(Box::new(PolicyProposal {
                content: content.clone(),
                signature: signature.clone(),
                trial: trial_until.map(|until_ms| TrialTerms {
                    until_ms,
                    awaits_confirmation: *awaits_confirmation,
                }),
                force: *force,
            })),
            Self::PolicyConfirmed => StateEvent::PolicyConfirmed,
            Self::PolicyRolledBack(signature) => StateEvent::PolicyRolledBack(signature.clone()),
            Self::RevisionStored(revision) => StateEvent::RevisionStored(revision.clone()),
            Self::DeadlineReached(now) => StateEvent::DeadlineReached(*now),
            Self::PinRoomLearned(switch, pins) => StateEvent::PinRoomLearned(*switch, *pins),
            Self::GenerationHeld(generation) => StateEvent::GenerationHeld(*generation),
            Self::ElectionWon(spent) => StateEvent::ElectionWon(*spent),
            Self::PlanResumed(resumed) => {
                let basis = PlanBasis {
                    connections: resumed.connections.clone(),
                    pin_room: resumed.pin_room,
                };
                let plan = Arc::new(resumed.plan.to_plan()?);
                StateEvent::PlanResumed(Box::new((plan, basis)))
            }
            Self::FlowsLearned(seen) => StateEvent::FlowsLearned(seen.clone()),
            Self::Quiet => StateEvent::Quiet,
            Self::Planned { inputs, is_refined, is_settled, is_provisional, plan, .. } => {
                let Some(plan) = plan else { return Ok(None) };
                let recorded = RecordedPlan {
                    inputs: *inputs,
                    is_refined: *is_refined,
                    is_settled: *is_settled,
                    is_provisional: *is_provisional,
                };
                let result = PlanResult::from_recording(recorded, plan.to_plan()?);
                StateEvent::Planned(Box::new(result))
            }
            Self::Refused(_) => return Ok(None),
        }))
    }

    /// A short text about the event, for people.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Started(start) => format!("start with {} jobs", start.jobs.jobs.len()),
            Self::FabricLearned(_) => "a fabric".to_owned(),
            Self::FabricChanged(changes) => match &changes[..] {
                [change] => format!("{change:?}"),
                several => format!("{} changes of the fabric", several.len()),
            },
            Self::JobsChanged(jobs) => format!("{} jobs of a document", jobs.jobs.len()),
            Self::JobsReported(_) => "jobs of telemetry".to_owned(),
            Self::PolicyChanged(_) => "a policy".to_owned(),
            Self::PolicyProposed { signature, .. } => format!("a policy of {}", signature.author),
            Self::PolicyConfirmed => "policy confirmed".to_owned(),
            Self::PolicyRolledBack(by) => format!("policy rolled back by {}", by.author),
            Self::RevisionStored(revision) => format!("revision {} is stored", revision.number),
            Self::DeadlineReached(_) => "time".to_owned(),
            Self::PinRoomLearned(_, pins) => format!("room for {pins} pins"),
            Self::GenerationHeld(generation) => format!("generation {generation} is held"),
            Self::ElectionWon(_) => "elected".to_owned(),
            Self::PlanResumed(_) => "the plan of the leader".to_owned(),
            Self::FlowsLearned(seen) => format!("{} learned flows", seen.len()),
            Self::Quiet => "quiet".to_owned(),
            Self::Planned { inputs, is_refined: true, .. } => {
                format!("a refined plan for {inputs} events")
            }
            Self::Planned { inputs, .. } => format!("a plan for {inputs} events"),
            Self::Refused(kind) => format!("{kind}, refused"),
        }
    }
}
