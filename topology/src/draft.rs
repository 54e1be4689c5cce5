//! A fabric while it is put together, by the Clos builder, an importer or a document.
//!
//! Builders add switches, then hosts, then cables, and a draft gives out names, ports, addresses
//! and device ids, so that all generated fabrics look alike. A document brings its own and only
//! uses [`FabricDraft::into_fabric`]. Nothing is checked here: builders check their numbers before
//! they begin.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fabric::{
    Fabric, FabricParts, Host, Link, LinkEndpoint, LinkScheduler, Nic, PipelineKind, Switch, Tier,
};
use crate::ids::{FabricNode, HostId, LinkId, NicId, SwitchId};
use crate::lossless::SwitchQueues;
use crate::units::{Bandwidth, MacAddress};

/// Where packets to and from the controller enter a switch; no cable may use it.
pub(crate) const CPU_PORT: u32 = 255;
/// Highest port of the P4 program: ports have 9 bits and 511 means "drop".
pub(crate) const MAX_PORT: u32 = 510;
/// Ports of a switch that cables may use: all but the controller's.
pub(crate) const CABLE_PORTS: u64 = MAX_PORT as u64 - 1;
/// Switches of one tier: as many leaves as the two middle bytes of an address can number.
pub(crate) const MAX_SWITCHES_PER_TIER: u64 = 65_535;
/// Subnets of all leaves: as many as the two middle bytes of an address can number.
pub(crate) const MAX_SUBNETS: u64 = 65_535;
/// NICs of one subnet: 10.x.y.1 to 10.x.y.254.
const NICS_PER_SUBNET: u32 = 254;
/// Cables of the largest fabric that is built: 80 bytes each, 160 MB.
pub(crate) const MAX_CABLES: u64 = 2_000_000;
/// TCP port of the P4Runtime server of device 0; device n listens n ports above it. Below the ports
/// that Linux gives to clients (32768 and above), one of which could be taken at any time.
const P4RUNTIME_BASE_PORT: u64 = 20_000;

/// A host and the addresses of its NICs, by NIC index. Two cables of one NIC lead to its two ports.
pub(crate) struct DraftHost {
    pub(crate) name: String,
    pub(crate) gpus: u32,
    pub(crate) addresses: Vec<(IpAddr, MacAddress)>,
}

/// Both directions of a link.
pub(crate) struct DraftCable {
    pub(crate) a: LinkEndpoint,
    pub(crate) b: LinkEndpoint,
    pub(crate) bandwidth: Bandwidth,
    /// The scheduler, where it is not the usual one: from a host to its leaf, and both ways between
    /// switches.
    pub(crate) scheduler: Option<LinkScheduler>,
    /// Length of the cable, where it is known.
    pub(crate) metres: Option<f64>,
}

impl DraftCable {
    /// The scheduler of the direction that leaves `from`.
    fn scheduler_from(&self, from: LinkEndpoint) -> LinkScheduler {
        let joins_host = [self.a, self.b].iter().any(|end| end.node.switch().is_none());
        match (joins_host, from.node.switch()) {
            (true, None) => self.scheduler.unwrap_or(LinkScheduler::Fifo),
            (true, Some(_)) => LinkScheduler::Strict,
            (false, _) => self.scheduler.unwrap_or(LinkScheduler::Strict),
        }
    }
}

/// A fabric in the making.
#[derive(Default)]
pub(crate) struct FabricDraft {
    pub(crate) name: String,
    pub(crate) hosts: Vec<DraftHost>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) cables: Vec<DraftCable>,
    /// Whether generated addresses are IPv6.
    pub(crate) is_ipv6: bool,
    /// Scheduler of the generated hosts' NICs, where it is not the usual one.
    pub(crate) host_scheduler: Option<LinkScheduler>,
    /// Ports given out so far, by switch.
    ports_used: Vec<u32>,
    leaves: u32,
}

