//! Finding parts of a fabric: by the names people write, by leaf, by address.
//!
//! Names here are those that the rest of the system prints: `leaf1`, `leaf1:4>spine1:1` for one
//! directed link, and `leaf1-spine1` for all links between two neighbours.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Destination, Fabric, LinkEndpoint};
use crate::ids::{FabricNode, HostId, LinkId, NicId, SwitchId};

/// A range of IP addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressPrefix {
    /// The first address of the range.
    pub address: IpAddr,
    /// Number of bits that all addresses share, 0..=32 or 0..=128.
    pub length: u8,
}

impl std::fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Fabric {
    /// The host or switch of that name.
    pub fn node_named(&self, name: &str) -> Option<FabricNode> {
        self.switch_named(name)
            .map(FabricNode::Switch)
            .or_else(|| self.host_named(name).map(FabricNode::Host))
    }

    /// The end of a cable of that name, `leaf1:4`, if a cable is there.
    pub fn endpoint_named(&self, name: &str) -> Option<LinkEndpoint> {
        let (node, port) = name.rsplit_once(':')?;
        let endpoint = LinkEndpoint { node: self.node_named(node)?, port: port.parse().ok()? };
        self.links_at(endpoint).next().map(|_| endpoint)
    }

    /// The link of that name, `leaf1:4>spine1:1`: the reverse of [`Fabric::link_name`].
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        let (from, to) = name.split_once('>')?;
        let to = self.endpoint_named(to)?;
        let mut links = self.links_at(self.endpoint_named(from)?);
        links.find(|link| self.link(*link).to == to)
    }

    /// The links from the first to the second of two neighbours, `leaf1-spine1` or `h1-leaf1`,
    /// ascending; or the one between two ports, `leaf1:4-spine1:1`. Empty if no cable has that
    /// name.
    pub fn links_named(&self, name: &str) -> Vec<LinkId> {
        let pairs = || name.match_indices('-').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let one = pairs().find_map(|(from, to)| self.link_named(&format!("{from}>{to}")));
        let between = || {
            let nodes = pairs().find_map(|(a, b)| Some((self.node_named(a)?, self.node_named(b)?)));
            nodes.map_or_else(Vec::new, |(from, to)| self.links_between(from, to))
        };
        one.map_or_else(between, |link| vec![link])
    }

    /// The links from one node to another, ascending; parallel links are several.
    pub fn links_between(&self, from: FabricNode, to: FabricNode) -> Vec<LinkId> {
        let mut links = self.links_from(from);
        links.retain(|&link| self.link(link).to.node == to);
        links
    }

    /// All links that leave a node, ascending.
    pub fn links_from(&self, node: FabricNode) -> Vec<LinkId> {
        let mut links: Vec<LinkId> = match node {
            FabricNode::Host(host) => {
                let ports = self.host(host).nics.iter().flat_map(|nic| self.ports_of(*nic));
                ports.map(|port| self.nic(port).uplink).collect()
            }
            FabricNode::Switch(switch) => self.switch(switch).ports.values().copied().collect(),
        };
        links.sort_unstable();
        links
    }

    /// The links that leave through a port of a switch or a NIC of a host; two where the NIC has
    /// two ports.
    pub fn links_at(&self, endpoint: LinkEndpoint) -> impl Iterator<Item = LinkId> + '_ {
        let (nic, of_switch) = match endpoint.node {
            FabricNode::Host(host) => (self.nic_of(host, endpoint.port), None),
            FabricNode::Switch(switch) => {
                (None, self.switch(switch).ports.get(&endpoint.port).copied())
            }
        };
        let ports = nic.into_iter().flat_map(|nic| self.ports_of(nic));
        ports.map(|port| self.nic(port).uplink).chain(of_switch)
    }

    /// The NIC, or the port of it, that a link leads to; `None` for a link to a switch.
    pub fn nic_after(&self, link: LinkId) -> Option<NicId> {
        let LinkEndpoint { node: FabricNode::Host(host), port } = self.link(link).to else {
            return None;
        };
        let mut ports = self.ports_of(self.nic_of(host, port)?);
        ports.find(|port| self.nic(*port).uplink == link.reverse())
    }

    /// The NICs, or ports of them, that are connected to a leaf, by the leaf's ports.
    pub fn nics_on(&self, leaf: SwitchId) -> impl Iterator<Item = NicId> + '_ {
        self.switch(leaf).ports.values().filter_map(|&link| self.nic_after(link))
    }

    /// The hosts with a NIC on a leaf, ascending, each once.
    pub fn hosts_on(&self, leaf: SwitchId) -> BTreeSet<HostId> {
        self.nics_on(leaf).map(|nic| self.nic(nic).host).collect()
    }

    /// The usual subnet of an address where all its NICs are at this destination, else the address.
    pub(super) fn prefix_of(&self, ip: IpAddr, destination: Destination) -> AddressPrefix {
        let (subnet, last) = subnet_of(ip);
        let mut neighbours = self.structure.nic_addresses.range(subnet.address..=last);
        match neighbours.all(|(_, &nic)| self.leaves_of(nic) == destination) {
            true => subnet,
            false => AddressPrefix { address: ip, length: if ip.is_ipv4() { 32 } else { 128 } },
        }
    }
}

