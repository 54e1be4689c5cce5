//! JSON Schemas of what the laboratory prints, from the types that are printed.

use schemars::{Schema, schema_for};
use simulator::decisions::DecisionSummary;
use simulator::replay::ReplayComparison;
use simulator::{SchedulerComparison, SchedulerReply, SchedulerRequest, SimulationOutcome};

/// The schema of a kind of `crux schema` that the laboratory prints.
pub fn lab_schema(kind: &str) -> Option<Schema> {
    match kind {
        "outcome" => Some(schema_for!(SimulationOutcome)),
        "comparison" => Some(schema_for!(SchedulerComparison)),
        "replay" => Some(schema_for!(ReplayComparison)),
        "scheduler-request" => Some(schema_for!(SchedulerRequest)),
        "scheduler-reply" => Some(schema_for!(SchedulerReply)),
        "decisions" => Some(schema_for!(DecisionSummary)),
        _ => None,
    }
}
