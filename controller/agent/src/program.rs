//! `crux-agent`: the program for hosts. Without a command it reports the jobs of its host; `slurm`
//! and `kubernetes` record for it what a scheduler starts and ends.
//!
//! A scheduler's jobs are files that an agent announces ([`crate::job_spool`]), so nothing is lost
//! while an agent or a controller restarts.

mod controller_target;
mod host_agent;
mod kubernetes;
mod slurm;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, Parser, Subcommand};
use command_io::CommandError;
use command_io::program::{LogArgs, exit_code, parse_words};
use tokio::signal::unix::{SignalKind, signal};

pub use self::controller_target::controller_target;
use self::host_agent::AgentArgs;
use self::kubernetes::KubernetesCommand;
use self::slurm::SlurmCommand;

#[derive(Parser)]
#[command(name = "crux-agent", version, max_term_width = 100)]
struct AgentProgram {
    #[command(flatten)]
    agent: AgentArgs,
    #[command(subcommand)]
    scheduler: Option<SchedulerCommand>,
    #[command(flatten)]
    logs: LogArgs,
}

#[derive(Subcommand)]
enum SchedulerCommand {
    #[command(subcommand)]
    Slurm(SlurmCommand),
    #[command(subcommand)]
    Kubernetes(KubernetesCommand),
}

#[derive(clap::Args)]
struct SpoolArg {
    /// Folder of the records
    #[arg(long, value_name = "DIR", default_value = "/run/crux/jobs")]
    spool: PathBuf,
}

/// The command line of the program.
pub fn program_command() -> Command {
    AgentProgram::command()
}

/// Runs the program with these arguments, without its own name.
pub fn run_program(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (program, matches): (AgentProgram, _) = parse_words(program_command(), words);
    exit_code(program.logs.start_logging().and_then(|()| match &program.scheduler {
        None => host_agent::run_agent(&program.agent),
        Some(scheduler) => {
            refuse_agent_flags(&matches)?;
            match scheduler {
                SchedulerCommand::Slurm(command) => slurm::run_slurm(command),
                SchedulerCommand::Kubernetes(command) => kubernetes::run_kubernetes(command),
            }
        }
    }))
}

/// Flags of the agent itself before a scheduler's command would be ignored.
fn refuse_agent_flags(matches: &ArgMatches) -> Result<(), CommandError> {
    let flags = AgentArgs::augment_args(Command::new("agent"));
    for flag in flags.get_arguments() {
        let id = flag.get_id().as_str();
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            let option = format!("--{}", flag.get_long().unwrap_or(id));
            return Err(CommandError::input(option, "not an option of this command"));
        }
    }
    Ok(())
}

/// Completes at SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>, CommandError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandError::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandError::failed)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
