//! `crux bench large-groups`: plans for many jobs that all contend, beside the best that is known.

use std::time::{Duration, Instant};

use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use nix::time::{ClockId, clock_gettime};
use planner::{Plan, PlanDepth, PlanInput, PlanReport, Policy};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::{
    AnnealedDecisions, anneal_decisions, compare_models, generate_large_case,
    value_from_other_starts, value_of_decisions, value_of_ecmp,
};

/// Plan for large groups of jobs that contend, and compare with simulated annealing.
///
/// Prints what the fast plan and the compared plan are worth and how long each takes, beside one
/// level, the mean of ECMP and the best that is known: the better of a plan with a budget of many
/// times as much and of what simulated annealing finds from it. GPU utilisation is a share; the
/// fast plan's time is of the processor, the others, which use several threads, are on the clock.
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
    /// How many times the default budget the plan has that annealing begins with
    #[arg(long, default_value_t = 32)]
    budget: u64,
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
    /// GPU utilisation on one level, without search.
    one_level: f64,
    /// GPU utilisation under ECMP, the mean over ten hashes.
    ecmp: f64,
    /// GPU utilisation of the fast plan.
    fast: f64,
    /// Seconds of processor that it takes.
    fast_seconds: f64,
    /// GPU utilisation of the compared plan.
    compared: f64,
    /// GPU utilisation of the compared plan from 16 other starts.
    compared_unseen: f64,
    /// Its GPU utilisation from one start: in the exact fluid model, and in steps.
    exact: Option<[f64; 2]>,
    /// Slowdown of its slowest job.
    worst_slowdown: f64,
    /// The largest that the floor allows.
    slowdown_limit: Option<f64>,
    /// Seconds that it takes on the clock.
    compared_seconds: f64,
    /// GPU utilisation of the plan with many times the budget.
    long_plan: f64,
    /// Seconds that it takes on the clock.
    long_seconds: f64,
    /// GPU utilisation of the best decisions known.
    best_known: f64,
    /// GPU utilisation of these from 16 other starts.
    best_unseen: f64,
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
    let with_budget = |search_events| Policy { search_events, ..policy.clone() };
    let plain = with_budget(0);
    let value = |policy: &Policy, depth| {
        let planned = timed_plan(input, policy, depth);
        (value_of_decisions(input, &planned.plan).gpu_utilization, planned)
    };
    let (unsearched, _) = value(&plain, PlanDepth::Full);
    let (one_level, _) = value(&Policy { levels: 1, ..plain }, PlanDepth::Full);
    let (fast, fast_plan) = value(&policy, PlanDepth::Quick);
    let (compared, found) = value(&policy, PlanDepth::Full);
    let more = with_budget(args.budget.saturating_mul(policy.search_events));
    let (long_value, long) = value(&more, PlanDepth::Full);
    let regions = found.report.comparison.regions.iter();
    let limits = regions.clone().filter_map(|region| region.slowdown_limit);
    let slowdown_limit = limits.reduce(f64::max);
    let annealed = anneal_for(args, input, &long.plan, slowdown_limit);
    LargeGroupRow {
        jobs,
        flows: found.plan.flows.len(),
        largest_region: regions.map(|region| region.jobs.len()).max().unwrap_or(1),
        unsearched,
        one_level,
        ecmp: value_of_ecmp(input).gpu_utilization,
        fast,
        fast_seconds: fast_plan.processor_seconds,
        compared,
        compared_unseen: value_from_other_starts(input, &found.plan).gpu_utilization,
        exact: args.exact.then(|| compare_models(input, &found.plan)),
        worst_slowdown: value_of_decisions(input, &found.plan).worst_slowdown,
        slowdown_limit,
        compared_seconds: found.seconds,
        long_plan: long_value,
        long_seconds: long.seconds,
        best_known: annealed.value.gpu_utilization,
        best_unseen: annealed.unseen.gpu_utilization,
        moves: annealed.moves,
    }
}

/// A plan and the seconds that it took.
struct TimedPlan {
    plan: Plan,
    report: PlanReport,
    /// On the clock.
    seconds: f64,
    /// That this thread was on a processor: others may work on the machine too.
    processor_seconds: f64,
}

fn timed_plan(input: &PlanInput, policy: &Policy, depth: PlanDepth) -> TimedPlan {
    let (began, processor_began) = (Instant::now(), thread_seconds());
    let (plan, report) = planner::plan_to_depth(input, policy, None, depth);
    TimedPlan {
        plan,
        report,
        seconds: began.elapsed().as_secs_f64(),
        processor_seconds: thread_seconds() - processor_began,
    }
}

fn thread_seconds() -> f64 {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(spent).as_secs_f64()
}

fn anneal_for(
    args: &LargeGroupsArgs,
    input: &PlanInput,
    start: &Plan,
    slowdown_limit: Option<f64>,
) -> AnnealedDecisions {
    let began = Instant::now();
    let time_spent = || began.elapsed().as_secs_f64() / f64::from(args.anneal);
    let limit = slowdown_limit.unwrap_or(f64::INFINITY);
    anneal_decisions(input, start, limit, args.seed, time_spent)
}

fn print_table(rows: &[LargeGroupRow]) -> Result<(), CommandError> {
    let mut table = output::new_table([
        "jobs",
        "flows",
        "unsearched %",
        "one level %",
        "ECMP %",
        "fast %",
        "ms",
        "compared %",
        "s",
        "worst, limit",
        "exact, steps %",
        "long plan %",
        "s",
        "best known %",
        "moves",
        "share %",
        "of other starts %",
    ]);
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in rows {
        table.add_row([
            row.jobs.to_string(),
            row.flows.to_string(),
            percent(row.unsearched),
            percent(row.one_level),
            percent(row.ecmp),
            percent(row.fast),
            format!("{:.1}", row.fast_seconds * 1e3),
            percent(row.compared),
            format!("{:.2}", row.compared_seconds),
            format!(
                "{:.1}, {}",
                row.worst_slowdown,
                or_dash(row.slowdown_limit.map(|limit| format!("{limit:.1}")))
            ),
            or_dash(row.exact.map(|both| both.map(percent).join(", "))),
            percent(row.long_plan),
            format!("{:.1}", row.long_seconds),
            percent(row.best_known),
            row.moves.to_string(),
            percent(row.compared / row.best_known),
            percent(row.compared_unseen / row.best_unseen),
        ]);
    }
    output::print_line(format_args!("{table}"))
}
