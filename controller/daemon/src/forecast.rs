//! The progress of jobs under a plan, by the fluid model (scheduling.md §6).
//!
//! Pure. Planner and simulator use the same model. The decision: the plan is taken as it is,
//! without planning again, so the forecast is about exactly what would be written.

mod dcqcn_band;

pub use dcqcn_band::{ContendedMessage, DcqcnConvergence, contended_messages, least_utilization};

use planner::{IterationForecast, Job, Plan, PlanForecast};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Fabric;

/// Bytes on the wire for each byte of a job: RoCEv2 packets of 4096 bytes carry headers of
/// Ethernet, IPv4, UDP and the transport, and an invariant checksum (14 + 20 + 8 + 12 + 4 bytes).
pub(crate) const WIRE_BYTES_PER_BYTE: f64 = 1.0 + 58.0 / 4096.0;

/// Between what bounds the mean iteration of a job is, whatever the phases in which jobs meet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondsBand {
    /// The mean over the stretch of a forecast where it is shortest, seconds.
    pub least: f64,
    /// The mean over the stretch where it is longest, seconds.
    pub most: f64,
}

impl SecondsBand {
    /// The band of a forecast.
    pub(crate) fn of(forecast: &IterationForecast) -> Self {
        Self { least: forecast.least, most: forecast.most }
    }

    /// The forecast that is nearest to a measurement: the measurement itself inside of the band.
    pub fn nearest(self, measured: f64) -> f64 {
        measured.clamp(self.least, self.most)
    }

    /// By what share of the nearest forecast a measurement is longer than the band, or shorter
    /// (below 0); 0 inside of it.
    pub fn excess(self, measured: f64) -> f64 {
        measured / self.nearest(measured) - 1.0
    }

    /// The band beside its mean, where it is wider than a hundredth of that: `0.95..1.10`.
    pub fn describe(self, mean: f64) -> Option<String> {
        let Self { least, most } = self;
        (most - least > 0.01 * mean).then(|| format!("{least:.4}..{most:.4}"))
    }
}

/// Forecasts `jobs` on `fabric` under `plan`.
pub fn forecast_plan(fabric: &Fabric, jobs: &[Job], plan: &Plan) -> PlanForecast {
    planner::forecast_plan(fabric, jobs, plan, WIRE_BYTES_PER_BYTE)
}

/// Forecasts `jobs` on `fabric` as they would run without a controller.
pub fn forecast_ecmp(fabric: &Fabric, jobs: &[Job]) -> PlanForecast {
    planner::forecast_ecmp(fabric, jobs, WIRE_BYTES_PER_BYTE)
}

#[cfg(test)]
mod tests {
    use planner::{JobsDocument, PlanInput, Policy};
    use simulator::{Scheduler, SimulationExperiment, simulate_experiment};
    use topology::document::{DocumentFormat, parse_document};
    use topology::spec;

    use super::*;

    const FABRIC: &str = "name = 'lab'\n[clos]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
                          gpus_per_host = 8\nhost_gbps = 1.0\nuplink_gbps = 1.0\n";

    /// Jobs that contend: one that fills its spine for half of its time, two smaller ones.
    const JOBS: &str = "
[[jobs]]
id = 'great'
gpus = { h1 = 8, h3 = 8 }
flop_per_iteration = 4e12
compute_seconds = 0.02
flows = [{ src = 'h1', dst = 'h3', bytes = 2.4e6 }, { src = 'h3', dst = 'h1', bytes = 2.4e6 }]
[[jobs]]
id = 'small'
gpus = { h2 = 8, h4 = 8 }
flop_per_iteration = 1e11
compute_seconds = 0.02
overlap_from = 0.0
flows = [{ src = 'h2', dst = 'h4', bytes = 1.6e6 }, { src = 'h4', dst = 'h2', bytes = 1.6e6 }]
[[jobs]]
id = 'tiny'
gpus = { h1 = 1, h4 = 1 }
flop_per_iteration = 1e10
compute_seconds = 0.011
flows = [{ src = 'h1', dst = 'h4', bytes = 0.9e6 }]
";

    #[test]
    fn forecast_agrees_with_the_simulator() {
        let fabric = spec::parse_fabric(FABRIC, DocumentFormat::Toml, "lab.toml").unwrap();
        let jobs: JobsDocument = parse_document(JOBS, DocumentFormat::Toml, "jobs.toml").unwrap();
        let jobs = jobs.resolve_jobs(&fabric, "jobs.toml").unwrap().jobs;
        let input = PlanInput { fabric, jobs };
        let policy = Policy::default();
        let (plan, _) = planner::plan(&input, &policy, None);
        let forecast = forecast_plan(&input.fabric, &input.jobs, &plan);
        let mut input = input;
        let flows = input.jobs.iter_mut().flat_map(|job| &mut job.flows);
        flows.for_each(|flow| flow.bytes *= WIRE_BYTES_PER_BYTE);
        let experiment = SimulationExperiment {
            input,
            policy,
            seconds: 20.0,
            faults: Vec::new(),
            views: Vec::new(),
        };
        let found = simulate_experiment(&experiment, Scheduler::Crux, &mut |_| {}).unwrap();
        let is_near = |a: f64, b: f64| (a - b).abs() <= 0.01 * b;
        for job in &found.outcome.jobs {
            let seconds = forecast.seconds(&job.id.as_str().into()).unwrap();
            let simulated = job.mean_iteration_seconds.unwrap();
            assert!(is_near(seconds, simulated), "{}: {seconds} {simulated}", job.id);
        }
        let (forecast, found) = (forecast.gpu_utilization, found.outcome.gpu_utilization);
        assert!(is_near(forecast, found), "{forecast} {found}");
    }
    #[test]
    fn ecmp_collides_where_the_plan_does_not() {
        let fabric = spec::parse_fabric(FABRIC, DocumentFormat::Toml, "lab.toml").unwrap();
        let jobs = "
[[jobs]]
id = 'a'
gpus = { h1 = 8, h3 = 8 }
flop_per_iteration = 1e12
compute_seconds = 0.01
flows = [{ src = 'h1', dst = 'h3', bytes = 2.4e6 }]
[[jobs]]
id = 'b'
gpus = { h2 = 8, h4 = 8 }
flop_per_iteration = 1e12
compute_seconds = 0.01
flows = [{ src = 'h2', dst = 'h4', bytes = 2.4e6 }]
";
        let jobs: JobsDocument = parse_document(jobs, DocumentFormat::Toml, "jobs.toml").unwrap();
        let jobs = jobs.resolve_jobs(&fabric, "jobs.toml").unwrap().jobs;
        let input = PlanInput { fabric, jobs };
        let (plan, _) = planner::plan(&input, &Policy::default(), None);
        let planned = forecast_plan(&input.fabric, &input.jobs, &plan);
        let hashed = forecast_ecmp(&input.fabric, &input.jobs);
        // Alone an iteration takes 10 ms and the 19.5 ms that its bytes need. Two flows and two
        // spines: some of the draws share one, and then every iteration takes up to twice as long.
        let alone = 0.01 / (0.01 + 2.4e6 * WIRE_BYTES_PER_BYTE * 8.0 / 1e9);
        assert!((planned.gpu_utilization - alone).abs() < 1e-3, "{planned:?}");
        assert!(hashed.gpu_utilization < 0.95 * alone, "{hashed:?}");
        assert!(hashed.gpu_utilization > 0.5 * alone, "{hashed:?}");
    }
}
