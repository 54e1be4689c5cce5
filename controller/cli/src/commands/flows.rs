//! `crux flows`: the RoCEv2 connections that no job has announced, and their adoption by a job.

use std::net::IpAddr;

use ::controller::northbound::learned_flow::LearnedFlowRow;
use ::controller::northbound::service::{ApplyPolicyRequest, DocumentFile, PreviewPolicyRequest};
use ::controller::policy_history::PolicyRevision;
use comfy_table::Table;
use planner::AdoptionDocument;
use topology::document::{self, DocumentFormat};

use super::policy::{ChangeAuthorArgs, print_change};
use command_io::CommandError;
use command_io::ControllerClient;
use command_io::output::{self, FormatArg, OutputFormat};

/// The UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// List the RoCEv2 connections that no job has announced, as the leaves report them
///
/// Those of no job come first, the pairs of NICs that send the most first: switches count all
/// connections of no job between two NICs together (GB OF PAIR), of the first eight receivers of
/// each NIC. A connection between two NICs of one job has the path and the level of that job.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  crux flows
  crux flows adopt checkpoints --src h1 --dst h3 --level 2 --reason 'nobody announces it'")]
pub(crate) struct FlowsArgs {
    #[command(subcommand)]
    command: Option<FlowsCommand>,
    #[command(flatten)]
    plain: FlowsQueryArgs,
}

#[derive(clap::Subcommand)]
enum FlowsCommand {
    /// Give the RoCEv2 flows between hosts to a job, by a rule of the policy
    #[command(after_help = "\
Examples:
  crux flows adopt checkpoints --src h1 --dst h3
  crux flows adopt gpt --src 'h[12]' --level 5 --reason 'it does not announce itself'")]
    Adopt(Box<FlowsAdoptArgs>),
}

#[derive(clap::Args)]
struct FlowsQueryArgs {
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

#[derive(clap::Args)]
struct FlowsAdoptArgs {
    /// The job that gets the flows; it need not be announced
    job: String,
    /// Sending hosts, by name or glob
    #[arg(long, required = true)]
    src: Vec<String>,
    /// Receiving hosts, by name or glob; without it, all
    #[arg(long)]
    dst: Vec<String>,
    /// Level of the job while it is not announced; without it, the lowest
    #[arg(long)]
    level: Option<u8>,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: FlowsQueryArgs,
}

pub(crate) fn run_flows(args: &FlowsArgs) -> Result<(), CommandError> {
    match &args.command {
        Some(FlowsCommand::Adopt(adopt)) => adopt_flows(adopt),
        None => list_flows(&args.plain),
    }
}

fn list_flows(args: &FlowsQueryArgs) -> Result<(), CommandError> {
    let rows: Vec<LearnedFlowRow> = args.client.get_json("/v1/learned-flows")?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows),
        OutputFormat::Table => output::print_line(flow_table(&rows)),
    }
}

/// Adds a rule to the policy in force. If that changes in between, the later change wins, as with
/// `crux policy apply`; the history has both.
fn adopt_flows(args: &FlowsAdoptArgs) -> Result<(), CommandError> {
    let revision: PolicyRevision = args.plain.client.get_json("/v1/policy")?;
    let mut policy = revision.content.policy;
    policy.adopt.push(AdoptionDocument {
        job: args.job.clone(),
        tenant: None,
        level: args.level,
        src: args.src.clone(),
        dst: args.dst.clone(),
        sport: None,
        dport: Some(ROCE_PORT),
    });
    let text =
        document::print_document(&policy, DocumentFormat::Toml).map_err(CommandError::failed)?;
    let order = ApplyPolicyRequest {
        change: PreviewPolicyRequest {
            policy: Some(DocumentFile { file: "policy.toml".to_owned(), text }),
            ..PreviewPolicyRequest::default()
        },
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        confirm_within_seconds: None,
        force: false,
    };
    let done = args.plain.client.post_json("/v1/policy/apply", &order)?;
    print_change(&done, args.plain.output)
}

fn flow_table(rows: &[LearnedFlowRow]) -> Table {
    let headings = [
        "job",
        "leaf",
        "from",
        "to",
        "UDP port",
        "queue pair",
        "known for",
        "last seen",
        "GB",
        "GB of pair",
    ];
    let mut table = output::new_table(headings);
    // Times of the controller are compared with each other, whatever the clock is here.
    let latest = rows.iter().map(|row| row.last_seen_ms).max().unwrap_or_default();
    for row in rows {
        table.add_row([
            format_owner(row),
            format!("{}:{}", row.leaf, row.port),
            format_nic(row.src_nic.as_deref(), row.src),
            format_nic(row.dst_nic.as_deref(), row.dst),
            row.udp_src_port.to_string(),
            format!("{:#x}", row.dest_qp),
            format_seconds(row.last_seen_ms.saturating_sub(row.first_seen_ms)),
            format!("-{}", format_seconds(latest.saturating_sub(row.last_seen_ms))),
            format_gigabytes(row.bytes),
            format_gigabytes(row.pair_bytes),
        ]);
    }
    table
}

fn format_owner(row: &LearnedFlowRow) -> String {
    match (&row.job, &row.candidates[..]) {
        (Some(job), _) if row.adopted => format!("{job}, by rule"),
        (Some(job), _) => job.clone(),
        (None, []) => "unknown".to_owned(),
        (None, jobs) => format!("one of {}", jobs.join(", ")),
    }
}

/// A NIC with its address, or the address of a NIC that the fabric does not have.
fn format_nic(nic: Option<&str>, address: IpAddr) -> String {
    match nic {
        Some(nic) => format!("{nic} ({address})"),
        None => address.to_string(),
    }
}

fn format_gigabytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.3}", bytes as f64 / 1e9))
}

fn format_seconds(milliseconds: u64) -> String {
    format!("{} s", milliseconds / 1_000)
}
