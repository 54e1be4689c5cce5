//! Transmit counters of NICs in Linux.
//!
//! A NIC has `statistics/tx_bytes` in sysfs, and one that speaks RDMA counts that apart, in words
//! of four bytes for each port of its InfiniBand device (Linux `Documentation/ABI/stable/
//! sysfs-class-infiniband`); what it has sent is the sum. Read-only, and without any right. The
//! decision: files are opened anew for each reading, so an interface that goes and comes back is
//! read again, and one that is gone is an error of that reading alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a word of `port_xmit_data`.
const RDMA_WORD: u64 = 4;

/// The transmit counters of one network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicCounters {
    /// Its name.
    pub name: String,
    statistics: PathBuf,
    /// Counters of its RDMA ports.
    rdma_counters: Vec<PathBuf>,
}

impl NicCounters {
    /// The interface of this name; `sys` is `/sys`.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn open_interface(sys: &Path, name: &str) -> io::Result<Self> {
        let statistics = sys.join("class/net").join(name).join("statistics/tx_bytes");
        read_number(&statistics)?;
        Ok(Self { name: name.to_owned(), statistics, rdma_counters: rdma_ports(sys, name) })
    }

    /// All interfaces with a device behind them, by name. Without any, as in a network
    /// namespace, all but the loopback.
    ///
    /// # Errors
    /// `sys` is no sysfs.
    pub fn open_all(sys: &Path) -> io::Result<Vec<Self>> {
        let mut names = list_names(&sys.join("class/net"))?;
        names.sort();
        let with_device: Vec<String> = names
            .iter()
            .filter(|name| sys.join("class/net").join(name).join("device").exists())
            .cloned()
            .collect();
        if !with_device.is_empty() {
            names = with_device;
        }
        names.retain(|name| name != "lo");
        names.iter().map(|name| Self::open_interface(sys, name)).collect()
    }

    /// Whether it counts RDMA.
    pub fn has_rdma(&self) -> bool {
        !self.rdma_counters.is_empty()
    }

    /// Bytes sent since it counts.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn sent_bytes(&self) -> io::Result<u64> {
        let mut sent = read_number(&self.statistics)?;
        for port in &self.rdma_counters {
            sent = sent.wrapping_add(read_number(port)?.wrapping_mul(RDMA_WORD));
        }
        Ok(sent)
    }
}

/// `port_xmit_data` of every port of the InfiniBand devices of an interface.
fn rdma_ports(sys: &Path, name: &str) -> Vec<PathBuf> {
    let devices = sys.join("class/infiniband");
    let mut ports = Vec::new();
    for device in list_names(&devices).unwrap_or_default() {
        let device = devices.join(device);
        if !device.join("device/net").join(name).exists() {
            continue;
        }
        for port in list_names(&device.join("ports")).unwrap_or_default() {
            let counter = device.join("ports").join(port).join("counters/port_xmit_data");
            ports.extend(Some(counter).filter(|counter| read_number(counter).is_ok()));
        }
    }
    ports.sort();
    ports
}

fn list_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn read_number(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let number = text.trim().parse();
    number.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn ethernet_and_rdma_are_added_and_absent_ones_are_errors() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        assert!(NicCounters::open_all(sys).is_err());
        for (name, sent) in [("lo", "5"), ("eth1", "200\n"), ("eth0", "100\n")] {
            write(&sys.join(format!("class/net/{name}/statistics/tx_bytes")), sent);
        }
        let names =
            |nics: &[NicCounters]| nics.iter().map(|nic| nic.name.clone()).collect::<Vec<_>>();
        // In a namespace, nothing has a device.
        assert_eq!(names(&NicCounters::open_all(sys).unwrap()), ["eth0", "eth1"]);
        write(&sys.join("class/net/eth1/device/vendor"), "0x15b3");
        let device = sys.join("class/infiniband/mlx5_0");
        write(&device.join("device/net/eth1/mtu"), "4200");
        write(&device.join("ports/1/counters/port_xmit_data"), "1000\n");
        let all = NicCounters::open_all(sys).unwrap();
        assert_eq!(names(&all), ["eth1"]);
        assert!(all[0].has_rdma());
        assert_eq!(all[0].sent_bytes().unwrap(), 4200);
        fs::remove_dir_all(sys.join("class/net/eth1")).unwrap();
        assert!(all[0].sent_bytes().is_err());
        assert!(NicCounters::open_interface(sys, "eth7").is_err());
    }
}
