//! Events for operators: a kind with its fields, and one sentence for people.
//!
//! The decision: the sentence is written here, once. The command line, the page and the terminal
//! all show it, and none has a text of its own.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Finding, Severity, count_noun};

use crate::etcd::describe_term;
use crate::policy_history::UnixMs;
use crate::preview::ValueChange;

/// An event in the fabric or the controller, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct OperatorEvent {
    /// Its number, rising by one from the start of this run of the controller.
    pub sequence: u64,
    /// When it was observed, milliseconds of Unix time.
    pub at_ms: UnixMs,
    /// How severe it is.
    pub severity: Severity,
    /// What happened, in one sentence.
    pub text: String,
    /// What happened, for programs.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened, with its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// A job is planned for.
    JobArrived {
        /// The job.
        job: String,
        /// Its level.
        level: u8,
        /// Its place in the order of priority; 1 is first.
        rank: u32,
        /// Its intensity, FLOP/s (Crux Eq. 2).
        intensity: f64,
        /// Whether it is being profiled.
        profiled: bool,
    },
    /// A job has another level, or its profiling began or ended.
    JobChanged {
        /// The job.
        job: String,
        /// Its level.
        level: ValueChange<u8>,
        /// Whether it is being profiled.
        profiled: ValueChange<bool>,
        /// Its intensity, FLOP/s (Crux Eq. 2).
        intensity: f64,
    },
    /// A job is no longer planned for.
    JobLeft {
        /// The job.
        job: String,
    },
    /// A plan is in force, and switches are being written.
    PlanAdopted {
        /// Its generation.
        generation: u64,
        /// Its jobs.
        jobs: usize,
        /// Its flows.
        flows: usize,
        /// Flows that were planned before and take another path now.
        moved: usize,
        /// The first few of them.
        moves: Vec<FlowMove>,
    },
    /// Every switch that is not down was seen to hold a plan.
    PlanVerified {
        /// Its generation.
        generation: u64,
        /// From the event behind it to the last switch, seconds.
        seconds: f64,
    },
    /// Another policy is in force.
    PolicyApplied {
        /// Its revision.
        revision: u64,
        /// Who changed it.
        author: String,
        /// Why.
        reason: String,
        /// When it ends unless it is confirmed, milliseconds of Unix time.
        trial_until_ms: Option<UnixMs>,
        /// What changed, field by field.
        changes: Vec<String>,
    },
    /// A revision on trial was confirmed.
    PolicyConfirmed {
        /// The revision.
        revision: u64,
    },
    /// A revision on trial was rolled back.
    PolicyRolledBack {
        /// The revision in force.
        revision: u64,
        /// The revision that was rolled back.
        rolled_back: u64,
        /// Who rolled it back.
        author: String,
        /// Why.
        reason: String,
    },
    /// A revision on trial was not confirmed in time.
    PolicyExpired {
        /// The revision in force.
        revision: u64,
        /// The revision that expired.
        expired: u64,
    },
    /// Another fabric is in force.
    FabricApplied {
        /// Its revision.
        revision: u64,
        /// Who changed it.
        author: String,
        /// Why.
        reason: String,
        /// What changed, a part a line.
        changes: Vec<String>,
    },
    /// A switch is up, down, drained or returning.
    SwitchChanged {
        /// The switch.
        switch: String,
        /// Its state.
        state: ValueChange<String>,
    },
    /// A cable is up, down, drained or returning.
    CableChanged {
        /// One of its directions.
        link: String,
        /// Its state.
        state: ValueChange<String>,
    },
    /// No switch sends to the drained parts any more.
    DrainCompleted {
        /// Switches and cables, as the policy names them.
        parts: Vec<String>,
        /// Whether counters of switches show it; else only their tables do.
        counted: bool,
    },
    /// Entries that somebody else had changed were repaired, or kept if the configuration says so.
    DriftRepaired {
        /// The switch.
        switch: String,
        /// How many entries.
        entries: u64,
    },
    /// A finding appeared.
    FindingRaised {
        /// The finding.
        finding: Finding,
    },
    /// A finding no longer holds.
    FindingCleared {
        /// The finding.
        finding: Finding,
    },
    /// This controller became the leader, or is no longer.
    LeadershipChanged {
        /// Whether it is the leader.
        is_leader: bool,
        /// The term in which it bids.
        term: u64,
    },
}

/// A flow that takes another path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowMove {
    /// The job of the flow.
    pub job: String,
    /// The flow, as `h1>h3:50000`.
    pub flow: String,
    /// Hosts and switches on its path.
    pub path: ValueChange<Vec<String>>,
}

impl OperatorEvent {
    pub(super) fn new(sequence: u64, at_ms: UnixMs, kind: EventKind) -> Self {
        Self { sequence, at_ms, severity: kind.severity(), text: kind.to_string(), kind }
    }
}

