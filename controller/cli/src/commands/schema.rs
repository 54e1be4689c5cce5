//! `crux schema`: JSON Schemas of the documents, from the types that read them.

use ::controller::northbound::openapi;
use clap::ValueEnum;
use planner::{JobsDocument, PlanDocument, PolicyDocument};
use schemars::schema_for;
use simulator::decisions::Summary;
use simulator::replay::Replays;
use simulator::{Comparison, Outcome};
use topology::spec::FabricDocument;

use crate::failure::Failure;
use crate::output;

/// Print the JSON Schema of a kind of document.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux schema jobs > jobs.schema.json")]
pub(crate) struct Args {
    /// The kind of document
    kind: Kind,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
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

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let schema = match args.kind {
        Kind::Fabric => schema_for!(FabricDocument),
        Kind::Jobs => schema_for!(JobsDocument),
        Kind::Policy => schema_for!(PolicyDocument),
        Kind::Plan => schema_for!(PlanDocument),
        Kind::Outcome => schema_for!(Outcome),
        Kind::Comparison => schema_for!(Comparison),
        Kind::Replay => schema_for!(Replays),
        Kind::Decisions => schema_for!(Summary),
        Kind::Openapi => return output::print_json(&openapi::document()),
    };
    output::print_json(&schema)
}
