//! `crux-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::program::run_program(std::env::args_os().skip(1))
}
