//! The document of an observed fabric.
//!
//! Switches are those that took part, cables and hosts those that were observed. What probes do
//! not reveal (speeds, GPUs, names of hosts that no document has) is assumed, with a finding. The
//! decision: tiers follow from where hosts are. A switch with a host is a leaf, and the tier of any
//! other is its distance from the nearest leaf. Only if no host was observed does the size of the
//! two sides decide, with a finding.

use std::collections::{BTreeMap, BTreeSet};

use topology::spec::{FabricDocument, HostDocument, LinkDocument, SwitchDocument};
use topology::{Fabric, Finding, SwitchId, Tier};

use super::{DiscoveryDefaults, HostAttachment, ObservedTopology, SwitchPort};

/// A fabric as it was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedFabric {
    /// The fabric in the explicit form.
    pub document: FabricDocument,
    /// What is assumed in the document.
    pub findings: Vec<Finding>,
}

/// The document of what is seen of the switches of `fabric`, whose names, hosts and speeds it takes
/// over where they are the same.
pub fn document_observed_fabric(
    fabric: &Fabric,
    observed: &ObservedTopology,
    assumed: DiscoveryDefaults,
) -> LearnedFabric {
    let (tiers, mut findings) = infer_tiers(fabric, observed);
    let tiered = fabric.switches().iter().zip(tiers);
    let switches =
        tiered.map(|(switch, tier)| SwitchDocument { tier, ..SwitchDocument::from(switch) });
    let cables = observed.cables().into_iter().map(|(a, b)| {
        let (a, b) = (a.port_name(fabric), b.port_name(fabric));
        let known = fabric.links_named(&format!("{a}-{b}"));
        let gbps = known.first().map_or(assumed.gbps, |link| fabric.link(*link).bandwidth.gbps());
        LinkDocument { a, b, gbps, scheduler: None, metres: None }
    });
    let mut links: Vec<LinkDocument> = cables.collect();
    let mut hosts = HostCollector { fabric, defaults: assumed, found: BTreeMap::new() };
    for (ip, station) in &observed.hosts {
        links.extend(hosts.add_interface(*ip, *station));
    }
    if hosts.found.values().any(|(host, _)| host.gpus == assumed.gpus) {
        let text = format!("{} GPUs assumed where no document says", assumed.gpus);
        findings.push(Finding::warning("hosts", text));
    }
    let document = FabricDocument {
        name: fabric.name().to_owned(),
        clos: None,
        switches: switches.collect(),
        hosts: hosts.found.into_values().map(|(host, _)| host).collect(),
        links,
        forwarding: fabric.forwarding(),
        ..FabricDocument::default()
    };
    LearnedFabric { document, findings }
}

/// Hosts by name, with how many NICs each has so far.
struct HostCollector<'a> {
    fabric: &'a Fabric,
    defaults: DiscoveryDefaults,
    found: BTreeMap<String, (HostDocument, u32)>,
}

impl HostCollector<'_> {
    /// Adds an interface and returns its cables: those of the document, if it is a NIC with two ports
    /// that is where the document has it.
    fn add_interface(
        &mut self,
        ip: std::net::IpAddr,
        station: HostAttachment,
    ) -> Vec<LinkDocument> {
        let known = self.fabric.nic_with_ip(ip);
        let ends = known
            .into_iter()
            .flat_map(|nic| self.fabric.ports_of(nic))
            .map(|port| SwitchPort::at_endpoint(self.fabric.link(self.fabric.nic(port).uplink).to));
        let ends: Vec<SwitchPort> = ends.flatten().collect();
        let ends = if ends.contains(&station.at) { ends } else { vec![station.at] };
        let nic = known.map(|nic| self.fabric.nic(nic));
        let host = nic.map(|nic| self.fabric.host(nic.host));
        let name = match host {
            Some(host) => host.name.clone(),
            None => format!("host-{}", ip.to_string().replace(['.', ':'], "-")),
        };
        let gpus = host.map_or(self.defaults.gpus, |host| host.gpus);
        let gbps = nic.map(|nic| self.fabric.link(nic.uplink).bandwidth.gbps());
        let (host, nics) = self.found.entry(name.clone()).or_insert_with(|| {
            let name = name.clone();
            let (ips, macs) = (Vec::new(), Vec::new());
            (HostDocument { name, gpus, ips, macs, interconnect: None }, 0)
        });
        host.ips.push(ip.to_string());
        host.macs.push(station.mac.to_string());
        let index = *nics;
        *nics += 1;
        let cable = |at: SwitchPort| LinkDocument {
            a: format!("{name}:{index}"),
            b: at.port_name(self.fabric),
            gbps: gbps.unwrap_or(self.defaults.gbps),
            scheduler: None,
            metres: None,
        };
        ends.into_iter().map(cable).collect()
    }
}

