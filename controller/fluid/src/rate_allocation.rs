//! Rates of all flows. Where hosts give them, see [`host_rates`]. Otherwise: strict priority between
//! levels on every link but fifo ones (`fifo_links`), max-min fair inside a level.
//!
//! This module has links, flow groups and rates, but no time; the engine above starts and stops
//! groups and reads the rates that changed. A *flow group* is a set of equal flows on one path; its
//! weight is their number. A *link level* is one level on one link; the capacity that it leaves
//! unused is offered to the next lower level of the link.
//!
//! The decision: a change is followed only as far as it reaches. Under max-min fairness every flow
//! group has a *bottleneck*, a saturated link level in which no group is faster (Bertsekas and
//! Gallager, Data Networks, §6.5.2). A link level that is no group's bottleneck couples nothing, so
//! a change spreads through bottlenecks only ([`progressive_filling`]), and between levels only
//! downwards, through the link levels whose use changed.

mod fifo_links;
mod flow_groups;
mod host_rates;
mod pending_work;
mod progressive_filling;

use fifo_links::{FifoShareSearch, FifoWork};
use flow_groups::HopArena;
pub(crate) use host_rates::SendingFlow;
use pending_work::PendingWork;
use progressive_filling::FillingRound;

use crate::network::FluidNetwork;

/// No link level, or no bottleneck.
const NONE: u32 = u32::MAX;

/// A remainder below this part of the link's capacity counts as nothing: the residue of rounding
/// must not start a lower level at a byte a century.
const RESIDUE: f64 = 1e-9;

/// A rate or an offer that changes by less than this part of itself has not changed.
const TOLERANCE: f64 = 1e-12;

#[derive(Debug, Clone)]
struct FluidLink {
    capacity: f64,
    /// Its highest link level.
    top_level: u32,
    /// Whether it serves all levels alike.
    is_fifo: bool,
    /// Reallocation in which its offers were last started anew.
    refreshed_at: u64,
    fifo_share: FifoShareSearch,
}

/// A flow group on a link level.
#[derive(Debug, Clone, Copy)]
struct LevelMember {
    group: u32,
    /// Index of the group's hop here, in the arena of all hops.
    hop: u32,
}

/// One level on one link. Link levels are never removed: at most links times levels exist.
#[derive(Debug, Clone, Default)]
struct LinkLevel {
    link: u32,
    level: u32,
    /// Queue of the level's pending work.
    work_queue: u32,
    /// The next lower level on the link.
    below: u32,
    /// How many members have their bottleneck here.
    bottlenecked: u32,
    /// Capacity that higher levels leave, bytes/s.
    offered: f64,
    /// Rate of all members together, bytes/s.
    used: f64,
    /// Flow groups that send here now, in arbitrary order.
    members: Vec<LevelMember>,
    is_dirty: bool,
    /// Round in which the link level was last examined; the fields below belong to that round.
    round: u64,
    /// Whether its members take part in the round.
    is_inside: bool,
    /// Members whose rate the round computes, and the number of their flows not yet frozen.
    inside_count: u32,
    weight: f64,
    /// Capacity left for those flows, bytes/s.
    residual: f64,
}

#[derive(Debug, Clone)]
struct FlowGroup {
    first_hop: u32,
    hop_count: u32,
    bottleneck: u32,
    is_sending: bool,
    weight: f64,
    /// Rate of each of its flows, bytes/s.
    rate: f64,
    /// Round in which the rate was last computed; the fields below belong to that round: the new
    /// rate, and the link level that limits it, `NONE` until it is known.
    round: u64,
    new_rate: f64,
    frozen_at: u32,
}

/// What changed since the last clear.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateChanges {
    /// Flow groups with a new rate.
    pub(crate) groups: Vec<u32>,
    /// Link levels whose use may have changed.
    pub(crate) link_levels: Vec<u32>,
}

