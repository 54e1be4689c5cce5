//! How many switches and links stand for what a data set names without counting.

use crate::draft::{CABLE_PORTS, MAX_CABLES, MAX_SUBNETS, MAX_SWITCHES_PER_TIER, subnet_count};
use crate::ids::SwitchId;
use crate::spec::{self, FabricFieldError};
use crate::units::Bandwidth;

/// What a data set of hosts below switches does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct TierAssumptions {
    /// Spines of each pod: of each PSW group of Lingjun.
    pub spines: u32,
    /// Cores that join pods: of each DSW group of Lingjun; 0 leaves the pods apart.
    pub cores: u32,
    /// GPUs of each host.
    pub gpus_per_host: u32,
    /// NICs of each host.
    pub host_links: u32,
    /// Whether a leaf of the data stands for as many leaves as a host has NICs, with NIC r of each
    /// host on leaf r; else all NICs are on the one leaf.
    pub rails: bool,
    /// Each link of a host, in Gb/s.
    pub host_gbps: f64,
    /// Each link between leaf and spine, in Gb/s.
    pub uplink_gbps: f64,
    /// Each link between spine and core, in Gb/s.
    pub core_gbps: f64,
}

impl Default for TierAssumptions {
    /// Hosts of 8 GPUs with 4 NICs of 200 Gb/s; 16 spines and 16 cores with links of 400 Gb/s: as
    /// much upwards as the eight hosts of the fullest leaf send.
    fn default() -> Self {
        Self {
            spines: 16,
            cores: 16,
            gpus_per_host: 8,
            host_links: 4,
            rails: false,
            host_gbps: 200.0,
            uplink_gbps: 400.0,
            core_gbps: 400.0,
        }
    }
}

/// How much a data set has.
#[derive(Clone, Copy)]
pub(super) struct DataCounts {
    pub(super) hosts: usize,
    /// Hosts below the leaf with most.
    pub(super) hosts_per_leaf: usize,
    pub(super) leaves: usize,
    pub(super) pods: usize,
    /// Groups of cores that join the pods.
    pub(super) tops: usize,
}

#[derive(Clone, Copy)]
pub(super) struct LinkSpeeds {
    pub(super) host: Bandwidth,
    pub(super) uplink: Bandwidth,
    pub(super) core: Bandwidth,
}

impl TierAssumptions {
    /// The speeds; refuses numbers that no data set can have.
    pub(super) fn link_speeds(&self) -> Result<LinkSpeeds, FabricFieldError> {
        spec::check_minimum_counts(&[
            ("spines", self.spines),
            ("gpus_per_host", self.gpus_per_host),
            ("host_links", self.host_links),
        ])?;
        spec::check_limits(&[(
            "spines",
            "uplinks of a leaf",
            self.spines.into(),
            CABLE_PORTS - 1,
        )])?;
        Ok(LinkSpeeds {
            host: spec::checked_speed("host_gbps", self.host_gbps)?,
            uplink: spec::checked_speed("uplink_gbps", self.uplink_gbps)?,
            core: spec::checked_speed("core_gbps", self.core_gbps)?,
        })
    }

    /// Leaves of the fabric for each of the data.
    pub(super) fn leaves_per_leaf(&self) -> usize {
        if self.rails { self.host_links as usize } else { 1 }
    }

    /// Names of the leaves that stand for one of the data.
    pub(super) fn leaf_names(&self, name: &str) -> Vec<String> {
        match self.leaves_per_leaf() {
            1 => vec![name.to_owned()],
            rails => (0..rails).map(|rail| format!("{name}-rail{rail}")).collect(),
        }
    }

    /// The leaf of each NIC of a host, of the leaves that stand for the host's one.
    pub(super) fn leaves_of_nics(&self, leaves: &[SwitchId]) -> Vec<SwitchId> {
        leaves.iter().copied().cycle().take(self.host_links as usize).collect()
    }

    /// NICs that a host has on one leaf.
    fn nics_on_a_leaf(&self) -> u64 {
        if self.rails { 1 } else { self.host_links.into() }
    }

    /// Most hosts below a leaf of the data: leaves have a port for each NIC and each spine.
    pub(super) fn max_hosts_per_leaf(&self) -> u64 {
        CABLE_PORTS.saturating_sub(self.spines.into()) / self.nics_on_a_leaf()
    }

    /// Where all NICs of a host are.
    pub(super) fn describe_leaves(&self) -> String {
        match self.rails {
            true => format!("NIC r on leaf r of {}", self.host_links),
            false => "all on one leaf".to_owned(),
        }
    }

    /// Refuses more than a fabric may have.
    pub(super) fn check_counts(&self, counts: DataCounts) -> Result<(), FabricFieldError> {
        let product = |a: usize, b: u32| (a as u64).saturating_mul(u64::from(b));
        let DataCounts { hosts, hosts_per_leaf, leaves, pods, tops } = counts;
        let leaves = leaves.saturating_mul(self.leaves_per_leaf());
        let cables = [
            product(hosts, self.host_links),
            product(leaves, self.spines),
            product(pods, self.spines).saturating_mul(u64::from(self.cores)),
        ];
        let cables = cables.into_iter().fold(0, u64::saturating_add);
        let nics_per_leaf = (hosts_per_leaf as u64).saturating_mul(self.nics_on_a_leaf());
        let subnets = subnet_count(leaves as u64, nics_per_leaf);
        spec::check_limits(&[
            ("host_links", "leaves", leaves as u64, MAX_SWITCHES_PER_TIER),
            ("host_links", "subnets", subnets, MAX_SUBNETS),
            ("spines", "spines", product(pods, self.spines), MAX_SWITCHES_PER_TIER),
            ("cores", "cores", product(tops, self.cores), MAX_SWITCHES_PER_TIER),
            ("spines", "links", cables, MAX_CABLES),
        ])
    }
}
