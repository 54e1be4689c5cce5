//! Laying strands over links: their hops, the cells under them, and the memory of both. Nothing
//! here shares a rate.

use super::{FlowGroup, LinkLevel, NONE, RateAllocator};

/// One strand on one cell: the cell, and its place among the members while it sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupHop {
    pub(super) link_level: u32,
    pub(super) slot: u32,
}

/// Hops of all strands, those of a strand side by side. Freed runs are kept by length and given
/// out again, so that memory follows the strands present and not the strands ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct HopArena {
    hops: Vec<GroupHop>,
    free: Vec<Vec<u32>>,
}

impl HopArena {
    pub(super) fn get(&self, hop: u32) -> &GroupHop {
        &self.hops[hop as usize]
    }

    pub(super) fn get_mut(&mut self, hop: u32) -> &mut GroupHop {
        &mut self.hops[hop as usize]
    }

    fn allocate_run(&mut self, length: usize) -> u32 {
        if let Some(first) = self.free.get_mut(length).and_then(Vec::pop) {
            return first;
        }
        let first = self.hops.len();
        self.hops.resize(first + length, GroupHop { link_level: NONE, slot: 0 });
        first as u32
    }

    fn free_run(&mut self, first: u32, length: usize) {
        if self.free.len() <= length {
            self.free.resize(length + 1, Vec::new());
        }
        self.free[length].push(first);
    }
}

impl RateAllocator {
    /// A strand of `weight` equal flows of `class` over the links of `path`, not yet sending.
    pub(crate) fn add_group(&mut self, path: &[u32], class: u32, weight: f64) -> u32 {
        let first_hop = self.hops.allocate_run(path.len());
        for (hop, &link) in (first_hop..).zip(path) {
            self.hops.get_mut(hop).link_level = self.link_level_at(link, class);
        }
        let strand = FlowGroup {
            first_hop,
            hop_count: path.len() as u32,
            bottleneck: NONE,
            is_sending: false,
            weight,
            rate: 0.0,
            round: 0,
            new_rate: 0.0,
            frozen_at: NONE,
        };
        if let Some(id) = self.free_groups.pop() {
            self.groups[id as usize] = strand;
            return id;
        }
        self.groups.push(strand);
        self.groups.len() as u32 - 1
    }

    /// Forgets a strand that does not send.
    pub(crate) fn remove_group(&mut self, strand: u32) {
        let FlowGroup { first_hop, hop_count: hops, .. } = self.groups[strand as usize];
        self.hops.free_run(first_hop, hops as usize);
        self.free_groups.push(strand);
    }

    /// Moves a strand that does not send to another class.
    pub(crate) fn set_group_level(&mut self, strand: u32, class: u32) {
        let strand = &mut self.groups[strand as usize];
        for hop in strand.first_hop..strand.first_hop + strand.hop_count {
            let link = self.link_levels[self.hops.get(hop).link_level as usize].link;
            self.hops.get_mut(hop).link_level = self.link_level_at(link, class);
        }
    }

    /// How many flows a strand stands for.
    pub(crate) fn group_weight(&self, strand: u32) -> f64 {
        self.groups[strand as usize].weight
    }

    /// Lets a strand that does not send stand for `weight` flows.
    pub(crate) fn set_weight(&mut self, strand: u32, weight: f64) {
        self.groups[strand as usize].weight = weight;
    }

    /// Whether a strand sends now.
    pub(crate) fn is_sending(&self, strand: u32) -> bool {
        self.groups[strand as usize].is_sending
    }

    /// Links of a strand, in order.
    pub(crate) fn group_path(&self, strand: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        let strand = &self.groups[strand as usize];
        (strand.first_hop..strand.first_hop + strand.hop_count)
            .map(|hop| self.link_levels[self.hops.get(hop).link_level as usize].link)
    }

    /// The cell of `class` on `link`, made if need be.
    fn link_level_at(&mut self, link: u32, class: u32) -> u32 {
        let (mut above, mut next) = (NONE, self.links[link as usize].top_level);
        while next != NONE && self.link_levels[next as usize].level > class {
            (above, next) = (next, self.link_levels[next as usize].below);
        }
        if next != NONE && self.link_levels[next as usize].level == class {
            return next;
        }
        let id = self.link_levels.len() as u32;
        let offered = self.offer_between(link, above, next);
        let queue = self.pending.queue_of_level(class);
        self.link_levels.push(LinkLevel {
            link,
            level: class,
            work_queue: queue,
            below: next,
            offered,
            ..LinkLevel::default()
        });
        match above {
            NONE => self.links[link as usize].top_level = id,
            above => self.link_levels[above as usize].below = id,
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
                let above = &self.link_levels[above as usize];
                (above.offered - above.used).max(0.0)
            }
            (_, below) => self.link_levels[below as usize].offered,
        }
    }
}
