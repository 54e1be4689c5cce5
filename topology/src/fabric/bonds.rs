//! NICs with two ports under one address: bonds to two leaves (dual ToR) or to one.
//!
//! The decision: each port is a [`Nic`](super::Nic) with a cable of its own, and the two share
//! index and addresses. Where a cable matters (load, rates, the port of a leaf), one asks for the
//! port; where an address matters (routes, tables by address), for all ports of it, with the
//! methods here. A host lists the first port alone, so that its NICs are counted once.
//!
//! Packets to an address arrive at either of its ports. So where packets are led to is a
//! [`Destination`]: a leaf, or two.

use std::collections::BTreeSet;

use super::{AddressPrefix, Fabric, FabricParts, Link, LinkEndpoint};
use crate::ids::{HostId, LinkId, NicId, SwitchId};

/// Where packets arrive: a leaf, or either of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    first: SwitchId,
    /// Above `first`.
    second: Option<SwitchId>,
}

impl From<SwitchId> for Destination {
    fn from(leaf: SwitchId) -> Self {
        Self { first: leaf, second: None }
    }
}

impl Destination {
    fn either(one: SwitchId, other: SwitchId) -> Self {
        let second = Some(one.max(other)).filter(|_| one != other);
        Self { first: one.min(other), second }
    }

    /// One leaf or two, the lower id first.
    #[inline]
    pub fn leaves(self) -> impl Iterator<Item = SwitchId> + Clone {
        std::iter::once(self.first).chain(self.second)
    }

    /// Whether this is one of the leaves.
    #[inline]
    pub fn contains(self, leaf: SwitchId) -> bool {
        self.first == leaf || self.second == Some(leaf)
    }

    /// The leaf, if there is one alone.
    pub fn only_leaf(self) -> Option<SwitchId> {
        self.second.is_none().then_some(self.first)
    }
}

/// The destinations of a fabric: its leaves, ascending, then each two that NICs share, ascending.
pub(super) fn all_destinations(
    leaves: impl Iterator<Item = SwitchId>,
    parts: &FabricParts,
) -> Vec<Destination> {
    let leaf = |nic: NicId| parts.links[parts.nics[nic.index()].uplink.index()].to.node.switch();
    let shared = parts.nics.iter().enumerate().filter_map(|(id, nic)| {
        let both = Destination::either(leaf(id.into())?, leaf(nic.bond?)?);
        both.second.map(|_| both)
    });
    let shared: BTreeSet<Destination> = shared.collect();
    leaves.map(Destination::from).chain(shared).collect()
}

impl Fabric {
    /// Whether some NIC has two ports.
    #[inline]
    pub fn has_bonds(&self) -> bool {
        self.structure.has_bonds
    }

    /// The leaves, ascending by id, then each two leaves that NICs with two ports share, ascending.
    pub fn destinations(&self) -> &[Destination] {
        &self.structure.destinations
    }

    /// The position of one of them in [`Fabric::destinations`].
    pub fn destination_position(&self, destination: Destination) -> Option<usize> {
        let all = self.destinations();
        let pairs = all.partition_point(|other| other.second.is_none());
        let (range, start) = match destination.second {
            None => (&all[..pairs], 0),
            Some(_) => (&all[pairs..], pairs),
        };
        range.binary_search(&destination).ok().map(|place| start + place)
    }

    /// The ports of the NIC with this port, the first one first.
    #[inline]
    pub fn ports_of(&self, port: NicId) -> impl Iterator<Item = NicId> + Clone + use<> {
        let other = self.nic(port).bond;
        let first = other.map_or(port, |other| port.min(other));
        std::iter::once(first).chain(other.map(|other| port.max(other)))
    }

    /// The links by which the NIC with this port sends: one for each of its ports.
    pub fn uplinks_of(&self, port: NicId) -> impl Iterator<Item = &Link> {
        self.ports_of(port).map(|port| self.link(self.nic(port).uplink))
    }

    /// The first port of the NIC with this port: the one that stands for its address.
    #[inline]
    pub fn first_port(&self, port: NicId) -> NicId {
        self.nic(port).bond.map_or(port, |other| port.min(other))
    }

    /// [`Fabric::first_port`] of both ends of a flow: the addresses between which it goes.
    #[inline]
    pub fn first_ports(&self, ends: [NicId; 2]) -> [NicId; 2] {
        ends.map(|port| self.first_port(port))
    }

