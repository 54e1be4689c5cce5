//! Packets of IP that leaves refuse from the ports of hosts: who sends what no host may.
//!
//! A cell counts what came in by a port and was refused for one reason. The decision: what is
//! refused now is a finding that names the port and its host, and all that was ever refused is a
//! metric.

use p4::codec::CounterValue;
use topology::{Fabric, FabricNode, Finding, LinkId};

use super::counter_aggregator::{MeanRate, counter_increase};
use crate::pipeline::RefusalReason;

/// A cell that counts refused packets.
#[derive(Clone, Debug)]
pub(super) struct RefusalCounter {
    /// The link by which they come from a host.
    link: LinkId,
    reason: RefusalReason,
    last: Option<CounterValue>,
    packets: u64,
    rate: MeanRate,
}

/// What one port has had refused for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedPackets {
    /// The port, as `leaf1:4`.
    pub port: String,
    /// The host that it leads to.
    pub host: String,
    /// Why.
    pub reason: RefusalReason,
    /// All since the controller counts.
    pub packets: u64,
    /// A mean over some seconds.
    pub per_second: f64,
}

impl RefusalCounter {
    /// One that has counted nothing.
    pub(super) fn new(link: LinkId, reason: RefusalReason) -> Self {
        Self { link, reason, last: None, packets: 0, rate: MeanRate::default() }
    }

    /// Takes a reading.
    pub(super) fn record_count(&mut self, at: f64, count: CounterValue) {
        let last = self.last.replace(count).unwrap_or(count);
        self.packets += counter_increase(last.packets, count.packets);
        self.rate.record_sum(at, self.packets);
    }

    /// What it has counted; `None` for nothing.
    pub(super) fn refused(&self, fabric: &Fabric) -> Option<RefusedPackets> {
        let link = fabric.link(self.link);
        let switch = &fabric.switch(link.to.node.switch()?).name;
        let FabricNode::Host(host) = link.from.node else {
            return None;
        };
        (self.packets > 0).then(|| RefusedPackets {
            port: format!("{switch}:{}", link.to.port),
            host: fabric.host(host).name.clone(),
            reason: self.reason,
            packets: self.packets,
            per_second: self.rate.per_second(),
        })
    }
}

impl RefusedPackets {
    /// That a port sends such packets now.
    pub(super) fn finding(&self) -> Option<Finding> {
        let text = format!(
            "{:.0} packets/s refused: {}; {}",
            self.per_second.ceil(),
            self.reason.label(),
            remedy(self.reason),
        );
        let about = format!("{} (host {})", self.port, self.host);
        (self.per_second > 0.0).then(|| Finding::warning(about, text))
    }
}

fn remedy(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::ForeignSource => {
            "the source is a host's at another port: the cabling differs from the fabric document, \
             or the host forges addresses"
        }
        RefusalReason::MartianSource => "no host has the source: the host forges addresses",
        RefusalReason::BadChecksum | RefusalReason::BadHeader => {
            "a NIC or a cable is broken, or the host sends what no stack makes"
        }
    }
}
