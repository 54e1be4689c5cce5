//! `crux-switch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    crux_switch::run_program(std::env::args_os().skip(1))
}
