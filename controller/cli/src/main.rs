//! `crux`: the one binary. This file is a table of contents; each command is a module of
//! [`commands`], or of the laboratory (`lab`) where the binary has it.

mod commands;
#[cfg(all(test, feature = "lab"))]
mod examples;
mod switch_inventory;

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use command_io::CommandError;
use commands::{
    agent, audit, cert, cluster, completions, config, context, controller, doctor, drain, events,
    fabric, flows, init, jobs, man, plan, policy, replay_incident, report, schema, state, status,
    switch, top,
};

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
struct CruxCli {
    #[command(subcommand)]
    command: CruxCommand,
    /// Log at this level to standard error: error, warn, info, debug, trace, or a filter such as
    /// controller=debug
    // Without an order of its own, its place in every page is the number of commands.
    #[arg(long, global = true, default_value = "warn", value_name = "FILTER", display_order = 998)]
    log: String,
    /// Write logs as lines of text or of JSON
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    #[arg(display_order = 999)]
    log_format: LogFormat,
}

/// Forms of logs.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum LogFormat {
    /// For people
    #[default]
    Text,
    /// An object a line, for programs
    Json,
}

#[derive(Subcommand)]
enum CruxCommand {
    Plan(plan::PlanArgs),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::LabCommand),
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    Controller(controller::ControllerArgs),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Context(context::ContextCommand),
    Init(init::InitArgs),
    #[command(subcommand)]
    Cert(cert::CertCommand),
    Agent(agent::AgentArgs),
    Jobs(jobs::JobsArgs),
    /// List the switches of a running controller, and what they hold
    #[command(after_help = "\
Examples:
  crux switches
  crux switches --format json")]
    Switches(status::StatusArgs),
    /// List the links of a running controller, with their planned load by level
    #[command(after_help = "\
Examples:
  crux links
  crux links --format json")]
    Links(status::StatusArgs),
    Flows(flows::FlowsArgs),
    /// Explain the level of a job and the paths of its flows
    Explain(status::ExplainArgs),
    /// Print the problems of a running controller
    #[command(after_help = "\
Examples:
  crux doctor
  crux doctor --all
  crux doctor --format json")]
    Doctor(doctor::DoctorArgs),
    Audit(audit::AuditArgs),
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    Events(events::EventsArgs),
    Top(top::TopArgs),
    Drain(drain::DrainArgs),
    Undrain(drain::UndrainArgs),
    #[command(subcommand)]
    Policy(Box<policy::PolicyCommand>),
    #[command(subcommand)]
    State(state::StateCommand),
    ReplayIncident(replay_incident::ReplayIncidentArgs),
    Report(report::ReportArgs),
    Switch(Box<switch::SwitchArgs>),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

fn main() -> ExitCode {
    let cli = match context::with_context(CruxCli::command()) {
        Ok(command) => parse_arguments(command),
        Err(failure) => return failure.report(),
    };
    let run = start_logging(&cli.log, cli.log_format).and_then(|()| match cli.command {
        CruxCommand::Plan(args) => plan::run_plan(&args),
        #[cfg(feature = "lab")]
        CruxCommand::Lab(command) => command.run(),
        CruxCommand::Fabric(command) => fabric::run_fabric(&command),
        CruxCommand::Controller(args) => controller::run_controller(&args),
        CruxCommand::Config(command) => config::run_config(&command),
        CruxCommand::Context(command) => context::run_context(&command),
        CruxCommand::Init(args) => init::run_init(&args),
        CruxCommand::Cert(command) => cert::run_cert(&command),
        CruxCommand::Agent(args) => agent::run_agent(&args),
        CruxCommand::Jobs(args) => jobs::run_jobs(&args),
        CruxCommand::Switches(args) => status::print_switches(&args),
        CruxCommand::Links(args) => status::print_links(&args),
        CruxCommand::Flows(args) => flows::run_flows(&args),
        CruxCommand::Explain(args) => status::print_explanation(&args),
        CruxCommand::Doctor(args) => doctor::print_findings(&args),
        CruxCommand::Cluster(command) => cluster::run_cluster(&command),
        CruxCommand::Audit(args) => audit::run_audit(&args),
        CruxCommand::Events(args) => events::run_events(&args),
        CruxCommand::Top(args) => top::run_top(&args),
        CruxCommand::Drain(args) => drain::drain_parts(&args),
        CruxCommand::Undrain(args) => drain::undrain_parts(&args),
        CruxCommand::Policy(command) => policy::run_policy(&command),
        CruxCommand::State(command) => state::run_state(&command),
        CruxCommand::ReplayIncident(args) => replay_incident::run_replay_incident(&args),
        CruxCommand::Report(args) => report::run_report(&args),
        CruxCommand::Switch(args) => switch::run_switch(&args),
        CruxCommand::Schema(args) => schema::run_schema(&args),
        CruxCommand::Completions(args) => completions::run_completions(&args),
        CruxCommand::Man(args) => man::run_man(&args),
    });
    run.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Ends the process with help or an error where that is asked for or due.
fn parse_arguments(mut command: Command) -> CruxCli {
    let matches = command.get_matches_mut();
    CruxCli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

fn start_logging(filter: &str, format: LogFormat) -> Result<(), CommandError> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| CommandError::input("--log", error))?;
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_seen = std::io::stderr().is_terminal() && !is_unwanted;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text if is_journal() => logs.with_ansi(false).without_time().init(),
        LogFormat::Text => logs.with_ansi(is_seen).init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(true).init(),
    }
    Ok(())
}

/// Whether the log goes to systemd's journal, which gives each line its time (systemd.exec(5),
/// `JOURNAL_STREAM`). A redirection makes the variable that of another file.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM");
    let log = std::fs::metadata("/proc/self/fd/2");
    stream.is_ok_and(|stream| log.is_ok_and(|log| stream == format!("{}:{}", log.dev(), log.ino())))
}
