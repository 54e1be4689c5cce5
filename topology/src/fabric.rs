//! The fabric as an immutable graph, and change as a value.
//!
//! A [`Fabric`] is its parts (hosts, NICs, switches, directed links: fixed for its lifetime and
//! shared between copies) and their availability. [`Fabric::with_changes`] gives a new fabric with
//! some availability changed; nothing is ever changed in place, so a plan can be judged against the
//! very fabric it was made for.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{FabricNode, HostId, LinkId, NicId, SwitchId};
use crate::interconnect::HostInterconnect;
use crate::lossless::SwitchQueues;
use crate::units::{Bandwidth, MacAddress};

mod bonds;
mod forwarding;
mod intra_host;
mod link_scheduler;
mod lookup;
mod names;
mod pipeline_kind;
pub use bonds::Destination;
pub use forwarding::Forwarding;
pub use intra_host::{HostPart, IntraHostLink};
pub use link_scheduler::LinkScheduler;
pub use lookup::AddressPrefix;
pub use pipeline_kind::PipelineKind;

/// A server with GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Unique name, for example `h1`.
    pub name: String,
    /// GPUs in the server.
    pub gpus: u32,
    /// Its NICs; the position is the NIC index, which is also the host's port number. Of a NIC with
    /// two ports, the first.
    pub nics: Vec<NicId>,
    /// Its PCIe switches and NVLink domains, if they are described.
    pub interconnect: Option<Arc<HostInterconnect>>,
}

/// A NIC of a host with its one cable, or one port of a NIC with two.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// The host it is in.
    pub host: HostId,
    /// Its index in the host.
    pub index: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// The link from this NIC to its leaf; [`LinkId::reverse`] is the way back.
    pub uplink: LinkId,
    /// The other port of a NIC with two, which has the same host, index and addresses.
    pub bond: Option<NicId>,
}

/// Where a switch stands in the Clos.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Hosts are connected here (top of rack).
    Leaf,
    /// Joins the leaves of a pod (aggregation).
    Spine,
    /// Joins the spines of the pods.
    Core,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leaf => "leaf",
            Self::Spine => "spine",
            Self::Core => "core",
        })
    }
}

/// A switch with its tier and its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// Unique name, for example `leaf1`.
    pub name: String,
    /// Its tier.
    pub tier: Tier,
    /// Its program.
    pub pipeline: PipelineKind,
    /// P4Runtime device id.
    pub device_id: u64,
    /// Address of its P4Runtime server, `host:port`.
    pub p4runtime: Option<String>,
    /// Address of its gNMI server, `host:port`.
    pub gnmi: Option<String>,
    /// Links that leave this switch, by port, ascending.
    pub ports: BTreeMap<u32, LinkId>,
    /// Names of ports in the switch's own software, such as `Ethernet8`, where they are known.
    pub port_names: BTreeMap<u32, String>,
    /// What its queues and its buffer can do, as far as it is known.
    pub queues: SwitchQueues,
}

/// One end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkEndpoint {
    /// The host or switch.
    pub node: FabricNode,
    /// The port of a switch or the NIC index of a host.
    pub port: u32,
}

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Where packets enter.
    pub from: LinkEndpoint,
    /// Where packets come out.
    pub to: LinkEndpoint,
    /// Its capacity.
    pub bandwidth: Bandwidth,
    /// Which packets it sends first.
    pub scheduler: LinkScheduler,
    /// Length of its cable, if it is known.
    pub metres: Option<f64>,
}

/// The parts of a fabric; what [`Fabric::new`] takes and what never changes afterwards.
///
/// Links must come in pairs: `2n` and `2n + 1` are the directions of one cable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricParts {
    /// Name of the fabric.
    pub name: String,
    /// Hosts by [`HostId`].
    pub hosts: Vec<Host>,
    /// NICs by [`NicId`].
    pub nics: Vec<Nic>,
    /// Switches by [`SwitchId`].
    pub switches: Vec<Switch>,
    /// Directed links by [`LinkId`].
    pub links: Vec<Link>,
    /// Who chooses the paths of packets.
    pub forwarding: Forwarding,
}

/// A change of the availability of a cable or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AvailabilityChange {
    /// Both directions of the link's cable failed.
    LinkDown(LinkId),
    /// The cable works again.
    LinkUp(LinkId),
    /// The switch failed.
    SwitchDown(SwitchId),
    /// The switch works again.
    SwitchUp(SwitchId),
    /// New traffic must avoid the cable, which still works.
    DrainLink(LinkId),
    /// The cable may be used again.
    UndrainLink(LinkId),
    /// New traffic must avoid the switch, which still works.
    DrainSwitch(SwitchId),
    /// The switch may be used again.
    UndrainSwitch(SwitchId),
}

