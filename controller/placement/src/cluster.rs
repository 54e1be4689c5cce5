//! The hosts of a cluster for placement: GPUs, their kind, and the leaf of each host.

use topology::{Fabric, HostId};

use super::{GpusByHost, RunningJob};

/// A host and its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterHost {
    /// Number of its GPUs.
    pub gpus: u32,
    /// The leaf of its first NIC; hosts with equal numbers are neighbours.
    pub leaf: u32,
    /// The kind of its GPUs; the position in [`GpuCluster::kinds`].
    pub kind: u32,
}

/// The hosts of a cluster, by [`HostId`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuCluster {
    /// Hosts of the cluster.
    pub hosts: Vec<ClusterHost>,
    /// Names of the kinds of GPU; one if all are equal.
    pub kinds: Vec<String>,
}

impl GpuCluster {
    /// The hosts of `fabric`, with one kind of GPU. A host without a NIC is its own leaf.
    pub fn from_fabric(fabric: &Fabric) -> Self {
        let switches = fabric.switches().len();
        Self {
            hosts: fabric
                .hosts()
                .iter()
                .enumerate()
                .map(|(id, host)| ClusterHost {
                    gpus: host.gpus,
                    leaf: match host.nics.first() {
                        Some(nic) => fabric.leaf_of(*nic).0,
                        None => HostId::from(switches + id).0,
                    },
                    kind: 0,
                })
                .collect(),
            kinds: vec!["GPU".to_owned()],
        }
    }

    /// GPUs of all hosts.
    pub fn total_gpus(&self) -> u32 {
        self.hosts.iter().map(|host| host.gpus).sum()
    }
}

/// GPUs that no job has, by host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeGpus {
    by_host: Vec<u32>,
}

impl FreeGpus {
    /// All GPUs of `cluster`.
    pub fn all_free(cluster: &GpuCluster) -> Self {
        Self { by_host: cluster.hosts.iter().map(|host| host.gpus).collect() }
    }

    /// What `running` leave; those of one group have the same GPUs, which count once.
    pub fn not_held_by(cluster: &GpuCluster, running: &[RunningJob]) -> Self {
        let mut free = Self::all_free(cluster);
        let mut groups = std::collections::BTreeSet::new();
        for job in running {
            if job.group.is_none_or(|group| groups.insert(group)) {
                free.take_gpus(&job.gpus);
            }
        }
        free
    }

    /// GPUs free on a host.
    pub fn on_host(&self, host: HostId) -> u32 {
        self.by_host[host.index()]
    }

    /// GPUs free on all hosts.
    pub fn total_free(&self) -> u32 {
        self.by_host.iter().sum()
    }

    /// Hosts and their free GPUs, by id.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, u32)> + '_ {
        let hosts = self.by_host.iter().enumerate();
        hosts.map(|(id, free)| (HostId::from(id), *free))
    }

    /// Whether all of `gpus` are free.
    pub fn contains_all(&self, gpus: &GpusByHost) -> bool {
        gpus.iter()
            .all(|(host, gpus)| self.by_host.get(host.index()).is_some_and(|free| free >= gpus))
    }

    /// Takes GPUs that are free.
    pub fn take_gpus(&mut self, gpus: &GpusByHost) {
        for (host, gpus) in gpus {
            let free = &mut self.by_host[host.index()];
            *free = free.saturating_sub(*gpus);
        }
    }

    /// Returns GPUs of a job to the free ones.
    pub fn return_gpus(&mut self, gpus: &GpusByHost) {
        for (host, gpus) in gpus {
            self.by_host[host.index()] += gpus;
        }
    }

    /// `gpus` of the hosts in this order, as many of each as it has; none if all have too few.
    pub fn gather_gpus(
        &self,
        gpus: u32,
        hosts: impl IntoIterator<Item = HostId>,
    ) -> Option<GpusByHost> {
        let (mut gathered, mut wanted) = (GpusByHost::new(), gpus);
        for host in hosts {
            let taken = wanted.min(self.on_host(host));
            if taken > 0 {
                gathered.insert(host, taken);
                wanted -= taken;
            }
            if wanted == 0 {
                break;
            }
        }
        (wanted == 0 && gpus > 0).then_some(gathered)
    }
}
