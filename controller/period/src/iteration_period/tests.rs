//! Series whose iterations are known: alike, jittered, stretched by contention, and none at all.

use fluid::{Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::ByteSeries;

/// Iterations of a job: bursts at shares of the iteration, each a length and a weight.
struct Pulses {
    period_seconds: f64,
    bursts: &'static [(f64, f64, f64)],
    /// Relative standard deviation of an iteration's length.
    jitter: f64,
    seed: u64,
}

impl Pulses {
    /// The series of `seconds`, and the mean length of the iterations in it.
    fn series(&self, interval_seconds: f64, seconds: f64) -> (Vec<f64>, f64) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut series = ByteSeries::new(interval_seconds, 1 << 16);
        let (mut start, mut sent, mut iterations) = (0.0, 0.0_f64, 0);
        series.record_counter(0.0, 0);
        while start < seconds {
            // The sum of twelve uniform numbers is close to normal, with deviation 1.
            let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            let length = self.period_seconds * (1.0 + self.jitter * normal).max(0.5);
            for (at, lasts, weight) in self.bursts {
                series.record_counter(start + at * length, sent as u64);
                sent += weight * 1e9 * lasts * self.period_seconds;
                series.record_counter(start + (at + lasts) * length, sent as u64);
            }
            start += length;
            iterations += 1;
            series.record_counter(start, sent as u64);
        }
        (series.interval_bytes(), start / f64::from(iterations))
    }
}

const ONE_BURST: &[(f64, f64, f64)] = &[(0.6, 0.3, 1.0)];
const SHORT_BURST: &[(f64, f64, f64)] = &[(0.9, 0.02, 1.0)];
const TWO_BURSTS: &[(f64, f64, f64)] = &[(0.1, 0.2, 1.0), (0.45, 0.2, 0.5)];
const MOSTLY_SENDING: &[(f64, f64, f64)] = &[(0.05, 0.9, 1.0)];

#[test]
fn equal_iterations_are_found_to_a_thousandth() {
    for bursts in [ONE_BURST, SHORT_BURST, TWO_BURSTS, MOSTLY_SENDING] {
        for period_seconds in [0.1078, 0.1524, 1.53, 3.7] {
            let pulses = Pulses { period_seconds, bursts, jitter: 0.0, seed: 1 };
            let (bytes, _) = pulses.series(0.005, 20.0);
            let found = estimate_period(&bytes, 0.005).expect("iterations repeat");
            let error = (found.seconds / period_seconds - 1.0).abs();
            assert!(error < 1e-3, "{period_seconds} s {bursts:?}: {found:?}");
        }
    }
}

#[test]
fn nothing_repeats() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let noise: Vec<f64> = (0..2000).map(|_| random.random()).collect();
    let ramp: Vec<f64> = (0..2000).map(f64::from).collect();
    let mut once = vec![0.0; 2000];
    once[700..900].fill(1.0);
    for bytes in [vec![], vec![1.0], vec![3.0; 2000], noise, ramp, once] {
        assert_eq!(estimate_period(&bytes, 0.01), None, "{} intervals", bytes.len());
    }
    // Two iterations and a half are too few.
    let pulses = Pulses { period_seconds: 1.0, bursts: ONE_BURST, jitter: 0.0, seed: 1 };
    assert_eq!(estimate_period(&pulses.series(0.01, 2.5).0[..250], 0.01), None);
}

/// GPT and two BERTs of the demo, all through one link of 12.5 GB/s that gets no class above the
/// others, watched by their counters.
#[test]
fn contention_lengthens_iterations_and_the_period_follows() {
    let network = FluidNetwork::new(vec![12.5e9]).expect("the capacity is one");
    let mut engine =
        Engine::new(&network, EngineOptions::default()).expect("the options are the default");
    let job = |compute_seconds: f64, overlap_from: f64, seconds_alone: f64, start: f64| FluidJob {
        compute_seconds,
        overlap_from,
        start,
        flows: vec![FluidFlow::new(vec![0], seconds_alone * 12.5e9)],
        ..FluidJob::default()
    };
    let jobs = [job(1.1, 0.3, 0.7, 0.0), job(0.1, 1.0, 0.0524, 0.01), job(0.1, 1.0, 0.0524, 0.04)];
    for job in &jobs {
        engine.add_job(job).expect("the job is possible");
    }
    let mut series = vec![ByteSeries::new(0.01, 3000); jobs.len()];
    for tick in 1..3000 {
        engine.run_until(f64::from(tick) * 0.01).expect("time passes");
        for (series, tally) in series.iter_mut().zip(engine.tallies().jobs) {
            series.record_counter(engine.now_seconds(), tally.bytes as u64);
        }
    }
    for (series, tally) in series.iter().zip(engine.tallies().jobs) {
        let iteration = tally.mean_iteration_seconds().expect("it iterates");
        let found = series.period().expect("iterations repeat");
        let error = (found.seconds / iteration - 1.0).abs();
        assert!(error < 0.02, "{iteration:.4} s, found {found:?}");
    }
}

proptest! {
    /// 5 % of jitter: within 2 % of the mean iteration of the time that was watched.
    #[test]
    fn jitter_is_averaged_out(
        period_seconds in 0.1..2.0_f64,
        which in 0_usize..4,
        seed in 0_u64..1000,
    ) {
        let bursts = [ONE_BURST, SHORT_BURST, TWO_BURSTS, MOSTLY_SENDING][which];
        let pulses = Pulses { period_seconds, bursts, jitter: 0.05, seed };
        let (bytes, mean_seconds) = pulses.series(0.01, 40.0);
        let found = estimate_period(&bytes, 0.01).expect("iterations repeat");
        let error = (found.seconds / mean_seconds - 1.0).abs();
        prop_assert!(error < 0.02, "{:.4} s, found {:?}", mean_seconds, found);
    }
}

/// The bytes of one iteration are exactly 1,560 shares: rounding alone decides on which side of a
/// share's edge a stop falls, and iterations must resemble each other all the same.
#[test]
fn stops_at_the_edge_of_a_share_count_once() {
    let pulses =
        Pulses { period_seconds: 1.943337975041415, bursts: ONE_BURST, jitter: 0.05, seed: 848 };
    let (bytes, mean_seconds) = pulses.series(0.01, 40.0);
    let found = estimate_period(&bytes, 0.01).expect("iterations repeat");
    let error = (found.seconds / mean_seconds - 1.0).abs();
    assert!(error < 0.02, "{mean_seconds:.4} s, found {found:?}");
}
