//! `crux jobs`: the jobs of a controller, and jobs that a scheduler starts and ends.
//!
//! A scheduler's jobs are files that an agent announces (`agent::job_spool`), so nothing is lost
//! while an agent or a controller restarts.

mod kubernetes;
mod slurm;

use std::path::PathBuf;

use clap::Subcommand;

use self::kubernetes::KubernetesCommand;
use self::slurm::SlurmCommand;
use super::status::{self, StatusArgs};
use command_io::CommandError;

/// List the jobs of a running controller, or record what a scheduler starts and ends.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Example:  crux jobs")]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    status: StatusArgs,
    #[command(subcommand)]
    command: Option<JobsCommand>,
}

#[derive(Subcommand)]
pub(crate) enum JobsCommand {
    #[command(subcommand)]
    Slurm(SlurmCommand),
    #[command(subcommand)]
    Kubernetes(KubernetesCommand),
}

#[derive(clap::Args)]
pub(crate) struct SpoolArg {
    /// Folder of the records
    #[arg(long, value_name = "DIR", default_value = "/run/crux/jobs")]
    spool: PathBuf,
}

pub(crate) fn run_jobs(args: &JobsArgs) -> Result<(), CommandError> {
    match &args.command {
        None => status::print_jobs(&args.status),
        Some(JobsCommand::Slurm(command)) => slurm::run_slurm(command),
        Some(JobsCommand::Kubernetes(command)) => kubernetes::run_kubernetes(command),
    }
}
