//! The connected queue pairs of hosts, as their agents report them.
//!
//! Sans-IO: reports, the fabric and time are arguments. A report has all queue pairs of its host
//! and replaces the one before. The decision: two bounds, as for flows. A host keeps a limited
//! number; and all hosts together do, where the host with the most gives its own up for a host with
//! fewer, so that a host within its fair share loses nothing to another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use planner::{JobId, NicOwners};
use tokio::time::Instant;
use topology::{Fabric, NicId};

use super::queue_pair_join::QueuePairEnd;
use crate::config::LearningConfig;

/// The connected queue pairs of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostQueuePairs {
    /// Its name in the fabric.
    pub host: String,
    /// By device and job.
    pub groups: Vec<QueuePairGroup>,
}

/// The queue pairs that one job has on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePairGroup {
    /// Addresses of the device.
    pub addresses: Vec<IpAddr>,
    /// The job, if the reporter knows it.
    pub job: Option<JobId>,
    /// Its queue pairs.
    pub queue_pairs: Vec<ReportedQueuePair>,
}

/// A connected queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportedQueuePair {
    /// Its number, unique on its NIC.
    pub local: u32,
    /// The number of its peer, unique on the peer's NIC.
    pub remote: u32,
    /// The UDP port that it sends from, where that is known.
    pub udp_src_port: Option<u16>,
}

impl HostQueuePairs {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.groups.iter().map(|group| group.queue_pairs.len()).sum()
    }
}

/// What hosts report, within bounds.
#[derive(Clone, Debug)]
pub struct QueuePairTable {
    limits: LearningConfig,
    hosts: BTreeMap<String, (HostQueuePairs, Instant)>,
    /// Hosts by the number of their queue pairs.
    by_size: BTreeSet<(usize, String)>,
    total: usize,
    /// Reports that found no room, and reports that made room for another host, since the start.
    refused: u64,
    is_changed: bool,
}

impl QueuePairTable {
    /// A table with these bounds and without hosts.
    pub fn new(limits: LearningConfig) -> Self {
        Self {
            limits,
            hosts: BTreeMap::new(),
            by_size: BTreeSet::new(),
            total: 0,
            refused: 0,
            is_changed: false,
        }
    }

    /// Takes in all queue pairs of a host. A report that finds no room is counted, and the host has
    /// none until a smaller one.
    pub fn replace_host(&mut self, report: HostQueuePairs, now: Instant) {
        if let Some((had, at)) = self.hosts.get_mut(&report.host)
            && *had == report
        {
            *at = now;
            return;
        }
        self.remove_host(&report.host.clone());
        let count = report.count();
        if count > self.limits.host_queue_pairs_max.get() || !self.make_room(count) {
            self.refused += 1;
            return;
        }
        self.total += count;
        self.by_size.insert((count, report.host.clone()));
        self.hosts.insert(report.host.clone(), (report, now));
        self.is_changed = true;
        debug_assert!(self.total <= self.limits.queue_pairs_max.get());
    }

    /// Forgets the hosts that have been silent for too long.
    pub fn expire_hosts(&mut self, now: Instant) {
        let limit = self.limits.expire_after;
        let silent = self.hosts.iter().filter(|(_, (_, at))| now.duration_since(*at) >= limit);
        let silent: Vec<String> = silent.map(|(host, _)| host.clone()).collect();
        silent.iter().for_each(|host| self.remove_host(host));
    }

    /// Whether queue pairs have come or gone since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Reports for which there was no room, since the start.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The hosts that report.
    pub fn reporting_hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// All queue pairs whose NIC and job are known: ends, by NIC and number. A report says nothing
    /// of NICs of other hosts, and nothing of a job that is not on its host.
    pub fn resolve_ends(&self, fabric: &Fabric, owners: &NicOwners) -> Vec<QueuePairEnd> {
        let mut ends: BTreeMap<(NicId, u32), QueuePairEnd> = BTreeMap::new();
        for (report, _) in self.hosts.values() {
            for group in &report.groups {
                let Some(nic) = nic_of(report, group, fabric) else { continue };
                let Some(job) = owners.job_at(fabric, nic, group.job.as_ref()) else { continue };
                for pair in &group.queue_pairs {
                    let end = QueuePairEnd { nic, job, numbers: *pair };
                    ends.entry((nic, pair.local)).or_insert(end);
                }
            }
        }
        ends.into_values().collect()
    }

    /// Whether there is room for so many; the host with the most may lose its own for that.
    fn make_room(&mut self, count: usize) -> bool {
        while self.total + count > self.limits.queue_pairs_max.get() {
            let Some((_, largest)) = self.by_size.last().filter(|(most, _)| *most > count) else {
                return false;
            };
            self.remove_host(&largest.clone());
            self.refused += 1;
        }
        true
    }

    fn remove_host(&mut self, host: &str) {
        if let Some((report, _)) = self.hosts.remove(host) {
            let count = report.count();
            self.by_size.remove(&(count, report.host));
            self.total -= count;
            self.is_changed = true;
        }
    }
}

fn nic_of(report: &HostQueuePairs, group: &QueuePairGroup, fabric: &Fabric) -> Option<NicId> {
    let host = fabric.host_named(&report.host)?;
    let known = group.addresses.iter().filter_map(|address| fabric.nic_with_ip(*address));
    known.into_iter().find(|nic| fabric.nic(*nic).host == host)
}
