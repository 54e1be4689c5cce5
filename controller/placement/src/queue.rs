//! The reference policies: first come, first served. They differ only in the choice of hosts.
//!
//! A job without room blocks the jobs behind it, so no job starves and no job overtakes another. A
//! job larger than the cluster is refused.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::HostId;

use super::{
    ClusterState, FreeGpus, GpuCluster, GpusByHost, PlacementDecision, PlacementPolicy,
    StartDecision,
};

/// Chooses GPUs for one job.
pub trait GpuChoice {
    /// `gpus` of the free ones for `job`; none if there are too few.
    fn choose_gpus(
        &self,
        job: u32,
        gpus: u32,
        cluster: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost>;
}

/// Jobs in order of arrival, each on the GPUs of a choice.
#[derive(Clone, Debug)]
pub struct QueuePolicy<C> {
    /// How GPUs are chosen.
    pub choice: C,
}

impl<C: GpuChoice> PlacementPolicy for QueuePolicy<C> {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let mut free = state.free_gpus();
        let mut decisions = Vec::new();
        for request in state.waiting {
            if let Some(refusal) = refuse_oversized(state.cluster, request.job, request.gpus) {
                decisions.push(refusal);
                continue;
            }
            let (job, wanted) = (request.job, request.gpus);
            let Some(gpus) = self.choice.choose_gpus(job, wanted, state.cluster, &free) else {
                break;
            };
            free.take_gpus(&gpus);
            decisions.push(StartDecision::new(job, gpus).into());
        }
        decisions
    }
}

/// The refusal of a job that no empty cluster could take.
pub(super) fn refuse_oversized(
    cluster: &GpuCluster,
    job: u32,
    gpus: u32,
) -> Option<PlacementDecision> {
    let has = cluster.total_gpus();
    let reason = match gpus {
        0 => "it requests no GPU".to_owned(),
        gpus if gpus > has => format!("it requests {gpus} GPUs of {has}"),
        _ => return None,
    };
    Some(PlacementDecision::Refuse { job, reason })
}

/// The first free GPUs, by host.
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

impl GpuChoice for FirstFit {
    fn choose_gpus(
        &self,
        _: u32,
        gpus: u32,
        _: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost> {
        free.gather_gpus(gpus, free.hosts().map(|(host, _)| host))
    }
}

/// The hosts with the most free GPUs first.
#[derive(Clone, Copy, Debug)]
pub struct LeastLoaded;

impl GpuChoice for LeastLoaded {
    fn choose_gpus(
        &self,
        _: u32,
        gpus: u32,
        _: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost> {
        free.gather_gpus(gpus, emptiest_first(free.hosts()))
    }
}

/// The stream of chance of a job.
fn job_random(seed: u64, job: u32) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(job));
    random
}

/// Any free GPUs, each as likely as the others. Every job has a stream of chance of its own, so
/// that nothing needs to be remembered.
#[derive(Clone, Copy, Debug)]
pub struct RandomHosts {
    /// Where chance comes from.
    pub seed: u64,
}

impl GpuChoice for RandomHosts {
    fn choose_gpus(
        &self,
        job: u32,
        gpus: u32,
        _: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost> {
        let mut random = job_random(self.seed, job);
        let mut left = free.clone();
        if gpus == 0 || left.total_free() < gpus {
            return None;
        }
        let mut chosen = GpusByHost::new();
        for _ in 0..gpus {
            let mut ticket = random.random_range(0..left.total_free());
            let hosts = left.hosts();
            let mut passed = hosts.skip_while(|(_, free)| {
                let passes = ticket >= *free;
                ticket -= if passes { *free } else { 0 };
                passes
            });
            let (host, _) = passed.next()?;
            drop(passed);
            left.take_gpus(&GpusByHost::from([(host, 1)]));
            *chosen.entry(host).or_default() += 1;
        }
        Some(chosen)
    }
}

/// How placement fragments: which jobs are scattered, and how finely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobFragmentation {
    /// The share of jobs that are scattered, from 0 to 1.
    pub share: f64,
    /// The most GPUs that a scattered job gets on one host.
    pub gpus_per_host: u32,
}

impl JobFragmentation {
    /// What `crux reproduce calibrate` finds for the Clos of the Crux paper.
    pub const CALIBRATED: Self = Self { share: 0.3, gpus_per_host: 2 };
}

/// [`SameLeaf`], but for the share of jobs that get a few GPUs on each of random hosts. Every job
/// has a stream of chance of its own, as with [`RandomHosts`].
#[derive(Clone, Copy, Debug)]
pub struct FragmentedHosts {
    /// Which jobs are scattered, and how finely.
    pub fragmentation: JobFragmentation,
    /// Where chance comes from.
    pub seed: u64,
}

impl GpuChoice for FragmentedHosts {
    fn choose_gpus(
        &self,
        job: u32,
        gpus: u32,
        cluster: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost> {
        let mut random = job_random(self.seed, job);
        let JobFragmentation { share, gpus_per_host } = self.fragmentation;
        if !random.random_bool(share) {
            return SameLeaf.choose_gpus(job, gpus, cluster, free);
        }
        let mut hosts: Vec<HostId> = free.hosts().map(|(host, _)| host).collect();
        hosts.shuffle(&mut random);
        // Where fragments of that size are too few, the rest of the hosts is taken as well.
        let (mut chosen, mut wanted) = (GpusByHost::new(), gpus);
        for most in [gpus_per_host, u32::MAX] {
            for host in &hosts {
                let held = chosen.get(host).copied().unwrap_or(0);
                let taken = wanted.min(free.on_host(*host).min(most) - held);
                if taken > 0 {
                    chosen.insert(*host, held + taken);
                    wanted -= taken;
                }
            }
        }
        (wanted == 0 && gpus > 0).then_some(chosen)
    }
}

/// One host if it has room, else one leaf, else as few leaves as need be; of several hosts or
/// leaves the one with the least room to spare.
#[derive(Clone, Copy, Debug)]
pub struct SameLeaf;

impl GpuChoice for SameLeaf {
    fn choose_gpus(
        &self,
        _: u32,
        gpus: u32,
        cluster: &GpuCluster,
        free: &FreeGpus,
    ) -> Option<GpusByHost> {
        let one_host = free.hosts().filter(|(_, free)| *free >= gpus);
        if let Some((host, _)) = one_host.min_by_key(|(_, free)| *free) {
            return free.gather_gpus(gpus, [host]);
        }
        let mut leaves: BTreeMap<u32, Vec<(HostId, u32)>> = BTreeMap::new();
        for (host, free) in free.hosts() {
            leaves.entry(cluster.hosts[host.index()].leaf).or_default().push((host, free));
        }
        let room = |hosts: &Vec<(HostId, u32)>| hosts.iter().map(|(_, free)| *free).sum::<u32>();
        let one_leaf = leaves.values().filter(|hosts| room(hosts) >= gpus);
        if let Some(hosts) = one_leaf.min_by_key(|hosts| room(hosts)) {
            return free.gather_gpus(gpus, emptiest_first(hosts.iter().copied()));
        }
        let mut leaves: Vec<_> = leaves.into_values().collect();
        leaves.sort_by_key(|hosts| std::cmp::Reverse(room(hosts)));
        free.gather_gpus(gpus, leaves.into_iter().flat_map(emptiest_first))
    }
}

/// Hosts by free GPUs, the most first, then by id.
fn emptiest_first(hosts: impl IntoIterator<Item = (HostId, u32)>) -> Vec<HostId> {
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by_key(|(host, free)| (std::cmp::Reverse(*free), *host));
    hosts.into_iter().map(|(host, _)| host).collect()
}
