//! `crux advise`: whether jobs are best served by pins, by spraying, or by ECMP alone; and which
//! job to move where no path helps.

use std::fmt;

use planner::{IterationForecast, PlanForecast, PlanInput, Policy};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::{JobMove, suggest_moves};
use topology::Forwarding;

use command_io::CommandError;
use command_io::InputDocumentArgs;
use command_io::error_chain;
use command_io::output::{self, FormatArg, OutputFormat};

/// Say what is best for each job: pins, spraying with levels, or ECMP on one level.
///
/// Each way has its own plan for all jobs, and its forecast. The best one keeps most of the GPUs busy
/// of the job and of all that it could share links with; `forwarding = "auto"` in the fabric document
/// puts pins or spraying in force by the same rule. Spraying is taken to cost nothing where packets
/// arrive out of order.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux advise --fabric lab.toml --jobs jobs.toml
  crux advise --fabric lab.toml --jobs jobs.toml --job bert --format json
  crux advise --fabric lab.toml --jobs jobs.toml --move")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    documents: InputDocumentArgs,
    /// Only this job
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Say instead which job to move to which free GPUs, and what that gains: each job that others
    /// slow down, in its best place. The cost of a checkpoint and a restart is not counted
    #[arg(long = "move")]
    moves: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// A way to forward the packets of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ForwardingWay {
    /// On the paths of a plan, at its levels.
    Pin,
    /// Over all paths, at the levels of a plan.
    Spray,
    /// By hash, on one level.
    Ecmp,
}

/// All ways; of equally good ones the first is advised.
const WAYS: [ForwardingWay; 3] = [ForwardingWay::Pin, ForwardingWay::Spray, ForwardingWay::Ecmp];

/// GPU utilisations that differ by less are equally good: 0.2 points.
const TOLERATED: f64 = 0.002;

/// What is advised for a job, and why.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobAdvice {
    job: String,
    best: ForwardingWay,
    /// In the order `pin`, `spray`, `ecmp`.
    ways: Vec<WayForecast>,
    /// The jobs that it could share links with, itself among them.
    together: Vec<String>,
}

/// What a way is expected to give.
#[derive(Debug, Serialize, JsonSchema)]
struct WayForecast {
    way: ForwardingWay,
    /// Seconds of an iteration of the job; null if it ends none.
    iteration_seconds: Option<f64>,
    /// Share of the GPUs of `together` that compute.
    gpu_utilization: f64,
}

impl fmt::Display for ForwardingWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pin => "pin",
            Self::Spray => "spray",
            Self::Ecmp => "ecmp",
        })
    }
}

pub(crate) fn run_advise(args: &AdviseArgs) -> Result<(), CommandError> {
    let known = args.documents.read_documents()?;
    known.findings.iter().for_each(|finding| eprintln!("{finding}"));
    let jobs = selected_jobs(&known.input, args.job.as_deref())?;
    if args.moves {
        return print_moves(args, &known.input, &known.policy, &jobs);
    }
    let advices = advise_jobs(&known.input, &known.policy, &jobs);
    match args.output.format {
        OutputFormat::Json => output::print_json(&advices),
        OutputFormat::Table => print_advices(&advices),
    }
}

/// Positions of all jobs, or of the one of that name.
fn selected_jobs(input: &PlanInput, name: Option<&str>) -> Result<Vec<usize>, CommandError> {
    let jobs = input.jobs.iter().enumerate();
    let of_name = jobs.filter(|(_, job)| name.is_none_or(|name| job.id.as_str() == name));
    let found: Vec<usize> = of_name.map(|(position, _)| position).collect();
    match (found.is_empty(), name) {
        (true, Some(name)) => {
            Err(CommandError::input("--job", format!("no job is called `{name}`")))
        }
        _ => Ok(found),
    }
}

