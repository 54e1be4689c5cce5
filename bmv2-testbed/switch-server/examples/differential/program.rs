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

/// Flags that a build without Thrift or nanomsg does not know. Thrift gets a port of the kernel's
/// choice, notifications stay in the process.
const OPTIONAL_FLAGS: [[&str; 2]; 2] =
    [["--thrift-port", "0"], ["--notifications-addr", "inproc://notifications"]];

/// Those of the optional flags that the program knows.
fn known_flags(program: &Path) -> std::io::Result<Vec<&'static str>> {
    let help = Command::new(program).arg("--help").output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let known = OPTIONAL_FLAGS.iter().filter(|[flag, _]| help.contains(flag));
    Ok(known.flatten().copied().collect())
}

/// Starts it without a program, with flags of its own and of its target (those after `--`) besides.
pub(crate) fn start(
    program: &Path,
    device_id: u64,
    at: SocketAddr,
    (own, target): (&[&str], &[&str]),
) -> std::io::Result<Child> {
    let [device_id, address] = [device_id.to_string(), at.to_string()];
    let mut command = Command::new(program);
    command.args(["--no-p4", "--device-id", &device_id]).args(known_flags(program)?).args(own);
    command.args(["--", "--grpc-server-addr", &address, "--priority-queues", "8"]).args(target);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn()
}
