//! Clusters to plan, of any size: pods of 25 leaves with 20 hosts of 8 GPUs and 4 NICs each.

use planner::PlanInput;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::HostId;
use topology::clos::{ClosSpec, build_clos};

use crate::ring_job::ring_job;

/// Where the hosts of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Half leaves in any order, each filled before the next: large jobs cross leaves and pods.
    Packed,
    /// Hosts in any order: every flow crosses the fabric.
    Scattered,
}

/// Hosts of every eight jobs, 12.5 on average: many small ones, few large.
const SIZES: [usize; 8] = [2, 2, 4, 4, 8, 8, 24, 48];

/// Switches above the leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpperTiers {
    /// Spines of each pod.
    pub(crate) spines: u32,
    pub(crate) cores: u32,
}

/// A full cluster of `gpus`: one job for each 100 GPUs, a ring over each of the 4 NICs of its
/// hosts. 100,000 GPUs are 12,500 hosts, 25 pods, 1,000 jobs and 50,000 flows.
pub(crate) fn cluster(gpus: u32, above: UpperTiers, placement: Placement) -> PlanInput {
    let leaves = (gpus / 8).div_ceil(20);
    let spec = ClosSpec {
        leaves: leaves.min(25),
        spines: above.spines,
        pods: leaves.div_ceil(25),
        cores: above.cores,
        planes: true,
        hosts_per_leaf: 20,
        host_links: 4,
        ..ClosSpec::default()
    };
    let fabric = build_clos("bench", &spec).expect("the numbers make a fabric");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let block = match placement {
        Placement::Packed => 10,
        Placement::Scattered => 1,
    };
    let hosts: Vec<u32> = (0..gpus / 8).collect();
    let mut blocks: Vec<&[u32]> = hosts.chunks(block).collect();
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, random.random_range(0..=index));
    }
    let mut hosts = blocks.into_iter().flatten().map(|host| HostId(*host));
    let jobs = (0..gpus as usize / 100).map(|index| {
        let hosts: Vec<HostId> = hosts.by_ref().take(SIZES[index % SIZES.len()]).collect();
        ring_job(&fabric, index, &hosts, &mut random)
    });
    PlanInput { jobs: jobs.collect(), fabric }
}
