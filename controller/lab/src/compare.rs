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
    IsolatedJob, Scheduler, SchedulerComparison, SchedulerDraws, SimulationError,
    SimulationExperiment, SimulationOutcome, SimulationResult, Timeline, TimelineView,
};
use topology::Finding;

use super::simulate::experiment::ExperimentArgs;
use super::simulate::outcome_csv::CsvRun;
use crate::progress::{ProgressGroup, progress_bar};
use crate::scheduler_process::{AnyScheduler, SchedulerArgs};
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
  crux compare --fabric lab.toml --jobs jobs.toml --seeds 30 --csv outcomes.csv
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
    source: SchedulerArgs,
    /// Draws of UDP source ports, on which hashed paths depend: first those of the jobs document,
    /// then as many more as make this number
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
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
    let schedulers: Vec<AnyScheduler> = { args.schedulers.iter() }
        .map(|scheduler| args.source.named(*scheduler))
        .chain(args.source.program.scheduler()?)
        .collect();
    let failed = |error: SimulationError| args.experiment.simulation_error(&error);
    let mut compared =
        compare_schedulers(experiment.clone(), &schedulers, findings).map_err(failed)?;
    let more = draw_outcomes(&experiment, &schedulers, args.seeds).map_err(failed)?;
    let first = compared.comparison.outcomes.clone();
    let draws = || std::iter::once(&first).chain(&more);
    if !more.is_empty() {
        let outcomes: Vec<&[SimulationOutcome]> = draws().map(Vec::as_slice).collect();
        compared.comparison.draws = SchedulerDraws::of_outcomes(&outcomes);
    }
    let runs = (1..).zip(draws()).map(|(seed, outcomes)| CsvRun { seed, outcomes });
    args.experiment.write_csv(&runs.collect::<Vec<_>>())?;
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

/// The outcomes of all schedulers with ports drawn from seeds 2 to `seeds`.
fn draw_outcomes(
    experiment: &SimulationExperiment,
    schedulers: &[AnyScheduler],
    seeds: u64,
) -> Result<Vec<Vec<SimulationOutcome>>, SimulationError> {
    let progress = progress_bar("draws of ports", seeds);
    let outcomes_of = |seed: u64| {
        let mut drawn = experiment.clone();
        simulator::draw_ports(&mut drawn.input.jobs, seed);
        let outcomes = schedulers.iter().map(|scheduler| {
            let simulated = simulator::simulate_experiment(&drawn, scheduler.start()?, &mut |_| {});
            Ok(simulated?.outcome)
        });
        let outcomes = outcomes.collect();
        progress.inc(1);
        outcomes
    };
    (2..=seeds).into_par_iter().map(outcomes_of).collect()
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
        comparison: SchedulerComparison { seconds, alone, outcomes, draws: Vec::new() },
        timelines,
        findings,
    })
}
