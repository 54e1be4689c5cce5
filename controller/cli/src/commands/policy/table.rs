//! Changes of policy as tables.

use ::controller::northbound::service::PolicyRevisionDiff;
use ::controller::preview::PolicyPreview;
use comfy_table::Table;

use command_io::CommandError;
use command_io::output;

use crate::commands::local_time::{format_cell_time, time_heading};
use crate::commands::plan_preview;

/// Everything that a change would do, the verdict first.
pub(super) fn print_preview(preview: &PolicyPreview, shown: usize) -> Result<(), CommandError> {
    let PolicyPreview { policy, plan } = preview;
    if policy.is_empty() {
        return output::print_line("nothing changes");
    }
    output::print_line(plan_preview::describe_outcome(plan))?;
    plan.findings.iter().try_for_each(output::print_line)?;
    output::print_line("")?;
    policy.iter().try_for_each(output::print_line)?;
    plan_preview::print_tables(plan, shown, "crux policy diff")
}

/// Revisions, the latest first.
pub(super) fn history_table(chapters: &[PolicyRevisionDiff]) -> Table {
    let at = time_heading();
    let mut table = output::new_table(["revision", &at, "author", "reason", "changes"]);
    for PolicyRevisionDiff { revision, changes } in chapters {
        let metadata = &revision.metadata;
        let trial = revision.trial.as_ref().map_or("", |_| " (on trial)");
        table.add_row([
            format!("{}{trial}", revision.number),
            // What was in force from the start has no time.
            if metadata.at_ms == 0 { "-".to_owned() } else { format_cell_time(metadata.at_ms) },
            metadata.author.clone(),
            metadata.reason.clone(),
            changes.join("\n"),
        ]);
    }
    table
}
