//! `crux-switch`: the embedded switch as a program, with the flags of simple_switch_grpc.
//!
//! The decision: a script that starts simple_switch_grpc starts this instead by changing the name
//! alone. Flags of debugging aids that it does not have are taken and ignored, so that this holds;
//! anything else that it does not know is an error.

mod port_flags;
mod queue_flags;
mod tls_flags;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Command, CommandFactory, Parser};
use switch::ports::{self, PortState, PortsHandle, PortsOptions};
use switch::{Device, DeviceConfig, LldpIdentity, Program, QueueLimits};
use switch_server::gnmi::{self, GnmiHandle, GnmiOptions, GnmiService, QosMaps};
use switch_server::p4runtime::election::SwitchDialect;
use switch_server::p4runtime::pins::PortNames;
use switch_server::p4runtime::{
    self, AllowedRole, RoleRules, ServeError, ServerHandle, ServiceOptions, ServiceTls,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::port_flags::{PortAttachment, PortRate};
use self::queue_flags::QueueFlags;
use self::tls_flags::TlsFlags;
use command_io::CommandError;
use command_io::file_watch::FileWatch;
use command_io::program::{LogArgs, exit_code, parse_words};
use command_io::{files, output};

/// Forward packets between interfaces and serve P4Runtime, until interrupted.
///
/// Flags are those of simple_switch_grpc, its target's flags after `--` included, so that a script
/// can start one instead of the other. Interfaces need CAP_NET_RAW (root has it). Each port has
/// strict-priority queues over one rate, which bmv2 does not have.
#[derive(Parser)]
#[command(name = "crux-switch", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  crux switch --no-p4 --device-id 1 -i 1@veth1 -i 2@veth2 -- --grpc-server-addr 127.0.0.1:20001
  crux switch fabric.json -i 1@veth1 -i 2@veth2 --priority-queues 8 --port-rate 2=100M
  crux switch fabric.json -i 1@a -i 2@b --priority-queues 8 --lossless 3,4
  crux switch fabric.json -i 1@a -i 2@b --use-files 0     # a_in.pcap, b_in.pcap -> *_out.pcap
  crux switch fabric.json -i 1@a --allow-role =controller.crux --allow-role tests
  crux switch sai.json --dialect pins --device-id 1 -i 1@a --port-name 1=Ethernet0")]
struct SwitchProgram {
    /// Program to run from the start, as compiled by p4c (BMv2 JSON)
    #[arg(required_unless_present = "no_p4", conflicts_with = "no_p4")]
    program: Option<String>,
    /// Start without a program and wait for a controller to load one
    #[arg(long)]
    no_p4: bool,
    /// P4Runtime device id
    #[arg(long, default_value_t = 0)]
    device_id: u64,
    /// Attach an interface as a port; may be given many times
    #[arg(short, long = "interface", value_name = "PORT@INTERFACE")]
    interfaces: Vec<PortAttachment>,
    /// Record what passes each interface, in INTERFACE_in.pcap and INTERFACE_out.pcap there
    #[arg(
        long,
        value_name = "FOLDER",
        num_args = 0..=1,
        default_missing_value = "."
    )]
    pcap: Option<PathBuf>,
    /// Read packets from INTERFACE_in.pcap and write to INTERFACE_out.pcap, after so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "pcap")]
    use_files: Option<u64>,
    /// Bits per second that a port sends (10M, 2.5G), of every port or of one: the queues of all
    /// its levels share it
    #[arg(long = "port-rate", value_name = "[PORT=]RATE")]
    port_rates: Vec<PortRate>,
    /// Bytes that may wait at each level of each port
    #[arg(long, default_value_t = 1 << 20)]
    queue_bytes: u64,
    /// Mark packets that find so many bytes or more waiting at their level with ECN's "congestion
    /// experienced", if their sender takes part; without it nothing is marked
    #[arg(long, value_name = "BYTES")]
    ecn_threshold: Option<NonZeroU64>,
    #[command(flatten)]
    queues: QueueFlags,
    /// A role that may use this switch, and the DNS name that its client's certificate must be for;
    /// may be given many times. The role without a name is that of full access. Without this, every
    /// role may
    #[arg(long = "allow-role", value_name = "ROLE[=CLIENT]", value_parser = parse_role)]
    allowed_roles: Vec<AllowedRole>,
    /// Whose P4Runtime server this behaves like
    #[arg(long, value_enum, default_value_t = DialectChoice::Specification)]
    dialect: DialectChoice,
    /// As --dialect bmv2
    #[arg(long, conflicts_with = "dialect")]
    bmv2_arbitration: bool,
    /// How controllers call a port with --dialect pins; may be given many times. Without any, ports
    /// are called by their numbers, as with SONiC's --use_port_ids
    #[arg(long = "port-name", value_name = "PORT=NAME", value_parser = parse_port_name)]
    port_names: Vec<(u16, String)>,
    /// Another address for gNMI, which --grpc-server-addr has in any case: states and counters of
    /// ports, and maps of queues. It has the same certificates
    #[arg(long, value_name = "HOST:PORT")]
    gnmi: Option<SocketAddr>,
    /// Announce this name to the neighbours by LLDP (IEEE 802.1AB), and report over gNMI what they
    /// announce. Without this, frames of LLDP go to the program
    #[arg(long, value_name = "NAME")]
    lldp: Option<String>,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    ignored: IgnoredFlags,
    #[command(flatten)]
    target: TargetFlags,
    /// The target's flags again, as simple_switch_grpc wants them: after --
    #[arg(last = true, value_name = "TARGET FLAGS")]
    target_flags: Vec<String>,
}

