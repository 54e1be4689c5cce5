//! `crux bench`: what the system promises, tried on this machine.

mod decisions;
mod faults;
mod period;
mod soak;

use clap::Subcommand;

use crate::failure::Failure;

/// Try what the system promises on this machine.
#[derive(Subcommand)]
pub(crate) enum Command {
    Decisions(decisions::Args),
    Faults(faults::Args),
    Period(period::Args),
    Soak(soak::Args),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Decisions(args) => decisions::run(args),
        Command::Faults(args) => faults::run(args),
        Command::Period(args) => period::run(args),
        Command::Soak(args) => soak::run(args),
    }
}