/// Whether something works and may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AvailabilityState {
    failed: bool,
    drained: bool,
}

/// The parts, and what follows from them: names to ids, and the links of each switch by direction.
#[derive(Debug)]
struct FabricStructure {
    parts: FabricParts,
    up: Vec<Vec<LinkId>>,
    down: Vec<Vec<LinkId>>,
    host_names: BTreeMap<String, HostId>,
    switch_names: BTreeMap<String, SwitchId>,
    /// The first port with each address.
    nic_addresses: BTreeMap<IpAddr, NicId>,
    destinations: Vec<Destination>,
    has_bonds: bool,
    intra_host: intra_host::IntraHostTable,
}

/// An immutable fabric: a graph of hosts and switches with directed links.
#[derive(Clone, Debug)]
pub struct Fabric {
    structure: Arc<FabricStructure>,
    cables: Arc<Vec<AvailabilityState>>,
    switches: Arc<Vec<AvailabilityState>>,
    /// By cable: what the two tables above say together. Paths ask for it on every link.
    usable: Arc<Vec<bool>>,
}

impl Fabric {
    /// A fabric in which everything works. The caller (a builder or a document) has checked that
    /// names are unique, that every id in `parts` is within its table and that every NIC has a
    /// cable to a switch.
    pub fn new(parts: FabricParts) -> Self {
        let hosts = parts.hosts.iter().enumerate();
        let switches = parts.switches.iter().enumerate();
        let nics = parts.nics.iter().enumerate().rev();
        let leaves = switches.clone().filter(|(_, switch)| switch.tier == Tier::Leaf);
        let structure = FabricStructure {
            up: links_towards(&parts, Ordering::Greater),
            down: links_towards(&parts, Ordering::Less),
            host_names: hosts.map(|(id, host)| (host.name.clone(), id.into())).collect(),
            switch_names: switches.map(|(id, switch)| (switch.name.clone(), id.into())).collect(),
            // Of two ports the first, which comes last here, stands for the address.
            nic_addresses: nics.map(|(id, nic)| (nic.ip, id.into())).collect(),
            destinations: bonds::all_destinations(leaves.map(|(id, _)| id.into()), &parts),
            has_bonds: parts.nics.iter().any(|nic| nic.bond.is_some()),
            intra_host: intra_host::IntraHostTable::new(&parts),
            parts,
        };
        let cables = vec![AvailabilityState::default(); structure.parts.links.len() / 2];
        let switches = vec![AvailabilityState::default(); structure.parts.switches.len()];
        Self::with_availability(Arc::new(structure), cables, switches)
    }

    /// The fabric with these programs on the switches of these tiers, in which everything works.
    #[must_use]
    pub fn with_pipelines(self, of_tiers: &BTreeMap<Tier, PipelineKind>) -> Self {
        if of_tiers.is_empty() {
            return self;
        }
        let mut parts = self.parts().clone();
        for switch in &mut parts.switches {
            switch.pipeline = of_tiers.get(&switch.tier).copied().unwrap_or(switch.pipeline);
        }
        Self::new(parts)
    }

    /// This fabric if paths are chosen so; the same parts have failed and are drained.
    #[must_use]
    pub fn with_forwarding(&self, forwarding: Forwarding) -> Self {
        if self.forwarding() == forwarding {
            return self.clone();
        }
        Self::new(FabricParts { forwarding, ..self.parts().clone() })
            .with_changes(self.availability_changes())
    }

    /// A copy of this fabric after `changes`, applied in order.
    pub fn with_changes(&self, changes: impl IntoIterator<Item = AvailabilityChange>) -> Self {
        let mut cables = (*self.cables).clone();
        let mut switches = (*self.switches).clone();
        for change in changes {
            match change {
                AvailabilityChange::LinkDown(link) => cables[link.cable_index()].failed = true,
                AvailabilityChange::LinkUp(link) => cables[link.cable_index()].failed = false,
                AvailabilityChange::DrainLink(link) => cables[link.cable_index()].drained = true,
                AvailabilityChange::UndrainLink(link) => cables[link.cable_index()].drained = false,
                AvailabilityChange::SwitchDown(switch) => switches[switch.index()].failed = true,
                AvailabilityChange::SwitchUp(switch) => switches[switch.index()].failed = false,
                AvailabilityChange::DrainSwitch(switch) => switches[switch.index()].drained = true,
                AvailabilityChange::UndrainSwitch(switch) => {
                    switches[switch.index()].drained = false;
                }
            }
        }
        Self::with_availability(Arc::clone(&self.structure), cables, switches)
    }

