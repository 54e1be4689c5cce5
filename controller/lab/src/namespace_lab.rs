//! `crux lab`: a fabric in network namespaces of this machine, with switches, a controller and
//! training jobs.
//!
//! [`network_layout`] and [`scaling`] say what a fabric is here, [`lab_network`] makes and removes
//! it, [`scenario_run`] runs a [`scenario`] in it. The decision: nothing but the kernel and
//! iproute2 is needed, and a lab can be removed whatever was killed, since all of it has names that
//! follow from the documents in its folder.

mod graph;
mod ip_tool;
mod kernel_settings;
mod lab_folder;
mod lab_network;
mod marked_processes;
mod network_layout;
mod scaling;
mod scenario;
mod scenario_run;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::{env, thread};

use command_io::CommandError;
use command_io::{files, output};
use planner::{Job, PolicyDocument};
use topology::count_noun;
use topology::spec::{self, FabricDocument};
use topology::{Fabric, LinkId};

use self::lab_folder::{LabFolder, LabName, LabRecord};
use self::lab_network::{CableState, LabNetwork, LabPlan, RemovalCounts};
use self::scaling::LabScale;

/// Where a controller serves unless another address is given; where commands look for one.
const DEFAULT_LISTEN: &str = "127.0.0.1:9300";

/// Run a fabric in network namespaces of this machine: switches, a controller, training jobs
///
/// Needs Linux, root and iproute2. Rates are divided and times multiplied, so that a few cores
/// carry it; `up` prints by how much.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux lab up --fabric fabric.toml --jobs jobs.toml
  crux doctor
  crux lab shell h1 -- ping -c 3 10.0.2.1
  crux lab cut leaf1-spine1
  crux lab graph --svg > lab.svg
  crux lab down")]
pub(crate) enum NamespaceLabCommand {
    Up(LabUpArgs),
    Run(scenario_run::LabRunArgs),
    Shell(LabShellArgs),
    Cut(LabCableArgs),
    Restore(LabRestoreArgs),
    Graph(LabGraphArgs),
    Down(LabDownArgs),
}

/// Which lab is meant.
#[derive(clap::Args)]
struct LabNameArg {
    /// Name of the lab; namespaces of its hosts are called NAME-HOST
    #[arg(long, default_value = "lab")]
    name: LabName,
}

/// Where a lab is, and how much slower than its documents.
#[derive(clap::Args)]
struct LabTermArgs {
    #[command(flatten)]
    lab: LabNameArg,
    /// Where the controller serves
    #[arg(long, default_value = DEFAULT_LISTEN, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// P4Runtime port of the first switch; the others have those that follow
    #[arg(long, default_value_t = 9560, value_name = "PORT")]
    first_port: u16,
    /// Divide rates and sizes by this, instead of what the cores of this machine carry
    #[arg(long, value_name = "FACTOR")]
    rate_scale: Option<f64>,
    /// Multiply times by this
    #[arg(long, value_name = "FACTOR")]
    slower: Option<f64>,
}

/// Start a lab: namespaces, switches, a controller and training jobs
///
/// Returns when the switches hold their tables and the jobs train; `crux lab down` removes it all.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab up --fabric fabric.toml --jobs jobs.toml
  crux lab up --fabric fabric.toml --name other --listen 127.0.0.1:9301 --first-port 9700")]
pub(crate) struct LabUpArgs {
    /// Fabric document
    #[arg(long)]
    fabric: String,
    /// Jobs document; without one, no job trains
    #[arg(long)]
    jobs: Option<String>,
    /// Policy document; without one, the defaults
    #[arg(long)]
    policy: Option<String>,
    #[command(flatten)]
    terms: LabTermArgs,
}

/// Run a program in the namespace of a host, or a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab shell h1
  crux lab shell h1 -- ping -c 3 10.0.2.1")]
pub(crate) struct LabShellArgs {
    /// Host of the fabric document
    host: String,
    /// The program and its arguments; without one, your shell
    #[arg(last = true)]
    program: Vec<String>,
    #[command(flatten)]
    lab: LabNameArg,
}

/// Take the cables between two nodes down
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab cut leaf1-spine1
  crux lab cut h1-leaf1")]
