//! How long a layer computes on one GPU (Crius times kernels on one GPU; here a model of them).
//!
//! ```text
//! T(s) = (s FLOP slowness / (share peak) + s passes outputs / memory) (1 + h / s) (1 + c (t - 1)) / t
//! ```
//!
//! for `s` samples and `t` GPUs among which a layer is cut: matrices at a share of the peak that
//! depends on the kind of GPU alone, passes over the outputs at the speed of the memory, kernels
//! that are half as fast at `h` samples, and more kernels where a layer is cut. The constants are
//! fitted to the kernels that sjtu-epcc/arena (branch ae-eurosys, runtime/jaxpr/prof_log) timed on
//! one A100, A40 and A10 for plans of up to 16 GPUs, see the tests. Of the V100 there are none: its
//! shares are set, and measurements on up to two GPUs correct them as all others ([`calibration`]).
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
