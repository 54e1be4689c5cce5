//! Replays as a table for people.

use simulator::replay::{AlternativeOutcome, ReplayComparison, ReplayOutcome};
use topology::count_noun;

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

/// Headings of [`alternative_rows`].
pub(super) const ALTERNATIVE_HEADINGS: [&str; 5] =
    ["in force", "GPU utilisation %", "instead", "GPU utilisation %", "ahead, % of GPU time"];

/// What a table shows of the alternatives of all replays.
pub(super) fn alternative_rows(replays: &ReplayComparison) -> Vec<[String; 5]> {
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let of_replay = |outcome: &ReplayOutcome| {
        let row = |alternative: &AlternativeOutcome| {
            [
                outcome.scheduler.clone(),
                percent(alternative.in_force),
                alternative.name.clone(),
                percent(alternative.gpu_utilization),
                percent(alternative.ahead),
            ]
        };
        outcome.alternatives.iter().map(row).collect::<Vec<_>>()
    };
    replays.outcomes.iter().flat_map(of_replay).collect()
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
    let alternatives = alternative_rows(replays);
    if !alternatives.is_empty() {
        output::print_line("\nfor the same jobs at each event:")?;
        let mut table = output::new_table(ALTERNATIVE_HEADINGS);
        table.add_rows(alternatives);
        output::print_line(table)?;
    }
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
