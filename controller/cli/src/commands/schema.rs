//! `crux schema`: JSON Schemas of the documents, from the types that read them.

use ::controller::config::RawConfig;
use ::controller::northbound::openapi;
use clap::ValueEnum;
use planner::{JobsDocument, PlanDocument, PolicyDocument};
use schemars::schema_for;
use topology::spec::FabricDocument;

use command_io::CommandError;
use command_io::output;

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
    #[cfg(feature = "lab")]
    Outcome,
    /// What crux compare prints
    #[cfg(feature = "lab")]
    Comparison,
    /// What crux replay prints
    #[cfg(feature = "lab")]
    Replay,
    /// What crux bench decisions prints
    #[cfg(feature = "lab")]
    Decisions,
    /// The configuration of the controller
    Configuration,
    /// What a running controller answers over HTTP: its OpenAPI document
    Openapi,
}

pub(crate) fn run_schema(args: &SchemaArgs) -> Result<(), CommandError> {
    let schema = match args.kind {
        SchemaKind::Fabric => schema_for!(FabricDocument),
        SchemaKind::Jobs => schema_for!(JobsDocument),
        SchemaKind::Policy => schema_for!(PolicyDocument),
        SchemaKind::Plan => schema_for!(PlanDocument),
        #[cfg(feature = "lab")]
        SchemaKind::Outcome => lab::schema::outcome_schema(),
        #[cfg(feature = "lab")]
        SchemaKind::Comparison => lab::schema::comparison_schema(),
        #[cfg(feature = "lab")]
        SchemaKind::Replay => lab::schema::replay_schema(),
        #[cfg(feature = "lab")]
        SchemaKind::Decisions => lab::schema::decisions_schema(),
        SchemaKind::Configuration => schema_for!(RawConfig),
        SchemaKind::Openapi => return output::print_json(&openapi::openapi_document()),
    };
    output::print_json(&schema)
}
