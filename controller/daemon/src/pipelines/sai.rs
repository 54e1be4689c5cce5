//! `sai.p4`: from a plan to the tables of switches with SAI P4, a pure function of fabric and plan.
//!
//! No session writes these tables yet; [`fabric`](super::fabric) is the pipeline of all switches.
//! The decision: a pin is a route in a VRF of its ingress port where the leaf has room for one,
//! because routes are plenty, and else a row of the ACL by five-tuple; a flow is pinned at every
//! switch that chooses a path for it or at none. What fits nowhere goes by ECMP, the least intense
//! jobs first, and a finding names it.

mod next_links;
mod pins;
mod port_classes;

use std::collections::BTreeMap;

use p4::entry::{TableEntry, TableId};
use p4::fabric::{IpPrefix, PriorityLevel};
use p4::sai::{self, RouteTarget, Vrf, table};
use p4::{EntryPool, P4Info, SwitchTables};
use planner::Plan;
use topology::{Fabric, Finding, LinkId, SwitchId};

use self::next_links::{LeafLinks, NextLinks};
use self::pins::SwitchPins;
use self::port_classes::PortClasses;

/// The Ethernet address of every switch, towards hosts and towards other switches.
const ROUTER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];

/// How many rows of each kind one switch can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaiBudget {
    /// VRFs beside the default one.
    pub vrfs: usize,
    /// Rows that give packets a VRF or a job.
    pub port_classes: usize,
    /// Pins by five-tuple.
    pub redirects: usize,
    /// Jobs with a level.
    pub job_levels: usize,
    /// Routes of one version of IP, in all VRFs together.
    pub routes: usize,
    /// Groups of next hops.
    pub groups: usize,
    /// Next hops of one group.
    pub group_members: usize,
}

/// The tables of all switches, and what they have no room for.
#[derive(Clone, Debug)]
pub struct LoweredPlan {
    /// The tables by switch.
    pub tables: BTreeMap<SwitchId, SwitchTables>,
    /// Flows that go by ECMP for lack of room, and jobs without a level, by name.
    pub findings: Vec<Finding>,
    /// Positions of these flows in [`Plan::flows`], ascending.
    pub spilled: Vec<usize>,
}

/// A switch cannot hold the routes of a fabric, with no pin at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{switch} needs {needed} {what}; it holds {max}")]
pub struct FabricTooLarge {
    /// Name of the switch.
    pub switch: String,
    /// What it needs.
    pub what: &'static str,
    /// How many.
    pub needed: usize,
    /// How many fit.
    pub max: usize,
}

impl SaiBudget {
    /// The sizes that a program states.
    pub fn from_program(p4info: &P4Info) -> Self {
        let size = |table: TableId| {
            let size = p4info.table(table).map_or(0, |table| table.size);
            usize::try_from(size).unwrap_or(usize::MAX)
        };
        Self {
            vrfs: size(table::VRF),
            port_classes: size(table::ACL_PRE_INGRESS),
            redirects: size(table::ACL_INGRESS),
            job_levels: size(table::ACL_INGRESS_QOS),
            routes: size(table::IPV4).min(size(table::IPV6)),
            groups: size(table::WCMP_GROUP),
            group_members: GROUP_MEMBERS,
        }
    }
}

/// `max_group_size` of the selector of `wcmp_group_table`.
const GROUP_MEMBERS: usize = 512;

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it.
///
/// # Errors
/// A switch cannot hold the routes of the fabric.
pub fn lower_plan(
    fabric: &Fabric,
    plan: &Plan,
    budget: &SaiBudget,
) -> Result<LoweredPlan, FabricTooLarge> {
    let next_links = NextLinks::new(fabric);
    for switch in fabric.switch_ids() {
        check_size(fabric, &next_links, switch, budget)?;
    }
    let (pins, mut spilled) = pins::assign_pins(fabric, plan, &next_links, budget);
    let mut findings = pins::spill_findings(fabric, plan, &spilled);
    spilled.sort_unstable_by_key(|spilled| spilled.flow);
    let mut pool = EntryPool::default();
    let mut tables = BTreeMap::new();
    for switch in fabric.switch_ids() {
        let none = SwitchPins::default();
        let pins = pins.get(&switch).unwrap_or(&none);
        let classes = PortClasses::new(fabric, plan, switch, pins, budget);
        findings.extend(classes.findings(fabric, plan, switch));
        let mut rows = port_rows(fabric, switch);
        rows.push(sai::l3_admit(ROUTER_MAC));
        rows.extend(routes_and_groups(fabric, &next_links, switch, pins));
        rows.extend(pins.rows(fabric));
        rows.extend(classes.rows(plan));
        tables.insert(switch, pool.share_entries(rows.into_iter().map(TableEntry::with_signature)));
    }
    let spilled = spilled.into_iter().map(|spilled| spilled.flow).collect();
    Ok(LoweredPlan { tables, findings, spilled })
}

