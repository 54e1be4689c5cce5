//! The lines of a recording.
//!
//! The decision: names where documents have names, so that a person can read what happened; the
//! first line of a file is the state, and every other is one thing that happened.

use std::collections::BTreeMap;

use planner::{JobsDocument, PolicyDocument};
use serde::{Deserialize, Serialize};
use topology::{Change, Fabric, SwitchId};

use super::digest;
use super::{Came, Held, Step};
use crate::ledger::{Content, Edition, Signature, UnixMs};
use crate::state::{
    Answer, Beginning, Event, FabricRecord, PlanRecord, Proposal, Snapshot, SnapshotError,
    ToldRecord, jobs_of, ledger_of,
};
use crate::store::jobs_document;

/// The format of the lines; another one is refused.
pub(super) const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// The first: the state.
    Begin {
        format: u32,
        crux: String,
        at_ms: UnixMs,
        state: Box<Snapshot>,
    },
    /// The state took an event in.
    Step {
        step: u64,
        at_ms: UnixMs,
        event: Box<Recorded>,
        came: Outcome,
    },
    /// Switches were given tables: their digests, by name.
    Given {
        at_ms: UnixMs,
        generation: u64,
        tables: BTreeMap<String, String>,
    },
    /// A switch was seen to hold them.
    Held {
        at_ms: UnixMs,
        switch: String,
        generation: u64,
        entries: usize,
        written: u64,
        refused: u64,
    },
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Recorded {
    Started {
        fabric: FabricRecord,
        editions: Vec<Edition>,
        jobs: JobsDocument,
        told: ToldRecord,
    },
    FabricLearned(FabricRecord),
    FabricChanged(Change),
    JobsChanged(JobsDocument),
    JobsTold(ToldRecord),
    PolicyChanged(PolicyDocument),
    PolicyProposed {
        content: Content,
        signature: Signature,
        trial_until: Option<UnixMs>,
    },
    PolicyConfirmed,
    PolicyReverted(Signature),
    EditionStored(Box<Edition>),
    TimeCame(UnixMs),
    PinRoomLearned(SwitchId, usize),
    Held(u64),
    Elected(u64),
    /// The planner answered: which question, and the digest of the plan. The plan itself where the
    /// question was asked before the file began.
    Planned {
        inputs: u64,
        digest: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<PlanRecord>,
    },
    /// An event that was not taken in, by its kind.
    Refused(String),
}

/// What came of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Whether something was to be planned.
    pub(super) asked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) protect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) realise: Option<String>,
}

impl Outcome {
    pub(super) fn new(came: &Came) -> Self {
        Self {
            generation: came.generation,
            refused: came.refused.clone(),
            asked: came.asked,
            protect: came.protect.as_ref().map(digest::of_realise),
            realise: came.realise.as_ref().map(digest::of_realise),
        }
    }
}

impl Entry {
    /// The line of a step, in the names of the fabric as it is after it.
    pub(super) fn step(number: u64, step: &Step, fabric: &Fabric) -> Self {
        Self::Step {
            step: number,
            at_ms: step.at_ms,
            event: Box::new(match &step.came.refused {
                Some(_) => Recorded::Refused(step.event.kind().to_owned()),
                None => Recorded::new(&step.event, fabric, step.whole),
            }),
            came: Outcome::new(&step.came),
        }
    }

    pub(super) fn held(at_ms: UnixMs, held: Held) -> Self {
        let Held {
            switch,
            generation,
            entries,
            written,
            refused,
        } = held;
        Self::Held {
            at_ms,
            switch,
            generation,
            entries,
            written,
            refused,
        }
    }
}

impl Recorded {
    fn new(event: &Event, fabric: &Fabric, whole: bool) -> Self {
        match event {
            Event::Started(beginning) => Self::started(beginning),
            Event::FabricLearned(fabric) => Self::FabricLearned(FabricRecord::new(fabric)),
            Event::FabricChanged(change) => Self::FabricChanged(*change),
            Event::JobsChanged(jobs) => Self::JobsChanged(jobs_document(fabric, jobs)),
            Event::JobsTold(told) => Self::JobsTold(ToldRecord::new(fabric, told)),
            Event::PolicyChanged(policy) => Self::PolicyChanged(PolicyDocument::from(policy)),
            Event::PolicyProposed(proposal) => Self::PolicyProposed {
                content: proposal.content.clone(),
                signature: proposal.signature.clone(),
                trial_until: proposal.trial_until,
            },
            Event::PolicyConfirmed => Self::PolicyConfirmed,
            Event::PolicyReverted(signature) => Self::PolicyReverted(signature.clone()),
            Event::EditionStored(edition) => Self::EditionStored(edition.clone()),
            Event::TimeCame(now) => Self::TimeCame(*now),
            Event::PinRoomLearned(switch, pins) => Self::PinRoomLearned(*switch, *pins),
            Event::Held(generation) => Self::Held(*generation),
            Event::Elected(spent) => Self::Elected(*spent),
            Event::Planned(answer) => Self::Planned {
                inputs: answer.inputs(),
                digest: digest::of_plan(&answer.plan),
                plan: whole.then(|| PlanRecord::new(&answer.plan)),
            },
        }
    }

