//! The attained share of the roofline by family and kind of GPU, and the error of the estimates.
//!
//! Crius times the kernels of a model on one GPU and estimates the rest. Nothing runs here: one
//! published measurement of each family on each kind, the one on the fewest GPUs, replaces these
//! timings. All other measurements evaluate the estimates.

use super::CriusCell;
use super::estimate::CellEstimator;
use super::gpu_kinds::{GPU_KINDS, GpuKind};
use super::layers::{LayeredModel, ModelFamily};
use crate::throughput::{PublishedMeasurement, published_measurements};

/// What is attained, by family and kind: half of what the reference row takes at an efficiency of a
/// half, as a share of what was measured.
#[rustfmt::skip]
const EFFICIENCIES: [(ModelFamily, [f64; GPU_KINDS.len()]); 3] = [
    //                      A100   V100   A40    A10
    (ModelFamily::Bert,       [1.037, 1.092, 1.031, 1.084]),
    (ModelFamily::Experts,    [0.988, 0.927, 0.973, 0.963]),
    (ModelFamily::WideResnet, [1.045, 1.075, 1.032, 1.090]),
];

/// What a family attains of the roofline of a kind.
pub fn kernel_speed(family: ModelFamily, gpu: &GpuKind) -> f64 {
    let kind = GPU_KINDS.iter().position(|known| known.name == gpu.name);
    let row = EFFICIENCIES.iter().find(|(known, _)| *known == family);
    let found = kind.zip(row).map(|(kind, (_, row))| row[kind]);
    found.expect("every family has a row and every kind of `GPUS` a column")
}

/// An estimate beside the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedEstimate {
    /// The published measurement.
    pub measured: PublishedMeasurement,
    /// Seconds of an iteration in the best Cell.
    pub estimated_seconds: f64,
}

impl JudgedEstimate {
    /// By how much the estimate is off, as a share of the measurement.
    pub fn relative_error(&self) -> f64 {
        (self.estimated_seconds / self.measured.iteration_seconds - 1.0).abs()
    }
}

/// The best Cell of every published measurement that has one.
pub fn judge_estimates() -> Vec<JudgedEstimate> {
    published_measurements()
        .filter_map(|measured| {
            let model = LayeredModel::by_name(measured.model)?;
            let gpu = GpuKind::by_name(measured.kind)?;
            let kernel_speed = kernel_speed(model.family, gpu);
            let cells = CriusCell::for_gpus(measured.hosts, measured.gpus_per_host);
            let seconds = cells.filter_map(|cell| {
                let model = &model;
                let setting = CellEstimator { model, gpu, cell, kernel_speed };
                setting.estimate_best_plan().map(|(seconds, _)| seconds)
            });
            let estimated_seconds = seconds.min_by(f64::total_cmp)?;
            Some(JudgedEstimate { measured, estimated_seconds })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_rows_are_met_and_the_rest_is_near() {
        let judged = judge_estimates();
        let mut references = std::collections::BTreeMap::new();
        for judged in &judged {
            let model = LayeredModel::by_name(judged.measured.model).unwrap();
            let gpus = judged.measured.hosts * judged.measured.gpus_per_host;
            let key = (model.family, judged.measured.kind);
            let (fewest, _) = references.entry(key).or_insert((gpus, judged));
            if gpus < *fewest {
                references.insert(key, (gpus, judged));
            }
        }
        assert_eq!(references.len(), EFFICIENCIES.len() * GPU_KINDS.len());
        for (key, (_, judged)) in references {
            assert!(judged.relative_error() < 0.02, "{key:?}: {}", judged.relative_error());
        }
        let errors: f64 = judged.iter().map(JudgedEstimate::relative_error).sum();
        let mean = errors / judged.len() as f64;
        assert!(judged.len() > 300 && mean < 0.25, "{mean}");
    }
}
