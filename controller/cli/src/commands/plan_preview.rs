//! What another plan would change, as tables.

use ::controller::preview::{FlowChange, JobChange, PlanPreview, ValueChange};
use comfy_table::Table;
use topology::count_noun;

use command_io::CommandError;
use command_io::output;

/// Rows and entries that a table shows unless all are asked for.
pub(super) const SHOWN: usize = 8;

/// Jobs, flows and switches that change; `command` prints all of them.
pub(super) fn print_tables(
    preview: &PlanPreview,
    shown: usize,
    command: &str,
) -> Result<(), CommandError> {
    output::print_line(format_args!("\n{}", job_table(preview)))?;
    if !preview.flows.is_empty() {
        let flows = &preview.flows[..preview.flows.len().min(shown)];
        output::print_line(format_args!("\n{}", flow_table(flows)))?;
        print_left_out(preview.flows.len() - flows.len(), "flows", command)?;
    }
    let switches = &preview.switches[..preview.switches.len().min(shown)];
    for switch in switches {
        let entries = &switch.entries;
        output::print_line(format_args!("\n{}: {} entries", switch.name, entries.len()))?;
        for entry in entries.iter().take(shown) {
            output::print_line(format_args!("  {entry}"))?;
        }
        print_left_out(entries.len().saturating_sub(shown), "entries", command)?;
    }
    print_left_out(preview.switches.len() - switches.len(), "switches", command)
}

/// Says how many rows are left out, if any.
pub(super) fn print_left_out(count: usize, what: &str, command: &str) -> Result<(), CommandError> {
    match count {
        0 => Ok(()),
        count => output::print_line(format_args!(
            "  and {count} more {what}, which {command} --all prints"
        )),
    }
}

/// What changes in numbers, what it is forecast to bring, and what speaks against it.
pub(super) fn describe_outcome(preview: &PlanPreview) -> String {
    let ValueChange { before, after } = preview.gpu_utilization;
    let (before, after) = (before * 100.0, after * 100.0);
    let least = preview.least_gpu_utilization.as_ref().map_or(String::new(), |least| {
        let [before, after] = [least.before, least.after].map(|share| share * 100.0);
        format!("\nat least:  {before:.2} % -> {after:.2} % under DCQCN")
    });
    let relevelled = preview.jobs.iter().filter(|job| job.level.before != job.level.after);
    let entries: usize = preview.switches.iter().map(|switch| switch.entries.len()).sum();
    format!(
        "forecast: GPU utilisation {before:.2} % -> {after:.2} % (fluid model){least}\n\
         changes:  {}, {}, {} on {}\n\
         risk:     {}",
        count_noun(relevelled.count(), "job level"),
        count_noun(preview.flows.len(), "flow path"),
        count_noun(entries, "table update"),
        count_noun(preview.switches.len(), "switch"),
        describe_risk(preview),
    )
}

/// Jobs that would have no forecast any more, as they lose a path; else those that the forecast
/// makes slower by more than a hundredth, the worst first.
fn describe_risk(preview: &PlanPreview) -> String {
    let is_lost = |job: &&JobChange| {
        job.iteration_seconds.before.is_some() && job.iteration_seconds.after.is_none()
    };
    let lost: Vec<&str> = preview.jobs.iter().filter(is_lost).map(|job| job.id.as_str()).collect();
    if !lost.is_empty() {
        let count = count_noun(lost.len(), "job");
        return format!("{count} without a path, or without any iteration: {}", lost.join(", "));
    }
    let mut slower: Vec<(f64, &str)> = preview
        .jobs
        .iter()
        .filter_map(|job| {
            let ratio = job.iteration_seconds.after? / job.iteration_seconds.before?;
            (ratio > 1.01).then_some((ratio, job.id.as_str()))
        })
        .collect();
    slower.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let Some((ratio, worst)) = slower.first() else {
        return "no job is forecast to become slower".to_owned();
    };
    let percent = (ratio - 1.0) * 100.0;
    let count = count_noun(slower.len(), "job");
    format!("{count} forecast to become slower, {worst} the most by {percent:.1} %")
}

fn job_table(preview: &PlanPreview) -> Table {
    let has_band = preview.least_gpu_utilization.is_some();
    let band = has_band.then_some("under DCQCN at most longer by s");
    let mut table = output::new_table(["job", "level", "iteration s"].into_iter().chain(band));
    for job in &preview.jobs {
        let band = job.dcqcn_excess_seconds.as_ref();
        let row = [
            job.id.clone(),
            format_change(&job.level, |level| {
                level.map_or("-".to_owned(), |level| level.to_string())
            }),
            iteration_cell(job),
        ];
        let band = band.map(|change| format_change(change, |seconds| format!("{seconds:.4}")));
        table.add_row(row.into_iter().chain(band));
    }
    table
}

/// What an iteration takes before and after, with the band after where that is wide.
fn iteration_cell(job: &JobChange) -> String {
    let change = format_change(&job.iteration_seconds, |time| {
        time.map_or("-".to_owned(), |time| format!("{time:.4}"))
    });
    let after = job.iteration_band.after.zip(job.iteration_seconds.after);
    let band = after.and_then(|(band, seconds)| band.describe(seconds));
    let turns = match (job.start_shift.before, job.start_shift.after) {
        (had, now) if had == now => None,
        (_, Some(_)) => Some("takes turns".to_owned()),
        (_, None) => Some("takes no turns any more".to_owned()),
    };
    let notes: Vec<String> = band.into_iter().chain(turns).collect();
    if notes.is_empty() { change } else { format!("{change} ({})", notes.join(", ")) }
}

fn flow_table(flows: &[FlowChange]) -> Table {
    let mut table = output::new_table(["job", "UDP port", "from", "to"]);
    for flow in flows {
        table.add_row([
            flow.job.clone(),
            flow.udp_src_port.map_or("any".to_owned(), |port| port.to_string()),
            format_path(&flow.path.before, flow.pinned.before),
            format_path(&flow.path.after, flow.pinned.after),
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
