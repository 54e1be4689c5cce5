//! Flow groups on links: their hops, the link levels under them, and the memory of both. No rate
//! is computed here.

use super::{FlowGroup, FluidLink, LinkLevel, NONE, RateAllocator};

/// One flow group on one link level, and its slot among the members while it sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupHop {
    pub(super) link_level: u32,
    pub(super) slot: u32,
}

/// Hops of all flow groups; those of a group are contiguous. Freed runs are kept by length and used
/// again, so memory follows the groups present and not all groups ever seen.
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
        // By exact length: paths have few lengths, so that a freed run nearly always fits the next
        // flow.
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
    /// A flow group of `weight` equal flows of `level` over the links of `path`, not yet sending.
    pub(crate) fn add_group(&mut self, path: &[u32], level: u32, weight: f64) -> u32 {
        let first_hop = self.hops.allocate_run(path.len());
        for (hop, &link) in (first_hop..).zip(path) {
            self.hops.get_mut(hop).link_level = self.link_level_at(link, level);
        }
        let group = FlowGroup {
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
            self.groups[id as usize] = group;
            return id;
        }
        self.groups.push(group);
        self.groups.len() as u32 - 1
    }

    /// Removes a group that is not sending.
    pub(crate) fn remove_group(&mut self, group: u32) {
        let FlowGroup { first_hop, hop_count: hops, .. } = self.groups[group as usize];
        self.hops.free_run(first_hop, hops as usize);
        self.free_groups.push(group);
    }

    /// Moves a group that is not sending to another level.
    pub(crate) fn set_group_level(&mut self, group: u32, level: u32) {
        let group = &mut self.groups[group as usize];
        for hop in group.first_hop..group.first_hop + group.hop_count {
            let link = self.link_levels[self.hops.get(hop).link_level as usize].link;
            self.hops.get_mut(hop).link_level = self.link_level_at(link, level);
        }
    }

    /// Number of flows in a group.
    pub(crate) fn group_weight(&self, group: u32) -> f64 {
        self.groups[group as usize].weight
    }

    /// Sets the number of flows of a group that is not sending.
    pub(crate) fn set_weight(&mut self, group: u32, weight: f64) {
        self.groups[group as usize].weight = weight;
    }

    /// Whether a group is sending now.
    pub(crate) fn is_sending(&self, group: u32) -> bool {
        self.groups[group as usize].is_sending
    }

    /// Links of a group, in order.
    pub(crate) fn group_path(&self, group: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        let group = &self.groups[group as usize];
        (group.first_hop..group.first_hop + group.hop_count)
            .map(|hop| self.link_levels[self.hops.get(hop).link_level as usize].link)
    }

    /// The link level of `level` on `link`, created on first use.
    fn link_level_at(&mut self, link: u32, level: u32) -> u32 {
        let (mut above, mut next) = (NONE, self.links[link as usize].top_level);
        while next != NONE && self.link_levels[next as usize].level > level {
            (above, next) = (next, self.link_levels[next as usize].below);
        }
        // Link levels are never removed: jobs change levels often, and an empty one costs nothing.
        if next != NONE && self.link_levels[next as usize].level == level {
            return next;
        }
        let id = self.link_levels.len() as u32;
        let offered = self.offer_between(link, above, next);
        let queue = self.pending.queue_of_level(level);
        self.link_levels.push(LinkLevel {
            link,
            level,
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

    /// The offer of a new, empty link level between two others. It uses nothing, so the offer of
    /// the one below passes through it, even while that one waits for its next allocation.
    fn offer_between(&self, link: u32, above: u32, below: u32) -> f64 {
        let FluidLink { capacity, is_fifo, .. } = self.links[link as usize];
        if is_fifo {
            return capacity;
        }
        match (above, below) {
            (NONE, NONE) => capacity,
            (above, NONE) => {
                let above = &self.link_levels[above as usize];
                (above.offered - above.used).max(0.0)
            }
            // A new level is empty and takes nothing, so it is offered what the level below has.
            (_, below) => self.link_levels[below as usize].offered,
        }
    }
}
