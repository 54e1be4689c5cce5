//! What came of many cases, as means, worst cases and distributions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::steps::{CaseResult, PLANNING_STEPS};

/// Width of a bin of the distribution, in the error from the optimum.
const BIN: f64 = 0.001;

/// Differences of the share of the optimum below this are rounding.
const BEATEN: f64 = 1e-9;

/// Bins; errors beyond them are in none.
const BINS: usize = 200;

/// Shares of the optimum that one variant of a step reached.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ShareDistribution {
    /// Mean over all cases, 0..=1.
    pub mean: f64,
    /// Mean over the cases in which decisions matter.
    pub mean_without_trivial: f64,
    /// Smallest share of all cases.
    pub worst: f64,
    /// The case that it is of.
    pub worst_case: u32,
    /// Cases below 95 %.
    pub below_95_percent: usize,
    /// Share of the cases whose error from the optimum is at most n thousandths, by n.
    pub cdf_by_error_permille: Vec<f64>,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DecisionSummary {
    /// Number of cases in the run.
    pub cases: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Cases in which ECMP with one level reaches the optimum too.
    pub trivial: usize,
    /// Cases with more combinations of paths than are tried.
    pub bounded: usize,
    /// Cases in which a scheduler found better than the enumeration, whose rounds keep only the
    /// most promising.
    pub enumeration_beaten: usize,
    /// By how much of the optimum the enumeration fell short there, at most.
    pub enumeration_short_by_at_most: f64,
    /// Mean of the optimal GPU utilisation.
    pub mean_optimum: f64,
    /// Mean of the GPU utilisation of jobs alone.
    pub mean_alone: f64,
    /// By step and variant; `crux` is the product's default.
    pub steps: BTreeMap<String, BTreeMap<String, ShareDistribution>>,
}

impl DecisionSummary {
    /// The summary of `examined`, all of one run; none of no cases.
    pub fn new(seed: u64, examined: &[CaseResult]) -> Option<Self> {
        let count = examined.len();
        let mean =
            |value: fn(&CaseResult) -> f64| examined.iter().map(value).sum::<f64>() / count as f64;
        let short_by = examined.iter().map(|case| 1.0 - case.enumerated / case.optimum);
        let mut steps = BTreeMap::new();
        for (step, of) in PLANNING_STEPS.iter().enumerate() {
            let mut variants = BTreeMap::new();
            for (variant, name) in of.variants.iter().enumerate() {
                let distribution = ShareDistribution::new(examined, step, variant)?;
                variants.insert((*name).to_owned(), distribution);
            }
            steps.insert(of.name.to_owned(), variants);
        }
        Some(Self {
            cases: count,
            seed,
            trivial: examined.iter().filter(|case| case.is_trivial()).count(),
            bounded: examined.iter().filter(|case| case.is_bounded).count(),
            enumeration_beaten: short_by.clone().filter(|short| *short > BEATEN).count(),
            enumeration_short_by_at_most: short_by.fold(0.0, f64::max),
            mean_optimum: mean(|case| case.optimum),
            mean_alone: mean(|case| case.alone),
            steps,
        })
    }
}

/// A run with everything that came of it: the raw results that are kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionReport {
    /// Means, worst cases and distributions.
    pub summary: DecisionSummary,
    /// What the numbers of a row are.
    pub columns: Vec<String>,
    /// A row for each case: its number, the optimal GPU utilisation, and shares of it.
    pub rows: Vec<Vec<f64>>,
}

impl DecisionReport {
    /// The report on `examined`, all of one run; none of no cases.
    pub fn new(seed: u64, examined: &[CaseResult]) -> Option<Self> {
        let of_steps = PLANNING_STEPS.iter().flat_map(|step| {
            step.variants.iter().map(move |variant| format!("{} {variant}", step.name))
        });
        Some(Self {
            summary: DecisionSummary::new(seed, examined)?,
            columns: ["case", "optimum"].map(str::to_owned).into_iter().chain(of_steps).collect(),
            rows: examined
                .iter()
                .map(|case| {
                    let shares = case.optimum_shares().into_iter().flatten();
                    let numbers = [f64::from(case.number), case.optimum].into_iter().chain(shares);
                    numbers.map(|number| (number * 1e5).round() / 1e5).collect()
                })
                .collect(),
        })
    }
}

impl ShareDistribution {
    fn new(examined: &[CaseResult], step: usize, variant: usize) -> Option<Self> {
        let share = |case: &CaseResult| case.utilizations[step][variant] / case.optimum;
        let shares: Vec<f64> = examined.iter().map(share).collect();
        let worst = examined.iter().min_by(|a, b| share(a).total_cmp(&share(b)))?;
        let mattering: Vec<f64> =
            examined.iter().filter(|case| !case.is_trivial()).map(share).collect();
        Some(Self {
            mean: mean_of(&shares)?,
            mean_without_trivial: mean_of(&mattering).unwrap_or(1.0),
            worst: share(worst),
            worst_case: worst.number,
            below_95_percent: shares.iter().filter(|share| **share < 0.95).count(),
            cdf_by_error_permille: (0..BINS)
                .map(|bin| {
                    let error = bin as f64 * BIN;
                    let count =
                        shares.iter().filter(|share| **share >= 1.0 - error - 1e-12).count();
                    count as f64 / shares.len() as f64
                })
                .collect(),
        })
    }
}

fn mean_of(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}
