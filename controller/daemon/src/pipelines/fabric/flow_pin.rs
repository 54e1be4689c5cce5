//! `flow_pin`: the pinned flows whose port is known, at the switches that choose a path for them. A
//! switch with one path needs no pin, except at the leaf where the flow enters, whose pins also
//! name the job.

use std::sync::Arc;

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use p4::entry::{EntryKey, TableEntry};
use p4::fabric::{self, FlowKey, PinPoint, PortNumber};
use planner::PlannedFlow;
use topology::{Fabric, LinkId, SwitchId};

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let leaves = site.reachable_leaves().filter(|seen| site.chooses_path(seen));
    let chosen: BTreeSet<SwitchId> = leaves.map(|seen| seen.leaf.switch).collect();
    let mut rows = Vec::new();
    for (flow, link) in site.passing_flows() {
        if chosen.contains(&site.shared.fabric.leaf_of(flow.dst)) {
            rows.extend(pin_row(site, flow, link));
        }
    }
    rows
}

fn pin_row(site: &SwitchContext<'_>, flow: &PlannedFlow, link: LinkId) -> Option<TableEntry> {
    let path = site.port(link)?.number();
    let job = site.shared.job_number(flow)?;
    let key = flow_key(site.shared.fabric, flow)?;
    fabric::flow_pin(pin_point(site.shared.fabric, flow, site.switch)?, &key, path, job)
}

/// The pin of a flow at the leaf where it enters the fabric, whatever path and job it names.
pub(super) fn entry_pin_key(fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey> {
    let point = pin_point(fabric, flow, fabric.leaf_of(flow.src))?;
    let pin = fabric::flow_pin(point, &flow_key(fabric, flow)?, 0, NonZeroU32::MIN)?;
    Some(Arc::unwrap_or_clone(pin.key))
}

fn flow_key(fabric: &Fabric, flow: &PlannedFlow) -> Option<FlowKey> {
    let [src, dst] = [flow.src, flow.dst].map(|nic| fabric.nic(nic).ip);
    Some(FlowKey::for_roce(src, dst, flow.udp_src_port?))
}

/// Where a switch sees a flow: at the port of its source, or in transit.
fn pin_point(fabric: &Fabric, flow: &PlannedFlow, switch: SwitchId) -> Option<PinPoint> {
    let entry = fabric.link(fabric.nic(flow.src).uplink.reverse()).from;
    if entry.node.switch() != Some(switch) {
        return Some(PinPoint::Transit);
    }
    PortNumber::new(entry.port).ok().map(PinPoint::Edge)
}
