//! Flows of NICs with two ports under one address, as flows between ports.
//!
//! A host spreads its connections over the ports of a NIC by a hash that nobody else knows. So a
//! flow from such a NIC becomes one from each port that works, each with an equal share of its
//! bytes: what is expected of many connections, and of a single one only in the mean. The decision
//! is the other end: switches choose the port at which a flow arrives, and this module chooses it
//! for them.
//!
//! * Of the ports that may be used, those nearest to the sending port count: routes lead nowhere
//!   else, and a leaf with a cable to both hosts sends directly.
//! * Of these, a flow takes the one with the fewest bytes of its job so far. A stated connection
//!   has one such port, whichever port it is sent from: a spine knows it by its five-tuple, and
//!   sends all of it one way.
//!
//! The result depends on job and fabric alone, and spreading it again, on the fabric after another
//! failure, is as good as spreading the first flows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use topology::{Fabric, NextHops, NicId, SwitchId, next_hops};

use crate::input::{Flow, FlowGpus, Job};

/// `jobs` with a flow from each port that works, where a NIC has two; jobs that were spread before
/// are spread anew.
pub fn spread_over_ports(fabric: &Fabric, jobs: Vec<Job>) -> Vec<Job> {
    if !fabric.has_bonds() {
        return jobs;
    }
    let mut spread = PortSpread { fabric, hops: BTreeMap::new() };
    let joined = join_ports(fabric, jobs).into_iter();
    joined.map(|job| Job { flows: spread.spread_flows(&job.flows), ..job }).collect()
}

/// The jobs that were spread over the ports of NICs: flows between addresses.
pub fn join_ports(fabric: &Fabric, jobs: Vec<Job>) -> Vec<Job> {
    if !fabric.has_bonds() {
        return jobs;
    }
    let joined = jobs.into_iter().map(|job| Job { flows: join_flows(fabric, &job.flows), ..job });
    joined.collect()
}

/// These flows, those of ports that have failed from and to the other port of their NIC: for those
/// who follow flows through failures one by one.
pub fn move_to_working_ports<'j>(fabric: &Fabric, jobs: &'j [Job]) -> Cow<'j, [Job]> {
    if !fabric.has_bonds() {
        return jobs.into();
    }
    let works = |port: &NicId| fabric.is_up(fabric.nic(*port).uplink);
    let moved = |port: NicId| {
        let other = fabric.nic(port).bond.filter(works);
        other.filter(|_| !works(&port)).unwrap_or(port)
    };
    let move_flow =
        |flow: &Flow| Flow { src: moved(flow.src), dst: moved(flow.dst), ..flow.clone() };
    let jobs = jobs.iter();
    jobs.map(|job| Job { flows: job.flows.iter().map(move_flow).collect(), ..job.clone() })
        .collect()
}

/// The flows from the ports of one NIC stand side by side, in the order of the ports.
fn join_flows(fabric: &Fabric, flows: &[Flow]) -> Vec<Flow> {
    let mut joined: Vec<Flow> = Vec::with_capacity(flows.len());
    let mut before: Option<(NicId, AddressedFlow)> = None;
    for flow in flows {
        let key = AddressedFlow::of(fabric, flow);
        match (&before, joined.last_mut()) {
            (Some((port, same)), Some(last)) if *port < flow.src && *same == key => {
                last.bytes += flow.bytes;
            }
            _ => joined.push(Flow { src: key.src, dst: key.dst, ..flow.clone() }),
        }
        before = Some((flow.src, key));
    }
    joined
}

/// A flow between addresses.
#[derive(Clone, Copy, PartialEq)]
struct AddressedFlow {
    src: NicId,
    dst: NicId,
    udp_src_port: Option<u16>,
    gpus: FlowGpus,
    overlap_from: Option<f64>,
}

impl AddressedFlow {
    fn of(fabric: &Fabric, flow: &Flow) -> Self {
        let [src, dst] = fabric.first_ports([flow.src, flow.dst]);
        let Flow { udp_src_port, gpus, overlap_from, .. } = *flow;
        Self { src, dst, udp_src_port, gpus, overlap_from }
    }
}

struct PortSpread<'a> {
    fabric: &'a Fabric,
    /// The ways to the leaves asked for so far.
    hops: BTreeMap<SwitchId, NextHops>,
}

