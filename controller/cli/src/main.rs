//! `crux`: the operator's program. A command that it does not have is that of a program beside it,
//! as `git NAME` is `git-NAME`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser};
use command_io::CommandError;
use command_io::program::{LogArgs, ParsedLine, ProgramCall, exit_code, parse_line, refuse_line};
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
    command: OperatorCommand,
    #[command(flatten)]
    logs: LogArgs,
}

fn main() -> ExitCode {
    let command = match crux::with_context(crux::with_groups(CruxProgram::command())) {
        Ok(command) => command,
        Err(failure) => return failure.report(),
    };
    let CruxProgram { command: own, logs } = match parse_line(&command) {
        ParsedLine::Own(program) => program,
        ParsedLine::Other(words, logs) => return run_beside(&words, &logs, command),
    };
    exit_code(logs.start_logging().and_then(|()| match own.run(|| vec![CruxProgram::command()])? {
        OperatorOutcome::Done => Ok(()),
        OperatorOutcome::Call(call) => {
            Err(call.replace_process(&logs).unwrap_or_else(|| not_installed(&call.program)))
        }
    }))
}

/// Becomes the program that has this command.
fn run_beside(words: &[OsString], logs: &LogArgs, command: Command) -> ExitCode {
    let calls = ProgramCall::for_command(words);
    if let Some(failure) = calls.iter().find_map(|call| call.replace_process(logs)) {
        return failure.report();
    }
    match words.first().and_then(|name| program_of(name.to_str()?)) {
        Some(program) => not_installed(program).report(),
        None => refuse_line(command),
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
