//! The layout of a fabric on this machine: hosts as network namespaces, cables as veth pairs.
//!
//! Pure: a [`Fabric`] goes in, names and lines for `ip -batch` come out. Switches are programs in
//! the namespace of this machine, with one interface for each port, named as `crux controller
//! --carriers` expects it. The decision: everything that is made has a name that follows from the
//! documents, so that a lab whose processes were killed can be removed by its documents alone.

use std::fmt::Write;
use std::net::IpAddr;

use command_io::interface_names::port_interface;
use topology::{Fabric, FabricNode, HostId, LinkId, MacAddress};

/// Large enough for the 4,096 bytes and the headers of an emulated packet.
const MTU: u32 = 9_000;
/// Number of the routing table of the first NIC of a host.
const FIRST_TABLE: usize = 100;

/// Where the interfaces of a fabric are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NetworkLayout {
    /// The hosts, by [`HostId`].
    pub(super) hosts: Vec<HostLayout>,
    /// The cables, in the order of the document.
    pub(super) cables: Vec<CableLayout>,
}

/// A host as a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HostLayout {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) nics: Vec<NicLayout>,
}

/// A NIC as interfaces of the namespace, one for each port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NicLayout {
    pub(super) interfaces: Vec<String>,
    ip: IpAddr,
    mac: MacAddress,
}

impl NicLayout {
    /// Whether its address is one of IPv6.
    pub(super) fn is_ipv6(&self) -> bool {
        self.ip.is_ipv6()
    }
}

/// A cable as a veth pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CableLayout {
    /// One of its directions.
    pub(super) link: LinkId,
    pub(super) ends: [InterfacePlace; 2],
}

/// A version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressFamily {
    Ipv4,
    Ipv6,
}

impl AddressFamily {
    fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// An interface and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InterfacePlace {
    /// The namespace of a host; none is that of this machine.
    pub(super) namespace: Option<String>,
    pub(super) interface: String,
}

impl NetworkLayout {
    /// The layout of a fabric; namespaces begin with the name of the lab.
    pub(super) fn of_fabric(lab: &str, fabric: &Fabric) -> Self {
        let cables = fabric.cables().map(|cable| {
            let ends = [cable, cable.reverse()].map(|link| end_place(lab, fabric, link));
            CableLayout { link: cable, ends }
        });
        let hosts = 0..fabric.hosts().len();
        let hosts = hosts.map(|host| host_layout(lab, fabric, HostId::from(host)));
        Self { hosts: hosts.collect(), cables: cables.collect() }
    }

    /// The interfaces of this machine, which are those of switches.
    pub(super) fn switch_interfaces(&self) -> impl Iterator<Item = &str> {
        let ends = self.cables.iter().flat_map(|cable| &cable.ends);
        ends.filter(|end| end.namespace.is_none()).map(|end| end.interface.as_str())
    }

    /// Lines for `ip -batch` that make namespaces and cables.
    pub(super) fn creation_lines(&self) -> String {
        let mut lines = String::new();
        for host in &self.hosts {
            let _ = writeln!(lines, "netns add {}", host.namespace);
        }
        for CableLayout { ends: [a, b], .. } in &self.cables {
            let (a, b) = (a.veth_words(), b.veth_words());
            let _ = writeln!(lines, "link add {a} mtu {MTU} type veth peer {b} mtu {MTU}");
        }
        lines
    }

    /// Lines for `ip -batch` that remove all of it, whether it is there or not.
    pub(super) fn removal_lines(&self) -> String {
        let links = self.cables.iter().filter_map(|cable| {
            let end = cable.ends.iter().find(|end| end.namespace.is_none())?;
            Some(format!("link del {}\n", end.interface))
        });
        let namespaces = self.hosts.iter().map(|host| format!("netns del {}\n", host.namespace));
        links.chain(namespaces).collect()
    }

    /// Lines for `ip -batch` that take the switches' ends of cables up or down.
    pub(super) fn state_lines<'a>(
        cables: impl Iterator<Item = &'a CableLayout>,
        state: &str,
    ) -> String {
        let ends = cables.flat_map(|cable| &cable.ends).filter(|end| end.namespace.is_none());
        ends.map(|end| format!("link set {} {state}\n", end.interface)).collect()
    }
}

impl InterfacePlace {
    /// Its part of a line that makes a veth pair.
    fn veth_words(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("name {} netns {namespace}", self.interface),
            None => format!("name {}", self.interface),
        }
    }
}

impl HostLayout {
    /// Its interfaces, each with its NIC.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = (&NicLayout, &str)> + Clone {
        let nics = self.nics.iter();
        nics.flat_map(|nic| nic.interfaces.iter().map(move |interface| (nic, interface.as_str())))
    }

    /// Whether a NIC of it has two ports.
    pub(super) fn has_bonds(&self) -> bool {
        self.nics.iter().any(|nic| nic.interfaces.len() > 1)
    }

    /// Lines for `ip -n NAMESPACE -4 -batch` or `-6`: addresses, and a routing table of its own for
    /// each NIC, so that packets leave by the NIC that has their source address. A bond is a route over
    /// both ports, as not every kernel has the driver.
    pub(super) fn address_lines(&self, family: AddressFamily) -> String {
        let (bits, gateway, flags) = match family {
            AddressFamily::Ipv4 => (32, "169.254.0.1", ""),
            AddressFamily::Ipv6 => (128, "fe80::1", " nodad"),
        };
        let mut lines = String::new();
        let nics = self.nics.iter().enumerate();
        for (index, nic) in nics.filter(|(_, nic)| AddressFamily::of(nic.ip) == family) {
            let NicLayout { interfaces, ip, .. } = nic;
            let table = FIRST_TABLE + index;
            let hops = interfaces.iter().map(|port| format!("via {gateway} dev {port} onlink"));
            let hops: Vec<String> = hops.collect();
            let hops = match &hops[..] {
                [only] => only.clone(),
                several => format!("nexthop {}", several.join(" nexthop ")),
            };
            let first = &interfaces[0];
            let _ = writeln!(lines, "address add {ip}/{bits} dev {first}{flags}");
            let _ = writeln!(lines, "route add default table {table} {hops}");
            let _ = writeln!(lines, "rule add from {ip} lookup {table}");
            if index == 0 {
                let _ = writeln!(lines, "route add default {hops}");
            }
        }
        lines
    }

    /// Lines for `ip -n NAMESPACE -batch` that set the Ethernet addresses and start the NICs. A
    /// frame has one segment, as on a wire; checksums are finished by the switch.
    pub(super) fn link_lines(&self) -> String {
        let lines = self
            .interfaces()
            .map(|(nic, port)| format!("link set {port} address {} gso_max_segs 1 up\n", nic.mac));
        format!("link set lo up\n{}", lines.collect::<String>())
    }
}

