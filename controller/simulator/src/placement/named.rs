//! The placement policies by the names that users write.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use topology::{Fabric, Nic};

use super::crius::Crius;
use super::hived::{Hived, HivedError};
use super::muri::{Muri, StageTable};
use super::queue::{FirstFit, LeastLoaded, Queue, Random, SameLeaf};
use super::sjf_bco::SjfBco;
use super::throughput::Throughputs;
use super::{Cluster, Policy};
use crate::workload::Models;

/// A placement policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// The first free GPUs.
    FirstFit,
    /// The emptiest hosts.
    LeastLoaded,
    /// Any free GPUs.
    Random,
    /// One host, one leaf, or as few leaves as need be.
    SameLeaf,
    /// Muri (SIGCOMM'22): jobs that need different resources take turns on the same GPUs.
    Muri,
    /// `HiveD` (OSDI'20): cells of a hierarchy, reserved for virtual clusters.
    Hived,
    /// SJF-BCO (`MobiHoc`'22): small jobs into gaps, large ones onto few servers.
    SjfBco,
    /// Crius (`EuroSys`'26): how many GPUs, of which kind, for all jobs to be fastest.
    Crius,
}

/// What a policy knows of jobs and network.
#[derive(Clone, Debug, PartialEq)]
pub struct Beliefs {
    /// What jobs train.
    pub models: Models,
    /// The speed of a NIC.
    pub nic_bytes_per_second: f64,
    /// Where the chance of `random` comes from.
    pub seed: u64,
}

impl Beliefs {
    /// What can be known of `fabric`, whose NICs are taken to be as fast as its first.
    pub fn of(fabric: &Fabric, models: &Models, seed: u64) -> Self {
        let first = fabric.nics().first();
        let speed = |nic: &Nic| fabric.link(nic.uplink).bandwidth.bytes_per_second();
        Self {
            models: models.clone(),
            nic_bytes_per_second: first.map_or(1.0, speed),
            seed,
        }
    }
}

/// Why a policy cannot be had for a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// `HiveD` wants equal cells.
    #[error("hived")]
    Hived(#[from] HivedError),
}

impl Placement {
    /// All of them, the plain references first.
    pub const ALL: [Self; 8] = [
        Self::FirstFit,
        Self::LeastLoaded,
        Self::Random,
        Self::SameLeaf,
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
            Self::Muri => "muri",
            Self::Hived => "hived",
            Self::SjfBco => "sjf-bco",
            Self::Crius => "crius",
        }
    }

    /// The policy with what it is to believe. `HiveD` has one virtual cluster that owns everything;
    /// its quotas, as the tables of the others, are theirs to construct otherwise.
    ///
    /// # Errors
    /// The policy cannot work on such a cluster.
    pub fn policy(
        self,
        cluster: &Cluster,
        beliefs: &Beliefs,
    ) -> Result<Box<dyn Policy>, PlacementError> {
        let Beliefs {
            models,
            nic_bytes_per_second,
            seed,
        } = beliefs;
        Ok(match self {
            Self::FirstFit => Box::new(Queue { choice: FirstFit }),
            Self::LeastLoaded => Box::new(Queue {
                choice: LeastLoaded,
            }),
            Self::Random => Box::new(Queue {
                choice: Random { seed: *seed },
            }),
            Self::SameLeaf => Box::new(Queue { choice: SameLeaf }),
            Self::Muri => {
                let table = StageTable::published();
                Box::new(Muri::new(table.with_models(models, *nic_bytes_per_second)))
            }
            Self::Hived => Box::new(Hived::new(cluster, &BTreeMap::new())?),
            Self::SjfBco => Box::new(SjfBco::new(models.clone(), *nic_bytes_per_second)),
            Self::Crius => {
                let table = Throughputs::published(cluster);
                Box::new(Crius::new(
                    table.with_models(models.clone(), *nic_bytes_per_second),
                ))
            }
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No placement policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no placement; known are {names}", names = names())]
pub struct UnknownPlacement(pub String);

fn names() -> String {
    Placement::ALL.map(Placement::name).join(", ")
}

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownPlacement(name.to_owned()))
    }
}
