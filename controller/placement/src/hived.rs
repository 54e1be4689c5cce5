//! `HiveD` (Zhao et al., OSDI'20): cells of a hierarchy, reserved for virtual clusters.
//!
//! The quota of a tenant is not a number of GPUs but a set of *cells*: a number of hosts, a number
//! of leaves. A virtual cell is bound to a physical one when its first job starts and released
//! after its last. Buddy allocation provides the physical cell and always has one left for a tenant
//! within its quota (OSDI'20 §3.3), so other tenants cannot scatter the GPUs of a quota. Within its
//! virtual cells a job is packed by the hierarchy: into the smallest block with room, and among
//! those into the fullest.
//!
//! The jobs of each tenant are served in order of arrival. Where there are quotas, a job without
//! room in them runs on idle cells until these are wanted (`opportunistic`).

mod cells;
mod opportunistic;
mod virtual_cluster;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ClusterState, GpuCluster, PlacementDecision, PlacementPolicy, PlacementRequest, StartDecision,
};
use crate::queue::refuse_oversized;
use cells::{BuddyAllocator, CellLevels};
use opportunistic::OpportunisticJobs;
use virtual_cluster::VirtualCluster;

/// Cells of a tenant: their size in GPUs, and how many.
pub type CellQuota = Vec<(u32, u32)>;

/// Why quotas cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HivedError {
    /// Cells of a level are alike, so hosts must be.
    #[error("hosts have different numbers of GPUs; cells of a level must be alike")]
    UnevenHosts,
    /// No level has cells of this size.
    #[error("tenant {tenant}: no cell has {gpus} GPUs; sizes are {sizes:?}")]
    NoSuchCell {
        /// Name of the tenant.
        tenant: String,
        /// GPUs of the cell wanted.
        gpus: u32,
        /// The sizes there are.
        sizes: Vec<usize>,
    },
    /// The quotas together are more than the cluster.
    #[error("tenant {tenant}: the cluster has no cell of {gpus} GPUs left for its quota")]
    QuotaTooLarge {
        /// Name of the tenant.
        tenant: String,
        /// The size of the cell that is missing.
        gpus: u32,
    },
}

/// `HiveD` with the virtual clusters of its tenants.
#[derive(Clone, Debug)]
pub struct HivedPolicy {
    levels: CellLevels,
    buddies: BuddyAllocator,
    tenants: BTreeMap<String, VirtualCluster>,
    /// Whether all tenants share one virtual cluster.
    shared: bool,
    /// Where jobs are: their tenant, and GPUs of its virtual cluster.
    jobs: BTreeMap<u32, (String, Vec<usize>)>,
    /// Those without a guarantee.
    opportunistic: OpportunisticJobs,
}

impl HivedPolicy {
    /// The policy with a quota for each tenant; without quotas all tenants share all cells.
    ///
    /// # Errors
    /// Hosts differ, or the quotas do not fit.
    pub fn new(
        cluster: &GpuCluster,
        quotas: &BTreeMap<String, CellQuota>,
    ) -> Result<Self, HivedError> {
        let levels = CellLevels::from_cluster(cluster)?;
        let tenants = if quotas.is_empty() {
            let everything = vec![levels.top_level(); levels.top_cells()];
            BTreeMap::from([(String::new(), VirtualCluster::new(&levels, &everything))])
        } else {
            build_virtual_clusters(&levels, quotas)?
        };
        Ok(Self {
            buddies: BuddyAllocator::new(&levels),
            levels,
            tenants,
            shared: quotas.is_empty(),
            jobs: BTreeMap::new(),
            opportunistic: OpportunisticJobs::default(),
        })
    }

    fn tenant_of(&self, request: &PlacementRequest) -> String {
        match &request.tenant {
            Some(tenant) if !self.shared => tenant.clone(),
            _ => String::new(),
        }
    }

    /// Lets go of the GPUs of jobs that no longer run, and of cells that are empty then.
    fn release_finished(&mut self, state: &ClusterState<'_>) {
        let running: BTreeSet<u32> = state.running.iter().map(|job| job.request.job).collect();
        self.opportunistic.retain_running(&running);
        let (stay, gone) =
            std::mem::take(&mut self.jobs).into_iter().partition(|(job, _)| running.contains(job));
        self.jobs = stay;
        for (tenant, gpus) in BTreeMap::<u32, _>::into_values(gone) {
            if let Some(cells) = self.tenants.get_mut(&tenant) {
                cells.return_gpus(&gpus, &mut self.buddies);
            }
        }
    }