impl FabricDraft {
    /// An empty draft of a fabric of that name.
    pub(crate) fn with_name(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds `count` switches of a tier, all tiers in ascending order, and returns their ids.
    ///
    /// Device ids start at 1 for leaves and go on after the next multiple of ten for each further
    /// tier (1..4, 11..12, 21), which keeps them readable.
    pub(crate) fn add_switches(&mut self, tier: Tier, count: usize) -> Vec<SwitchId> {
        let first = self.switches.len();
        let last_device = self.switches.last().map_or(0, |switch| switch.device_id);
        let numbers = 1..=count as u64;
        let base = last_device.next_multiple_of(10);
        self.switches.extend(numbers.map(|number| generated_switch(tier, number, base + number)));
        self.ports_used.resize(self.switches.len(), 0);
        if tier == Tier::Leaf {
            self.leaves += count as u32;
        }
        (first..self.switches.len()).map(SwitchId::from).collect()
    }

    /// Gives switches names of their own, in order.
    pub(crate) fn rename_switches(
        &mut self,
        switches: &[SwitchId],
        names: impl Iterator<Item = String>,
    ) {
        for (switch, name) in switches.iter().zip(names) {
            self.switches[switch.index()].name = name;
        }
    }

    /// Adds a host with one NIC on each of `leaves`, in order, addressed by its place on the leaf.
    pub(crate) fn add_host(
        &mut self,
        name: String,
        gpus: u32,
        leaves: &[SwitchId],
        bandwidth: Bandwidth,
    ) {
        let nics = leaves.iter().map(|leaf| vec![*leaf]);
        self.add_host_with_ports(name, gpus, nics, bandwidth);
    }

    /// Adds a host with the NICs whose ports lead to these leaves, in order, each addressed by the
    /// place of its first port on the leaf.
    pub(crate) fn add_host_with_ports(
        &mut self,
        name: String,
        gpus: u32,
        nics: impl IntoIterator<Item = Vec<SwitchId>>,
        bandwidth: Bandwidth,
    ) {
        let node = FabricNode::Host(HostId::from(self.hosts.len()));
        let mut addresses = Vec::new();
        for (port, leaves) in (0..).zip(nics) {
            let a = LinkEndpoint { node, port };
            for (number, leaf) in leaves.into_iter().enumerate() {
                let b = self.next_port(leaf);
                if number == 0 {
                    let place = self.ports_used[leaf.index()];
                    addresses.push(generated_address(leaf, place, self.leaves, self.is_ipv6));
                }
                let scheduler = self.host_scheduler;
                self.cables.push(DraftCable { a, b, bandwidth, scheduler, metres: None });
            }
        }
        self.hosts.push(DraftHost { name, gpus, addresses });
    }

    /// Adds a cable between the next free ports of two switches.
    pub(crate) fn connect_switches(
        &mut self,
        lower: SwitchId,
        upper: SwitchId,
        bandwidth: Bandwidth,
    ) {
        let (a, b) = (self.next_port(lower), self.next_port(upper));
        self.cables.push(DraftCable { a, b, bandwidth, scheduler: None, metres: None });
    }

    /// Ports count from 1 and leave out the one of the controller.
    fn next_port(&mut self, switch: SwitchId) -> LinkEndpoint {
        let used = &mut self.ports_used[switch.index()];
        *used += 1;
        let port = if *used < CPU_PORT { *used } else { *used + 1 };
        LinkEndpoint { node: FabricNode::Switch(switch), port }
    }

    /// The fabric. Links are numbered in the order of the cables, NICs by host and index, second
    /// ports after all NICs of their host.
    pub(crate) fn into_fabric(self) -> Fabric {
        let mut parts =
            FabricParts { name: self.name, switches: self.switches, ..FabricParts::default() };
        for cable in &self.cables {
            parts.add_cable(cable);
        }
        let uplinks = parts.host_uplinks();
        for host in self.hosts {
            parts.add_host(host, &uplinks);
        }
        Fabric::new(parts)
    }
}

impl FabricParts {
    fn add_cable(&mut self, cable: &DraftCable) {
        for (from, to) in [(cable.a, cable.b), (cable.b, cable.a)] {
            let id = LinkId::from(self.links.len());
            self.links.push(Link {
                from,
                to,
                bandwidth: cable.bandwidth,
                scheduler: cable.scheduler_from(from),
                metres: cable.metres,
            });
            if let FabricNode::Switch(switch) = from.node {
                self.switches[switch.index()].ports.insert(from.port, id);
            }
        }
    }