/// Allocates the capacity of all links to all flow groups.
#[derive(Debug, Clone)]
pub(crate) struct RateAllocator {
    links: Vec<FluidLink>,
    link_levels: Vec<LinkLevel>,
    groups: Vec<FlowGroup>,
    free_groups: Vec<u32>,
    hops: HopArena,
    /// Dirty link levels and started flow groups.
    pending: PendingWork,
    round: u64,
    filling: FillingRound,
    fifo: FifoWork,
    groups_computed: u64,
}

impl RateAllocator {
    /// The links of `network`, and no flow group.
    pub(crate) fn new(network: &FluidNetwork) -> Self {
        let links = network.capacities().iter().zip(network.fifo_links());
        let links = links.map(|(capacity, is_fifo)| FluidLink {
            capacity: *capacity,
            top_level: NONE,
            is_fifo: *is_fifo,
            refreshed_at: 0,
            fifo_share: FifoShareSearch::default(),
        });
        Self {
            links: links.collect(),
            link_levels: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            hops: HopArena::default(),
            pending: PendingWork::default(),
            round: 0,
            filling: FillingRound::default(),
            fifo: FifoWork::default(),
            groups_computed: 0,
        }
    }

    /// Rate of each flow of a flow group, bytes/s.
    pub(crate) fn group_rate(&self, group: u32) -> f64 {
        self.groups[group as usize].rate
    }

    /// Number of rate computations, one for each group in each of them.
    pub(crate) fn groups_computed(&self) -> u64 {
        self.groups_computed
    }

    /// Link, level, and rate in bytes/s of a link level.
    pub(crate) fn link_level_usage(&self, link_level: u32) -> (u32, u32, f64) {
        let link_level = &self.link_levels[link_level as usize];
        (link_level.link, link_level.level, link_level.used)
    }

    /// How many link levels there are.
    pub(crate) fn link_level_count(&self) -> usize {
        self.link_levels.len()
    }