    fn has_gpus(&self, job: u32) -> bool {
        self.jobs.contains_key(&job) || self.opportunistic.contains(job)
    }

    /// Counts the GPUs of running jobs that it did not place. Only where all tenants share one
    /// virtual cluster: in a quota they have no place.
    fn adopt_running(&mut self, state: &ClusterState<'_>) {
        let Some(cells) = self.tenants.get_mut("").filter(|_| self.shared) else {
            return;
        };
        for job in state.running {
            if self.jobs.contains_key(&job.request.job) {
                continue;
            }
            let mut held = Vec::new();
            for (host, gpus) in &job.gpus {
                held.extend(cells.hold_gpus(*host, *gpus, &self.levels, &mut self.buddies));
            }
            self.jobs.insert(job.request.job, (String::new(), held));
        }
    }

    /// Starts a job in the cells of its tenant: the jobs that it suspends, then its start. None
    /// if there is no room.
    fn start_guaranteed(
        &mut self,
        tenant: &str,
        request: &PlacementRequest,
    ) -> Option<Vec<PlacementDecision>> {
        let cells = self.tenants.get_mut(tenant)?;
        let chosen = cells.take_gpus(request.gpus as usize, &self.levels, &mut self.buddies)?;
        let gpus = chosen.iter().map(|gpu| cells.physical_gpu(*gpu, &self.levels));
        let gpus = gpus.collect::<Option<Vec<usize>>>()?;
        let by_host = self.levels.gpus_by_host(&gpus);
        self.jobs.insert(request.job, (tenant.to_owned(), chosen));
        let suspended = self.opportunistic.take_jobs_on(&gpus).into_iter();
        let suspended = suspended.map(|job| PlacementDecision::Suspend { job });
        Some(suspended.chain([StartDecision::new(request.job, by_host).into()]).collect())
    }

    /// Starts jobs with a guarantee, those of each tenant in order.
    fn start_within_quotas(
        &mut self,
        jobs: &[&PlacementRequest],
        decisions: &mut Vec<PlacementDecision>,
    ) {
        let mut blocked = BTreeSet::new();
        for request in jobs {
            let tenant = self.tenant_of(request);
            let quota = self.tenants.get(&tenant).map_or(0, |cells| cells.used.len());
            // A job larger than the quota will never have a guarantee, so nobody waits for it.
            let may_start = request.gpus as usize <= quota && !blocked.contains(&tenant);
            if !may_start || self.has_gpus(request.job) {
                continue;
            }
            match self.start_guaranteed(&tenant, request) {
                Some(started) => decisions.extend(started),
                None => drop(blocked.insert(tenant)),
            }
        }
    }

    /// Starts jobs on GPUs that no guaranteed job has, whichever fit.
    fn start_on_idle_cells(
        &mut self,
        jobs: &[&PlacementRequest],
        decisions: &mut Vec<PlacementDecision>,
    ) {
        let guaranteed: BTreeSet<usize> = self.guaranteed_gpus().collect();
        for request in jobs {
            let (job, gpus) = (request.job, request.gpus as usize);
            if !self.has_gpus(job) {
                let started = self.opportunistic.start_job(job, gpus, &guaranteed, &self.levels);
                decisions.extend(started.map(|gpus| StartDecision::new(job, gpus).into()));
            }
        }
    }

    /// GPUs of the cluster that jobs with a guarantee have.
    fn guaranteed_gpus(&self) -> impl Iterator<Item = usize> + '_ {
        let jobs = self.jobs.values();
        jobs.filter_map(|(tenant, gpus)| Some((self.tenants.get(tenant)?, gpus))).flat_map(
            |(cells, gpus)| gpus.iter().filter_map(|gpu| cells.physical_gpu(*gpu, &self.levels)),
        )
    }
}

