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

use super::{NONE, RateAllocator, RateChanges, TOLERANCE};

/// Memory of a round, kept for the next.
#[derive(Debug, Clone, Default)]
pub(super) struct FillingRound {
    /// Strands inside.
    inside: Vec<u32>,
    /// Cells of this class that the round looks at.
    touched: Vec<u32>,
    /// Fair share of each cell when it was last computed, as ordered bits, and the cell. Shares
    /// only grow while others are frozen, so an entry that is out of date comes too early and is
    /// put back.
    fair_shares: BinaryHeap<Reverse<(u64, u32)>>,
}

impl RateAllocator {
    /// Does the tasks of one class and hands what it leaves to lower ones.
    pub(super) fn allocate_level(&mut self, queue: u32, changes: &mut RateChanges) {
        self.round += 1;
        let mut filling = std::mem::take(&mut self.filling);
        self.collect_inside(queue, &mut filling);
        let mut reached = 0;
        loop {
            self.extend_inside(&mut filling, &mut reached);
            self.compute_residuals(&mut filling);
            self.groups_computed += filling.inside.len() as u64;
            match self.fill_rates(&mut filling) {
                None => break,
                Some(overtaken) => self.bring_members_inside(overtaken, &mut filling),
            }
        }
        self.adopt_rates(&filling, changes);
        filling.inside.clear();
        filling.touched.clear();
        self.filling = filling;
    }

    /// Brings in the strands that start, and the members of changed cells that feel the change.
    fn collect_inside(&mut self, queue: u32, filling: &mut FillingRound) {
        while let Some(id) = self.pending.pop_group(queue) {
            // It may have been stopped since, or moved to another class.
            let strand = &self.groups[id as usize];
            if strand.is_sending
                && self.link_levels[self.hops.get(strand.first_hop).link_level as usize].work_queue
                    == queue
            {
                self.bring_inside(id, filling);
            }
        }
        while let Some(id) = self.pending.pop_link_level(queue) {
            self.touch_link_level(id, filling);
            let cell = &mut self.link_levels[id as usize];
            cell.is_dirty = false;
            if cell.bottlenecked > 0 || cell.used > cell.offered * (1.0 + TOLERANCE) {
                self.bring_members_inside(id, filling);
            }
        }
    }

    /// Brings in the members of every bottleneck that is passed by strands inside, those before
    /// `reached` having been followed already.
    fn extend_inside(&mut self, filling: &mut FillingRound, reached: &mut usize) {
        while let Some(&strand) = filling.inside.get(*reached) {
            *reached += 1;
            for hop in self.hops_of(strand) {
                let cell = self.hops.get(hop).link_level;
                self.touch_link_level(cell, filling);
                if self.link_levels[cell as usize].bottlenecked > 0 {
                    self.bring_members_inside(cell, filling);
                }
            }
        }
    }

    /// Works out what the strands outside leave on every cell, and how many flows want it.
    fn compute_residuals(&mut self, filling: &mut FillingRound) {
        for &cell in &filling.touched {
            let cell = &mut self.link_levels[cell as usize];
            (cell.inside_count, cell.weight) = (0, 0.0);
            cell.residual = cell.offered - cell.used;
        }
        for &strand in &filling.inside {
            let hops = self.hops_of(strand);
            let strand = &mut self.groups[strand as usize];
            strand.frozen_at = NONE;
            for hop in hops {
                let cell = &mut self.link_levels[self.hops.get(hop).link_level as usize];
                cell.inside_count += 1;
                cell.weight += strand.weight;
                cell.residual += strand.weight * strand.rate;
            }
        }
        self.list_fair_shares(filling);
    }

    /// Lists the fair shares of all cells that may become a bottleneck. Of the cells that a strand
    /// has to itself only the scarcest may.
    fn list_fair_shares(&mut self, filling: &mut FillingRound) {
        filling.fair_shares.clear();
        for &id in &filling.touched {
            let cell = &mut self.link_levels[id as usize];
            if cell.inside_count as usize == cell.members.len() {
                cell.residual = cell.offered;
            }
            if cell.inside_count > 1 {
                filling.fair_shares.push(Reverse((cell.fair_share().to_bits(), id)));
            }
        }
        for &strand in &filling.inside {
            let alone = self.hops_of(strand).filter_map(|hop| {
                let id = self.hops.get(hop).link_level;
                let cell = &self.link_levels[id as usize];
                (cell.inside_count == 1).then(|| Reverse((cell.fair_share().to_bits(), id)))
            });
            filling.fair_shares.extend(alone.max());
        }
    }

