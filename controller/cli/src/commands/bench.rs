//! `crux bench`: what the system promises, tried on this machine.

mod cases;
mod decisions;
mod fairness;
mod faults;
mod period;
mod progress;
mod soak;

use clap::Subcommand;

use crate::failure::Failure;

/// Try what the system promises on this machine.
#[derive(Subcommand)]
pub(crate) enum Command {
    Decisions(decisions::Args),
    Fairness(fairness::Args),
    Faults(faults::Args),
    Period(period::Args),
    Soak(soak::Args),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Decisions(args) => decisions::run(args),
        Command::Fairness(args) => fairness::run(args),
        Command::Faults(args) => faults::run(args),
        Command::Period(args) => period::run(args),
        Command::Soak(args) => soak::run(args),
    }
}