    /// The links that leave each NIC of hosts, in the order of the cables.
    fn host_uplinks(&self) -> BTreeMap<LinkEndpoint, Vec<LinkId>> {
        let mut uplinks: BTreeMap<LinkEndpoint, Vec<LinkId>> = BTreeMap::new();
        for (id, link) in (0..).map(LinkId).zip(&self.links) {
            if link.from.node.switch().is_none() {
                uplinks.entry(link.from).or_default().push(id);
            }
        }
        uplinks
    }

    fn add_host(&mut self, host: DraftHost, uplinks: &BTreeMap<LinkEndpoint, Vec<LinkId>>) {
        let id = HostId::from(self.hosts.len());
        let first = self.nics.len();
        let mut second_ports = Vec::new();
        for (index, (ip, mac)) in (0..).zip(host.addresses) {
            let links = &uplinks[&LinkEndpoint { node: FabricNode::Host(id), port: index }];
            let nic = Nic { host: id, index, ip, mac, uplink: links[0], bond: None };
            second_ports.extend(links.get(1).map(|second| Nic { uplink: *second, ..nic.clone() }));
            self.nics.push(nic);
        }
        let nics: Vec<NicId> = (first..self.nics.len()).map(NicId::from).collect();
        for second in second_ports {
            let (port, of) = (NicId::from(self.nics.len()), nics[second.index as usize]);
            self.nics[of.index()].bond = Some(port);
            self.nics.push(Nic { bond: Some(of), ..second });
        }
        self.hosts.push(Host { name: host.name, gpus: host.gpus, nics, interconnect: None });
    }
}

fn generated_switch(tier: Tier, number: u64, device_id: u64) -> Switch {
    let server_port = u16::try_from(P4RUNTIME_BASE_PORT + device_id).ok();
    Switch {
        name: format!("{tier}{number}"),
        tier,
        pipeline: PipelineKind::default(),
        device_id,
        p4runtime: server_port.map(|port| format!("127.0.0.1:{port}")),
        gnmi: None,
        ports: BTreeMap::new(),
        port_names: BTreeMap::new(),
        queues: SwitchQueues::default(),
    }
}

/// Address of the `place`-th NIC (from 1) on a leaf: 10.(subnet, two bytes).(place), or
/// fd00:0:0:(leaf's number)::(place).
///
/// A subnet of IPv4 has the number of its leaf. The further ones of leaves with more NICs follow
/// the numbers of all `leaves`, so that the first addresses do not depend on how many NICs there
/// are.
pub(crate) fn generated_address(
    leaf: SwitchId,
    place: u32,
    leaves: u32,
    is_ipv6: bool,
) -> (IpAddr, MacAddress) {
    let number = leaf.0 + 1;
    let ip: IpAddr = if is_ipv6 {
        let place = u128::from(place);
        Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(number) << 64 | place).into()
    } else {
        let (further, place) = ((place - 1) / NICS_PER_SUBNET, (place - 1) % NICS_PER_SUBNET + 1);
        let subnet = number.wrapping_add(further.wrapping_mul(leaves));
        Ipv4Addr::from_bits(10 << 24 | (subnet & 0xFFFF) << 8 | place).into()
    };
    (ip, MacAddress::from_ip(ip))
}

/// Subnets of that many leaves, of which the fullest has `nics` NICs.
pub(crate) fn subnet_count(leaves: u64, nics: u64) -> u64 {
    leaves.saturating_mul(nics.div_ceil(NICS_PER_SUBNET.into()))
}
