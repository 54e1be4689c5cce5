//! The fabric of a running controller: what another one would change, putting it in force, and the
//! way back.

use ::controller::northbound::service::{
    ApplyFabricRequest, DocumentFile, FabricChangeResponse, FabricRevisionRow,
    PreviewFabricRequest, RollbackFabricRequest,
};
use ::controller::preview::FabricPreview;
use comfy_table::Table;
use command_io::files::{self, read_text};
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};
use topology::document::{self, DocumentFormat};
use topology::spec::{FabricDocument, explicit_document};
use topology::{Fabric, count_noun};

use super::{ExpandedFormat, print_fabric};
use crate::commands::confirmation;
use crate::commands::local_time::{format_cell_time, time_heading};
use crate::commands::plan_preview;
use crate::commands::policy::ChangeAuthorArgs;

/// Show the fabric in force of a running controller.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric show
  crux fabric show --format toml > lab.toml")]
pub(crate) struct FabricShowArgs {
    #[command(flatten)]
    client: ControllerClient,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: ExpandedFormat,
}

/// Show what a fabric would change of a running controller: parts, jobs, flows, entries,
/// utilisation; nothing is written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric diff lab.toml
  crux fabric diff lab.toml --all")]
pub(crate) struct FabricDiffArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    file: String,
    /// Print all parts, flows and entries
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Put a fabric in force on a running controller.
///
/// Everything goes over by name: jobs keep their paths, failed parts stay out of use, and switches
/// that are in both fabrics keep their sessions. It is stored, and is in force after a restart until
/// the fabric file of the controller is edited. Refused where it lacks hosts of running jobs, or
/// parts that the policy names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric apply lab.toml --reason 'leaf9 with eight hosts'
  crux fabric apply lab.toml --yes")]
pub(crate) struct FabricApplyArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    file: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Apply it although running jobs lose their hosts
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Show who changed the fabric of a running controller, what, when and why.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric history")]
pub(crate) struct FabricHistoryArgs {
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Put an earlier fabric in force again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric rollback
  crux fabric rollback 3 --reason 'leaf9 is not cabled yet'")]
pub(crate) struct FabricRollbackArgs {
    /// Number of the revision, from crux fabric history; without it, the one before the latest
    revision: Option<u64>,
    /// Go back although running jobs lose their hosts
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn show_fabric(args: &FabricShowArgs) -> Result<(), CommandError> {
    let document: FabricDocument = args.client.get_json("/v1/fabric")?;
    print_fabric(&Fabric::try_from(&document).map_err(CommandError::failed)?, args.format)
}

pub(super) fn diff_fabric(args: &FabricDiffArgs) -> Result<(), CommandError> {
    let preview = preview_file(&args.client, read_fabric_to_send(&args.file)?)?;
    if args.output.format == OutputFormat::Json {
        return output::print_json(&preview);
    }
    if preview.fabric.is_empty() {
        return output::print_line("nothing changes");
    }
    let shown = if args.all { usize::MAX } else { plan_preview::SHOWN };
    output::print_line(plan_preview::describe_outcome(&preview.plan))?;
    preview.plan.findings.iter().try_for_each(output::print_line)?;
    print_changes(&preview, shown)?;
    plan_preview::print_tables(&preview.plan, shown, "crux fabric diff")
}

pub(super) fn apply_fabric(args: &FabricApplyArgs) -> Result<(), CommandError> {
    let fabric = read_fabric_to_send(&args.file)?;
    if !args.yes {
        let preview = preview_file(&args.client, fabric.clone())?;
        if preview.fabric.is_empty() {
            return output::print_line("nothing changes");
        }
        eprintln!("{}", plan_preview::describe_outcome(&preview.plan));
        let changes = count_noun(preview.fabric.len(), "change");
        let first = preview.fabric[..preview.fabric.len().min(plan_preview::SHOWN)].join("; ");
        let more = if preview.fabric.len() > plan_preview::SHOWN { "; ..." } else { "" };
        confirmation::ask(&format!("{}: {changes}: {first}{more}", args.file), "Apply it?")?;
    }
    let request = ApplyFabricRequest {
        fabric,
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        force: args.force,
    };
    print_change(&args.client.post_json("/v1/fabric/apply", &request)?, args.output)
}

pub(super) fn rollback_fabric(args: &FabricRollbackArgs) -> Result<(), CommandError> {
    let request = RollbackFabricRequest {
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        revision: args.revision,
        force: args.force,
    };
    print_change(&args.client.post_json("/v1/fabric/rollback", &request)?, args.output)
}

pub(super) fn show_history(args: &FabricHistoryArgs) -> Result<(), CommandError> {
    let rows: Vec<FabricRevisionRow> = args.client.get_json("/v1/fabric/revisions")?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows),
        OutputFormat::Table => output::print_line(history_table(&rows)),
    }
}

fn preview_file(
    client: &ControllerClient,
    fabric: DocumentFile,
) -> Result<FabricPreview, CommandError> {
    client.post_json("/v1/fabric/preview", &PreviewFabricRequest { fabric })
}

/// The parts that change, and the jobs that lose their hosts.
fn print_changes(preview: &FabricPreview, shown: usize) -> Result<(), CommandError> {
    if !preview.lost_jobs.is_empty() {
        output::print_line(format_args!(
            "error: {} would lose hosts or NICs: {}",
            count_noun(preview.lost_jobs.len(), "running job"),
            preview.lost_jobs.join(", ")
        ))?;
    }
    output::print_line("")?;
    preview.fabric.iter().take(shown).try_for_each(output::print_line)?;
    let left_out = preview.fabric.len().saturating_sub(shown);
    plan_preview::print_left_out(left_out, "changes", "crux fabric diff")
}

fn print_change(done: &FabricChangeResponse, output: FormatArg) -> Result<(), CommandError> {
    match output.format {
        OutputFormat::Json => output::print_json(done),
        OutputFormat::Table => {
            done.findings.iter().try_for_each(output::print_line)?;
            output::print_line(format_args!(
                "fabric revision {} is in force: {}",
                done.revision,
                count_noun(done.changes.len(), "change")
            ))
        }
    }
}

/// Revisions, the latest first.
fn history_table(rows: &[FabricRevisionRow]) -> Table {
    let at = time_heading();
    let mut table = output::new_table(["revision", &at, "author", "reason", "changes"]);
    for row in rows {
        table.add_row([
            row.number.to_string(),
            format_cell_time(row.metadata.at_ms),
            row.metadata.author.clone(),
            row.metadata.reason.clone(),
            row.changes.join("\n"),
        ]);
    }
    table
}

/// A fabric file in the form in which a controller takes it: YAML, which a controller does not
/// parse, and standard input become JSON.
fn read_fabric_to_send(name: &str) -> Result<DocumentFile, CommandError> {
    let format = DocumentFormat::from_file_name(name).map_err(CommandError::document)?;
    if format != DocumentFormat::Yaml && name != "-" {
        return Ok(DocumentFile { file: name.to_owned(), text: read_text(name)? });
    }
    let document = explicit_document(&files::read_fabric(name)?);
    let text = document::print_document(&document, DocumentFormat::Json);
    Ok(DocumentFile { file: format!("{name}.json"), text: text.map_err(CommandError::failed)? })
}
