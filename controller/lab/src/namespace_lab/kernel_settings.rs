//! Settings of the kernel for the interfaces of a lab.
//!
//! Hosts with several NICs need reverse-path filtering off, and interfaces must say nothing by
//! themselves. The decision: a thread enters the namespace of a host and writes there, so that
//! sysctl need not be installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use command_io::CommandError;
use nix::sched::{CloneFlags, setns};

use super::network_layout::HostLayout;

/// How long the kernel may take until an interface works.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of looks at an interface.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Prepares the interfaces in the namespace of a host.
///
/// # Errors
/// The namespace cannot be entered, or the kernel refuses a setting.
pub(super) fn prepare_host(host: &HostLayout) -> Result<(), CommandError> {
    let prepared = thread::scope(|scope| scope.spawn(|| prepare_in_namespace(host)).join());
    let prepared = prepared.unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
    prepared.map_err(|error| CommandError::input(&host.namespace, error))
}

/// Runs on a thread of its own, which stays in the namespace.
fn prepare_in_namespace(host: &HostLayout) -> io::Result<()> {
    let namespace = File::open(Path::new("/run/netns").join(&host.namespace))?;
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    for interface in ["all", "default"] {
        set_sysctl("ipv4", interface, "rp_filter", "0")?;
    }
    if host.has_bonds() {
        share_routes_by_connection()?;
    }
    for (nic, interface) in host.interfaces() {
        set_sysctl("ipv4", interface, "rp_filter", "0")?;
        // Of a route over two ports, the one without a carrier is out of use.
        set_sysctl("ipv4", interface, "ignore_routes_with_linkdown", "1")?;
        match nic.is_ipv6() {
            true => {
                for (setting, value) in [
                    ("accept_ra", "0"),
                    ("accept_dad", "0"),
                    ("addr_gen_mode", "1"),
                    ("ignore_routes_with_linkdown", "1"),
                ] {
                    set_sysctl("ipv6", interface, setting, value)?;
                }
            }
            false => silence_ipv6(interface)?,
        }
    }
    Ok(())
}

/// Has routes of this namespace over several interfaces choose one by the ports of a connection, as a
/// bond does.
fn share_routes_by_connection() -> io::Result<()> {
    for family in ["ipv4", "ipv6"] {
        match fs::write(format!("/proc/sys/net/{family}/fib_multipath_hash_policy"), "1") {
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            set => set?,
        }
    }
    Ok(())
}

/// Keeps an interface of this machine from sending anything of its own.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn silence_interface(interface: &str) -> Result<(), CommandError> {
    silence_ipv6(interface).map_err(|error| CommandError::input(interface, error))
}

/// A kernel without IPv6 has nothing to silence.
fn silence_ipv6(interface: &str) -> io::Result<()> {
    match set_sysctl("ipv6", interface, "disable_ipv6", "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        set => set,
    }
}

fn set_sysctl(family: &str, interface: &str, setting: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/{family}/conf/{interface}/{setting}"), value)
}

/// Waits until the kernel says that interfaces of this machine work: a controller that is started
/// before takes their cables for failed ones.
///
/// # Errors
/// One does not work in time.
pub(super) fn await_carriers<'a>(
    interfaces: impl Iterator<Item = &'a str>,
) -> Result<(), CommandError> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    for interface in interfaces {
        while !has_carrier(interface) {
            if Instant::now() > deadline {
                return Err(CommandError::Failed(format!("{interface} has no carrier")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Whether an interface of this machine works.
pub(super) fn has_carrier(interface: &str) -> bool {
    let file = PathBuf::from("/sys/class/net").join(interface).join("operstate");
    fs::read_to_string(file).is_ok_and(|state| state.trim() == "up")
}

/// Whether this machine has an interface of that name.
pub(super) fn interface_exists(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).exists()
}
