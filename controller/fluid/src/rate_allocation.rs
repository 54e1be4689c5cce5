//! Who gets how much now: strict levels on every link, max-min fair inside a level.
//!
//! Knows links, flow groups and rates, and no time: the engine above starts and stops flow groups and asks
//! for the rates that changed. A *flow group* is a group of equal flows on one path, its weight their
//! number. A *link level* is one level on one link; what a link level leaves unused is what the next lower
//! link level of the link is offered.
//!
//! The decision: a change is followed only as far as it reaches. Max-min fairness says that every
//! flow group has a *bottleneck*, a saturated link level in which none is faster than it (Bertsekas and
//! Gallager, Data Networks, §6.5.2). A link level that is nobody's bottleneck couples nothing, so a
//! change spreads through bottlenecks only ([`progressive_filling`]), and from level to level only downwards,
//! through the link levels whose use changed.

mod flow_groups;
mod pending_work;
mod progressive_filling;

use flow_groups::HopArena;
use pending_work::PendingWork;
use progressive_filling::FillingRound;

/// No link level, or no bottleneck.
const NONE: u32 = u32::MAX;

/// What a link level leaves is nothing if it is below this part of the link's capacity: the residue of
/// rounding must not start a lower level at a byte a century.
const RESIDUE: f64 = 1e-9;

/// A rate or an offer that changes by less than this part of itself has not changed.
const TOLERANCE: f64 = 1e-12;

#[derive(Debug, Clone)]
struct FluidLink {
    capacity: f64,
    /// Its highest link level.
    top_level: u32,
}

/// A flow group on a link level: the flow group, and which of all hops it is.
#[derive(Debug, Clone, Copy)]
struct LevelMember {
    group: u32,
    hop: u32,
}

/// One level on one link. Link levels are never removed, so there are at most links x levels.
#[derive(Debug, Clone, Default)]
struct LinkLevel {
    link: u32,
    level: u32,
    /// Where tasks of the level are kept.
    work_queue: u32,
    /// The next lower level on the link.
    below: u32,
    /// How many members have their bottleneck here.
    bottlenecked: u32,
    /// Capacity that higher levels leave, bytes/s.
    offered: f64,
    /// Rate of all members together, bytes/s.
    used: f64,
    /// Flow groups that send here now, in no order that matters.
    members: Vec<LevelMember>,
    is_dirty: bool,
    /// Round in which the link level was last touched; the fields below belong to that round.
    round: u64,
    is_inside: bool,
    /// Members whose rate this round computes, and the flows of those not yet frozen.
    inside_count: u32,
    weight: f64,
    /// What is left for them, bytes/s.
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
    /// rate and the link level that sets it, none until it is known.
    round: u64,
    new_rate: f64,
    frozen_at: u32,
}

/// What changed since it was last cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateChanges {
    /// Flow groups with a new rate.
    pub(crate) groups: Vec<u32>,
    /// Link levels whose use may be new.
    pub(crate) link_levels: Vec<u32>,
}

/// The sharing of all links by all flow groups.
#[derive(Debug, Clone)]
pub(crate) struct RateAllocator {
    links: Vec<FluidLink>,
    link_levels: Vec<LinkLevel>,
    groups: Vec<FlowGroup>,
    free_groups: Vec<u32>,
    hops: HopArena,
    /// Dirty link levels and fresh flow groups.
    pending: PendingWork,
    round: u64,
    filling: FillingRound,
    groups_computed: u64,
}

impl RateAllocator {
    /// Links with these capacities, bytes/s, and no flow group.
    pub(crate) fn new(capacity: &[f64]) -> Self {
        let links =
            capacity.iter().map(|&capacity| FluidLink { capacity, top_level: NONE }).collect();
        Self {
            links,
            link_levels: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            hops: HopArena::default(),
            pending: PendingWork::default(),
            round: 0,
            filling: FillingRound::default(),
            groups_computed: 0,
        }
    }

