//! `crux fabric import`: fabric documents from data sets, labs and inventories.

use std::ffi::OsStr;
use std::path::Path;

use clap::Subcommand;
use topology::import::{
    self, ImportError, ImportedFabric, InventoryAssumptions, NetboxTables, SonicSwitch,
    TierAssumptions,
};
use topology::spec;

use command_io::{CommandError, files, output};

/// Make a fabric document from another format.
#[derive(Subcommand)]
pub(crate) enum ImportCommand {
    Lingjun(LingjunImportArgs),
    Topograph(TopographImportArgs),
    Containerlab(ContainerlabImportArgs),
    P4utils(P4utilsImportArgs),
    Netbox(NetboxImportArgs),
    Slurm(SlurmImportArgs),
    Sonic(SonicImportArgs),
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
    #[command(flatten)]
    assumed: TierOptions,
}

/// Import a model of topograph.
///
/// Models of topograph 1.0 (nodes in blocks) and older ones (nodes in switches) are read. A switch
/// with nodes is a leaf, or with --rails a leaf for each NIC of a host; switches above leaves are
/// pods. The model has no NICs and no cables: numbers and speeds are assumptions, and the options
/// say which.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric import topograph model.yaml > fabric.json
  crux fabric import topograph model.yaml --host-links 8 --rails > fabric.json")]
pub(crate) struct TopographImportArgs {
    /// Model file (YAML)
    file: String,
    #[command(flatten)]
    assumed: TierOptions,
}

/// Import a topology of containerlab.
///
/// Labels (crux.tier, crux.gpus) and groups say what a node is, its own or those of its group, its
/// kind and the defaults; of other nodes the cables do. What crux fabric export containerlab writes
/// is read in full. Standard error lists assumptions and omissions.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric import containerlab lab.clab.yml > fabric.json")]
pub(crate) struct ContainerlabImportArgs {
    /// Topology file (.clab.yml)
    file: String,
    #[command(flatten)]
    assumed: InventoryOptions,
}

/// Import a topology of p4-utils (p4app.json) or of the P4 tutorials (topology.json).
///
/// Switches with hosts are leaves, those beside leaves are spines, all others are cores; the key
/// crux.tier of a switch states another tier. What crux fabric export p4utils writes is read in
/// full. Standard error lists assumptions and omissions.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric import p4utils p4app.json > fabric.json")]
pub(crate) struct P4utilsImportArgs {
    /// Topology file (JSON)
    file: String,
    #[command(flatten)]
    assumed: InventoryOptions,
}

/// Import tables of NetBox (CSV), with the columns of its bulk import or of exported views.
///
/// The role of a device says what it is (leaf, "Leaf Switch", gpu-server); others are left out with
/// their cables, and so is what is planned. Cables are followed through patch panels. What crux
/// fabric export netbox writes is read in full. Standard error lists assumptions and
/// omissions.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric import netbox --devices devices.csv --interfaces interfaces.csv --cables cables.csv
  crux fabric import netbox --devices d.csv --interfaces i.csv --cables c.csv --addresses a.csv")]
pub(crate) struct NetboxImportArgs {
    /// Devices: name, role, and if there are any site and description
    #[arg(long, value_name = "FILE")]
    devices: String,
    /// Interfaces: device, name, and if there are any type, speed, lag, parent, bridge, mgmt_only,
    /// enabled and description
    #[arg(long, value_name = "FILE")]
    interfaces: String,
    /// Cables: side_a_device, side_a_name, side_b_device, side_b_name, or the exported view with
    /// Device A, Termination A, Device B and Termination B
    #[arg(long, value_name = "FILE")]
    cables: String,
    /// IP addresses: address, device, interface [default: generated ones]
    #[arg(long, value_name = "FILE")]
    addresses: Option<String>,
    #[command(flatten)]
    assumed: InventoryOptions,
}

/// Import topology.conf or topology.yaml of Slurm.
///
/// A switch with nodes is a leaf, or with --rails a leaf for each NIC of a host; what is above
/// leaves is a pod. Slurm knows no NICs and no cables: numbers and speeds are assumptions, and the
/// options say which.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric import slurm /etc/slurm/topology.conf > fabric.json
  crux fabric import slurm topology.yaml --host-links 8 --rails > fabric.json")]
pub(crate) struct SlurmImportArgs {
    /// topology.conf, or topology.yaml by the extension
    file: String,
    #[command(flatten)]
    assumed: TierOptions,
}

/// Import config_db.json of SONiC, a file for each switch.
///
/// Cables are those of DEVICE_NEIGHBOR; what has no file of its own is a neighbour of what has one.
/// Types (ToRRouter, LeafRouter, SpineRouter, Server) say what a device is, or else the cables do.
/// Standard error lists assumptions and omissions.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  crux fabric import sonic leaf1.json leaf2.json spine1.json > fabric.json"
)]
pub(crate) struct SonicImportArgs {
    /// config_db.json of each switch; a switch without a hostname has the name of its file
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    assumed: InventoryOptions,
}

