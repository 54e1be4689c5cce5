//! The least that traffic must put on its busiest link, whatever paths are chosen.
//!
//! Three things no choice can change: what a host link or an only way carries; what leaves and
//! enters a leaf, or goes from one leaf to another, over all the links there are for it; and that a
//! flow is not split. The largest of them is a lower bound of the largest link load. Amounts in
//! bytes give seconds (`t_j` at best), amounts in bytes per second give a load.

use topology::SwitchId;

use crate::tally::Tally;
use crate::traffic::{RoutableFlow, Traffic};

/// Traffic added up so far, by what no choice of paths can change.
#[derive(Debug)]
pub(crate) struct LeastLoad<'a> {
    traffic: &'a Traffic<'a>,
    unavoidable: Tally,
    leaving: Tally,
    entering: Tally,
    between: Tally,
    single: f64,
}

impl<'a> LeastLoad<'a> {
    /// No traffic yet.
    pub(crate) fn new(traffic: &'a Traffic<'_>) -> Self {
        let fabric = traffic.fabric;
        Self {
            traffic,
            unavoidable: Tally::new(fabric.links().len()),
            leaving: Tally::new(fabric.switches().len()),
            entering: Tally::new(fabric.switches().len()),
            between: Tally::new(traffic.pairs.len()),
            single: 0.0,
        }
    }

    /// No traffic again.
    pub(crate) fn clear(&mut self) {
        for tally in [
            &mut self.unavoidable,
            &mut self.leaving,
            &mut self.entering,
            &mut self.between,
        ] {
            tally.clear();
        }
        self.single = 0.0;
    }

    /// Adds a flow that carries `amount`; one without a path adds nothing.
    pub(crate) fn add(&mut self, flow: &RoutableFlow<'_>, amount: f64) {
        if !flow.has_path {
            return;
        }
        let pair = &self.traffic.pairs[flow.pair];
        for link in [flow.up, flow.down].iter().chain(&pair.unavoidable) {
            self.unavoidable.add(link.index(), amount);
        }
        if pair.crosses_fabric() {
            self.leaving.add(pair.from.index(), amount);
            self.entering.add(pair.to.index(), amount);
            self.between.add(flow.pair, amount);
            self.single = self.single.max(amount / pair.widest);
        }
    }

    /// The lower bound: amount over capacity at the tightest place.
    pub(crate) fn maximum(&self) -> f64 {
        let traffic = self.traffic;
        let links = self.unavoidable.iter();
        let links = links.map(|(link, sum)| sum / traffic.capacity(link.into()));
        let pairs = self
            .between
            .iter()
            .map(|(pair, sum)| sum / traffic.pairs[pair].capacity);
        let leaves = self.leaving.iter().chain(self.entering.iter());
        let leaves = leaves.map(|(leaf, sum)| sum / self.uplink_capacity(leaf.into()));
        links.chain(pairs).chain(leaves).fold(self.single, f64::max)
    }

    /// Bytes per second that a leaf may send up; its cables carry as much down.
    fn uplink_capacity(&self, leaf: SwitchId) -> f64 {
        let fabric = self.traffic.fabric;
        let usable = fabric
            .up_links(leaf)
            .iter()
            .filter(|link| fabric.is_usable(**link));
        usable.map(|link| self.traffic.capacity(*link)).sum()
    }
}
