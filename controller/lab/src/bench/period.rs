//! `crux bench period`: the period of the demo's jobs, from what they send alone.
//!
//! The jobs run in the fluid model on the demo's fabric, on ECMP paths and all at one level, so
//! they contend; every computation is drawn with jitter. What each has sent is read as a counter
//! is, at odd times, and [`period`](::period) says how long its iterations are. The decision: an
//! iteration is a job of one iteration in the model, and the next is added when it has ended, so
//! that jitter needs no part in the model.

use std::collections::BTreeMap;

use ::period::ByteSeries;
use fluid::{Engine, EngineOptions, FluidFlow, FluidNetwork, JobIndex};
use planner::PlanInput;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use simulator::EqualCostRoutes;
use simulator::baselines::ecmp;
use topology::LinkId;

use crate::demo::{CALIBRATED, DemoScenario};
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// What is promised: the period within this share of the mean iteration.
const PROMISED: f64 = 0.02;

/// Find the period of the demo's jobs from counters alone, under contention and jitter.
///
/// Exit status 1 where a period is further than 2 % from the mean iteration of the time that was
/// watched.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench period
  crux bench period --seeds 20 --sample-ms 20 --format json")]
pub(crate) struct PeriodArgs {
    /// Seconds that counters are watched
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=3600))]
    seconds: u32,
    /// Milliseconds between two readings, each late by up to half of that
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    sample_ms: u32,
    /// Relative standard deviation of computation
    #[arg(long, default_value_t = 0.05)]
    jitter: f64,
    /// Runs, each from a seed of its own
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    #[command(flatten)]
    output: FormatArg,
}

/// One job of one run.
#[derive(Clone, Debug, Serialize)]
struct PeriodRow {
    seed: u64,
    job: String,
    /// Mean over the time that was watched.
    iteration_seconds: f64,
    found_seconds: Option<f64>,
    error: Option<f64>,
    iteration_bytes: f64,
    found_bytes: Option<f64>,
}

pub(crate) fn run_period(args: &PeriodArgs) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for seed in 1..=u64::from(args.seeds) {
        eprintln!("seed {seed} of {}", args.seeds);
        let scenario = DemoScenario::paper_testbed(CALIBRATED, seed)?;
        rows.extend(PeriodRun::new(args, &scenario)?.sample_counters(args)?);
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows)?,
        OutputFormat::Table => print_rows(&rows)?,
    }
    match rows.iter().filter(|row| row.error.is_none_or(|error| error > PROMISED)).count() {
        0 => Ok(()),
        far => Err(CommandError::Failed(format!(
            "{far} of {} periods are more than 2 % off",
            rows.len()
        ))),
    }
}

/// The jobs at work.
struct PeriodRun {
    engine: Engine,
    jobs: Vec<SampledJob>,
    /// Which job an iteration belongs to.
    under_way: BTreeMap<JobIndex, usize>,
    random: ChaCha8Rng,
    seed: u64,
}

/// A job and its counter.
struct SampledJob {
    name: String,
    iteration: fluid::FluidJob,
    /// Bytes of iterations that have ended.
    ended: f64,
    iterations: u32,
    /// When the first iteration began and the latest ended.
    since: f64,
    until: f64,
    series: ByteSeries,
}

impl PeriodRun {
    fn new(args: &PeriodArgs, scenario: &DemoScenario) -> Result<Self, CommandError> {
        let fabric = &scenario.fabric;
        let links = fabric.link_ids();
        let capacity = links.map(|link| fabric.link(link).bandwidth.bytes_per_second());
        let network = FluidNetwork::new(capacity.collect()).map_err(CommandError::failed)?;
        let engine = Engine::new(&network, EngineOptions::default());
        let input = PlanInput { fabric: fabric.clone(), jobs: scenario.jobs.clone() };
        let paths = ecmp::hash_paths(&input, &EqualCostRoutes::for_input(&input));
        let interval = f64::from(args.sample_ms) / 1e3;
        let readings = (f64::from(args.seconds) / interval) as usize;
        let starts = scenario.jobs.iter().zip(&paths).zip(scenario.start_seconds());
        let jobs = starts.map(|((job, paths), start)| SampledJob {
            name: job.id.to_string(),
            iteration: fluid_iteration(job, paths),
            ended: 0.0,
            iterations: 0,
            since: start,
            until: start,
            series: ByteSeries::new(interval, readings),
        });
        let mut run = Self {
            engine: engine.map_err(CommandError::failed)?,
            jobs: jobs.collect(),
            under_way: BTreeMap::new(),
            random: ChaCha8Rng::seed_from_u64(scenario.seed),
            seed: scenario.seed,
        };
        for job in 0..run.jobs.len() {
            run.begin_iteration(job, run.jobs[job].since, args.jitter)?;
        }
        Ok(run)
    }

