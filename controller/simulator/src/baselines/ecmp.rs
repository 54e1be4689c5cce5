//! ECMP, that is no scheduler: every switch sends a flow by a hash of its five-tuple (RFC 2992),
//! and there is one level.
//!
//! The hash: CRC-32 (IEEE 802.3) of source address, destination address, protocol 17, UDP source
//! port and destination port 4791 (RoCEv2), in network byte order. What a switch makes of that is a
//! [`SwitchHash`].

use std::net::IpAddr;

use planner::{Flow, PlanInput};
use topology::{Fabric, LinkId, SwitchId};

use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;
use crate::switch_hash::SwitchHash;

/// UDP and the port of RoCEv2.
const PROTOCOL: u8 = 17;
const ROCE_V2_PORT: u16 = 4791;

/// Paths by hash, one level.
pub fn schedule_jobs(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    Schedule::from_levels(&vec![0; input.jobs.len()], hash_paths(input, routes))
}

/// The path of every flow by job, as the hash has it; empty without a path.
pub fn hash_paths(input: &PlanInput, routes: &EqualCostRoutes) -> Vec<Vec<Vec<LinkId>>> {
    let jobs = input.jobs.iter();
    jobs.map(|job| job.flows.iter().map(|flow| hash_path(&input.fabric, routes, flow)).collect())
        .collect()
}

/// Which of `count` equal ways a flow takes that chooses once, at the leaf that it comes from.
pub(super) fn choose_at_leaf(fabric: &Fabric, flow: &Flow, count: usize) -> usize {
    let leaf = fabric.leaf_of(flow.src);
    SwitchHash::Independent.choose(five_tuple_hash(fabric, flow), device_id(fabric, leaf), count)
}

fn hash_path(fabric: &Fabric, routes: &EqualCostRoutes, flow: &Flow) -> Vec<LinkId> {
    let hash = five_tuple_hash(fabric, flow);
    routes.choose_path(flow, |switch, links| {
        links[routes.hash().choose(hash, device_id(fabric, switch), links.len())]
    })
}

fn device_id(fabric: &Fabric, switch: SwitchId) -> u64 {
    fabric.switch(switch).device_id
}

fn five_tuple_hash(fabric: &Fabric, flow: &Flow) -> u32 {
    let (src, dst) = (fabric.nic(flow.src).ip, fabric.nic(flow.dst).ip);
    let mut hash = crc32fast::Hasher::new();
    for address in [src, dst] {
        match address {
            IpAddr::V4(address) => hash.update(&address.octets()),
            IpAddr::V6(address) => hash.update(&address.octets()),
        }
    }
    hash.update(&[PROTOCOL]);
    hash.update(&flow.udp_src_port.unwrap_or(0).to_be_bytes());
    hash.update(&ROCE_V2_PORT.to_be_bytes());
    hash.finalize()
}
