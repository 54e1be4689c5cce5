//! The counters of `fabric.p4`: a direct counter on each pin and each class row, and indexed counters
//! of what leaves by port and level, and of what is refused by port and reason.
//!
//! The attribution of counted bytes to jobs and links is a function of fabric and plan, so it is
//! computed here, beside the modules that write the counting rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::codec::{CounterCell, CounterValue};
use p4::fabric::{self, PORT_LEVEL, PortNumber, PriorityLevel, REFUSED, Refusal};
use planner::Plan;
use topology::{Fabric, FabricNode, LinkId, NicId, SwitchId};

use super::flow_pin::entry_pin_key;
use super::job_classify::adoption_rules::adoption_rows;
use super::job_classify::{class_rows, sent_flows};
use crate::pipeline::{AttributedEntry, PortLevelCell, RefusalCell, RefusalReason};

/// The cells of the port and level counter by port and level; those that counted nothing are left
/// out.
pub fn port_level_counts(
    cells: BTreeMap<u32, CounterValue>,
) -> BTreeMap<(PortNumber, PriorityLevel), CounterValue> {
    let mut counts = BTreeMap::new();
    for (index, count) in cells.into_iter().filter(|(_, count)| *count != CounterValue::default()) {
        let port = PortNumber::new(index >> PriorityLevel::BITS);
        let level = PriorityLevel::new(index & ((1 << PriorityLevel::BITS) - 1));
        if let (Ok(port), Ok(level)) = (port, level) {
            counts.insert((port, level), count);
        }
    }
    counts
}

/// The counting entry of each pinned flow, at the leaf where the flow enters the fabric.
pub(super) fn pin_entries(fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
    let mut entries = Vec::new();
    // Two ports at one leaf share the pins of their connections.
    let mut of_bonds = BTreeSet::new();
    for flow in plan.flows.iter().filter(|flow| flow.pinned) {
        let (arrival_link, key) = (flow.links.last().copied(), entry_pin_key(fabric, flow));
        if let (Some(_), Some(key)) = (arrival_link, key) {
            let switch = fabric.leaf_of(flow.src);
            let has_two = fabric.nic(flow.src).bond.is_some();
            if has_two && !of_bonds.insert((switch, key.clone())) {
                continue;
            }
            entries.push(AttributedEntry { switch, key, job: flow.job, arrival_link });
        }
    }
    entries
}

/// The counting rows of flows without a port, leaf by leaf. A row that several jobs share belongs
/// to none.
pub(super) fn pair_entries(fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
    let sent = sent_flows(fabric, plan);
    let mut entries = Vec::new();
    for (leaf, nics) in nics_by_leaf(fabric) {
        let rows = class_rows(fabric, plan, &sent, &nics).into_iter();
        entries.extend(rows.filter(|row| row.is_for_pair).filter_map(|row| {
            Some(AttributedEntry {
                switch: leaf,
                key: Arc::unwrap_or_clone(row.entry.key),
                job: row.owner?,
                arrival_link: only_arrival_link(fabric, row.to),
            })
        }));
    }
    entries
}

/// The counting rows of the plan's adoption rules, leaf by leaf.
pub(super) fn rule_entries(fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
    if plan.rules.is_empty() {
        return Vec::new();
    }
    let mut entries = Vec::new();
    for (leaf, nics) in nics_by_leaf(fabric) {
        entries.extend(adoption_rows(fabric, plan, &nics).into_iter().map(|row| AttributedEntry {
            switch: leaf,
            key: Arc::unwrap_or_clone(row.entry.key),
            job: row.job,
            arrival_link: row.to.and_then(|nic| only_arrival_link(fabric, nic)),
        }));
    }
    entries
}

/// The link by which all packets to a NIC arrive, if it has one port.
fn only_arrival_link(fabric: &Fabric, nic: NicId) -> Option<LinkId> {
    let nic = fabric.nic(nic);
    nic.bond.is_none().then(|| nic.uplink.reverse())
}

fn nics_by_leaf(fabric: &Fabric) -> BTreeMap<SwitchId, Vec<NicId>> {
    let mut leaves: BTreeMap<SwitchId, Vec<NicId>> = BTreeMap::new();
    for nic in fabric.nic_ids() {
        leaves.entry(fabric.leaf_of(nic)).or_default().push(nic);
    }
    leaves
}

/// The counter cells of all links that leave a switch.
pub(super) fn port_level_cells(fabric: &Fabric, levels: u8) -> Vec<PortLevelCell> {
    let mut cells = Vec::new();
    for link in fabric.link_ids() {
        let from = fabric.link(link).from;
        let (FabricNode::Switch(switch), Ok(port)) = (from.node, PortNumber::new(from.port)) else {
            continue;
        };
        for level in PriorityLevel::all_levels().take(levels.into()) {
            let index = fabric::port_level_index(port, level);
            let cell = CounterCell { counter: PORT_LEVEL, index };
            cells.push(PortLevelCell { switch, cell, link, level: level.number() });
        }
    }
    cells
}

/// The counter cells of all links by which hosts send.
pub(super) fn refusal_cells(fabric: &Fabric) -> Vec<RefusalCell> {
    let mut cells = Vec::new();
    for link in fabric.nic_ids().map(|nic| fabric.nic(nic).uplink) {
        let to = fabric.link(link).to;
        let (FabricNode::Switch(switch), Ok(port)) = (to.node, PortNumber::new(to.port)) else {
            continue;
        };
        for refusal in Refusal::ALL {
            let cell =
                CounterCell { counter: REFUSED, index: fabric::refusal_index(port, refusal) };
            cells.push(RefusalCell { switch, cell, link, reason: reason_of(refusal) });
        }
    }
    cells
}

fn reason_of(refusal: Refusal) -> RefusalReason {
    match refusal {
        Refusal::BadHeader => RefusalReason::BadHeader,
        Refusal::BadChecksum => RefusalReason::BadChecksum,
        Refusal::Martian => RefusalReason::MartianSource,
        Refusal::Foreign => RefusalReason::ForeignSource,
    }
}