/// Flags of debugging aids of bmv2 that are not here: taken, so that scripts run, and ignored.
#[derive(clap::Args)]
#[command(next_help_heading = "Taken for compatibility and ignored")]
struct IgnoredFlags {
    /// bmv2's Thrift server
    #[arg(long, value_name = "PORT")]
    thrift_port: Option<u16>,
    /// bmv2's event log
    #[arg(long, value_name = "ADDRESS")]
    nanolog: Option<String>,
    /// bmv2's notifications
    #[arg(long, value_name = "ADDRESS")]
    notifications_addr: Option<String>,
    /// bmv2's log; see --log
    #[arg(long)]
    log_console: bool,
    /// bmv2's log; see --log
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// bmv2's log; see --log
    #[arg(long)]
    log_flush: bool,
    /// bmv2's log; see --log
    #[arg(short = 'L', long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Ports have nine bits here whatever this says
    #[arg(long, value_name = "PORTS")]
    max_port_count: Option<u32>,
}

/// Flags that simple_switch_grpc takes after `--`; here they may stand before it too.
#[derive(clap::Args, Clone, Debug)]
struct TargetFlags {
    /// Address to listen on; every client there may program the switch unless controllers must show
    /// a certificate
    #[arg(long, default_value = "127.0.0.1:9559")]
    grpc_server_addr: SocketAddr,
    /// Port that leads to the controller
    #[arg(long, default_value_t = 255)]
    cpu_port: u16,
    /// Priority queues of every port; packets of a higher priority are dropped. fabric.p4 needs 8
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    priority_queues: u8,
    /// bmv2's swapping of programs; taken and ignored
    #[arg(long)]
    disable_swap: bool,
    #[command(flatten)]
    tls: TlsFlags,
}

/// The flags after `--`, parsed as a command line of their own.
#[derive(Parser)]
#[command(no_binary_name = true, name = "crux-switch … --", disable_help_flag = true)]
struct TargetCommandLine {
    #[command(flatten)]
    target: TargetFlags,
}

impl SwitchProgram {
    fn resolve_target(&self) -> Result<TargetFlags, CommandError> {
        if self.target_flags.is_empty() {
            return Ok(self.target.clone());
        }
        let line = TargetCommandLine::try_parse_from(&self.target_flags);
        line.map(|line| line.target).map_err(|error| CommandError::input("flags after --", error))
    }