/// What a file of hosts below switches does not say.
#[derive(clap::Args)]
struct TierOptions {
    /// Spine switches in each pod (PSW group)
    #[arg(long, default_value_t = TierAssumptions::default().spines)]
    spines: u32,
    /// Core switches that join pods (of each DSW group)
    #[arg(long, default_value_t = TierAssumptions::default().cores)]
    cores: u32,
    /// GPUs in each host
    #[arg(long, default_value_t = TierAssumptions::default().gpus_per_host)]
    gpus_per_host: u32,
    /// NICs of each host, each with one link to a leaf
    #[arg(long, default_value_t = TierAssumptions::default().host_links)]
    host_links: u32,
    /// Put NIC r of each host on leaf r: a leaf of the file stands for as many leaves as a host has
    /// NICs
    #[arg(long)]
    rails: bool,
    /// Speed of each host link in Gb/s
    #[arg(long, default_value_t = TierAssumptions::default().host_gbps)]
    host_gbps: f64,
    /// Speed of each link between switches in Gb/s
    #[arg(long, default_value_t = TierAssumptions::default().uplink_gbps)]
    uplink_gbps: f64,
    /// Speed of each link between spine and core in Gb/s
    #[arg(long, default_value_t = TierAssumptions::default().core_gbps)]
    core_gbps: f64,
}

/// What an inventory may not say.
#[derive(clap::Args)]
struct InventoryOptions {
    /// GPUs in each host for which none are given
    #[arg(long, default_value_t = InventoryAssumptions::default().gpus_per_host)]
    gpus_per_host: u32,
    /// Speed of each cable for which none is given, in Gb/s
    #[arg(long, default_value_t = InventoryAssumptions::default().gbps)]
    gbps: f64,
}

impl TierOptions {
    fn assumptions(&self) -> TierAssumptions {
        TierAssumptions {
            spines: self.spines,
            cores: self.cores,
            gpus_per_host: self.gpus_per_host,
            host_links: self.host_links,
            rails: self.rails,
            host_gbps: self.host_gbps,
            uplink_gbps: self.uplink_gbps,
            core_gbps: self.core_gbps,
        }
    }
}

impl InventoryOptions {
    fn assumptions(&self) -> InventoryAssumptions {
        InventoryAssumptions { gpus_per_host: self.gpus_per_host, gbps: self.gbps }
    }
}

pub(crate) fn run_import(command: &ImportCommand) -> Result<(), CommandError> {
    match command {
        ImportCommand::Lingjun(LingjunImportArgs { file, assumed }) => {
            let text = files::read_text(file)?;
            print_imported(file, import::import_lingjun(&text, &assumed.assumptions()))
        }
        ImportCommand::Topograph(TopographImportArgs { file, assumed }) => {
            let text = files::read_text(file)?;
            print_imported(file, import::import_topograph(&text, &assumed.assumptions()))
        }
        ImportCommand::Containerlab(ContainerlabImportArgs { file, assumed }) => {
            let text = files::read_text(file)?;
            print_imported(file, import::import_containerlab(&text, &assumed.assumptions()))
        }
        ImportCommand::P4utils(P4utilsImportArgs { file, assumed }) => {
            let text = files::read_text(file)?;
            print_imported(file, import::import_p4utils(&text, &assumed.assumptions()))
        }
        ImportCommand::Netbox(args) => import_netbox(args),
        ImportCommand::Slurm(SlurmImportArgs { file, assumed }) => {
            let text = files::read_text(file)?;
            let is_yaml = [".yaml", ".yml"].iter().any(|extension| file.ends_with(extension));
            let read = if is_yaml { import::import_slurm_yaml } else { import::import_slurm_conf };
            print_imported(file, read(&text, &assumed.assumptions()))
        }
        ImportCommand::Sonic(args) => import_sonic(args),
    }
}

fn import_netbox(args: &NetboxImportArgs) -> Result<(), CommandError> {
    let (devices, interfaces) =
        (files::read_text(&args.devices)?, files::read_text(&args.interfaces)?);
    let cables = files::read_text(&args.cables)?;
    let addresses = args.addresses.as_deref().map(files::read_text).transpose()?;
    let tables = NetboxTables {
        devices: &devices,
        interfaces: &interfaces,
        cables: &cables,
        addresses: addresses.as_deref(),
    };
    let imported = import::import_netbox(&tables, &args.assumed.assumptions());
    // An error begins with the table.
    print_imported(&args.file_named_by(&imported), imported)
}

fn import_sonic(args: &SonicImportArgs) -> Result<(), CommandError> {
    let switches = args.files.iter().map(|file| {
        let text = files::read_text(file)?;
        let name = Path::new(file).file_name().and_then(OsStr::to_str).unwrap_or_default();
        SonicSwitch::parse(name, &text).map_err(|error| CommandError::input(file, error))
    });
    let switches: Vec<SonicSwitch> = switches.collect::<Result<_, CommandError>>()?;
    let imported = import::import_sonic(&switches, &args.assumed.assumptions());
    print_imported(&args.files.join(", "), imported)
}

impl NetboxImportArgs {
    /// The file of the table that an error names.
    fn file_named_by(&self, imported: &Result<ImportedFabric, ImportError>) -> String {
        let field = match imported {
            Err(ImportError::Field { field, .. }) => field.as_str(),
            _ => "",
        };
        match field.split(' ').next().unwrap_or_default() {
            "interfaces" => self.interfaces.clone(),
            "cables" => self.cables.clone(),
            "addresses" => self.addresses.clone().unwrap_or_default(),
            _ => self.devices.clone(),
        }
    }
}

fn print_imported(
    file: &str,
    imported: Result<ImportedFabric, ImportError>,
) -> Result<(), CommandError> {
    let imported = imported.map_err(|error| CommandError::input(file, error))?;
    for assumption in &imported.assumptions {
        eprintln!("assumed: {assumption}");
    }
    for left_out in &imported.left_out {
        eprintln!("left out: {left_out}");
    }
    output::print_json(&spec::explicit_document(&imported.fabric))
}
