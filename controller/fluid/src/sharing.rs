//! Who gets how much now: strict classes on every link, max-min fair inside a class.
//!
//! Knows links, strands and rates, and no time: the engine above starts and stops strands and asks
//! for the rates that changed. A *strand* is a group of equal flows on one path, its weight their
//! number. A *cell* is one class on one link; what a cell leaves unused is what the next lower
//! cell of the link is offered.
//!
//! The decision: a change is followed only as far as it reaches. Max-min fairness says that every
//! strand has a *bottleneck*, a saturated cell in which none is faster than it (Bertsekas and
//! Gallager, Data Networks, §6.5.2). A cell that is nobody's bottleneck couples nothing, so a
//! change spreads through bottlenecks only ([`filling`]), and from class to class only downwards,
//! through the cells whose use changed.

mod filling;
mod strands;
mod tasks;

use filling::Filling;
use strands::HopArena;
use tasks::Tasks;

/// No cell, or no bottleneck.
const NONE: u32 = u32::MAX;

/// What a cell leaves is nothing if it is below this part of the link's capacity: the residue of
/// rounding must not start a lower class at a byte a century.
const RESIDUE: f64 = 1e-9;

/// A rate or an offer that changes by less than this part of itself has not changed.
const SAME: f64 = 1e-12;

#[derive(Debug, Clone)]
struct Link {
    capacity: f64,
    /// Its highest cell.
    top: u32,
}

/// A strand on a cell: the strand, and which of all hops it is.
#[derive(Debug, Clone, Copy)]
struct Member {
    strand: u32,
    hop: u32,
}

/// One class on one link. Cells are never removed, so there are at most links x classes.
#[derive(Debug, Clone, Default)]
struct Cell {
    link: u32,
    class: u32,
    /// Where tasks of the class are kept.
    queue: u32,
    /// The next lower class on the link.
    below: u32,
    /// How many members have their bottleneck here.
    tight: u32,
    /// Capacity that higher classes leave, bytes/s.
    offered: f64,
    /// Rate of all members together, bytes/s.
    used: f64,
    /// Strands that send here now, in no order that matters.
    members: Vec<Member>,
    dirty: bool,
    /// Round in which the cell was last touched; the fields below belong to that round.
    round: u64,
    opened: bool,
    /// Members whose rate this round computes, and the flows of those not yet frozen.
    inside: u32,
    weight: f64,
    /// What is left for them, bytes/s.
    residual: f64,
}

#[derive(Debug, Clone)]
struct Strand {
    first_hop: u32,
    hops: u32,
    bottleneck: u32,
    sending: bool,
    weight: f64,
    /// Rate of each of its flows, bytes/s.
    rate: f64,
    /// Round in which the rate was last computed; the fields below belong to that round: the new
    /// rate and the cell that sets it, none until it is known.
    round: u64,
    fill: f64,
    frozen_at: u32,
}

/// What changed since it was last cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// Strands with a new rate.
    pub(crate) strands: Vec<u32>,
    /// Cells whose use may be new.
    pub(crate) cells: Vec<u32>,
}

/// The sharing of all links by all strands.
#[derive(Debug, Clone)]
pub(crate) struct Sharing {
    links: Vec<Link>,
    cells: Vec<Cell>,
    strands: Vec<Strand>,
    free_strands: Vec<u32>,
    hops: HopArena,
    /// Dirty cells and fresh strands.
    tasks: Tasks,
    round: u64,
    filling: Filling,
    touched: u64,
}

impl Sharing {
    /// Links with these capacities, bytes/s, and no strand.
    pub(crate) fn new(capacity: &[f64]) -> Self {
        let links = capacity
            .iter()
            .map(|&capacity| Link {
                capacity,
                top: NONE,
            })
            .collect();
        Self {
            links,
            cells: Vec::new(),
            strands: Vec::new(),
            free_strands: Vec::new(),
            hops: HopArena::default(),
            tasks: Tasks::default(),
            round: 0,
            filling: Filling::default(),
            touched: 0,
        }
    }

    /// Rate of each flow of a strand, bytes/s.
    pub(crate) fn rate(&self, strand: u32) -> f64 {
        self.strands[strand as usize].rate
    }

    /// Strands whose rate was computed, counted each time.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Link, class and rate in bytes/s of a cell.
    pub(crate) fn usage(&self, cell: u32) -> (u32, u32, f64) {
        let cell = &self.cells[cell as usize];
        (cell.link, cell.class, cell.used)
    }

