//! `crux demo`: the whole system in one process, ECMP against Crux.
//!
//! The testbed of Crux §6.1 on the embedded fabric: [`scenario`] says who trains where,
//! [`rehearsal`] makes one run of it with a controller over real gRPC, [`witness`] asks the
//! switches what they hold and carried, [`calibration`] finds the volumes that the paper withholds,
//! and [`report`] puts the runs side by side. The decision: nothing is compared but runs of one
//! scenario on one virtual clock, so every figure but the wall-clock ones is the same on every
//! machine.

mod calibration;
mod change;
mod documents;
mod rehearsal;
mod report;
pub(crate) mod scenario;
mod witness;

pub(crate) use self::calibration::CALIBRATED;
pub(crate) use self::change::{put_in_force, run as change};
pub(crate) use self::rehearsal::{Stage, Telling, Training};
pub(crate) use self::scenario::Scenario;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use emulator::Scale;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::rehearsal::Run;
use self::report::Report;
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Format, FormatArg};

/// Run five training jobs on an embedded Clos fabric, under ECMP and under Crux, and compare.
///
/// Twelve emulated hosts send real RoCEv2 packets through eight embedded switches; a controller
/// programs these over P4Runtime. Fails if a table is not what it shall be, if a pinned flow was
/// seen on another path, or if a job did not finish.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux demo
  crux demo --seeds 5 --format json
  crux demo --comm-scale 1.5
  crux demo --comm-scale 1.5 --change policy.toml")]
pub(crate) struct Args {
    /// Draws the UDP source ports, which ECMP hashes, and the start of every job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat ECMP and Crux with so many seeds, this one and the following: one ECMP draw is luck
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Multiply the calibrated communication volumes
    #[arg(long, default_value_t = 1.0, value_parser = comm_scale)]
    comm_scale: f64,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = time_scale)]
    time_scale: Scale,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Fit the communication volumes to the case of Crux §2.2 again and print it; no demo
    #[arg(long)]
    calibrate: bool,
    /// Write the fabric and the jobs of the seed there (fabric.json, jobs.json), for other
    /// networks; no demo
    #[arg(long, value_name = "FOLDER")]
    documents: Option<PathBuf>,
    /// Instead: put this policy in force while the jobs train, and print what was foretold of it
    /// beside what they measured, before and after
    #[arg(long, value_name = "POLICY")]
    change: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

fn comm_scale(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let sensible = (0.01..=100.0).contains(&factor);
    sensible
        .then_some(factor)
        .ok_or_else(|| "not from 0.01 to 100".to_owned())
}

fn time_scale(text: &str) -> Result<Scale, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let scale = Scale::new(factor).filter(|scale| scale.factor() <= 1e5);
    scale.ok_or_else(|| "not from 1 to 100000".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(folder) = &args.documents {
        let scenario = Scenario::testbed(CALIBRATED.times(args.comm_scale), args.seed)?;
        return documents::write(&scenario, folder);
    }
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::work(&error))?;
    let training = Training {
        scale: args.time_scale,
        iterations: usize::from(args.iterations),
    };
    if let Some(file) = &args.change {
        let scenario = Scenario::testbed(CALIBRATED.times(args.comm_scale), args.seed)?;
        let changing = change::run(&scenario, files::named(file)?, training);
        return runtime.block_on(changing)?.print(args.output);
    }
    if args.calibrate {
        let case = runtime.block_on(calibration::fit(training))?;
        return output::print_json(&case);
    }
    let runs = runtime.block_on(all_runs(args, training))?;
    let report = Report::new(args, &runs)?;
    match args.output.format {
        Format::Json => output::print_json(&report)?,
        Format::Table => output::print(&report)?,
    }
    report.verdict()
}

/// Everything that was run: each job alone, then ECMP and Crux for every seed.
#[derive(Debug)]
struct Runs {
    scenario: Scenario,
    alone: Vec<Run>,
    comparisons: Vec<Comparison>,
}

/// The two runs of one seed.
#[derive(Debug)]
struct Comparison {
    seed: u64,
    ecmp: Run,
    crux: Run,
}

async fn all_runs(args: &Args, training: Training) -> Result<Runs, Failure> {
    let volumes = CALIBRATED.times(args.comm_scale);
    let of_seed = |seed: u64| Scenario::testbed(volumes, seed).map(|scenario| (seed, scenario));
    let seeds = (0..args.seeds).map(|more| of_seed(args.seed.wrapping_add(more)));
    let scenarios = seeds.collect::<Result<Vec<_>, _>>()?;
    let scenario = Scenario::testbed(volumes, args.seed)?;

    let crew = Crew::new(training);
    let pairs: Vec<_> = scenarios
        .into_iter()
        .map(|(seed, scenario)| {
            let ecmp = crew.start(
                format!("ECMP, seed {seed}"),
                scenario.clone(),
                Telling::Nothing,
            );
            let crux = crew.start(format!("Crux, seed {seed}"), scenario, Telling::Jobs);
            (seed, ecmp, crux)
        })
        .collect();
    let alone: Vec<_> = (0..scenario.jobs.len())
        .map(|index| {
            let name = format!("{} alone", scenario.jobs[index].id);
            crew.start(name, scenario.alone(index), Telling::Jobs)
        })
        .collect();

    let mut comparisons = Vec::new();
    for (seed, ecmp, crux) in pairs {
        comparisons.push(Comparison {
            seed,
            ecmp: finish(ecmp).await?,
            crux: finish(crux).await?,
        });
    }
    let mut runs = Runs {
        scenario,
        alone: Vec::new(),
        comparisons,
    };
    for run in alone {
        runs.alone.push(finish(run).await?);
    }
    Ok(runs)
}

/// Runs under way at once: as many as the machine has cores, in the order they were started.
struct Crew {
    training: Training,
    places: Arc<Semaphore>,
}

impl Crew {
    fn new(training: Training) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            training,
            places: Arc::new(Semaphore::new(cores)),
        }
    }

    fn start(
        &self,
        name: String,
        scenario: Scenario,
        telling: Telling,
    ) -> JoinHandle<Result<Run, Failure>> {
        let (training, places) = (self.training, Arc::clone(&self.places));
        tokio::spawn(async move {
            let place = places
                .acquire_owned()
                .await
                .map_err(|error| Failure::work(&error))?;
            eprintln!("{name}: started");
            let begun = std::time::Instant::now();
            let run = rehearsal::run(&scenario, telling, training).await;
            drop(place);
            eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
            run
        })
    }
}

async fn finish(run: JoinHandle<Result<Run, Failure>>) -> Result<Run, Failure> {
    run.await.map_err(|error| Failure::work(&error))?
}
