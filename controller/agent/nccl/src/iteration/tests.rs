//! Sequences whose iterations are known.

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Operations of one iteration: kind, share of the iteration at which it is queued, bytes.
type IterationPattern<'a> = &'a [(u64, f64, u64)];

struct TrainingTrace<'a> {
    pattern: IterationPattern<'a>,
    seconds: f64,
    /// Relative deviation of the length of an iteration, uniform.
    jitter: f64,
    /// Every so many iterations one more operation of another kind; 0 for never.
    extra_every: usize,
}

impl TrainingTrace<'_> {
    fn history(&self, iterations: usize, seed: u64) -> (Vec<MeasuredOperation>, f64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut at, mut history) = (0.0, Vec::new());
        let mut add = |signature: u64, at: f64, bytes: u64| {
            let number = history.len() as u32;
            history.push(MeasuredOperation { number, signature, at_ns: (at * 1e9) as u64, bytes });
        };
        for iteration in 0..iterations {
            let length = self.seconds * (1.0 + self.jitter * (2.0 * random.random::<f64>() - 1.0));
            for (kind, share, bytes) in self.pattern {
                add(*kind, at + share * length, *bytes);
            }
            at += length;
            if self.extra_every > 0 && iteration % self.extra_every == self.extra_every - 1 {
                add(99, at, 0);
            }
        }
        (history, at / iterations as f64)
    }
}

const ONE: IterationPattern<'_> = &[(1, 0.8, 1_000)];
const BUCKETS: IterationPattern<'_> = &[(1, 0.5, 400), (2, 0.6, 300), (2, 0.7, 300), (3, 0.8, 100)];
const EQUAL_BUCKETS: IterationPattern<'_> =
    &[(1, 0.5, 25), (1, 0.55, 25), (1, 0.6, 25), (1, 0.65, 25)];

fn relative(found: f64, expected: f64) -> f64 {
    (found / expected - 1.0).abs()
}

#[test]
fn iterations_of_known_patterns_are_found() {
    for (pattern, operations) in [(ONE, 1), (BUCKETS, 4), (EQUAL_BUCKETS, 4)] {
        let bytes: u64 = pattern.iter().map(|(.., bytes)| bytes).sum();
        let training = TrainingTrace { pattern, seconds: 0.25, jitter: 0.02, extra_every: 0 };
        let (history, _) = training.history(40, 1);
        let found = find_iteration(&history).expect("it repeats");
        assert_eq!(found.operations, operations, "{pattern:?}");
        assert!(relative(found.seconds, 0.25) < 0.01, "{found:?}");
        assert!(relative(found.bytes, bytes as f64) < 0.001, "{found:?}");
    }
}

/// 40 equal all-reduces of tensor parallelism, evenly spaced but for the optimizer's pause.
#[test]
fn a_pause_separates_iterations_of_many_equal_operations() {
    let pattern: Vec<(u64, f64, u64)> =
        (0..40).map(|index| (1, 0.02 * f64::from(index), 10)).collect();
    let training = TrainingTrace { pattern: &pattern, seconds: 1.0, jitter: 0.01, extra_every: 0 };
    let found = find_iteration(&training.history(20, 1).0).expect("it repeats");
    assert_eq!((found.operations, found.bytes), (40, 400.0));
}

/// A process that twice waits for a processor queues two operations late, and the next ones in
/// time: the four gaps correlate at the distance of the delays by 0.5.
#[test]
fn two_late_operations_are_no_iteration() {
    for distance in 2..16 {
        let training = TrainingTrace { pattern: ONE, seconds: 0.03, jitter: 0.0, extra_every: 0 };
        let (mut history, _) = training.history(66, 1);
        for late in [30, 30 + distance] {
            history[late].at_ns += 8_000_000;
        }
        let found = find_iteration(&history).expect("it repeats");
        assert_eq!(found.operations, 1, "{distance} apart: {found:?}");
    }
}

#[test]
fn an_operation_now_and_then_is_not_part_of_every_iteration() {
    let training = TrainingTrace { pattern: BUCKETS, seconds: 0.5, jitter: 0.01, extra_every: 10 };
    let found = find_iteration(&training.history(55, 1).0).expect("it repeats");
    assert_eq!(found.operations, 4);
    assert!(relative(found.bytes, 1_100.0) < 0.001, "{found:?}");
    assert!(relative(found.seconds, 0.5) < 0.01, "{found:?}");
}

#[test]
fn a_change_of_the_loop_is_followed() {
    let old = TrainingTrace { pattern: ONE, seconds: 0.1, jitter: 0.0, extra_every: 0 };
    let new = TrainingTrace { pattern: BUCKETS, seconds: 0.4, jitter: 0.0, extra_every: 0 };
    let (mut history, _) = old.history(5, 1);
    let later = history.last().unwrap().at_ns;
    history.extend(
        new.history(30, 1)
            .0
            .into_iter()
            .map(|operation| MeasuredOperation { at_ns: operation.at_ns + later, ..operation }),
    );
    let found = find_iteration(&history).expect("it repeats");
    assert_eq!(found.operations, 4);
}

#[test]
fn what_does_not_repeat_has_no_iteration() {
    let all_different: Vec<MeasuredOperation> = (0..100_u32)
        .map(|n| MeasuredOperation {
            number: n,
            signature: u64::from(n),
            at_ns: u64::from(n) * 1_000,
            bytes: 1,
        })
        .collect();
    assert_eq!(find_iteration(&all_different), None);
    assert_eq!(find_iteration(&[]), None);
    let standing_still = vec![MeasuredOperation::default(); 50];
    assert_eq!(find_iteration(&standing_still), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pattern: the period within 1 %, the bytes within 2 %.
    #[test]
    fn period_and_bytes_are_within_the_limits(
        pattern in prop::collection::vec((0_u64..4, 1_u64..1_000), 1..12),
        jitter in 0.0..0.03_f64,
        seconds in 0.01..3.0_f64,
        seed in 0_u64..1000,
    ) {
        let count = pattern.len() as f64;
        let pattern: Vec<(u64, f64, u64)> = pattern
            .iter()
            .enumerate()
            // Equal kinds send equal bytes; a pause follows the last one.
            .map(|(index, (kind, bytes))| {
                let bytes = pattern.iter().find(|(other, _)| other == kind).map_or(*bytes, |o| o.1);
                (*kind, 0.4 + 0.3 * index as f64 / count, bytes)
            })
            .collect();
        let total: u64 = pattern.iter().map(|(.., bytes)| bytes).sum();
        let training = TrainingTrace { pattern: &pattern, seconds, jitter, extra_every: 0 };
        let (history, _) = training.history(80, seed);
        let found = find_iteration(&history).expect("it repeats");
        // Measured against the very iterations that were averaged.
        let last = history.len() - 1 - found.operations;
        let first = last - found.averaged * found.operations;
        let true_iterations = (found.averaged * found.operations) as f64 / count;
        let elapsed = (history[last].at_ns - history[first].at_ns) as f64 / 1e9;
        prop_assert!(relative(found.seconds, elapsed / true_iterations) < 0.01, "{:?}", found);
        prop_assert!(relative(found.bytes, total as f64) < 0.02, "{:?}", found);
    }
}
