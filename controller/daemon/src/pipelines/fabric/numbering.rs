//! A fabric in the terms of its switches' tables: port numbers, leaf ids, prefixes, choices.
//!
//! Built once for a fabric, used by every lowering of a plan onto it. The decision: everything that
//! may not fit a table is checked here, so that lowering itself cannot fail; and everything here is
//! a function of the cabling, not of failures, so the numbers that switches hold stay the same
//! through failures.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use p4::fabric::{IpPrefix, PortNumber};
use topology::{Destination, Fabric, FabricNode, LeafRoutes, LinkId, NicId, SwitchId};

use crate::pipeline::{SwitchReports, WiringError};
use crate::pipelines::switch_routes::without_failures;

/// The groups that the table `ecmp_group` holds.
const ECMP_GROUPS: usize = 1024;
/// The members of all groups together: the size of the action selector `ecmp_selector`.
const ECMP_MEMBERS: usize = 4096;
/// The most equal-cost ports that an `ecmp_group` of `fabric.p4` can have.
const MAX_GROUP: usize = 64;

/// A fabric in the terms of its switches' tables.
#[derive(Clone, Debug)]
pub(crate) struct FabricNumbering {
    /// The switches that run the program.
    switches: BTreeSet<SwitchId>,
    leaves: Vec<LeafWiring>,
    /// The fewest prefixes with the addresses of those of all leaves.
    host_prefixes: Vec<IpPrefix>,
    /// The ways to them while nothing has failed.
    unharmed: LeafRoutes,
    /// The index of a switch in `leaves`, by its id.
    positions: Vec<Option<usize>>,
    /// The port at which a link leaves a switch; `None` for links that leave a host.
    ports: Vec<Option<PortNumber>>,
    salts: Vec<NonZeroU32>,
    /// The leaves that are wired alike, by switch; of those that run the program.
    peers: Vec<LeafPeers>,
    /// How many NICs each switch can have paths of their own to.
    nic_paths: Vec<usize>,
    /// What switches report.
    pub(super) reports: SwitchReports,
}

/// A leaf, or two that NICs share, as the tables of other switches refer to it. Both are "leaves"
/// here: they have positions and numbers alike, those of [`Fabric::destinations`].
#[derive(Clone, Debug)]
pub(super) struct LeafWiring {
    pub(super) destination: Destination,
    /// The NICs, or ports of them, that are connected to the leaf; of two leaves none.
    pub(super) nics: Vec<NicId>,
    /// Prefixes that cover the NICs whose ports are all there, and no others.
    pub(super) prefixes: Vec<IpPrefix>,
}

/// The leaves by how a switch is wired to them, by position and ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct LeafPeers {
    /// Leaves that have the same links while nothing has failed, and are more than these.
    pub(super) shared: Vec<Vec<usize>>,
    /// The others.
    pub(super) single: Vec<usize>,
    /// Whether the tables have room for groups that lack one link.
    pub(super) has_spares: bool,
}

impl FabricNumbering {
    /// The numbering of a fabric of which some switches run `fabric.p4`; it does not depend on
    /// failures and drains.
    ///
    /// # Errors
    /// The tables of `fabric.p4` are too small for it.
    pub(super) fn new(fabric: &Fabric, switches: BTreeSet<SwitchId>) -> Result<Self, WiringError> {
        let fabric = without_failures(fabric);
        let leaves = number_leaves(&fabric)?;
        let unharmed = LeafRoutes::new(&fabric);
        let rooms = fabric.switch_ids().map(|switch| {
            if switches.contains(&switch) {
                check_groups(&fabric, &unharmed, switch)
            } else {
                Ok((LeafPeers::default(), 0))
            }
        });
        let rooms: Vec<(LeafPeers, usize)> = rooms.collect::<Result<_, _>>()?;
        let (peers, nic_paths) = rooms.into_iter().unzip();
        let mut positions = vec![None; fabric.switches().len()];
        for (position, leaf) in leaves.iter().enumerate() {
            if let Some(switch) = leaf.destination.only_leaf() {
                positions[switch.index()] = Some(position);
            }
        }
        let devices = fabric.switches().iter().map(|switch| switch.device_id);
        Ok(Self {
            host_prefixes: IpPrefix::join_all(leaves.iter().flat_map(|leaf| leaf.prefixes.clone())),
            leaves,
            unharmed,
            positions,
            ports: assign_ports(&fabric, &switches)?,
            salts: devices.map(hash_salt).collect(),
            peers,
            nic_paths,
            reports: SwitchReports::default(),
            switches,
        })
    }

