//! A fabric of bmv2's `simple_switch_grpc`, one process each, without interfaces.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Child;

use tokio::net::TcpSocket;
use topology::Fabric;

use crate::lab::{Lab, parts};
use crate::program::{installed, start};

/// Flags of its own and of its target: the port of the controller.
const FLAGS: (&[&str], &[&str]) = (&[], &["--cpu-port", "255"]);

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
            let process = start(&program, switch.device_id, port.address, FLAGS).unwrap();
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
        self.process = start(&self.program, self.device_id, self.port.address, FLAGS).unwrap();
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
        Self { address: socket.local_addr().unwrap(), _socket: socket }
    }
}
