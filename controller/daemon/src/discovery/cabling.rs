//! How the observed topology differs from the document: cables missing, extra, crossed and one-way,
//! and hosts at other ports.
//!
//! The decision: each cable has at most one finding, which names both its ends and the most
//! specific difference. Crossed precedes missing: where a cable leads implies where it does not.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, Finding, Link, LinkEndpoint, LinkId, SwitchId};

use super::{ObservedTopology, SwitchPort};

/// The differences, ordered by the ports they are about. Silence at switches that are not `watched`
/// is no difference.
pub fn compare_cabling(
    fabric: &Fabric,
    observed: &ObservedTopology,
    watched: &BTreeSet<SwitchId>,
) -> Vec<Finding> {
    let document = DocumentedCabling::new(fabric);
    let cables: Vec<Finding> = observed
        .cables()
        .into_iter()
        .filter_map(|(a, b)| document.check_observed_cable(a, b))
        .collect();
    let links = fabric.cables();
    let silent = links.filter_map(|link| document.check_expected_cable(link, observed, watched));
    let hosts = observed.hosts.iter();
    let moved = hosts.filter_map(|(ip, station)| document.check_attachment(*ip, *station));
    cables.into_iter().chain(silent).chain(moved).collect()
}

/// A fabric by the ports of its switches.
struct DocumentedCabling<'a> {
    fabric: &'a Fabric,
    peers: BTreeMap<SwitchPort, LinkEndpoint>,
}

impl<'a> DocumentedCabling<'a> {
    fn new(fabric: &'a Fabric) -> Self {
        let links = fabric.links().iter();
        let peers = links.filter_map(|link| Some((SwitchPort::at_endpoint(link.from)?, link.to)));
        Self { fabric, peers: peers.collect() }
    }

    fn cable_name(&self, a: SwitchPort, b: SwitchPort) -> String {
        format!("{}-{}", a.port_name(self.fabric), b.port_name(self.fabric))
    }

    /// A cable that is there: as it should be, crossed, or extra.
    fn check_observed_cable(&self, a: SwitchPort, b: SwitchPort) -> Option<Finding> {
        if self.peers.get(&a).copied().and_then(SwitchPort::at_endpoint) == Some(b) {
            return None;
        }
        let expected: Vec<String> = [a, b]
            .into_iter()
            .filter_map(|end| {
                let peer = self.fabric.endpoint_name(*self.peers.get(&end)?);
                Some(format!("{} to {peer}", end.port_name(self.fabric)))
            })
            .collect();
        let about = self.cable_name(a, b);
        Some(if expected.is_empty() {
            Finding::warning(about, "extra: no document has this cable")
        } else {
            let text = format!("crossed: the document connects {}", expected.join(" and "));
            Finding::error(about, text)
        })
    }

    /// A cable that should be there: missing, or one-way.
    fn check_expected_cable(
        &self,
        link: LinkId,
        observed: &ObservedTopology,
        watched: &BTreeSet<SwitchId>,
    ) -> Option<Finding> {
        let link = self.fabric.link(link);
        let (a, b) = (SwitchPort::at_endpoint(link.from)?, SwitchPort::at_endpoint(link.to)?);
        if ![a, b].iter().all(|end| watched.contains(&end.switch)) {
            return None;
        }
        let seen = [a, b].map(|end| observed.links.get(&end).copied());
        let (from, to) = match seen {
            [Some(to), None] if to == b => (a, b),
            [None, Some(to)] if to == a => (b, a),
            [None, None] => {
                return Some(Finding::error(
                    self.cable_name(a, b),
                    "missing: nothing gets through",
                ));
            }
            // As documented, or reported as crossed.
            _ => return None,
        };
        let [from, to] = [from, to].map(|end| end.port_name(self.fabric));
        let text = format!("one-way: from {from} to {to} and not back");
        Some(Finding::error(self.cable_name(a, b), text))
    }

    /// A host's interface: as it should be, elsewhere, or unknown.
    fn check_attachment(
        &self,
        ip: std::net::IpAddr,
        station: super::HostAttachment,
    ) -> Option<Finding> {
        let at = station.at.port_name(self.fabric);
        let Some(nic) = self.fabric.nic_with_ip(ip) else {
            let text = format!("extra: a host with {ip} and {}", station.mac);
            return Some(Finding::warning(at, text));
        };
        let ports = self.fabric.ports_of(nic);
        let should: Vec<&Link> =
            ports.map(|port| self.fabric.link(self.fabric.nic(port).uplink)).collect();
        if should.iter().any(|link| SwitchPort::at_endpoint(link.to) == Some(station.at)) {
            return None;
        }
        let about = format!("{}-{at}", self.fabric.endpoint_name(should[0].from));
        let should: Vec<String> =
            should.iter().map(|link| self.fabric.endpoint_name(link.to)).collect();
        let text = format!("crossed: the document connects it to {}", should.join(" and "));
        Some(Finding::error(about, text))
    }
}

#[cfg(test)]
mod tests;
