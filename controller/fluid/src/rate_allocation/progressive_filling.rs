//! Max-min fair rates of one level, by progressive filling (Bertsekas and Gallager, §6.5.2), for
//! the flow groups that a change reaches.
//!
//! The groups *inside* are those whose rate is computed; others on the same link levels keep
//! theirs. At first the inside holds the groups that start, and the members of every changed link
//! level that is a bottleneck or overfull; then, until nothing is added, the members of every
//! bottleneck that a group inside passes. Filling gives the inside its rates from what the others
//! leave. If that makes a link level a bottleneck in which a group outside is faster, its members
//! come inside too, and filling starts again. When it ends, every group inside and outside has a
//! bottleneck, and the rates are therefore max-min fair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{NONE, RateAllocator, RateChanges, TOLERANCE};

/// Buffers of a round, kept for the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct FillingRound {
    /// Flow groups inside.
    inside: Vec<u32>,
    /// Link levels that the round examines.
    touched: Vec<u32>,
    /// Fair share of each link level at its last computation, as ordered bits, and the link level.
    /// Shares only grow while others are frozen, so a stale entry comes out too early, never too
    /// late, and is pushed again.
    fair_shares: BinaryHeap<Reverse<(u64, u32)>>,
}

impl RateAllocator {
    /// Performs the pending work of one level and offers the remainder to lower ones.
    pub(super) fn allocate_level(&mut self, queue: u32, changes: &mut RateChanges) {
        // A new number makes every mark of earlier rounds invalid, without clearing any.
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
                // The inside only grows, so this ends after as many fillings as there are link
                // levels at most.
                Some(overtaken) => self.bring_members_inside(overtaken, &mut filling),
            }
        }
        self.adopt_rates(&filling, changes);
        filling.inside.clear();
        filling.touched.clear();
        self.filling = filling;
    }

    /// Brings in the groups that start, and the members of changed link levels that are affected.
    fn collect_inside(&mut self, queue: u32, filling: &mut FillingRound) {
        while let Some(id) = self.pending.pop_group(queue) {
            // The group may have been stopped since, or moved to another level.
            let group = &self.groups[id as usize];
            if group.is_sending
                && self.link_levels[self.hops.get(group.first_hop).link_level as usize].work_queue
                    == queue
            {
                self.bring_inside(id, filling);
            }
        }
        while let Some(id) = self.pending.pop_link_level(queue) {
            self.touch_link_level(id, filling);
            let link_level = &mut self.link_levels[id as usize];
            link_level.is_dirty = false;
            if link_level.bottlenecked > 0
                || link_level.used > link_level.offered * (1.0 + TOLERANCE)
            {
                self.bring_members_inside(id, filling);
            }
        }
    }

    /// Brings in the members of every bottleneck that a group inside passes. `reached` groups have
    /// been followed already.
    fn extend_inside(&mut self, filling: &mut FillingRound, reached: &mut usize) {
        while let Some(&group) = filling.inside.get(*reached) {
            *reached += 1;
            for hop in self.hops_of(group) {
                let link_level = self.hops.get(hop).link_level;
                self.refresh_fifo_link(self.link_levels[link_level as usize].link);
                self.touch_link_level(link_level, filling);
                if self.link_levels[link_level as usize].bottlenecked > 0 {
                    self.bring_members_inside(link_level, filling);
                }
            }
        }
    }

    /// Computes what the groups outside leave on every link level, and how many flows share it.
    fn compute_residuals(&mut self, filling: &mut FillingRound) {
        for &link_level in &filling.touched {
            let link_level = &mut self.link_levels[link_level as usize];
            (link_level.inside_count, link_level.weight) = (0, 0.0);
            link_level.residual = link_level.offered - link_level.used;
        }
        for &group in &filling.inside {
            let hops = self.hops_of(group);
            let group = &mut self.groups[group as usize];
            group.frozen_at = NONE;
            for hop in hops {
                let link_level = &mut self.link_levels[self.hops.get(hop).link_level as usize];
                link_level.inside_count += 1;
                link_level.weight += group.weight;
                link_level.residual += group.weight * group.rate;
            }
        }
        self.list_fair_shares(filling);
    }

    /// Lists the fair shares of all link levels that may become a bottleneck. Of those that only
    /// one group inside uses, only the scarcest may.
    fn list_fair_shares(&mut self, filling: &mut FillingRound) {
        filling.fair_shares.clear();
        for &id in &filling.touched {
            let link_level = &mut self.link_levels[id as usize];
            // Nobody outside: the offer itself, without the rounding of the sums above.
            if link_level.inside_count as usize == link_level.members.len() {
                link_level.residual = link_level.offered;
            }
            if link_level.inside_count > 1 {
                filling.fair_shares.push(Reverse((link_level.fair_share().to_bits(), id)));
            }
        }
        for &group in &filling.inside {
            let alone = self.hops_of(group).filter_map(|hop| {
                let id = self.hops.get(hop).link_level;
                let link_level = &self.link_levels[id as usize];
                (link_level.inside_count == 1)
                    .then(|| Reverse((link_level.fair_share().to_bits(), id)))
            });
            // Of link levels in which a group is alone, only the one with the smallest share can
            // limit it; `Reverse` makes that the largest.
            filling.fair_shares.extend(alone.max());
        }
    }

    /// Freezes the groups of the scarcest link level, repeatedly. Stops at a link level in which
    /// the inside would be slower than a group outside, and returns it.
    fn fill_rates(&mut self, filling: &mut FillingRound) -> Option<u32> {
        while let Some(Reverse((bits, id))) = filling.fair_shares.pop() {
            let link_level = &self.link_levels[id as usize];
            if link_level.weight <= 0.0 {
                continue;
            }
            let share = link_level.fair_share();
            // The entry is stale: others froze since, and shares only grow.
            if share.to_bits() > bits {
                filling.fair_shares.push(Reverse((share.to_bits(), id)));
                continue;
            }
            if (link_level.inside_count as usize) < link_level.members.len()
                && self.has_faster_outside(id, share)
            {
                return Some(id);
            }
            // The smallest share of all: its members can get no more anywhere.
            self.freeze_members(id, share);
        }
        None
    }

    /// Whether a group outside is faster than `share` on a link level.
    fn has_faster_outside(&self, link_level: u32, share: f64) -> bool {
        let limit = share * (1.0 + TOLERANCE);
        let members = self.link_levels[link_level as usize].members.iter();
        members
            .map(|member| &self.groups[member.group as usize])
            // Within rounding, a group outside that is as fast has its bottleneck here too.
            .any(|group| group.round != self.round && group.rate > limit)
    }

    /// Gives `share` to every group inside that passes `bottleneck` and has no rate yet.
    fn freeze_members(&mut self, bottleneck: u32, share: f64) {
        for index in 0..self.link_levels[bottleneck as usize].members.len() {
            let id = self.link_levels[bottleneck as usize].members[index].group;
            let group = &mut self.groups[id as usize];
            if group.round != self.round || group.frozen_at != NONE {
                continue;
            }
            (group.new_rate, group.frozen_at) = (share, bottleneck);
            for hop in group.first_hop..group.first_hop + group.hop_count {
                let link_level = &mut self.link_levels[self.hops.get(hop).link_level as usize];
                link_level.weight -= group.weight;
                link_level.residual -= group.weight * share;
            }
        }
    }

    /// Makes the computed rates current, and offers the remainders to the levels below.
    fn adopt_rates(&mut self, filling: &FillingRound, changes: &mut RateChanges) {
        for &id in &filling.inside {
            let group = &mut self.groups[id as usize];
            if group.bottleneck != NONE {
                self.link_levels[group.bottleneck as usize].bottlenecked -= 1;
            }
            group.bottleneck = group.frozen_at;
            self.link_levels[group.bottleneck as usize].bottlenecked += 1;
            if (group.new_rate - group.rate).abs() > TOLERANCE * group.rate {
                group.rate = group.new_rate;
                changes.groups.push(id);
            }
        }
        for &id in &filling.touched {
            let link_level = &mut self.link_levels[id as usize];
            if link_level.inside_count > 0 {
                // A full link level uses its offer exactly, so that no residue reaches lower ones.
                let is_full = link_level.bottlenecked > 0;
                link_level.used = match is_full {
                    true => link_level.offered,
                    false => link_level.offered - link_level.residual,
                };
            }
            changes.link_levels.push(id);
            self.offer_remainder(id);
        }
    }

    fn bring_members_inside(&mut self, link_level: u32, filling: &mut FillingRound) {
        if std::mem::replace(&mut self.link_levels[link_level as usize].is_inside, true) {
            return;
        }
        for index in 0..self.link_levels[link_level as usize].members.len() {
            self.bring_inside(self.link_levels[link_level as usize].members[index].group, filling);
        }
    }

    fn bring_inside(&mut self, group: u32, filling: &mut FillingRound) {
        let round = &mut self.groups[group as usize].round;
        if std::mem::replace(round, self.round) != self.round {
            filling.inside.push(group);
        }
    }

    fn touch_link_level(&mut self, link_level: u32, filling: &mut FillingRound) {
        let id = link_level;
        let link_level = &mut self.link_levels[id as usize];
        if std::mem::replace(&mut link_level.round, self.round) != self.round {
            link_level.is_inside = false;
            filling.touched.push(id);
        }
    }

    pub(super) fn hops_of(&self, group: u32) -> std::ops::Range<u32> {
        let group = &self.groups[group as usize];
        group.first_hop..group.first_hop + group.hop_count
    }
}

impl super::LinkLevel {
    /// Fair share of each flow that has no rate yet, bytes/s.
    fn fair_share(&self) -> f64 {
        (self.residual / self.weight).max(0.0)
    }
}