/// The usual subnet of an address, and the last address of it.
fn subnet_of(ip: IpAddr) -> (AddressPrefix, IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let first = ip.to_bits() & !0xFF;
            let last = Ipv4Addr::from_bits(first | 0xFF);
            (AddressPrefix { address: Ipv4Addr::from_bits(first).into(), length: 24 }, last.into())
        }
        IpAddr::V6(ip) => {
            let host = u128::from(u64::MAX);
            let first = ip.to_bits() & !host;
            let last = Ipv6Addr::from_bits(first | host);
            (AddressPrefix { address: Ipv6Addr::from_bits(first).into(), length: 64 }, last.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::spec;

    fn parallel() -> Fabric {
        let spec = ClosSpec { parallel_uplinks: 2, ..ClosSpec::default() };
        clos::build_clos("parallel", &spec).unwrap()
    }

    #[test]
    fn links_are_found_by_the_names_that_are_printed() {
        let fabric = parallel();
        for id in fabric.link_ids() {
            assert_eq!(fabric.link_named(&fabric.link_name(id)), Some(id));
        }
        let names = |name: &str| -> Vec<String> {
            fabric.links_named(name).iter().map(|&link| fabric.link_name(link)).collect()
        };
        assert_eq!(names("leaf1-spine2"), ["leaf1:6>spine2:1", "leaf1:7>spine2:2"]);
        assert_eq!(names("spine2-leaf1"), ["spine2:1>leaf1:6", "spine2:2>leaf1:7"]);
        assert_eq!(names("leaf1:7-spine2:2"), ["leaf1:7>spine2:2"]);
        assert_eq!(names("h1-leaf1"), ["h1:0>leaf1:1"]);
        for name in ["leaf1-leaf2", "leaf1", "leaf1-spine9", "leaf1:99-spine1:1", "-", ""] {
            assert!(names(name).is_empty(), "{name}");
        }
        assert_eq!(fabric.link_named("leaf1:6>spine2:2"), None);
    }

    #[test]
    fn names_with_dashes_are_distinguished() {
        let mut document = spec::explicit_document(&parallel());
        document.switches[0].name = "leaf-a".to_owned();
        for link in &mut document.links {
            link.b = link.b.replace("leaf1:", "leaf-a:");
            link.a = link.a.replace("leaf1:", "leaf-a:");
        }
        let fabric = Fabric::try_from(&document).unwrap();
        assert_eq!(fabric.links_named("leaf-a-spine1").len(), 2);
    }

    #[test]
    fn a_leaf_has_entries_for_its_hosts_and_addresses() {
        let spec = ClosSpec { dual_homed: true, host_links: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("dual", &spec).unwrap();
        let leaf1 = fabric.switch_named("leaf1").unwrap();
        let hosts: Vec<u32> = fabric.hosts_on(leaf1).into_iter().map(|host| host.0).collect();
        assert_eq!(hosts, [0, 1, 2, 3, 4, 5]);
        let nics = fabric.nics_on(leaf1).map(|nic| fabric.nic(nic).index);
        assert_eq!(nics.collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        let prefixes = fabric.prefixes_of(leaf1.into());
        assert_eq!(prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.1.0/24"]);
    }

    #[test]
    fn leaves_that_share_a_range_are_routed_by_address() {
        let mut document = spec::explicit_document(&parallel());
        document.hosts[3].ips = vec!["10.0.1.77".to_owned()];
        let fabric = Fabric::try_from(&document).unwrap();
        let prefixes = |leaf: &str| -> Vec<String> {
            let leaf = fabric.switch_named(leaf).unwrap();
            fabric.prefixes_of(leaf.into()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(prefixes("leaf1"), ["10.0.1.1/32", "10.0.1.2/32", "10.0.1.3/32"]);
        assert_eq!(prefixes("leaf2"), ["10.0.1.77/32", "10.0.2.0/24"]);
    }
}
