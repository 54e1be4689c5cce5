//! A running lab: namespaces, cables, switches and a controller.
//!
//! [`LabNetwork::start`] makes all of it and returns when the switches hold their tables;
//! [`remove_lab`] takes it away. The decision: a start that fails removes what it made.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use command_io::CommandError;
use controller::store::jobs_document;
use planner::{Job, PolicyDocument};
use topology::{Fabric, LinkId, SwitchId, spec};

use super::lab_folder::{LabFolder, LabRecord};
use super::marked_processes::{end_processes, mark_program};
use super::network_layout::{AddressFamily, CableLayout, NetworkLayout};
use super::{ip_tool, kernel_settings};

/// Bytes that may wait at each level of each port: the windows of all flows that may meet there.
const QUEUE_BYTES: u64 = 8 << 20;
/// How long programs may take to start and tables to be verified.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval of looks at what programs printed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a lab is started from, at its emulated rates.
#[derive(Clone, Debug)]
pub(super) struct LabPlan {
    pub(super) folder: LabFolder,
    pub(super) fabric: Fabric,
    pub(super) jobs: Vec<Job>,
    pub(super) policy: PolicyDocument,
    pub(super) record: LabRecord,
}

/// A running lab.
#[derive(Debug)]
pub(super) struct LabNetwork {
    pub(super) plan: LabPlan,
    layout: NetworkLayout,
    crux: PathBuf,
}

/// A cable's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CableState {
    Up,
    Down,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RemovalCounts {
    pub(super) processes: usize,
    pub(super) cables: usize,
    pub(super) namespaces: usize,
}

impl LabNetwork {
    /// Starts a lab; when this returns, the switches hold their tables.
    ///
    /// # Errors
    /// Something cannot be made; nothing of it is left then.
    pub(super) fn start(plan: LabPlan) -> Result<Self, CommandError> {
        let layout = NetworkLayout::of_fabric(&plan.folder.name, &plan.fabric);
        check_is_free(&plan, &layout)?;
        plan.folder.create(
            &plan.record,
            &spec::explicit_document(&plan.fabric),
            &jobs_document(&plan.fabric, &plan.jobs),
        )?;
        let crux = env::current_exe().map_err(CommandError::failed)?;
        let network = Self { plan, layout, crux };
        match network.build() {
            Ok(()) => Ok(network),
            Err(failure) => {
                remove_lab(&network.plan.folder)?;
                Err(failure)
            }
        }
    }

    fn build(&self) -> Result<(), CommandError> {
        ip_tool::run_batch(&[], &self.layout.creation_lines())?;
        for interface in self.layout.switch_interfaces() {
            kernel_settings::silence_interface(interface)?;
        }
        for host in &self.layout.hosts {
            kernel_settings::prepare_host(host)?;
            ip_tool::run_batch(&["-n", &host.namespace], &host.link_lines())?;
            for (family, option) in [(AddressFamily::Ipv4, "-4"), (AddressFamily::Ipv6, "-6")] {
                let lines = host.address_lines(family);
                if !lines.is_empty() {
                    ip_tool::run_batch(&[option, "-n", &host.namespace], &lines)?;
                }
            }
        }
        let up = NetworkLayout::state_lines(self.layout.cables.iter(), "up");
        ip_tool::run_batch(&[], &up)?;
        kernel_settings::await_carriers(self.layout.switch_interfaces())?;
        for switch in self.plan.fabric.switch_ids() {
            self.start_switch(switch)?;
        }
        self.start_controller()
    }

    fn start_switch(&self, id: SwitchId) -> Result<(), CommandError> {
        let fabric = &self.plan.fabric;
        let switch = fabric.switch(id);
        let mut words = vec!["--no-p4".to_owned()];
        words.extend(["--device-id".to_owned(), switch.device_id.to_string()]);
        for (port, link) in &switch.ports {
            let interface = command_io::interface_names::port_interface(fabric, id, *port);
            let rate = (fabric.link(*link).bandwidth.gbps() * 1e9).round();
            words.extend(["-i".to_owned(), format!("{port}@{interface}")]);
            words.extend(["--port-rate".to_owned(), format!("{port}={rate}")]);
        }
        words.extend(["--queue-bytes".to_owned(), QUEUE_BYTES.to_string(), "--".to_owned()]);
        let address = switch.p4runtime.clone().unwrap_or_default();
        words.extend(["--grpc-server-addr".to_owned(), address]);
        words.extend(["--priority-queues", "8"].map(str::to_owned));
        let mut command = Command::new(&self.crux);
        command.arg("switch").args(words);
        self.start_program(command, &switch.name).map(drop)
    }

