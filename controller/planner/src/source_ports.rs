//! UDP source ports for jobs whose hosts are emulated.
//!
//! A real host chooses its ports and nobody may assume them. The hosts of an emulation or a
//! simulation send from the ports that they are given, so these are chosen here, and the jobs
//! announce them. The decision: a port starts from a hash of job and flow and is the next one that
//! is free between the same two NICs, so that the same jobs always get the same ports.

use std::collections::BTreeSet;

use topology::NicId;

use crate::input::{Job, JobId};

/// First and number of the UDP source ports that RoCEv2 senders use for entropy.
const FIRST_PORT: u16 = 0xC000;
const PORTS: u16 = 0x4000;

/// Gives every flow without a port one that is free between its NICs. Flows that find none, after
/// 16,384 others between the same NICs, keep none.
pub fn choose_source_ports(jobs: &mut [Job]) {
    let flows = jobs.iter().flat_map(|job| &job.flows);
    let mut used: BTreeSet<(NicId, NicId, u16)> =
        flows.filter_map(|flow| Some((flow.src, flow.dst, flow.udp_src_port?))).collect();
    for job in jobs {
        for (index, flow) in job.flows.iter_mut().enumerate() {
            if flow.udp_src_port.is_none() {
                let hash = flow_hash(&job.id, index);
                let mut ports = (0..PORTS).map(|step| FIRST_PORT + hash.wrapping_add(step) % PORTS);
                flow.udp_src_port = ports.find(|port| used.insert((flow.src, flow.dst, *port)));
            }
        }
    }
}

/// FNV-1a over the job's id and the flow's index (little-endian), folded to 16 bits.
fn flow_hash(id: &JobId, index: usize) -> u16 {
    let index = (index as u64).to_le_bytes();
    let bytes = id.as_str().bytes().chain(index);
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) as u16 ^ hash as u16
}
