//! A fabric on which every host has eight NICs.

use planner::PlanInput;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::HostId;
use topology::clos::{ClosSpec, build_clos};

use crate::ring_job::ring_job;

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
    let mut hosts: Vec<u32> = (0..2_048).collect();
    for index in (1..hosts.len()).rev() {
        hosts.swap(index, random.random_range(0..=index));
    }
    let jobs = hosts.chunks(2_048_usize.div_ceil(200)).enumerate().map(|(index, hosts)| {
        let hosts: Vec<HostId> = hosts.iter().map(|host| HostId(*host)).collect();
        ring_job(&fabric, index, &hosts, &mut random)
    });
    PlanInput { jobs: jobs.collect(), fabric }
}