    fn start_controller(&self) -> Result<(), CommandError> {
        let LabPlan { folder, policy, record, .. } = &self.plan;
        folder.write_json("policy.json", policy)?;
        let address = record.controller;
        folder.write_text("controller.toml", &format!("[northbound]\nlisten = \"{address}\"\n"))?;
        let mut command = Command::new(&self.crux);
        command.args(["--log", "info", "controller", "--carriers"]);
        for (option, file) in [
            ("--config", "controller.toml"),
            ("--fabric", "fabric.json"),
            ("--policy", "policy.json"),
        ] {
            command.arg(option).arg(folder.file(file));
        }
        let mut program = self.start_program(command, "controller")?;
        self.await_text(&mut program, "controller", "verified")
    }

    /// Starts the emulated jobs: a lead, which reports them to the controller and never ends, and
    /// their hosts.
    ///
    /// # Errors
    /// A program does not start.
    pub(super) fn start_jobs(&self) -> Result<(), CommandError> {
        let mut lead = self.job_program("lead");
        lead.args(["--controller", &self.plan.record.controller.to_string(), "--endless"]);
        lead.arg("--listen").arg(self.lead_socket());
        let mut program = self.start_program(lead, "jobs")?;
        self.await_socket(Some(&mut program))?;
        self.start_hosts()
    }

    /// Starts the hosts of the jobs, which connect to the lead.
    ///
    /// # Errors
    /// A program does not start.
    pub(super) fn start_hosts(&self) -> Result<(), CommandError> {
        for host in &self.layout.hosts {
            if self.has_flow(&host.name) {
                let program = self.job_program("host");
                let mut command = ip_tool::in_namespace(&host.namespace);
                command.arg(program.get_program()).args(program.get_args());
                command.args(["--host", &host.name]).arg("--lead").arg(self.lead_socket());
                self.start_program(command, &format!("host-{}", host.name))?;
            }
        }
        Ok(())
    }

    /// Where the lead of the jobs listens.
    pub(super) fn lead_socket(&self) -> PathBuf {
        self.plan.folder.file("lead.sock")
    }