    fn ports_options(&self, levels: u8) -> Result<PortsOptions, CommandError> {
        let queue = QueueLimits { bytes: self.queue_bytes, mark_from: self.ecn_threshold };
        let shapes = port_flags::PortShapes::new(&self.port_rates, queue);
        let files = self.use_files.is_some();
        let ports: Vec<_> = self
            .interfaces
            .iter()
            .map(|attachment| {
                let medium =
                    if files { attachment.file_medium() } else { attachment.interface_medium() };
                shapes.port_config(attachment.port, medium)
            })
            .collect();
        if let Some(unattached) = shapes.unattached_port(&ports) {
            let what = format!("port {unattached} is attached to nothing; give it with -i");
            return Err(CommandError::input("--port-rate", what));
        }
        let unlimited = ports.iter().find(|port| port.shape.bits_per_second.is_none());
        if let Some(port) = unlimited.filter(|_| self.queues.marks_by_rate()) {
            let what =
                format!("port {} has no rate to mark by; give it with --port-rate", port.number);
            return Err(CommandError::input("--ecn-ramp", what));
        }
        Ok(PortsOptions {
            ports,
            record: self.pcap.clone(),
            replay_after: Duration::from_secs(self.use_files.unwrap_or_default()),
            traffic: self.queues.traffic_settings(levels)?,
            lldp: self.lldp_identity()?,
        })
    }

    fn lldp_identity(&self) -> Result<Option<LldpIdentity>, CommandError> {
        let port_names = self.reported_port_names()?;
        Ok(self.lldp.clone().map(|system| LldpIdentity { system, port_names }))
    }

    /// The roles that may use the switch. Names of clients are in certificates, so they need TLS.
    fn role_rules(&self, target: &TargetFlags) -> Result<RoleRules, CommandError> {
        let needs_names = self.allowed_roles.iter().any(|rule| rule.client.is_some());
        if needs_names && !target.tls.requires_certificates() {
            let what = "names of clients need --grpc-server-with-client-auth";
            return Err(CommandError::input("--allow-role", what));
        }
        Ok(RoleRules(self.allowed_roles.clone()))
    }

    fn switch_dialect(&self) -> SwitchDialect {
        match self.dialect {
            _ if self.bmv2_arbitration => SwitchDialect::Bmv2,
            DialectChoice::Specification => SwitchDialect::Specification,
            DialectChoice::Bmv2 => SwitchDialect::Bmv2,
            DialectChoice::Pins => SwitchDialect::Pins,
        }
    }

    /// The names of ports over gNMI and LLDP: those of their interfaces in the dialect of bmv2, as
    /// Stratum has them.
    fn reported_port_names(&self) -> Result<PortNames, CommandError> {
        if self.switch_dialect() != SwitchDialect::Bmv2 {
            return self.port_names();
        }
        let names =
            self.interfaces.iter().map(|attached| (attached.port, attached.interface.clone()));
        PortNames::new(names).map_err(|error| CommandError::input("--interface", error))
    }

    fn port_names(&self) -> Result<PortNames, CommandError> {
        if !self.port_names.is_empty() && self.dialect != DialectChoice::Pins {
            return Err(CommandError::input("--port-name", "only --dialect pins names ports"));
        }
        PortNames::new(self.port_names.iter().cloned())
            .map_err(|error| CommandError::input("--port-name", error))
    }
}

/// A dialect as `--dialect` names it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum DialectChoice {
    /// As P4Runtime specifies
    Specification,
    /// As bmv2, which promotes the best backup when the primary leaves
    Bmv2,
    /// As SONiC, which needs a device id and names ports and other ids by strings
    Pins,
}

fn parse_port_name(text: &str) -> Result<(u16, String), String> {
    let (port, name) = text.split_once('=').ok_or("PORT=NAME is needed, as 1=Ethernet0")?;
    let port = port.parse().map_err(|_| format!("`{port}` is no number of a port"))?;
    Ok((port, name.to_owned()))
}

