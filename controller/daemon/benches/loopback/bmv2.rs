//! bmv2's `simple_switch_grpc` in a process of its own, where it is installed.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Child;

use tokio::net::TcpSocket;
use topology::Fabric;

use crate::Failed;
use crate::lab::{parts, small};

#[path = "../../../../bmv2-testbed/switch-server/examples/differential/program.rs"]
mod program;

/// A small fabric of which only the first leaf is there, as a process that ends with this value.
pub(crate) struct SimpleSwitch {
    pub(crate) fabric: Fabric,
    process: Child,
}

impl SimpleSwitch {
    /// Starts it, empty; `None` where it is not on PATH.
    pub(crate) fn start() -> Result<Option<Self>, Failed> {
        let Some(program) = program::installed() else {
            return Ok(None);
        };
        let mut parts = parts(&small())?;
        let Some(switch) = parts.switches.first_mut() else {
            return Ok(None);
        };
        let address = free_port()?;
        switch.p4runtime = Some(address.to_string());
        let process =
            program::start(&program, switch.device_id, address, (&[], &["--cpu-port", "255"]))?;
        Ok(Some(Self { fabric: Fabric::new(parts), process }))
    }
}

impl Drop for SimpleSwitch {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr, Failed> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket.local_addr()?)
}
