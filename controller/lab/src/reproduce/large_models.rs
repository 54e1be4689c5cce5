//! The testbed of Crius and a draw of its jobs: large models on 64 GPUs of two kinds (Crius).
//!
//! The trace itself is in sjtu-epcc/arena (branch ae-eurosys, traces/runtime_trace.csv, made from
//! Philly's arrivals and durations by traces/regenerate_rt_trace.py); nothing of it is here but how
//! many jobs came in each half hour, how long they are, and the weights by which it was drawn.

use placement::throughput::ThroughputTable;
use placement::{ClusterHost, GpuCluster, PlacementRequest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Jobs that came in each half hour: 244, in Philly's bursts.
const ARRIVALS: [u32; 12] = [25, 50, 25, 0, 26, 5, 26, 27, 1, 9, 0, 50];
const HALF_HOUR_SECONDS: f64 = 1800.0;

/// How long it was observed: 1,008 samples of 20 s.
pub(super) const END_SECONDS: f64 = 20_160.0;

/// Iterations by quantile: the shortest has 6, half at most 166, and an eighth the most, 500.
const ITERATIONS: [(f64, f64); 7] = [
    (0.0, 6.0),
    (0.1, 35.0),
    (0.25, 98.0),
    (0.5, 166.0),
    (0.75, 331.0),
    (0.88, 500.0),
    (1.0, 500.0),
];

/// Families, their weights, and the sizes and batches that each has, from small to large.
const FAMILIES: [(&str, f64, [&str; 5], [u32; 3]); 3] = [
    ("wide-resnet", 20.0, ["500M", "1B", "2B", "4B", "6.8B"], [256, 512, 1024]),
    ("bert", 30.0, ["760M", "1.3B", "2.6B", "6.7B", "15B"], [128, 256, 512]),
    ("moe", 50.0, ["690M", "1.3B", "2.4B", "10B", "27B"], [256, 512, 1024]),
];
const SIZES: [f64; 5] = [20.0, 20.0, 20.0, 15.0, 10.0];
const BATCHES: [f64; 3] = [50.0, 5.0, 1.0];
const GPUS: [(u32, f64); 5] = [(1, 10.0), (2, 15.0), (4, 20.0), (8, 25.0), (16, 10.0)];

/// Jobs that asked for A40 and for A10.
const KINDS: [f64; 2] = [117.0, 127.0];

/// Sixteen hosts with two A40 each and sixteen with two A10.
pub(super) fn crius_cluster() -> GpuCluster {
    GpuCluster {
        hosts: (0..32)
            .map(|number| ClusterHost { gpus: 2, leaf: number / 8, kind: number / 16 })
            .collect(),
        kinds: ["A40", "A10"].map(str::to_owned).to_vec(),
    }
}

/// The jobs of a seed, `load` times as many as in the trace, each of which runs on what it asks
/// for.
pub(super) fn draw_jobs(seed: u64, load: f64, table: &ThroughputTable) -> Vec<PlacementRequest> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut arrivals = Vec::new();
    for (half_hour, jobs) in ARRIVALS.iter().enumerate() {
        for _ in 0..(f64::from(*jobs) * load).round() as u32 {
            let within = random.random_range(0.0..1.0);
            arrivals.push((half_hour as f64 + within) * HALF_HOUR_SECONDS);
        }
    }
    arrivals.sort_by(f64::total_cmp);
    let jobs = arrivals.into_iter().enumerate();
    jobs.map(|(number, at)| draw_job(number as u32, at, table, &mut random)).collect()
}

fn draw_job(
    number: u32,
    at: f64,
    table: &ThroughputTable,
    random: &mut ChaCha8Rng,
) -> PlacementRequest {
    let (model, batch, kind, gpus, speed) = loop {
        let (family, _, sizes, batches) =
            FAMILIES[draw_index(FAMILIES.map(|family| family.1), random)];
        let size = sizes[draw_index(SIZES, random)];
        let batch = batches[draw_index(BATCHES, random)];
        let (gpus, _) = GPUS[draw_index(GPUS.map(|gpus| gpus.1), random)];
        let kind = draw_index(KINDS, random) as u32;
        let model = format!("{family}-{size}/{batch}");
        let shape = table.best_shape(kind, gpus);
        let speed = shape.and_then(|shape| table.samples_per_second(&model, shape));
        if let Some(speed) = speed {
            break (model, batch, kind, gpus, speed);
        }
    };
    let iterations = iterations_at(random.random_range(0.0..1.0));
    PlacementRequest {
        job: number,
        gpus,
        kind: Some(kind),
        submitted_seconds: at,
        remaining_seconds: iterations * f64::from(batch) / speed,
        remaining_iterations: iterations,
        model: Some(model),
        tenant: None,
    }
}

/// A position, each with its weight.
fn draw_index<const N: usize>(weights: [f64; N], random: &mut ChaCha8Rng) -> usize {
    let mut ticket = random.random_range(0.0..weights.iter().sum());
    let passed = weights.iter().position(|weight| {
        ticket -= weight;
        ticket < 0.0
    });
    passed.unwrap_or(N - 1)
}

/// Iterations of the job at a quantile, whole.
fn iterations_at(share: f64) -> f64 {
    let above = ITERATIONS
        .partition_point(|(quantile, _)| *quantile <= share)
        .clamp(1, ITERATIONS.len() - 1);
    let ((left, least), (right, most)) = (ITERATIONS[above - 1], ITERATIONS[above]);
    (least + (share - left) / (right - left) * (most - least)).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_as_many_and_as_long_as_in_the_trace() {
        let table = ThroughputTable::from_published(&crius_cluster());
        let jobs = draw_jobs(1, 1.0, &table);
        assert_eq!(jobs.len(), 244);
        let mut iterations: Vec<f64> = jobs.iter().map(|job| job.remaining_iterations).collect();
        iterations.sort_by(f64::total_cmp);
        assert!((100.0..240.0).contains(&iterations[122]), "{}", iterations[122]);
        assert!(iterations[0] >= 6.0 && iterations[243] == 500.0);
        assert_eq!(crius_cluster().total_gpus(), 64);
        assert_eq!(
            [iterations_at(0.0), iterations_at(0.5), iterations_at(1.0)],
            [6.0, 166.0, 500.0]
        );
    }
}
