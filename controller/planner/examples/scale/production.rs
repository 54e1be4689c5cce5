//! The two-layer fabric that the Crux paper simulates, 173 leaves and 16 spines, with 40 jobs.

use planner::PlanInput;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::HostId;
use topology::clos::{ClosSpec, build_clos};

use crate::ring_job::ring_job;

/// 40 jobs on 250 hosts of 8 GPUs, 2,000 in all, scattered over a fabric of 173 leaves and 16
/// spines; rings of 4 channels over hosts with 4 NICs.
pub(crate) fn production() -> PlanInput {
    let spec = ClosSpec {
        leaves: 173,
        spines: 16,
        hosts_per_leaf: 2,
        host_links: 4,
        ..ClosSpec::default()
    };
    let fabric = build_clos("bench", &spec).expect("the numbers make a fabric");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut hosts: Vec<u32> = (0..u32::try_from(fabric.hosts().len()).expect("few")).collect();
    for index in (1..hosts.len()).rev() {
        hosts.swap(index, random.random_range(0..=index));
    }
    // Sizes as in a cluster: many small jobs, few large; together 250 hosts.
    let sizes: [usize; 40] = std::array::from_fn(|job| match job {
        0..2 => 36,
        2..6 => 16,
        6..16 => 6,
        16..20 => 3,
        _ => 2,
    });
    let mut hosts = hosts.into_iter();
    let jobs = sizes.iter().enumerate().map(|(index, size)| {
        let hosts: Vec<HostId> = hosts.by_ref().take(*size).map(HostId).collect();
        ring_job(&fabric, index, &hosts, &mut random)
    });
    let jobs = jobs.collect();
    PlanInput { fabric, jobs }
}