    /// This fabric with the same failures and nothing drained.
    #[must_use]
    pub fn without_drains(&self) -> Self {
        let no_drain = |state: &AvailabilityState| AvailabilityState { drained: false, ..*state };
        let [cables, switches] =
            [&self.cables, &self.switches].map(|states| states.iter().map(no_drain).collect());
        Self::with_availability(Arc::clone(&self.structure), cables, switches)
    }

    fn with_availability(
        structure: Arc<FabricStructure>,
        cables: Vec<AvailabilityState>,
        switches: Vec<AvailabilityState>,
    ) -> Self {
        let mut fabric = Self {
            structure,
            cables: Arc::new(cables),
            switches: Arc::new(switches),
            usable: Arc::default(),
        };
        fabric.usable = Arc::new(
            fabric.cables().map(|link| fabric.is_up(link) && !fabric.is_drained(link)).collect(),
        );
        fabric
    }

    /// What it was built from, in which a fabric that differs in some part begins.
    pub fn parts(&self) -> &FabricParts {
        &self.structure.parts
    }

    /// Name of the fabric.
    pub fn name(&self) -> &str {
        &self.structure.parts.name
    }

    /// Who chooses the paths of packets.
    pub fn forwarding(&self) -> Forwarding {
        self.structure.parts.forwarding
    }

    /// All hosts, by [`HostId`].
    #[inline]
    pub fn hosts(&self) -> &[Host] {
        &self.structure.parts.hosts
    }

    /// All NICs by [`NicId`], each port of one with two.
    #[inline]
    pub fn nics(&self) -> &[Nic] {
        &self.structure.parts.nics
    }

    /// All switches, by [`SwitchId`].
    #[inline]
    pub fn switches(&self) -> &[Switch] {
        &self.structure.parts.switches
    }

    /// All directed links, by [`LinkId`].
    #[inline]
    pub fn links(&self) -> &[Link] {
        &self.structure.parts.links
    }

