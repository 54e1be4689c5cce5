//! `crux bench large-groups`: plans for many jobs that all contend, beside the best that is known.

use std::time::Instant;

use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use planner::{PlanDepth, PlanInput, PlanValue, Policy};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::{
    anneal_decisions, compare_models, generate_large_case, value_of_decisions,
};

/// Plan for large groups of jobs that contend, and compare with simulated annealing.
///
/// Prints what the fast plan and the compared plan are worth and how long each takes on one core,
/// beside the best that simulated annealing finds from the compared plan. GPU utilisation is a
/// share.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench large-groups
  crux bench large-groups --jobs 40,300 --anneal 600 --format json")]
pub(crate) struct LargeGroupsArgs {
    /// Jobs in a group, a case for each number
    #[arg(long, value_delimiter = ',', default_value = "40,100,300",
          value_parser = clap::value_parser!(u16).range(2..=320))]
    jobs: Vec<u16>,
    /// Draws the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of annealing for each case
    #[arg(long, default_value_t = 60)]
    anneal: u32,
    /// Also evaluate the compared plan in the exact fluid model, from one start: seconds for 40
    /// jobs, minutes for 300
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// One case.
#[derive(Serialize, JsonSchema)]
struct LargeGroupRow {
    /// Jobs in it.
    jobs: u16,
    /// Their flows.
    flows: usize,
    /// Jobs in its largest region.
    largest_region: usize,
    /// GPU utilisation of the plan without search.
    unsearched: f64,
    /// GPU utilisation of the fast plan.
    fast: f64,
    /// Seconds that it takes.
    fast_seconds: f64,
    /// GPU utilisation of the compared plan.
    compared: f64,
    /// Its GPU utilisation from one start: in the exact fluid model, and in steps.
    exact: Option<[f64; 2]>,
    /// Slowdown of its slowest job.
    worst_slowdown: f64,
    /// The largest that the floor allows.
    slowdown_limit: Option<f64>,
    /// Seconds that it takes.
    compared_seconds: f64,
    /// GPU utilisation of the best decisions known.
    best_known: f64,
    /// Moves that annealing tried.
    moves: u64,
}

pub(crate) fn run_large_groups(args: &LargeGroupsArgs) -> Result<(), CommandError> {
    let rows: Vec<LargeGroupRow> = args
        .jobs
        .iter()
        .map(|jobs| measure_case(*jobs, &generate_large_case(args.seed, *jobs), args))
        .collect();
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows),
        OutputFormat::Table => print_table(&rows),
    }
}

fn measure_case(jobs: u16, input: &PlanInput, args: &LargeGroupsArgs) -> LargeGroupRow {
    let policy = Policy::default();
    let plan = |policy: &Policy, depth| {
        let began = Instant::now();
        let (plan, report) = planner::plan_to_depth(input, policy, None, depth);
        (began.elapsed().as_secs_f64(), plan, report)
    };
    let unsearched = Policy { search_events: 0, ..policy.clone() };
    let (_, plain, _) = plan(&unsearched, PlanDepth::Full);
    let (fast_seconds, fast, _) = plan(&policy, PlanDepth::Quick);
    let (compared_seconds, compared, report) = plan(&policy, PlanDepth::Full);
    let regions = report.comparison.regions.iter();
    let limits = regions.clone().filter_map(|region| region.slowdown_limit);
    let slowdown_limit = limits.reduce(f64::max);
    let value = value_of_decisions(input, &compared);
    let began = Instant::now();
    let time_spent = || began.elapsed().as_secs_f64() / f64::from(args.anneal);
    let limit = slowdown_limit.unwrap_or(f64::INFINITY);
    let annealed = anneal_decisions(input, &compared, limit, args.seed, time_spent);
    let utilization = |value: PlanValue| value.gpu_utilization;
    LargeGroupRow {
        jobs,
        flows: compared.flows.len(),
        largest_region: regions.map(|region| region.jobs.len()).max().unwrap_or(1),
        unsearched: utilization(value_of_decisions(input, &plain)),
        fast: utilization(value_of_decisions(input, &fast)),
        fast_seconds,
        compared: utilization(value),
        exact: args.exact.then(|| compare_models(input, &compared)),
        worst_slowdown: value.worst_slowdown,
        slowdown_limit,
        compared_seconds,
        best_known: utilization(annealed.value),
        moves: annealed.moves,
    }
}

fn print_table(rows: &[LargeGroupRow]) -> Result<(), CommandError> {
    let mut table = output::new_table([
        "jobs",
        "flows",
        "region",
        "unsearched %",
        "fast %",
        "ms",
        "compared %",
        "exact, steps %",
        "s",
        "worst",
        "limit",
        "best known %",
        "share %",
        "moves",
    ]);
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    for row in rows {
        table.add_row([
            row.jobs.to_string(),
            row.flows.to_string(),
            row.largest_region.to_string(),
            percent(row.unsearched),
            percent(row.fast),
            format!("{:.1}", row.fast_seconds * 1e3),
            percent(row.compared),
            row.exact.map_or_else(|| "-".to_owned(), |both| both.map(percent).join(", ")),
            format!("{:.2}", row.compared_seconds),
            format!("{:.1}", row.worst_slowdown),
            row.slowdown_limit.map_or_else(|| "-".to_owned(), |limit| format!("{limit:.1}")),
            percent(row.best_known),
            percent(row.compared / row.best_known),
            row.moves.to_string(),
        ]);
    }
    output::print_line(format_args!("{table}"))
}