    /// The switches whose tables are lowered.
    pub(super) fn switches(&self) -> &BTreeSet<SwitchId> {
        &self.switches
    }

    pub(super) fn leaves(&self) -> &[LeafWiring] {
        &self.leaves
    }

    /// The fewest prefixes with the addresses of those of all leaves.
    pub(super) fn host_prefixes(&self) -> &[IpPrefix] {
        &self.host_prefixes
    }

    /// `switch` as a leaf, if it is one.
    pub(super) fn leaf(&self, switch: SwitchId) -> Option<&LeafWiring> {
        self.position(switch).map(|position| &self.leaves[position])
    }

    /// The position of a leaf in [`FabricNumbering::leaves`].
    pub(super) fn position(&self, leaf: SwitchId) -> Option<usize> {
        self.positions[leaf.index()]
    }

    /// The prefixes of NICs with a port at a leaf.
    pub(super) fn prefixes_at(&self, leaf: SwitchId) -> impl Iterator<Item = IpPrefix> {
        // Each two stand behind all single leaves ([`Fabric::destinations`]).
        let single = self.leaves.partition_point(|leaf| leaf.destination.only_leaf().is_some());
        let pairs = self.leaves[single..].iter();
        let shared = pairs.filter(move |pair| pair.destination.contains(leaf));
        self.leaf(leaf).into_iter().chain(shared).flat_map(|leaf| leaf.prefixes.iter().copied())
    }

    /// The ways to all leaves while nothing has failed.
    pub(super) fn unharmed(&self) -> &LeafRoutes {
        &self.unharmed
    }

    /// The links from a switch to the leaf at a position while nothing has failed, ascending.
    pub(super) fn choices(&self, switch: SwitchId, leaf: usize) -> &[LinkId] {
        self.unharmed.hops(switch, leaf).map_or(&[], |hops| hops.links())
    }

    /// The port at which `link` leaves its switch; `None` if it leaves a host.
    pub(super) fn port(&self, link: LinkId) -> Option<PortNumber> {
        self.ports[link.index()]
    }

    /// How a switch is wired to the leaves.
    pub(super) fn peers(&self, switch: SwitchId) -> &LeafPeers {
        &self.peers[switch.index()]
    }

    /// The number of the leaf at a position, from 1; 0 means no leaf. What a number means at a
    /// switch is said by its [`LeafClasses`](super::leaf_classes::LeafClasses).
    pub(super) fn number(&self, leaf: usize) -> u16 {
        leaf as u16 + 1
    }

    /// The second number of a leaf, after the first ones of all.
    pub(super) fn other_number(&self, leaf: usize) -> u16 {
        self.number(self.leaves.len() + leaf)
    }

    /// The leaf that has a number, as the first or the second of its numbers.
    pub(super) fn numbered(&self, number: u16) -> usize {
        (usize::from(number).saturating_sub(1)) % self.leaves.len().max(1)
    }

    /// The number that stands for one NIC where a switch has a path of its own to it: those after
    /// the leaves' numbers, by the id of the NIC.
    pub(super) fn nic_number(&self, nic: NicId) -> Option<u16> {
        u16::try_from(2 * self.leaves.len() + 1 + nic.index()).ok()
    }

    /// The NIC that a number stands for; `None` for the number of a leaf.
    pub(super) fn nic_numbered(&self, number: u16) -> Option<NicId> {
        usize::from(number).checked_sub(2 * self.leaves.len() + 1).map(NicId::from)
    }

    /// How many NICs a switch can have paths of their own to.
    pub(super) fn nic_paths_max(&self, switch: SwitchId) -> usize {
        self.nic_paths[switch.index()]
    }

    pub(super) fn salt(&self, switch: SwitchId) -> NonZeroU32 {
        self.salts[switch.index()]
    }
}

