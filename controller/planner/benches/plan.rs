//! Time of a cold plan on a fabric of production size, and of the exact compression by itself.

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use planner::compression::{Problem, compress};
use planner::{Compression, ContentionDag, Edge, Flow, Input, Job, JobId, Policy, Reference, plan};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::clos::{ClosSpec, build};
use topology::{Fabric, HostId};

/// 40 jobs on 250 hosts of 8 GPUs, 2,000 in all, scattered over a fabric of 173 leaves and 16
/// spines; rings of 4 channels over hosts with 4 NICs.
fn production() -> Input {
    let spec = ClosSpec {
        leaves: 173,
        spines: 16,
        hosts_per_leaf: 2,
        host_links: 4,
        ..ClosSpec::default()
    };
    let fabric = build("bench", &spec).expect("the numbers make a fabric");
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
        job(&fabric, index, &hosts, &mut random)
    });
    let jobs = jobs.collect();
    Input { fabric, jobs }
}

fn job(fabric: &Fabric, index: usize, hosts: &[HostId], random: &mut ChaCha8Rng) -> Job {
    let compute_seconds = random.random_range(0.1..2.0);
    let bytes = compute_seconds * random.random_range(2e9..1e10);
    let next = hosts.iter().cycle().skip(1);
    let flows = hosts.iter().zip(next).flat_map(|(src, dst)| {
        (0..4).map(|channel| Flow {
            src: fabric.host(*src).nics[channel],
            dst: fabric.host(*dst).nics[channel],
            bytes,
            udp_src_port: 0xC000 + u16::try_from(index).expect("40 jobs"),
        })
    });
    Job {
        id: JobId::from(format!("job{index:02}").as_str()),
        tenant: None,
        model: None,
        gpus: hosts.iter().map(|host| (*host, 8)).collect(),
        flop_per_iteration: 1.5e14 * compute_seconds * 8.0 * hosts.len() as f64,
        compute_seconds,
        overlap_from: 0.5,
        recent_slowdown: 0.0,
        flows: flows.collect(),
    }
}

/// 500 jobs and 10,000 edges between random pairs.
fn random_dag() -> ContentionDag {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut pairs = std::collections::BTreeSet::new();
    while pairs.len() < 10_000 {
        let (a, b) = (
            random.random_range(0..500_usize),
            random.random_range(0..500_usize),
        );
        if a < b {
            pairs.insert((a, b));
        }
    }
    let intensities: Vec<f64> = (0..500).map(|_| random.random_range(1e13..1e16)).collect();
    let edge = |(above, below): (usize, usize)| Edge {
        above,
        below,
        weight: intensities[above],
    };
    ContentionDag {
        nodes: 500,
        edges: pairs.into_iter().map(edge).collect(),
    }
}

fn benches(criterion: &mut Criterion) {
    let input = production();
    let policy = Policy::default();
    criterion.bench_function("plan, 173 leaves x 16 spines, 40 jobs, cold", |bench| {
        bench.iter(|| plan(black_box(&input), &policy, None));
    });
    let (previous, _) = plan(&input, &policy, None);
    criterion.bench_function("plan, 173 leaves x 16 spines, 40 jobs, again", |bench| {
        bench.iter(|| plan(black_box(&input), &policy, Some(&previous)));
    });
    let contenders = Policy {
        reference: Reference::Contenders,
        ..Policy::default()
    };
    criterion.bench_function(
        "plan, 173 leaves x 16 spines, 40 jobs, contenders",
        |bench| {
            bench.iter(|| plan(black_box(&input), &contenders, None));
        },
    );
    let dag = random_dag();
    let problem = Problem {
        dag: &dag,
        classes: 8,
        present: vec![None; dag.nodes],
    };
    for method in [Compression::Exact, Compression::Sampled] {
        let name = format!("compress 500 jobs, 10,000 edges, 8 classes, {method:?}");
        criterion.bench_function(&name, |bench| {
            bench.iter(|| compress(black_box(&problem), method));
        });
    }
}

criterion_group! {
    name = group;
    config = Criterion::default().sample_size(10);
    targets = benches
}
criterion_main!(group);
