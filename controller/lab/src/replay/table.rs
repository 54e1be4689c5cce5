//! Replays as a table for people.

use controller::event_log::count_noun;
use simulator::replay::{ReplayComparison, ReplayOutcome};

use command_io::CommandError;
use command_io::output;

/// Headings of [`outcome_cells`].
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
pub(super) fn outcome_cells(outcome: &ReplayOutcome) -> [String; 9] {
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

pub(super) fn print_replays(replays: &ReplayComparison) -> Result<(), CommandError> {
    let Some(first) = replays.outcomes.first() else {
        return Ok(());
    };
    output::print_line(format_args!(
        "{}, placed by {}, seed {}\n",
        count_noun(first.jobs.len(), "job"),
        first.placement,
        first.seed
    ))?;
    let mut table = output::new_table(HEADINGS);
    for outcome in &replays.outcomes {
        table.add_row(outcome_cells(outcome));
    }
    output::print_line(table)?;
    let mut findings: Vec<String> = Vec::new();
    for outcome in &replays.outcomes {
        let labelled =
            outcome.findings.iter().map(|finding| format!("{}: {finding}", outcome.scheduler));
        findings.extend(labelled);
    }
    findings.iter().try_for_each(output::print_line)?;
    output::print_line("")?;
    let notes = replays.notes.iter();
    notes.map(|note| format!("* {note}")).try_for_each(output::print_line)
}