/// The name of a host's namespace.
pub(super) fn host_namespace(lab: &str, host: &str) -> String {
    format!("{lab}-{host}")
}

fn host_layout(lab: &str, fabric: &Fabric, id: HostId) -> HostLayout {
    let host = fabric.host(id);
    let nics = host.nics.iter().map(|nic| {
        let ports = fabric.ports_of(*nic).map(|port| fabric.nic(port).uplink);
        let interfaces = ports.map(|uplink| host_interface(fabric, uplink)).collect();
        let nic = fabric.nic(*nic);
        NicLayout { interfaces, ip: nic.ip, mac: nic.mac }
    });
    HostLayout {
        name: host.name.clone(),
        namespace: host_namespace(lab, &host.name),
        nics: nics.collect(),
    }
}

/// The interface by which a link leaves.
fn end_place(lab: &str, fabric: &Fabric, link: LinkId) -> InterfacePlace {
    let end = fabric.link(link).from;
    match end.node {
        FabricNode::Host(host) => InterfacePlace {
            namespace: Some(host_namespace(lab, &fabric.host(host).name)),
            interface: host_interface(fabric, link),
        },
        FabricNode::Switch(switch) => {
            InterfacePlace { namespace: None, interface: port_interface(fabric, switch, end.port) }
        }
    }
}

/// The interface of a host by which a link leaves.
fn host_interface(fabric: &Fabric, uplink: LinkId) -> String {
    format!("eth{}", fabric.port_number(uplink))
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;

    #[test]
    fn every_cable_is_made_and_removed_by_name() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let layout = NetworkLayout::of_fabric("lab", &fabric);
        let (made, removed) = (layout.creation_lines(), layout.removal_lines());
        let count = |text: &str, what: &str| text.lines().filter(|l| l.starts_with(what)).count();
        assert_eq!(count(&made, "link add"), fabric.cables().count());
        assert_eq!(count(&removed, "link del"), fabric.cables().count());
        assert_eq!(count(&made, "netns add"), fabric.hosts().len());
        assert_eq!(count(&removed, "netns del"), fabric.hosts().len());
        for host in &layout.hosts {
            let lines = host.address_lines(AddressFamily::Ipv4);
            assert_eq!(count(&lines, "address add"), host.nics.len(), "{lines}");
            assert_eq!(host.address_lines(AddressFamily::Ipv6), "");
        }
    }

    #[test]
    fn a_nic_with_two_ports_has_an_address_and_two_ways() {
        let spec = ClosSpec { ports_per_nic: 2, ..ClosSpec::default() };
        let layout = NetworkLayout::of_fabric("lab", &build_clos("lab", &spec).unwrap());
        let host = &layout.hosts[0];
        let lines = host.address_lines(AddressFamily::Ipv4);
        assert_eq!(lines.matches("address add").count(), 1);
        let hop = |port| format!("nexthop via 169.254.0.1 dev {port} onlink");
        let both = format!("route add default {} {}\n", hop("eth0"), hop("eth1"));
        assert!(lines.contains(&both) && host.has_bonds(), "{lines}");
        let links = host.link_lines();
        let addresses: Vec<&str> =
            links.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        assert_eq!((addresses.len(), addresses[0]), (2, addresses[1]), "{links}");
        let mut names: Vec<&InterfacePlace> =
            layout.cables.iter().flat_map(|it| &it.ends).collect();
        let all = names.len();
        names.sort_by_key(|place| (&place.namespace, &place.interface));
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn interfaces_of_a_cable_are_in_their_places() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let layout = NetworkLayout::of_fabric("x", &fabric);
        let to_host = layout.cables.iter().find(|cable| cable.ends[0].namespace.is_some());
        let to_host = to_host
            .or_else(|| layout.cables.iter().find(|cable| cable.ends[1].namespace.is_some()));
        let ends = &to_host.unwrap().ends;
        let (host, switch) = match &ends[0].namespace {
            Some(_) => (&ends[0], &ends[1]),
            None => (&ends[1], &ends[0]),
        };
        assert!(host.namespace.as_ref().unwrap().starts_with("x-"));
        assert!(host.interface.starts_with("eth") && switch.interface.contains("-eth"));
        let lines = NetworkLayout::state_lines(layout.cables.iter().take(1), "down");
        assert_eq!(lines.lines().count(), ends_on_switches(&layout.cables[0]));
    }

    fn ends_on_switches(cable: &CableLayout) -> usize {
        cable.ends.iter().filter(|end| end.namespace.is_none()).count()
    }
}
