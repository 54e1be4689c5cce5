//! `flow_pin`: the pinned flows, at the switches that choose a way for them. Where there is one way
//! only, past the leaf where the flow enters, no pin is needed.

use std::collections::BTreeSet;

use p4::entry::TableEntry;
use p4::fabric::{self, FiveTuple};
use planner::PlannedFlow;
use topology::{LinkId, SwitchId};

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let chosen = site.reachable_leaves().filter(|seen| site.chooses_path(seen));
    let chosen: BTreeSet<SwitchId> = chosen.map(|seen| seen.leaf.switch).collect();
    let is_chosen = |flow: &PlannedFlow| chosen.contains(&site.shared.fabric.leaf_of(flow.dst));
    let flows = site.passing_flows().filter(|(flow, _)| is_chosen(flow));
    flows.filter_map(|(flow, link)| pin_row(site, flow, link)).collect()
}

fn pin_row(site: &SwitchContext<'_>, flow: &PlannedFlow, link: LinkId) -> Option<TableEntry> {
    let [src, dst] = [flow.src, flow.dst].map(|nic| site.shared.fabric.nic(nic).ip);
    let path = site.port(link)?.number();
    let job = site.shared.job_number(flow)?;
    let flow = FiveTuple::for_roce(src, dst, flow.udp_src_port);
    Some(fabric::flow_pin(&flow, path, job))
}
