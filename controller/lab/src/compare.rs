//! `crux compare`: several schedulers on one experiment, side by side.
//!
//! Schedulers are simulated in parallel, each by itself; then [`table`] puts the outcomes beside
//! each job alone, and [`page`] draws them.

pub(super) mod page;
mod table;

use std::fs;
use std::ops::RangeInclusive;

use rayon::prelude::*;
use simulator::{
    IsolatedJob, Scheduler, SchedulerComparison, SimulationError, SimulationExperiment,
    SimulationResult, Timeline, TimelineView,
};
use topology::Finding;

use super::simulate::experiment::ExperimentArgs;
use crate::progress::ProgressGroup;
use crate::scheduler_process::{AnyScheduler, SchedulerCommandArgs};
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Simulate several schedulers on the same jobs and compare utilisation and iteration times.
///
/// The baselines are as their papers give them; docs/algorithms/baselines.md says what was chosen
/// where a paper leaves a choice. "Alone" is a job by itself on the fabric.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux compare --fabric lab.toml --jobs jobs.toml
  crux compare --fabric lab.toml --jobs jobs.toml --schedulers ecmp,crux --seconds 60 --levels 3
  crux compare --fabric lab.toml --jobs jobs.toml --html comparison.html
  crux compare --fabric lab.toml --jobs jobs.toml --scheduler-command 'python3 least_loaded.py'")]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Schedulers by name, separated by commas; gains are over the first
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "ecmp,sincronia,varys,taccl,cassini,crux"
    )]
    schedulers: Vec<Scheduler>,
    #[command(flatten)]
    command: SchedulerCommandArgs,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// Everything that a comparison showed.
pub(super) struct ComparedRuns {
    pub(super) comparison: SchedulerComparison,
    /// By scheduler: the whole run, then the close-up.
    timelines: Vec<[Timeline; 2]>,
    findings: Vec<Finding>,
}

pub(crate) fn run_compare(args: &CompareArgs) -> Result<(), CommandError> {
    let (experiment, findings) = args.experiment.read_experiment()?;
    let schedulers: Vec<AnyScheduler> = { args.schedulers.iter().copied() }
        .map(AnyScheduler::Named)
        .chain(args.command.scheduler()?)
        .collect();
    let compared = compare_schedulers(experiment.clone(), &schedulers, findings)
        .map_err(|error| args.experiment.simulation_error(&error))?;
    if let Some(file) = &args.html {
        let page = page::render_page(&experiment, &compared);
        fs::write(file, page).map_err(|error| CommandError::input(file, error))?;
        eprintln!("wrote {file}");
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&compared.comparison),
        OutputFormat::Table => table::print_comparison(&compared),
    }
}

/// Iterations of the slowest job that a bin of the whole run holds, if that leaves enough bins: so
/// that what a figure shows is the run and not the beat of bins and iterations.
const BIN_ITERATIONS: f64 = 4.0;
const BINS: RangeInclusive<f64> = 24.0..=120.0;

/// The close-up: iterations of the slowest job that it shows, and its bins.
const CLOSE_UP_ITERATIONS: f64 = 6.0;
const CLOSE_UP_BINS: usize = 480;

/// Simulates every one of `schedulers`, for the comparison and its figures.
pub(super) fn compare_schedulers(
    mut experiment: SimulationExperiment,
    schedulers: &[AnyScheduler],
    findings: Vec<Finding>,
) -> Result<ComparedRuns, SimulationError> {
    let alone = IsolatedJob::for_experiment(&experiment)?;
    let seconds = experiment.seconds;
    let slowest = alone.iter().filter_map(|job| job.iteration_seconds).fold(0.0, f64::max);
    let close_up = CLOSE_UP_ITERATIONS * slowest;
    let bins = seconds / (BIN_ITERATIONS * slowest);
    let view =
        |from_seconds: f64, bins| TimelineView { from_seconds, until_seconds: seconds, bins };
    experiment.views = vec![
        view(0.0, bins.clamp(*BINS.start(), *BINS.end()) as usize),
        view((seconds - close_up).max(0.0), CLOSE_UP_BINS),
    ];
    let progress = ProgressGroup::default();
    let simulated: Vec<SimulationResult> = schedulers
        .par_iter()
        .map(|scheduler| {
            let bar = progress.add_bar(scheduler.name(), seconds as u64);
            simulator::simulate_experiment(&experiment, scheduler.start()?, &mut |now| {
                bar.set_position(now as u64);
            })
        })
        .collect::<Result<_, _>>()?;
    let (outcomes, timelines): (Vec<_>, Vec<_>) = simulated
        .into_iter()
        .filter_map(|s| Some((s.outcome, <[Timeline; 2]>::try_from(s.timelines).ok()?)))
        .unzip();
    Ok(ComparedRuns {
        comparison: SchedulerComparison { seconds, alone, outcomes },
        timelines,
        findings,
    })
}