impl EventKind {
    /// How severe the event is.
    fn severity(&self) -> Severity {
        match self {
            Self::SwitchChanged { state, .. } if state.after == "down" => Severity::Error,
            Self::CableChanged { state, .. } if state.after == "down" => Severity::Error,
            Self::FindingRaised { finding } => finding.severity,
            Self::DriftRepaired { .. }
            | Self::PolicyRolledBack { .. }
            | Self::PolicyExpired { .. }
            | Self::LeadershipChanged { is_leader: false, .. } => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

/// Entries of a switch that another client wrote.
pub fn describe_drift(entries: u64) -> String {
    let was = if entries == 1 { "was" } else { "were" };
    format!("{} {was} changed by somebody else", count_noun(entries, "entry"))
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobArrived { .. } | Self::JobChanged { .. } | Self::JobLeft { .. } => {
                self.write_job_event(f)
            }
            Self::PolicyApplied { .. }
            | Self::PolicyConfirmed { .. }
            | Self::PolicyRolledBack { .. }
            | Self::PolicyExpired { .. } => self.write_policy_event(f),
            Self::FabricApplied { revision, author, reason, changes } => {
                write!(f, "fabric: revision {revision} by {author}")?;
                if !reason.is_empty() {
                    write!(f, " ({reason})")?;
                }
                write!(f, ": {}", changes.join("; "))
            }
            Self::PlanAdopted { generation, jobs, flows, moved, .. } => write!(
                f,
                "generation {generation} is in force: {}, {}, {moved} moved",
                count_noun(*jobs, "job"),
                count_noun(*flows, "flow"),
            ),
            Self::PlanVerified { generation, seconds } => write!(
                f,
                "every switch holds generation {generation}, after {:.1} ms",
                seconds * 1e3
            ),
            Self::FindingRaised { finding } => write!(f, "{}: {}", finding.about, finding.text),
            Self::FindingCleared { finding } => {
                write!(f, "no more: {}: {}", finding.about, finding.text)
            }
            Self::SwitchChanged { switch: part, state }
            | Self::CableChanged { link: part, state } => {
                write!(f, "{part} is {}, was {}", state.after, state.before)
            }
            Self::DrainCompleted { parts, counted } => {
                let names = parts.join(", ");
                let shown = match counted {
                    true => "by their counters",
                    false => "by their tables; it was not counted",
                };
                write!(f, "drain of {names} is complete: no switch sends there any more, {shown}")
            }
            Self::DriftRepaired { switch, entries } => {
                write!(f, "{switch}: {}", describe_drift(*entries))
            }
            Self::LeadershipChanged { is_leader, term } => {
                let leads = if *is_leader { "leads" } else { "does not lead any more" };
                write!(f, "this controller {leads}, {}", describe_term(*term))
            }
        }
    }
}

impl EventKind {
    /// Writes the sentence of an event about a job.
    fn write_job_event(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobArrived { job, profiled: true, .. } => {
                write!(f, "job {job} arrived and is being profiled")
            }
            Self::JobArrived { job, level, rank, .. } => {
                write!(f, "job {job} arrived: level {level}, rank {rank}")
            }
            Self::JobChanged { job, level, profiled, .. } => {
                let known = match (profiled.before, profiled.after) {
                    (true, false) => " has been profiled:",
                    (false, true) => " is being profiled again:",
                    _ => ":",
                };
                let ValueChange { before, after } = level;
                if before == after {
                    write!(f, "job {job}{known} level {after} as before")
                } else {
                    write!(f, "job {job}{known} level {before} -> {after}")
                }
            }
            Self::JobLeft { job } => write!(f, "job {job} left"),
            _ => Ok(()),
        }
    }

    /// Writes the sentence of an event about the policy.
    fn write_policy_event(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PolicyApplied { revision, author, reason, trial_until_ms, changes } => {
                let trial = trial_until_ms.map_or("", |_| ", on trial until it is confirmed");
                write!(f, "policy: revision {revision} by {author}")?;
                if !reason.is_empty() {
                    write!(f, " ({reason})")?;
                }
                write!(f, "{trial}: {}", changes.join("; "))
            }
            Self::PolicyConfirmed { revision } => {
                write!(f, "policy: revision {revision} was confirmed")
            }
            Self::PolicyRolledBack { revision, rolled_back, author, .. } => write!(
                f,
                "policy: revision {rolled_back} was rolled back by {author}; revision {revision} \
                 is in force"
            ),
            Self::PolicyExpired { revision, expired } => write!(
                f,
                "policy: revision {expired} was not confirmed in time; revision {revision} is in \
                 force"
            ),
            _ => Ok(()),
        }
    }
}
