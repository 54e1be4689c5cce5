//! `flow_pin`: the pinned flows, at the switches that choose a path for them. A switch with one
//! path needs no pin, except at the leaf where the flow enters, whose pins also name the job.

use std::collections::BTreeSet;

use p4::entry::TableEntry;
use p4::fabric::{self, FiveTuple};
use planner::PlannedFlow;
use topology::{LinkId, SwitchId};

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
    let [src, dst] = [flow.src, flow.dst].map(|nic| site.shared.fabric.nic(nic).ip);
    let path = site.port(link)?.number();
    let job = site.shared.job_number(flow)?;
    let flow = FiveTuple::for_roce(src, dst, flow.udp_src_port);
    Some(fabric::flow_pin(&flow, path, job))
}
