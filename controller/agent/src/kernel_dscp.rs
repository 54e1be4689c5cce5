//! Sets the DSCP of what this host sends, by the means that its kernel and its drivers have.
//!
//! Two, each where it exists. Packets that the kernel sends, soft RoCE among them, pass a chain of
//! `iptables` (`ip6tables`) of this module's own, which is replaced as a whole: no packet sees a
//! part of it. Queue pairs of RDMA NICs pass no chain: there the driver of MLNX_OFED has a file for
//! each port of a device, `tc/1/traffic_class`, that sets the class of present and future queue
//! pairs by a pair of addresses. Upstream drivers have no such file, and no other process can
//! change a queue pair. What cannot be set is returned in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::dscp_rules::{AddressPair, DscpRules};
use crate::rdma_flows::read_addresses;

/// The chain of this module.
const CHAIN: &str = "CRUX-DSCP";
/// What leads there.
const JUMP: &str = "POSTROUTING -p udp -m udp --dport 4791 -j CRUX-DSCP";
/// Bytes of the complaint of a program that are kept.
const MAX_COMPLAINT: usize = 200;
/// RDMA devices of a host.
const MAX_DEVICES: usize = 64;
/// ECN bits of a traffic class: the sender understands congestion marks (ECT(0)).
const ECN_CAPABLE: u8 = 2;

/// Sets and takes back what a host writes into its packets; may block.
pub trait DscpSetter: Debug + Send + Sync {
    /// Makes these rules those in force; what cannot be done, in words.
    fn apply_rules(&self, rules: &DscpRules) -> Vec<String>;

    /// Takes back everything that was set; what cannot be done, in words.
    fn undo_rules(&self) -> Vec<String>;
}

/// The kernel of this host, in the network namespace of the calling thread.
#[derive(Debug)]
pub struct KernelDscp {
    sys: PathBuf,
    set: Mutex<SetRules>,
}

/// What was set and has to be taken back.
#[derive(Debug, Default)]
struct SetRules {
    /// Whether the chain of IPv4, and that of IPv6, may be there.
    chains: BTreeSet<bool>,
    /// Files of drivers, and the pairs that were written to them.
    files: BTreeMap<PathBuf, BTreeMap<AddressPair, u8>>,
}

impl KernelDscp {
    /// The kernel whose sysfs is mounted at `sys`.
    pub fn new(sys: &Path) -> Self {
        // A chain of an agent that was killed is replaced or removed like an own one.
        let set = SetRules { chains: [false, true].into(), files: BTreeMap::new() };
        Self { sys: sys.to_owned(), set: Mutex::new(set) }
    }
}

impl DscpSetter for KernelDscp {
    fn apply_rules(&self, rules: &DscpRules) -> Vec<String> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let mut problems = Vec::new();
        for is_ipv6 in [false, true] {
            if rules.has_family(is_ipv6) {
                set.chains.insert(is_ipv6);
                problems.extend(replace_chain(rules, is_ipv6).err());
            } else if set.chains.remove(&is_ipv6) {
                problems.extend(remove_chain(is_ipv6).err());
            }
        }
        problems.extend(set.write_devices(&self.sys, rules));
        problems.extend(left_out_problem(rules));
        problems
    }

    fn undo_rules(&self) -> Vec<String> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let chains = std::mem::take(&mut set.chains);
        let mut problems: Vec<String> =
            chains.into_iter().filter_map(|is_ipv6| remove_chain(is_ipv6).err()).collect();
        problems.extend(set.write_devices(&self.sys, &DscpRules::default()));
        problems
    }
}

impl SetRules {
    /// Writes what differs to the files of drivers.
    fn write_devices(&mut self, sys: &Path, rules: &DscpRules) -> Vec<String> {
        let mut problems = Vec::new();
        for device in device_names(sys) {
            let addresses = read_addresses(sys, &device);
            let (mut pairs, mixed) = rules.device_pairs(&addresses);
            let file = sys.join("class/infiniband").join(&device).join("tc/1/traffic_class");
            let had = self.files.remove(&file).unwrap_or_default();
            if pairs.is_empty() && mixed == 0 && had.is_empty() {
                continue;
            }
            match driver_refusal(&file, &device) {
                Some(refusal) => {
                    pairs.clear();
                    problems.push(refusal);
                }
                None if mixed > 0 => problems.push(format!(
                    "{device}: {mixed} pairs of NICs have connections of several levels, and its \
                     driver sets a class by pair"
                )),
                None => {}
            }
            let (kept, problem) = write_pairs(&file, &had, &pairs);
            problems.extend(problem.map(|problem| format!("{device}: {problem}")));
            if !kept.is_empty() {
                self.files.insert(file, kept);
            }
        }
        problems
    }
}