impl PortSpread<'_> {
    fn spread_flows(&mut self, flows: &[Flow]) -> Vec<Flow> {
        let has_two = |nic: NicId| self.fabric.nic(nic).bond.is_some();
        let has_bond = |flow: &Flow| has_two(flow.src) || has_two(flow.dst);
        let mut bytes_to: BTreeMap<NicId, f64> = BTreeMap::new();
        let mut spread = Vec::with_capacity(flows.len());
        for flow in flows {
            if has_bond(flow) {
                self.spread_flow(flow, &mut bytes_to, &mut spread);
            } else {
                spread.push(flow.clone());
            }
        }
        spread
    }

    fn spread_flow(
        &mut self,
        flow: &Flow,
        bytes_to: &mut BTreeMap<NicId, f64>,
        spread: &mut Vec<Flow>,
    ) {
        let from = sending_ports(self.fabric, flow.src);
        let bytes = flow.bytes / from.len() as f64;
        let mut arrivals: Vec<NicId> = self.fabric.ports_of(flow.dst).collect();
        for (place, src) in from.iter().enumerate() {
            if place == 0 || flow.udp_src_port.is_none() {
                let turn = place + usize::from(flow.udp_src_port.unwrap_or(0));
                let so_far = |port: &NicId| bytes_to.get(port).copied().unwrap_or(0.0);
                let count = arrivals.len();
                arrivals.sort_unstable();
                arrivals.rotate_left(turn % count);
                arrivals.sort_by(|a, b| so_far(a).total_cmp(&so_far(b)));
            }
            let nearest = self.nearest_ports(*src, flow.dst);
            let dst = arrivals.iter().copied().find(|port| nearest.contains(port));
            let dst = dst.unwrap_or(flow.dst);
            *bytes_to.entry(dst).or_default() += bytes;
            spread.push(Flow { src: *src, dst, bytes, ..flow.clone() });
        }
    }

    /// The ports of the receiver at which packets of a port may arrive, those that are nearest. A
    /// leaf with a port of its own sends by that, even while it is drained.
    fn nearest_ports(&mut self, src: NicId, dst: NicId) -> Vec<NicId> {
        let fabric = self.fabric;
        let from = fabric.leaf_of(src);
        if let Some(own) = fabric.arrival_port(from, dst) {
            return vec![own];
        }
        let leaves = fabric.arrival_leaves(dst).leaves();
        let ports = leaves.filter_map(|leaf| fabric.arrival_port(leaf, dst));
        let usable = ports.filter(|port| fabric.is_usable(fabric.nic(*port).uplink));
        let reached: Vec<(u32, NicId)> = usable
            .filter_map(|port| {
                let leaf = fabric.leaf_of(port);
                let hops = self.hops.entry(leaf).or_insert_with(|| next_hops(fabric, leaf));
                Some((hops.distance(from)?, port))
            })
            .collect();
        let least = reached.iter().map(|(distance, _)| *distance).min();
        let nearest = reached.into_iter().filter(|(distance, _)| Some(*distance) == least);
        nearest.map(|(_, port)| port).collect()
    }
}

