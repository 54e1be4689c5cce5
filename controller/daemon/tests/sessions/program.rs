//! The program `simple_switch_grpc`, for tests and benchmarks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where on PATH it is.
pub(crate) fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join("simple_switch_grpc"));
    places.into_iter().find(|place| place.is_file())
}

/// Starts it without a program. Thrift gets a port of the kernel's choice, notifications stay in
/// the process.
pub(crate) fn start(program: &Path, device_id: u64, at: SocketAddr) -> std::io::Result<Child> {
    let [device_id, address] = [device_id.to_string(), at.to_string()];
    let own = ["--no-p4", "--thrift-port", "0", "--device-id", &device_id];
    let private = ["--notifications-addr", "inproc://notifications", "--"];
    let target = ["--grpc-server-addr", &address, "--cpu-port", "255"];
    let mut command = Command::new(program);
    command.args(own).args(private).args(target);
    command.args(["--priority-queues", "8"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn()
}
