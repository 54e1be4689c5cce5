//! The history as it is answered: a series for all jobs together, for each tenant and for each job.
//!
//! The decision: measured and forecast values are compared over the same jobs. Where only some jobs
//! are measured, `expected` is the forecast for exactly those.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobUtilization, UtilizationLog};

/// Samples of an answer, if the caller names no number.
const PAGE_SAMPLES: u32 = 240;

/// Which part of the history is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UtilizationPage {
    /// Samples at most; 240 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Only the last so many seconds before the latest sample, which is always there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl UtilizationPage {
    /// Seconds within which there is the latest sample alone.
    pub const LATEST: u64 = 1;
}

/// GPU utilisation over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UtilizationHistory {
    /// Times of the samples, milliseconds of Unix time, ascending. A sample that was merged from
    /// several is at the time of the last.
    pub at_ms: Vec<u64>,
    /// All jobs together.
    pub total: UtilizationSeries,
    /// The jobs of each tenant; jobs without one are in none.
    pub tenants: Vec<UtilizationSeries>,
    /// Each job, by name.
    pub jobs: Vec<UtilizationSeries>,
}

/// The utilisation of some jobs over time: shares of the time of their GPUs, means by GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UtilizationSeries {
    /// The tenant or the job; empty for all jobs together.
    pub name: String,
    /// The tenant of a job.
    pub tenant: Option<String>,
    /// Position in `at_ms` of the first value of each list.
    pub first: usize,
    /// GPUs of the jobs.
    pub gpus: Vec<u32>,
    /// GPUs of those jobs that are measured.
    pub measured_gpus: Vec<u32>,
    /// By the iterations that jobs report, else by what switches count; of the measured jobs.
    pub measured: Vec<Option<f64>>,
    /// By the fluid model under the plan in force; of the measured jobs.
    pub expected: Vec<Option<f64>>,
    /// By the fluid model under the plan in force; of all jobs.
    pub forecast: Vec<Option<f64>>,
    /// By the fluid model under ECMP, the mean over draws of its hash; of all jobs.
    pub ecmp: Vec<Option<f64>>,
    /// Means over the samples, weighted by GPUs.
    pub means: UtilizationMeans,
}

/// Means over time: `measured` and `expected` over the samples that have both, `forecast` and `ecmp`
/// over those that have both, and `measured_gain` over those with a measured value and ECMP's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UtilizationMeans {
    /// As measured.
    pub measured: Option<f64>,
    /// As forecast for the measured jobs.
    pub expected: Option<f64>,
    /// As forecast for all jobs.
    pub forecast: Option<f64>,
    /// As ECMP would give it for all jobs.
    pub ecmp: Option<f64>,
    /// As measured, less what ECMP would give the measured jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_gain: Option<f64>,
}

impl UtilizationHistory {
    /// The samples of a page, finer ones merged.
    pub(in crate::northbound) fn from_log(log: &UtilizationLog, page: &UtilizationPage) -> Self {
        let latest = log.latest_sample().map_or(0, |sample| sample.at_ms);
        let span = page.seconds.map_or(latest, |seconds| seconds.saturating_mul(1_000));
        let count = page.samples.unwrap_or(PAGE_SAMPLES).max(1) as usize;
        let samples = log.select_samples(latest.saturating_sub(span), count);
        let rows: Vec<&BTreeMap<String, JobUtilization>> =
            samples.iter().map(|sample| &sample.jobs).collect();
        let mut tenants = BTreeSet::new();
        let mut jobs = BTreeMap::new();
        for (id, row) in rows.iter().flat_map(|jobs| jobs.iter()) {
            tenants.extend(row.tenant.as_deref());
            jobs.insert(id.as_str(), row.tenant.as_deref());
        }
        Self {
            at_ms: samples.iter().map(|sample| sample.at_ms).collect(),
            total: UtilizationSeries::over(&rows, "", |_, _| true),
            tenants: tenants
                .into_iter()
                .map(|tenant| {
                    UtilizationSeries::over(&rows, tenant, |_, row| {
                        row.tenant.as_deref() == Some(tenant)
                    })
                })
                .collect(),
            jobs: jobs
                .into_iter()
                .map(|(job, tenant)| UtilizationSeries {
                    tenant: tenant.map(str::to_owned),
                    ..UtilizationSeries::of_job(&rows, job)
                })
                .collect(),
        }
    }
}

impl UtilizationSeries {
    /// The series of one job.
    fn of_job(rows: &[&BTreeMap<String, JobUtilization>], job: &str) -> Self {
        let sums = rows.iter().map(|jobs| UtilizationSums::of(jobs.get(job)));
        Self::from_sums(job, &sums.collect::<Vec<_>>())
    }

