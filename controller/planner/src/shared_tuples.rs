//! Flows that switches cannot tell apart: a connection of a NIC with two ports, sent from the one
//! or the other.
//!
//! Both have one five-tuple, by which a switch that chooses a path knows them. The decision: where
//! their paths meet, the second takes the rest of the first one's, which is as long. Where that
//! ends at another port of the receiver, the second has no pin: hashes lead it to where they meet.

use topology::{LinkId, LinkPath, SwitchId};

use crate::traffic::IndexedTraffic;

/// Joins the paths of flows with one five-tuple where they meet.
pub(crate) fn join_paths(traffic: &IndexedTraffic<'_>, paths: &mut [LinkPath]) {
    for [first, second] in flows_of_one_tuple(traffic) {
        let flows = [first, second].map(|flow| traffic.flows[flow].flow);
        if flows[0].dst == flows[1].dst
            && let Some(joined) = joined_path(traffic, &paths[first], &paths[second])
        {
            paths[second] = joined;
        }
    }
}

/// Takes the pins of flows that switches would send another way.
pub(crate) fn unpin_contradictions(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    pinned: &mut [bool],
) {
    for [first, second] in flows_of_one_tuple(traffic) {
        let differs = joined_path(traffic, &paths[first], &paths[second]).is_some();
        pinned[second] &= !(differs && pinned[first]);
    }
}

/// Flows of one job and one five-tuple from two ports. They stand side by side
/// ([`spread_over_ports`](crate::spread_over_ports)).
fn flows_of_one_tuple<'t>(
    traffic: &'t IndexedTraffic<'_>,
) -> impl Iterator<Item = [usize; 2]> + use<'t> {
    let fabric = traffic.fabric;
    let count = if fabric.has_bonds() { traffic.flows.len().saturating_sub(1) } else { 0 };
    let tuple = move |at: usize| {
        let flow = traffic.flows[at].flow;
        (traffic.flows[at].job, fabric.first_ports([flow.src, flow.dst]), flow.udp_src_port)
    };
    let pairs = (0..count).map(|at| [at, at + 1]);
    pairs.filter(move |[first, second]| {
        let from = [*first, *second].map(|at| traffic.flows[at].flow.src);
        let is_stated = traffic.flows[*first].flow.udp_src_port.is_some();
        is_stated && from[0] != from[1] && tuple(*first) == tuple(*second)
    })
}

/// The second path as far as a switch of the first, and on from there as the first goes, if it went
/// on otherwise.
fn joined_path(
    traffic: &IndexedTraffic<'_>,
    first: &LinkPath,
    second: &LinkPath,
) -> Option<LinkPath> {
    let sender =
        |link: &LinkId| -> Option<SwitchId> { traffic.fabric.link(*link).from.node.switch() };
    let places = second.iter().enumerate().find_map(|(there, link)| {
        let here =
            first.iter().position(|other| sender(other).is_some() && sender(other) == sender(link));
        here.map(|here| (here, there))
    });
    let (here, there) = places?;
    let joined = [&second[..there], &first[here..]].concat();
    LinkPath::new(&joined).filter(|joined| joined != second)
}
