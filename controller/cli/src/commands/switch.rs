//! `crux switch`: the embedded switch as a program, with the flags of simple_switch_grpc.
//!
//! The decision: a script that starts simple_switch_grpc starts this instead by changing the name
//! alone. Flags of debugging aids that it does not have are taken and ignored, so that this holds;
//! anything else that it does not know is an error.

mod port_flags;
mod tls_flags;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use switch::election::Dialect;
use switch::ports::{self, PortState, PortsHandle, PortsOptions};
use switch::service::{self, ServiceOptions};
use switch::{Device, DeviceConfig, Program, QueueLimits};
use tokio::net::TcpListener;

use self::port_flags::{Attachment, PortRate};
use self::tls_flags::TlsFlags;
use crate::failure::Failure;
use crate::{files, output};

/// Forward packets between interfaces and serve P4Runtime, until interrupted.
///
/// Flags are those of simple_switch_grpc, its target's flags after `--` included, so that a script
/// can start one instead of the other. Interfaces need CAP_NET_RAW (root has it). Each port has
/// strict-priority queues over one rate, which bmv2 does not have.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux switch --no-p4 --device-id 1 -i 1@veth1 -i 2@veth2 -- --grpc-server-addr 127.0.0.1:50001
  crux switch fabric.json -i 1@veth1 -i 2@veth2 --port-rate 10M --port-rate 2=100M
  crux switch fabric.json -i 1@a -i 2@b --use-files 0     # a_in.pcap, b_in.pcap -> *_out.pcap")]
pub(crate) struct Args {
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
    interfaces: Vec<Attachment>,
    /// Record what passes each interface, in INTERFACE_in.pcap and INTERFACE_out.pcap there
    #[arg(
        long,
        value_name = "FOLDER",
        num_args = 0..=1,
        require_equals = true,
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
    /// When the primary leaves, promote the best backup as bmv2 does; the specification promotes
    /// nobody
    #[arg(long)]
    bmv2_arbitration: bool,
    #[command(flatten)]
    ignored: Ignored,
    #[command(flatten)]
    target: Target,
    /// The target's flags again, as simple_switch_grpc wants them: after --
    #[arg(last = true, value_name = "TARGET FLAGS")]
    target_flags: Vec<String>,
}

/// Flags of debugging aids of bmv2 that are not here: taken, so that scripts run, and ignored.
#[derive(clap::Args)]
#[command(next_help_heading = "Taken for compatibility and ignored")]
struct Ignored {
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
struct Target {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0:9559")]
    grpc_server_addr: SocketAddr,
    /// Port that leads to the controller
    #[arg(long, default_value_t = 255)]
    cpu_port: u16,
    /// Priority queues of every port
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=8))]
    priority_queues: u8,
    /// bmv2's swapping of programs; taken and ignored
    #[arg(long)]
    disable_swap: bool,
    #[command(flatten)]
    tls: TlsFlags,
}

/// The flags after `--`, parsed as a command line of their own.
#[derive(clap::Parser)]
#[command(
    no_binary_name = true,
    name = "crux switch … --",
    disable_help_flag = true
)]
struct TargetLine {
    #[command(flatten)]
    target: Target,
}

impl Args {
    fn target(&self) -> Result<Target, Failure> {
        if self.target_flags.is_empty() {
            return Ok(self.target.clone());
        }
        let line = <TargetLine as clap::Parser>::try_parse_from(&self.target_flags);
        line.map(|line| line.target)
            .map_err(|error| Failure::input("flags after --", error))
    }

    fn ports(&self) -> Result<PortsOptions, Failure> {
        let queue = QueueLimits {
            bytes: self.queue_bytes,
            mark_from: self.ecn_threshold,
        };
        let shapes = port_flags::Shapes::new(&self.port_rates, queue);
        let files = self.use_files.is_some();
        let port = |attachment: &Attachment| {
            let medium = if files {
                attachment.files()
            } else {
                attachment.interface()
            };
            shapes.port(attachment.port, medium)
        };
        let ports: Vec<_> = self.interfaces.iter().map(port).collect();
        if let Some(stray) = shapes.stray(&ports) {
            let what = format!("port {stray} is attached to nothing; give it with -i");
            return Err(Failure::input("--port-rate", what));
        }
        Ok(PortsOptions {
            ports,
            record: self.pcap.clone(),
            replay_after: Duration::from_secs(self.use_files.unwrap_or_default()),
        })
    }

    fn dialect(&self) -> Dialect {
        if self.bmv2_arbitration {
            Dialect::Bmv2
        } else {
            Dialect::Specification
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target()?;
    let program = args.program.as_deref().map(load).transpose()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::work(&error))?;
    runtime.block_on(serve(args, &target, program))
}

fn load(file: &str) -> Result<Arc<Program>, Failure> {
    let text = files::text(file)?;
    let program = Program::load(text.as_bytes());
    program
        .map(Arc::new)
        .map_err(|error| Failure::input(file, error))
}

async fn serve(args: &Args, target: &Target, program: Option<Arc<Program>>) -> Result<(), Failure> {
    let listener = TcpListener::bind(target.grpc_server_addr).await;
    let listener = listener.map_err(|error| Failure::input(target.grpc_server_addr, error))?;
    let mut device = Device::new(DeviceConfig {
        device_id: args.device_id,
        cpu_port: target.cpu_port,
        levels: target.priority_queues,
    });
    if let Some(program) = program {
        device.load(program);
    }
    let ports = ports::spawn(device, &args.ports()?).map_err(|error| Failure::work(&error))?;
    let options = ServiceOptions {
        dialect: args.dialect(),
        tls: target.tls.read()?,
        ..ServiceOptions::default()
    };
    let server = service::serve(listener, ports.device(), options).await;
    let server = server.map_err(|error| Failure::work(&error))?;
    output::print(format_args!(
        "device {} serves P4Runtime on {}",
        args.device_id,
        server.local_addr()
    ))?;
    interrupted().await?;
    server.shutdown().await;
    say_farewell(&ports).await;
    ports.stop().await;
    Ok(())
}

/// Logs what the ports have seen.
async fn say_farewell(ports: &PortsHandle) {
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
            "port"
        );
    }
}

/// Waits for Ctrl-C or the signal that service managers end a program with.
async fn interrupted() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::work(&error))?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.map_err(|error| Failure::work(&error)),
        _ = terminate.recv() => Ok(()),
    }
}
