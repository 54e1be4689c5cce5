//! Rates that hosts give to flows, on switches without levels: those of all flows are computed at
//! every change. Without coflows the allocation is max-min fair by shares. Coflows are served one
//! after the other (Varys; Chowdhury, Zhong and Stoica, SIGCOMM 2014, §4.1 and Pseudocode 1).
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

use super::{RESIDUE, RateAllocator, RateChanges, TOLERANCE};

/// A flow group that sends, and the coflow that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendingFlow {
    pub(crate) coflow: u32,
    pub(crate) group: u32,
    /// Of each flow of the group.
    pub(crate) bytes_left: f64,
    /// What each flow gets of a full link, relative to others.
    pub(crate) share: f64,
}

/// The flows of a job that send, and their bytes left by link.
struct SendingCoflow<'a> {
    flows: &'a [SendingFlow],
    bytes_left: BTreeMap<u32, f64>,
}

impl SendingCoflow<'_> {
    /// Seconds that its bytes left need on the link that needs most, with these capacities.
    fn effective_bottleneck(&self, capacity: &[f64]) -> f64 {
        let seconds = self.bytes_left.iter().map(|(link, bytes)| bytes / capacity[*link as usize]);
        seconds.fold(0.0, f64::max)
    }
}

impl RateAllocator {
    /// Computes the rates of all `flows`, by coflow or by their shares, and adds what became
    /// different to `changes`. Those of a coflow are together.
    pub(crate) fn reallocate_by_hosts(
        &mut self,
        flows: &[SendingFlow],
        by_coflow: bool,
        changes: &mut RateChanges,
    ) {
        self.take_pending(changes);
        self.groups_computed += flows.len() as u64;
        let mut free: Vec<f64> = self.links.iter().map(|link| link.capacity).collect();
        for flow in flows {
            self.groups[flow.group as usize].new_rate = 0.0;
        }
        if by_coflow {
            self.serve_coflows(flows, &mut free);
        } else {
            self.backfill(flows, &mut free);
        }
        self.adopt_host_rates(flows, changes);
    }

    /// Gives the flows of each coflow, the smallest first, what lets them end together, then what is
    /// still free.
    fn serve_coflows(&mut self, flows: &[SendingFlow], free: &mut [f64]) {
        let by_job = flows.chunk_by(|a, b| a.coflow == b.coflow);
        let mut coflows: Vec<SendingCoflow<'_>> = by_job
            .map(|flows| {
                let bytes_left = self.sum_on_links(flows, |flow| flow.bytes_left);
                SendingCoflow { flows, bytes_left }
            })
            .collect();
        // Bits of floats that are not negative are in the order of the floats.
        coflows.sort_by_cached_key(|coflow| coflow.effective_bottleneck(free).to_bits());
        for coflow in &coflows {
            let seconds = coflow.effective_bottleneck(free);
            // A link of the coflow has nothing left: none of its flows may send, as they have to
            // end together.
            let is_blocked = !seconds.is_finite() || seconds <= 0.0;
            for flow in coflow.flows {
                let rate = if is_blocked { 0.0 } else { flow.bytes_left / seconds };
                self.add_rate(flow, rate, free);
            }
        }
        for coflow in &coflows {
            self.backfill(coflow.flows, free);
        }
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

    /// An amount of each flow of the groups, summed by link.
    fn sum_on_links(
        &self,
        flows: &[SendingFlow],
        amount: impl Fn(&SendingFlow) -> f64,
    ) -> BTreeMap<u32, f64> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for flow in flows {
            let of_group = self.group_weight(flow.group) * amount(flow);
            for link in self.group_path(flow.group) {
                *sums.entry(link).or_default() += of_group;
            }
        }
        sums
    }

    /// Gives each flow of a group so much more.
    fn add_rate(&mut self, flow: &SendingFlow, rate: f64, free: &mut [f64]) {
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

    /// Gives flows what is free, by their shares: more to all, until a link of some is full, then to
    /// the others.
    fn backfill(&mut self, flows: &[SendingFlow], free: &mut [f64]) {
        let mut open = flows.to_vec();
        loop {
            open.retain(|flow| self.group_path(flow.group).all(|link| free[link as usize] > 0.0));
            let shares = self.sum_on_links(&open, |flow| flow.share);
            let per_share = shares.iter().map(|(link, sum)| free[*link as usize] / sum);
            // Each round fills a link at least, so there are no more rounds than links.
            let Some(more) = per_share.reduce(f64::min) else { return };
            for flow in &open {
                self.add_rate(flow, more * flow.share, free);
            }
        }
    }

    /// Makes the computed rates current.
    fn adopt_host_rates(&mut self, flows: &[SendingFlow], changes: &mut RateChanges) {
        let mut used: BTreeMap<u32, f64> = BTreeMap::new();
        for flow in flows {
            for hop in self.hops_of(flow.group) {
                let group = &self.groups[flow.group as usize];
                let of = used.entry(self.hops.get(hop).link_level).or_default();
                *of += group.weight * group.new_rate;
            }
            let group = &mut self.groups[flow.group as usize];
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
