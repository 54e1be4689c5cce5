//! A comparison as tables for people.

use comfy_table::Table;
use simulator::{SchedulerComparison, SchedulerDraws, SimulationOutcome, ValueSpread};

use super::ComparedRuns;
use command_io::CommandError;
use command_io::output;

/// Prints schedulers, then jobs, then findings.
pub(super) fn print_comparison(compared: &ComparedRuns) -> Result<(), CommandError> {
    let comparison = &compared.comparison;
    output::print_line(scheduler_table(comparison))?;
    output::print_line(format_args!("\n{}", job_table(comparison)))?;
    output::print_line("\nIteration times in s, against the job alone on the fabric.")?;
    if let Some(first) = comparison.draws.first() {
        let count = first.count;
        output::print_line(format_args!("\n{}", draw_table(&comparison.draws)))?;
        output::print_line(format_args!(
            "\nGPU utilisation over {count} draws of UDP source ports; the tables above have those \
             of the jobs."
        ))?;
    }
    let of_runs = comparison.outcomes.iter().flat_map(|outcome| {
        let findings = outcome.findings.iter();
        findings.map(move |finding| format!("{}: {finding}", outcome.scheduler))
    });
    let of_input = compared.findings.iter().map(ToString::to_string);
    of_input.chain(of_runs).try_for_each(output::print_line)
}

fn scheduler_table(comparison: &SchedulerComparison) -> Table {
    let headings = [
        "scheduler",
        "GPU utilisation %",
        "gain, points",
        "of all GPUs %",
        "mean slowdown",
        "worst slowdown",
    ];
    let mut table = output::new_table(headings);
    for outcome in &comparison.outcomes {
        table.add_row([
            outcome.scheduler.clone(),
            format!("{:.2}", outcome.gpu_utilization * 100.0),
            utilisation_gain(comparison, outcome),
            format!("{:.2}", outcome.cluster_gpu_utilization * 100.0),
            mean_slowdown(comparison, outcome),
            worst_slowdown(comparison, outcome),
        ]);
    }
    table
}

/// Mean and spread over draws of ports.
fn draw_table(draws: &[SchedulerDraws]) -> Table {
    let headings = ["scheduler", "mean %", "least to most", "gain, points", "least to most"];
    let mut table = output::new_table(headings);
    for SchedulerDraws { scheduler, gpu_utilization, gain, .. } in draws {
        let percent = |value: f64| format!("{:.2}", value * 100.0);
        // Adding zero makes -0 a plain 0.
        let points = |value: f64| format!("{:+.2}", (value * 1e4).round() / 100.0 + 0.0);
        let ValueSpread { mean, standard_deviation, least, most } = gpu_utilization;
        table.add_row([
            scheduler.clone(),
            format!("{} ± {}", percent(*mean), percent(*standard_deviation)),
            format!("{} to {}", percent(*least), percent(*most)),
            format!("{} ± {}", points(gain.mean), percent(gain.standard_deviation)),
            format!("{} to {}", points(gain.least), points(gain.most)),
        ]);
    }
    table
}

/// Points of utilisation over the first scheduler.
pub(super) fn utilisation_gain(
    comparison: &SchedulerComparison,
    outcome: &SimulationOutcome,
) -> String {
    let first = &comparison.outcomes[0];
    let points = (outcome.gpu_utilization - first.gpu_utilization) * 100.0;
    format!("{points:+.2}")
}

pub(super) fn mean_slowdown(
    comparison: &SchedulerComparison,
    outcome: &SimulationOutcome,
) -> String {
    let slowdowns = comparison.job_slowdowns(outcome);
    let known: Vec<f64> = slowdowns.into_iter().flatten().collect();
    if known.is_empty() {
        return "-".to_owned();
    }
    format!("{:.3}", known.iter().sum::<f64>() / known.len() as f64)
}

pub(super) fn worst_slowdown(
    comparison: &SchedulerComparison,
    outcome: &SimulationOutcome,
) -> String {
    let worst = comparison.worst_slowdown(outcome);
    worst.map_or_else(|| "-".to_owned(), |(job, slowdown)| format!("{slowdown:.3} ({})", job.id))
}

fn job_table(comparison: &SchedulerComparison) -> Table {
    let mut table = output::new_table([""; 0]);
    let names = comparison.outcomes.iter().map(|outcome| outcome.scheduler.as_str());
    table.set_header(["job", "GPUs", "alone"].into_iter().chain(names));
    for (index, alone) in comparison.alone.iter().enumerate() {
        let cells = comparison.outcomes.iter().map(|outcome| {
            let slowdown = comparison.job_slowdowns(outcome)[index];
            format_iteration(outcome.jobs[index].mean_iteration_seconds, slowdown)
        });
        let first =
            [alone.id.clone(), alone.gpus.to_string(), format_seconds(alone.iteration_seconds)];
        table.add_row(first.into_iter().chain(cells));
    }
    table
}

pub(super) fn format_seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// Per cent that something takes longer than alone. Adding zero makes -0 a plain 0.
fn excess_percent(slowdown: f64) -> f64 {
    ((slowdown - 1.0) * 100.0).round() + 0.0
}

/// An iteration time and how much longer than alone it is.
pub(super) fn format_iteration(mean: Option<f64>, slowdown: Option<f64>) -> String {
    let more = slowdown.map(|slowdown| format!(" {:+.0}%", excess_percent(slowdown)));
    format_seconds(mean) + &more.unwrap_or_default()
}
