//! The least that traffic must put on its busiest link, whatever paths are chosen.
//!
//! Four things no choice can change: what a host link or an only way carries; what leaves and
//! enters a leaf, or a pod, over all the links there are for it; what goes from one leaf to another
//! over the links that lead there; and that a flow is not split. The largest of them is a lower
//! bound of the largest link load. Amounts in bytes give seconds (`t_j` at best), amounts in bytes
//! per second give a load.

use std::collections::BTreeMap;

use topology::{Fabric, SwitchId};

use crate::tally::Tally;
use crate::traffic::{LeafPair, Route};
use crate::ways::Ways;

/// Traffic added up so far, by what no choice of paths can change.
#[derive(Debug)]
pub(crate) struct LeastLoad<'a> {
    ways: &'a Ways,
    unavoidable: Tally,
    leaving: Tally,
    entering: Tally,
    leaving_pods: Tally,
    entering_pods: Tally,
    /// Amount and capacity between leaves that do not reach each other over all their links; where
    /// they do, what leaves a leaf bounds more.
    between: BTreeMap<(SwitchId, SwitchId), (f64, f64)>,
    single: f64,
}

impl<'a> LeastLoad<'a> {
    /// No traffic yet.
    pub(crate) fn new(fabric: &Fabric, ways: &'a Ways) -> Self {
        let (switches, pods) = (fabric.switches().len(), ways.pods().count());
        Self {
            ways,
            unavoidable: Tally::new(fabric.links().len()),
            leaving: Tally::new(switches),
            entering: Tally::new(switches),
            leaving_pods: Tally::new(pods),
            entering_pods: Tally::new(pods),
            between: BTreeMap::new(),
            single: 0.0,
        }
    }

    /// No traffic again.
    pub(crate) fn clear(&mut self) {
        for tally in [
            &mut self.unavoidable,
            &mut self.leaving,
            &mut self.entering,
            &mut self.leaving_pods,
            &mut self.entering_pods,
        ] {
            tally.clear();
        }
        self.between.clear();
        self.single = 0.0;
    }

    /// Adds a flow of a pair that carries `amount`; one without a path adds nothing.
    pub(crate) fn add(&mut self, route: &Route, pair: &LeafPair, amount: f64) {
        if !route.has_path {
            return;
        }
        for link in [route.up, route.down].iter().chain(&pair.unavoidable) {
            self.unavoidable.add(link.index(), amount);
        }
        if pair.crosses_fabric() {
            self.cross(pair, amount);
        }
    }

    fn cross(&mut self, pair: &LeafPair, amount: f64) {
        let (from, to) = (pair.ends.from, pair.ends.to);
        self.leaving.add(from.index(), amount);
        self.entering.add(to.index(), amount);
        let all = self.ways.capacity_up(from).min(self.ways.capacity_up(to));
        if pair.capacity < all {
            let between = self.between.entry((from, to)).or_default();
            *between = (between.0 + amount, pair.capacity);
        }
        let (near, far) = (self.ways.pods().of(from), self.ways.pods().of(to));
        if let (Some(near), Some(far)) = (near, far)
            && near != far
        {
            self.leaving_pods.add(near as usize, amount);
            self.entering_pods.add(far as usize, amount);
        }
        self.single = self.single.max(amount / pair.widest);
    }

    /// The lower bound: amount over capacity at the tightest place.
    pub(crate) fn maximum(&self) -> f64 {
        let ways = self.ways;
        let links = self.unavoidable.iter();
        let links = links.map(|(link, sum)| sum / ways.capacity(link.into()));
        let between = self.between.values().map(|(sum, capacity)| sum / capacity);
        let leaves = self.leaving.iter().chain(self.entering.iter());
        let leaves = leaves.map(|(leaf, sum)| sum / ways.capacity_up(leaf.into()));
        let pods = self.leaving_pods.iter().chain(self.entering_pods.iter());
        let pods = pods.map(|(pod, sum)| sum / ways.pods().capacity(pod));
        let all = links.chain(between).chain(leaves).chain(pods);
        all.fold(self.single, f64::max)
    }
}
