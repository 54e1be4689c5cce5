//! `crux fabric`: fabric documents expanded, checked, imported, exported, and found by asking the
//! switches.

mod discover;
mod export;

use clap::Subcommand;
use comfy_table::Table;
use serde::Serialize;
use topology::import::{self, LingjunOptions};
use topology::{Fabric, Finding, Severity, Tier, spec};

use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Work on fabric documents.
#[derive(Subcommand)]
pub(crate) enum FabricCommand {
    Expand(FabricExpandArgs),
    Check(FabricCheckArgs),
    Discover(discover::DiscoverArgs),
    #[command(subcommand)]
    Import(ImportCommand),
    #[command(subcommand)]
    Export(export::ExportCommand),
}

/// Print a fabric in the explicit form: every switch, host and link.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric expand lab.toml --format json > lab.json")]
pub(crate) struct FabricExpandArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    fabric: String,
    #[command(flatten)]
    output: FormatArg,
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

/// Make a fabric document from another format.
#[derive(Subcommand)]
pub(crate) enum ImportCommand {
    Lingjun(LingjunImportArgs),
}

/// Import topo.csv of the Alibaba Lingjun data set (2023).
///
/// The file gives hosts and the switch groups they are in, but no speeds and no numbers of
/// switches: these are assumptions, and the options say which.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric import lingjun topo.csv > lingjun.json")]
pub(crate) struct LingjunImportArgs {
    /// topo.csv, as published (columns ip, DSW, PSW, ASW)
    file: String,
    /// Spine switches in each PSW group
    #[arg(long, default_value_t = LingjunOptions::default().spines)]
    spines: u32,
    /// Core switches in each DSW group
    #[arg(long, default_value_t = LingjunOptions::default().cores)]
    cores: u32,
    /// GPUs in each host
    #[arg(long, default_value_t = LingjunOptions::default().gpus_per_host)]
    gpus_per_host: u32,
    /// Links of each host to its leaf
    #[arg(long, default_value_t = LingjunOptions::default().host_links)]
    host_links: u32,
    /// Speed of each host link in Gb/s
    #[arg(long, default_value_t = LingjunOptions::default().host_gbps)]
    host_gbps: f64,
    /// Speed of each link between switches in Gb/s
    #[arg(long, default_value_t = LingjunOptions::default().uplink_gbps)]
    uplink_gbps: f64,
    /// Speed of each link between spine and core in Gb/s
    #[arg(long, default_value_t = LingjunOptions::default().core_gbps)]
    core_gbps: f64,
}

impl LingjunImportArgs {
    fn import_options(&self) -> LingjunOptions {
        LingjunOptions {
            spines: self.spines,
            cores: self.cores,
            gpus_per_host: self.gpus_per_host,
            host_links: self.host_links,
            host_gbps: self.host_gbps,
            uplink_gbps: self.uplink_gbps,
            core_gbps: self.core_gbps,
        }
    }
}

pub(crate) fn run_fabric(command: &FabricCommand) -> Result<(), CommandError> {
    match command {
        FabricCommand::Expand(args) => expand_fabric(args),
        FabricCommand::Check(args) => check_fabric(args),
        FabricCommand::Discover(args) => discover::run_discover(args),
        FabricCommand::Import(ImportCommand::Lingjun(args)) => import_lingjun(args),
        FabricCommand::Export(command) => export::run_export(command),
    }
}

fn expand_fabric(args: &FabricExpandArgs) -> Result<(), CommandError> {
    let fabric = files::read_fabric(&args.fabric)?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&spec::explicit_document(&fabric)),
        OutputFormat::Table => {
            output::print_line(fabric_summary(&fabric))?;
            output::print_line(cable_table(&fabric))
        }
    }
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
        errors => Err(CommandError::Failed(format!("{}: {errors} errors", args.fabric))),
    }
}

fn import_lingjun(args: &LingjunImportArgs) -> Result<(), CommandError> {
    let csv = files::read_text(&args.file)?;
    let imported = import::import_lingjun(&csv, &args.import_options())
        .map_err(|error| CommandError::input(&args.file, error))?;
    for assumption in &imported.assumptions {
        eprintln!("assumed: {assumption}");
    }
    for (reason, rows) in &imported.skipped {
        eprintln!("skipped: {rows} rows: {reason}");
    }
    output::print_json(&spec::explicit_document(&imported.fabric))
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
        fabric.nics().len(),
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
