//! `crux fabric discover`: the fabric as it is cabled, from probes between its switches.
//!
//! `controller::discovery` does the work; this module selects the switches and prints the result.
//! The decision: the document goes to standard output, and differences and assumptions go to
//! standard error, so that the output can be saved unchanged.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use controller::discovery::{self, DiscoveryDefaults, OneShotDiscovery};
use controller::southbound::GrpcNetwork;
use controller::{Config, RawConfig};
use topology::document::{self, DocumentFormat};
use topology::{Fabric, Finding, Switch};

use crate::switch_inventory;
use command_io::CommandError;
use command_io::{files, output};

/// Find out how switches are cabled, and write that as a fabric document.
///
/// Each port of each switch sends probes; where they arrive is where its cable leads. Hosts are
/// found by ARP: those of --fabric are queried, others are seen when they send. Switches are left
/// as they were: those that run another program or have a primary take no part, and the rows that
/// others are given are taken away again. Beside a running controller this finds nothing: switches
/// take probes from their primary alone.
///
/// With --fabric, differences from that document are printed on standard error: cables that are
/// missing, extra, crossed or one-way. Without, tiers are inferred from where hosts are.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric discover --fabric lab.toml > found.json
  crux fabric discover --switch s1=10.0.0.1:9559/1 --switch s2=10.0.0.2:9559/2 > found.json")]
pub(crate) struct DiscoverArgs {
    /// Fabric document, with the P4Runtime address of every switch
    #[arg(long, required_unless_present = "switch")]
    fabric: Option<String>,
    /// A switch, its P4Runtime address and its device id, where there is no document
    #[arg(long, value_name = "NAME=HOST:PORT/ID", value_parser = switch_inventory::parse_switch)]
    #[arg(conflicts_with = "fabric")]
    switch: Vec<Switch>,
    /// How long to look
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    seconds: u64,
    /// Ports below this number are probed
    #[arg(long, default_value_t = 64)]
    ports: u16,
    /// Speed of cables that no document has, in Gb/s
    #[arg(long, default_value_t = 100.0)]
    gbps: f64,
    /// GPUs of hosts that no document has
    #[arg(long, default_value_t = 8)]
    gpus: u32,
}

pub(crate) fn run_discover(args: &DiscoverArgs) -> Result<(), CommandError> {
    let fabric = match &args.fabric {
        Some(file) => files::read_fabric(file)?,
        None => switch_inventory::undiscovered_fabric(&args.switch),
    };
    let mut raw = RawConfig::default();
    raw.discovery.ports = args.ports;
    let config = Config::try_from(raw).map_err(|error| CommandError::input("--ports", error))?;
    let lasts = Duration::from_secs(args.seconds);
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let survey = runtime.block_on(discovery::discover_once(&GrpcNetwork, &fabric, &config, lasts));
    print_discovery(args, &fabric, &survey)
}

fn print_discovery(
    args: &DiscoverArgs,
    fabric: &Fabric,
    survey: &OneShotDiscovery,
) -> Result<(), CommandError> {
    survey.findings.iter().for_each(print_finding);
    if survey.switches.is_empty() {
        return Err(CommandError::Failed("no switch took part in the discovery".to_owned()));
    }
    if args.fabric.is_some() {
        let watched = survey.switches.iter().copied().collect();
        let differences = discovery::compare_cabling(fabric, &survey.topology, &watched);
        differences.iter().for_each(print_finding);
    }
    let assumed = DiscoveryDefaults { gbps: args.gbps, gpus: args.gpus };
    let found = discovery::document_observed_fabric(fabric, &survey.topology, assumed);
    found.findings.iter().for_each(print_finding);
    let text = document::print_document(&found.document, DocumentFormat::Json);
    output::print_line(text.map_err(CommandError::failed)?)
}

fn print_finding(finding: &Finding) {
    eprintln!("{finding}");
}
