//! Rates of coflows that are served one after the other (Varys; Chowdhury, Zhong and Stoica,
//! SIGCOMM 2014, §4.1 and Pseudocode 1), whatever the levels and whoever schedules a link.
//!
//! The effective bottleneck of a coflow is the time that its bytes left need on the link that needs
//! most: `Gamma = max over links of (bytes left / capacity)`. Whenever a flow begins or ends:
//!
//! 1. The coflows are sorted by ascending `Gamma` on empty links; of equals the lower job is first
//!    (SEBF).
//! 2. In this order each gets, of what is free, the least that lets all its flows end together as
//!    early as the scarcest link allows: bytes left over `Gamma` on the free capacities (MADD).
//! 3. In this order each gets what is still free on the links of its flows, max-min fair among
//!    them, so that no link stands idle (the paper distributes it by port).

use std::collections::BTreeMap;

use super::{NONE, RESIDUE, RateAllocator, RateChanges, TOLERANCE};

/// A flow group that sends, and the coflow that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoflowFlow {
    pub(crate) coflow: u32,
    pub(crate) group: u32,
    /// Of each flow of the group.
    pub(crate) bytes_left: f64,
}

impl RateAllocator {
    /// Computes the rates of all `flows`, those of a coflow together, if something changed, and
    /// adds what became different to `changes`. Returns whether there was anything to do.
    pub(crate) fn reallocate_coflows(
        &mut self,
        flows: &[CoflowFlow],
        changes: &mut RateChanges,
    ) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.take_pending(changes);
        self.groups_computed += flows.len() as u64;
        let mut free: Vec<f64> = self.links.iter().map(|link| link.capacity).collect();
        let by_job = flows.chunk_by(|a, b| a.coflow == b.coflow);
        let mut coflows: Vec<(f64, &[CoflowFlow])> =
            by_job.map(|flows| (self.effective_bottleneck(flows, &free), flows)).collect();
        coflows.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, flows) in &coflows {
            let seconds = self.effective_bottleneck(flows, &free);
            let is_blocked = !seconds.is_finite() || seconds <= 0.0;
            for flow in *flows {
                self.groups[flow.group as usize].new_rate = 0.0;
                let rate = if is_blocked { 0.0 } else { flow.bytes_left / seconds };
                self.add_rate(flow, rate, &mut free);
            }
        }
        for (_, flows) in &coflows {
            self.backfill(flows, &mut free);
        }
        self.adopt_coflow_rates(flows, changes);
        true
    }

    /// Empties the queues of pending work, which are by level.
    fn take_pending(&mut self, changes: &mut RateChanges) {
        self.fifo.changed.clear();
        while let Some(queue) = self.pending.pop_highest() {
            while self.pending.pop_group(queue).is_some() {}
            while let Some(link_level) = self.pending.pop_link_level(queue) {
                self.link_levels[link_level as usize].is_dirty = false;
                changes.link_levels.push(link_level);
            }
        }
    }

    /// Seconds that the bytes left of a coflow need on the link that needs most, with these
    /// capacities.
    fn effective_bottleneck(&self, flows: &[CoflowFlow], capacity: &[f64]) -> f64 {
        let mut bytes: BTreeMap<u32, f64> = BTreeMap::new();
        for flow in flows {
            let left = self.group_weight(flow.group) * flow.bytes_left;
            for link in self.group_path(flow.group) {
                *bytes.entry(link).or_default() += left;
            }
        }
        let seconds = bytes.iter().map(|(link, bytes)| bytes / capacity[*link as usize]);
        seconds.fold(0.0, f64::max)
    }

    /// Gives each flow of a group so much more.
    fn add_rate(&mut self, flow: &CoflowFlow, rate: f64, free: &mut [f64]) {
        self.groups[flow.group as usize].new_rate += rate;
        let taken = self.group_weight(flow.group) * rate;
        for link in self.group_path(flow.group) {
            let left = &mut free[link as usize];
            *left -= taken;
            // What rounding leaves is nothing.
            if *left <= RESIDUE * self.links[link as usize].capacity {
                *left = 0.0;
            }
        }
    }

    /// Gives the flows of a coflow what is free: all equally much more, until a link of some is
    /// full, then the others.
    fn backfill(&mut self, flows: &[CoflowFlow], free: &mut [f64]) {
        let mut open = flows.to_vec();
        loop {
            open.retain(|flow| self.group_path(flow.group).all(|link| free[link as usize] > 0.0));
            let mut weight: BTreeMap<u32, f64> = BTreeMap::new();
            for flow in &open {
                for link in self.group_path(flow.group) {
                    *weight.entry(link).or_default() += self.group_weight(flow.group);
                }
            }
            let shares = weight.iter().map(|(link, weight)| free[*link as usize] / weight);
            let Some(more) = shares.reduce(f64::min) else { return };
            for flow in &open {
                self.add_rate(flow, more, free);
            }
        }
    }

    /// Makes the computed rates current.
    fn adopt_coflow_rates(&mut self, flows: &[CoflowFlow], changes: &mut RateChanges) {
        let hops = flows.iter().flat_map(|flow| self.hops_of(flow.group));
        let mut used: BTreeMap<u32, f64> =
            hops.map(|hop| (self.hops.get(hop).link_level, 0.0)).collect();
        for flow in flows {
            for hop in self.hops_of(flow.group) {
                let group = &self.groups[flow.group as usize];
                let of = used.entry(self.hops.get(hop).link_level).or_default();
                *of += group.weight * group.new_rate;
            }
            let group = &mut self.groups[flow.group as usize];
            group.bottleneck = NONE;
            if (group.new_rate - group.rate).abs() > TOLERANCE * group.rate {
                group.rate = group.new_rate;
                changes.groups.push(flow.group);
            }
        }
        for (link_level, used) in used {
            self.link_levels[link_level as usize].used = used;
            changes.link_levels.push(link_level);
        }
    }
}
