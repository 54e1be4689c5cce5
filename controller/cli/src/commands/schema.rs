//! `crux schema`: JSON Schemas of the documents, from the types that read them.

use ::controller::northbound::openapi;
use clap::ValueEnum;
use planner::{JobsDocument, PlanDocument, PolicyDocument};
use schemars::schema_for;
use simulator::decisions::DecisionSummary;
use simulator::replay::ReplayComparison;
use simulator::{SchedulerComparison, SimulationOutcome};
use topology::spec::FabricDocument;

use crate::command_error::CommandError;
use crate::output;

/// Print the JSON Schema of a kind of document.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux schema jobs > jobs.schema.json")]
pub(crate) struct SchemaArgs {
    /// The kind of document
    kind: SchemaKind,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemaKind {
    /// A fabric
    Fabric,
    /// Jobs
    Jobs,
    /// Policy
    Policy,
    /// What crux plan prints
    Plan,
    /// What crux simulate prints
    Outcome,
    /// What crux compare prints
    Comparison,
    /// What crux replay prints
    Replay,
    /// What crux bench decisions prints
    Decisions,
    /// What a running controller answers over HTTP: its OpenAPI document
    Openapi,
}

pub(crate) fn run_schema(args: &SchemaArgs) -> Result<(), CommandError> {
    let schema = match args.kind {
        SchemaKind::Fabric => schema_for!(FabricDocument),
        SchemaKind::Jobs => schema_for!(JobsDocument),
        SchemaKind::Policy => schema_for!(PolicyDocument),
        SchemaKind::Plan => schema_for!(PlanDocument),
        SchemaKind::Outcome => schema_for!(SimulationOutcome),
        SchemaKind::Comparison => schema_for!(SchedulerComparison),
        SchemaKind::Replay => schema_for!(ReplayComparison),
        SchemaKind::Decisions => schema_for!(DecisionSummary),
        SchemaKind::Openapi => return output::print_json(&openapi::openapi_document()),
    };
    output::print_json(&schema)
}