fn assign_ports(
    fabric: &Fabric,
    switches: &BTreeSet<SwitchId>,
) -> Result<Vec<Option<PortNumber>>, WiringError> {
    let mut ports = Vec::with_capacity(fabric.links().len());
    for link in fabric.links() {
        ports.push(match (link.from.node, PortNumber::new(link.from.port)) {
            (FabricNode::Host(_), _) => None,
            (FabricNode::Switch(switch), _) if !switches.contains(&switch) => None,
            (FabricNode::Switch(_), Ok(port)) if port != PortNumber::CPU => Some(port),
            (FabricNode::Switch(_), _) => {
                return Err(WiringError::PortNumber {
                    port: fabric.endpoint_name(link.from),
                    valid: format!(
                        "ports are 0 to 511, without {}, the controller's",
                        PortNumber::CPU
                    ),
                });
            }
        });
    }
    Ok(ports)
}

fn number_leaves(fabric: &Fabric) -> Result<Vec<LeafWiring>, WiringError> {
    let destinations = fabric.destinations();
    // Each has two numbers.
    if u16::try_from(2 * destinations.len()).is_err() {
        return Err(WiringError::TooManyLeaves(destinations.len()));
    }
    let leaves = destinations.iter().map(|&destination| {
        let prefixes = fabric.prefixes_of(destination).into_iter();
        let nics = destination.only_leaf().map(|leaf| fabric.nics_on(leaf).collect());
        LeafWiring {
            destination,
            prefixes: prefixes
                .filter_map(|prefix| IpPrefix::new(prefix.address, prefix.length).ok())
                .collect(),
            nics: nics.unwrap_or_default(),
        }
    });
    Ok(leaves.collect())
}

/// Checks the groups of a switch, of which failures may leave each leaf one of its own: how it is
/// wired to the leaves, and how many groups of single NICs fit beside these.
fn check_groups(
    fabric: &Fabric,
    unharmed: &LeafRoutes,
    switch: SwitchId,
) -> Result<(LeafPeers, usize), WiringError> {
    let name = || fabric.switch(switch).name.clone();
    let leaves = unharmed.destinations().len();
    let links = |leaf| unharmed.hops(switch, leaf).map_or(&[][..], |hops| hops.links());
    let widths = || (0..leaves).map(|leaf| links(leaf).len());
    let (ports, mut members) = (widths().max().unwrap_or(0), widths().sum());
    if ports > MAX_GROUP {
        return Err(WiringError::GroupTooLarge { switch: name(), ports, max: MAX_GROUP });
    }
    if members > ECMP_MEMBERS {
        return Err(WiringError::TooManyMembers { switch: name(), members, max: ECMP_MEMBERS });
    }
    let mut peers = LeafPeers::default();
    let mut by_links: BTreeMap<&[LinkId], Vec<usize>> = BTreeMap::new();
    (0..leaves).for_each(|leaf| by_links.entry(links(leaf)).or_default().push(leaf));
    for (links, alike) in by_links {
        if alike.len() > links.len() && !links.is_empty() {
            peers.shared.push(alike);
        } else {
            peers.single.extend(alike);
        }
    }
    let mut groups = leaves;
    let spares: Vec<usize> = peers.shared.iter().map(|alike| links(alike[0]).len()).collect();
    let with_spares = [
        groups + spares.iter().sum::<usize>(),
        members + spares.iter().map(|width| width * (width - 1)).sum::<usize>(),
    ];
    peers.has_spares = with_spares[0] <= ECMP_GROUPS && with_spares[1] <= ECMP_MEMBERS;
    if peers.has_spares {
        [groups, members] = with_spares;
    }
    let room = ECMP_GROUPS.saturating_sub(groups);
    Ok((peers, room.min((ECMP_MEMBERS - members) / ports.max(1))))
}

/// A number that differs between switches and never changes for one: the finalizer of MurmurHash3,
/// which lets neighbouring device ids share no pattern.
fn hash_salt(device_id: u64) -> NonZeroU32 {
    let mut hash = device_id;
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    NonZeroU32::new((hash ^ hash >> 33) as u32).unwrap_or(NonZeroU32::MIN)
}
