//! How long a layer computes on one GPU (Crius times kernels on one GPU; here a model of them).
//!
//! ```text
//! T(s) = s (FLOP slowness / (share peak) + passes outputs / memory) (1 + h / s) (1 + c (t-1)) / t
//! ```
//!
//! for `s` samples and `t` GPUs among which a layer is cut: matrices at a share of the peak that
//! depends on the kind of GPU alone, passes over the outputs at the speed of the memory, kernels
//! that are half as fast at `h` samples, and more kernels where a layer is cut. The constants are
//! fitted to the kernels that sjtu-epcc/arena (branch ae-eurosys, runtime/jaxpr/prof_log) timed on
//! one A100, A40 and A10 for plans of up to 16 GPUs, see the tests. The V100 has no measurements:
//! its shares are set, and measurements on up to two GPUs correct them as all others
//! ([`calibration`]).
//!
//! [`calibration`]: super::calibration

use super::gpu_kinds::{GPU_KINDS, GpuKind};
use super::layers::{ModelFamily, ModelLayer};

/// The share of the peak that matrices attain in half precision and convolutions in single
/// precision, by kind.
const PEAK_SHARES: [[f64; 2]; GPU_KINDS.len()] = [
    // A100
    [0.488, 0.116],
    // V100
    [0.550, 0.800],
    // A40
    [0.483, 0.208],
    // A10
    [0.427, 0.178],
];

/// What does not depend on the kind of GPU.
struct KernelConstants {
    /// Passes over the outputs of a layer.
    passes: f64,
    /// Samples at which kernels are half as fast as at many.
    half_samples: f64,
    /// What cutting a layer costs for each further GPU.
    cut_cost: f64,
}

fn kernel_constants(family: ModelFamily) -> KernelConstants {
    let (passes, half_samples, cut_cost) = match family {
        ModelFamily::Bert => (16.0, 0.2, 0.046),
        ModelFamily::Experts => (60.0, 0.2, 0.046),
        ModelFamily::WideResnet => (0.0, 4.0, 0.020),
    };
    KernelConstants { passes, half_samples, cut_cost }
}

/// Seconds in which a layer that is cut among `cut` GPUs computes forward for `samples`.
pub fn kernel_seconds(
    family: ModelFamily,
    gpu: &GpuKind,
    layer: &ModelLayer,
    samples: f64,
    cut: u32,
) -> f64 {
    let constants = kernel_constants(family);
    let matrices = layer.flop * layer.slowness / (peak_share(family, gpu) * gpu.peak_flops(family));
    let passes = constants.passes * layer.output_bytes / gpu.memory_bandwidth();
    let few = samples + constants.half_samples;
    let pieces = 1.0 + constants.cut_cost * f64::from(cut - 1);
    (matrices + passes) * few * pieces / f64::from(cut)
}

fn peak_share(family: ModelFamily, gpu: &GpuKind) -> f64 {
    let kind = GPU_KINDS.iter().position(|known| known.name == gpu.name);
    let [half, single] = kind.map_or([1.0, 1.0], |kind| PEAK_SHARES[kind]);
    match family {
        ModelFamily::WideResnet => single,
        ModelFamily::Bert | ModelFamily::Experts => half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crius::layers::LayeredModel;
    use crate::crius::partition;

    /// Computation of an iteration of 16 micro-batches by model, kind, stages, and data and tensor
    /// parallelism, as kernels on one GPU were timed: the medians by plan of
    /// runtime/jaxpr/prof_log/estimate_all of sjtu-epcc/arena, branch ae-eurosys, Apache-2.0.
    const KERNEL_TIMES: &str = include_str!("kernel_times.csv");

    /// Seconds of a row here and there.
    fn time_row(line: &str) -> (ModelFamily, f64, f64) {
        let fields: Vec<&str> = line.split(',').collect();
        let model = LayeredModel::by_name(fields[0]).unwrap();
        let gpu = GpuKind::by_name(fields[1]).unwrap();
        let [stages, data, tensor] = [2, 3, 4].map(|field| fields[field].parse::<u32>().unwrap());
        let loads: Vec<f64> = model.layers.iter().map(|layer| layer.flop).collect();
        let fractions = partition::gpu_fractions(&loads, stages * data * tensor);
        let cut = partition::balanced_partitions(&fractions, stages as usize).swap_remove(0);
        let samples = f64::from(model.batch) / f64::from(16 * data);
        let times = cut.stages.into_iter().map(|stage| {
            let layers = model.layers[stage].iter();
            layers.map(|layer| kernel_seconds(model.family, gpu, layer, samples, tensor)).sum()
        });
        let times: Vec<f64> = times.collect();
        let most = times.iter().copied().fold(0.0, f64::max);
        // Backward passes take three times as long.
        let seconds = 4.0 * (15.0 * most + times.iter().sum::<f64>());
        (model.family, seconds, fields[5].parse().unwrap())
    }

    #[test]
    fn kernels_take_what_was_timed_on_one_gpu() {
        for (family, bound) in [
            (ModelFamily::Bert, 0.06),
            (ModelFamily::Experts, 0.08),
            (ModelFamily::WideResnet, 0.08),
        ] {
            let rows = KERNEL_TIMES.lines().skip(1).map(time_row);
            let errors = rows
                .filter(|(of, ..)| *of == family)
                .map(|(_, ours, timed)| (ours / timed - 1.0).abs());
            let errors: Vec<f64> = errors.collect();
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            assert!(errors.len() > 150 && mean < bound, "{family:?}: {} {mean}", errors.len());
        }
    }
}
