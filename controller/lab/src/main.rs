//! `crux-lab`: the laboratory, with the commands of an operator, of the agent and of the switch, so
//! that `crux-lab lab up` and a source tree need no other program.

#[cfg(test)]
mod examples;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser, Subcommand};
use command_io::output;
use command_io::program::{LogArgs, ParsedLine, ProgramCall, exit_code, parse_line, refuse_line};
use crux::{OperatorCommand, OperatorOutcome};
use lab::LabCommand;

/// Schedules the traffic of GPU training jobs on a Clos fabric: the laboratory.
///
/// All commands of crux, and those that evaluate it: on emulated switches, in simulations, in
/// network namespaces of this machine, and beside the figures of papers.
#[derive(Parser)]
#[command(name = "crux", version, max_term_width = 100)]
#[command(after_help = "\
Start with:   crux demo
Exit status:  0 done, 1 failed, 2 usage or bad input")]
struct LabProgram {
    #[command(subcommand)]
    command: ProgramCommand,
    #[command(flatten)]
    logs: LogArgs,
}

#[derive(Subcommand)]
enum ProgramCommand {
    #[command(flatten)]
    Lab(LabCommand),
    #[command(flatten)]
    Operator(OperatorCommand),
}

/// The command lines of this program and of those that it contains.
fn programs() -> [Command; 3] {
    [LabProgram::command(), agent::program::program_command(), crux_switch::program_command()]
}

fn main() -> ExitCode {
    let command = match crux::with_context(LabProgram::command()) {
        Ok(command) => command,
        Err(failure) => return failure.report(),
    };
    let LabProgram { command: own, logs } = match parse_line(&command) {
        ParsedLine::Own(program) => program,
        ParsedLine::Other(words, logs) => {
            let logs = logs.to_words();
            let calls = ProgramCall::for_command(&words);
            let run = calls.iter().find_map(|call| run_inside(call, &logs));
            return run.unwrap_or_else(|| refuse_line(command));
        }
    };
    exit_code(match own {
        ProgramCommand::Lab(own) => logs.start_logging().and_then(|()| own.run()),
        ProgramCommand::Operator(own) => {
            match logs.start_logging().and_then(|()| own.run(|| programs().into())) {
                Ok(OperatorOutcome::Call(call)) => {
                    return run_inside(&call, &[]).unwrap_or(ExitCode::FAILURE);
                }
                Ok(OperatorOutcome::Done) => Ok(()),
                Err(failure) => Err(failure),
            }
        }
    })
}

/// Runs a command of a program that this one contains.
fn run_inside(call: &ProgramCall, logs: &[OsString]) -> Option<ExitCode> {
    match (call.program.as_str(), call.words.as_slice()) {
        ("crux-lab", [command, kind]) if command == "schema" => {
            let schema = lab::schema::lab_schema(kind.to_str()?)?;
            Some(exit_code(output::print_json(&schema)))
        }
        ("crux-agent", words) => Some(agent::program::run_program(join(logs, words))),
        ("crux-switch", words) => Some(crux_switch::run_program(join(logs, words))),
        _ => None,
    }
}

fn join(logs: &[OsString], words: &[OsString]) -> Vec<OsString> {
    [logs, words].concat()
}
