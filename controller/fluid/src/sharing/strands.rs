//! Laying strands over links: their hops, the cells under them, and the memory of both. Nothing
//! here shares a rate.

use super::{Cell, NONE, Sharing, Strand};

/// One strand on one cell: the cell, and its place among the members while it sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) cell: u32,
    pub(super) slot: u32,
}

/// Hops of all strands, those of a strand side by side. Freed runs are kept by length and given
/// out again, so that memory follows the strands present and not the strands ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct HopArena {
    hops: Vec<Hop>,
    free: Vec<Vec<u32>>,
}

impl HopArena {
    pub(super) fn get(&self, hop: u32) -> &Hop {
        &self.hops[hop as usize]
    }

    pub(super) fn get_mut(&mut self, hop: u32) -> &mut Hop {
        &mut self.hops[hop as usize]
    }

    fn take(&mut self, length: usize) -> u32 {
        if let Some(first) = self.free.get_mut(length).and_then(Vec::pop) {
            return first;
        }
        let first = self.hops.len();
        self.hops.resize(
            first + length,
            Hop {
                cell: NONE,
                slot: 0,
            },
        );
        first as u32
    }

    fn give_back(&mut self, first: u32, length: usize) {
        if self.free.len() <= length {
            self.free.resize(length + 1, Vec::new());
        }
        self.free[length].push(first);
    }
}

impl Sharing {
    /// A strand of `weight` equal flows of `class` over the links of `path`, not yet sending.
    pub(crate) fn lay(&mut self, path: &[u32], class: u32, weight: f64) -> u32 {
        let first_hop = self.hops.take(path.len());
        for (hop, &link) in (first_hop..).zip(path) {
            self.hops.get_mut(hop).cell = self.cell(link, class);
        }
        let strand = Strand {
            first_hop,
            hops: path.len() as u32,
            bottleneck: NONE,
            sending: false,
            weight,
            rate: 0.0,
            round: 0,
            fill: 0.0,
            frozen_at: NONE,
        };
        if let Some(id) = self.free_strands.pop() {
            self.strands[id as usize] = strand;
            return id;
        }
        self.strands.push(strand);
        self.strands.len() as u32 - 1
    }

    /// Forgets a strand that does not send.
    pub(crate) fn lift(&mut self, strand: u32) {
        let Strand {
            first_hop, hops, ..
        } = self.strands[strand as usize];
        self.hops.give_back(first_hop, hops as usize);
        self.free_strands.push(strand);
    }

    /// Moves a strand that does not send to another class.
    pub(crate) fn reclass(&mut self, strand: u32, class: u32) {
        let strand = &mut self.strands[strand as usize];
        for hop in strand.first_hop..strand.first_hop + strand.hops {
            let link = self.cells[self.hops.get(hop).cell as usize].link;
            self.hops.get_mut(hop).cell = self.cell(link, class);
        }
    }

    /// How many flows a strand stands for.
    pub(crate) fn weight(&self, strand: u32) -> f64 {
        self.strands[strand as usize].weight
    }

    /// Lets a strand that does not send stand for `weight` flows.
    pub(crate) fn set_weight(&mut self, strand: u32, weight: f64) {
        self.strands[strand as usize].weight = weight;
    }

    /// Whether a strand sends now.
    pub(crate) fn is_sending(&self, strand: u32) -> bool {
        self.strands[strand as usize].sending
    }

    /// Links of a strand, in order.
    pub(crate) fn path(&self, strand: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        let strand = &self.strands[strand as usize];
        (strand.first_hop..strand.first_hop + strand.hops)
            .map(|hop| self.cells[self.hops.get(hop).cell as usize].link)
    }

    /// The cell of `class` on `link`, made if need be.
    fn cell(&mut self, link: u32, class: u32) -> u32 {
        let (mut above, mut next) = (NONE, self.links[link as usize].top);
        while next != NONE && self.cells[next as usize].class > class {
            (above, next) = (next, self.cells[next as usize].below);
        }
        if next != NONE && self.cells[next as usize].class == class {
            return next;
        }
        let id = self.cells.len() as u32;
        let offered = self.offer_between(link, above, next);
        let queue = self.tasks.queue(class);
        self.cells.push(Cell {
            link,
            class,
            queue,
            below: next,
            offered,
            ..Cell::default()
        });
        match above {
            NONE => self.links[link as usize].top = id,
            above => self.cells[above as usize].below = id,
        }
        id
    }

    /// What a new, empty cell between two others is offered. It takes nothing, so the offer of the
    /// one below passes through it, even while that one waits for its next sharing.
    fn offer_between(&self, link: u32, above: u32, below: u32) -> f64 {
        let capacity = self.links[link as usize].capacity;
        match (above, below) {
            (NONE, NONE) => capacity,
            (above, NONE) => {
                let above = &self.cells[above as usize];
                (above.offered - above.used).max(0.0)
            }
            (_, below) => self.cells[below as usize].offered,
        }
    }
}