fn parse_role(text: &str) -> Result<AllowedRole, String> {
    let (role, client) = match text.split_once('=') {
        Some((_, "")) => return Err("a name is missing after `=`".to_owned()),
        Some((role, client)) => (role, Some(client.to_owned())),
        None => (text, None),
    };
    Ok(AllowedRole { role: role.to_owned(), client })
}

/// The command line of the program.
pub fn program_command() -> Command {
    SwitchProgram::command()
}

/// Runs the program with these arguments, without its own name.
pub fn run_program(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (program, _): (SwitchProgram, _) = parse_words(program_command(), words);
    exit_code(program.logs.start_logging().and_then(|()| run_switch(&program)))
}

fn run_switch(args: &SwitchProgram) -> Result<(), CommandError> {
    let target = args.resolve_target()?;
    let program = args.program.as_deref().map(load_program).transpose()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    runtime.block_on(serve_switch(args, &target, program))
}

fn load_program(file: &str) -> Result<Arc<Program>, CommandError> {
    let text = files::read_text(file)?;
    let program = Program::from_json(text.as_bytes());
    program.map(Arc::new).map_err(|error| CommandError::input(file, error))
}

async fn serve_switch(
    args: &SwitchProgram,
    target: &TargetFlags,
    program: Option<Arc<Program>>,
) -> Result<(), CommandError> {
    // Before any file is opened: a signal that arrives early must not leave half a capture file.
    let signals = StopSignals::listen()?;
    let listener = bind_listener(target.grpc_server_addr).await?;
    let mut device = Device::new(DeviceConfig {
        device_id: args.device_id,
        cpu_port: target.cpu_port,
        levels: target.priority_queues,
        trusts_dscp: args.dialect == DialectChoice::Pins,
    });
    if let Some(program) = program {
        device.load_program(program);
    }
    let options = ServiceOptions {
        dialect: args.switch_dialect(),
        port_names: args.port_names()?,
        roles: args.role_rules(target)?,
        tls: target.tls.load_tls()?,
        ..ServiceOptions::default()
    };
    let gnmi_listener = match args.gnmi.filter(|address| *address != target.grpc_server_addr) {
        Some(address) => Some(bind_listener(address).await?),
        None => None,
    };
    let port_options = args.ports_options(target.priority_queues)?;
    let ports = ports::spawn_ports(device, &port_options).map_err(CommandError::failed)?;
    let rates = port_options.ports.iter().map(|port| port.shape.bits_per_second);
    let rates = rates.map(|rate| rate.map_or(u64::MAX, u64::from));
    let qos = port_options.traffic.as_ref().map(|traffic| QosMaps::of_traffic(traffic, rates));
    let qos = qos.unwrap_or_default();
    let port_names = args.reported_port_names()?;
    let gnmi = GnmiOptions { port_names, tls: options.tls.clone(), qos };
    let servers = SwitchServers::start(listener, gnmi_listener, &ports, gnmi, options).await;
    let served = match servers {
        Ok(servers) => servers.serve_until_stopped(args.device_id, &target.tls, signals).await,
        Err(error) => Err(CommandError::failed(error)),
    };
    if served.is_ok() {
        log_port_counts(&ports).await;
    }
    // Capture files are complete only after this, also when something has failed.
    ports.stop().await;
    served
}

async fn bind_listener(address: SocketAddr) -> Result<TcpListener, CommandError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| CommandError::input(address, error))
}

/// The servers of the switch.
struct SwitchServers {
    p4runtime: ServerHandle,
    /// Served on the port of P4Runtime.
    gnmi_beside: GnmiService,
    gnmi: Option<GnmiHandle>,
}

