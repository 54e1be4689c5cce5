//! `HiveD` (Zhao et al., OSDI'20): cells of a hierarchy, reserved for virtual clusters.
//!
//! The quota of a tenant is not a number of GPUs but a set of *cells*: a number of hosts, a number
//! of leaves. A virtual cell is bound to a physical one when its first job starts and released
//! after its last. Buddy allocation provides the physical cell and always has one left for a tenant
//! within its quota (OSDI'20 §3.3), so other tenants cannot scatter the GPUs of a quota. Within its
//! virtual cells a job is packed by the hierarchy: into the smallest block with room, and among
//! those into the fullest.
//!
//! The jobs of each tenant are served in order of arrival. Low-priority jobs on idle cells of other
//! tenants, which the paper also has, are not modelled: they would be preempted.

mod cells;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use topology::HostId;

use super::{
    ClusterState, GpuCluster, GpusByHost, PlacementDecision, PlacementPolicy, PlacementRequest,
    StartDecision,
};
use cells::{BuddyAllocator, CellLevels};

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
        let (stay, gone) =
            std::mem::take(&mut self.jobs).into_iter().partition(|(job, _)| running.contains(job));
        self.jobs = stay;
        for (tenant, gpus) in BTreeMap::<u32, _>::into_values(gone) {
            if let Some(cells) = self.tenants.get_mut(&tenant) {
                cells.return_gpus(&gpus, &mut self.buddies);
            }
        }
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

    fn start_job(&mut self, tenant: &str, request: &PlacementRequest) -> Option<GpusByHost> {
        let cells = self.tenants.get_mut(tenant)?;
        let chosen = cells.take_gpus(request.gpus as usize, &self.levels, &mut self.buddies)?;
        let mut gpus = GpusByHost::new();
        for number in &chosen {
            let physical = cells.physical_gpu(*number, &self.levels)?;
            *gpus.entry(self.levels.hosts[physical]).or_default() += 1;
        }
        self.jobs.insert(request.job, (tenant.to_owned(), chosen));
        Some(gpus)
    }
}

impl PlacementPolicy for HivedPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        self.release_finished(state);
        self.adopt_running(state);
        let mut blocked = BTreeSet::new();
        let mut decisions = Vec::new();
        for request in state.waiting {
            let (job, tenant) = (request.job, self.tenant_of(request));
            let most = self.tenants.get(&tenant).map_or(0, |cells| cells.used.len());
            if request.gpus == 0 || request.gpus as usize > most {
                let reason = format!("it requests {} GPUs of its quota of {most}", request.gpus);
                decisions.push(PlacementDecision::Refuse { job, reason });
                continue;
            }
            if blocked.contains(&tenant) {
                continue;
            }
            match self.start_job(&tenant, request) {
                Some(gpus) => decisions.push(StartDecision::new(job, gpus).into()),
                None => drop(blocked.insert(tenant)),
            }
        }
        decisions
    }

    fn save_state(&self) -> Value {
        json!(HivedSnapshot {
            free: self.buddies.free_cells().to_vec(),
            bound: self.tenants.iter().map(|(name, cells)| (name.clone(), cells.bound())).collect(),
            jobs: self.jobs.clone(),
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
        Ok(())
    }
}

/// The bound cells, the free cells, and the GPUs of jobs.
#[derive(Serialize, Deserialize)]
struct HivedSnapshot {
    free: Vec<BTreeSet<usize>>,
    bound: BTreeMap<String, Vec<Option<usize>>>,
    jobs: BTreeMap<u32, (String, Vec<usize>)>,
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

/// A virtual cluster: its cells in a row, each with its GPUs in a row.
#[derive(Clone, Debug)]
struct VirtualCluster {
    cells: Vec<VirtualCell>,
    /// Which of its GPUs have a job.
    used: Vec<bool>,
}

#[derive(Clone, Debug)]
struct VirtualCell {
    block: CellBlock,
    /// The physical cell, while it has jobs.
    bound: Option<usize>,
}

/// An aligned block of a virtual cluster's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellBlock {
    level: usize,
    start: usize,
}

impl CellBlock {
    fn gpu_range(self, sizes: &[usize]) -> Range<usize> {
        self.start..self.start + sizes[self.level]
    }

    /// Its blocks of a lower level.
    fn sub_blocks(self, level: usize, sizes: &[usize]) -> impl Iterator<Item = Self> + use<> {
        let starts = self.gpu_range(sizes).step_by(sizes[level]);
        starts.map(move |start| Self { level, start })
    }
}

impl VirtualCluster {
    fn new(levels: &CellLevels, cells: &[usize]) -> Self {
        let mut start = 0;
        Self {
            cells: cells
                .iter()
                .map(|level| {
                    let block = CellBlock { level: *level, start };
                    start += levels.sizes[*level];
                    VirtualCell { block, bound: None }
                })
                .collect(),
            used: vec![false; start],
        }
    }

    /// Takes `gpus` free ones and binds the cells they are in; none, and no change, if there are
    /// too few.
    fn take_gpus(
        &mut self,
        gpus: usize,
        levels: &CellLevels,
        buddies: &mut BuddyAllocator,
    ) -> Option<Vec<usize>> {
        let free = self.used.iter().filter(|used| !**used).count();
        if free < gpus {
            return None;
        }
        let cells: Vec<CellBlock> = self.cells.iter().map(|cell| cell.block).collect();
        let mut packing =
            JobPacking { used: self.used.clone(), sizes: &levels.sizes, taken: Vec::new() };
        packing.pack_job(&cells, gpus);
        let taken = packing.taken;
        for cell in &mut self.cells {
            let inside = cell.block.gpu_range(&levels.sizes);
            if cell.bound.is_none() && taken.iter().any(|gpu| inside.contains(gpu)) {
                // Within the quotas there is always one (OSDI'20, theorem 1); a property test.
                cell.bound = Some(buddies.take_cell(cell.block.level)?);
            }
        }
        for gpu in &taken {
            self.used[*gpu] = true;
        }
        Some(taken)
    }

    /// Takes the first free GPUs of a host, and binds its cell to a virtual one if none has it.
    fn hold_gpus(
        &mut self,
        host: HostId,
        count: u32,
        levels: &CellLevels,
        buddies: &mut BuddyAllocator,
    ) -> Vec<usize> {
        let Some(first) = levels.hosts.iter().position(|of| *of == host) else {
            return Vec::new();
        };
        let (top, physical) = (levels.top_level(), first / levels.sizes[levels.top_level()]);
        let bound = self.cells.iter().position(|cell| cell.bound == Some(physical));
        let Some(cell) = bound.or_else(|| self.cells.iter().position(|cell| cell.bound.is_none()))
        else {
            return Vec::new();
        };
        if bound.is_none() {
            buddies.take_this_cell(top, physical);
            self.cells[cell].bound = Some(physical);
        }
        let offset = first - levels.gpu_range(top, physical).start;
        let of_host = levels.hosts.iter().filter(|of| **of == host).count();
        let start = self.cells[cell].block.start + offset;
        let free = (start..start + of_host).filter(|gpu| !self.used[*gpu]);
        let held: Vec<usize> = free.take(count as usize).collect();
        held.iter().for_each(|gpu| self.used[*gpu] = true);
        held
    }

    fn return_gpus(&mut self, gpus: &[usize], buddies: &mut BuddyAllocator) {
        for gpu in gpus {
            self.used[*gpu] = false;
        }
        let sizes = buddies.cell_sizes().to_vec();
        for cell in &mut self.cells {
            let empty = cell.block.gpu_range(&sizes).all(|gpu| !self.used[gpu]);
            if let (Some(bound), true) = (cell.bound, empty) {
                buddies.return_cell(cell.block.level, bound);
                cell.bound = None;
            }
        }
    }

    /// The physical cell of every cell, while it has jobs.
    fn bound(&self) -> Vec<Option<usize>> {
        self.cells.iter().map(|cell| cell.bound).collect()
    }

    /// The GPU of the cluster that a virtual one is bound to.
    fn physical_gpu(&self, gpu: usize, levels: &CellLevels) -> Option<usize> {
        let cell =
            self.cells.iter().find(|cell| cell.block.gpu_range(&levels.sizes).contains(&gpu))?;
        let bound = levels.gpu_range(cell.block.level, cell.bound?);
        Some(bound.start + gpu - cell.block.start)
    }
}

/// One job being packed.
struct JobPacking<'a> {
    used: Vec<bool>,
    sizes: &'a [usize],
    taken: Vec<usize>,
}

