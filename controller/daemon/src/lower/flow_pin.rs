//! `flow_pin`: the pinned flows, at the switches that choose a way for them. Where there is one way
//! only, past the leaf where the flow enters, no pin is needed.

use std::collections::BTreeSet;

use p4::entry::TableEntry;
use p4::fabric::{self, Flow};
use planner::PlannedFlow;
use topology::{LinkId, SwitchId};

use super::site::Site;

pub(super) fn entries(site: &Site<'_>) -> Vec<TableEntry> {
    let chosen = site.reachable().filter(|seen| site.chooses(seen));
    let chosen: BTreeSet<SwitchId> = chosen.map(|seen| seen.leaf.switch).collect();
    let is_chosen = |flow: &PlannedFlow| chosen.contains(&site.all.fabric.leaf_of(flow.dst));
    let flows = site.passing_flows().filter(|(flow, _)| is_chosen(flow));
    flows
        .filter_map(|(flow, link)| row(site, flow, link))
        .collect()
}

fn row(site: &Site<'_>, flow: &PlannedFlow, link: LinkId) -> Option<TableEntry> {
    let [src, dst] = [flow.src, flow.dst].map(|nic| site.all.fabric.nic(nic).ip);
    let path = site.port(link)?.number();
    let job = site.all.job_number(flow)?;
    let flow = Flow::roce(src, dst, flow.udp_src_port);
    Some(fabric::flow_pin(&flow, path, job))
}