    /// Waits until the lead listens.
    ///
    /// # Errors
    /// It has ended, or does not listen in time.
    pub(super) fn await_socket(&self, mut lead: Option<&mut Child>) -> Result<(), CommandError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.lead_socket().exists() {
            let has_ended = lead.as_mut().is_some_and(|lead| has_ended(lead));
            if has_ended || Instant::now() > deadline {
                let log = self.plan.folder.log_end("jobs.log");
                return Err(CommandError::Failed(format!("the jobs did not start:\n{log}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn job_program(&self, part: &str) -> Command {
        let mut command = Command::new(&self.crux);
        command.args(["job", part]);
        command.arg("--fabric").arg(self.plan.folder.file("fabric.json"));
        command.arg("--jobs").arg(self.plan.folder.file("jobs.json"));
        command
    }

    fn has_flow(&self, host: &str) -> bool {
        let fabric = &self.plan.fabric;
        let flows = self.plan.jobs.iter().flat_map(|job| &job.flows);
        let mut nics = flows.flat_map(|flow| [flow.src, flow.dst]);
        nics.any(|nic| fabric.host(fabric.nic(nic).host).name == host)
    }

    /// Starts a program of the lab apart from this process, with a log of its own.
    fn start_program(&self, mut command: Command, name: &str) -> Result<Child, CommandError> {
        let folder = &self.plan.folder;
        mark_program(&mut command, folder.path());
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(folder.create_log(&format!("{name}.out"))?)
            .stderr(folder.create_log(&format!("{name}.log"))?);
        let started = command.spawn();
        started.map_err(|error| CommandError::input(command.get_program().display(), error))
    }

    /// Waits until a program has printed a line with this text.
    fn await_text(&self, program: &mut Child, name: &str, text: &str) -> Result<(), CommandError> {
        let folder = &self.plan.folder;
        let deadline = Instant::now() + START_TIMEOUT;
        while !folder.read_log(&format!("{name}.out")).contains(text) {
            if has_ended(program) || Instant::now() > deadline {
                let log = folder.log_end(&format!("{name}.log"));
                return Err(CommandError::Failed(format!("{name}: not {text}:\n{log}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Takes cables of a running lab down or up, at the ends that are ports of switches.
///
/// # Errors
/// There is no such interface.
pub(super) fn set_cables(
    lab: &LabFolder,
    fabric: &Fabric,
    links: &[LinkId],
    state: CableState,
) -> Result<(), CommandError> {
    let layout = NetworkLayout::of_fabric(&lab.name, fabric);
    let cables = layout.cables.iter();
    let cables = cables.filter(|cable| is_direction_of(cable, links));
    let word = match state {
        CableState::Up => "up",
        CableState::Down => "down",
    };
    ip_tool::run_batch(&[], &NetworkLayout::state_lines(cables, word))
}

/// The cables that do not work.
pub(super) fn failed_cables(lab: &LabFolder, fabric: &Fabric) -> Vec<LinkId> {
    let layout = NetworkLayout::of_fabric(&lab.name, fabric);
    let is_down = |cable: &&CableLayout| {
        let mut ends = cable.ends.iter().filter(|end| end.namespace.is_none());
        ends.any(|end| !kernel_settings::has_carrier(&end.interface))
    };
    layout.cables.iter().filter(is_down).map(|cable| cable.link).collect()
}

/// Removes a lab: processes, cables, namespaces and the folder, whatever of them is left.
///
/// # Errors
/// Something does not go away.
pub(super) fn remove_lab(lab: &LabFolder) -> Result<RemovalCounts, CommandError> {
    // Without a readable document nothing has been made yet.
    let layout = match lab.read_fabric() {
        Ok(fabric) => NetworkLayout::of_fabric(&lab.name, &fabric),
        Err(_) => NetworkLayout { hosts: Vec::new(), cables: Vec::new() },
    };
    let processes = end_processes(lab.path(), &layout)?;
    let before = existing_parts(&layout);
    ip_tool::run_all_lines(&layout.removal_lines())?;
    let left = existing_parts(&layout);
    if let Some(part) = left.0.iter().chain(&left.1).next() {
        return Err(CommandError::Failed(format!("{part} cannot be removed")));
    }
    lab.remove()?;
    Ok(RemovalCounts { processes, cables: before.0.len(), namespaces: before.1.len() })
}

/// The interfaces of cables and the namespaces that there are.
fn existing_parts(layout: &NetworkLayout) -> (Vec<String>, Vec<String>) {
    let cables = layout.cables.iter().filter_map(|cable| {
        let mut ends = cable.ends.iter().filter(|end| end.namespace.is_none());
        let end = ends.find(|end| kernel_settings::interface_exists(&end.interface))?;
        Some(end.interface.clone())
    });
    let namespaces = layout.hosts.iter().map(|host| host.namespace.clone());
    let exists = |name: &String| Path::new("/run/netns").join(name).exists();
    (cables.collect(), namespaces.filter(exists).collect())
}

/// Refuses to make what is there, and addresses that others use.
fn check_is_free(plan: &LabPlan, layout: &NetworkLayout) -> Result<(), CommandError> {
    plan.folder.check_absent()?;
    let (cables, namespaces) = existing_parts(layout);
    if let Some(part) = cables.iter().chain(&namespaces).next() {
        let what = format!(
            "{part} exists; remove the lab that has it with crux lab down --name NAME (labs are in \
             /run/crux-lab), or else with ip"
        );
        return Err(CommandError::Failed(what));
    }
    let switches = plan.fabric.switches().iter();
    let addresses = switches.filter_map(|switch| switch.p4runtime.as_ref()?.parse().ok());
    for address in addresses.chain([plan.record.controller]) {
        let address: SocketAddr = address;
        TcpListener::bind(address).map_err(|error| {
            let what = format!("{error}; choose others with --listen and --first-port");
            CommandError::input(address, what)
        })?;
    }
    Ok(())
}

fn is_direction_of(cable: &CableLayout, links: &[LinkId]) -> bool {
    links.iter().any(|link| *link == cable.link || link.reverse() == cable.link)
}

fn has_ended(program: &mut Child) -> bool {
    program.try_wait().is_ok_and(|status| status.is_some())
}