/// The tier of every switch, and what of that is a guess.
fn infer_tiers(fabric: &Fabric, observed: &ObservedTopology) -> (Vec<Tier>, Vec<Finding>) {
    let neighbours = switch_neighbours(observed);
    let seen: BTreeSet<SwitchId> = observed.hosts.values().map(|host| host.at.switch).collect();
    let mut findings = Vec::new();
    let leaves = if seen.is_empty() {
        let text = "guessed: no host was seen, so the more numerous side are taken for leaves";
        findings.push(Finding::warning("tiers", text));
        larger_partition(fabric, &neighbours)
    } else {
        seen
    };
    let heights = hop_distances(&neighbours, leaves);
    let switches = fabric.switch_ids();
    let tiers = switches.map(|switch| match heights.get(&switch) {
        Some(1) => Tier::Spine,
        Some(2..) => Tier::Core,
        // Where nothing leads, hosts may still come to be.
        Some(0) | None => Tier::Leaf,
    });
    (tiers.collect(), findings)
}

fn switch_neighbours(observed: &ObservedTopology) -> BTreeMap<SwitchId, BTreeSet<SwitchId>> {
    let mut neighbours: BTreeMap<SwitchId, BTreeSet<SwitchId>> = BTreeMap::new();
    let pairs = observed.cables().into_iter();
    for (a, b) in pairs
        .flat_map(|(a, b): (SwitchPort, SwitchPort)| [(a.switch, b.switch), (b.switch, a.switch)])
    {
        neighbours.entry(a).or_default().insert(b);
    }
    neighbours
}

/// How far every switch is from the nearest of these.
fn hop_distances(
    neighbours: &BTreeMap<SwitchId, BTreeSet<SwitchId>>,
    from: BTreeSet<SwitchId>,
) -> BTreeMap<SwitchId, usize> {
    let mut found: BTreeMap<SwitchId, usize> = from.iter().map(|switch| (*switch, 0)).collect();
    let mut edge = from;
    for distance in 1.. {
        let next = edge.iter().filter_map(|switch| neighbours.get(switch)).flatten();
        edge = next.filter(|switch| !found.contains_key(switch)).copied().collect();
        if edge.is_empty() {
            break;
        }
        found.extend(edge.iter().map(|switch| (*switch, distance)));
    }
    found
}

