//! Replays as one HTML page: a table, the cluster hour by hour, how jobs were slowed down.

use simulator::replay::{Hour, ReplayOutcome, Replays};

use super::table::{HEADINGS, cells};
use crate::commands::compare::page::{entry, escaped, full, html, section, shade};
use crate::figure::{Axes, Steps, WIDE, lines, round_end};

/// Height of a figure in pixels.
const HEIGHT: u32 = 300;

/// The page.
pub(super) fn page(replays: &Replays) -> String {
    let first = replays.outcomes.first();
    let placement = first.map_or("", |outcome| outcome.placement.as_str());
    let title = format!("Replay under {placement}");
    let notes = replays.notes.iter();
    let notes: String = notes
        .map(|note| format!("<li>{}</li>\n", escaped(note)))
        .collect();
    let body = format!(
        "<h1>{title}</h1>\n<ul>\n{notes}</ul>\n{}{}",
        section(
            "What came of it",
            "Times are means over the jobs that ended.",
            &summary(replays)
        ),
        over_time(replays),
    );
    html(&title, &body)
}

fn summary(replays: &Replays) -> String {
    let headings: String = HEADINGS
        .iter()
        .map(|name| format!("<th>{name}</th>"))
        .collect();
    let row = |outcome: &ReplayOutcome| {
        let [name, values @ ..] = cells(outcome);
        let values: String = values
            .iter()
            .map(|value| format!("<td>{value}</td>"))
            .collect();
        format!("<tr><th scope=\"row\">{name}</th>{values}</tr>\n")
    };
    let rows: String = replays.outcomes.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n"
    )
}

/// What a figure shows of an hour.
type Value = fn(&Hour) -> f64;

fn over_time(replays: &Replays) -> String {
    let series: [(&str, &str, Value); 3] = [
        ("GPUs that compute", "GPUs", |hour| hour.busy_gpus),
        ("GPUs that jobs hold", "GPUs", |hour| hour.held_gpus),
        ("Jobs that wait", "jobs", |hour| hour.waiting_jobs),
    ];
    let one = |(heading, unit, value): (&str, &str, Value)| {
        section(
            heading,
            "By hour.",
            &full(&figure(replays, unit, value), &legend(replays)),
        )
    };
    series.into_iter().map(one).collect()
}

fn figure(replays: &Replays, unit: &str, value: Value) -> String {
    let hours = replays
        .outcomes
        .iter()
        .map(|outcome| outcome.hours.len())
        .max();
    let hours = hours.unwrap_or(0).max(1);
    let line = |outcome: &ReplayOutcome| {
        let mut values: Vec<f64> = outcome.hours.iter().map(value).collect();
        values.resize(hours, 0.0);
        Steps {
            values,
            shade: shade(&outcome.scheduler),
        }
    };
    let drawn: Vec<Steps> = replays.outcomes.iter().rev().map(line).collect();
    let most = drawn
        .iter()
        .flat_map(|line| &line.values)
        .copied()
        .fold(1.0, f64::max);
    let axes = Axes {
        x: "days",
        y: unit,
        x_range: 0.0..hours as f64 / 24.0,
        y_range: 0.0..round_end(most),
    };
    lines(&axes, (WIDE, HEIGHT), &drawn)
}

fn legend(replays: &Replays) -> String {
    let outcomes = replays.outcomes.iter();
    let entries: String = outcomes
        .map(|outcome| entry(&outcome.scheduler, shade(&outcome.scheduler)))
        .collect();
    format!("<p class=\"legend\">{entries}</p>")
}