fn device_names(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/infiniband")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(MAX_DEVICES).collect();
    names.sort();
    names
}

/// Why a driver takes no class of a pair.
fn driver_refusal(file: &Path, device: &str) -> Option<String> {
    match fs::read_to_string(file) {
        Ok(text) if text.starts_with("Global tclass=") => Some(format!(
            "{device}: {} has a class for everything already; write -1 to it to leave the choice \
             to the agent",
            file.display()
        )),
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!(
            "{device}: its driver lets nobody change the class of queue pairs (no {}); start jobs \
             with NCCL_IB_TC",
            file.display()
        )),
        Err(error) => Some(format!("{device}: cannot read {}: {error}", file.display())),
    }
}

/// Changes what a file has from `had` to `wanted`; what it has then, and the first problem.
fn write_pairs(
    file: &Path,
    had: &BTreeMap<AddressPair, u8>,
    wanted: &BTreeMap<AddressPair, u8>,
) -> (BTreeMap<AddressPair, u8>, Option<String>) {
    let mut kept = had.clone();
    let mut problem = None;
    let gone = had.keys().filter(|pair| !wanted.contains_key(pair)).map(|pair| (*pair, None));
    let new = wanted.iter().filter(|(pair, dscp)| had.get(*pair) != Some(*dscp));
    let changes: Vec<_> = gone.chain(new.map(|(pair, dscp)| (*pair, Some(*dscp)))).collect();
    for (pair, dscp) in changes {
        match fs::write(file, driver_line(pair, dscp)) {
            Ok(()) => match dscp {
                Some(dscp) => drop(kept.insert(pair, dscp)),
                None => drop(kept.remove(&pair)),
            },
            Err(error) => {
                problem.get_or_insert(format!("cannot write {}: {error}", file.display()));
            }
        }
    }
    (kept, problem)
}

/// The class of a pair as the driver reads it; without a DSCP, the pair has none any more.
fn driver_line((src, dst): AddressPair, dscp: Option<u8>) -> String {
    let family = if src.is_ipv6() { "6" } else { "" };
    let class = dscp.map_or(-1, |dscp| i16::from(dscp << 2 | ECN_CAPABLE));
    format!("src_ip{family}={src},dst_ip{family}={dst},tclass={class}\n")
}

fn left_out_problem(rules: &DscpRules) -> Option<String> {
    (rules.left_out > 0).then(|| format!("{} flows are too many to be marked", rules.left_out))
}

/// Replaces the chain and leads packets there, in one transaction.
fn replace_chain(rules: &DscpRules, is_ipv6: bool) -> Result<(), String> {
    let jump = match is_jump_set(is_ipv6)? {
        true => String::new(),
        false => format!("-A {JUMP}\n"),
    };
    let lines = rules.iptables_lines(CHAIN, is_ipv6);
    restore_tables(is_ipv6, &format!("*mangle\n:{CHAIN} - [0:0]\n{jump}{lines}COMMIT\n"))
}

/// Removes the chain, if it is there.
fn remove_chain(is_ipv6: bool) -> Result<(), String> {
    if !is_jump_set(is_ipv6)? {
        return Ok(());
    }
    restore_tables(is_ipv6, &format!("*mangle\n-D {JUMP}\n-F {CHAIN}\n-X {CHAIN}\nCOMMIT\n"))
}

fn is_jump_set(is_ipv6: bool) -> Result<bool, String> {
    let name = program_name(is_ipv6, "");
    let arguments = format!("-w 5 -t mangle -C {JUMP}");
    let output = Command::new(name).args(arguments.split(' ')).stdin(Stdio::null()).output();
    match output {
        Ok(output) => Ok(output.status.success()),
        // Without the program nothing is set, and callers that set something report it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(start_problem(name, &error)),
    }
}

