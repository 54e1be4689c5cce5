//! Max-min fair rates of one class, by progressive filling (Bertsekas and Gallager, §6.5.2), for
//! as many strands as a change reaches.
//!
//! The strands *inside* are those whose rate is computed; others on the same cells keep theirs.
//! Inside are, to begin with, the strands that start and the members of every changed cell that is
//! a bottleneck or is now overfull; then, until nothing is added, the members of every bottleneck
//! that a strand inside passes. Filling then gives the inside its rates from what the others leave.
//! If that makes a cell a bottleneck in which somebody outside is faster, its members come inside
//! too, and filling starts again. When it ends every strand, inside and outside, has a bottleneck,
//! which is what makes rates max-min fair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Changes, NONE, SAME, Sharing};

/// Memory of a round, kept for the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Filling {
    /// Strands inside.
    strands: Vec<u32>,
    /// Cells of this class that the round looks at.
    cells: Vec<u32>,
    /// Fair share of each cell when it was last computed, as ordered bits, and the cell. Shares
    /// only grow while others are frozen, so an entry that is out of date comes too early and is
    /// put back.
    shares: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Sharing {
    /// Does the tasks of one class and hands what it leaves to lower ones.
    pub(super) fn share_class(&mut self, queue: u32, changes: &mut Changes) {
        self.round += 1;
        let mut filling = std::mem::take(&mut self.filling);
        self.gather(queue, &mut filling);
        let mut reached = 0;
        loop {
            self.spread(&mut filling, &mut reached);
            self.prepare(&mut filling);
            self.touched += filling.strands.len() as u64;
            match self.fill(&mut filling) {
                None => break,
                Some(overtaken) => self.open(overtaken, &mut filling),
            }
        }
        self.adopt(&filling, changes);
        filling.strands.clear();
        filling.cells.clear();
        self.filling = filling;
    }

    /// Brings in the strands that start, and the members of changed cells that feel the change.
    fn gather(&mut self, queue: u32, filling: &mut Filling) {
        while let Some(id) = self.tasks.take_strand(queue) {
            // It may have been stopped since, or moved to another class.
            let strand = &self.strands[id as usize];
            if strand.sending
                && self.cells[self.hops.get(strand.first_hop).cell as usize].queue == queue
            {
                self.enter(id, filling);
            }
        }
        while let Some(id) = self.tasks.take_cell(queue) {
            self.touch(id, filling);
            let cell = &mut self.cells[id as usize];
            cell.dirty = false;
            if cell.tight > 0 || cell.used > cell.offered * (1.0 + SAME) {
                self.open(id, filling);
            }
        }
    }

    /// Brings in the members of every bottleneck that is passed by strands inside, those before
    /// `reached` having been followed already.
    fn spread(&mut self, filling: &mut Filling, reached: &mut usize) {
        while let Some(&strand) = filling.strands.get(*reached) {
            *reached += 1;
            for hop in self.hops_of(strand) {
                let cell = self.hops.get(hop).cell;
                self.touch(cell, filling);
                if self.cells[cell as usize].tight > 0 {
                    self.open(cell, filling);
                }
            }
        }
    }

    /// Works out what the strands outside leave on every cell, and how many flows want it.
    fn prepare(&mut self, filling: &mut Filling) {
        for &cell in &filling.cells {
            let cell = &mut self.cells[cell as usize];
            (cell.inside, cell.weight) = (0, 0.0);
            cell.residual = cell.offered - cell.used;
        }
        for &strand in &filling.strands {
            let hops = self.hops_of(strand);
            let strand = &mut self.strands[strand as usize];
            strand.frozen_at = NONE;
            for hop in hops {
                let cell = &mut self.cells[self.hops.get(hop).cell as usize];
                cell.inside += 1;
                cell.weight += strand.weight;
                cell.residual += strand.weight * strand.rate;
            }
        }
        self.list_shares(filling);
    }

    /// Lists the fair shares of all cells that may become a bottleneck. Of the cells that a strand
    /// has to itself only the scarcest may.
    fn list_shares(&mut self, filling: &mut Filling) {
        filling.shares.clear();
        for &id in &filling.cells {
            let cell = &mut self.cells[id as usize];
            if cell.inside as usize == cell.members.len() {
                cell.residual = cell.offered;
            }
            if cell.inside > 1 {
                filling.shares.push(Reverse((cell.share().to_bits(), id)));
            }
        }
        for &strand in &filling.strands {
            let alone = self.hops_of(strand).filter_map(|hop| {
                let id = self.hops.get(hop).cell;
                let cell = &self.cells[id as usize];
                (cell.inside == 1).then(|| Reverse((cell.share().to_bits(), id)))
            });
            filling.shares.extend(alone.max());
        }
    }

    /// Freezes the strands of the scarcest cell, again and again. Stops with a cell in which the
    /// inside would be slower than somebody outside.
    fn fill(&mut self, filling: &mut Filling) -> Option<u32> {
        while let Some(Reverse((bits, id))) = filling.shares.pop() {
            let cell = &self.cells[id as usize];
            if cell.weight <= 0.0 {
                continue;
            }
            let share = cell.share();
            if share.to_bits() > bits {
                filling.shares.push(Reverse((share.to_bits(), id)));
                continue;
            }
            if (cell.inside as usize) < cell.members.len() && self.overtaken(id, share) {
                return Some(id);
            }
            self.freeze(id, share);
        }
        None
    }

    /// Whether somebody outside is faster than `share` on a cell.
    fn overtaken(&self, cell: u32, share: f64) -> bool {
        let limit = share * (1.0 + SAME);
        let outside = |strand: &&super::Strand| strand.round != self.round;
        let members = self.cells[cell as usize].members.iter();
        members
            .map(|member| &self.strands[member.strand as usize])
            .filter(outside)
            .any(|strand| strand.rate > limit)
    }

    /// Gives `share` to every strand inside that passes `cell` and has no rate yet.
    fn freeze(&mut self, bottleneck: u32, share: f64) {
        for index in 0..self.cells[bottleneck as usize].members.len() {
            let id = self.cells[bottleneck as usize].members[index].strand;
            let strand = &mut self.strands[id as usize];
            if strand.round != self.round || strand.frozen_at != NONE {
                continue;
            }
            (strand.fill, strand.frozen_at) = (share, bottleneck);
            for hop in strand.first_hop..strand.first_hop + strand.hops {
                let cell = &mut self.cells[self.hops.get(hop).cell as usize];
                cell.weight -= strand.weight;
                cell.residual -= strand.weight * share;
            }
        }
    }

    /// Makes the computed rates the rates, and tells the classes below what is left.
    fn adopt(&mut self, filling: &Filling, changes: &mut Changes) {
        for &id in &filling.strands {
            let strand = &mut self.strands[id as usize];
            if strand.bottleneck != NONE {
                self.cells[strand.bottleneck as usize].tight -= 1;
            }
            strand.bottleneck = strand.frozen_at;
            self.cells[strand.bottleneck as usize].tight += 1;
            if (strand.fill - strand.rate).abs() > SAME * strand.rate {
                strand.rate = strand.fill;
                changes.strands.push(id);
            }
        }
        for &id in &filling.cells {
            let cell = &mut self.cells[id as usize];
            if cell.inside > 0 {
                let full = cell.tight > 0;
                cell.used = if full {
                    cell.offered
                } else {
                    cell.offered - cell.residual
                };
            }
            changes.cells.push(id);
            self.pass_down(id);
        }
    }

    fn open(&mut self, cell: u32, filling: &mut Filling) {
        if std::mem::replace(&mut self.cells[cell as usize].opened, true) {
            return;
        }
        for index in 0..self.cells[cell as usize].members.len() {
            self.enter(self.cells[cell as usize].members[index].strand, filling);
        }
    }

    fn enter(&mut self, strand: u32, filling: &mut Filling) {
        let round = &mut self.strands[strand as usize].round;
        if std::mem::replace(round, self.round) != self.round {
            filling.strands.push(strand);
        }
    }

    fn touch(&mut self, cell: u32, filling: &mut Filling) {
        let id = cell;
        let cell = &mut self.cells[id as usize];
        if std::mem::replace(&mut cell.round, self.round) != self.round {
            cell.opened = false;
            filling.cells.push(id);
        }
    }

    fn hops_of(&self, strand: u32) -> std::ops::Range<u32> {
        let strand = &self.strands[strand as usize];
        strand.first_hop..strand.first_hop + strand.hops
    }
}

impl super::Cell {
    /// Fair share of each flow that has no rate yet, bytes/s.
    fn share(&self) -> f64 {
        (self.residual / self.weight).max(0.0)
    }
}
