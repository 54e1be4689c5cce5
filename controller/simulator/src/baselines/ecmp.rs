//! ECMP, that is no scheduler: every switch sends a flow by a hash of its five-tuple (RFC 2992),
//! and there is one level.
//!
//! The hash: CRC-32 (IEEE 802.3) of source address, destination address, protocol 17, UDP source
//! port and destination port 4791 (RoCEv2), in network byte order; every switch folds its device id
//! in and finishes as MurmurHash3 does (`fmix64`), so that tiers choose independently of each
//! other; the choice is the remainder by the number of next hops. Switches have hashes of their
//! own; the choice stands for any that spreads evenly.

use std::net::IpAddr;

use planner::{Flow, PlanInput};
use topology::{Fabric, LinkId, SwitchId};

use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// UDP and the port of RoCEv2.
const PROTOCOL: u8 = 17;
const ROCE_V2_PORT: u16 = 4791;

/// Paths by hash, one level.
pub fn schedule_jobs(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    Schedule::from_levels(&vec![0; input.jobs.len()], hash_paths(input, routes))
}

/// The path of every flow by job, as the hash has it; empty where there is none.
pub fn hash_paths(input: &PlanInput, routes: &EqualCostRoutes) -> Vec<Vec<Vec<LinkId>>> {
    let jobs = input.jobs.iter();
    jobs.map(|job| job.flows.iter().map(|flow| hash_path(&input.fabric, routes, flow)).collect())
        .collect()
}

/// Which of `count` equal ways a flow takes at the leaf that it comes from.
pub(super) fn choose_at_leaf(fabric: &Fabric, flow: &Flow, count: usize) -> usize {
    let leaf = fabric.leaf_of(flow.src);
    choose_next_hop(five_tuple_hash(fabric, flow), device_id(fabric, leaf), count)
}

fn hash_path(fabric: &Fabric, routes: &EqualCostRoutes, flow: &Flow) -> Vec<LinkId> {
    let hash = five_tuple_hash(fabric, flow);
    routes.choose_path(flow, |switch, links| {
        links[choose_next_hop(hash, device_id(fabric, switch), links.len())]
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

/// The next hop of `count` that a switch takes for a flow.
fn choose_next_hop(flow_hash: u32, device_id: u64, count: usize) -> usize {
    // The device id goes to the upper half and the CRC to the lower, so that they cannot cancel.
    let mut hash = (device_id << 32) ^ (device_id >> 32) ^ u64::from(flow_hash);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    let spread = (hash ^ (hash >> 33)) % (count.max(1) as u64);
    usize::try_from(spread).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_spread_evenly_and_switches_choose_independently() {
        let mut joint = [[0_u32; 2]; 2];
        for flow in 0..4096_u32 {
            let hash = crc32fast::hash(&flow.to_be_bytes());
            joint[choose_next_hop(hash, 1, 2)][choose_next_hop(hash, 2, 2)] += 1;
        }
        for count in joint.iter().flatten() {
            assert!((924..1124).contains(count), "{joint:?}");
        }
    }
}
