//! A comparison as tables for people.

use comfy_table::Table;
use simulator::{Comparison, Outcome};

use super::Compared;
use crate::failure::Failure;
use crate::output;

/// Prints schedulers, then jobs, then findings.
pub(super) fn print(compared: &Compared) -> Result<(), Failure> {
    let comparison = &compared.comparison;
    output::print(schedulers(comparison))?;
    output::print(format_args!("\n{}", jobs(comparison)))?;
    output::print("\nIteration times in s, against the job alone on the fabric.")?;
    let of_runs = comparison.outcomes.iter().flat_map(|outcome| {
        let findings = outcome.findings.iter();
        findings.map(move |finding| format!("{}: {finding}", outcome.scheduler))
    });
    let of_input = compared.findings.iter().map(ToString::to_string);
    of_input.chain(of_runs).try_for_each(output::print)
}

fn schedulers(comparison: &Comparison) -> Table {
    let headings = [
        "scheduler",
        "GPU utilisation %",
        "gain, points",
        "of all GPUs %",
        "mean slowdown",
        "worst slowdown",
    ];
    let mut table = output::table(headings);
    for outcome in &comparison.outcomes {
        table.add_row([
            outcome.scheduler.clone(),
            format!("{:.2}", outcome.gpu_utilization * 100.0),
            gain(comparison, outcome),
            format!("{:.2}", outcome.cluster_gpu_utilization * 100.0),
            mean_slowdown(comparison, outcome),
            worst_slowdown(comparison, outcome),
        ]);
    }
    table
}

/// Points of utilisation over the first scheduler.
pub(super) fn gain(comparison: &Comparison, outcome: &Outcome) -> String {
    let first = &comparison.outcomes[0];
    let points = (outcome.gpu_utilization - first.gpu_utilization) * 100.0;
    format!("{points:+.2}")
}

pub(super) fn mean_slowdown(comparison: &Comparison, outcome: &Outcome) -> String {
    let slowdowns = comparison.slowdowns(outcome);
    let known: Vec<f64> = slowdowns.into_iter().flatten().collect();
    if known.is_empty() {
        return "-".to_owned();
    }
    format!("{:.3}", known.iter().sum::<f64>() / known.len() as f64)
}

pub(super) fn worst_slowdown(comparison: &Comparison, outcome: &Outcome) -> String {
    let worst = comparison.worst(outcome);
    worst.map_or_else(
        || "-".to_owned(),
        |(job, slowdown)| format!("{slowdown:.3} ({})", job.id),
    )
}

fn jobs(comparison: &Comparison) -> Table {
    let mut table = output::table([""; 0]);
    let names = comparison
        .outcomes
        .iter()
        .map(|outcome| outcome.scheduler.as_str());
    table.set_header(["job", "GPUs", "alone"].into_iter().chain(names));
    for (index, alone) in comparison.alone.iter().enumerate() {
        let cells = comparison.outcomes.iter().map(|outcome| {
            let slowdown = comparison.slowdowns(outcome)[index];
            iteration(outcome.jobs[index].mean_iteration_seconds, slowdown)
        });
        let first = [
            alone.id.clone(),
            alone.gpus.to_string(),
            seconds(alone.iteration_seconds),
        ];
        table.add_row(first.into_iter().chain(cells));
    }
    table
}

pub(super) fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// Per cent that something takes longer than alone. Adding zero makes -0 a plain 0.
fn longer(slowdown: f64) -> f64 {
    ((slowdown - 1.0) * 100.0).round() + 0.0
}

/// An iteration time and how much longer than alone it is.
pub(super) fn iteration(mean: Option<f64>, slowdown: Option<f64>) -> String {
    let more = slowdown.map(|slowdown| format!(" {:+.0}%", longer(slowdown)));
    seconds(mean) + &more.unwrap_or_default()
}
