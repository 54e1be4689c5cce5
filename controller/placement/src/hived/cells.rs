//! Cells: aligned blocks of GPUs at the levels of a hierarchy, and their buddy allocation.
//!
//! GPUs are numbered leaf by leaf, host by host, so the cell `i` of a level is the GPUs
//! `i * size .. (i + 1) * size`, and parents and buddies are arithmetic.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use topology::HostId;

use super::HivedError;
use crate::{GpuCluster, GpusByHost};

/// The levels of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellLevels {
    /// GPUs of a cell, by level; the first is one GPU, each divides the next.
    pub(super) sizes: Vec<usize>,
    /// The host of every GPU, by number.
    pub(super) hosts: Vec<HostId>,
}

impl CellLevels {
    /// GPU, halves of a host down to pairs (PCIe switches and sockets, where its GPUs are a power
    /// of two), host, and leaf where all leaves have as many hosts.
    pub(super) fn from_cluster(cluster: &GpuCluster) -> Result<Self, HivedError> {
        let mut leaves: BTreeMap<u32, Vec<HostId>> = BTreeMap::new();
        for (id, host) in cluster.hosts.iter().enumerate() {
            leaves.entry(host.leaf).or_default().push(id.into());
        }
        let of_host = cluster.hosts.first().map_or(0, |host| host.gpus);
        if of_host == 0 || cluster.hosts.iter().any(|host| host.gpus != of_host) {
            return Err(HivedError::UnevenHosts);
        }
        let of_host = of_host as usize;
        let mut sizes = vec![1];
        if of_host.is_power_of_two() {
            sizes.extend((1..of_host.ilog2()).map(|level| 1 << level));
        }
        let per_leaf = leaves.values().next().map_or(1, Vec::len);
        let even = leaves.values().all(|hosts| hosts.len() == per_leaf);
        sizes.extend([of_host, of_host * if even { per_leaf } else { 1 }]);
        sizes.dedup();
        let hosts = leaves.into_values().flatten();
        Ok(Self {
            sizes,
            hosts: hosts.flat_map(|host| std::iter::repeat_n(host, of_host)).collect(),
        })
    }

    /// The highest level.
    pub(super) fn top_level(&self) -> usize {
        self.sizes.len() - 1
    }

    /// Cells of the highest level.
    pub(super) fn top_cells(&self) -> usize {
        self.hosts.len() / self.sizes[self.top_level()]
    }

    /// How many of these GPUs each host has.
    pub(super) fn gpus_by_host(&self, gpus: &[usize]) -> GpusByHost {
        let mut by_host = GpusByHost::new();
        for gpu in gpus {
            *by_host.entry(self.hosts[*gpu]).or_default() += 1;
        }
        by_host
    }

    /// GPUs of a cell.
    pub(super) fn gpu_range(&self, level: usize, cell: usize) -> Range<usize> {
        let size = self.sizes[level];
        cell * size..(cell + 1) * size
    }
}

/// Free cells, by level: split when a smaller one is wanted, merged when all buddies are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BuddyAllocator {
    sizes: Vec<usize>,
    free: Vec<BTreeSet<usize>>,
}

impl BuddyAllocator {
    /// Everything free.
    pub(super) fn new(levels: &CellLevels) -> Self {
        let mut free = vec![BTreeSet::new(); levels.sizes.len()];
        free[levels.top_level()] = (0..levels.top_cells()).collect();
        Self { sizes: levels.sizes.clone(), free }
    }

    /// Free cells, by level.
    pub(super) fn free_cells(&self) -> &[BTreeSet<usize>] {
        &self.free
    }

    /// As it was when these cells were free.
    pub(super) fn restore_free(&mut self, free: Vec<BTreeSet<usize>>) {
        self.free = free;
        self.free.resize(self.sizes.len(), BTreeSet::new());
    }

    /// GPUs of a cell, by level.
    pub(super) fn cell_sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// A cell of the level: the first free one, or the first part of a larger one.
    pub(super) fn take_cell(&mut self, level: usize) -> Option<usize> {
        if let Some(cell) = self.free.get_mut(level)?.pop_first() {
            return Some(cell);
        }
        let parent = self.take_cell(level + 1)?;
        let parts = self.child_cells(level, parent);
        self.free[level].extend(parts.start + 1..parts.end);
        Some(parts.start)
    }

    /// Takes this cell, if it is free as a whole.
    pub(super) fn take_this_cell(&mut self, level: usize, cell: usize) {
        self.free[level].remove(&cell);
    }

    /// Gives a cell back.
    pub(super) fn return_cell(&mut self, level: usize, cell: usize) {
        self.free[level].insert(cell);
        if level + 1 == self.sizes.len() {
            return;
        }
        let parent = cell * self.sizes[level] / self.sizes[level + 1];
        let parts = self.child_cells(level, parent);
        if parts.clone().all(|part| self.free[level].contains(&part)) {
            for part in parts {
                self.free[level].remove(&part);
            }
            self.return_cell(level + 1, parent);
        }
    }

    /// The cells of `level` in a cell of the level above.
    fn child_cells(&self, level: usize, parent: usize) -> Range<usize> {
        let count = self.sizes[level + 1] / self.sizes[level];
        parent * count..(parent + 1) * count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_split_and_merged() {
        let levels = CellLevels { sizes: vec![1, 2, 4, 8], hosts: vec![HostId(0); 8] };
        let mut buddies = BuddyAllocator::new(&levels);
        let whole = buddies.clone();
        assert_eq!(buddies.take_cell(0), Some(0));
        // 8 = 4 + 2 + 1 + 1: a pair comes from the smallest block that has one.
        assert_eq!(buddies.take_cell(1), Some(1));
        assert_eq!(buddies.take_cell(2), Some(1));
        assert_eq!(buddies.take_cell(1), None);
        assert_eq!(buddies.take_cell(0), Some(1));
        for (level, cell) in [(1, 1), (0, 0), (0, 1)] {
            buddies.return_cell(level, cell);
        }
        assert_eq!(buddies.take_cell(2), Some(0));
        buddies.return_cell(2, 0);
        buddies.return_cell(2, 1);
        assert_eq!(buddies, whole);
    }
}
