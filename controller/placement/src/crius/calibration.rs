//! How fast the kernels of a family run on a kind of GPU, and the error of the estimates.
//!
//! Crius times the kernels of a model on one GPU and estimates the rest. Nothing runs here: the
//! published measurements on one and two GPUs correct the model of [`kernels`](super::kernels), and
//! those on 4, 8 and 16 GPUs evaluate the estimates.
//!
//! A measurement is of the best parallelism that Alpa found, which is not published and sometimes
//! far from the best. Two functions therefore separate the causes of the errors:
//! [`corrected_estimates`] uses what else was measured on a machine, and [`without_contradictions`]
//! leaves out measurements that contradict each other.

use super::CriusCell;
use super::estimate::CellEstimator;
use super::gpu_kinds::{GPU_KINDS, GpuKind};
use super::layers::{LayeredModel, ModelFamily};
use crate::throughput::{PublishedMeasurement, published_measurements};

/// Speed of kernels by family and kind, in units of the model: the median ratio of estimate and
/// measurement over the calibrating measurements.
#[rustfmt::skip]
const KERNEL_SPEEDS: [(ModelFamily, [f64; GPU_KINDS.len()]); 3] = [
    //                      A100   V100   A40    A10
    (ModelFamily::Bert,       [1.037, 1.092, 1.031, 1.084]),
    (ModelFamily::Experts,    [0.988, 0.927, 0.973, 0.963]),
    (ModelFamily::WideResnet, [1.045, 1.075, 1.032, 1.090]),
];

/// How fast the kernels of a family run on a kind, in units of [`kernels`](super::kernels).
pub fn kernel_speed(family: ModelFamily, gpu: &GpuKind) -> f64 {
    let kind = GPU_KINDS.iter().position(|known| known.name == gpu.name);
    let row = KERNEL_SPEEDS.iter().find(|(known, _)| *known == family);
    let found = kind.zip(row).map(|(kind, (_, row))| row[kind]);
    found.expect("every family has a row and every kind of `GPUS` a column")
}

/// An estimate beside the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedEstimate {
    /// The published measurement.
    pub measured: PublishedMeasurement,
    /// The family of its model.
    pub family: ModelFamily,
    /// Seconds of an iteration in the best Cell.
    pub estimated_seconds: f64,
}

impl JudgedEstimate {
    /// By how much the estimate is off, as a share of the measurement.
    pub fn relative_error(&self) -> f64 {
        (self.estimated_seconds / self.measured.iteration_seconds - 1.0).abs()
    }

    /// By how much the estimate that the authors of Crius published is off; none if they published
    /// none.
    pub fn published_error(&self) -> Option<f64> {
        let estimated = self.measured.estimated_seconds?;
        Some((estimated / self.measured.iteration_seconds - 1.0).abs())
    }

    /// The kind of GPU, hosts, and GPUs of each.
    fn machine(&self) -> (&'static str, u32, u32) {
        (self.measured.kind, self.measured.hosts, self.measured.gpus_per_host)
    }
}

/// The best Cell of every published measurement that has one.
pub fn judge_estimates() -> Vec<JudgedEstimate> {
    judge_with(|gpu| *gpu)
}

/// Estimates as if collectives between hosts attained `bytes_per_second` of each NIC.
pub fn judge_with_nics(bytes_per_second: f64) -> Vec<JudgedEstimate> {
    judge_with(|gpu| gpu.with_nic(bytes_per_second))
}

fn judge_with(change: impl Fn(&GpuKind) -> GpuKind) -> Vec<JudgedEstimate> {
    published_measurements()
        .filter_map(|measured| {
            let model = LayeredModel::by_name(measured.model)?;
            let gpu = GpuKind::by_name(measured.kind)?;
            let kernel_speed = kernel_speed(model.family, gpu);
            let (model, gpu) = (&model, &change(gpu));
            let cells = CriusCell::for_gpus(measured.hosts, measured.gpus_per_host);
            let seconds = cells.filter_map(|cell| {
                let setting = CellEstimator { model, gpu, cell, kernel_speed };
                setting.estimate_best_plan().map(|(seconds, _)| seconds)
            });
            let estimated_seconds = seconds.min_by(f64::total_cmp)?;
            Some(JudgedEstimate { measured, family: model.family, estimated_seconds })
        })
        .collect()
}

/// What else was measured on the machine of a measurement: as many GPUs of the kind on as many
/// hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineEvidence {
    /// Models of the other families.
    OtherFamilies,
    /// The other models and batches of the family.
    SameFamily,
    /// All of the family, itself included: what no estimator undercuts whose error is a factor by
    /// machine and family.
    Itself,
}

impl MachineEvidence {
    fn admits(self, judged: &JudgedEstimate, other: &JudgedEstimate) -> bool {
        let alike = other.family == judged.family;
        match self {
            _ if other.machine() != judged.machine() => false,
            Self::OtherFamilies => !alike,
            Self::SameFamily => alike && other.measured != judged.measured,
            Self::Itself => alike,
        }
    }
}