impl SwitchServers {
    async fn start(
        listener: TcpListener,
        gnmi_listener: Option<TcpListener>,
        ports: &PortsHandle,
        gnmi_options: GnmiOptions,
        options: ServiceOptions,
    ) -> Result<Self, ServeError> {
        let GnmiOptions { port_names, qos, .. } = &gnmi_options;
        let gnmi_beside = GnmiService::new(ports.device(), port_names.clone(), qos.clone());
        let gnmi_beside = gnmi_beside.as_stratum();
        let options = ServiceOptions { beside: gnmi_beside.routes(), ..options };
        let p4runtime = p4runtime::serve(listener, ports.device(), options).await?;
        let gnmi = match gnmi_listener {
            Some(listener) => Some(gnmi::serve(listener, ports.device(), gnmi_options).await?),
            None => None,
        };
        Ok(Self { p4runtime, gnmi_beside, gnmi })
    }

    async fn serve_until_stopped(
        mut self,
        device_id: u64,
        tls: &TlsFlags,
        mut signals: StopSignals,
    ) -> Result<(), CommandError> {
        let address = self.p4runtime.local_addr();
        output::print_line(format_args!("device {device_id} serves P4Runtime on {address}"))?;
        if let Some(gnmi) = &self.gnmi {
            let address = gnmi.local_addr();
            output::print_line(format_args!("device {device_id} serves gNMI on {address}"))?;
        }
        let mut certificates = FileWatch::new(tls.files());
        loop {
            tokio::select! {
                () = signals.wait() => break,
                () = self.p4runtime.wait_for_end() => {
                    let what = "the P4Runtime server ended by itself";
                    return Err(CommandError::Failed(what.to_owned()));
                }
                () = certificates.wait_for_change() => self.renew_certificates(tls),
            }
        }
        // Their subscriptions would keep connections open.
        drop(self.gnmi_beside);
        if let Some(gnmi) = self.gnmi {
            gnmi.shutdown().await;
        }
        self.p4runtime.shutdown().await;
        Ok(())
    }

    /// Presents the certificates that the files have now. Half of a pair leaves the earlier in use.
    fn renew_certificates(&self, tls: &TlsFlags) {
        let replaced = tls.load_tls().and_then(|tls| match tls {
            Some(tls) => self.replace_certificates(&tls).map_err(CommandError::failed),
            None => Ok(()),
        });
        match replaced {
            Ok(()) => tracing::info!("the certificates were read again"),
            Err(error) => tracing::warn!(%error, "the earlier certificates stay in use"),
        }
    }

    fn replace_certificates(&self, tls: &ServiceTls) -> Result<(), ServeError> {
        self.p4runtime.replace_certificates(tls)?;
        self.gnmi.as_ref().map_or(Ok(()), |gnmi| gnmi.replace_certificates(tls))
    }
}

/// Logs what the ports have seen.
async fn log_port_counts(ports: &PortsHandle) {
    for port in ports.status().await.unwrap_or_default() {
        let dropped: u64 = port.levels.iter().map(|level| level.dropped.packets).sum();
        tracing::info!(
            port = port.number,
            name = port.name,
            up = port.state == PortState::Up,
            received = port.received.packets,
            sent = port.sent.packets,
            lost = port.lost,
            dropped,
            pause_frames_sent = port.pause_frames.sent,
            pause_frames_received = port.pause_frames.received,
            "port"
        );
        for (level, counts) in port.levels.iter().enumerate() {
            let is_quiet = counts.marked == 0 && counts.pauses == 0 && counts.dropped.packets == 0;
            if !is_quiet {
                tracing::info!(
                    port = port.number,
                    level,
                    marked = counts.marked,
                    pauses = counts.pauses,
                    paused_us = counts.paused_ns / 1_000,
                    dropped = counts.dropped.packets,
                    storm_drops = counts.storm_drops,
                    "queue"
                );
            }
        }
    }
}

/// Ctrl-C, and the signal that service managers end a program with.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From now on these signals no longer end the program by themselves.
    fn listen() -> Result<Self, CommandError> {
        let listen = |kind| signal(kind).map_err(CommandError::failed);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
