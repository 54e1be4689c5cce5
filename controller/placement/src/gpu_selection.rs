//! Which GPUs of a host a job gets, where the fabric describes the inside of hosts.
//!
//! Placement policies decide how many. GPUs are tied to NICs by their PCIe switch, and a job uses
//! the NICs of its GPUs only, so GPUs on few PCIe switches leave the NICs of the others to other
//! jobs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use topology::{Fabric, HostId, HostInterconnect};

use super::{GpuIndices, GpusByHost, RunningJob};

/// The hosts whose inside the fabric describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DescribedHosts(BTreeMap<HostId, DescribedHost>);

#[derive(Clone, Debug, PartialEq)]
struct DescribedHost {
    gpus: u32,
    interconnect: Arc<HostInterconnect>,
}

impl DescribedHosts {
    pub(super) fn of_fabric(fabric: &Fabric) -> Self {
        let hosts = fabric.hosts().iter().enumerate().filter_map(|(id, host)| {
            let interconnect = Arc::clone(host.interconnect.as_ref()?);
            Some((HostId::from(id), DescribedHost { gpus: host.gpus, interconnect }))
        });
        Self(hosts.collect())
    }

    /// GPUs for a job beside the `running` ones, which leave it enough, on each described host.
    pub(super) fn select_gpus(&self, gpus: &GpusByHost, running: &[RunningJob]) -> GpuIndices {
        let described = gpus.iter().filter_map(|(host, count)| {
            let selected = self.0.get(host)?.select_gpus(*count, &taken_gpus(*host, running));
            Some((*host, selected))
        });
        described.collect()
    }

    /// Whether these GPUs exist, are free, and are as many as `gpus` says on each described host.
    pub(super) fn are_free(
        &self,
        indices: &GpuIndices,
        gpus: &GpusByHost,
        running: &[RunningJob],
    ) -> bool {
        let is_free = |(host, named): (&HostId, &Vec<u32>)| {
            let distinct: BTreeSet<u32> = named.iter().copied().collect();
            let exist =
                self.0.get(host).is_some_and(|of| distinct.iter().all(|gpu| *gpu < of.gpus));
            let count = gpus.get(host).copied().unwrap_or(0) as usize;
            exist
                && (named.len(), distinct.len()) == (count, count)
                && distinct.is_disjoint(&taken_gpus(*host, running))
        };
        let is_named = |host: &HostId| !self.0.contains_key(host) || indices.contains_key(host);
        indices.iter().all(is_free) && gpus.keys().all(is_named)
    }
}

impl DescribedHost {
    /// The lowest `count` GPUs that are not `taken` on one PCIe switch, of those that have enough
    /// the one with the fewest. If none has, all of the one with the most, and so on.
    fn select_gpus(&self, count: u32, taken: &BTreeSet<u32>) -> Vec<u32> {
        let mut by_switch: BTreeMap<Option<usize>, Vec<u32>> = BTreeMap::new();
        for gpu in (0..self.gpus).filter(|gpu| !taken.contains(gpu)) {
            by_switch.entry(self.interconnect.switch_of_gpu(gpu)).or_default().push(gpu);
        }
        let (mut free, mut selected) = (by_switch.into_values().collect::<Vec<_>>(), Vec::new());
        let mut wanted = count as usize;
        while wanted > 0 {
            let fitting = (0..free.len()).filter(|place| free[*place].len() >= wanted);
            let fullest = (0..free.len()).min_by_key(|place| Reverse(free[*place].len()));
            let best = fitting.min_by_key(|place| free[*place].len()).or(fullest);
            let Some(place) = best else { break };
            let gpus = free.remove(place);
            let some = &gpus[..wanted.min(gpus.len())];
            selected.extend_from_slice(some);
            wanted -= some.len();
        }
        selected.sort_unstable();
        selected
    }
}

/// The GPUs of a host that jobs have.
fn taken_gpus(host: HostId, running: &[RunningJob]) -> BTreeSet<u32> {
    running.iter().filter_map(|job| job.gpu_indices.get(&host)).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use topology::{LinkScheduler, PcieSwitch};

    use super::*;

    /// Eight GPUs, two on each of four PCIe switches.
    fn host() -> DescribedHost {
        let pcie_switches = (0..4).map(|switch| PcieSwitch {
            gpus: vec![2 * switch, 2 * switch + 1],
            nics: vec![switch],
            gbps: 252.0,
            root_gbps: None,
        });
        let interconnect = HostInterconnect {
            pcie_switches: pcie_switches.collect(),
            nvlink_domains: Vec::new(),
            scheduler: LinkScheduler::Fifo,
        };
        DescribedHost { gpus: 8, interconnect: Arc::new(interconnect) }
    }

    #[test]
    fn a_job_gets_gpus_on_few_pcie_switches() {
        let check = |count: u32, taken: &[u32], expect: &[u32]| {
            let selected = host().select_gpus(count, &taken.iter().copied().collect());
            assert_eq!(selected, expect, "{count} GPUs beside {taken:?}");
        };
        check(8, &[], &[0, 1, 2, 3, 4, 5, 6, 7]);
        check(2, &[0, 1], &[2, 3]);
        // What is left of a switch goes first, and whole switches stay whole.
        check(1, &[0, 4, 5], &[1]);
        check(2, &[0], &[2, 3]);
        check(3, &[0], &[1, 2, 3]);
        check(4, &[0, 2], &[4, 5, 6, 7]);
        check(5, &[0, 2], &[1, 4, 5, 6, 7]);
        check(3, &[0, 2, 4], &[1, 6, 7]);
        check(3, &[0, 2, 4, 6], &[1, 3, 5]);
    }
}
