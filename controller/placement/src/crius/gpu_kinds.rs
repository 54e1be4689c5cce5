//! Kinds of GPU: what they compute, hold and send, and how many a host has.
//!
//! Peaks and memory are those of the data sheets. Hosts are those of the evaluation (Crius,
//! resources/hardware_specs.py of sjtu-epcc/arena). Speeds between GPUs are not published there and
//! are assumed: NVLink for A100 and V100, PCIe for A40 and A10, 100 Gb/s between hosts.

use super::collectives::CollectiveTimes;
use super::layers::ModelFamily;

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuKind {
    /// Name of the job.
    pub name: &'static str,
    /// GPUs of a host.
    pub host_gpus: u32,
    /// Peak in half precision, in FLOP per second.
    half_precision_flops: f64,
    /// Peak of convolutions in single precision (TF32 where there is one), in FLOP per second.
    single_precision_flops: f64,
    /// Speed of its memory, in bytes per second.
    memory_bytes_per_second: f64,
    /// Its memory.
    memory_bytes: f64,
    /// Speed between GPUs of a host, in bytes per second.
    inside_bytes_per_second: f64,
}

/// Speed of the NIC of a host.
const NIC_BYTES_PER_SECOND: f64 = 12.5e9;

/// Latency of a collective inside a host and between hosts.
const LATENCY_SECONDS: [f64; 2] = [20e-6, 60e-6];

/// Share of the memory that a job may fill; the rest is the runtime's.
const USABLE_MEMORY: f64 = 0.8;

/// The kinds of the evaluation.
pub const GPU_KINDS: [GpuKind; 4] = [
    GpuKind {
        name: "A100",
        host_gpus: 4,
        half_precision_flops: 312e12,
        single_precision_flops: 156e12,
        memory_bytes_per_second: 1_555e9,
        memory_bytes: 40e9,
        inside_bytes_per_second: 200e9,
    },
    GpuKind {
        name: "V100",
        host_gpus: 16,
        half_precision_flops: 125e12,
        single_precision_flops: 15.7e12,
        memory_bytes_per_second: 900e9,
        memory_bytes: 32e9,
        inside_bytes_per_second: 120e9,
    },
    GpuKind {
        name: "A40",
        host_gpus: 2,
        half_precision_flops: 149.7e12,
        single_precision_flops: 74.8e12,
        memory_bytes_per_second: 696e9,
        memory_bytes: 48e9,
        inside_bytes_per_second: 16e9,
    },
    GpuKind {
        name: "A10",
        host_gpus: 2,
        half_precision_flops: 125e12,
        single_precision_flops: 62.5e12,
        memory_bytes_per_second: 600e9,
        memory_bytes: 24e9,
        inside_bytes_per_second: 16e9,
    },
];

impl GpuKind {
    /// The kind of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        GPU_KINDS.iter().find(|gpu| gpu.name == name)
    }

    /// What is attained at an intensity of `flop_per_byte`: the roofline, in FLOP per second.
    pub fn attained_flops(&self, family: ModelFamily, flop_per_byte: f64) -> f64 {
        let peak = match family {
            ModelFamily::WideResnet => self.single_precision_flops,
            ModelFamily::Bert | ModelFamily::Experts => self.half_precision_flops,
        };
        peak.min(flop_per_byte * self.memory_bytes_per_second)
    }

    /// Speed of its memory, in bytes per second.
    pub fn memory_bandwidth(&self) -> f64 {
        self.memory_bytes_per_second
    }

    /// Bytes of its memory that a job may fill.
    pub fn usable_bytes(&self) -> f64 {
        USABLE_MEMORY * self.memory_bytes
    }

    /// How long `bytes` take that leave a GPU, where `sharing` groups use the same NIC.
    pub fn transfer_times(&self, between_hosts: bool, sharing: u32) -> CollectiveTimes {
        let [inside, between] = LATENCY_SECONDS;
        if between_hosts {
            CollectiveTimes::from_latency(between, NIC_BYTES_PER_SECOND / f64::from(sharing))
        } else {
            CollectiveTimes::from_latency(inside, self.inside_bytes_per_second)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_rises_with_intensity_and_ends_at_the_peak() {
        let gpu = GpuKind::by_name("A40").unwrap();
        assert_eq!(gpu.attained_flops(ModelFamily::Bert, 1.0), 696e9);
        assert_eq!(gpu.attained_flops(ModelFamily::Bert, 1e6), 149.7e12);
        assert_eq!(gpu.attained_flops(ModelFamily::WideResnet, 1e6), 74.8e12);
    }
}
