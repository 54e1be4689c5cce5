//! Changes of policy as tables.

use ::controller::northbound::service::Chapter;
use ::controller::preview::{Change, Preview};
use comfy_table::Table;

use crate::failure::Failure;
use crate::output;

/// Entries of a switch that a table shows.
const SHOWN: usize = 8;

/// Everything that a change would do.
pub(super) fn preview(preview: &Preview) -> Result<(), Failure> {
    if preview.policy.is_empty() {
        return output::print("nothing changes");
    }
    preview.policy.iter().try_for_each(output::print)?;
    output::print(format_args!("\n{}", jobs(preview)))?;
    if !preview.flows.is_empty() {
        output::print(format_args!("\n{}", flows(preview)))?;
    }
    for switch in &preview.switches {
        let entries = &switch.entries;
        output::print(format_args!("\n{}: {} entries", switch.name, entries.len()))?;
        for entry in entries.iter().take(SHOWN) {
            output::print(format_args!("  {entry}"))?;
        }
    }
    let Change { before, after } = preview.gpu_utilization;
    let (before, after) = (before * 100.0, after * 100.0);
    output::print(format_args!(
        "\nGPU utilisation {before:.2} % -> {after:.2} % (fluid model)"
    ))?;
    preview.findings.iter().try_for_each(output::print)
}

fn jobs(preview: &Preview) -> Table {
    let mut table = output::table(["job", "level", "iteration s"]);
    for job in &preview.jobs {
        let level = |level: Option<u8>| level.map_or("-".to_owned(), |level| level.to_string());
        let seconds = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.4}"));
        table.add_row([
            job.id.clone(),
            arrow(&job.level, level),
            arrow(&job.iteration_seconds, seconds),
        ]);
    }
    table
}

fn flows(preview: &Preview) -> Table {
    let mut table = output::table(["job", "UDP port", "from", "to"]);
    for flow in &preview.flows {
        let path = |path: &[String], pinned: bool| match pinned {
            true => path.join(" > "),
            false => format!("{} (ECMP)", path.join(" > ")),
        };
        table.add_row([
            flow.job.clone(),
            flow.udp_src_port.to_string(),
            path(&flow.path.before, flow.pinned.before),
            path(&flow.path.after, flow.pinned.after),
        ]);
    }
    table
}

/// Editions, the latest first.
pub(super) fn history(chapters: &[Chapter]) -> Table {
    let mut table = output::table(["edition", "at (Unix s)", "who", "why", "changes"]);
    for Chapter { edition, changes } in chapters {
        let signature = &edition.signature;
        let trial = edition.trial.as_ref().map_or("", |_| " (on trial)");
        table.add_row([
            format!("{}{trial}", edition.number),
            (signature.at_ms / 1_000).to_string(),
            signature.who.clone(),
            signature.why.clone(),
            changes.join("\n"),
        ]);
    }
    table
}

fn arrow<T: Copy + PartialEq>(change: &Change<T>, show: impl Fn(T) -> String) -> String {
    match change.before == change.after {
        true => show(change.after),
        false => format!("{} -> {}", show(change.before), show(change.after)),
    }
}