    /// Freezes the strands of the scarcest cell, again and again. Stops with a cell in which the
    /// inside would be slower than somebody outside.
    fn fill_rates(&mut self, filling: &mut FillingRound) -> Option<u32> {
        while let Some(Reverse((bits, id))) = filling.fair_shares.pop() {
            let cell = &self.link_levels[id as usize];
            if cell.weight <= 0.0 {
                continue;
            }
            let share = cell.fair_share();
            if share.to_bits() > bits {
                filling.fair_shares.push(Reverse((share.to_bits(), id)));
                continue;
            }
            if (cell.inside_count as usize) < cell.members.len()
                && self.has_faster_outside(id, share)
            {
                return Some(id);
            }
            self.freeze_members(id, share);
        }
        None
    }

    /// Whether somebody outside is faster than `share` on a cell.
    fn has_faster_outside(&self, cell: u32, share: f64) -> bool {
        let limit = share * (1.0 + TOLERANCE);
        let outside = |strand: &&super::FlowGroup| strand.round != self.round;
        let members = self.link_levels[cell as usize].members.iter();
        members
            .map(|member| &self.groups[member.group as usize])
            .filter(outside)
            .any(|strand| strand.rate > limit)
    }

    /// Gives `share` to every strand inside that passes `cell` and has no rate yet.
    fn freeze_members(&mut self, bottleneck: u32, share: f64) {
        for index in 0..self.link_levels[bottleneck as usize].members.len() {
            let id = self.link_levels[bottleneck as usize].members[index].group;
            let strand = &mut self.groups[id as usize];
            if strand.round != self.round || strand.frozen_at != NONE {
                continue;
            }
            (strand.new_rate, strand.frozen_at) = (share, bottleneck);
            for hop in strand.first_hop..strand.first_hop + strand.hop_count {
                let cell = &mut self.link_levels[self.hops.get(hop).link_level as usize];
                cell.weight -= strand.weight;
                cell.residual -= strand.weight * share;
            }
        }
    }

    /// Makes the computed rates the rates, and tells the classes below what is left.
    fn adopt_rates(&mut self, filling: &FillingRound, changes: &mut RateChanges) {
        for &id in &filling.inside {
            let strand = &mut self.groups[id as usize];
            if strand.bottleneck != NONE {
                self.link_levels[strand.bottleneck as usize].bottlenecked -= 1;
            }
            strand.bottleneck = strand.frozen_at;
            self.link_levels[strand.bottleneck as usize].bottlenecked += 1;
            if (strand.new_rate - strand.rate).abs() > TOLERANCE * strand.rate {
                strand.rate = strand.new_rate;
                changes.groups.push(id);
            }
        }
        for &id in &filling.touched {
            let cell = &mut self.link_levels[id as usize];
            if cell.inside_count > 0 {
                let full = cell.bottlenecked > 0;
                cell.used = if full { cell.offered } else { cell.offered - cell.residual };
            }
            changes.link_levels.push(id);
            self.offer_remainder(id);
        }
    }

    fn bring_members_inside(&mut self, cell: u32, filling: &mut FillingRound) {
        if std::mem::replace(&mut self.link_levels[cell as usize].is_inside, true) {
            return;
        }
        for index in 0..self.link_levels[cell as usize].members.len() {
            self.bring_inside(self.link_levels[cell as usize].members[index].group, filling);
        }
    }

    fn bring_inside(&mut self, strand: u32, filling: &mut FillingRound) {
        let round = &mut self.groups[strand as usize].round;
        if std::mem::replace(round, self.round) != self.round {
            filling.inside.push(strand);
        }
    }

    fn touch_link_level(&mut self, cell: u32, filling: &mut FillingRound) {
        let id = cell;
        let cell = &mut self.link_levels[id as usize];
        if std::mem::replace(&mut cell.round, self.round) != self.round {
            cell.is_inside = false;
            filling.touched.push(id);
        }
    }

    fn hops_of(&self, strand: u32) -> std::ops::Range<u32> {
        let strand = &self.groups[strand as usize];
        strand.first_hop..strand.first_hop + strand.hop_count
    }
}

impl super::LinkLevel {
    /// Fair share of each flow that has no rate yet, bytes/s.
    fn fair_share(&self) -> f64 {
        (self.residual / self.weight).max(0.0)
    }
}
