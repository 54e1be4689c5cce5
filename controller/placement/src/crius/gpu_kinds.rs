//! Kinds of GPU: what they compute, hold and send, and how many a host has.
//!
//! Peaks and memory are those of the data sheets. Hosts are those of the evaluation (Crius,
//! resources/hardware_specs.py of sjtu-epcc/arena). Latencies and speeds between GPUs are fitted to
//! the collectives that were measured there (runtime/jaxpr/comm_data, branch ae-eurosys, 4 bytes to
//! 1 GB). Between two hosts of V100 nothing was measured, and 100 Gb/s are assumed.

use super::collectives::CollectiveTimes;
use super::layers::ModelFamily;

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuKind {
    /// Its name.
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
    /// Between GPUs of a host.
    inside: MeasuredLinks,
    /// Between hosts.
    between: MeasuredLinks,
}

/// What was measured between GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MeasuredLinks {
    /// Seconds that a collective takes at least.
    ring_latency: f64,
    /// What a GPU sends in a ring of two, and of more GPUs; between hosts what a host sends, in
    /// bytes per second: `2 (n - 1) / n` times the reduced bytes in the time of an all-reduce.
    ring_speeds: [f64; 2],
    /// Seconds that a transfer between two GPUs takes at least.
    send_latency: f64,
    /// Its speed, in bytes per second.
    send_speed: f64,
}

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
        inside: measured_links([60e-6, 72e9, 180e9], [0.8e-3, 84e9]),
        between: measured_links([150e-6, 6.0e9, 6.0e9], [0.45e-3, 5.3e9]),
    },
    GpuKind {
        name: "V100",
        host_gpus: 16,
        half_precision_flops: 125e12,
        single_precision_flops: 15.7e12,
        memory_bytes_per_second: 900e9,
        memory_bytes: 32e9,
        inside: measured_links([80e-6, 120e9, 120e9], [0.5e-3, 135e9]),
        between: measured_links([150e-6, 12.5e9, 12.5e9], [0.5e-3, 12.5e9]),
    },
    GpuKind {
        name: "A40",
        host_gpus: 2,
        half_precision_flops: 149.7e12,
        single_precision_flops: 74.8e12,
        memory_bytes_per_second: 696e9,
        memory_bytes: 48e9,
        inside: measured_links([105e-6, 14.2e9, 14.2e9], [2.2e-3, 17.5e9]),
        between: measured_links([250e-6, 3.2e9, 3.2e9], [2.0e-3, 4.3e9]),
    },
    GpuKind {
        name: "A10",
        host_gpus: 2,
        half_precision_flops: 125e12,
        single_precision_flops: 62.5e12,
        memory_bytes_per_second: 600e9,
        memory_bytes: 24e9,
        inside: measured_links([70e-6, 14.2e9, 14.2e9], [1.5e-3, 17.4e9]),
        between: measured_links([200e-6, 4.0e9, 4.0e9], [1.6e-3, 3.8e9]),
    },
];

/// A latency and the two speeds of rings, and a latency and the speed of transfers.
const fn measured_links(ring: [f64; 3], send: [f64; 2]) -> MeasuredLinks {
    let [ring_latency, two, more] = ring;
    let [send_latency, send_speed] = send;
    MeasuredLinks { ring_latency, ring_speeds: [two, more], send_latency, send_speed }
}

impl GpuKind {
    /// The kind of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        GPU_KINDS.iter().find(|gpu| gpu.name == name)
    }

    /// This kind in hosts whose NICs send `bytes_per_second`, which collectives attain.
    pub fn with_nic(&self, bytes_per_second: f64) -> Self {
        let ring_speeds = [bytes_per_second; 2];
        let between = MeasuredLinks { ring_speeds, send_speed: bytes_per_second, ..self.between };
        Self { between, ..*self }
    }

    /// What is attained at most at an intensity of `flop_per_byte`: the roofline, in FLOP per
    /// second.
    pub fn roofline_flops(&self, family: ModelFamily, flop_per_byte: f64) -> f64 {
        self.peak_flops(family).min(flop_per_byte * self.memory_bytes_per_second)
    }

    /// The peak in the precision of a family, in FLOP per second.
    pub fn peak_flops(&self, family: ModelFamily) -> f64 {
        match family {
            ModelFamily::WideResnet => self.single_precision_flops,
            ModelFamily::Bert | ModelFamily::Experts => self.half_precision_flops,
        }
    }

    /// Speed of its memory, in bytes per second.
    pub fn memory_bandwidth(&self) -> f64 {
        self.memory_bytes_per_second
    }

    /// Bytes of its memory that a job may fill.
    pub fn usable_bytes(&self) -> f64 {
        USABLE_MEMORY * self.memory_bytes
    }

    /// How long a collective of `gpus` takes by the bytes that leave each of them, where `sharing`
    /// rings use the same NIC.
    pub fn ring_times(&self, place: LinkPlace, gpus: u32, sharing: u32) -> CollectiveTimes {
        let links = self.links(place);
        let [two, more] = links.ring_speeds;
        let speed = if gpus > 2 { more } else { two };
        let rings = match place {
            LinkPlace::InsideHost => 1.0,
            LinkPlace::BetweenHosts => f64::from(sharing),
        };
        CollectiveTimes::from_latency(links.ring_latency, speed / rings)
    }

    /// How long a transfer from one GPU to another takes by its bytes.
    pub fn send_times(&self, place: LinkPlace) -> CollectiveTimes {
        let links = self.links(place);
        CollectiveTimes::from_latency(links.send_latency, links.send_speed)
    }

    fn links(&self, place: LinkPlace) -> &MeasuredLinks {
        match place {
            LinkPlace::InsideHost => &self.inside,
            LinkPlace::BetweenHosts => &self.between,
        }
    }
}

/// Where a collective or a transfer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPlace {
    /// Within a host.
    InsideHost,
    /// Also between hosts.
    BetweenHosts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_rises_with_intensity_and_ends_at_the_peak() {
        let gpu = GpuKind::by_name("A40").unwrap();
        assert_eq!(gpu.roofline_flops(ModelFamily::Bert, 1.0), 696e9);
        assert_eq!(gpu.roofline_flops(ModelFamily::Bert, 1e6), 149.7e12);
        assert_eq!(gpu.roofline_flops(ModelFamily::WideResnet, 1e6), 74.8e12);
    }
}