fn restore_tables(is_ipv6: bool, text: &str) -> Result<(), String> {
    let name = program_name(is_ipv6, "-restore");
    let output = run_with_input(name, &["-w", "5", "--noflush"], text);
    let output = output.map_err(|error| start_problem(name, &error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", complaint(&output.stderr))),
    }
}

fn run_with_input(name: &str, arguments: &[&str], text: &str) -> std::io::Result<Output> {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // A program that refuses early does not read all; its complaint says more than that.
    drop(child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes())));
    child.wait_with_output()
}

const fn program_name(is_ipv6: bool, suffix: &str) -> &'static str {
    match (is_ipv6, suffix.is_empty()) {
        (false, true) => "iptables",
        (true, true) => "ip6tables",
        (false, false) => "iptables-restore",
        (true, false) => "ip6tables-restore",
    }
}

fn start_problem(name: &str, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("no program {name}; install iptables"),
        _ => format!("cannot run {name}: {error}"),
    }
}

/// The first line of what a program says, shortened.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed");
    line.trim().chars().take(MAX_COMPLAINT).collect()
}

#[cfg(test)]
mod tests {
    use api::telemetry as proto;

    use super::*;

    const FILE: &str = "class/infiniband/mlx5_0/tc/1/traffic_class";

    /// A device with one address, whose driver has a file if `text` is given.
    fn sysfs(text: Option<&str>) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let device = sys.path().join("class/infiniband/mlx5_0");
        fs::create_dir_all(device.join("ports/1/gids")).unwrap();
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";
        fs::write(device.join("ports/1/gids/0"), gid).unwrap();
        if let Some(text) = text {
            fs::create_dir_all(device.join("tc/1")).unwrap();
            fs::write(sys.path().join(FILE), text).unwrap();
        }
        sys
    }

    fn rules(flows: &[(u32, Option<u32>)]) -> DscpRules {
        let job = |(dscp, udp_src_port): &(u32, Option<u32>)| proto::JobLevel {
            dscp: Some(*dscp),
            flows: vec![proto::LevelFlow {
                src: "10.0.0.1".to_owned(),
                dst: "10.0.0.2".to_owned(),
                udp_src_port: *udp_src_port,
            }],
            ..proto::JobLevel::default()
        };
        let jobs = flows.iter().map(job).collect();
        DscpRules::from_levels(&proto::HostLevels { jobs, ..Default::default() })
    }

    #[test]
    fn a_driver_that_takes_classes_of_pairs_gets_them_and_loses_them_again() {
        let sys = sysfs(Some(""));
        let mut set = SetRules::default();
        let written = || fs::read_to_string(sys.path().join(FILE)).unwrap();
        assert_eq!(set.write_devices(sys.path(), &rules(&[(48, None)])), [""; 0]);
        assert_eq!(written(), "src_ip=10.0.0.1,dst_ip=10.0.0.2,tclass=194\n");
        // Rules that are there already are not written again.
        fs::write(sys.path().join(FILE), "").unwrap();
        assert_eq!(set.write_devices(sys.path(), &rules(&[(48, None)])), [""; 0]);
        assert_eq!(written(), "");
        // Connections of several levels cannot be told apart.
        let problems = set.write_devices(sys.path(), &rules(&[(48, None), (8, Some(7))]));
        assert!(problems[0].contains("connections of several levels"), "{problems:?}");
        assert_eq!(written(), "src_ip=10.0.0.1,dst_ip=10.0.0.2,tclass=-1\n");
        assert!(set.files.is_empty());
    }

    #[test]
    fn a_device_whose_class_cannot_be_set_is_named() {
        for (text, why) in [(None, "NCCL_IB_TC"), (Some("Global tclass=106\n"), "already")] {
            let sys = sysfs(text);
            let mut set = SetRules::default();
            let problems = set.write_devices(sys.path(), &rules(&[(48, None)]));
            assert!(problems[0].starts_with("mlx5_0: "), "{problems:?}");
            assert!(problems[0].contains(why), "{problems:?}");
            assert!(set.files.is_empty());
            // Nothing that it could set: nothing to complain of.
            assert_eq!(set.write_devices(sys.path(), &DscpRules::default()), [""; 0]);
        }
    }
}
