//! What links carry, as the switches at their ends count it.
//!
//! Pure. Counters of P4 programs have most links by level, read many times a second; what switches
//! count over gNMI has the others. The decision: a link has one source, the first of its sender's
//! program, its sender's gNMI server and its receiver's, because sums of two that are read at
//! different times are neither. Links without traffic are left out.

use std::collections::BTreeMap;

use topology::{Fabric, LinkId, SwitchId};

use crate::gnmi::{FabricCounters, SwitchCounters};

/// Shares of the capacities of links that they carry.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MeasuredLinks {
    /// By class, where it is counted so.
    pub(super) levels: BTreeMap<(LinkId, u8), f64>,
    /// All classes together.
    pub(super) totals: BTreeMap<LinkId, f64>,
}

impl MeasuredLinks {
    /// The shares that programs count, and those that switches report over gNMI.
    pub(super) fn new(
        fabric: &Fabric,
        by_programs: &BTreeMap<(LinkId, u8), f64>,
        by_switches: &FabricCounters,
    ) -> Self {
        let mut links = Self { levels: by_programs.clone(), totals: BTreeMap::new() };
        for ((link, _), share) in by_programs {
            *links.totals.entry(*link).or_default() += share;
        }
        let known = || by_switches.iter().filter(|(id, _)| id.index() < fabric.switches().len());
        known().for_each(|(switch, counters)| links.add_sent(fabric, *switch, counters));
        known().for_each(|(switch, counters)| links.add_received(fabric, *switch, counters));
        links
    }

    fn add_sent(&mut self, fabric: &Fabric, switch: SwitchId, counters: &SwitchCounters) {
        let rates = &counters.rates;
        for (port, link) in &fabric.switch(switch).ports {
            if self.totals.contains_key(link) {
                continue;
            }
            let levels = rates.sent_by_level.range((*port, 0)..=(*port, u8::MAX));
            let shares: Vec<_> = levels
                .map(|((_, level), rate)| ((*link, *level), share_of(fabric, *link, *rate)))
                .filter(|(_, share)| *share > 0.0)
                .collect();
            let sum = shares.iter().map(|(_, share)| share).sum();
            let sent = rates.sent.get(port);
            self.add_total(*link, sent.map_or(sum, |rate| share_of(fabric, *link, *rate)));
            self.levels.extend(shares);
        }
    }

    fn add_received(&mut self, fabric: &Fabric, switch: SwitchId, counters: &SwitchCounters) {
        for (port, link) in &fabric.switch(switch).ports {
            let arrives = link.reverse();
            let rate = counters.rates.received.get(port).copied().unwrap_or_default();
            if !self.totals.contains_key(&arrives) {
                self.add_total(arrives, share_of(fabric, arrives, rate));
            }
        }
    }

    fn add_total(&mut self, link: LinkId, share: f64) {
        if share > 0.0 {
            self.totals.insert(link, share);
        }
    }
}

fn share_of(fabric: &Fabric, link: LinkId, bytes_per_second: f64) -> f64 {
    bytes_per_second / fabric.link(link).bandwidth.bytes_per_second()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use topology::FabricNode;
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::gnmi::PortRates;

    #[test]
    fn a_link_has_the_first_source_that_counts_it() {
        let fabric = clos::build_clos("two by two", &ClosSpec::default()).unwrap();
        let leaf = SwitchId(0);
        let up = fabric.up_links(leaf);
        let (&port, &down) = (fabric.switch(leaf).ports.iter())
            .find(|(_, link)| matches!(fabric.link(**link).to.node, FabricNode::Host(_)))
            .unwrap();
        let capacity = |link: LinkId| fabric.link(link).bandwidth.bytes_per_second();
        let uplinks = [0, 1].map(|at| fabric.link(up[at]).from.port);
        let rates = PortRates {
            received: BTreeMap::from([
                (port, 0.25 * capacity(down)),
                (uplinks[0], 0.75 * capacity(up[0])),
            ]),
            sent: BTreeMap::from([
                (uplinks[0], 0.5 * capacity(up[0])),
                (uplinks[1], 0.5 * capacity(up[1])),
                (port, 0.0),
            ]),
            sent_by_level: BTreeMap::from([
                ((uplinks[0], 3), 0.5 * capacity(up[0])),
                ((uplinks[1], 6), 0.125 * capacity(up[1])),
                ((uplinks[1], 7), 0.0),
            ]),
        };
        let counters = SwitchCounters { rates, ..SwitchCounters::default() };
        let by_switches = Arc::new(BTreeMap::from([
            (leaf, counters),
            // Of a fabric from before, which had more of them.
            (SwitchId(99), SwitchCounters::default()),
        ]));
        let by_programs = BTreeMap::from([((up[0], 3), 0.25), ((up[0], 4), 0.125)]);
        let found = MeasuredLinks::new(&fabric, &by_programs, &by_switches);
        let mut levels = by_programs;
        levels.insert((up[1], 6), 0.125);
        assert_eq!(found.levels, levels);
        let totals =
            [(up[0], 0.375), (up[1], 0.5), (up[0].reverse(), 0.75), (down.reverse(), 0.25)];
        assert_eq!(found.totals, BTreeMap::from(totals));
    }

    #[test]
    fn without_a_total_the_levels_are_summed() {
        let fabric = clos::build_clos("two by two", &ClosSpec::default()).unwrap();
        let link = fabric.up_links(SwitchId(0))[0];
        let port = fabric.link(link).from.port;
        let eighth = 0.125 * fabric.link(link).bandwidth.bytes_per_second();
        let sent_by_level = BTreeMap::from([((port, 0), eighth), ((port, 2), eighth)]);
        let rates = PortRates { sent_by_level, ..PortRates::default() };
        let counters = SwitchCounters { rates, ..SwitchCounters::default() };
        let by_switches = Arc::new(BTreeMap::from([(SwitchId(0), counters)]));
        let found = MeasuredLinks::new(&fabric, &BTreeMap::new(), &by_switches);
        assert_eq!(found.totals, BTreeMap::from([(link, 0.25)]));
    }
}
