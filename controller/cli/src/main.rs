//! `crux`: the operator's program. A command that it does not have is that of a program beside it,
//! as `git NAME` is `git-NAME`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser, Subcommand};
use command_io::CommandError;
use command_io::program::{LogArgs, ProgramCall, exit_code, parse_words};
use crux::{OperatorCommand, OperatorOutcome};

/// Schedules the traffic of GPU training jobs on a Clos fabric.
///
/// Crux reads a fabric and its training jobs, computes each job's GPU intensity, pins intense flows
/// onto uncongested paths, orders the jobs, compresses the order onto the priority levels that
/// switches have, and programs it over P4Runtime.
#[derive(Parser)]
#[command(name = "crux", version, max_term_width = 100)]
#[command(after_help = "\
Programs beside this one:
  crux agent    reports the jobs of a host (crux-agent)
  crux switch   forwards packets and serves P4Runtime (crux-switch)
  crux demo, simulate, compare, advise, replay, place, reproduce, bench, job, lab (crux-lab)

Start with:   crux demo
Exit status:  0 done, 1 failed, 2 usage or bad input")]
struct CruxProgram {
    #[command(subcommand)]
    command: CruxCommand,
    #[command(flatten)]
    logs: LogArgs,
}

#[derive(Subcommand)]
enum CruxCommand {
    #[command(flatten)]
    Operator(OperatorCommand),
    #[command(external_subcommand)]
    Beside(Vec<OsString>),
}

fn main() -> ExitCode {
    let command = match crux::with_context(CruxProgram::command()) {
        Ok(command) => command,
        Err(failure) => return failure.report(),
    };
    let (program, _) = parse_words(command.clone(), std::env::args_os().skip(1));
    let CruxProgram { command: parsed, logs } = program;
    exit_code(match parsed {
        CruxCommand::Beside(words) => run_beside(&words, &logs, command),
        CruxCommand::Operator(own) => {
            logs.start_logging().and_then(|()| match own.run(|| vec![CruxProgram::command()])? {
                OperatorOutcome::Done => Ok(()),
                OperatorOutcome::Call(call) => {
                    Err(call.replace_process(&logs).unwrap_or_else(|| not_installed(&call.program)))
                }
            })
        }
    })
}

/// Becomes the program that has this command.
fn run_beside(words: &[OsString], logs: &LogArgs, command: Command) -> Result<(), CommandError> {
    let calls = ProgramCall::for_command(words);
    if let Some(failure) = calls.iter().find_map(|call| call.replace_process(logs)) {
        return Err(failure);
    }
    if let Some(program) = words.first().and_then(|name| program_of(name.to_str()?)) {
        return Err(not_installed(program));
    }
    // No program has it: clap names the most similar commands.
    match command.allow_external_subcommands(false).try_get_matches() {
        Err(error) => error.exit(),
        Ok(_) => Err(not_installed("crux-lab")),
    }
}

/// The program of a command of Crux that this program does not have.
fn program_of(command: &str) -> Option<&'static str> {
    const LABORATORY: [&str; 10] = [
        "demo",
        "simulate",
        "compare",
        "advise",
        "replay",
        "place",
        "reproduce",
        "bench",
        "job",
        "lab",
    ];
    match command {
        "agent" => Some("crux-agent"),
        "switch" => Some("crux-switch"),
        _ => LABORATORY.contains(&command).then_some("crux-lab"),
    }
}

fn not_installed(program: &str) -> CommandError {
    CommandError::input(
        program,
        "not beside this program; install the package that has it, or run `cargo build` in the \
         sources",
    )
}
