//! What is attained of the roofline, by family and kind of GPU, and how far estimates are off.
//!
//! Crius times the kernels of a model on one GPU and estimates the rest (Crius). Nothing is
//! run here: one published measurement of each family on each kind, the one on fewest GPUs, stands
//! for what it would have timed. All other measurements then judge the estimates.

use super::Cell;
use super::estimate::Setting;
use super::gpus::{GPUS, Gpu};
use super::layers::{Family, LayeredModel};
use crate::placement::throughput::{Measurement, measurements};

/// What is attained, by family and kind: half of what the reference row takes at an efficiency of a
/// half, as a share of what was measured.
#[rustfmt::skip]
const EFFICIENCIES: [(Family, [f64; GPUS.len()]); 3] = [
    //                      A100   V100   A40    A10
    (Family::Bert,       [0.427, 0.527, 0.434, 0.394]),
    (Family::Experts,    [0.352, 0.411, 0.345, 0.321]),
    (Family::WideResnet, [0.076, 0.479, 0.137, 0.106]),
];

/// What a family attains of the roofline of a kind.
pub fn efficiency(family: Family, gpu: &Gpu) -> f64 {
    let kind = GPUS.iter().position(|known| known.name == gpu.name);
    let row = EFFICIENCIES.iter().find(|(known, _)| *known == family);
    let found = kind.zip(row).map(|(kind, (_, row))| row[kind]);
    found.expect("every family has a row and every kind of `GPUS` a column")
}

/// An estimate beside the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The measurement.
    pub measured: Measurement,
    /// Seconds of an iteration in the best Cell.
    pub estimated_seconds: f64,
}

impl Judged {
    /// By how much the estimate is off, as a share of the measurement.
    pub fn error(&self) -> f64 {
        (self.estimated_seconds / self.measured.iteration_seconds - 1.0).abs()
    }
}

/// The best Cell of every published measurement that has one.
pub fn judged() -> Vec<Judged> {
    let judged = |measured: Measurement| {
        let model = LayeredModel::named(measured.model)?;
        let gpu = Gpu::named(measured.kind)?;
        let efficiency = efficiency(model.family, gpu);
        let cells = Cell::all(measured.hosts, measured.gpus_per_host);
        let seconds = cells.filter_map(|cell| {
            let model = &model;
            let setting = Setting {
                model,
                gpu,
                cell,
                efficiency,
            };
            setting.estimate().map(|(seconds, _)| seconds)
        });
        let estimated_seconds = seconds.min_by(f64::total_cmp)?;
        Some(Judged {
            measured,
            estimated_seconds,
        })
    };
    measurements().filter_map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_rows_are_met_and_the_rest_is_near() {
        let judged = judged();
        let mut references = std::collections::BTreeMap::new();
        for judged in &judged {
            let model = LayeredModel::named(judged.measured.model).unwrap();
            let gpus = judged.measured.hosts * judged.measured.gpus_per_host;
            let key = (model.family, judged.measured.kind);
            let (fewest, _) = references.entry(key).or_insert((gpus, judged));
            if gpus < *fewest {
                references.insert(key, (gpus, judged));
            }
        }
        assert_eq!(references.len(), EFFICIENCIES.len() * GPUS.len());
        for (key, (_, judged)) in references {
            assert!(judged.error() < 0.02, "{key:?}: {}", judged.error());
        }
        let errors: f64 = judged.iter().map(Judged::error).sum();
        let mean = errors / judged.len() as f64;
        assert!(judged.len() > 300 && mean < 0.25, "{mean}");
    }
}
