//! `crux fabric`: fabric documents expanded, checked, imported, exported, found by asking the
//! switches, and put in force on a running controller.

mod discover;
mod export;
mod import;
mod live;
mod qos;

use clap::{Subcommand, ValueEnum};
use comfy_table::Table;
use serde::Serialize;
use topology::count_noun;
use topology::document::{self, DocumentFormat};
use topology::{Fabric, Finding, Severity, Tier, spec};

use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Work on fabric documents.
#[derive(Subcommand)]
pub(crate) enum FabricCommand {
    Expand(FabricExpandArgs),
    Check(FabricCheckArgs),
    Show(live::FabricShowArgs),
    Diff(live::FabricDiffArgs),
    Apply(live::FabricApplyArgs),
    History(live::FabricHistoryArgs),
    Rollback(live::FabricRollbackArgs),
    Discover(discover::DiscoverArgs),
    #[command(subcommand)]
    Import(import::ImportCommand),
    #[command(subcommand)]
    Export(export::ExportCommand),
}

/// Print a fabric in the explicit form: every switch, host and link.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric expand lab.toml --format json > lab.json
  crux fabric expand lab.yaml --format toml > lab.toml")]
pub(crate) struct FabricExpandArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    fabric: String,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: ExpandedFormat,
}

/// Forms of an expanded fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ExpandedFormat {
    /// Cables, for people
    #[default]
    Table,
    /// A fabric document in TOML
    Toml,
    /// A fabric document in YAML
    Yaml,
    /// A fabric document in JSON
    Json,
}

/// Say what is wrong or odd about a fabric. Fails when a finding is an error.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric check lab.toml")]
pub(crate) struct FabricCheckArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    fabric: String,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_fabric(command: &FabricCommand) -> Result<(), CommandError> {
    match command {
        FabricCommand::Expand(args) => expand_fabric(args),
        FabricCommand::Check(args) => check_fabric(args),
        FabricCommand::Show(args) => live::show_fabric(args),
        FabricCommand::Diff(args) => live::diff_fabric(args),
        FabricCommand::Apply(args) => live::apply_fabric(args),
        FabricCommand::History(args) => live::show_history(args),
        FabricCommand::Rollback(args) => live::rollback_fabric(args),
        FabricCommand::Discover(args) => discover::run_discover(args),
        FabricCommand::Import(command) => import::run_import(command),
        FabricCommand::Export(command) => export::run_export(command),
    }
}

fn expand_fabric(args: &FabricExpandArgs) -> Result<(), CommandError> {
    print_fabric(&files::read_fabric(&args.fabric)?, args.format)
}

fn print_fabric(fabric: &Fabric, format: ExpandedFormat) -> Result<(), CommandError> {
    let format = match format {
        ExpandedFormat::Table => {
            output::print_line(fabric_summary(fabric))?;
            return output::print_line(cable_table(fabric));
        }
        ExpandedFormat::Json => return output::print_json(&spec::explicit_document(fabric)),
        ExpandedFormat::Toml => DocumentFormat::Toml,
        ExpandedFormat::Yaml => DocumentFormat::Yaml,
    };
    let text = document::print_document(&spec::explicit_document(fabric), format);
    output::print_line(text.map_err(CommandError::failed)?.trim_end())
}

/// What `crux fabric check --format json` prints.
#[derive(Serialize)]
struct FabricCheckReport<'a> {
    fabric: &'a str,
    findings: &'a [Finding],
}

fn check_fabric(args: &FabricCheckArgs) -> Result<(), CommandError> {
    let fabric = files::read_fabric(&args.fabric)?;
    let findings = topology::check_fabric(&fabric);
    match args.output.format {
        OutputFormat::Json => {
            output::print_json(&FabricCheckReport { fabric: fabric.name(), findings: &findings })?;
        }
        OutputFormat::Table => {
            output::print_line(fabric_summary(&fabric))?;
            findings.iter().try_for_each(output::print_line)?;
        }
    }
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => Ok(()),
        errors => {
            Err(CommandError::Failed(format!("{}: {}", args.fabric, count_noun(errors, "error"))))
        }
    }
}

/// One line: how large the fabric is.
fn fabric_summary(fabric: &Fabric) -> String {
    let gpus: u64 = fabric.hosts().iter().map(|host| u64::from(host.gpus)).sum();
    let tiers =
        [Tier::Leaf, Tier::Spine, Tier::Core].map(|tier| fabric.switches_of_tier(tier).count());
    let [leaves, spines, cores] = tiers;
    format!(
        "{}: {} hosts, {gpus} GPUs, {} NICs; {leaves} leaves, {spines} spines, {cores} cores; \
         {} cables",
        fabric.name(),
        fabric.hosts().len(),
        fabric.hosts().iter().map(|host| host.nics.len()).sum::<usize>(),
        fabric.links().len() / 2,
    )
}

/// Every cable, a row each.
fn cable_table(fabric: &Fabric) -> Table {
    let mut table = output::new_table(["a", "b", "Gb/s"]);
    for link in fabric.cables().map(|cable| fabric.link(cable)) {
        table.add_row([
            fabric.endpoint_name(link.from),
            fabric.endpoint_name(link.to),
            link.bandwidth.gbps().to_string(),
        ]);
    }
    table
}