pub(crate) struct LabCableArgs {
    /// The cable, as leaf1-spine1
    cable: String,
    #[command(flatten)]
    lab: LabNameArg,
}

/// Take the cables between two nodes up again
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  crux lab restore leaf1-spine1")]
pub(crate) struct LabRestoreArgs {
    #[command(flatten)]
    cable: LabCableArgs,
}

/// Draw a fabric, with the cables that do not work
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab graph | dot -Tpng > lab.png
  crux lab graph --svg > lab.svg
  crux lab graph --fabric fabric.toml --svg > fabric.svg")]
pub(crate) struct LabGraphArgs {
    /// A fabric document, instead of the lab that runs
    #[arg(long)]
    fabric: Option<String>,
    /// SVG instead of Graphviz' DOT
    #[arg(long)]
    svg: bool,
    #[command(flatten)]
    lab: LabNameArg,
}

/// Remove a lab: its processes, cables and namespaces, whatever of them is left
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab down
  crux lab down --name other")]
pub(crate) struct LabDownArgs {
    #[command(flatten)]
    lab: LabNameArg,
}

pub(crate) fn run_namespace_lab(command: &NamespaceLabCommand) -> Result<(), CommandError> {
    match command {
        NamespaceLabCommand::Up(args) => start_lab(args),
        NamespaceLabCommand::Run(args) => scenario_run::run_scenario(args),
        NamespaceLabCommand::Shell(args) => run_in_host(args),
        NamespaceLabCommand::Cut(args) => set_cable(args, CableState::Down),
        NamespaceLabCommand::Restore(args) => set_cable(&args.cable, CableState::Up),
        NamespaceLabCommand::Graph(args) => draw_lab(args),
        NamespaceLabCommand::Down(args) => end_lab(args),
    }
}

impl LabTermArgs {
    /// The lab of a fabric and its jobs at the rates that this machine carries.
    fn plan_lab(
        &self,
        fabric: &Fabric,
        jobs: &[Job],
        policy: PolicyDocument,
    ) -> Result<LabPlan, CommandError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let scale = self.scale(LabScale::for_machine(fabric, cores))?;
        let mut document = spec::explicit_document(fabric);
        scale.scale_fabric(&mut document);
        self.give_addresses(&mut document)?;
        let fabric = Fabric::try_from(&document).map_err(|error| {
            CommandError::input("--rate-scale", format_args!("the fabric at its rates: {error}"))
        })?;
        let mut jobs = jobs.to_vec();
        planner::choose_source_ports(&mut jobs);
        scale.scale_jobs(&mut jobs);
        Ok(LabPlan {
            folder: LabFolder::of_name(&self.lab.name),
            fabric,
            jobs,
            policy,
            record: LabRecord { controller: self.listen, scale },
        })
    }

    fn scale(&self, chosen: LabScale) -> Result<LabScale, CommandError> {
        let factor = |option: &str, given: Option<f64>, chosen: f64| match given {
            Some(factor) if !(1.0..=1e9).contains(&factor) => {
                Err(CommandError::input(option, "a factor is from 1 to a thousand million"))
            }
            given => Ok(given.unwrap_or(chosen)),
        };
        Ok(LabScale {
            rate: factor("--rate-scale", self.rate_scale, chosen.rate)?,
            slower: factor("--slower", self.slower, chosen.slower)?,
        })
    }

    /// Gives every switch an address of this machine.
    fn give_addresses(&self, document: &mut FabricDocument) -> Result<(), CommandError> {
        for (index, switch) in document.switches.iter_mut().enumerate() {
            let port =
                u16::try_from(index).ok().and_then(|index| self.first_port.checked_add(index));
            let port = port.ok_or_else(|| {
                CommandError::input("--first-port", "too high: ports end at 65535")
            })?;
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            switch.p4runtime = Some(address.to_string());
        }
        Ok(())
    }
}

