//! `crux job`: emulated training on real hosts and real networks.
//!
//! [`lead`] is the clock of all jobs: it computes (a timer), starts the flows of an iteration
//! begin, and is notified when they end. [`host`] is one machine: it sends those flows over UDP
//! port 4791. Both read the same documents, so that a number identifies a flow between them
//! ([`protocol`]). [`rehearse`] makes the same run on the embedded fabric. The decision: barriers
//! travel outside the measured fabric, so that they cost the jobs nothing, as in the fluid model.
//! So do the lead's reports to a controller ([`job_reporter`]).

mod host;
mod job_reporter;
mod lead;
mod protocol;
mod rehearse;
mod run_result;
mod scripted_event;

use crate::demo::DemoScenario;
use command_io::CommandError;
use command_io::files;

/// Emulate training jobs on real hosts: collectives over UDP port 4791, computation as waiting.
///
/// Start `crux job lead` once and `crux job host` on every host of the fabric document; the lead
/// prints how long iterations took.
#[derive(clap::Subcommand)]
pub(crate) enum JobCommand {
    Lead(lead::LeadArgs),
    Host(host::HostArgs),
    Rehearse(rehearse::RehearseArgs),
}

/// The documents that all parts of a run read.
#[derive(clap::Args, Debug)]
struct RunDocumentArgs {
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

impl RunDocumentArgs {
    fn read_scenario(&self) -> Result<DemoScenario, CommandError> {
        let fabric = files::read_fabric(&self.fabric)?;
        let document: planner::JobsDocument = files::parse_document(&self.jobs)?;
        let resolved = document.resolve_jobs(&fabric, &self.jobs);
        let mut jobs = resolved.map_err(CommandError::document)?.jobs;
        // Hosts of one job agree on their ports without a word between them.
        planner::choose_source_ports(&mut jobs);
        let seed = self.seed;
        Ok(DemoScenario { fabric, jobs, seed })
    }
}

pub(crate) fn run_job(command: &JobCommand) -> Result<(), CommandError> {
    match command {
        JobCommand::Lead(args) => lead::run_lead(args),
        JobCommand::Host(args) => host::run_host(args),
        JobCommand::Rehearse(args) => rehearse::run_rehearse(args),
    }
}
