//! The GPUs of a tenant as cells that are bound to those of the cluster while they have jobs, and
//! how a job is packed into them.

use std::cmp::Reverse;
use std::ops::Range;

use topology::HostId;

use super::cells::{BuddyAllocator, CellLevels};

/// A virtual cluster: its cells in a row, each with its GPUs in a row.
#[derive(Clone, Debug)]
pub(super) struct VirtualCluster {
    pub(super) cells: Vec<VirtualCell>,
    /// Which of its GPUs have a job.
    pub(super) used: Vec<bool>,
}

/// One cell of its quota.
#[derive(Clone, Debug)]
pub(super) struct VirtualCell {
    block: CellBlock,
    /// The physical cell, while it has jobs.
    pub(super) bound: Option<usize>,
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
    pub(super) fn new(levels: &CellLevels, cells: &[usize]) -> Self {
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
    pub(super) fn take_gpus(
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
    pub(super) fn hold_gpus(
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

    pub(super) fn return_gpus(&mut self, gpus: &[usize], buddies: &mut BuddyAllocator) {
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
    pub(super) fn bound(&self) -> Vec<Option<usize>> {
        self.cells.iter().map(|cell| cell.bound).collect()
    }

    /// The GPU of the cluster that a virtual one is bound to.
    pub(super) fn physical_gpu(&self, gpu: usize, levels: &CellLevels) -> Option<usize> {
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
