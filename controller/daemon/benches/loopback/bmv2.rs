//! bmv2's `simple_switch_grpc` in a process of its own, where it is installed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tokio::net::TcpSocket;
use topology::Fabric;

use crate::Failed;
use crate::lab::{parts, small};

/// A small fabric of which only the first leaf is there, as a process that ends with this value.
pub(crate) struct SimpleSwitch {
    pub(crate) fabric: Fabric,
    process: Child,
}

impl SimpleSwitch {
    /// Starts it, empty; `None` where it is not on PATH.
    pub(crate) fn start() -> Result<Option<Self>, Failed> {
        let Some(program) = installed() else {
            return Ok(None);
        };
        let mut parts = parts(&small())?;
        let Some(switch) = parts.switches.first_mut() else {
            return Ok(None);
        };
        let address = free_port()?;
        switch.p4runtime = Some(address.to_string());
        let [device, address] = [switch.device_id.to_string(), address.to_string()];
        let own = ["--no-p4", "--thrift-port", "0", "--device-id", &device];
        let private = ["--notifications-addr", "inproc://notifications", "--"];
        let target = ["--grpc-server-addr", &address, "--cpu-port", "255"];
        let mut command = Command::new(program);
        command.args(own).args(private).args(target);
        command.args(["--priority-queues", "8"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(Stdio::null()).spawn()?;
        Ok(Some(Self {
            fabric: Fabric::new(parts),
            process,
        }))
    }
}

impl Drop for SimpleSwitch {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join("simple_switch_grpc"));
    places.into_iter().find(|place| place.is_file())
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr, Failed> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket.local_addr()?)
}
