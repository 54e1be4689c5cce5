//! `flow_pin`: the pinned flows whose port is known, at the switches that choose a path for them. A
//! switch with one path needs no pin, except at the leaf where the flow enters, whose pins also
//! name the job.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use p4::entry::{EntryKey, TableEntry};
use p4::fabric::{self, FlowKey, PinPoint, PortNumber};
use planner::PlannedFlow;
use topology::{Fabric, NicId, SwitchId};

use super::plan_index::PassingFlow;
use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let flows = site.planned().passing.iter();
    let pinned = flows.filter(|flow| {
        let leaf = site.seen_nic(flow.dst);
        leaf.is_some_and(|leaf| leaf.chooses_path() && leaf.has_path(flow.link))
    });
    let mut of_bonds = BTreeSet::new();
    let rows = pinned.filter_map(|flow| {
        let row = pin_row(site, flow)?;
        // A connection that its host may send from two ports is two flows of the plan, with one key
        // where they meet.
        let has_two = site.shared.fabric.nic(flow.src).bond.is_some();
        (!has_two || of_bonds.insert(Arc::clone(&row.key))).then_some(row)
    });
    rows.collect()
}

fn pin_row(site: &SwitchContext<'_>, flow: &PassingFlow) -> Option<TableEntry> {
    let fabric = site.shared.fabric;
    let path = site.port(flow.link)?.number();
    let key = flow_key(fabric, [flow.src, flow.dst], flow.udp_src_port);
    fabric::flow_pin(pin_point(fabric, flow.src, site.switch)?, &key, path, flow.job)
}

/// The pin of a flow at the leaf where it enters the fabric, whatever path and job it names.
pub(super) fn entry_pin_key(fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey> {
    let point = pin_point(fabric, flow.src, fabric.leaf_of(flow.src))?;
    let key = flow_key(fabric, [flow.src, flow.dst], flow.udp_src_port?);
    let pin = fabric::flow_pin(point, &key, 0, NonZeroU32::MIN)?;
    Some(Arc::unwrap_or_clone(pin.key))
}

fn flow_key(fabric: &Fabric, ends: [NicId; 2], udp_src_port: u16) -> FlowKey {
    let [src, dst] = ends.map(|nic| fabric.nic(nic).ip);
    FlowKey::for_roce(src, dst, udp_src_port)
}

/// Where a switch sees a flow: at the port of its source, or in transit.
fn pin_point(fabric: &Fabric, src: NicId, switch: SwitchId) -> Option<PinPoint> {
    let entry = fabric.link(fabric.nic(src).uplink.reverse()).from;
    if entry.node.switch() != Some(switch) {
        return Some(PinPoint::Transit);
    }
    PortNumber::new(entry.port).ok().map(PinPoint::Edge)
}
