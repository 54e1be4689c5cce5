//! `crux jobs slurm`: jobs of Slurm, from its prolog and epilog and from what it lists.

use std::path::PathBuf;
use std::process::Command;

use agent::job_spool::JobSpool;
use agent::slurm_job;
use clap::Subcommand;

use super::SpoolArg;
use command_io::{CommandError, output};

/// States in which a job has its hosts.
const RUNNING_STATES: &str = "--states=CONFIGURING,RUNNING,SUSPENDED,STOPPED,RESIZING";

/// Record a job of Slurm, from its prolog and epilog.
#[derive(Subcommand)]
pub(crate) enum SlurmCommand {
    Start(SlurmStartArgs),
    End(SlurmEndArgs),
    Sync(SlurmSyncArgs),
}

/// Record the job that is starting, for an agent to announce (crux agent --spool).
///
/// Reads the environment of Slurm's Prolog or PrologSlurmctld. The comment of a job may say what
/// Slurm does not know: crux.profile=NAME, crux.model=NAME, crux.flop=NUMBER, crux.collective=KIND,
/// crux.bytes=NUMBER. In Prolog, only the first host of the job records it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux jobs slurm start
  crux jobs slurm start --spool /run/crux/jobs --gpus-per-host 8")]
pub(crate) struct SlurmStartArgs {
    #[command(flatten)]
    spool: SpoolArg,
    /// GPUs that each host gives to the job [default: those that Slurm counts on this host]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    gpus_per_host: Option<u32>,
}

/// Remove the record of the job that has ended.
///
/// Reads the environment of Slurm's Epilog or EpilogSlurmctld.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux jobs slurm end")]
pub(crate) struct SlurmEndArgs {
    #[command(flatten)]
    spool: SpoolArg,
}

/// Remove records of jobs that no longer run, according to squeue.
///
/// A slurmctld that crashes in an epilog does not run it again. Call this after every start of
/// slurmctld, or from a timer.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux jobs slurm sync")]
pub(crate) struct SlurmSyncArgs {
    #[command(flatten)]
    spool: SpoolArg,
    /// The program that lists jobs
    #[arg(long, value_name = "PROGRAM", default_value = "squeue")]
    squeue: PathBuf,
}

pub(super) fn run_slurm(command: &SlurmCommand) -> Result<(), CommandError> {
    match command {
        SlurmCommand::Start(args) => start_slurm_job(args),
        SlurmCommand::End(args) => end_slurm_job(args),
        SlurmCommand::Sync(args) => sync_slurm_jobs(args),
    }
}

fn start_slurm_job(args: &SlurmStartArgs) -> Result<(), CommandError> {
    let job = slurm_job::starting_slurm_job(variable, args.gpus_per_host)
        .map_err(|error| CommandError::input("the environment", error))?;
    let Some(job) = job else {
        return output::print_line("another host records this job");
    };
    let spool = &args.spool.spool;
    JobSpool::new(spool)
        .add_job(&job)
        .map_err(|error| CommandError::Failed(format!("{}: {error}", spool.display())))?;
    output::print_line(format_args!("{} on {} hosts", job.id, job.gpus.len()))
}

fn end_slurm_job(args: &SlurmEndArgs) -> Result<(), CommandError> {
    let id = slurm_job::slurm_job_name(variable)
        .map_err(|error| CommandError::input("the environment", error))?;
    let spool = &args.spool.spool;
    let was_there = JobSpool::new(spool)
        .remove_job(&id)
        .map_err(|error| CommandError::Failed(format!("{}: {error}", spool.display())))?;
    match was_there {
        true => output::print_line(format_args!("{id} has ended")),
        false => output::print_line(format_args!("{id} was not recorded here")),
    }
}

fn sync_slurm_jobs(args: &SlurmSyncArgs) -> Result<(), CommandError> {
    let failed = |problem: &dyn std::fmt::Display| {
        CommandError::Failed(format!("{}: {problem}", args.squeue.display()))
    };
    // Read before Slurm is asked: a job that starts in between is not taken for a vanished one.
    let spool = JobSpool::new(&args.spool.spool);
    let spooled = spool.read_jobs().map_err(CommandError::failed)?;
    let output = Command::new(&args.squeue)
        .args(["--noheader", "--format=%A", RUNNING_STATES])
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    let recorded = spooled.jobs.iter().map(|job| job.id.as_str());
    for id in slurm_job::vanished_slurm_jobs(recorded, &listed) {
        spool.remove_job(id).map_err(CommandError::failed)?;
        output::print_line(format_args!("{id} does not run any more"))?;
    }
    Ok(())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
