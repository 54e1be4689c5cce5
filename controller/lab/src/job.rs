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

use std::path::{Path, PathBuf};

#[cfg(test)]
pub(crate) use self::run_result::MeasuredJobResult;
pub(crate) use self::run_result::{AppliedEvent, JobRunResult};
pub(crate) use self::scripted_event::{EventAction, ScriptedEvent};
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

/// A run of jobs that another command makes: on hosts that have the same documents, and on the
/// embedded fabric.
#[derive(Clone, Debug)]
pub(crate) struct JobRun {
    fabric: PathBuf,
    jobs: PathBuf,
    iterations: u16,
}

impl JobRun {
    /// A run with these documents; `iterations` of the slowest job are measured.
    pub(crate) fn new(fabric: &Path, jobs: &Path, iterations: u16) -> Self {
        Self { fabric: fabric.to_owned(), jobs: jobs.to_owned(), iterations }
    }

    /// Leads the hosts that connect to a Unix socket; reports the jobs to `controller`, if they are
    /// to be known.
    pub(crate) fn lead_hosts(
        &self,
        socket: &Path,
        controller: Option<String>,
    ) -> Result<JobRunResult, CommandError> {
        let listen = protocol::LeadAddress::Unix(socket.to_owned());
        lead::LeadArgs::for_run(self.documents(), listen, controller, self.iterations).measure_run()
    }

    /// Makes the run on the embedded fabric, with events at their instants.
    pub(crate) fn rehearse(
        &self,
        events: &[ScriptedEvent],
        is_planned: bool,
    ) -> Result<JobRunResult, CommandError> {
        rehearse::rehearse_run(&self.documents(), self.iterations, events, is_planned)
    }

    fn documents(&self) -> RunDocumentArgs {
        let [fabric, jobs] = [&self.fabric, &self.jobs].map(|file| file.display().to_string());
        RunDocumentArgs { fabric, jobs, seed: 1 }
    }
}

pub(crate) fn run_job(command: &JobCommand) -> Result<(), CommandError> {
    match command {
        JobCommand::Lead(args) => lead::run_lead(args),
        JobCommand::Host(args) => host::run_host(args),
        JobCommand::Rehearse(args) => rehearse::run_rehearse(args),
    }
}