/// The estimates, each corrected by the median error of what the evidence admits.
pub fn corrected_estimates(
    judged: &[JudgedEstimate],
    evidence: MachineEvidence,
) -> Vec<JudgedEstimate> {
    let corrected = judged.iter().map(|estimate| {
        let admitted = judged.iter().filter(|other| evidence.admits(estimate, other));
        let factors: Vec<f64> = admitted
            .map(|other| other.measured.iteration_seconds / other.estimated_seconds)
            .collect();
        let estimated_seconds = estimate.estimated_seconds * median_value(factors).unwrap_or(1.0);
        JudgedEstimate { estimated_seconds, ..*estimate }
    });
    corrected.collect()
}

/// The middle of some values, the mean of the two in the middle if there are such; none of none.
pub fn median_value(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// With twice the GPUs, the best parallelism is at least and at most so many times as fast. With
/// less, the search on more GPUs failed, since half of them would do; with more, that on fewer.
const PLAUSIBLE_SPEEDUPS: [f64; 2] = [1.1, 2.1];

/// The estimates without those whose measurement is contradicted by another of the same model on
/// the same kind.
pub fn without_contradictions(judged: &[JudgedEstimate]) -> Vec<JudgedEstimate> {
    let [least, most] = PLAUSIBLE_SPEEDUPS;
    let contradicts = |one: &PublishedMeasurement, other: &PublishedMeasurement| {
        let speedup = other.iteration_seconds / one.iteration_seconds;
        let alike = one.model == other.model && one.kind == other.kind;
        let twice = one.gpu_count() == 2 * other.gpu_count();
        let half = 2 * one.gpu_count() == other.gpu_count();
        alike && (twice && speedup < least || half && speedup.recip() > most)
    };
    let consistent = judged.iter().filter(|estimate| {
        !judged.iter().any(|other| contradicts(&estimate.measured, &other.measured))
    });
    consistent.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measurements on up to so many GPUs calibrate.
    const CALIBRATING_GPUS: u32 = 2;

    fn mean_error(judged: &[JudgedEstimate], gpus: u32) -> f64 {
        let of_size = judged.iter().filter(|judged| judged.measured.gpu_count() == gpus);
        let errors: Vec<f64> = of_size.map(JudgedEstimate::relative_error).collect();
        errors.iter().sum::<f64>() / errors.len() as f64
    }

    #[test]
    fn kernel_speeds_are_what_one_and_two_gpus_say() {
        let judged = judge_estimates();
        for (family, speeds) in KERNEL_SPEEDS {
            for (gpu, speed) in GPU_KINDS.iter().zip(speeds) {
                let calibrating = judged.iter().filter(|judged| {
                    let measured = &judged.measured;
                    judged.family == family
                        && measured.kind == gpu.name
                        && measured.gpu_count() <= CALIBRATING_GPUS
                });
                let ratios = calibrating
                    .map(|judged| judged.estimated_seconds / judged.measured.iteration_seconds);
                let ratio = median_value(ratios.collect()).unwrap();
                assert!((ratio - 1.0).abs() < 0.03, "{family:?} {}: {speed} {ratio}", gpu.name);
            }
        }
    }

    /// Those on 4 GPUs and more calibrate nothing.
    #[test]
    fn estimates_beyond_the_calibration_are_near() {
        let judged = judge_estimates();
        assert_eq!(judged.len(), published_measurements().count());
        for (gpus, bound) in [(1, 0.03), (2, 0.04), (4, 0.13), (8, 0.19), (16, 0.19)] {
            let error = mean_error(&judged, gpus);
            assert!(error < bound, "{gpus} GPUs: {error}");
        }
        let assumed = judge_with_nics(12.5e9);
        assert!(mean_error(&assumed, 8) > mean_error(&judged, 8));
    }

    #[test]
    fn evidence_of_the_machine_explains_most_of_the_errors() {
        let judged = judge_estimates();
        let error = |evidence| {
            let corrected = corrected_estimates(&judged, evidence);
            [4, 8, 16].map(|gpus| mean_error(&corrected, gpus))
        };
        let itself = error(MachineEvidence::Itself);
        let family = error(MachineEvidence::SameFamily);
        let others = error(MachineEvidence::OtherFamilies);
        assert!(itself.iter().zip(family).all(|(itself, family)| *itself < family));
        assert!(family[0] < 0.09 && family[1] < 0.15 && family[2] < 0.12, "{family:?}");
        assert!(others[0] < 0.11 && others[1] < 0.16 && others[2] < 0.17, "{others:?}");
    }

    #[test]
    fn a_search_that_failed_contradicts_another() {
        let judged = judge_estimates();
        let kept = without_contradictions(&judged);
        let has = |judged: &[JudgedEstimate], model, hosts| {
            judged.iter().any(|judged| {
                judged.measured.model == model && judged.machine() == ("A40", hosts, 2)
            })
        };
        // 25.2 s on four GPUs, 40.2 s on eight.
        assert!(has(&judged, "wide-resnet-1B/512", 4) && !has(&kept, "wide-resnet-1B/512", 4));
        assert!(has(&kept, "wide-resnet-1B/512", 2));
        // 192 s on eight GPUs, 46 s on sixteen.
        assert!(!has(&kept, "wide-resnet-6.8B/256", 4) && has(&kept, "wide-resnet-6.8B/256", 8));
        assert!(kept.len() * 10 > judged.len() * 9);
    }

    #[test]
    fn medians() {
        for (values, median) in
            [(vec![], None), (vec![3.0, 1.0, 2.0], Some(2.0)), (vec![4.0, 1.0], Some(2.5))]
        {
            assert_eq!(median_value(values), median);
        }
    }
}
