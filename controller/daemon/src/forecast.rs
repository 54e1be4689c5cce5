//! The progress of jobs under a plan, by the fluid model (scheduling.md §6).
//!
//! Pure. Planner and simulator use the same model. The decision: the plan is taken as it is,
//! without planning again, so the forecast is about exactly what would be written.

mod dcqcn_band;

pub use dcqcn_band::{ContendedMessage, DcqcnConvergence, contended_messages};

use std::collections::BTreeMap;

use fluid::{Engine, EngineOptions, FluidError, FluidJob, FluidNetwork, JobIndex, JobTally};
use planner::refine::group_run::spread_starts;
use planner::{Job, JobId, Plan, PlanInput};
use topology::{Fabric, LinkPath};

/// Bytes on the wire for each byte of a job: RoCEv2 packets of 4096 bytes carry headers of
/// Ethernet, IPv4, UDP and the transport, and an invariant checksum (14 + 20 + 8 + 12 + 4 bytes).
pub(crate) const WIRE_BYTES_PER_BYTE: f64 = 1.0 + 58.0 / 4096.0;

/// Iterations of the slowest job before counting begins: jobs that start together take some to
/// settle into their phases.
const SETTLING_ITERATIONS: f64 = 10.0;

/// Iterations of the slowest job that count.
const COUNTED_ITERATIONS: f64 = 40.0;

/// Starts of the jobs, of which the first is that all start at once. Jobs on one level keep the
/// phases in which they started, and equal jobs meet in every iteration or in none.
const STARTS: u32 = 4;

/// Iterations of all jobs together, at most: more would take longer than an operator waits.
const MAX_ITERATIONS: f64 = 50_000.0;

/// The forecast of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanForecast {
    /// Share of the jobs' GPU time in which they compute.
    pub gpu_utilization: f64,
    /// Mean seconds of an iteration of each job; none for a job that completes none.
    pub iteration_seconds: BTreeMap<JobId, f64>,
}

/// Draws of ECMP's hash, each from another start of the jobs.
const ECMP_DRAWS: u32 = 5;

/// Forecasts `jobs` on `fabric` under `plan`, in the mean over some starts. A job with a flow
/// without a path makes no progress.
///
/// # Errors
/// A number of a job that is invalid in the model.
pub fn forecast_plan(
    fabric: &Fabric,
    jobs: &[Job],
    plan: &Plan,
) -> Result<PlanForecast, FluidError> {
    let routed: Vec<Option<FluidJob>> =
        jobs.iter().map(|job| planned_job(fabric, job, plan)).collect();
    forecast_samples(fabric, jobs, plan, STARTS, |_| routed.clone())
}

/// Forecasts the jobs of `input` as they would run without a controller: paths by hash, in the mean
/// over draws, and all on one level. `plan` says how long their iterations are, for the horizon.
///
/// # Errors
/// As for [`forecast_plan`].
pub fn forecast_ecmp(input: &PlanInput, plan: &Plan) -> Result<PlanForecast, FluidError> {
    forecast_samples(&input.fabric, &input.jobs, plan, ECMP_DRAWS, |draw| {
        let paths = planner::ecmp_paths(input, draw);
        let routed =
            input.jobs.iter().map(|job| fluid_job(&input.fabric, job, 0, paths.get(&job.id)?));
        routed.collect()
    })
}

/// The mean over samples, each with its own starts, of what `routed_jobs` gives for it.
fn forecast_samples(
    fabric: &Fabric,
    jobs: &[Job],
    plan: &Plan,
    samples: u32,
    routed_jobs: impl Fn(u32) -> Vec<Option<FluidJob>>,
) -> Result<PlanForecast, FluidError> {
    let network = planner::fluid_network(fabric)?;
    let alone: Vec<f64> = jobs.iter().map(|job| seconds_alone(job, plan)).collect();
    let horizon = forecast_horizon(&alone);
    let mut passed: BTreeMap<&JobId, CountedProgress> = BTreeMap::new();
    for sample in 0..samples {
        let starts = spread_starts(alone.iter().enumerate(), sample);
        let running: Vec<_> = jobs.iter().map(|job| &job.id).zip(routed_jobs(sample)).collect();
        for (id, found) in progress_from(&starts, &network, &running, horizon)? {
            passed.entry(id).or_default().add(found);
        }
    }
    Ok(summarise_progress(jobs, &passed, horizon.counted * f64::from(samples)))
}

