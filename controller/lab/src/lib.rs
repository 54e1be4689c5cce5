//! The laboratory: commands that evaluate Crux and that no operator of a fabric needs.
//!
//! `demo` runs the whole system on emulated switches, `simulate`, `compare` and `replay` use the
//! fluid model, `advise` compares ways to forward, `place` and `reproduce` apply placement
//! policies, `map` compares all schedulers over many parameters, `bench` tests what the system promises, `job` emulates training on real hosts, and
//! `lab` runs a whole fabric in network namespaces. The program `crux-lab` mounts them all with
//! [`LabCommand`] (docs/decisions/0010-programs.md).

mod advise;
mod bench;
mod compare;
mod demo;
mod figure;
mod gain_map;
mod job;
mod models;
mod namespace_lab;
mod page;
mod place;
mod progress;
mod replay;
mod reproduce;
mod scheduler_process;
pub mod schema;
mod simulate;
mod transport_flags;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use command_io::CommandError;

/// A command of the laboratory, which the binary mounts among its own.
pub struct LabCommand(LabSubcommand);

#[derive(Subcommand)]
enum LabSubcommand {
    Demo(demo::DemoArgs),
    Simulate(simulate::SimulateArgs),
    Compare(compare::CompareArgs),
    Advise(advise::AdviseArgs),
    Replay(replay::ReplayArgs),
    Place(place::PlaceArgs),
    #[command(subcommand)]
    Map(gain_map::MapCommand),
    Reproduce(reproduce::ReproduceArgs),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    #[command(subcommand)]
    Job(job::JobCommand),
    #[command(subcommand, name = "lab")]
    NamespaceLab(namespace_lab::NamespaceLabCommand),
}

impl LabCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The input is wrong, or the result is not what it should be.
    pub fn run(&self) -> Result<(), CommandError> {
        match &self.0 {
            LabSubcommand::Demo(args) => demo::run_demo(args),
            LabSubcommand::Simulate(args) => simulate::run_simulate(args),
            LabSubcommand::Compare(args) => compare::run_compare(args),
            LabSubcommand::Advise(args) => advise::run_advise(args),
            LabSubcommand::Replay(args) => replay::run_replay(args),
            LabSubcommand::Place(args) => place::run_place(args),
            LabSubcommand::Map(command) => gain_map::run_map(command),
            LabSubcommand::Reproduce(args) => reproduce::run_reproduce(args),
            LabSubcommand::Bench(command) => bench::run_bench(command),
            LabSubcommand::Job(command) => job::run_job(command),
            LabSubcommand::NamespaceLab(command) => namespace_lab::run_namespace_lab(command),
        }
    }
}

// Derived on the private enum, so that the arguments of each command stay private too.
impl FromArgMatches for LabCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        LabSubcommand::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for LabCommand {
    fn augment_subcommands(command: Command) -> Command {
        LabSubcommand::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        LabSubcommand::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        LabSubcommand::has_subcommand(name)
    }
}
