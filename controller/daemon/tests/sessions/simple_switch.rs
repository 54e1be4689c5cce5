//! A fabric of bmv2's `simple_switch_grpc`, one process each, without interfaces.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::net::TcpSocket;
use topology::Fabric;

use crate::lab::{Lab, parts};

/// A switch in a process of its own, which ends with the value.
pub(crate) struct SimpleSwitch {
    program: PathBuf,
    device_id: u64,
    port: Reserved,
    process: Child,
}

/// A port that nobody else gets, not even while the switch restarts: this socket is bound to it,
/// never listens, and lets others share it, as gRPC servers ask to.
struct Reserved {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Lab<Vec<SimpleSwitch>> {
    /// The lab on `simple_switch_grpc`; `None` where that is not installed.
    pub(crate) fn bmv2() -> Option<Self> {
        let program = installed()?;
        let mut parts = parts();
        let mut switches = Vec::new();
        for switch in &mut parts.switches {
            let port = Reserved::any();
            switch.p4runtime = Some(port.address.to_string());
            let process = start(&program, switch.device_id, port.address);
            switches.push(SimpleSwitch {
                program: program.clone(),
                device_id: switch.device_id,
                port,
                process,
            });
        }
        let fabric = Fabric::new(parts);
        Some(Self { fabric, switches })
    }
}

impl SimpleSwitch {
    /// Kills the switch and starts it again where it was, empty.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = start(&self.program, self.device_id, self.port.address);
    }

    fn kill(&mut self) {
        // It may have ended by itself, which is as good.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for SimpleSwitch {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Reserved {
    fn any() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self {
            address: socket.local_addr().unwrap(),
            _socket: socket,
        }
    }
}

/// Where on PATH `simple_switch_grpc` is.
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join("simple_switch_grpc"));
    places.into_iter().find(|place| place.is_file())
}

/// Thrift gets a port of the kernel's choice, notifications stay in the process.
fn start(program: &Path, device_id: u64, address: SocketAddr) -> Child {
    let [device_id, address] = [device_id.to_string(), address.to_string()];
    let own = ["--no-p4", "--thrift-port", "0", "--device-id", &device_id];
    let private = ["--notifications-addr", "inproc://notifications", "--"];
    let target = ["--grpc-server-addr", &address, "--cpu-port", "255"];
    let mut command = Command::new(program);
    command.args(own).args(private).args(target);
    command.args(["--priority-queues", "8"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}
