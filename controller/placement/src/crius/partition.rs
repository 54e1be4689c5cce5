//! Partitions of a model into contiguous stages, and the GPUs of each stage (Crius; the pipeline
//! planner of sjtu-epcc/arena).
//!
//! The *fraction* of a layer is its share of the load times the number of GPUs. A stage should get
//! the sum of its fractions and does get a power of two. The L2 distance between the two over all
//! stages is the imbalance of a partition. Partitions that starve a stage are not generated, and
//! only those near the best balance are kept.

use std::ops::Range;

/// A partition that deprives a stage of more than this share of its even part of the GPUs is out.
const LEAST_SHARE: f64 = 0.7;

/// Partitions are kept up to so many times the best imbalance.
const NEAR_BEST: f64 = 10.0;

/// A model cut into contiguous stages, with GPUs for each.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePartition {
    /// The layers of each stage, in order.
    pub stages: Vec<Range<usize>>,
    /// The GPUs of each stage: a power of two.
    pub gpus: Vec<u32>,
    /// L2 distance between the GPUs that stages deserve and those that they get.
    pub imbalance: f64,
}

/// What each layer deserves of `gpus`: its share of the load.
pub fn gpu_fractions(loads: &[f64], gpus: u32) -> Vec<f64> {
    let sum: f64 = loads.iter().sum();
    loads.iter().map(|load| load / sum * f64::from(gpus)).collect()
}

/// The partitions of layers with these fractions into `stages`, the best balanced first.
pub fn balanced_partitions(fractions: &[f64], stages: usize) -> Vec<StagePartition> {
    let gpus: f64 = fractions.iter().sum();
    let shardings = gpu_shardings(gpus.round() as u32, stages);
    let cutter =
        StageCutter { fractions, least: round_to_tenths(LEAST_SHARE * gpus / stages as f64) };
    let mut cuts = Vec::new();
    cutter.collect_cuts(stages, &mut Vec::new(), &mut cuts);
    let mut found: Vec<StagePartition> = cuts
        .into_iter()
        .filter_map(|stages| {
            let deserved: Vec<f64> =
                stages.iter().map(|stage| cutter.fraction_sum(stage)).collect();
            let (gpus, imbalance) = nearest_sharding(&deserved, &shardings)?;
            Some(StagePartition { stages, gpus, imbalance })
        })
        .collect();
    found.sort_by(|a, b| a.imbalance.total_cmp(&b.imbalance));
    let best = found.first().map_or(0.0, |best| best.imbalance);
    found.retain(|partition| partition.imbalance <= NEAR_BEST * best);
    found
}

/// Ways to give `stages` powers of two that sum up to `gpus`, in lexical order.
pub fn gpu_shardings(gpus: u32, stages: usize) -> Vec<Vec<u32>> {
    if stages == 0 {
        return if gpus == 0 { vec![vec![]] } else { vec![] };
    }
    let powers = (0..u32::BITS).map(|power| 1_u32 << power);
    let heads = powers.take_while(|head| *head <= gpus);
    let with_tails = heads.flat_map(|head| {
        let tails = gpu_shardings(gpus - head, stages - 1).into_iter();
        tails.map(move |tail| std::iter::once(head).chain(tail).collect())
    });
    with_tails.collect()
}

/// Cuts layers into contiguous stages that all deserve enough.
struct StageCutter<'a> {
    fractions: &'a [f64],
    /// What a stage must deserve at least, in GPUs.
    least: f64,
}

impl StageCutter<'_> {
    fn fraction_sum(&self, stage: &Range<usize>) -> f64 {
        self.fractions[stage.clone()].iter().sum()
    }

    /// Adds every way to cut what `before` leaves into so many more stages.
    fn collect_cuts(
        &self,
        more: usize,
        before: &mut Vec<Range<usize>>,
        found: &mut Vec<Vec<Range<usize>>>,
    ) {
        let start = before.last().map_or(0, |stage| stage.end);
        let layers = self.fractions.len();
        let ends = match more {
            0 => return,
            1 => layers.max(start + 1)..layers + 1,
            _ => start + 1..layers + 1,
        };
        for end in ends {
            let stage = start..end;
            // Sums of shares that are exact on paper miss the bound by their rounding.
            if self.fraction_sum(&stage) < self.least - 1e-9 {
                continue;
            }
            before.push(stage);
            if more == 1 {
                found.push(before.clone());
            } else {
                self.collect_cuts(more - 1, before, found);
            }
            before.pop();
        }
    }
}

/// The sharding nearest to what stages deserve, the first of equals, and how far it is.
fn nearest_sharding(deserved: &[f64], shardings: &[Vec<u32>]) -> Option<(Vec<u32>, f64)> {
    let measured = shardings.iter().map(|gpus| {
        let pairs = deserved.iter().zip(gpus);
        let squares = pairs.map(|(deserved, gpus)| (deserved - f64::from(*gpus)).powi(2));
        (gpus, squares.sum::<f64>().sqrt())
    });
    let least = measured.min_by(|(_, a), (_, b)| a.total_cmp(b));
    least.map(|(gpus, distance)| (gpus.clone(), distance))
}

fn round_to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stages of every partition and its imbalance.
    fn check(loads: &[f64], gpus: u32, stages: usize, expect: &[(&[Range<usize>], f64)]) {
        let found = balanced_partitions(&gpu_fractions(loads, gpus), stages);
        let found: Vec<_> =
            found.iter().map(|partition| (&partition.stages[..], partition.imbalance)).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert_eq!(found.0, expect.0);
            assert!((found.1 - expect.1).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn a_stage_that_deserves_too_little_is_not_made() {
        assert_eq!(gpu_fractions(&[1.0, 1.0, 2.0, 4.0], 4), [0.5, 0.5, 1.0, 2.0]);
        check(&[1.0, 1.0, 2.0, 4.0], 4, 2, &[(&[0..3, 3..4], 0.0)]);
    }

    #[test]
    fn the_balanced_partition_is_first_and_alone_if_it_is_perfect() {
        let loads = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0];
        check(&loads, 8, 2, &[(&[0..4, 4..6], 0.0)]);
        let fractions = gpu_fractions(&loads, 8);
        let other: Vec<f64> = [0..3, 3..6].map(|stage| fractions[stage].iter().sum()).to_vec();
        let (gpus, imbalance) = nearest_sharding(&other, &gpu_shardings(8, 2)).unwrap();
        assert_eq!(gpus, [4, 4]);
        assert!((imbalance - 2.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn shardings_are_counted() {
        for (gpus, stages, count) in [(4, 2, 1), (8, 2, 1), (8, 3, 3), (8, 4, 13), (16, 1, 1)] {
            assert_eq!(gpu_shardings(gpus, stages).len(), count, "{gpus} {stages}");
        }
    }

    #[test]
    fn more_stages_than_layers_are_no_partition() {
        check(&[1.0, 1.0], 4, 3, &[]);
    }
}