    /// How many cells there are.
    pub(crate) fn cell_count(&self) -> usize {
        self.cells.len()
    }

    /// Cells of a link, highest class first.
    pub(crate) fn cells_of(&self, link: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |cell: u32| (cell != NONE).then_some(cell);
        let top = some(self.links[link as usize].top);
        std::iter::successors(top, move |&cell| some(self.cells[cell as usize].below))
    }

    /// Capacity of a link, bytes/s.
    pub(crate) fn capacity(&self, link: u32) -> Option<f64> {
        self.links.get(link as usize).map(|link| link.capacity)
    }

    /// How many links there are.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Gives a link another capacity, bytes/s.
    pub(crate) fn set_capacity(&mut self, link: u32, capacity: f64) {
        let link = &mut self.links[link as usize];
        link.capacity = capacity;
        let top = link.top;
        self.offer(top, capacity);
    }

    /// Lets a strand send from now on; its rate is zero until [`Sharing::settle`].
    pub(crate) fn start(&mut self, strand: u32) {
        let id = strand;
        let strand = &mut self.strands[id as usize];
        strand.sending = true;
        let mut queue = NONE;
        for hop in strand.first_hop..strand.first_hop + strand.hops {
            let place = self.hops.get_mut(hop);
            let cell = &mut self.cells[place.cell as usize];
            place.slot = cell.members.len() as u32;
            cell.members.push(Member { strand: id, hop });
            queue = cell.queue;
        }
        self.tasks.add_strand(queue, id);
    }

    /// Takes a strand off its links; what it frees is shared by [`Sharing::settle`].
    pub(crate) fn stop(&mut self, strand: u32) {
        let strand = &mut self.strands[strand as usize];
        strand.sending = false;
        let freed = strand.weight * std::mem::take(&mut strand.rate);
        let bottleneck = std::mem::replace(&mut strand.bottleneck, NONE);
        let hops = strand.first_hop..strand.first_hop + strand.hops;
        if bottleneck != NONE {
            self.cells[bottleneck as usize].tight -= 1;
        }
        for hop in hops {
            let place = *self.hops.get(hop);
            let cell = &mut self.cells[place.cell as usize];
            cell.members.swap_remove(place.slot as usize);
            if let Some(moved) = cell.members.get(place.slot as usize) {
                self.hops.get_mut(moved.hop).slot = place.slot;
            }
            cell.used = if cell.members.is_empty() {
                0.0
            } else {
                (cell.used - freed).max(0.0)
            };
            self.mark(place.cell);
        }
    }

    /// Whether nothing changed since the last [`Sharing::settle`].
    pub(crate) fn is_settled(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Shares the links anew wherever something changed and adds what became different to
    /// `changes`. True if there was anything to do.
    pub(crate) fn settle(&mut self, changes: &mut Changes) -> bool {
        let any = !self.tasks.is_empty();
        while let Some(queue) = self.tasks.next() {
            self.share_class(queue, changes);
        }
        any
    }

    /// Stops everything at once, as if nothing had ever been sent.
    pub(crate) fn reset(&mut self) {
        self.tasks.clear();
        self.touched = 0;
        for cell in &mut self.cells {
            cell.members.clear();
            cell.offered = self.links[cell.link as usize].capacity;
            (cell.used, cell.tight, cell.dirty) = (0.0, 0, false);
        }
        for strand in &mut self.strands {
            (strand.rate, strand.bottleneck, strand.sending) = (0.0, NONE, false);
        }
    }

    fn mark(&mut self, cell: u32) {
        let id = cell;
        let cell = &mut self.cells[id as usize];
        if !std::mem::replace(&mut cell.dirty, true) {
            self.tasks.add_cell(cell.queue, id);
        }
    }

    /// Tells the cell below, if there is one, what this one leaves.
    fn pass_down(&mut self, cell: u32) {
        let cell = &self.cells[cell as usize];
        let below = cell.below;
        if below != NONE {
            let left = cell.offered - cell.used;
            let floor = RESIDUE * self.links[cell.link as usize].capacity;
            self.offer(below, if left > floor { left } else { 0.0 });
        }
    }

    /// Offers `left` bytes/s to a cell, and to those below for as long as none is in use.
    fn offer(&mut self, mut cell: u32, left: f64) {
        while cell != NONE {
            let offered = &mut self.cells[cell as usize];
            if (left - offered.offered).abs() <= SAME * left {
                return;
            }
            offered.offered = left;
            if !offered.members.is_empty() {
                return self.mark(cell);
            }
            cell = offered.below;
        }
    }
}
