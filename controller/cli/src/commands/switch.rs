//! `crux switch`: the embedded switch as a program, with the flags of simple_switch_grpc.
//!
//! It serves P4Runtime; ports that carry packets exist on the in-process fabric only.

use std::net::SocketAddr;
use std::sync::Arc;

use switch::election::Dialect;
use switch::service::{self, ServiceOptions};
use switch::{DeviceConfig, FabricBuilder, Pace, Program};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::{files, output};

/// Serve P4Runtime for an embedded switch until interrupted.
///
/// Flags are those of simple_switch_grpc, its target's flags after `--` included, so that a script
/// can start one instead of the other. The switch has no packet ports of its own yet: programs,
/// tables, counters and the packet stream work, and no interface can be attached.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux switch --no-p4 --device-id 1 -- --grpc-server-addr 127.0.0.1:50001 --cpu-port 255
  crux switch fabric.json --priority-queues 8")]
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
    /// When the primary leaves, promote the best backup as bmv2 does; the specification promotes
    /// nobody
    #[arg(long)]
    bmv2_arbitration: bool,
    #[command(flatten)]
    target: Target,
    /// The target's flags again, as simple_switch_grpc wants them: after --
    #[arg(last = true, value_name = "TARGET FLAGS")]
    target_flags: Vec<String>,
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
    let mut builder = FabricBuilder::new();
    let device = builder.add_device(DeviceConfig {
        device_id: args.device_id,
        cpu_port: target.cpu_port,
        levels: target.priority_queues,
    });
    let fabric = builder.spawn().map_err(|error| Failure::work(&error))?;
    fabric
        .release(Pace::RealTime)
        .await
        .map_err(|error| Failure::work(&error))?;
    let device = fabric.device(device);
    if let Some(program) = program {
        let loaded = device.with(move |device| device.load(program)).await;
        loaded.map_err(|error| Failure::work(&error))?;
    }
    let listener = TcpListener::bind(target.grpc_server_addr).await;
    let listener = listener.map_err(|error| Failure::input(target.grpc_server_addr, error))?;
    let options = ServiceOptions {
        dialect: args.dialect(),
        ..ServiceOptions::default()
    };
    let server = service::serve(listener, device, options).await;
    let server = server.map_err(|error| Failure::work(&error))?;
    output::print(format_args!(
        "device {} serves P4Runtime on {}",
        args.device_id,
        server.local_addr()
    ))?;
    interrupted().await?;
    server.shutdown().await;
    fabric.stop().await;
    Ok(())
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
