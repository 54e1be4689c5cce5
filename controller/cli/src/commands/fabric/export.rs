//! `crux fabric export`: a fabric in the formats of schedulers, labs, inventories and switches.

use clap::{Subcommand, ValueEnum};
use topology::Fabric;
use topology::export::{self, ContainerlabImages, NetboxTable, SonicPorts};

use super::qos;
use command_io::CommandError;
use command_io::{files, output};

/// Print a fabric in the format of another program.
#[derive(Subcommand)]
pub(crate) enum ExportCommand {
    Slurm(SlurmExportArgs),
    Kueue(KueueExportArgs),
    Topograph(TopographExportArgs),
    Containerlab(ContainerlabExportArgs),
    P4utils(P4utilsExportArgs),
    Netbox(NetboxExportArgs),
    SonicConfig(SonicConfigExportArgs),
    Qos(qos::QosExportArgs),
}

/// Print topology.conf of Slurm (plugin topology/tree).
///
/// Leaves that have a host in common become one switch. Groups of leaves that reach each other over
/// spines become a pod; where there are several pods, one switch joins them. Parts of the fabric
/// that do not reach each other have no switch in common, so that Slurm gives no job nodes of both.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric export slurm lab.toml > /etc/slurm/topology.conf
  crux fabric export slurm lab.toml --yaml > /etc/slurm/topology.yaml")]
pub(crate) struct SlurmExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
    /// Print topology.yaml, which Slurm 25.05 and later read, instead of topology.conf
    #[arg(long)]
    yaml: bool,
}

/// Print the Topology and the ResourceFlavor of Kueue, and labels for the nodes.
///
/// Nodes have the names of hosts in small letters. Parts of the fabric that do not reach each other
/// have a ResourceFlavor each.
#[derive(clap::Args)]
#[command(after_help = "\
Example:  crux fabric export kueue lab.toml | kubectl apply --server-side -f -")]
pub(crate) struct KueueExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
}

/// Print a model for the providers of topograph that read one.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric export topograph lab.toml > model.yaml")]
pub(crate) struct TopographExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
}

/// Print a topology of containerlab with a Linux container for each host and switch.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric export containerlab lab.toml > lab.clab.yml")]
pub(crate) struct ContainerlabExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
    /// Image of a switch
    #[arg(long, default_value = "p4lang/behavioral-model", value_name = "IMAGE")]
    switch_image: String,
    /// Image of a host
    #[arg(long, default_value = "debian:stable-slim", value_name = "IMAGE")]
    host_image: String,
}

/// Print a topology of p4-utils (p4app.json).
///
/// Keys that begin with crux. say what p4-utils has no fields for.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric export p4utils lab.toml > p4app.json")]
pub(crate) struct P4utilsExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
    /// P4 source that the switches run
    #[arg(long, default_value = "fabric.p4", value_name = "FILE")]
    program: String,
}

/// Print a table for the bulk import of NetBox (CSV).
///
/// Import devices, then interfaces, cables and addresses. A site with the name of the fabric must
/// exist, and roles and device types host, leaf, spine and core.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux fabric export netbox lab.toml --table cables > cables.csv")]
pub(crate) struct NetboxExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
    /// Which table
    #[arg(long, value_name = "TABLE", default_value = "cables")]
    table: NetboxTableName,
}

/// Print what SONiC's config_db.json of a switch needs for the levels of plans.
///
/// DSCP by class selectors to traffic classes, these to queues, and every queue strict; ports have
/// their numbers in the fabric as ids. Lossless levels of the document have PFC, priority groups,
/// buffer profiles and ECN. Load it with `config load`, then `config save`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:  crux fabric export sonic-config lab.toml --switch leaf1 > leaf1.config_db.json")]
pub(crate) struct SonicConfigExportArgs {
    #[command(flatten)]
    fabric: FabricFile,
    /// Name of the switch
    #[arg(long, value_name = "NAME")]
    switch: String,
    /// Levels of plans, as in the configuration of the controller
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=8))]
    levels: u8,
    /// Lanes of a port that the document does not name: port 1 is Ethernet0, port 2 is Ethernet8 with 8 lanes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16))]
    lanes: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum NetboxTableName {
    Devices,
    Interfaces,
    Cables,
    Addresses,
}

#[derive(clap::Args)]
struct FabricFile {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    fabric: String,
}

impl FabricFile {
    fn read(&self) -> Result<Fabric, CommandError> {
        files::read_fabric(&self.fabric)
    }
}

pub(crate) fn run_export(command: &ExportCommand) -> Result<(), CommandError> {
    let text = match command {
        ExportCommand::Qos(args) => return qos::run_qos_export(args),
        ExportCommand::Slurm(args) if args.yaml => export::export_slurm_yaml(&args.fabric.read()?),
        ExportCommand::Slurm(args) => export::export_slurm_conf(&args.fabric.read()?),
        ExportCommand::Kueue(args) => {
            let fabric = args.fabric.read()?;
            export::export_kueue(&fabric)
                .map_err(|error| CommandError::input(&args.fabric.fabric, error))?
        }
        ExportCommand::Topograph(args) => export::export_topograph(&args.fabric.read()?),
        ExportCommand::Containerlab(args) => {
            let (switch, host) = (args.switch_image.clone(), args.host_image.clone());
            let images = ContainerlabImages { switch, host };
            export::export_containerlab(&args.fabric.read()?, &images)
        }
        ExportCommand::P4utils(args) => export::export_p4utils(&args.fabric.read()?, &args.program),
        ExportCommand::Netbox(args) => {
            let table = match args.table {
                NetboxTableName::Devices => NetboxTable::Devices,
                NetboxTableName::Interfaces => NetboxTable::Interfaces,
                NetboxTableName::Cables => NetboxTable::Cables,
                NetboxTableName::Addresses => NetboxTable::Addresses,
            };
            export::export_netbox(&args.fabric.read()?, table)
        }
        ExportCommand::SonicConfig(args) => {
            let ports = SonicPorts { levels: args.levels, lanes: args.lanes };
            let fragment = export::export_sonic_config(&args.fabric.read()?, &args.switch, ports)
                .map_err(CommandError::failed)?;
            fragment.notes.iter().for_each(|note| eprintln!("note: {note}"));
            fragment.text
        }
    };
    output::print_line(text.trim_end())
}