/// What each job does while it is counted, from these starts; seconds, one for each job.
fn progress_from<'j>(
    starts: &[f64],
    network: &FluidNetwork,
    jobs: &[(&'j JobId, Option<FluidJob>)],
    horizon: ForecastHorizon,
) -> Result<Vec<(&'j JobId, CountedProgress)>, FluidError> {
    let mut engine = Engine::new(network, EngineOptions::default())?;
    let mut places = BTreeMap::new();
    for ((id, running), start) in jobs.iter().zip(starts) {
        let Some(running) = running else {
            continue;
        };
        match engine.add_job(&FluidJob { start: *start, ..running.clone() }) {
            Err(FluidError::NothingToDo) => {}
            added => {
                places.insert(*id, added?);
            }
        }
    }
    let before = tallies_at(&mut engine, horizon.settling, &places)?;
    let after = tallies_at(&mut engine, horizon.settling + horizon.counted, &places)?;
    let passed = before.iter().zip(&after).map(|(before, after)| CountedProgress {
        iterations: after.iterations - before.iterations,
        iteration_seconds: after.iteration_seconds - before.iteration_seconds,
        busy_seconds: after.busy_seconds - before.busy_seconds,
    });
    Ok(places.keys().copied().zip(passed).collect())
}

/// The progress of a job while it was counted.
#[derive(Clone, Copy, Debug, Default)]
struct CountedProgress {
    iterations: u64,
    iteration_seconds: f64,
    busy_seconds: f64,
}

impl CountedProgress {
    fn add(&mut self, other: Self) {
        self.iterations += other.iterations;
        self.iteration_seconds += other.iteration_seconds;
        self.busy_seconds += other.busy_seconds;
    }
}

/// How long a forecast simulates, seconds.
#[derive(Clone, Copy, Debug)]
struct ForecastHorizon {
    settling: f64,
    counted: f64,
}

fn summarise_progress(
    jobs: &[Job],
    passed: &BTreeMap<&JobId, CountedProgress>,
    seconds: f64,
) -> PlanForecast {
    let (mut worked, mut gpu_count) = (0.0, 0.0);
    for job in jobs {
        let gpus = f64::from(job.gpu_count());
        worked += gpus * passed.get(&job.id).map_or(0.0, |job| job.busy_seconds);
        gpu_count += gpus;
    }
    let present = gpu_count * seconds;
    let iterated = passed.iter().filter(|(_, job)| job.iterations > 0);
    PlanForecast {
        gpu_utilization: if present > 0.0 { worked / present } else { 0.0 },
        iteration_seconds: iterated
            .map(|(id, job)| ((*id).clone(), job.iteration_seconds / job.iterations as f64))
            .collect(),
    }
}

fn tallies_at(
    engine: &mut Engine,
    until: f64,
    places: &BTreeMap<&JobId, JobIndex>,
) -> Result<Vec<JobTally>, FluidError> {
    engine.run_until(until)?;
    places.values().map(|place| engine.job_tally(*place)).collect()
}

/// How long to simulate jobs whose iterations take so long alone, seconds.
fn forecast_horizon(alone: &[f64]) -> ForecastHorizon {
    let alone = alone.iter().copied().filter(|seconds| *seconds > 0.0);
    let longest = alone.clone().fold(0.0, f64::max);
    let per_second: f64 = alone.map(f64::recip).sum();
    let all = (SETTLING_ITERATIONS + COUNTED_ITERATIONS) * longest;
    let most = MAX_ITERATIONS / f64::from(STARTS);
    let bounded = if per_second > 0.0 { all.min(most / per_second) } else { all };
    let settling = bounded * SETTLING_ITERATIONS / (SETTLING_ITERATIONS + COUNTED_ITERATIONS);
    ForecastHorizon { settling, counted: bounded - settling }
}

/// The shortest iteration that a job can have, as if it had the fabric alone; 0 if it is not
/// planned.
fn seconds_alone(job: &Job, plan: &Plan) -> f64 {
    let planned = plan.job(&job.id);
    planned.map_or(0.0, |(_, planned)| job.iteration_seconds(planned.bottleneck_seconds))
}

/// The job in the fluid model under a plan, if all its flows have paths.
fn planned_job(fabric: &Fabric, job: &Job, plan: &Plan) -> Option<FluidJob> {
    let (position, planned) = plan.job(&job.id)?;
    fluid_job(fabric, job, planned.level, plan.flows_of(position).map(|flow| &flow.links))
}

/// The job in the fluid model with a path for each of its flows, if none is empty.
fn fluid_job<'p>(
    fabric: &Fabric,
    job: &Job,
    level: u8,
    paths: impl IntoIterator<Item = &'p LinkPath>,
) -> Option<FluidJob> {
    let flows = job.flows.iter().zip(paths).map(|(flow, links)| {
        let crossed = flow.crossed_links(fabric, links);
        let path: Vec<u32> = crossed.iter().map(|link| link.0).collect();
        let bytes = flow.bytes * WIRE_BYTES_PER_BYTE;
        (!path.is_empty()).then_some(fluid::FluidFlow { path, bytes })
    });
    Some(FluidJob {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        level: level.into(),
        flows: flows.collect::<Option<_>>()?,
        ..FluidJob::default()
    })
}

#[cfg(test)]
mod tests {
    use planner::{JobsDocument, Policy};
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
        let forecast = forecast_plan(&input.fabric, &input.jobs, &plan).unwrap();
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
            let seconds = forecast.iteration_seconds[&job.id.as_str().into()];
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
        let planned = forecast_plan(&input.fabric, &input.jobs, &plan).unwrap();
        let hashed = forecast_ecmp(&input, &plan).unwrap();
        // Alone an iteration takes 10 ms and the 19.5 ms that its bytes need. Two flows and two
        // spines: some of the draws share one, and then every iteration takes up to twice as long.
        let alone = 0.01 / (0.01 + 2.4e6 * WIRE_BYTES_PER_BYTE * 8.0 / 1e9);
        assert!((planned.gpu_utilization - alone).abs() < 1e-3, "{planned:?}");
        assert!(hashed.gpu_utilization < 0.95 * alone, "{hashed:?}");
        assert!(hashed.gpu_utilization > 0.5 * alone, "{hashed:?}");
    }
}