/// The switches an even number of cables away from the first, or those an odd number away: the more
/// numerous; of equals the former.
fn larger_partition(
    fabric: &Fabric,
    neighbours: &BTreeMap<SwitchId, BTreeSet<SwitchId>>,
) -> BTreeSet<SwitchId> {
    let mut sides = [BTreeSet::new(), BTreeSet::new()];
    for first in fabric.switch_ids() {
        let placed = sides.iter().any(|side| side.contains(&first));
        if placed || !neighbours.contains_key(&first) {
            continue;
        }
        for (switch, distance) in hop_distances(neighbours, [first].into()) {
            sides[distance % 2].insert(switch);
        }
    }
    let [even, odd] = sides;
    if odd.len() > even.len() { odd } else { even }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::clos::{self, ClosSpec};

    const ASSUMED: DiscoveryDefaults = DiscoveryDefaults { gbps: 100.0, gpus: 8 };

    fn end(fabric: &Fabric, endpoint: topology::LinkEndpoint) -> Option<SwitchPort> {
        let switch = endpoint.node.switch()?;
        let port = u16::try_from(endpoint.port).ok()?;
        assert!(switch.index() < fabric.switches().len());
        Some(SwitchPort { switch, port })
    }

    /// What is seen of a fabric in which everything works and all hosts speak.
    fn observed(fabric: &Fabric) -> ObservedTopology {
        let ends = |link: &topology::Link| Some((end(fabric, link.from)?, end(fabric, link.to)?));
        let station = |nic: &topology::Nic| {
            let at = end(fabric, fabric.link(nic.uplink).to).unwrap();
            (nic.ip, HostAttachment { at, mac: nic.mac })
        };
        ObservedTopology {
            links: fabric.links().iter().filter_map(ends).collect(),
            hosts: fabric.nics().iter().map(station).collect(),
        }
    }

    /// The switches of a fabric and nothing else of it, all in the same tier.
    fn inventory(fabric: &Fabric) -> Fabric {
        let mut switches = fabric.switches().to_vec();
        for switch in &mut switches {
            switch.tier = Tier::Leaf;
            switch.ports.clear();
        }
        Fabric::new(topology::FabricParts {
            name: "found".to_owned(),
            switches,
            ..topology::FabricParts::default()
        })
    }

    fn fabrics() -> [Fabric; 2] {
        let two = ClosSpec { leaves: 4, spines: 2, hosts_per_leaf: 3, ..ClosSpec::default() };
        let three = ClosSpec { pods: 2, cores: 4, ..two.clone() };
        [two, three].map(|spec| clos::build_clos("lab", &spec).unwrap())
    }

    #[test]
    fn a_known_fabric_is_found_as_it_is() {
        let dual = ClosSpec { ports_per_nic: 2, ..ClosSpec::default() };
        let dual = clos::build_clos("dual", &dual).unwrap();
        for fabric in fabrics().into_iter().chain([dual]) {
            let learned = document_observed_fabric(&fabric, &observed(&fabric), ASSUMED);
            let found = Fabric::try_from(&learned.document).unwrap();
            let names = |fabric: &Fabric| {
                let links = fabric.link_ids();
                let link = |id| (fabric.link_name(id), fabric.link(id).bandwidth.gbps().to_bits());
                links.map(link).collect::<BTreeSet<_>>()
            };
            assert_eq!(names(&found), names(&fabric));
            assert_eq!(found.switches().len(), fabric.switches().len());
        }
    }

    #[test]
    fn tiers_are_inferred_where_there_is_no_document() {
        for fabric in fabrics() {
            let learned =
                document_observed_fabric(&inventory(&fabric), &observed(&fabric), ASSUMED);
            let found = Fabric::try_from(&learned.document).unwrap();
            for (found, switch) in found.switches().iter().zip(fabric.switches()) {
                assert_eq!((&found.name, found.tier), (&switch.name, switch.tier));
            }
            assert_eq!(found.nics().len(), fabric.nics().len());
            let subjects: Vec<&str> = learned.findings.iter().map(|f| f.about.as_str()).collect();
            assert_eq!(subjects, ["hosts"]);
        }
    }

    #[test]
    fn without_hosts_the_larger_side_becomes_leaves_with_a_finding() {
        let [fabric, _] = fabrics();
        let mut observed = observed(&fabric);
        observed.hosts.clear();
        let learned = document_observed_fabric(&inventory(&fabric), &observed, ASSUMED);
        let tiers: Vec<Tier> = learned.document.switches.iter().map(|s| s.tier).collect();
        let expected: Vec<Tier> = fabric.switches().iter().map(|s| s.tier).collect();
        assert_eq!(tiers, expected);
        assert_eq!(learned.findings[0].about, "tiers");
    }
}
