//! Changes of policy as tables.

use ::controller::northbound::service::PolicyRevisionDiff;
use ::controller::preview::{PolicyPreview, ValueChange};
use comfy_table::Table;

use command_io::CommandError;
use command_io::output;

use crate::commands::local_time::format_time;

/// Entries of a switch that a table shows.
const SHOWN: usize = 8;

/// Everything that a change would do.
pub(super) fn print_preview(preview: &PolicyPreview) -> Result<(), CommandError> {
    if preview.policy.is_empty() {
        return output::print_line("nothing changes");
    }
    preview.policy.iter().try_for_each(output::print_line)?;
    output::print_line(format_args!("\n{}", job_table(preview)))?;
    if !preview.flows.is_empty() {
        output::print_line(format_args!("\n{}", flow_table(preview)))?;
    }
    for switch in &preview.switches {
        let entries = &switch.entries;
        output::print_line(format_args!("\n{}: {} entries", switch.name, entries.len()))?;
        for entry in entries.iter().take(SHOWN) {
            output::print_line(format_args!("  {entry}"))?;
        }
    }
    let ValueChange { before, after } = preview.gpu_utilization;
    let (before, after) = (before * 100.0, after * 100.0);
    output::print_line(format_args!(
        "\nGPU utilisation {before:.2} % -> {after:.2} % (fluid model)"
    ))?;
    preview.findings.iter().try_for_each(output::print_line)
}

fn job_table(preview: &PolicyPreview) -> Table {
    let mut table = output::new_table(["job", "level", "iteration s"]);
    for job in &preview.jobs {
        table.add_row([
            job.id.clone(),
            format_change(&job.level, |level| {
                level.map_or("-".to_owned(), |level| level.to_string())
            }),
            format_change(&job.iteration_seconds, |time| {
                time.map_or("-".to_owned(), |time| format!("{time:.4}"))
            }),
        ]);
    }
    table
}

fn flow_table(preview: &PolicyPreview) -> Table {
    let mut table = output::new_table(["job", "UDP port", "from", "to"]);
    for flow in &preview.flows {
        table.add_row([
            flow.job.clone(),
            flow.udp_src_port.map_or("any".to_owned(), |port| port.to_string()),
            format_path(&flow.path.before, flow.pinned.before),
            format_path(&flow.path.after, flow.pinned.after),
        ]);
    }
    table
}

/// Revisions, the latest first.
pub(super) fn history_table(chapters: &[PolicyRevisionDiff]) -> Table {
    let mut table = output::new_table(["revision", "at", "author", "reason", "changes"]);
    for PolicyRevisionDiff { revision, changes } in chapters {
        let metadata = &revision.metadata;
        let trial = revision.trial.as_ref().map_or("", |_| " (on trial)");
        table.add_row([
            format!("{}{trial}", revision.number),
            format_time(metadata.at_ms),
            metadata.author.clone(),
            metadata.reason.clone(),
            changes.join("\n"),
        ]);
    }
    table
}

fn format_change<T: Copy + PartialEq>(
    change: &ValueChange<T>,
    show: impl Fn(T) -> String,
) -> String {
    match change.before == change.after {
        true => show(change.after),
        false => format!("{} -> {}", show(change.before), show(change.after)),
    }
}

fn format_path(path: &[String], pinned: bool) -> String {
    match pinned {
        true => path.join(" > "),
        false => format!("{} (ECMP)", path.join(" > ")),
    }
}