    /// The series of the jobs that belong.
    fn over(
        rows: &[&BTreeMap<String, JobUtilization>],
        name: &str,
        belongs: impl Fn(&str, &JobUtilization) -> bool,
    ) -> Self {
        let sums = rows.iter().map(|jobs| {
            let own = jobs.iter().filter(|(id, row)| belongs(id, row));
            UtilizationSums::of(own.map(|(_, row)| row))
        });
        Self::from_sums(name, &sums.collect::<Vec<_>>())
    }

    fn from_sums(name: &str, sums: &[UtilizationSums]) -> Self {
        let is_there = |sums: &UtilizationSums| sums.gpus > 0;
        let first = sums.iter().position(is_there).unwrap_or(sums.len());
        let end = sums.iter().rposition(is_there).map_or(first, |last| last + 1);
        let sums = &sums[first..end];
        let list = |value: fn(&UtilizationSums) -> Option<f64>| sums.iter().map(value).collect();
        Self {
            name: name.to_owned(),
            tenant: None,
            first,
            gpus: sums.iter().map(|sum| sum.gpus).collect(),
            measured_gpus: sums.iter().map(|sum| sum.measured.gpus as u32).collect(),
            measured: list(|sum| sum.measured.share(|pair| pair.value)),
            expected: list(|sum| sum.compared.share(|pair| pair.reference)),
            forecast: list(|sum| sum.gained.share(|pair| pair.value)),
            ecmp: list(|sum| sum.gained.share(|pair| pair.reference)),
            means: UtilizationMeans::over(sums),
        }
    }

    /// The latest values that are known: measured, forecast and under ECMP.
    pub fn latest_values(&self) -> [Option<f64>; 3] {
        [&self.measured, &self.forecast, &self.ecmp]
            .map(|values| values.iter().rev().find_map(|value| *value))
    }
}

impl UtilizationMeans {
    fn over(sums: &[UtilizationSums]) -> Self {
        let add = |pair: fn(&UtilizationSums) -> GpuPair| {
            sums.iter().map(pair).fold(GpuPair::default(), GpuPair::plus)
        };
        let (compared, gained) = (add(|sum| sum.compared), add(|sum| sum.gained));
        Self {
            measured: compared.share(|pair| pair.value),
            expected: compared.share(|pair| pair.reference),
            forecast: gained.share(|pair| pair.value),
            ecmp: gained.share(|pair| pair.reference),
            measured_gain: add(|sum| sum.outdone).share(|pair| pair.value - pair.reference),
        }
    }

    /// How far the measured value is from the forecast, as a share of the forecast.
    pub fn forecast_error(&self) -> Option<f64> {
        let (measured, expected) = self.measured.zip(self.expected)?;
        (expected > 0.0).then(|| measured / expected - 1.0)
    }

    /// What the plan gains over ECMP, both by the fluid model.
    pub fn planned_gain(&self) -> Option<f64> {
        let (forecast, ecmp) = self.forecast.zip(self.ecmp)?;
        Some(forecast - ecmp)
    }
}

/// Two utilisations of the same jobs, as GPUs that compute.
#[derive(Clone, Copy, Debug, Default)]
struct GpuPair {
    gpus: f64,
    value: f64,
    reference: f64,
}

impl GpuPair {
    fn plus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus + other.gpus,
            value: self.value + other.value,
            reference: self.reference + other.reference,
        }
    }

    fn share(self, value: fn(Self) -> f64) -> Option<f64> {
        (self.gpus > 0.0).then(|| value(self) / self.gpus)
    }
}

/// The jobs of a series at one time.
#[derive(Clone, Copy, Debug, Default)]
struct UtilizationSums {
    gpus: u32,
    /// Measured, of the jobs that are.
    measured: GpuPair,
    /// Measured and forecast, of the jobs that have both.
    compared: GpuPair,
    /// Forecast and ECMP, of the jobs that have both.
    gained: GpuPair,
    /// Measured and ECMP, of the jobs that have both.
    outdone: GpuPair,
}

impl UtilizationSums {
    fn of<'r>(rows: impl IntoIterator<Item = &'r JobUtilization>) -> Self {
        let mut sums = Self::default();
        for row in rows {
            let gpus = f64::from(row.gpus);
            let pair = |values: Option<(f64, f64)>| {
                values.map_or_else(GpuPair::default, |(value, reference)| GpuPair {
                    gpus,
                    value: gpus * value,
                    reference: gpus * reference,
                })
            };
            sums.gpus += row.gpus;
            sums.measured = sums.measured.plus(pair(row.measured.zip(Some(0.0))));
            sums.compared = sums.compared.plus(pair(row.measured.zip(row.forecast)));
            sums.gained = sums.gained.plus(pair(row.forecast.zip(row.ecmp)));
            sums.outdone = sums.outdone.plus(pair(row.measured.zip(row.ecmp)));
        }
        sums
    }
}
