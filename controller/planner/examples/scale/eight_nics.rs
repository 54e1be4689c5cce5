//! A fabric on which every host has eight NICs.

use planner::PlanInput;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use topology::HostId;
use topology::clos::{ClosSpec, build_clos};

use crate::ring_job::ring_job;

const HOSTS: usize = 2_048;
const JOBS: usize = 200;

/// 2,048 hosts with 8 NICs on 128 leaves, 2:1, all busy with 200 jobs of rings over each NIC.
pub(crate) fn eight_nics() -> PlanInput {
    let spec = ClosSpec {
        leaves: 128,
        spines: 16,
        hosts_per_leaf: 16,
        host_links: 8,
        host_gbps: 400.0,
        uplink_gbps: 1_600.0,
        ..ClosSpec::default()
    };
    let fabric = build_clos("bench", &spec).expect("the numbers make a fabric");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut hosts: Vec<HostId> = (0..HOSTS as u32).map(HostId).collect();
    hosts.shuffle(&mut random);
    let jobs = (0..JOBS).map(|index| {
        let hosts = &hosts[index * HOSTS / JOBS..(index + 1) * HOSTS / JOBS];
        ring_job(&fabric, index, hosts, &mut random)
    });
    PlanInput { jobs: jobs.collect(), fabric }
}
