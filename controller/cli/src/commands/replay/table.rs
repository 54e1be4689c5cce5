//! Replays as a table for people.

use simulator::replay::{ReplayOutcome, Replays};

use crate::failure::Failure;
use crate::output;

/// Headings of [`cells`].
pub(super) const HEADINGS: [&str; 9] = [
    "scheduler",
    "GPU utilisation %",
    "of all GPUs %",
    "completion s",
    "waiting s",
    "slowdown",
    "worst",
    "not completed",
    "unsure %",
];

/// What a table shows of one replay.
pub(super) fn cells(outcome: &ReplayOutcome) -> [String; 9] {
    [
        outcome.scheduler.clone(),
        format!("{:.2}", outcome.gpu_utilization * 100.0),
        format!("{:.2}", outcome.cluster_gpu_utilization * 100.0),
        format!("{:.0}", outcome.mean_completion_seconds),
        format!("{:.0}", outcome.mean_wait_seconds),
        format!("{:.3}", outcome.mean_slowdown),
        format!("{:.2}", outcome.worst_slowdown),
        outcome.not_completed.to_string(),
        format!("{:.2}", outcome.unsure * 100.0),
    ]
}

pub(super) fn print(replays: &Replays) -> Result<(), Failure> {
    let Some(first) = replays.outcomes.first() else {
        return Ok(());
    };
    output::print(format_args!(
        "{} jobs, placed by {}, seed {}\n",
        first.jobs.len(),
        first.placement,
        first.seed
    ))?;
    let mut table = output::table(HEADINGS);
    for outcome in &replays.outcomes {
        table.add_row(cells(outcome));
    }
    output::print(table)?;
    let mut findings: Vec<String> = Vec::new();
    for outcome in &replays.outcomes {
        let told = outcome.findings.iter();
        findings.extend(told.map(|finding| format!("{}: {finding}", outcome.scheduler)));
    }
    findings.iter().try_for_each(output::print)?;
    output::print("")?;
    let notes = replays.notes.iter();
    notes
        .map(|note| format!("* {note}"))
        .try_for_each(output::print)
}
