//! How many switches and links stand for what a data set names without counting.

use crate::draft::{MAX_CABLES, MAX_SWITCHES_PER_TIER};
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
    /// NICs of each host, all on its leaf.
    pub host_links: u32,
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
            host_gbps: 200.0,
            uplink_gbps: 400.0,
            core_gbps: 400.0,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct LinkSpeeds {
    pub(super) host: Bandwidth,
    pub(super) uplink: Bandwidth,
    pub(super) core: Bandwidth,
}

impl TierAssumptions {
    pub(super) fn link_speeds(&self) -> Result<LinkSpeeds, FabricFieldError> {
        spec::check_minimum_counts(&[
            ("spines", self.spines),
            ("gpus_per_host", self.gpus_per_host),
            ("host_links", self.host_links),
        ])?;
        Ok(LinkSpeeds {
            host: spec::checked_speed("host_gbps", self.host_gbps)?,
            uplink: spec::checked_speed("uplink_gbps", self.uplink_gbps)?,
            core: spec::checked_speed("core_gbps", self.core_gbps)?,
        })
    }

    /// Refuses more than a fabric may have; `tops` groups of cores join the pods.
    pub(super) fn check_counts(
        &self,
        hosts: usize,
        leaves: usize,
        pods: usize,
        tops: usize,
    ) -> Result<(), FabricFieldError> {
        let product = |a: usize, b: u32| (a as u64).saturating_mul(u64::from(b));
        let cables = [
            product(hosts, self.host_links),
            product(leaves, self.spines),
            product(pods, self.spines).saturating_mul(u64::from(self.cores)),
        ];
        let cables = cables.into_iter().fold(0, u64::saturating_add);
        spec::check_limits(&[
            ("spines", "leaves", leaves as u64, MAX_SWITCHES_PER_TIER),
            ("spines", "spines", product(pods, self.spines), MAX_SWITCHES_PER_TIER),
            ("cores", "cores", product(tops, self.cores), MAX_SWITCHES_PER_TIER),
            ("spines", "links", cables, MAX_CABLES),
        ])
    }
}
