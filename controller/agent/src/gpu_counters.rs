//! How busy the GPUs of this host are, through NVML where the library is there.
//!
//! NVML is loaded when it is asked for; a host without it has no GPU counters and everything else.
//! The decision: a GPU that communicates counts as busy to NVML, so this is a bound on computation,
//! which a process that reports its iterations knows better.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The GPUs of this host.
#[derive(Debug)]
pub struct GpuCounters {
    nvml: Nvml,
    count: u32,
}

/// Why there are no GPU counters.
#[derive(Debug, thiserror::Error)]
pub enum GpuCountersError {
    /// No library, or it does not start.
    #[error("no GPU counters: NVML (libnvidia-ml.so) cannot be used: {0}")]
    Library(#[from] NvmlError),
    /// The library finds no GPU.
    #[error("no GPU counters: NVML finds no GPU")]
    NoGpu,
}

impl GpuCounters {
    /// Loads the library.
    ///
    /// # Errors
    /// The machine has no driver or no GPU.
    pub fn open() -> Result<Self, GpuCountersError> {
        let nvml = Nvml::init()?;
        let count = nvml.device_count()?;
        match count {
            0 => Err(GpuCountersError::NoGpu),
            count => Ok(Self { nvml, count }),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Mean share of the last moments (NVML's sample period: a sixth of a second to a second) in
    /// which a kernel ran; none if no GPU says.
    pub fn busy_share(&self) -> Option<f64> {
        let shares: Vec<f64> = (0..self.count)
            .filter_map(|index| {
                let device = self.nvml.device_by_index(index).ok()?;
                Some(f64::from(device.utilization_rates().ok()?.gpu) / 100.0)
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        (!shares.is_empty()).then_some(mean)
    }
}
