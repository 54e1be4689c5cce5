//! `crux cluster`: who leads, and handing the lead over.

use ::controller::etcd::describe_term;
use ::controller::northbound::cluster::{ClusterStatus, ElectionMode, TakeLeadRequest};
use comfy_table::Table;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};

use super::policy::ChangeAuthorArgs;

/// Show who leads the switches, and hand the lead over
///
/// Without etcd the switches elect: a controller that starts leaves the lead to the one that has
/// it, and succeeds it when that one has left most switches. A standby (election.standby) leads only
/// when it is told to. With etcd, its members elect, and each has the leader's jobs, policy and plan.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux cluster show
  crux cluster step-down --reason 'upgrade'
  crux cluster lead --controller 10.0.0.6:9300 --reason 'maintenance of the first'")]
pub(crate) enum ClusterCommand {
    /// Show who leads, as a controller sees it
    Show(ClusterShowArgs),
    /// Have the controller that is asked take the lead from the one that has it
    #[command(after_help = "\
Examples:
  crux cluster lead --controller 10.0.0.6:9300 --reason 'maintenance of the first'")]
    Lead(LeadChangeArgs),
    /// Have the leader that is asked leave the lead to another one that etcd elects
    #[command(after_help = "\
Examples:
  crux cluster step-down --reason 'upgrade'
  crux cluster step-down --controller 10.0.0.5:9300 --reason 'new disk'")]
    StepDown(LeadChangeArgs),
}

/// Arguments of `show`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux cluster show
  crux cluster show --controller 10.0.0.6:9300 --format json")]
pub(crate) struct ClusterShowArgs {
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `lead` and `step-down`.
#[derive(clap::Args)]
pub(crate) struct LeadChangeArgs {
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_cluster(command: &ClusterCommand) -> Result<(), CommandError> {
    match command {
        ClusterCommand::Show(args) => {
            print_status(&args.client.get_json("/v1/cluster")?, args.output.format)
        }
        ClusterCommand::Lead(args) => change_lead(args, "/v1/cluster/lead"),
        ClusterCommand::StepDown(args) => change_lead(args, "/v1/cluster/step-down"),
    }
}

fn change_lead(args: &LeadChangeArgs, path: &str) -> Result<(), CommandError> {
    let (author, reason) = (args.signature.author_name(), args.signature.reason.clone());
    let request = TakeLeadRequest { author, reason };
    print_status(&args.client.post_json(path, &request)?, args.output.format)
}

fn print_status(status: &ClusterStatus, format: OutputFormat) -> Result<(), CommandError> {
    match format {
        OutputFormat::Json => output::print_json(status),
        OutputFormat::Table => output::print_line(status_table(status)),
    }
}

fn status_table(status: &ClusterStatus) -> Table {
    let leader = match (status.leads, status.leader) {
        (true, _) => "this controller".to_owned(),
        (false, Some(number)) => format!("controller {number}"),
        (false, None) => "not known".to_owned(),
    };
    let elects = match status.mode {
        ElectionMode::Switches => "the switches",
        ElectionMode::Etcd => "etcd",
    };
    let mut table = output::new_table(["what", "now"]);
    let rows = [
        ("this controller", status.controller.to_string()),
        ("elected by", elects.to_owned()),
        ("leader", leader),
        ("term", describe_term(status.term)),
        ("switches that take its writes", status.primary.to_string()),
        ("switches that take another's", status.backup.to_string()),
        ("switches that take nobody's", status.vacant.to_string()),
        ("switches that do not answer", status.disconnected.to_string()),
    ];
    for (what, now) in rows {
        table.add_row([what.to_owned(), now]);
    }
    table
}