    /// Rate of each flow of a flow group, bytes/s.
    pub(crate) fn group_rate(&self, group: u32) -> f64 {
        self.groups[group as usize].rate
    }

    /// Flow groups whose rate was computed, counted each time.
    pub(crate) fn groups_computed(&self) -> u64 {
        self.groups_computed
    }

    /// Link, level and rate in bytes/s of a link level.
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
        let some = |link_level: u32| (link_level != NONE).then_some(link_level);
        let top = some(self.links[link as usize].top_level);
        std::iter::successors(top, move |&link_level| some(self.link_levels[link_level as usize].below))
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
        let link = &mut self.links[link as usize];
        link.capacity = capacity;
        let top = link.top_level;
        self.offer_capacity(top, capacity);
    }

    /// Lets a flow group send from now on; its rate is zero until [`RateAllocator::settle`].
    pub(crate) fn start_group(&mut self, group: u32) {
        let id = group;
        let group = &mut self.groups[id as usize];
        group.is_sending = true;
        let mut queue = NONE;
        for hop in group.first_hop..group.first_hop + group.hop_count {
            let place = self.hops.get_mut(hop);
            let link_level = &mut self.link_levels[place.link_level as usize];
            place.slot = link_level.members.len() as u32;
            link_level.members.push(LevelMember { group: id, hop });
            queue = link_level.work_queue;
        }
        self.pending.add_group(queue, id);
    }

    /// Takes a flow group off its links; what it frees is shared by [`RateAllocator::settle`].
    pub(crate) fn stop_group(&mut self, group: u32) {
        let group = &mut self.groups[group as usize];
        group.is_sending = false;
        let freed = group.weight * std::mem::take(&mut group.rate);
        let bottleneck = std::mem::replace(&mut group.bottleneck, NONE);
        let hops = group.first_hop..group.first_hop + group.hop_count;
        if bottleneck != NONE {
            self.link_levels[bottleneck as usize].bottlenecked -= 1;
        }
        for hop in hops {
            let place = *self.hops.get(hop);
            let link_level = &mut self.link_levels[place.link_level as usize];
            link_level.members.swap_remove(place.slot as usize);
            if let Some(moved) = link_level.members.get(place.slot as usize) {
                self.hops.get_mut(moved.hop).slot = place.slot;
            }
            link_level.used = if link_level.members.is_empty() { 0.0 } else { (link_level.used - freed).max(0.0) };
            self.mark_dirty(place.link_level);
        }
    }

    /// Whether nothing changed since the last [`RateAllocator::settle`].
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.pending.is_empty()
    }

    /// Shares the links anew wherever something changed and adds what became different to
    /// `changes`. True if there was anything to do.
    pub(crate) fn reallocate(&mut self, changes: &mut RateChanges) -> bool {
        let any = !self.pending.is_empty();
        while let Some(queue) = self.pending.pop_highest() {
            self.allocate_level(queue, changes);
        }
        any
    }

    /// Stops everything at once, as if nothing had ever been sent.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
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

    /// Tells the link level below, if there is one, what this one leaves.
    fn offer_remainder(&mut self, link_level: u32) {
        let link_level = &self.link_levels[link_level as usize];
        let below = link_level.below;
        if below != NONE {
            let left = link_level.offered - link_level.used;
            let floor = RESIDUE * self.links[link_level.link as usize].capacity;
            self.offer_capacity(below, if left > floor { left } else { 0.0 });
        }
    }

    /// Offers `left` bytes/s to a link level, and to those below for as long as none is in use.
    fn offer_capacity(&mut self, mut link_level: u32, left: f64) {
        while link_level != NONE {
            let offered = &mut self.link_levels[link_level as usize];
            if (left - offered.offered).abs() <= TOLERANCE * left {
                return;
            }
            offered.offered = left;
            if !offered.members.is_empty() {
                return self.mark_dirty(link_level);
            }
            link_level = offered.below;
        }
    }
}