fn check_size(
    fabric: &Fabric,
    next_links: &NextLinks,
    switch: SwitchId,
    budget: &SaiBudget,
) -> Result<(), FabricTooLarge> {
    let leaves: Vec<LeafLinks<'_>> = next_links.leaves_from(fabric, switch).collect();
    let widest = leaves.iter().map(|seen| seen.spread.len()).max().unwrap_or(0);
    let needs = [
        ("groups of next hops", leaves.len(), budget.groups),
        ("next hops in one group", widest, budget.group_members),
        ("routes", default_routes(fabric, next_links, switch).len(), budget.routes),
    ];
    match needs.into_iter().find(|(_, needed, max)| needed > max) {
        None => Ok(()),
        Some((what, needed, max)) => {
            let switch = fabric.switch(switch).name.clone();
            Err(FabricTooLarge { switch, what, needed, max })
        }
    }
}

/// The next hops of all ports, whether or not they are up: nothing about them ever changes, so no
/// write of another table has to wait for them.
fn port_rows(fabric: &Fabric, switch: SwitchId) -> Vec<TableEntry> {
    let nic_macs: BTreeMap<LinkId, [u8; 6]> = fabric
        .nics_on(switch)
        .map(|nic| (fabric.nic(nic).uplink.reverse(), fabric.nic(nic).mac.0))
        .collect();
    let ports = fabric.switch(switch).ports.iter();
    let rows = ports.flat_map(|(port, link)| {
        let next_mac = nic_macs.get(link).copied().unwrap_or(ROUTER_MAC);
        sai::port_rows(*port, ROUTER_MAC, next_mac)
    });
    rows.collect()
}

/// The groups of a switch, its routes, and a copy of them in each VRF, with those of pins.
fn routes_and_groups(
    fabric: &Fabric,
    next_links: &NextLinks,
    switch: SwitchId,
    pins: &SwitchPins,
) -> Vec<TableEntry> {
    let groups = next_links.leaves_from(fabric, switch).filter_map(|seen| {
        let ports = seen.spread.iter().map(|link| fabric.link(*link).from.port);
        sai::wcmp_group(group_number(seen.leaf), ports)
    });
    let mut rows: Vec<TableEntry> = groups.collect();
    let defaults = default_routes(fabric, next_links, switch);
    let vrfs = pins.vrf_ports().map(Vrf::OfPort);
    for vrf in std::iter::once(Vrf::Default).chain(vrfs) {
        rows.extend(defaults.iter().map(|(prefix, target)| sai::route(vrf, *prefix, *target)));
    }
    // A pin to a NIC whose leaf has a route for it alone replaces that.
    rows.extend(pins.routes(fabric));
    rows
}

/// The routes of a switch without any plan: to its own NICs, and to the leaves that it reaches.
fn default_routes(
    fabric: &Fabric,
    next_links: &NextLinks,
    switch: SwitchId,
) -> BTreeMap<IpPrefix, RouteTarget> {
    let leaves = next_links.leaves_from(fabric, switch).flat_map(|seen| {
        let prefixes = fabric.leaf_prefixes(seen.leaf).into_iter();
        let prefixes =
            prefixes.filter_map(|prefix| IpPrefix::new(prefix.address, prefix.length).ok());
        prefixes.map(move |prefix| (prefix, RouteTarget::Group(group_number(seen.leaf))))
    });
    let own = fabric.nics_on(switch).map(|nic| {
        let nic = fabric.nic(nic);
        let port = fabric.link(nic.uplink.reverse()).from.port;
        (IpPrefix::from(nic.ip), RouteTarget::Port(port))
    });
    leaves.chain(own).collect()
}

/// The number of the group that leads to a leaf, from 1.
fn group_number(leaf: SwitchId) -> u32 {
    u32::try_from(leaf.index()).unwrap_or(u32::MAX - 1) + 1
}

/// A level as the tables have it; plans have no more levels than that.
fn table_level(level: u8) -> Option<PriorityLevel> {
    PriorityLevel::new(level.into()).ok()
}

#[cfg(test)]
mod tests;