fn advise_jobs(input: &PlanInput, policy: &Policy, jobs: &[usize]) -> Vec<JobAdvice> {
    let fabric = input.fabric.with_forwarding(Forwarding::Pin);
    let mut regions = Vec::new();
    let [pin, spray] = [Forwarding::Pin, Forwarding::Spray].map(|forwarding| {
        let given =
            PlanInput { fabric: fabric.with_forwarding(forwarding), jobs: input.jobs.clone() };
        let (plan, report) = planner::plan(&given, policy, None);
        let compared = report.comparison.regions.iter();
        let names = |jobs: &Vec<usize>| jobs.iter().map(|job| plan.jobs[*job].id.clone()).collect();
        regions = compared.map(|region| names(&region.jobs)).collect::<Vec<Vec<planner::JobId>>>();
        planner::forecast_plan(&given.fabric, &given.jobs, &plan, 1.0)
    });
    let ecmp = planner::forecast_ecmp(&fabric, &input.jobs, 1.0);
    let forecasts = [pin, spray, ecmp];
    let advise = |job: &usize| {
        let id = &input.jobs[*job].id;
        let together = regions.iter().find(|region| region.contains(id));
        let together = together.cloned().unwrap_or_else(|| vec![id.clone()]);
        let members: Vec<&planner::Job> =
            input.jobs.iter().filter(|job| together.contains(&job.id)).collect();
        let ways = WAYS.into_iter().zip(&forecasts).map(|(way, forecast)| WayForecast {
            way,
            iteration_seconds: forecast.seconds(id),
            gpu_utilization: utilization(&members, forecast),
        });
        let ways: Vec<WayForecast> = ways.collect();
        let most = ways.iter().map(|way| way.gpu_utilization).fold(0.0, f64::max);
        let best = ways.iter().find(|way| way.gpu_utilization >= most - TOLERATED);
        JobAdvice {
            job: id.to_string(),
            best: best.map_or(ForwardingWay::Pin, |best| best.way),
            ways,
            together: together.iter().map(ToString::to_string).collect(),
        }
    };
    jobs.iter().map(advise).collect()
}

/// Share of the GPUs of these jobs that compute.
fn utilization(jobs: &[&planner::Job], forecast: &PlanForecast) -> f64 {
    let gpus = |job: &planner::Job| f64::from(job.gpu_count());
    let busy = |job: &&planner::Job| {
        let seconds = forecast.iteration(&job.id).map(|of: &IterationForecast| of.seconds);
        seconds.map_or(0.0, |seconds| gpus(job) * job.compute_seconds / seconds)
    };
    let all: f64 = jobs.iter().map(|job| gpus(job)).sum();
    if all > 0.0 { jobs.iter().map(busy).sum::<f64>() / all } else { 0.0 }
}

fn print_moves(
    args: &AdviseArgs,
    input: &PlanInput,
    policy: &Policy,
    jobs: &[usize],
) -> Result<(), CommandError> {
    let moves = suggest_moves(input, policy, jobs)
        .map_err(|error| CommandError::input(&args.documents.jobs, error_chain(&error)))?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&moves),
        OutputFormat::Table if moves.is_empty() => {
            output::print_line("no move of a job to free GPUs gains 0.1 points of GPU utilisation")
        }
        OutputFormat::Table => print_move_table(&moves),
    }
}

fn print_move_table(moves: &[JobMove]) -> Result<(), CommandError> {
    let headings =
        ["job", "move", "GPUs", "s: now", "moved", "alone", "GPU %: now", "moved", "gain"];
    let mut table = output::new_table(headings);
    for one in moves {
        let hosts = one.hosts.iter().map(|(from, to)| format!("{from} to {to}"));
        let seconds = |seconds: f64| format!("{seconds:.3}");
        table.add_row([
            one.job.clone(),
            hosts.collect::<Vec<_>>().join(", "),
            one.gpus.to_string(),
            seconds(one.now_seconds),
            one.moved_seconds.map_or_else(|| "-".to_owned(), seconds),
            seconds(one.alone_seconds),
            format!("{:.2}", one.now_utilization * 100.0),
            format!("{:.2}", one.moved_utilization * 100.0),
            format!("{:+.2}", one.gain() * 100.0),
        ]);
    }
    output::print_line(table)?;
    output::print_line(
        "\nSeconds of an iteration of the job, and GPU utilisation of all jobs, under Crux; each move \
         by itself.",
    )
}

fn print_advices(advices: &[JobAdvice]) -> Result<(), CommandError> {
    let ways = WAYS.map(|way| format!("{way}: s, GPU %"));
    let headings = ["job", "best"].map(str::to_owned).into_iter().chain(ways);
    let mut table = output::new_table(headings.chain(["among".to_owned()]));
    for advice in advices {
        let forecasts = advice.ways.iter().map(forecast_cell);
        let first = [advice.job.clone(), advice.best.to_string()];
        let among = advice.together.join(", ");
        table.add_row(first.into_iter().chain(forecasts).chain([among]));
    }
    output::print_line(table)?;
    output::print_line(
        "\nSeconds of an iteration of the job, and GPU utilisation of the jobs that it is among. Of \
         ways within 0.2 points the first is best.",
    )
}

fn forecast_cell(forecast: &WayForecast) -> String {
    let seconds = forecast.iteration_seconds;
    let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.4}"));
    format!("{seconds}, {:.2}", forecast.gpu_utilization * 100.0)
}