impl JobPacking<'_> {
    /// Takes `gpus` of the blocks, which have so many: in the best block that has room for all, or
    /// else all of the emptiest block, and the rest in the same way.
    fn pack_job(&mut self, blocks: &[CellBlock], gpus: usize) {
        if gpus == 0 {
            return;
        }
        if let Some(best) = self.best_block(blocks, gpus) {
            if best.level == 0 {
                return self.take_all(best);
            }
            let parts: Vec<CellBlock> = best.sub_blocks(best.level - 1, self.sizes).collect();
            return self.pack_job(&parts, gpus);
        }
        let emptiest =
            blocks.iter().max_by_key(|block| (self.free_gpus(**block), Reverse(block.start)));
        let Some(emptiest) = emptiest.copied() else {
            return;
        };
        let free = self.free_gpus(emptiest);
        self.take_all(emptiest);
        self.pack_job(blocks, gpus - free);
    }

    /// Of the blocks' own blocks with room for `gpus`: the lowest level; there the fullest, then
    /// the one in the fullest parent, and so on.
    fn best_block(&self, blocks: &[CellBlock], gpus: usize) -> Option<CellBlock> {
        (0..self.sizes.len()).find_map(|level| {
            let outer = blocks.iter().filter(|block| block.level >= level);
            let parts = outer.flat_map(|outer| {
                outer.sub_blocks(level, self.sizes).map(move |part| (*outer, part))
            });
            let fits = parts.filter(|(_, part)| self.free_gpus(*part) >= gpus);
            let best = fits.min_by_key(|(outer, part)| self.free_by_level(*outer, *part));
            best.map(|(_, part)| part)
        })
    }

    /// Free GPUs of `part` and of each block around it, up to `outer`.
    fn free_by_level(&self, outer: CellBlock, part: CellBlock) -> Vec<usize> {
        (part.level..=outer.level)
            .map(|level| {
                let size = self.sizes[level];
                let start = outer.start + (part.start - outer.start) / size * size;
                self.free_gpus(CellBlock { level, start })
            })
            .collect()
    }

    fn free_gpus(&self, block: CellBlock) -> usize {
        let gpus = &self.used[block.gpu_range(self.sizes)];
        gpus.iter().filter(|used| !**used).count()
    }

    fn take_all(&mut self, block: CellBlock) {
        for gpu in block.gpu_range(self.sizes) {
            if !self.used[gpu] {
                self.used[gpu] = true;
                self.taken.push(gpu);
            }
        }
    }
}

#[cfg(test)]
mod tests;