impl PlacementPolicy for HivedPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        self.release_finished(state);
        self.adopt_running(state);
        let (mut decisions, mut jobs) = (Vec::new(), Vec::new());
        for request in state.waiting {
            match refuse_oversized(state.cluster, request.job, request.gpus) {
                Some(refusal) => decisions.push(refusal),
                None => jobs.push(request),
            }
        }
        if self.shared {
            self.start_within_quotas(&jobs, &mut decisions);
            return decisions;
        }
        // Those that run may be suspended, and go on elsewhere.
        jobs.extend(state.running.iter().map(|job| &job.request));
        jobs.sort_by(|one, other| {
            let arrival = one.submitted_seconds.total_cmp(&other.submitted_seconds);
            arrival.then(one.job.cmp(&other.job))
        });
        // A job on idle cells no longer keeps its successors from a guarantee, which may suspend
        // others. No guarantee is taken back, so that ends.
        loop {
            let before = decisions.len();
            self.start_within_quotas(&jobs, &mut decisions);
            self.start_on_idle_cells(&jobs, &mut decisions);
            if decisions.len() == before {
                return decisions;
            }
        }
    }

    fn save_state(&self) -> Value {
        json!(HivedSnapshot {
            free: self.buddies.free_cells().to_vec(),
            bound: self.tenants.iter().map(|(name, cells)| (name.clone(), cells.bound())).collect(),
            jobs: self.jobs.clone(),
            opportunistic: self.opportunistic.clone(),
        })
    }

    fn restore_state(&mut self, memory: &Value) -> Result<(), serde_json::Error> {
        let memory = HivedSnapshot::deserialize(memory)?;
        self.buddies.restore_free(memory.free);
        for (tenant, cells) in &mut self.tenants {
            let bound = memory.bound.get(tenant).into_iter().flatten();
            for (cell, bound) in cells.cells.iter_mut().zip(bound) {
                cell.bound = *bound;
            }
            let theirs = memory.jobs.values().filter(|(owner, _)| owner == tenant);
            let taken: BTreeSet<usize> = theirs.flat_map(|(_, gpus)| gpus).copied().collect();
            for (gpu, used) in cells.used.iter_mut().enumerate() {
                *used = taken.contains(&gpu);
            }
        }
        self.jobs = memory.jobs;
        self.opportunistic = memory.opportunistic;
        Ok(())
    }
}

/// The bound cells, the free cells, and the GPUs of jobs.
#[derive(Serialize, Deserialize)]
struct HivedSnapshot {
    free: Vec<BTreeSet<usize>>,
    bound: BTreeMap<String, Vec<Option<usize>>>,
    jobs: BTreeMap<u32, (String, Vec<usize>)>,
    #[serde(default)]
    opportunistic: OpportunisticJobs,
}

/// The virtual clusters of `quotas`, if the cluster can be divided so.
fn build_virtual_clusters(
    levels: &CellLevels,
    quotas: &BTreeMap<String, CellQuota>,
) -> Result<BTreeMap<String, VirtualCluster>, HivedError> {
    let mut wanted = Vec::new();
    for (tenant, quota) in quotas {
        for (gpus, count) in quota {
            let level =
                levels.sizes.iter().position(|size| *size == *gpus as usize).ok_or_else(|| {
                    HivedError::NoSuchCell {
                        tenant: tenant.clone(),
                        gpus: *gpus,
                        sizes: levels.sizes.clone(),
                    }
                })?;
            // No quota needs more cells than there are GPUs; more fail below all the same.
            let count = (*count as usize).min(levels.hosts.len() + 1);
            wanted.extend(std::iter::repeat_n((Reverse(level), tenant, *gpus), count));
        }
    }
    wanted.sort();
    let mut buddies = BuddyAllocator::new(levels);
    let mut cells: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (Reverse(level), tenant, gpus) in wanted {
        if buddies.take_cell(level).is_none() {
            let tenant = tenant.clone();
            return Err(HivedError::QuotaTooLarge { tenant, gpus });
        }
        cells.entry(tenant.clone()).or_default().push(level);
    }
    Ok(cells
        .into_iter()
        .map(|(tenant, cells)| (tenant, VirtualCluster::new(levels, &cells)))
        .collect())
}

#[cfg(test)]
mod tests;