    /// The NICs of all hosts, each once, by its first port.
    pub fn host_nics(&self) -> impl Iterator<Item = NicId> + '_ {
        self.hosts().iter().flat_map(|host| host.nics.iter().copied())
    }

    /// The port of a NIC that has its cable at this end.
    pub fn port_at(&self, nic: NicId, end: LinkEndpoint) -> Option<NicId> {
        self.ports_of(nic).find(|port| self.link(self.nic(*port).uplink).to == end)
    }

    /// The number of the port by which a link leaves its host or switch. A host counts its NICs
    /// first, then their second ports.
    pub fn port_number(&self, link: LinkId) -> u32 {
        let port = self.nic_after(link.reverse());
        port.map_or(self.link(link).from.port, |port| self.host_port_number(port))
    }

    /// The number of a port among those of its host: its NICs first, then their second ports.
    pub fn host_port_number(&self, port: NicId) -> u32 {
        let nic = self.nic(port);
        let mut all = self.host_ports(nic.host).zip(0..);
        all.find_map(|(other, number)| (other == port).then_some(number)).unwrap_or(nic.index)
    }

    /// The reverse of [`Fabric::host_port_number`].
    pub fn host_port(&self, host: HostId, number: u32) -> Option<NicId> {
        self.host_ports(host).nth(number as usize)
    }

    fn host_ports(&self, host: HostId) -> impl Iterator<Item = NicId> + '_ {
        let nics = &self.host(host).nics;
        let seconds = nics.iter().filter_map(|nic| self.nic(*nic).bond);
        nics.iter().copied().chain(seconds)
    }

    /// The leaves that the NIC with this port is connected to, whatever has failed.
    pub fn leaves_of(&self, port: NicId) -> Destination {
        let leaf = self.leaf_of(port);
        Destination::either(leaf, self.nic(port).bond.map_or(leaf, |other| self.leaf_of(other)))
    }

    /// The leaves by which packets to the NIC with this port should arrive: those of its ports whose
    /// cables may be used; of ports that work where none may; of all where none works. Switches
    /// that failed do not matter: routes lead around them.
    pub fn arrival_leaves(&self, port: NicId) -> Destination {
        let may_be_used = |link: LinkId| self.is_cable_up(link) && !self.is_cable_drained(link);
        let ports = || self.ports_of(port).map(|port| (self.nic(port).uplink, self.leaf_of(port)));
        let among = |is_kept: &dyn Fn(LinkId) -> bool| {
            let leaves = ports().filter(|(link, _)| is_kept(*link)).map(|(_, leaf)| leaf);
            leaves.map(Destination::from).reduce(|a, b| Destination::either(a.first, b.first))
        };
        among(&may_be_used)
            .or_else(|| among(&|link| self.is_cable_up(link)))
            .unwrap_or_else(|| self.leaves_of(port))
    }

    /// The port by which a leaf sends to the NIC with this port; none where it has no cable to it,
    /// or where its own have failed and one of another leaf works. Of two at one leaf it is the
    /// first that may be used.
    pub fn arrival_port(&self, leaf: SwitchId, port: NicId) -> Option<NicId> {
        let own = || self.ports_of(port).filter(|port| self.leaf_of(*port) == leaf);
        let works = |port: &NicId| self.is_cable_up(self.nic(*port).uplink);
        let may_be_used = |port: &NicId| !self.is_cable_drained(self.nic(*port).uplink);
        let working = || own().filter(works);
        let is_elsewhere = || self.ports_of(port).any(|port| works(&port));
        let last = || own().next().filter(|_| !is_elsewhere());
        working().find(may_be_used).or_else(|| working().next()).or_else(last)
    }

    /// The addresses that are routed to a destination, ascending: the /24 or /64 of each of its
    /// NICs where no NIC elsewhere is in it, else the NIC's own /32 or /128.
    pub fn prefixes_of(&self, destination: Destination) -> BTreeSet<AddressPrefix> {
        let nics = self.nics_on(destination.first);
        let nics = nics.filter(|nic| self.leaves_of(*nic) == destination);
        nics.map(|nic| self.prefix_of(self.nic(nic).ip, destination)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::AvailabilityChange;
    use crate::spec;

    /// Hosts of four leaves, each with one NIC to two of them.
    fn dual() -> Fabric {
        let spec = ClosSpec { ports_per_nic: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
        clos::build_clos("dual", &spec).unwrap()
    }

    fn leaf_names(fabric: &Fabric, destination: Destination) -> Vec<String> {
        destination.leaves().map(|leaf| fabric.switch(leaf).name.clone()).collect()
    }

    #[test]
    fn two_ports_are_one_nic_with_one_address() {
        let fabric = dual();
        let host = fabric.host(fabric.host_named("h3").unwrap());
        let [first] = host.nics[..] else { panic!("{host:?}") };
        let ports: Vec<NicId> = fabric.ports_of(first).collect();
        assert_eq!(ports.len(), 2);
        for port in &ports {
            assert_eq!(fabric.first_port(*port), first);
            assert_eq!(fabric.nic(*port).ip, fabric.nic(first).ip);
            assert_eq!(fabric.nic_after(fabric.nic(*port).uplink.reverse()), Some(*port));
            let number = fabric.host_port_number(*port);
            assert_eq!(fabric.host_port(fabric.nic(*port).host, number), Some(*port));
        }
        let names: Vec<String> =
            ports.iter().map(|port| fabric.link_name(fabric.nic(*port).uplink)).collect();
        assert_eq!(names, ["h3:0>leaf2:3", "h3:0>leaf1:3"]);
        for name in names {
            assert_eq!(fabric.link_name(fabric.link_named(&name).unwrap()), name);
        }
        assert_eq!(leaf_names(&fabric, fabric.leaves_of(ports[1])), ["leaf1", "leaf2"]);
        assert_eq!(fabric.destinations().len(), 6);
        for (place, destination) in fabric.destinations().iter().enumerate() {
            assert_eq!(fabric.destination_position(*destination), Some(place));
        }
    }

    #[test]
    fn packets_arrive_at_the_port_that_is_left() {
        let fabric = dual();
        let nic = fabric.host(fabric.host_named("h1").unwrap()).nics[0];
        let [leaf1, leaf2] = ["leaf1", "leaf2"].map(|name| fabric.switch_named(name).unwrap());
        let cable = |leaf: &str| fabric.links_named(&format!("h1-{leaf}"))[0];
        let arrivals = |changes: &[AvailabilityChange]| {
            let fabric = fabric.with_changes(changes.iter().copied());
            let ports = [leaf1, leaf2].map(|leaf| fabric.arrival_port(leaf, nic).is_some());
            (leaf_names(&fabric, fabric.arrival_leaves(nic)), ports)
        };
        let both = vec!["leaf1".to_owned(), "leaf2".to_owned()];
        assert_eq!(arrivals(&[]), (both.clone(), [true, true]));
        let cut = AvailabilityChange::LinkDown(cable("leaf1"));
        assert_eq!(arrivals(&[cut]), (vec!["leaf2".to_owned()], [false, true]));
        let drained = AvailabilityChange::DrainLink(cable("leaf1"));
        assert_eq!(arrivals(&[drained]), (vec!["leaf2".to_owned()], [true, true]));
        // A port that works is better than none.
        let other = AvailabilityChange::LinkDown(cable("leaf2"));
        assert_eq!(arrivals(&[drained, other]), (vec!["leaf1".to_owned()], [true, false]));
        assert_eq!(arrivals(&[cut, other]), (both, [true, true]));
    }

    #[test]
    fn a_leaf_with_two_ports_of_a_nic_uses_the_first_that_works() {
        let mut document = spec::explicit_document(&dual());
        for link in document.links.iter_mut().filter(|link| link.a == "h1:0") {
            link.b = link.b.replace("leaf2:", "leaf1:9");
        }
        let fabric = Fabric::try_from(&document).unwrap();
        let nic = fabric.host(fabric.host_named("h1").unwrap()).nics[0];
        let leaf1 = fabric.switch_named("leaf1").unwrap();
        let [one, other] = [0, 1].map(|at| fabric.ports_of(nic).nth(at).unwrap());
        assert_eq!(fabric.leaves_of(nic).only_leaf(), Some(leaf1));
        assert_eq!(fabric.arrival_port(leaf1, nic), Some(one));
        let cut = AvailabilityChange::LinkDown(fabric.nic(one).uplink);
        let cut = fabric.with_changes([cut]);
        assert_eq!(cut.arrival_port(leaf1, nic), Some(other));
        assert_eq!(cut.arrival_leaves(nic).only_leaf(), Some(leaf1));
    }

    #[test]
    fn prefixes_are_those_of_nics_with_the_same_leaves() {
        let fabric = dual();
        let prefixes = |leaves: &[&str]| -> Vec<String> {
            let ids: Vec<SwitchId> =
                leaves.iter().map(|name| fabric.switch_named(name).unwrap()).collect();
            let destination = Destination::either(ids[0], ids[ids.len() - 1]);
            fabric.prefixes_of(destination).iter().map(ToString::to_string).collect()
        };
        assert_eq!(prefixes(&["leaf1", "leaf2"]), ["10.0.1.0/24", "10.0.2.0/24"]);
        assert!(prefixes(&["leaf1"]).is_empty());
    }
}
