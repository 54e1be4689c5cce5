//! The testbed of Crius and a draw of its jobs: large models on 64 GPUs of two kinds (Crius).
//!
//! The trace itself is in sjtu-epcc/arena (branch ae-eurosys, traces/runtime_trace.csv, made from
//! Philly's arrivals and durations by traces/regenerate_rt_trace.py); nothing of it is here but how
//! many jobs came in each half hour, how long they are, the weights by which it was drawn, and how
//! long Philly's jobs took, of which their deadlines are made.

use std::collections::BTreeMap;

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

/// Seconds that Philly's jobs took, by quantile (`duration` in traces/runtime_trace_raw.csv).
const DURATIONS: [(f64, f64); 11] = [
    (0.0, 1_831.0),
    (0.05, 6_389.0),
    (0.3, 6_554.0),
    (0.4, 9_018.0),
    (0.7, 9_170.0),
    (0.75, 25_003.0),
    (0.8, 25_209.0),
    (0.9, 25_971.0),
    (0.95, 26_046.0),
    (0.99, 76_589.0),
    (1.0, 78_510.0),
];

/// How much of its duration a job has until its deadline: evenly between these.
const DURATION_SHARES: [f64; 2] = [0.5, 1.5];

/// How many jobs have the same rank by duration as by iterations, the others any: the correlation
/// of the ranks in the trace.
const SAME_RANK: f64 = 0.65;

/// Families, their weights, and the sizes and batches that each has, from small to large.
const FAMILIES: [(&str, f64, [&str; 5], [u32; 3]); 3] = [
    ("wide-resnet", 20.0, ["500M", "1B", "2B", "4B", "6.8B"], [256, 512, 1024]),
    ("bert", 30.0, ["760M", "1.3B", "2.6B", "6.7B", "15B"], [128, 256, 512]),
    ("moe", 50.0, ["690M", "1.3B", "2.4B", "10B", "27B"], [256, 512, 1024]),
];
const SIZES: [f64; 5] = [20.0, 20.0, 20.0, 15.0, 10.0];
const BATCHES: [f64; 3] = [50.0, 5.0, 1.0];
const GPUS: [(u32, f64); 5] = [(1, 10.0), (2, 15.0), (4, 20.0), (8, 25.0), (16, 10.0)];

/// Jobs by model in the trace, which is one draw of its generator: family, size and number.
const TRACE_MODELS: [(&str, &str, f64); 13] = [
    ("wide-resnet", "500M", 23.0),
    ("wide-resnet", "1B", 16.0),
    ("wide-resnet", "2B", 9.0),
    ("wide-resnet", "4B", 6.0),
    ("wide-resnet", "6.8B", 4.0),
    ("bert", "760M", 21.0),
    ("bert", "1.3B", 20.0),
    ("bert", "2.6B", 22.0),
    ("bert", "6.7B", 1.0),
    ("moe", "690M", 34.0),
    ("moe", "1.3B", 51.0),
    ("moe", "2.4B", 31.0),
    ("moe", "10B", 6.0),
];

/// Where the models of jobs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelMix {
    /// The weights by which the trace was drawn.
    Generator,
    /// The numbers of jobs that the trace has.
    Trace,
}

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
    draw_mixed_jobs(seed, load, table, ModelMix::Generator)
}

/// The jobs of a seed with models of this mix.
pub(super) fn draw_mixed_jobs(
    seed: u64,
    load: f64,
    table: &ThroughputTable,
    mix: ModelMix,
) -> Vec<PlacementRequest> {
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
    jobs.map(|(number, at)| draw_job((number as u32, at), mix, table, &mut random)).collect()
}

/// Seconds that each job of a seed has from its arrival to its deadline, by job. As in the trace,
/// these come from how long Philly's jobs took, not from how long a job takes here.
pub(super) fn draw_time_budgets(seed: u64, jobs: &[PlacementRequest]) -> BTreeMap<u32, f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // Apart from the stream that draws the jobs.
    random.set_stream(BUDGET_STREAM);
    let mut by_length: Vec<&PlacementRequest> = jobs.iter().collect();
    by_length.sort_by(|one, other| {
        let iterations = one.remaining_iterations.total_cmp(&other.remaining_iterations);
        iterations.then(one.job.cmp(&other.job))
    });
    let budgets = by_length.iter().enumerate().map(|(rank, job)| {
        let own = (rank as f64 + 0.5) / by_length.len() as f64;
        let any = random.random_range(0.0..1.0);
        let share = if random.random_bool(SAME_RANK) { own } else { any };
        let [least, most] = DURATION_SHARES;
        (job.job, value_at(&DURATIONS, share) * random.random_range(least..most))
    });
    budgets.collect()
}

const BUDGET_STREAM: u64 = 1;

fn draw_job(
    (number, at): (u32, f64),
    mix: ModelMix,
    table: &ThroughputTable,
    random: &mut ChaCha8Rng,
) -> PlacementRequest {
    let (model, batch, kind, gpus, speed) = loop {
        let (family, size, batches) = draw_model(mix, random);
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

/// A family, a size, and the batches of the family.
fn draw_model(mix: ModelMix, random: &mut ChaCha8Rng) -> (&'static str, &'static str, [u32; 3]) {
    match mix {
        ModelMix::Generator => {
            let (family, _, sizes, batches) =
                FAMILIES[draw_index(FAMILIES.map(|family| family.1), random)];
            (family, sizes[draw_index(SIZES, random)], batches)
        }
        ModelMix::Trace => {
            let (family, size, _) =
                TRACE_MODELS[draw_index(TRACE_MODELS.map(|model| model.2), random)];
            let known = FAMILIES.iter().find(|known| known.0 == family);
            (family, size, known.expect("its families are those of the generator").3)
        }
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
    value_at(&ITERATIONS, share).round()
}

/// The value at a quantile, linear between those that are given.
fn value_at(quantiles: &[(f64, f64)], share: f64) -> f64 {
    let above =
        quantiles.partition_point(|(quantile, _)| *quantile <= share).clamp(1, quantiles.len() - 1);
    let ((left, least), (right, most)) = (quantiles[above - 1], quantiles[above]);
    least + (share - left) / (right - left) * (most - least)
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
    #[test]
    fn time_budgets_are_those_of_the_trace() {
        let table = ThroughputTable::from_published(&crius_cluster());
        let quantiles = |seed| {
            let jobs = draw_jobs(seed, 1.0, &table);
            let mut budgets: Vec<f64> = draw_time_budgets(seed, &jobs).into_values().collect();
            budgets.sort_by(f64::total_cmp);
            [24, 61, 122, 183, 219].map(|rank: usize| budgets[rank])
        };
        // Deadline less submission in traces/runtime_trace.csv.
        let trace = [4_491.0, 5_927.0, 8_975.0, 16_336.0, 30_188.0];
        for (place, expect) in trace.iter().enumerate() {
            let drawn: f64 = (1..=10).map(|seed| quantiles(seed)[place]).sum::<f64>() / 10.0;
            assert!((drawn / expect - 1.0).abs() < 0.2, "{drawn} {expect}");
        }
    }
}