fn start_lab(args: &LabUpArgs) -> Result<(), CommandError> {
    require_root()?;
    let fabric = files::read_fabric(&args.fabric)?;
    let jobs = match &args.jobs {
        Some(file) => files::read_jobs(file, &fabric)?.0,
        None => Vec::new(),
    };
    let policy = match &args.policy {
        Some(file) => files::parse_document(file)?,
        None => PolicyDocument::default(),
    };
    let plan = args.terms.plan_lab(&fabric, &jobs, policy)?;
    let (folder, record) = (plan.folder.clone(), plan.record.clone());
    let network = LabNetwork::start(plan)?;
    if !jobs.is_empty()
        && let Err(failure) = network.start_jobs()
    {
        lab_network::remove_lab(&folder)?;
        return Err(failure);
    }
    let LabRecord { controller, scale } = record;
    let [switches, hosts] = [fabric.switches().len(), fabric.hosts().len()];
    let ask = match controller.to_string() == DEFAULT_LISTEN {
        true => String::new(),
        false => format!(" --controller {controller}"),
    };
    output::print_line(format_args!(
        "lab {}: {switches} switches, {hosts} hosts, {}; the controller serves on {controller}\n\
         rates are divided by {:.0} and times multiplied by {:.1}\n\
         logs and documents: {}\n\
         try: crux doctor{ask}, crux top{ask}, crux lab shell {} -- ip address",
        folder.name,
        count_noun(jobs.len(), "job"),
        scale.rate,
        scale.slower,
        folder.path().display(),
        fabric.hosts().first().map_or("HOST", |host| host.name.as_str()),
    ))
}

fn run_in_host(args: &LabShellArgs) -> Result<(), CommandError> {
    require_root()?;
    let folder = LabFolder::of_name(&args.lab.name);
    let fabric = folder.read_fabric()?;
    if fabric.host_named(&args.host).is_none() {
        let what = format!("the fabric has no host `{}`; switches have no namespace", args.host);
        return Err(CommandError::input("HOST", what));
    }
    let namespace = network_layout::host_namespace(&folder.name, &args.host);
    let mut command = ip_tool::in_namespace(&namespace);
    match &args.program[..] {
        [] => command.arg(env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
        program => command.args(program),
    };
    Err(CommandError::input("ip", command.exec()))
}

fn set_cable(args: &LabCableArgs, state: CableState) -> Result<(), CommandError> {
    require_root()?;
    let folder = LabFolder::of_name(&args.lab.name);
    let fabric = folder.read_fabric()?;
    let links = fabric.links_named(&args.cable);
    if links.is_empty() {
        let what = format!("the fabric has no cable {}; write it as leaf1-spine1", args.cable);
        return Err(CommandError::input("CABLE", what));
    }
    lab_network::set_cables(&folder, &fabric, &links, state)?;
    output::print_line(match state {
        CableState::Down => format!(
            "{0} is down; crux doctor says what it costs, crux lab restore {0} takes it up",
            args.cable
        ),
        CableState::Up => {
            format!("{} is up; it is used again after a hold-down of some seconds", args.cable)
        }
    })
}

fn draw_lab(args: &LabGraphArgs) -> Result<(), CommandError> {
    let (fabric, failed): (Fabric, Vec<LinkId>) = match &args.fabric {
        Some(file) => (files::read_fabric(file)?, Vec::new()),
        None => {
            let folder = LabFolder::of_name(&args.lab.name);
            let fabric = folder.read_fabric()?;
            let failed = lab_network::failed_cables(&folder, &fabric);
            (fabric, failed)
        }
    };
    output::print_line(match args.svg {
        true => graph::draw_svg(&fabric, &failed),
        false => graph::draw_dot(&fabric, &failed),
    })
}

fn end_lab(args: &LabDownArgs) -> Result<(), CommandError> {
    require_root()?;
    let folder = LabFolder::of_name(&args.lab.name);
    if !folder.exists() {
        return output::print_line(format_args!("no lab `{}` is there", folder.name));
    }
    let RemovalCounts { processes, cables, namespaces } = lab_network::remove_lab(&folder)?;
    output::print_line(format_args!(
        "removed lab {}: {processes} processes, {cables} cables, {namespaces} namespaces",
        folder.name
    ))
}

/// Namespaces and interfaces are the superuser's.
fn require_root() -> Result<(), CommandError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(CommandError::Failed(
            "crux lab makes network namespaces, which needs root; run it with sudo".to_owned(),
        )),
    }
}
