//! `crux schema`: JSON Schemas of the documents, from the types that read them.

use std::ffi::OsString;

use ::controller::config::RawConfig;
use ::controller::northbound::openapi;
use clap::ValueEnum;
use planner::{JobsDocument, PlanDocument, PolicyDocument};
use schemars::schema_for;
use topology::spec::FabricDocument;

use command_io::CommandError;
use command_io::output;
use command_io::program::ProgramCall;

use crate::OperatorOutcome;

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
    /// What crux asks the program of --scheduler-command
    SchedulerRequest,
    /// What that program replies
    SchedulerReply,
    /// What crux bench decisions prints
    Decisions,
    /// The configuration of the controller
    Configuration,
    /// What a running controller answers over HTTP: its OpenAPI document
    Openapi,
}

pub(crate) fn run_schema(args: &SchemaArgs) -> Result<OperatorOutcome, CommandError> {
    let schema = match args.kind {
        SchemaKind::Fabric => schema_for!(FabricDocument),
        SchemaKind::Jobs => schema_for!(JobsDocument),
        SchemaKind::Policy => schema_for!(PolicyDocument),
        SchemaKind::Plan => schema_for!(PlanDocument),
        SchemaKind::Configuration => schema_for!(RawConfig),
        SchemaKind::Openapi => {
            return output::print_json(&openapi::openapi_document())
                .map(|()| OperatorOutcome::Done);
        }
        // What `crux-lab` prints is described by the types that it has.
        SchemaKind::Outcome
        | SchemaKind::Comparison
        | SchemaKind::Replay
        | SchemaKind::SchedulerRequest
        | SchemaKind::SchedulerReply
        | SchemaKind::Decisions => {
            let kind = args.kind.to_possible_value().map(|kind| kind.get_name().to_owned());
            let words = ["schema".into()].into_iter().chain(kind.map(OsString::from)).collect();
            return Ok(OperatorOutcome::Call(ProgramCall {
                program: "crux-lab".to_owned(),
                words,
            }));
        }
    };
    output::print_json(&schema).map(|()| OperatorOutcome::Done)
}
