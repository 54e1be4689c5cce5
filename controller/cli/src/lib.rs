//! The commands of an operator, one module each; [`OperatorCommand`] is their table
//! of contents. A library, because `crux-lab` has them too.

mod commands;
mod controller_files;
mod switch_inventory;

use clap::{Command, FromArgMatches, Subcommand};
use command_io::CommandError;
use command_io::program::ProgramCall;

pub use self::commands::context::with_context;
pub use self::controller_files::read_policy_to_send;
use commands::{
    audit, cert, cluster, completions, config, context, controller, doctor, drain, events, fabric,
    flows, init, jobs, man, plan, policy, replay_incident, report, schema, state, status, top,
};

/// The program whose help lists the commands of an operator by what they are for.
pub fn with_groups(command: Command) -> Command {
    commands::command_groups::with_groups(command)
}

/// A command of an operator, which a program mounts among its own.
pub struct OperatorCommand(OperatorSubcommand);

/// What a command has come to.
pub enum OperatorOutcome {
    /// All is done.
    Done,
    /// Another program has this part of the command.
    Call(ProgramCall),
}

#[derive(Subcommand)]
enum OperatorSubcommand {
    Plan(plan::PlanArgs),
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
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

impl OperatorCommand {
    /// Runs the command. `programs` are the command lines that man pages and completions are made
    /// of, that of this program first.
    ///
    /// # Errors
    /// The input is wrong, or the work cannot be done.
    pub fn run(
        &self,
        programs: impl FnOnce() -> Vec<Command>,
    ) -> Result<OperatorOutcome, CommandError> {
        match &self.0 {
            OperatorSubcommand::Jobs(args) => return jobs::run_jobs(args),
            OperatorSubcommand::Schema(args) => return schema::run_schema(args),
            OperatorSubcommand::Plan(args) => plan::run_plan(args),
            OperatorSubcommand::Fabric(command) => fabric::run_fabric(command),
            OperatorSubcommand::Controller(args) => controller::run_controller(args),
            OperatorSubcommand::Config(command) => config::run_config(command),
            OperatorSubcommand::Context(command) => context::run_context(command),
            OperatorSubcommand::Init(args) => init::run_init(args),
            OperatorSubcommand::Cert(command) => cert::run_cert(command),
            OperatorSubcommand::Switches(args) => status::print_switches(args),
            OperatorSubcommand::Links(args) => status::print_links(args),
            OperatorSubcommand::Flows(args) => flows::run_flows(args),
            OperatorSubcommand::Explain(args) => status::print_explanation(args),
            OperatorSubcommand::Doctor(args) => doctor::print_findings(args),
            OperatorSubcommand::Cluster(command) => cluster::run_cluster(command),
            OperatorSubcommand::Audit(args) => audit::run_audit(args),
            OperatorSubcommand::Events(args) => events::run_events(args),
            OperatorSubcommand::Top(args) => top::run_top(args),
            OperatorSubcommand::Drain(args) => drain::drain_parts(args),
            OperatorSubcommand::Undrain(args) => drain::undrain_parts(args),
            OperatorSubcommand::Policy(command) => policy::run_policy(command),
            OperatorSubcommand::State(command) => state::run_state(command),
            OperatorSubcommand::ReplayIncident(args) => replay_incident::run_replay_incident(args),
            OperatorSubcommand::Report(args) => report::run_report(args),
            OperatorSubcommand::Completions(args) => completions::run_completions(args, programs()),
            OperatorSubcommand::Man(args) => man::run_man(args, programs()),
        }
        .map(|()| OperatorOutcome::Done)
    }
}

// Derived on the private enum, so that the arguments of each command stay private too.
impl FromArgMatches for OperatorCommand {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        OperatorSubcommand::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for OperatorCommand {
    fn augment_subcommands(command: Command) -> Command {
        OperatorSubcommand::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        OperatorSubcommand::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        OperatorSubcommand::has_subcommand(name)
    }
}
