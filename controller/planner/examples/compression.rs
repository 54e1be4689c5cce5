//! Exact against sampled compression: weight kept and time, over random contention DAGs.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use std::time::Instant;

use planner::compression::{CompressionProblem, compress_priorities};
use planner::{CompressionMethod, ContentionDag, ContentionEdge};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A DAG of `edges` random pairs, weighed by a random intensity of the job above.
fn dag(nodes: usize, edges: usize, seed: u64) -> ContentionDag {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut pairs = std::collections::BTreeSet::new();
    while pairs.len() < edges {
        let (a, b) = (random.random_range(0..nodes), random.random_range(0..nodes));
        if a < b {
            pairs.insert((a, b));
        }
    }
    let intensities: Vec<f64> = (0..nodes).map(|_| random.random_range(1e13..1e16)).collect();
    let edge = |(above, below): (usize, usize)| ContentionEdge {
        above,
        below,
        weight: intensities[above],
    };
    ContentionDag { nodes, edges: pairs.into_iter().map(edge).collect() }
}

/// Weight that a method cuts, its levels and its milliseconds.
fn measure(
    dag: &ContentionDag,
    levels: u8,
    method: CompressionMethod,
    present: Vec<Option<u8>>,
) -> (f64, Vec<u8>, f64) {
    let problem = CompressionProblem { dag, level_count: levels, current_levels: present };
    let started = Instant::now();
    let found = compress_priorities(&problem, method);
    let took = started.elapsed().as_secs_f64() * 1e3;
    (dag.cut_weight(&found), found, took)
}

/// 1,000 DAGs of 100 jobs: the exact method is never below the sampled one.
fn never_below() {
    let (mut worst, mut sum, mut below) = (1.0_f64, 0.0, 0);
    for seed in 0..1000 {
        let levels = if seed % 2 == 0 { 4 } else { 8 };
        let dag = dag(100, 500 + 40 * (seed as usize % 50), seed);
        let none = vec![None; dag.nodes];
        let (exact, ..) = measure(&dag, levels, CompressionMethod::Exact, none.clone());
        let (sampled, ..) = measure(&dag, levels, CompressionMethod::Sampled, none);
        let share = sampled / exact;
        below += u32::from(share > 1.0 + 1e-12);
        worst = worst.min(share);
        sum += share;
    }
    println!("1,000 DAGs of 100 jobs: exact below sampled in {below}");
    println!("sampled reaches {:.4} of exact on average, {worst:.4} at worst", sum / 1000.0);
}

fn main() {
    never_below();
    for (nodes, edges) in [(500, 10_000), (1000, 20_000), (1000, 100_000), (1000, 400_000)] {
        for seed in 1..=3 {
            let dag = dag(nodes, edges, seed);
            let none = vec![None; nodes];
            let (exact, found, cold) = measure(&dag, 8, CompressionMethod::Exact, none.clone());
            let mut present: Vec<Option<u8>> = found.iter().copied().map(Some).collect();
            present[nodes / 2] = None;
            let (_, again, warm) = measure(&dag, 8, CompressionMethod::Exact, present);
            let moved = again.iter().zip(&found).filter(|(a, b)| a != b).count();
            let (sampled, _, quick) = measure(&dag, 8, CompressionMethod::Sampled, none);
            println!(
                "{nodes} jobs, {edges} edges: exact {cold:.1} ms, with one new job {warm:.1} ms \
                 ({moved} moved), sampled {quick:.1} ms and {:.4} of the weight",
                sampled / exact
            );
        }
    }
}