/// The ports by which a host sends from a NIC: those that may be used; those that work where none
/// may; the first where none works.
fn sending_ports(fabric: &Fabric, nic: NicId) -> Vec<NicId> {
    let ports = |is_kept: &dyn Fn(NicId) -> bool| -> Vec<NicId> {
        fabric.ports_of(nic).filter(|port| is_kept(*port)).collect()
    };
    let usable = ports(&|port| fabric.is_usable(fabric.nic(port).uplink));
    let working = ports(&|port| fabric.is_up(fabric.nic(port).uplink));
    let first = vec![fabric.first_port(nic)];
    [usable, working, first].into_iter().find(|ports| !ports.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};
    use topology::{AvailabilityChange, HostId};

    use super::*;

    fn dual() -> Fabric {
        let spec = ClosSpec { ports_per_nic: 2, ..ClosSpec::default() };
        build_clos("dual", &spec).unwrap()
    }

    /// A job with flows between the NICs of hosts.
    fn job(fabric: &Fabric, flows: &[(&str, &str, Option<u16>)]) -> Job {
        let nic = |host: &str| fabric.host(fabric.host_named(host).unwrap()).nics[0];
        let flow = |(src, dst, udp_src_port): &(&str, &str, Option<u16>)| Flow {
            src: nic(src),
            dst: nic(dst),
            bytes: 8e9,
            udp_src_port: *udp_src_port,
            gpus: FlowGpus::default(),
            overlap_from: None,
        };
        Job::for_test("job", (HostId(0), 1), flows.iter().map(flow).collect())
    }

    /// `h1>leaf1 leaf3>h7 bytes` of every flow.
    fn shown(fabric: &Fabric, jobs: &[Job]) -> Vec<String> {
        let leaf = |nic| &fabric.switch(fabric.leaf_of(nic)).name;
        let flows = jobs.iter().flat_map(|job| &job.flows);
        let shown = flows
            .map(|flow| format!("{} {} {:.0}", leaf(flow.src), leaf(flow.dst), flow.bytes / 1e9));
        shown.collect()
    }

    #[test]
    fn a_connection_has_a_share_of_each_port_up_and_one_port_down() {
        let fabric = dual();
        let stated = job(&fabric, &[("h1", "h7", Some(50_000)), ("h1", "h7", Some(50_001))]);
        let spread = spread_over_ports(&fabric, vec![stated.clone()]);
        let expected = ["leaf1 leaf3 4", "leaf2 leaf3 4", "leaf1 leaf4 4", "leaf2 leaf4 4"];
        assert_eq!(shown(&fabric, &spread), expected);
        // Many connections without a port use both.
        let unstated = job(&fabric, &[("h1", "h7", None), ("h2", "h7", None)]);
        let spread = spread_over_ports(&fabric, vec![unstated]);
        let expected = ["leaf1 leaf3 4", "leaf2 leaf4 4", "leaf1 leaf3 4", "leaf2 leaf4 4"];
        assert_eq!(shown(&fabric, &spread), expected);
        // A leaf of both hosts sends directly.
        let near = spread_over_ports(&fabric, vec![job(&fabric, &[("h1", "h5", Some(50_000))])]);
        assert_eq!(shown(&fabric, &near), ["leaf1 leaf1 4", "leaf2 leaf2 4"]);
        assert_eq!(join_ports(&fabric, spread_over_ports(&fabric, vec![stated.clone()])), [stated]);
    }

    #[test]
    fn what_is_spread_is_spread_again_after_a_failure() {
        let fabric = dual();
        let first = vec![job(&fabric, &[("h1", "h7", Some(50_000)), ("h7", "h1", None)])];
        let spread = spread_over_ports(&fabric, first.clone());
        let cut = fabric.links_named("h1-leaf1")[0];
        let failed = fabric.with_changes([AvailabilityChange::LinkDown(cut)]);
        let again = spread_over_ports(&failed, spread.clone());
        assert_eq!(shown(&failed, &again), ["leaf2 leaf3 8", "leaf3 leaf2 4", "leaf4 leaf2 4"]);
        assert_eq!(again, spread_over_ports(&failed, first));
        assert_eq!(spread_over_ports(&fabric, again), spread);
    }

    #[test]
    fn flows_of_a_port_that_failed_move_to_the_other() {
        let fabric = dual();
        let spread = spread_over_ports(&fabric, vec![job(&fabric, &[("h1", "h7", Some(50_000))])]);
        let cut = ["h1-leaf1", "h7-leaf3"].map(|name| fabric.links_named(name)[0]);
        let failed = fabric.with_changes(cut.map(AvailabilityChange::LinkDown));
        let moved = move_to_working_ports(&failed, &spread);
        assert_eq!(shown(&failed, &moved), ["leaf2 leaf4 4", "leaf2 leaf4 4"]);
        assert_eq!(*move_to_working_ports(&fabric, &spread), spread);
    }

    #[test]
    fn a_fabric_without_bonds_has_the_flows_that_it_had() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let jobs = vec![job(&fabric, &[("h1", "h7", None), ("h1", "h7", None)])];
        assert_eq!(spread_over_ports(&fabric, jobs.clone()), jobs);
        assert_eq!(join_ports(&fabric, jobs.clone()), jobs);
    }
}