    /// Link levels of a link, highest level first.
    pub(crate) fn link_levels_of(&self, link: u32) -> impl Iterator<Item = u32> + '_ {
        let exists = |link_level: &u32| *link_level != NONE;
        let top = Some(self.links[link as usize].top_level).filter(exists);
        std::iter::successors(top, move |&link_level| {
            Some(self.link_levels[link_level as usize].below).filter(exists)
        })
    }

    /// Capacity of a link, bytes/s.
    pub(crate) fn link_capacity(&self, link: u32) -> Option<f64> {
        self.links.get(link as usize).map(|link| link.capacity)
    }

    /// How many links there are.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Gives a link another capacity, bytes/s.
    pub(crate) fn set_link_capacity(&mut self, link: u32, capacity: f64) {
        let of = &mut self.links[link as usize];
        of.capacity = capacity;
        let top = of.top_level;
        if of.is_fifo {
            self.fifo.changed.push(link);
            // The levels find their offers when rates are next computed.
            for link_level in self.link_levels_of(link).collect::<Vec<_>>() {
                self.mark_dirty(link_level);
            }
            return;
        }
        self.offer_capacity(top, capacity);
    }

    /// Starts a group; its rate is zero until [`RateAllocator::reallocate`].
    pub(crate) fn start_group(&mut self, group: u32) {
        let id = group;
        let group = &mut self.groups[id as usize];
        group.is_sending = true;
        let mut queue = NONE;
        for hop in group.first_hop..group.first_hop + group.hop_count {
            let place = self.hops.get_mut(hop);
            let link_level = &mut self.link_levels[place.link_level as usize];
            // The hop remembers its place among the members, so that stopping takes no search.
            place.slot = link_level.members.len() as u32;
            link_level.members.push(LevelMember { group: id, hop });
            queue = link_level.work_queue;
            if self.links[link_level.link as usize].is_fifo {
                self.fifo.changed.push(link_level.link);
            }
        }
        self.pending.add_group(queue, id);
    }

    /// Removes a group from its links; [`RateAllocator::reallocate`] shares what it frees.
    pub(crate) fn stop_group(&mut self, group: u32) {
        let group = &mut self.groups[group as usize];
        group.is_sending = false;
        // The rate becomes zero with the stop, so that the next start does not count an old one as
        // used.
        let freed = group.weight * std::mem::take(&mut group.rate);
        let bottleneck = std::mem::replace(&mut group.bottleneck, NONE);
        let hops = group.first_hop..group.first_hop + group.hop_count;
        if bottleneck != NONE {
            self.link_levels[bottleneck as usize].bottlenecked -= 1;
        }
        for hop in hops {
            let place = *self.hops.get(hop);
            let link_level = &mut self.link_levels[place.link_level as usize];
            // The last member takes the free slot, so its hop must point there.
            link_level.members.swap_remove(place.slot as usize);
            if let Some(moved) = link_level.members.get(place.slot as usize) {
                self.hops.get_mut(moved.hop).slot = place.slot;
            }
            // An exact zero: the residue of a subtraction would keep the level below waiting.
            link_level.used = match link_level.members.is_empty() {
                true => 0.0,
                false => (link_level.used - freed).max(0.0),
            };
            if self.links[link_level.link as usize].is_fifo {
                self.fifo.changed.push(link_level.link);
            }
            self.mark_dirty(place.link_level);
        }
    }

    /// Whether nothing changed since the last [`RateAllocator::reallocate`].
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.pending.is_empty()
    }

    /// Computes rates wherever something changed and adds what became different to `changes`.
    /// Returns whether there was anything to do.
    pub(crate) fn reallocate(&mut self, changes: &mut RateChanges) -> bool {
        let any = !self.pending.is_empty();
        self.refresh_changed_links();
        let mut sweep = 0;
        loop {
            // Highest level first: but for fifo links, a level's offer depends on the levels above
            // it and on no other.
            while let Some(queue) = self.pending.pop_highest() {
                self.allocate_level(queue, changes);
            }
            sweep += 1;
            if !self.settle_fifo_links(sweep) {
                break;
            }
        }
        self.finish_fifo_links();
        any
    }

    /// Stops all groups at once, as if nothing had ever been sent.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.fifo.changed.clear();
        self.groups_computed = 0;
        for link_level in &mut self.link_levels {
            link_level.members.clear();
            link_level.offered = self.links[link_level.link as usize].capacity;
            (link_level.used, link_level.bottlenecked, link_level.is_dirty) = (0.0, 0, false);
        }
        for group in &mut self.groups {
            (group.rate, group.bottleneck, group.is_sending) = (0.0, NONE, false);
        }
    }

    fn mark_dirty(&mut self, link_level: u32) {
        let id = link_level;
        let link_level = &mut self.link_levels[id as usize];
        if !std::mem::replace(&mut link_level.is_dirty, true) {
            self.pending.add_link_level(link_level.work_queue, id);
        }
    }

    /// Offers the remainder of this link level to the one below, if there is one.
    fn offer_remainder(&mut self, link_level: u32) {
        let link_level = &self.link_levels[link_level as usize];
        let below = link_level.below;
        if below != NONE && !self.links[link_level.link as usize].is_fifo {
            let left = link_level.offered - link_level.used;
            let floor = RESIDUE * self.links[link_level.link as usize].capacity;
            // A residue of rounding would be offered as capacity, and levels below would send at a
            // rate near zero.
            self.offer_capacity(below, if left > floor { left } else { 0.0 });
        }
    }

    /// Offers `left` bytes/s to a link level, and to those below for as long as none is in use.
    fn offer_capacity(&mut self, mut link_level: u32, left: f64) {
        while link_level != NONE {
            let offered = &mut self.link_levels[link_level as usize];
            // Without a tolerance, rounding would set off a new computation at every level below.
            if (left - offered.offered).abs() <= TOLERANCE * left {
                return;
            }
            offered.offered = left;
            // A level without groups uses nothing, and passes the whole offer on.
            if !offered.members.is_empty() {
                return self.mark_dirty(link_level);
            }
            link_level = offered.below;
        }
    }
}