    /// The host with this id.
    #[inline]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts()[id.index()]
    }

    /// The NIC with this id.
    #[inline]
    pub fn nic(&self, id: NicId) -> &Nic {
        &self.nics()[id.index()]
    }

    /// The switch with this id.
    #[inline]
    pub fn switch(&self, id: SwitchId) -> &Switch {
        &self.switches()[id.index()]
    }

    /// The directed link with this id.
    #[inline]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links()[id.index()]
    }

    /// Ids of all NICs and ports of NICs, ascending.
    pub fn nic_ids(&self) -> impl Iterator<Item = NicId> + Clone + use<> {
        (0..self.nics().len()).map(NicId::from)
    }

    /// Ids of all switches, ascending.
    pub fn switch_ids(&self) -> impl Iterator<Item = SwitchId> + Clone + use<> {
        (0..self.switches().len()).map(SwitchId::from)
    }

    /// Ids of all directed links, ascending.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + Clone + use<> {
        (0..self.links().len()).map(LinkId::from)
    }

    /// One link for each cable, ascending: the direction in which a document lists it.
    pub fn cables(&self) -> impl Iterator<Item = LinkId> + Clone + use<> {
        self.link_ids().step_by(2)
    }

    /// Ids of all switches of a tier, ascending.
    pub fn switches_of_tier(&self, tier: Tier) -> impl Iterator<Item = SwitchId> + '_ {
        let of_tier =
            move |(index, switch): (usize, &Switch)| (switch.tier == tier).then(|| index.into());
        self.switches().iter().enumerate().filter_map(of_tier)
    }

    /// Links from a switch to switches of higher tiers, ascending.
    #[inline]
    pub fn up_links(&self, switch: SwitchId) -> &[LinkId] {
        &self.structure.up[switch.index()]
    }

    /// Links from a switch to switches of lower tiers, ascending; not those to hosts.
    pub fn down_links(&self, switch: SwitchId) -> &[LinkId] {
        &self.structure.down[switch.index()]
    }

    /// The switch that a link leads to; `None` for a link to a host.
    #[inline]
    pub fn switch_after(&self, link: LinkId) -> Option<SwitchId> {
        self.link(link).to.node.switch()
    }

    /// The host of that name.
    pub fn host_named(&self, name: &str) -> Option<HostId> {
        self.structure.host_names.get(name).copied()
    }

    /// The switch of that name.
    pub fn switch_named(&self, name: &str) -> Option<SwitchId> {
        self.structure.switch_names.get(name).copied()
    }

    /// The NIC with that address; of one with two ports, the first.
    pub fn nic_with_ip(&self, ip: IpAddr) -> Option<NicId> {
        self.structure.nic_addresses.get(&ip).copied()
    }

    /// The NIC of `host` with that index; of one with two ports, the first.
    pub fn nic_of(&self, host: HostId, index: u32) -> Option<NicId> {
        self.host(host).nics.get(index as usize).copied()
    }

    /// The switch that a NIC, or this port of it, is connected to.
    #[inline]
    pub fn leaf_of(&self, nic: NicId) -> SwitchId {
        self.switch_after(self.nic(nic).uplink).expect("builders connect every NIC to a switch")
    }

    /// Whether the link works and new traffic may use it, and so may both its ends.
    #[inline]
    pub fn is_usable(&self, link: LinkId) -> bool {
        self.usable[link.cable_index()]
    }

    /// Whether the link and the switches at its ends work, drained or not.
    pub fn is_up(&self, link: LinkId) -> bool {
        !self.cables[link.cable_index()].failed
            && self.switch_ends(link).all(|switch| !self.switches[switch.index()].failed)
    }

    /// Whether an operator keeps new traffic off the link or off a switch at its ends.
    pub fn is_drained(&self, link: LinkId) -> bool {
        self.cables[link.cable_index()].drained
            || self.switch_ends(link).any(|switch| self.switches[switch.index()].drained)
    }

    /// Whether the switch itself works.
    pub fn is_switch_up(&self, switch: SwitchId) -> bool {
        !self.switches[switch.index()].failed
    }

    /// Whether an operator keeps new traffic off the switch itself.
    pub fn is_switch_drained(&self, switch: SwitchId) -> bool {
        self.switches[switch.index()].drained
    }

    /// Whether the switch itself works and new traffic may use it.
    pub fn is_switch_usable(&self, switch: SwitchId) -> bool {
        self.is_switch_up(switch) && !self.is_switch_drained(switch)
    }

    /// Whether the cable itself works, whatever the switches at its ends do.
    pub fn is_cable_up(&self, link: LinkId) -> bool {
        !self.cables[link.cable_index()].failed
    }

    /// Whether an operator keeps new traffic off the cable itself.
    pub fn is_cable_drained(&self, link: LinkId) -> bool {
        self.cables[link.cable_index()].drained
    }

    /// The changes that lead from a fabric in which everything works to this one.
    pub fn availability_changes(&self) -> Vec<AvailabilityChange> {
        let link = |cable: usize| LinkId::from(2 * cable);
        let cables = self.cables.iter().enumerate().flat_map(|(cable, is)| {
            let failed = is.failed.then(|| AvailabilityChange::LinkDown(link(cable)));
            let drained = is.drained.then(|| AvailabilityChange::DrainLink(link(cable)));
            failed.into_iter().chain(drained)
        });
        let switches = self.switches.iter().enumerate().flat_map(|(switch, is)| {
            let failed = is.failed.then(|| AvailabilityChange::SwitchDown(switch.into()));
            let drained = is.drained.then(|| AvailabilityChange::DrainSwitch(switch.into()));
            failed.into_iter().chain(drained)
        });
        cables.chain(switches).collect()
    }

    fn switch_ends(&self, link: LinkId) -> impl Iterator<Item = SwitchId> + '_ {
        let Link { from, to, .. } = *self.link(link);
        [from.node, to.node].into_iter().filter_map(FabricNode::switch)
    }
}

impl PartialEq for Fabric {
    fn eq(&self, other: &Self) -> bool {
        let shared = Arc::ptr_eq(&self.structure, &other.structure);
        (shared || self.structure.parts == other.structure.parts)
            && self.cables == other.cables
            && self.switches == other.switches
    }
}

/// The links of each switch to switches whose tier compares so to its own, ascending.
fn links_towards(parts: &FabricParts, direction: Ordering) -> Vec<Vec<LinkId>> {
    let tier = |node: FabricNode| Some(parts.switches[node.switch()?.index()].tier);
    let mut links = vec![Vec::new(); parts.switches.len()];
    for (id, link) in parts.links.iter().enumerate() {
        let Some(from) = link.from.node.switch() else {
            continue;
        };
        if tier(link.to.node).map(|to| to.cmp(&parts.switches[from.index()].tier))
            == Some(direction)
        {
            links[from.index()].push(LinkId::from(id));
        }
    }
    links
}
