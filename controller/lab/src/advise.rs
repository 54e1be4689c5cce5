//! `crux advise`: whether a job is best served by pins, by ECMP with ports that differ, or by
//! spraying; and which job to move where no path helps.

use planner::{PlanInput, Policy};
use simulator::modes::{
    AdviceSampling, ForwardingMode, ModeAdvice, ModeError, ModeEstimate, PlannedJobs, advise_mode,
};
use simulator::{JobMove, suggest_moves};

use command_io::CommandError;
use command_io::InputDocumentArgs;
use command_io::error_chain;
use command_io::output::{self, FormatArg, OutputFormat};

/// Say which forwarding mode is best for each job: pins, ECMP with chosen source ports, or
/// spraying.
///
/// All other jobs stay as planned, and the job keeps its level. The best mode is that with the
/// highest GPU utilisation of the job and all that it contends with, in a short run of the fluid
/// model. Spraying is taken to cost nothing where packets arrive out of order.
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

pub(crate) fn run_advise(args: &AdviseArgs) -> Result<(), CommandError> {
    let known = args.documents.read_documents()?;
    known.findings.iter().for_each(|finding| eprintln!("{finding}"));
    let jobs = selected_jobs(&known.input, args.job.as_deref())?;
    if args.moves {
        return print_moves(args, &known.input, &known.policy, &jobs);
    }
    let advices = advise_jobs(&known.input, &known.policy, &jobs)
        .map_err(|error| CommandError::input(&args.documents.jobs, explain_error(&error)))?;
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

fn advise_jobs(
    input: &PlanInput,
    policy: &Policy,
    jobs: &[usize],
) -> Result<Vec<ModeAdvice>, ModeError> {
    let planned = PlannedJobs::new(input, policy);
    jobs.iter().map(|job| advise_mode(&planned, *job, AdviceSampling::default())).collect()
}

/// An error with its cause.
fn explain_error(error: &ModeError) -> String {
    match error {
        ModeError::NoPath(_) => error.to_string(),
        ModeError::Model(source) => format!("{error}: {source}"),
    }
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

fn print_advices(advices: &[ModeAdvice]) -> Result<(), CommandError> {
    let modes = ForwardingMode::ALL.map(|mode| format!("{mode}: s, GPU %"));
    let headings = ["job", "best"].map(str::to_owned).into_iter().chain(modes);
    let mut table = output::new_table(headings.chain(["why".to_owned()]));
    for advice in advices {
        let estimates = advice.modes.iter().map(estimate_cell);
        let first = [advice.job.clone(), advice.best.to_string()];
        table.add_row(first.into_iter().chain(estimates).chain([advice.reason.clone()]));
    }
    output::print_line(table)?;
    output::print_line(
        "\nSeconds of an iteration of the job, and GPU utilisation of it and all that it contends \
         with.",
    )
}

fn estimate_cell(estimate: &ModeEstimate) -> String {
    let seconds = estimate.iteration_seconds;
    let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.4}"));
    format!("{seconds}, {:.2}", estimate.gpu_utilization * 100.0)
}
