//! Pins: the flows whose paths become table entries, those with a choice, as far as tables have
//! room.
//!
//! A pin is an entry at every switch of the path with several next hops; a flow is pinned only if
//! all of them have room.

use std::collections::BTreeMap;

use topology::{Finding, LinkPath, SwitchId};

use crate::policy::Policy;
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// Whether each flow is pinned. Where a switch has more flows to pin than room, those of the least
/// intense jobs are left to ECMP. `order` is the jobs by descending intensity, and `paths` those of
/// the flows.
pub(crate) fn assign_pins(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    order: &[usize],
    policy: &Policy,
) -> Vec<bool> {
    let mut pinned = vec![false; traffic.flows.len()];
    let mut room = vec![policy.max_pins_per_switch; traffic.fabric.switches().len()];
    let has_room_everywhere = has_room_for_all(traffic, paths, policy);
    for job in order {
        for flow in flows_to_pin(traffic, *job, policy) {
            let flow = traffic.spans[*job].start + flow;
            let (routable, path) = (&traffic.flows[flow], &paths[flow]);
            let has_room = has_room_everywhere
                || choosing_switches(traffic, routable, path).all(|at| room[at.index()] > 0);
            if has_room && !has_room_everywhere {
                choosing_switches(traffic, routable, path).for_each(|at| room[at.index()] -= 1);
            }
            pinned[flow] = has_room;
        }
    }
    pinned
}

/// Whether no switch has more flows passing than pins: the usual case, without counting further.
fn has_room_for_all(traffic: &IndexedTraffic<'_>, paths: &[LinkPath], policy: &Policy) -> bool {
    let mut passing = vec![0_usize; traffic.fabric.switches().len()];
    for link in paths.iter().flat_map(|path| path.without_host_links()) {
        if let Some(switch) = traffic.tables.sender(*link) {
            passing[switch.index()] += 1;
        }
    }
    passing.iter().all(|count| *count <= policy.max_pins_per_switch)
}

/// A finding for each leaf with flows that were not pinned for lack of room.
pub(crate) fn pin_findings(
    traffic: &IndexedTraffic<'_>,
    pinned: &[bool],
    policy: &Policy,
) -> Vec<Finding> {
    let mut spilled: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for job in 0..traffic.jobs.len() {
        let start = traffic.spans[job].start;
        for flow in flows_to_pin(traffic, job, policy).filter(|flow| !pinned[start + flow]) {
            let leaf = traffic.leaf_pair(&traffic.flows[start + flow]).ends.from;
            *spilled.entry(leaf).or_default() += 1;
        }
    }
    spilled
        .into_iter()
        .map(|(leaf, count)| {
            let about = traffic.fabric.switch(leaf).name.clone();
            let budget = policy.max_pins_per_switch;
            let text = format!(
                "{count} flows of the least intense jobs are left to ECMP: {budget} pins at most"
            );
            Finding::warning(about, text)
        })
        .collect()
}

/// Flows of a job with a choice, if policy does not exempt it.
fn flows_to_pin<'t>(
    traffic: &'t IndexedTraffic<'_>,
    job: usize,
    policy: &Policy,
) -> impl Iterator<Item = usize> + use<'t> {
    let rule = policy.override_for(traffic.jobs[job]);
    let is_exempt = rule.is_some_and(|rule| rule.exempt);
    let routes = &traffic.routes[job];
    let flows = if is_exempt { 0 } else { routes.flows.len() };
    (0..flows).filter(move |flow: &usize| {
        let route = &routes.flows[*flow];
        route.has_path && (route.has_two_ends || routes.pairs[route.pair].has_choice)
    })
}

/// The switches on a path with several next hops.
fn choosing_switches<'p>(
    traffic: &'p IndexedTraffic<'_>,
    flow: &'p RoutableFlow<'_>,
    path: &'p LinkPath,
) -> impl Iterator<Item = SwitchId> + 'p {
    let to = traffic.leaf_pair(flow).ends.to;
    let links = path.without_host_links().iter();
    let switches = links.filter_map(|link| traffic.tables.sender(*link));
    switches.filter(move |switch| flow.has_two_ends || traffic.tables.has_choice(*switch, to))
}
