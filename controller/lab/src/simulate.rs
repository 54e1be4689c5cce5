//! `crux simulate`: a fixed set of jobs on a fabric under one scheduler, in the fluid model.
//!
//! [`experiment`] reads what `crux compare` reads as well; here it is run once and printed.

pub(crate) mod experiment;
pub(crate) mod outcome_csv;

use comfy_table::Table;
use simulator::{Scheduler, SimulationError, SimulationOutcome};

use self::experiment::ExperimentArgs;
use self::outcome_csv::CsvRun;
use crate::progress::progress_bar;
use crate::scheduler_process::SchedulerArgs;
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Simulate a fixed set of jobs under a scheduler: iteration times, GPU utilisation, busy links.
///
/// The fluid model: jobs compute, then send; links serve levels strictly, max-min fair inside a
/// level; exact, event by event. Schedulers: ecmp, spray (packet spraying), sincronia, varys,
/// varys-madd (Varys with a rate for each flow instead of levels), taccl, taccl-job (TACCL* whose
/// flows of one job do not see each other), cassini, mltcp (hosts share links by the bytes that
/// they have sent), crux-pa (priority assignment alone), crux-ps-pa (paths and assignment), crux.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux simulate --fabric lab.toml --jobs jobs.toml --scheduler crux
  crux simulate --fabric lab.toml --jobs jobs.toml --scheduler varys --seconds 60 --levels 3
  crux simulate --fabric lab.toml --jobs jobs.toml --scheduler crux \\
      --fail leaf1-spine1@10s --repair leaf1-spine1@40s --format json > outcome.json
  crux simulate --fabric lab.toml --jobs jobs.toml --scheduler-command 'python3 least_loaded.py'")]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// The scheduler
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    scheduler: Option<Scheduler>,
    #[command(flatten)]
    source: SchedulerArgs,
    #[command(flatten)]
    output: FormatArg,
}

/// Links that a table shows.
const BUSIEST: usize = 10;

pub(crate) fn run_simulate(args: &SimulateArgs) -> Result<(), CommandError> {
    let (experiment, findings) = args.experiment.read_experiment()?;
    let named = args.scheduler.map(|scheduler| args.source.named(scheduler));
    let scheduler = named.or(args.source.program.scheduler()?).expect("clap requires one of them");
    let progress = progress_bar(scheduler.name(), experiment.seconds as u64);
    let simulated = scheduler.start().map_err(SimulationError::from).and_then(|source| {
        simulator::simulate_experiment(&experiment, source, &mut |now| {
            progress.set_position(now as u64);
        })
    });
    let mut outcome = simulated.map_err(|error| args.experiment.simulation_error(&error))?.outcome;
    outcome.findings.splice(0..0, findings);
    args.experiment.write_csv(&[CsvRun { seed: 1, outcomes: std::slice::from_ref(&outcome) }])?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&outcome),
        OutputFormat::Table => print_tables(&outcome),
    }
}

fn print_tables(outcome: &SimulationOutcome) -> Result<(), CommandError> {
    output::print_line(format_args!(
        "{}, {} s: GPU utilisation {:.1} % of the jobs' GPUs, {:.1} % of all; {:.3e} FLOP\n",
        outcome.scheduler,
        outcome.seconds,
        outcome.gpu_utilization * 100.0,
        outcome.cluster_gpu_utilization * 100.0,
        outcome.flop,
    ))?;
    output::print_line(job_table(outcome))?;
    output::print_line(format_args!("\n{}", link_table(outcome)))?;
    outcome.findings.iter().try_for_each(output::print_line)
}

fn job_table(outcome: &SimulationOutcome) -> Table {
    let headings = ["job", "GPUs", "level", "iterations", "mean iteration s", "busy %"];
    let mut table = output::new_table(headings);
    for job in &outcome.jobs {
        let mean = job.mean_iteration_seconds;
        table.add_row([
            job.id.clone(),
            job.gpus.to_string(),
            job.level.to_string(),
            job.iterations.to_string(),
            mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.4}")),
            format!("{:.1}", job.gpu_busy_fraction * 100.0),
        ]);
    }
    table
}

fn link_table(outcome: &SimulationOutcome) -> Table {
    let mut table = output::new_table(["busiest links", "busy %", "by level %"]);
    for link in outcome.busiest_links(BUSIEST) {
        let levels: Vec<String> = link
            .levels
            .iter()
            .map(|level| format!("{}: {:.1}", level.level, level.busy_fraction * 100.0))
            .collect();
        table.add_row([
            link.link.clone(),
            format!("{:.1}", link.busy_fraction * 100.0),
            levels.join("  "),
        ]);
    }
    table
}