    fn started(beginning: &Beginning) -> Self {
        let Beginning {
            fabric,
            ledger,
            jobs,
            told,
        } = beginning;
        let history = ledger.history().into_iter().rev();
        Self::Started {
            fabric: FabricRecord::new(fabric),
            editions: history.map(|(edition, _)| edition.clone()).collect(),
            jobs: jobs_document(fabric, jobs),
            told: ToldRecord::new(fabric, told),
        }
    }

    /// The event; none of one that was refused, or that the planner has to answer anew.
    ///
    /// # Errors
    /// What is recorded is no event.
    pub(super) fn read(&self, fabric: &Fabric) -> Result<Option<Event>, SnapshotError> {
        Ok(Some(match self {
            Self::Started {
                fabric,
                editions,
                jobs,
                told,
            } => {
                let fabric = fabric.read()?;
                Event::Started(Box::new(Beginning {
                    ledger: ledger_of(editions)?,
                    jobs: jobs_of(jobs, &fabric)?,
                    told: told.read(&fabric)?,
                    fabric,
                }))
            }
            Self::FabricLearned(fabric) => Event::FabricLearned(fabric.read()?),
            Self::FabricChanged(change) => Event::FabricChanged(*change),
            Self::JobsChanged(jobs) => Event::JobsChanged(jobs_of(jobs, fabric)?),
            Self::JobsTold(told) => Event::JobsTold(told.read(fabric)?),
            Self::PolicyChanged(policy) => {
                let policy = policy.validate("policy");
                let wrong = |error| SnapshotError::new("the policy", &error);
                Event::PolicyChanged(policy.map_err(wrong)?)
            }
            Self::PolicyProposed {
                content,
                signature,
                trial_until,
            } => Event::PolicyProposed(Box::new(Proposal {
                content: content.clone(),
                signature: signature.clone(),
                trial_until: *trial_until,
            })),
            Self::PolicyConfirmed => Event::PolicyConfirmed,
            Self::PolicyReverted(signature) => Event::PolicyReverted(signature.clone()),
            Self::EditionStored(edition) => Event::EditionStored(edition.clone()),
            Self::TimeCame(now) => Event::TimeCame(*now),
            Self::PinRoomLearned(switch, pins) => Event::PinRoomLearned(*switch, *pins),
            Self::Held(generation) => Event::Held(*generation),
            Self::Elected(spent) => Event::Elected(*spent),
            Self::Planned { inputs, plan, .. } => {
                let Some(plan) = plan else { return Ok(None) };
                Event::Planned(Box::new(Answer::recorded(*inputs, plan.read()?)))
            }
            Self::Refused(_) => return Ok(None),
        }))
    }

    /// What it is about, for people.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Started { jobs, .. } => format!("start with {} jobs", jobs.jobs.len()),
            Self::FabricLearned(_) => "a fabric".to_owned(),
            Self::FabricChanged(change) => format!("{change:?}"),
            Self::JobsChanged(jobs) => format!("{} jobs of a document", jobs.jobs.len()),
            Self::JobsTold(_) => "jobs of telemetry".to_owned(),
            Self::PolicyChanged(_) => "a policy".to_owned(),
            Self::PolicyProposed { signature, .. } => format!("a policy of {}", signature.who),
            Self::PolicyConfirmed => "policy confirmed".to_owned(),
            Self::PolicyReverted(by) => format!("policy taken back by {}", by.who),
            Self::EditionStored(edition) => format!("edition {} is stored", edition.number),
            Self::TimeCame(_) => "time".to_owned(),
            Self::PinRoomLearned(_, pins) => format!("room for {pins} pins"),
            Self::Held(generation) => format!("generation {generation} is held"),
            Self::Elected(_) => "elected".to_owned(),
            Self::Planned { inputs, .. } => format!("a plan for {inputs} events"),
            Self::Refused(kind) => format!("{kind}, refused"),
        }
    }
}
