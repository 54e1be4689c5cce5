//! `crux`: the one binary. This file is a table of contents; each command is a module of
//! [`commands`].

mod client;
mod commands;
#[cfg(test)]
mod examples;
mod failure;
mod figure;
mod files;
mod input;
mod inventory;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{
    agent, bench, compare, completions, controller, demo, events, fabric, job, look, man, place,
    plan, policy, replay, replay_incident, reproduce, schema, simulate, switch, top,
};
use failure::Failure;

/// Schedules the traffic of GPU training jobs on a Clos fabric.
///
/// Crux reads a fabric and its training jobs, computes each job's GPU intensity, pins intense flows
/// onto uncongested paths, orders the jobs, compresses the order onto the priority levels that
/// switches have, and programs it over P4Runtime.
#[derive(Parser)]
#[command(name = "crux", version, max_term_width = 100)]
#[command(after_help = "\
Start with:   crux demo
Exit status:  0 done, 1 failed, 2 usage or bad input")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log at this level to standard error: error, warn, info, debug, trace, or a filter such as
    /// controller=debug
    // Without an order of its own, its place in every page is the number of commands.
    #[arg(
        long,
        global = true,
        default_value = "warn",
        value_name = "FILTER",
        display_order = 998
    )]
    log: String,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Plan(plan::Args),
    Simulate(simulate::Args),
    Compare(compare::Args),
    Replay(replay::Args),
    Place(place::Args),
    Reproduce(reproduce::Args),
    #[command(subcommand)]
    Bench(bench::Command),
    #[command(subcommand)]
    Fabric(fabric::Command),
    Controller(controller::Args),
    Agent(agent::Args),
    /// List the jobs of a running controller
    Jobs(look::Args),
    /// List the switches of a running controller, and what they hold
    Switches(look::Args),
    /// List the links of a running controller, with their planned load by class
    Links(look::Args),
    /// Say why a job has its level and its flows their paths
    Explain(look::Explain),
    /// Say what is not as it should be at a running controller
    Doctor(look::Args),
    Events(events::Args),
    Top(top::Args),
    #[command(subcommand)]
    Policy(Box<policy::Command>),
    ReplayIncident(replay_incident::Args),
    Switch(Box<switch::Args>),
    #[command(subcommand)]
    Job(job::Command),
    Schema(schema::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = start_logging(&cli.log).and_then(|()| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Place(args) => place::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Fabric(command) => fabric::run(&command),
        Command::Controller(args) => controller::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Jobs(args) => look::jobs(&args),
        Command::Switches(args) => look::switches(&args),
        Command::Links(args) => look::links(&args),
        Command::Explain(args) => look::explain(&args),
        Command::Doctor(args) => look::doctor(&args),
        Command::Events(args) => events::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Policy(command) => policy::run(&command),
        Command::ReplayIncident(args) => replay_incident::run(&args),
        Command::Switch(args) => switch::run(&args),
        Command::Job(command) => job::run(&command),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    });
    run.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

fn start_logging(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| Failure::input("--log", error))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}
