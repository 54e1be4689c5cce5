//! The RoCEv2 connections of this host's processes, each with its UDP source port and its job.
//!
//! Joins the queue pairs that the kernel lists with the jobs of their processes. What is not known
//! stays empty: a queue pair without a peer has no port yet, and the kernel does not list the
//! address of a peer, so a connection names the numbers of both ends only. Numbers repeat between
//! devices. The addresses of a device are its GIDs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::process_job::{self, SchedulerJob};
use crate::queue_pairs::reader::{NldevSocket, has_known_ports};
use crate::queue_pairs::{NldevError, QueuePair};
use crate::source_port::source_port;

/// Places of a device's table of GIDs that are read: an address has one for each version of RoCE.
const MAX_GIDS: u32 = 32;
/// Ports of a device; it has one or two.
const MAX_PORTS: usize = 8;

/// Where the facts about this host are.
#[derive(Clone, Debug)]
pub struct HostPaths {
    /// Mount point of sysfs, `/sys`.
    pub sys: PathBuf,
    /// Mount point of procfs, `/proc`.
    pub proc: PathBuf,
    /// The folder with a file of job ids for each GPU, if a prolog writes one.
    pub gpu_jobs: Option<PathBuf>,
}

/// A queue pair with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaFlow {
    /// The RDMA device.
    pub device: String,
    /// As the kernel lists it.
    #[serde(flatten)]
    pub queue_pair: QueuePair,
    /// The UDP port that it sends from, if it has a peer and its driver a known formula.
    pub udp_src_port: Option<u16>,
    /// The job of its process.
    #[serde(flatten)]
    pub owner: Option<SchedulerJob>,
}

/// What this host knows about its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RdmaFlows {
    /// Sorted by device and number.
    pub flows: Vec<RdmaFlow>,
    /// Queue pairs that were left out because there are too many.
    pub dropped: usize,
    /// The jobs of each GPU, where a prolog writes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_jobs: BTreeMap<String, Vec<String>>,
    /// The addresses of each device.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// Reads all connections of this host.
///
/// # Errors
/// The kernel has no RDMA, or refuses to list queue pairs.
pub fn read_rdma_flows(paths: &HostPaths) -> Result<RdmaFlows, NldevError> {
    let mut socket = NldevSocket::open()?;
    let mut found = RdmaFlows { gpu_jobs: gpu_jobs(paths), ..RdmaFlows::default() };
    let mut owners = ProcessOwners::new(&paths.proc);
    for device in socket.read_devices()? {
        let addresses = read_addresses(&paths.sys, &device.name);
        found.addresses.insert(device.name.clone(), addresses);
        let has_ports = has_known_ports(&paths.sys, &device.name);
        let dump = socket.read_queue_pairs(&device)?;
        found.dropped += dump.dropped;
        found.flows.extend(dump.items.into_iter().map(|pair| {
            let owner = pair.pid.and_then(|pid| owners.find_job(pid));
            join_flow(&device.name, pair, has_ports, owner)
        }));
    }
    Ok(found)
}

/// The IP addresses of a device: its GIDs of the first [`MAX_GIDS`] places of each port, without
/// those that stand for no address of the fabric (unset, or local to the link). RoCEv2 writes IPv4
/// as `::ffff:a.b.c.d`.
pub(crate) fn read_addresses(sys: &Path, device: &str) -> Vec<IpAddr> {
    let ports = sys.join("class/infiniband").join(device).join("ports");
    let ports = std::fs::read_dir(ports).into_iter().flatten().flatten().take(MAX_PORTS);
    let files = ports.flat_map(|port| {
        (0..MAX_GIDS).map(move |place| port.path().join("gids").join(place.to_string()))
    });
    let gids = files.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    let usable =
        gids.filter(|gid: &Ipv6Addr| !gid.is_unspecified() && !gid.is_unicast_link_local());
    let mut addresses: Vec<IpAddr> = usable.map(|gid| IpAddr::V6(gid).to_canonical()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn gpu_jobs(paths: &HostPaths) -> BTreeMap<String, Vec<String>> {
    let folder = paths.gpu_jobs.as_deref();
    folder.and_then(|folder| process_job::read_gpu_jobs(folder).ok()).unwrap_or_default()
}

fn join_flow(
    device: &str,
    queue_pair: QueuePair,
    has_ports: bool,
    owner: Option<SchedulerJob>,
) -> RdmaFlow {
    let remote = queue_pair.remote_number.filter(|remote| *remote != 0);
    let udp_src_port =
        remote.filter(|_| has_ports).map(|remote| source_port(queue_pair.local_number, remote));
    RdmaFlow { device: device.to_owned(), queue_pair, udp_src_port, owner }
}

/// Jobs of processes, each process read once: a process of NCCL has hundreds of queue pairs.
struct ProcessOwners<'a> {
    proc: &'a Path,
    known: BTreeMap<u32, Option<SchedulerJob>>,
}

impl<'a> ProcessOwners<'a> {
    fn new(proc: &'a Path) -> Self {
        Self { proc, known: BTreeMap::new() }
    }

    fn find_job(&mut self, pid: u32) -> Option<SchedulerJob> {
        let read = || process_job::find_process_job(self.proc, pid);
        self.known.entry(pid).or_insert_with(read).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: u32, remote: Option<u32>) -> QueuePair {
        QueuePair { local_number: local, remote_number: remote, ..QueuePair::default() }
    }

    #[test]
    fn only_connected_queue_pairs_of_known_drivers_have_a_port() {
        let port = |known, remote| join_flow("d", pair(0x11, remote), known, None).udp_src_port;
        assert_eq!(port(true, Some(0x12)), Some(49458));
        assert_eq!(port(true, None), None);
        assert_eq!(port(true, Some(0)), None);
        assert_eq!(port(false, Some(0x12)), None);
    }

    #[test]
    fn addresses_of_a_device_are_its_gids() {
        let sys = tempfile::tempdir().unwrap();
        let gids = sys.path().join("class/infiniband/mlx5_0/ports/1/gids");
        std::fs::create_dir_all(&gids).unwrap();
        let texts = [
            "fe80:0000:0000:0000:0a00:27ff:fe00:0001\n",
            "0000:0000:0000:0000:0000:ffff:0a00:0101\n",
            "0000:0000:0000:0000:0000:ffff:0a00:0101\n",
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
            "fd00:0000:0000:0001:0000:0000:0000:0001\n",
        ];
        for (place, text) in texts.iter().enumerate() {
            std::fs::write(gids.join(place.to_string()), text).unwrap();
        }
        let addresses: Vec<String> =
            read_addresses(sys.path(), "mlx5_0").iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.1.1", "fd00:0:0:1::1"]);
        assert_eq!(read_addresses(sys.path(), "mlx5_1"), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_flow_is_printed_with_its_job() {
        let owner = Some(SchedulerJob::Slurm(7));
        let flow = join_flow("rxe0", pair(0x11, Some(1)), false, owner);
        let json = serde_json::to_value(&flow).unwrap();
        assert_eq!((&json["scheduler"], &json["job"]), (&"slurm".into(), &7.into()));
        assert_eq!((&json["device"], &json["local_number"]), (&"rxe0".into(), &17.into()));
    }
}
