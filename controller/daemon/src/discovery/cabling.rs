//! How what is seen differs from the document: cables missing, extra, crossed and one-way, and
//! hosts at other ports.
//!
//! The decision: a cable is told once, by both its ends, under the one name that says most about
//! it. Crossed goes before missing: who is told where a cable leads need not be told that it does
//! not lead to where it should.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, FabricNode, Finding, LinkEndpoint, LinkId, SwitchId};

use super::{ObservedTopology, SwitchPort};

/// What differs, ordered by the ports it is about. Nothing is said of silence at switches that are
/// not `watched`.
pub fn compare_cabling(
    fabric: &Fabric,
    observed: &ObservedTopology,
    watched: &BTreeSet<SwitchId>,
) -> Vec<Finding> {
    let document = DocumentedCabling::new(fabric);
    let cables: Vec<Finding> = observed
        .cables()
        .into_iter()
        .filter_map(|cable| document.check_observed_cable(cable))
        .collect();
    let links = fabric.cables();
    let silent = links.filter_map(|link| document.check_expected_cable(link, observed, watched));
    let stations = observed.hosts.iter();
    let stations = stations.filter_map(|(ip, station)| document.check_attachment(*ip, *station));
    cables.into_iter().chain(silent).chain(stations).collect()
}

/// A fabric by the ports of its switches.
struct DocumentedCabling<'a> {
    fabric: &'a Fabric,
    peers: BTreeMap<SwitchPort, LinkEndpoint>,
}

impl<'a> DocumentedCabling<'a> {
    fn new(fabric: &'a Fabric) -> Self {
        let links = fabric.links().iter();
        let peer = |link: &topology::Link| Some((switch_port(link.from)?, link.to));
        Self { fabric, peers: links.filter_map(peer).collect() }
    }

    /// A cable that is there: as it should be, crossed, or extra.
    fn check_observed_cable(&self, (a, b): (SwitchPort, SwitchPort)) -> Option<Finding> {
        let wanted = [a, b].map(|end| self.peers.get(&end).copied());
        if wanted[0].and_then(switch_port) == Some(b) {
            return None;
        }
        let name = |end: SwitchPort| end.port_name(self.fabric);
        let should = |(end, peer): (SwitchPort, Option<LinkEndpoint>)| {
            let peer = self.fabric.endpoint_name(peer?);
            Some(format!("{} to {peer}", name(end)))
        };
        let should: Vec<String> = [a, b].into_iter().zip(wanted).filter_map(should).collect();
        let about = format!("{}-{}", name(a), name(b));
        Some(match should.is_empty() {
            true => Finding::warning(about, "extra: no document has this cable"),
            false => {
                let should = should.join(" and ");
                Finding::error(about, format!("crossed: the document connects {should}"))
            }
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
        let (a, b) = (switch_port(link.from)?, switch_port(link.to)?);
        if ![a, b].iter().all(|end| watched.contains(&end.switch)) {
            return None;
        }
        let seen = [a, b].map(|end| observed.links.get(&end).copied());
        let name = |end: SwitchPort| end.port_name(self.fabric);
        let about = format!("{}-{}", name(a), name(b));
        let one_way = |from: SwitchPort, to: SwitchPort| {
            let text = format!("one-way: from {} to {} and not back", name(from), name(to));
            Finding::error(&about, text)
        };
        match seen {
            [Some(to), None] if to == b => Some(one_way(a, b)),
            [None, Some(to)] if to == a => Some(one_way(b, a)),
            [None, None] => Some(Finding::error(&about, "missing: nothing gets through")),
            // As it should be, or told as crossed.
            _ => None,
        }
    }

    /// A host's interface: as it should be, elsewhere, or unknown.
    fn check_attachment(
        &self,
        ip: std::net::Ipv4Addr,
        station: super::HostAttachment,
    ) -> Option<Finding> {
        let at = station.at.port_name(self.fabric);
        let Some(nic) = self.fabric.nic_with_ip(ip) else {
            let text = format!("extra: a host with {ip} and {}", station.mac);
            return Some(Finding::warning(at, text));
        };
        let should = self.fabric.link(self.fabric.nic(nic).uplink);
        if switch_port(should.to) == Some(station.at) {
            return None;
        }
        let (host, should) = (should.from, self.fabric.endpoint_name(should.to));
        let about = format!("{}-{at}", self.fabric.endpoint_name(host));
        Some(Finding::error(about, format!("crossed: the document connects it to {should}")))
    }
}

/// An end as a port of a switch; a port beyond what switches have is never seen.
fn switch_port(endpoint: LinkEndpoint) -> Option<SwitchPort> {
    match endpoint.node {
        FabricNode::Host(_) => None,
        FabricNode::Switch(switch) => {
            Some(SwitchPort { switch, port: u16::try_from(endpoint.port).ok()? })
        }
    }
}

#[cfg(test)]
mod tests;
