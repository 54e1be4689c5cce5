//! Finding parts of a fabric: by the names people write, by leaf, by address.
//!
//! Names here are those that the rest of the system prints: `leaf1`, `leaf1:4>spine1:1` for one
//! directed link, and `leaf1-spine1` for all links between two neighbours.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::{Endpoint, Fabric};
use crate::ids::{HostId, LinkId, NicId, Node, SwitchId};

/// A range of IPv4 addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The first address of the range.
    pub address: Ipv4Addr,
    /// Number of bits that all addresses share, 0..=32.
    pub length: u8,
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Fabric {
    /// The host or switch of that name.
    pub fn node_named(&self, name: &str) -> Option<Node> {
        let host = || self.host_named(name).map(Node::Host);
        self.switch_named(name).map(Node::Switch).or_else(host)
    }

    /// The end of a cable of that name, `leaf1:4`, if a cable is there.
    pub fn endpoint_named(&self, name: &str) -> Option<Endpoint> {
        let (node, port) = name.rsplit_once(':')?;
        let endpoint = Endpoint {
            node: self.node_named(node)?,
            port: port.parse().ok()?,
        };
        self.link_at(endpoint).map(|_| endpoint)
    }

    /// The link of that name, `leaf1:4>spine1:1`: the reverse of [`Fabric::link_name`].
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        let (from, to) = name.split_once('>')?;
        let link = self.link_at(self.endpoint_named(from)?)?;
        (self.endpoint_named(to)? == self.link(link).to).then_some(link)
    }

    /// The links from the first to the second of two neighbours, `leaf1-spine1` or `h1-leaf1`,
    /// ascending; or the one between two ports, `leaf1:4-spine1:1`. Empty where there is none.
    pub fn links_named(&self, name: &str) -> Vec<LinkId> {
        let pairs = || {
            name.match_indices('-')
                .map(|(at, _)| (&name[..at], &name[at + 1..]))
        };
        let one = pairs().find_map(|(from, to)| self.link_named(&format!("{from}>{to}")));
        let between = || {
            let nodes = pairs().find_map(|(a, b)| Some((self.node_named(a)?, self.node_named(b)?)));
            nodes.map_or_else(Vec::new, |(from, to)| self.links_between(from, to))
        };
        one.map_or_else(between, |link| vec![link])
    }

    /// The links from one node to another, ascending; parallel links are several.
    pub fn links_between(&self, from: Node, to: Node) -> Vec<LinkId> {
        let mut links = self.links_from(from);
        links.retain(|&link| self.link(link).to.node == to);
        links
    }

    /// All links that leave a node, ascending.
    pub fn links_from(&self, node: Node) -> Vec<LinkId> {
        let mut links: Vec<LinkId> = match node {
            Node::Host(host) => self
                .host(host)
                .nics
                .iter()
                .map(|&nic| self.nic(nic).uplink)
                .collect(),
            Node::Switch(switch) => self.switch(switch).ports.values().copied().collect(),
        };
        links.sort_unstable();
        links
    }

    /// The link that leaves through a port.
    pub fn link_at(&self, endpoint: Endpoint) -> Option<LinkId> {
        match endpoint.node {
            Node::Host(host) => self
                .nic_of(host, endpoint.port)
                .map(|nic| self.nic(nic).uplink),
            Node::Switch(switch) => self.switch(switch).ports.get(&endpoint.port).copied(),
        }
    }

    /// The NIC that a link leads to; `None` for a link to a switch.
    pub fn nic_after(&self, link: LinkId) -> Option<NicId> {
        match self.link(link).to {
            Endpoint {
                node: Node::Host(host),
                port,
            } => self.nic_of(host, port),
            _ => None,
        }
    }

    /// The NICs that are connected to a leaf, by the leaf's ports.
    pub fn nics_on(&self, leaf: SwitchId) -> impl Iterator<Item = NicId> + '_ {
        self.switch(leaf)
            .ports
            .values()
            .filter_map(|&link| self.nic_after(link))
    }

    /// The hosts with a NIC on a leaf, ascending, each once.
    pub fn hosts_on(&self, leaf: SwitchId) -> BTreeSet<HostId> {
        self.nics_on(leaf).map(|nic| self.nic(nic).host).collect()
    }

    /// The addresses that are routed to a leaf, ascending: the /24 of each of its NICs where no NIC
    /// of another leaf is in it, else the NIC's own /32.
    pub fn leaf_prefixes(&self, leaf: SwitchId) -> BTreeSet<Prefix> {
        self.nics_on(leaf)
            .map(|nic| self.prefix_of(self.nic(nic).ip, leaf))
            .collect()
    }

    fn prefix_of(&self, ip: Ipv4Addr, leaf: SwitchId) -> Prefix {
        let [a, b, c, _] = ip.octets();
        let (first, last) = (Ipv4Addr::new(a, b, c, 0), Ipv4Addr::new(a, b, c, 255));
        let mut neighbours = self.structure.nic_addresses.range(first..=last);
        match neighbours.all(|(_, &nic)| self.leaf_of(nic) == leaf) {
            true => Prefix {
                address: first,
                length: 24,
            },
            false => Prefix {
                address: ip,
                length: 32,
            },
        }
    }
}
