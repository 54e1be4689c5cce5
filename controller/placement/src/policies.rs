//! The placement policies by the names that users write.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use topology::{Fabric, NicId};

use super::crius::CriusPolicy;
use super::hived::{CellQuota, HivedError, HivedPolicy};
use super::muri::{MuriPolicy, StageTable};
use super::queue::{
    FirstFit, FragmentedHosts, JobFragmentation, LeastLoaded, QueuePolicy, RandomHosts, SameLeaf,
};
use super::sjf_bco::SjfBcoPolicy;
use super::throughput::ThroughputTable;
use super::{GpuCluster, PlacementPolicy};
use crate::ModelTable;

/// A placement policy, by algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementAlgorithm {
    /// The first free GPUs.
    FirstFit,
    /// The hosts with the most free GPUs.
    LeastLoaded,
    /// Random free GPUs, from a seed.
    Random,
    /// One host, one leaf, or as few leaves as need be.
    SameLeaf,
    /// As `SameLeaf`, but a share of the jobs is scattered over random hosts.
    Fragmented,
    /// Muri (SIGCOMM'22): jobs that need different resources take turns on the same GPUs.
    Muri,
    /// `HiveD` (OSDI'20): cells of a hierarchy, reserved for virtual clusters.
    Hived,
    /// SJF-BCO (`MobiHoc`'22): small jobs into gaps, large ones onto few servers.
    SjfBco,
    /// Crius (`EuroSys`'26): how many GPUs, of which kind, for all jobs to be fastest.
    Crius,
}

/// Data about jobs and network that policies use.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementContext {
    /// The models that jobs train.
    pub models: ModelTable,
    /// The speed of a NIC.
    pub nic_bytes_per_second: f64,
    /// Which jobs `fragmented` scatters.
    pub fragmentation: JobFragmentation,
    /// Cells that `hived` guarantees to each tenant; without any, all tenants share all cells.
    pub quotas: BTreeMap<String, CellQuota>,
    /// Where the chance of `random` and `fragmented` comes from.
    pub seed: u64,
}

impl PlacementContext {
    /// What can be known of `fabric`, whose NICs are taken to be as fast as its first.
    pub fn from_fabric(fabric: &Fabric, models: &ModelTable, seed: u64) -> Self {
        let first = (!fabric.nics().is_empty()).then_some(NicId(0));
        let rate_of = |nic| -> f64 {
            fabric.uplinks_of(nic).map(|link| link.bandwidth.bytes_per_second()).sum()
        };
        Self {
            models: models.clone(),
            nic_bytes_per_second: first.map_or(1.0, rate_of),
            fragmentation: JobFragmentation::CALIBRATED,
            quotas: BTreeMap::new(),
            seed,
        }
    }
}

/// Why a policy cannot be had for a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// `HiveD` requires equal cells.
    #[error("hived")]
    Hived(#[from] HivedError),
}

impl PlacementAlgorithm {
    /// All of them, the plain references first.
    pub const ALL: [Self; 9] = [
        Self::FirstFit,
        Self::LeastLoaded,
        Self::Random,
        Self::SameLeaf,
        Self::Fragmented,
        Self::Muri,
        Self::Hived,
        Self::SjfBco,
        Self::Crius,
    ];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstFit => "first-fit",
            Self::LeastLoaded => "least-loaded",
            Self::Random => "random",
            Self::SameLeaf => "same-leaf",
            Self::Fragmented => "fragmented",
            Self::Muri => "muri",
            Self::Hived => "hived",
            Self::SjfBco => "sjf-bco",
            Self::Crius => "crius",
        }
    }

    /// The policy for a cluster. Muri and Crius have the published tables; others are theirs to
    /// construct otherwise.
    ///
    /// # Errors
    /// The policy cannot work on such a cluster.
    pub fn create_policy(
        self,
        cluster: &GpuCluster,
        context: &PlacementContext,
    ) -> Result<Box<dyn PlacementPolicy>, PlacementError> {
        let PlacementContext { models, nic_bytes_per_second, fragmentation, quotas, seed } =
            context;
        Ok(match self {
            Self::FirstFit => Box::new(QueuePolicy { choice: FirstFit }),
            Self::LeastLoaded => Box::new(QueuePolicy { choice: LeastLoaded }),
            Self::Random => Box::new(QueuePolicy { choice: RandomHosts { seed: *seed } }),
            Self::SameLeaf => Box::new(QueuePolicy { choice: SameLeaf }),
            Self::Fragmented => {
                let choice = FragmentedHosts { fragmentation: *fragmentation, seed: *seed };
                Box::new(QueuePolicy { choice })
            }
            Self::Muri => {
                let table = StageTable::from_published();
                Box::new(MuriPolicy::new(table.with_models(models, *nic_bytes_per_second)))
            }
            Self::Hived => Box::new(HivedPolicy::new(cluster, quotas)?),
            Self::SjfBco => Box::new(SjfBcoPolicy::new(models.clone(), *nic_bytes_per_second)),
            Self::Crius => {
                let table = ThroughputTable::from_published(cluster);
                Box::new(CriusPolicy::new(table.with_models(models.clone(), *nic_bytes_per_second)))
            }
        })
    }
}

impl fmt::Display for PlacementAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No placement policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown placement policy `{0}`: use one of {names}", names = known_names())]
pub struct UnknownPlacement(pub String);

fn known_names() -> String {
    PlacementAlgorithm::ALL.map(PlacementAlgorithm::name).join(", ")
}

impl FromStr for PlacementAlgorithm {
    type Err = UnknownPlacement;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownPlacement(name.to_owned()))
    }
}
