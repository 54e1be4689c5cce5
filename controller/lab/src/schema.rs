//! JSON Schemas of what the laboratory prints, from the types that are printed.

use schemars::{Schema, schema_for};
use simulator::decisions::DecisionSummary;
use simulator::replay::ReplayComparison;
use simulator::{SchedulerComparison, SimulationOutcome};

/// What `crux simulate` prints.
pub fn outcome_schema() -> Schema {
    schema_for!(SimulationOutcome)
}

/// What `crux compare` prints.
pub fn comparison_schema() -> Schema {
    schema_for!(SchedulerComparison)
}

/// What `crux replay` prints.
pub fn replay_schema() -> Schema {
    schema_for!(ReplayComparison)
}

/// What `crux bench decisions` prints.
pub fn decisions_schema() -> Schema {
    schema_for!(DecisionSummary)
}