    /// Reads the counters now and then, until the time is over.
    fn sample_counters(mut self, args: &PeriodArgs) -> Result<Vec<PeriodRow>, CommandError> {
        let interval = f64::from(args.sample_ms) / 1e3;
        let readings = f64::from(args.seconds) / interval;
        for reading in 0..readings as u32 {
            let late = 0.5 * self.random.random::<f64>();
            self.advance_engine((f64::from(reading) + late) * interval, args.jitter)?;
            let now = self.engine.now_seconds();
            let mut sent: Vec<f64> = self.jobs.iter().map(|job| job.ended).collect();
            let tallies = self.engine.tallies().jobs;
            for (index, job) in &self.under_way {
                sent[*job] += tallies[index.0 as usize].bytes;
            }
            for (job, sent) in self.jobs.iter_mut().zip(sent) {
                job.series.record_counter(now, sent as u64);
            }
        }
        Ok(self.jobs.iter().map(|job| period_row(self.seed, job)).collect())
    }

    fn advance_engine(&mut self, until: f64, jitter: f64) -> Result<(), CommandError> {
        while self.engine.step_until(until).map_err(CommandError::failed)? {
            while let Some(index) = self.engine.take_finished() {
                let Some(job) = self.under_way.remove(&index) else {
                    continue;
                };
                let now = self.engine.now_seconds();
                let ended = &mut self.jobs[job];
                ended.ended += ended.iteration.flows.iter().map(|flow| flow.bytes).sum::<f64>();
                (ended.iterations, ended.until) = (ended.iterations + 1, now);
                self.engine.remove_job(index).map_err(CommandError::failed)?;
                self.begin_iteration(job, now, jitter)?;
            }
        }
        self.engine.run_until(until).map_err(CommandError::failed)
    }

    fn begin_iteration(&mut self, job: usize, start: f64, jitter: f64) -> Result<(), CommandError> {
        // The sum of twelve uniform numbers is close to normal, with deviation 1.
        let normal: f64 = (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0;
        let mut iteration = self.jobs[job].iteration.clone();
        iteration.compute_seconds *= (1.0 + jitter * normal).max(0.5);
        iteration.start = start;
        let index = self.engine.add_job(&iteration).map_err(CommandError::failed)?;
        self.under_way.insert(index, job);
        Ok(())
    }
}

fn fluid_iteration(job: &planner::Job, paths: &[Vec<LinkId>]) -> fluid::FluidJob {
    fluid::FluidJob {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        iterations: Some(1),
        flows: job
            .flows
            .iter()
            .zip(paths)
            .map(|(flow, path)| FluidFlow {
                path: path.iter().map(|link| link.0).collect(),
                bytes: flow.bytes,
                overlap_from: flow.overlap_from,
            })
            .collect(),
        ..fluid::FluidJob::default()
    }
}

fn period_row(seed: u64, job: &SampledJob) -> PeriodRow {
    let mean = (job.until - job.since) / f64::from(job.iterations.max(1));
    let found = job.series.period();
    PeriodRow {
        seed,
        job: job.name.clone(),
        iteration_seconds: mean,
        found_seconds: found.map(|found| found.seconds),
        error: found.map(|found| (found.seconds / mean - 1.0).abs()),
        iteration_bytes: job.iteration.flows.iter().map(|flow| flow.bytes).sum(),
        found_bytes: found.map(|found| found.bytes),
    }
}

/// A figure times `scale`, where a period was found.
fn format_found(value: Option<f64>, scale: f64) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.4}", value * scale))
}

fn print_rows(rows: &[PeriodRow]) -> Result<(), CommandError> {
    let headings = ["seed", "job", "iteration s", "found s", "off %", "GB", "found GB"];
    let mut table = output::new_table(headings);
    for row in rows {
        table.add_row([
            row.seed.to_string(),
            row.job.clone(),
            format!("{:.4}", row.iteration_seconds),
            format_found(row.found_seconds, 1.0),
            format_found(row.error, 100.0),
            format!("{:.4}", row.iteration_bytes / 1e9),
            format_found(row.found_bytes, 1e-9),
        ]);
    }
    output::print_line(table)?;
    let errors = rows.iter().filter_map(|row| row.error);
    let worst = errors.fold(0.0, f64::max);
    output::print_line(format_args!("worst {:.2} % of {} periods", worst * 100.0, rows.len()))
}
