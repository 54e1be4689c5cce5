//! `crux job`: emulated training on real hosts and real networks.
//!
//! `lead` is the clock of all jobs: it computes (a timer), says when the flows of an iteration
//! begin and hears when they have ended ([`lead`]). `host` is one machine: it sends those flows
//! over UDP port 4791 ([`host`]). Both read the same documents, so that a flow is a number between
//! them ([`wire`]). `rehearse` makes the same run on the embedded fabric. The decision: barriers
//! travel beside the fabric that is measured, so that they cost the jobs nothing, as in the fluid
//! model. So do reports: the lead may tell a controller of its jobs ([`teller`]).

mod happening;
mod host;
mod lead;
mod rehearse;
mod result;
mod teller;
mod wire;

use crate::commands::demo::Scenario;
use crate::failure::Failure;
use crate::files;

/// Emulate training jobs on real hosts: collectives over UDP port 4791, computation as waiting.
///
/// Start `crux job lead` once and `crux job host` on every host of the fabric document; the lead
/// prints how long iterations took.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Lead(lead::Args),
    Host(host::Args),
    Rehearse(rehearse::Args),
}

/// The documents that all parts of a run read.
#[derive(clap::Args, Debug)]
struct Documents {
    /// Fabric document; links have the rates of the network at hand
    #[arg(long)]
    fabric: String,
    /// Jobs document; sizes and times are those of the emulation
    #[arg(long)]
    jobs: String,
    /// Draws when each job begins, within its first iteration
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Documents {
    fn read(&self) -> Result<Scenario, Failure> {
        let fabric = files::fabric(&self.fabric)?;
        let document: planner::JobsDocument = files::parse(&self.jobs)?;
        let resolved = document.resolve(&fabric, &self.jobs);
        let jobs = resolved.map_err(Failure::document)?.jobs;
        let seed = self.seed;
        Ok(Scenario { fabric, jobs, seed })
    }
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Lead(args) => lead::run(args),
        Command::Host(args) => host::run(args),
        Command::Rehearse(args) => rehearse::run(args),
    }
}
