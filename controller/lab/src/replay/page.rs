//! Replays as one HTML page: a table, the cluster hour by hour, how jobs were slowed down.

use command_io::html::escape_html;
use simulator::replay::{HourlyUsage, ReplayComparison};

use super::table::{ALTERNATIVE_HEADINGS, HEADINGS, alternative_rows, outcome_cells};
use crate::compare::page::scheduler_shade;
use crate::figure::{FigureAxes, StepSeries, WIDE, draw_lines, round_end};
use crate::page::{full_figure, render_html, render_legend, render_section, render_table};

/// Height of a figure in pixels.
const HEIGHT: u32 = 300;

/// The page.
pub(super) fn render_page(replays: &ReplayComparison) -> String {
    let first = replays.outcomes.first();
    let placement = first.map_or("", |outcome| outcome.placement.as_str());
    let title = format!("Replay under {placement}");
    let notes: String =
        replays.notes.iter().map(|note| format!("<li>{}</li>\n", escape_html(note))).collect();
    let body = format!(
        "<h1>{title}</h1>\n<ul>\n{notes}</ul>\n{}{}{}",
        render_section(
            "What came of it",
            "Times are means over the jobs that ended.",
            &render_table(HEADINGS, replays.outcomes.iter().map(outcome_cells)),
        ),
        render_alternatives(replays),
        render_hours(replays),
    );
    render_html(&title, &body)
}

fn render_alternatives(replays: &ReplayComparison) -> String {
    let rows = alternative_rows(replays);
    if rows.is_empty() {
        return String::new();
    }
    render_section(
        "What else could have been in force",
        "Decided for the same jobs at each event of the replay, and simulated in the same way.",
        &render_table(ALTERNATIVE_HEADINGS, rows),
    )
}

/// What a figure shows of an hour.
type HourMeasure = fn(&HourlyUsage) -> f64;

fn render_hours(replays: &ReplayComparison) -> String {
    let series: [(&str, &str, HourMeasure); 3] = [
        ("GPUs that compute", "GPUs", |hour| hour.busy_gpus),
        ("GPUs that jobs hold", "GPUs", |hour| hour.held_gpus),
        ("Jobs that wait", "jobs", |hour| hour.waiting_jobs),
    ];
    series
        .into_iter()
        .map(|(heading, unit, value)| {
            render_section(
                heading,
                "By hour.",
                &full_figure(&draw_hours(replays, unit, value), &scheduler_legend(replays)),
            )
        })
        .collect()
}

fn draw_hours(replays: &ReplayComparison, unit: &str, value: HourMeasure) -> String {
    let hours =
        replays.outcomes.iter().map(|outcome| outcome.hours.len()).max().unwrap_or(0).max(1);
    let mut drawn = Vec::new();
    for outcome in replays.outcomes.iter().rev() {
        let mut values: Vec<f64> = outcome.hours.iter().map(value).collect();
        values.resize(hours, 0.0);
        drawn.push(StepSeries { values, shade: scheduler_shade(&outcome.scheduler) });
    }
    let most = drawn.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
    let axes = FigureAxes {
        x: "days",
        y: unit,
        x_range: 0.0..hours as f64 / 24.0,
        y_range: 0.0..round_end(most),
    };
    draw_lines(&axes, (WIDE, HEIGHT), &drawn)
}

fn scheduler_legend(replays: &ReplayComparison) -> String {
    let outcomes = replays.outcomes.iter();
    render_legend(outcomes.map(|outcome| (&outcome.scheduler, scheduler_shade(&outcome.scheduler))))
}
