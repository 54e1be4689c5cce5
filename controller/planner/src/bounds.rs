//! A lower bound of the load of the busiest link, whatever paths are chosen.
//!
//! No choice can change four things: the load of a host link or of a link in every path; what
//! leaves and enters a leaf, or a pod, over all its links; what goes from one leaf to another over
//! the links that lead there; and that a flow is not split. The largest of them is a lower bound of
//! the largest link load. Amounts in bytes give seconds (`t_j` at best), amounts in bytes per
//! second give a load.

use std::collections::BTreeMap;

use topology::{Fabric, LinkId, SwitchId};

use crate::path_tables::PathTables;
use crate::routes::{FlowRoute, LeafPair};
use crate::sparse_sums::SparseSums;

/// Sums of the traffic so far, by the four things that no choice of paths can change.
#[derive(Debug)]
pub(crate) struct LoadLowerBound<'a> {
    tables: &'a PathTables,
    unavoidable: SparseSums,
    leaving: SparseSums,
    entering: SparseSums,
    leaving_pods: SparseSums,
    entering_pods: SparseSums,
    /// Amount and capacity between leaves that do not reach each other over all their links; where
    /// they do, the sum that leaves a leaf is the tighter bound.
    between: BTreeMap<(SwitchId, SwitchId), (f64, f64)>,
    largest_single: f64,
}

impl<'a> LoadLowerBound<'a> {
    /// No traffic yet.
    pub(crate) fn new(fabric: &Fabric, tables: &'a PathTables) -> Self {
        let (switches, pods) = (fabric.switches().len(), tables.pods().pod_count());
        Self {
            tables,
            unavoidable: SparseSums::new(fabric.capacity_link_count()),
            leaving: SparseSums::new(switches),
            entering: SparseSums::new(switches),
            leaving_pods: SparseSums::new(pods),
            entering_pods: SparseSums::new(pods),
            between: BTreeMap::new(),
            largest_single: 0.0,
        }
    }

    /// Removes all traffic.
    pub(crate) fn clear(&mut self) {
        for sums in [
            &mut self.unavoidable,
            &mut self.leaving,
            &mut self.entering,
            &mut self.leaving_pods,
            &mut self.entering_pods,
        ] {
            sums.clear();
        }
        self.between.clear();
        self.largest_single = 0.0;
    }

    /// Adds a flow of a pair that carries `amount`; one without a path adds nothing. `inside` are
    /// its links inside hosts.
    pub(crate) fn add_flow(
        &mut self,
        route: &FlowRoute,
        pair: &LeafPair,
        inside: impl Iterator<Item = LinkId>,
        amount: f64,
    ) {
        if !route.has_path {
            return;
        }
        inside.for_each(|link| self.unavoidable.add_at(link.index(), amount));
        for link in [route.up, route.down].iter().chain(&pair.unavoidable) {
            self.unavoidable.add_at(link.index(), amount);
        }
        if pair.crosses_fabric() {
            self.add_crossing(pair, amount);
        }
    }

    fn add_crossing(&mut self, pair: &LeafPair, amount: f64) {
        let (from, to) = (pair.ends.from, pair.ends.to);
        self.leaving.add_at(from.index(), amount);
        self.entering.add_at(to.index(), amount);
        let all = self.tables.capacity_up(from).min(self.tables.capacity_up(to));
        if pair.capacity < all {
            let between = self.between.entry((from, to)).or_default();
            *between = (between.0 + amount, pair.capacity);
        }
        let (near, far) = (self.tables.pods().pod_of(from), self.tables.pods().pod_of(to));
        if let (Some(near), Some(far)) = (near, far)
            && near != far
        {
            self.leaving_pods.add_at(near as usize, amount);
            self.entering_pods.add_at(far as usize, amount);
        }
        self.largest_single = self.largest_single.max(amount / pair.widest);
    }

    /// The lower bound: amount over capacity at the tightest place.
    pub(crate) fn max_load(&self) -> f64 {
        let tables = self.tables;
        let links =
            self.unavoidable.iter().map(|(link, sum)| sum / tables.link_capacity(link.into()));
        let between = self.between.values().map(|(sum, capacity)| sum / capacity);
        let leaves = self
            .leaving
            .iter()
            .chain(self.entering.iter())
            .map(|(leaf, sum)| sum / tables.capacity_up(leaf.into()));
        let pods = self
            .leaving_pods
            .iter()
            .chain(self.entering_pods.iter())
            .map(|(pod, sum)| sum / tables.pods().pod_capacity(pod));
        let all = links.chain(between).chain(leaves).chain(pods);
        all.fold(self.largest_single, f64::max)
    }
}
