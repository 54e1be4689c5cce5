//! `crux jobs`: the jobs of a controller. Those that a scheduler starts and ends are recorded on the
//! machines of the scheduler, by `crux-agent`.

use std::ffi::OsString;

use clap::Subcommand;
use command_io::CommandError;
use command_io::program::ProgramCall;

use super::status::{self, StatusArgs};
use crate::OperatorOutcome;

/// List the jobs of a running controller, or record what a scheduler starts and ends.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  crux jobs
  crux jobs slurm sync
  crux jobs kubernetes watch")]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    status: StatusArgs,
    #[command(subcommand)]
    scheduler: Option<SchedulerCommand>,
}

#[derive(Subcommand)]
enum SchedulerCommand {
    /// Record jobs of Slurm (crux-agent slurm)
    #[command(disable_help_flag = true)]
    #[command(after_help = "Example:  crux jobs slurm sync --help")]
    Slurm(AgentWords),
    /// Record jobs of Kubernetes (crux-agent kubernetes)
    #[command(disable_help_flag = true)]
    #[command(after_help = "Example:  crux jobs kubernetes watch --help")]
    Kubernetes(AgentWords),
}

/// What `crux-agent` parses.
#[derive(clap::Args)]
struct AgentWords {
    /// As crux-agent takes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    words: Vec<OsString>,
}

pub(crate) fn run_jobs(args: &JobsArgs) -> Result<OperatorOutcome, CommandError> {
    let (scheduler, rest) = match &args.scheduler {
        None => return status::print_jobs(&args.status).map(|()| OperatorOutcome::Done),
        Some(SchedulerCommand::Slurm(rest)) => ("slurm", rest),
        Some(SchedulerCommand::Kubernetes(rest)) => ("kubernetes", rest),
    };
    let words = std::iter::once(scheduler.into()).chain(rest.words.iter().cloned()).collect();
    Ok(OperatorOutcome::Call(ProgramCall { program: "crux-agent".to_owned(), words }))
}
