//! Memory and tasks of this process over time.

use std::fs;

use serde::Serialize;

use command_io::CommandError;

/// Parts of the run, of which the first is the warm-up.
const PARTS: usize = 10;
/// The growth that still counts as flat.
const FLAT: f64 = 1.10;

/// Samples of memory and tasks.
#[derive(Debug, Default)]
pub(super) struct ResourceUsage {
    memory_kib: Vec<f64>,
    tasks: Vec<f64>,
}

/// The mean after the warm-up, the mean at the end, and the peak.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct UsageTrend {
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) peak: f64,
}

/// The mean, or 0 without values.
fn mean_value(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl UsageTrend {
    /// The trend of values sampled at equal intervals.
    fn from_samples(values: &[f64]) -> Self {
        let part = (values.len() / PARTS).max(1);
        let warm = &values[part.min(values.len())..];
        Self {
            begin: mean_value(&warm[..part.min(warm.len())]),
            end: mean_value(&warm[warm.len().saturating_sub(part)..]),
            peak: values.iter().copied().fold(0.0, f64::max),
        }
    }

    pub(super) fn is_flat(self) -> bool {
        self.end <= FLAT * self.begin
    }
}

impl ResourceUsage {
    /// Takes one sample.
    pub(super) fn sample_usage(&mut self) -> Result<(), CommandError> {
        self.memory_kib.push(resident_kib()?);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        self.tasks.push(tasks as f64);
        Ok(())
    }

    /// Memory at the latest sample; 0 before the first.
    pub(super) fn latest_mib(&self) -> f64 {
        self.memory_kib.last().copied().unwrap_or(0.0) / 1024.0
    }

    pub(super) fn memory_trend(&self) -> UsageTrend {
        UsageTrend::from_samples(&self.memory_kib)
    }

    pub(super) fn task_trend(&self) -> UsageTrend {
        UsageTrend::from_samples(&self.tasks)
    }
}

/// Memory of this process that is in use, as Linux counts it.
fn resident_kib() -> Result<f64, CommandError> {
    let status = fs::read_to_string("/proc/self/status").map_err(CommandError::failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.ok_or_else(|| CommandError::Failed("/proc/self/status has no VmRSS".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_does_not_count() {
        let values: Vec<f64> = (0..100).map(|at| if at < 10 { 1.0 } else { 50.0 }).collect();
        let course = UsageTrend::from_samples(&values);
        assert_eq!((course.begin, course.end, course.peak), (50.0, 50.0, 50.0));
        assert!(course.is_flat());
    }

    #[test]
    fn a_growing_series_is_not_flat() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let course = UsageTrend::from_samples(&values);
        assert_eq!((course.begin, course.end, course.peak), (14.5, 94.5, 99.0));
        assert!(!course.is_flat());
    }
}
