//! What each figure of the page shows: from outcomes and timelines to axes, rows and series.

use std::collections::{BTreeMap, BTreeSet};

use simulator::{LinkSeries, SchedulerComparison, TierSeries, Timeline, TimelineView};

use super::super::ComparedRuns;
use crate::figure::theme::{BANDS, INK, LEVELS, SERIES, ThemeShade};
use crate::figure::{
    FigureAxes, FigureRow, Mark, StepSeries, WIDE, draw_bars, draw_dots, draw_lines, draw_marks,
    round_end, stack_layers,
};

/// The colour of a scheduler: the same on every page.
pub(crate) fn scheduler_shade(scheduler: &str) -> ThemeShade {
    let place = match scheduler {
        "crux" => 0,
        "sincronia" => 1,
        "taccl" => 2,
        "cassini" => 3,
        "varys" => 5,
        "crux-pa" => 6,
        "crux-ps-pa" => 7,
        "taccl-job" => 8,
        _ => 4,
    };
    SERIES[place]
}

/// A bar for each scheduler.
pub(super) fn draw_utilisation(comparison: &SchedulerComparison) -> String {
    let rows: Vec<FigureRow> = comparison
        .outcomes
        .iter()
        .map(|outcome| FigureRow {
            name: outcome.scheduler.clone(),
            values: vec![(outcome.gpu_utilization * 100.0, scheduler_shade(&outcome.scheduler))],
            note: format!("{:.2} %", outcome.gpu_utilization * 100.0),
        })
        .collect();
    let most = rows.iter().flat_map(|row| &row.values).map(|(value, _)| *value).fold(0.0, f64::max);
    let axes = FigureAxes {
        x: "GPU utilisation, %",
        y: "",
        x_range: 0.0..round_end(most).min(100.0),
        y_range: 0.0..1.0,
    };
    draw_bars(&axes, &rows)
}

/// Jobs that have a row of their own.
const MOST_ROWS: usize = 60;

/// A row for each job, slowest first, with a dot for each scheduler.
pub(super) fn draw_slowdowns(comparison: &SchedulerComparison) -> String {
    let by_outcome: Vec<_> =
        comparison.outcomes.iter().map(|o| comparison.job_slowdowns(o)).collect();
    let mut rows = Vec::new();
    for (index, job) in comparison.alone.iter().enumerate() {
        let by_scheduler = comparison.outcomes.iter().zip(&by_outcome);
        let mut values: Vec<(f64, ThemeShade)> = by_scheduler
            .filter_map(|(outcome, slowdowns)| {
                let shade = scheduler_shade(&outcome.scheduler);
                Some((excess_percent(slowdowns[index]?), shade))
            })
            .collect();
        // What matters most comes first, and is drawn last.
        values.sort_by_key(|(_, shade)| *shade != SERIES[0]);
        rows.push(FigureRow { name: job.id.clone(), values, note: format!("{} GPUs", job.gpus) });
    }
    rows.sort_by(|a, b| largest_value(b).total_cmp(&largest_value(a)));
    rows.truncate(MOST_ROWS);
    let most = rows.iter().map(largest_value).fold(0.0, f64::max);
    let axes = FigureAxes {
        x: "iteration longer than alone, %",
        y: "",
        x_range: 0.0..round_end(most),
        y_range: 0.0..1.0,
    };
    draw_dots(&axes, &rows)
}

fn largest_value(row: &FigureRow) -> f64 {
    row.values.iter().map(|(value, _)| *value).fold(0.0, f64::max)
}

/// Per cent that an iteration takes longer than alone.
fn excess_percent(slowdown: f64) -> f64 {
    (slowdown - 1.0) * 100.0
}

/// FLOP/s in the unit of the axis.
const PETA: f64 = 1e15;

/// A line for each scheduler: what its jobs' traffic unblocks, over the whole run.
pub(super) fn draw_intensity(compared: &ComparedRuns) -> String {
    let timelines: Vec<&Timeline> = compared.timelines.iter().map(|[whole, _]| whole).collect();
    let Some(first) = timelines.first() else {
        return String::new();
    };
    let named = compared.comparison.outcomes.iter().zip(&timelines);
    let mut series: Vec<StepSeries> = named
        .map(|(outcome, timeline)| StepSeries {
            values: timeline.intensity.iter().map(|flops| flops / PETA).collect(),
            shade: scheduler_shade(&outcome.scheduler),
        })
        .collect();
    series.sort_by_key(|line| line.shade != SERIES[0]);
    let most = series.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max);
    let axes = FigureAxes {
        x: "time, s",
        y: "intensity, PFLOP/s",
        x_range: first.view.from_seconds..first.view.until_seconds,
        y_range: 0.0..round_end(most),
    };
    draw_lines(&axes, (WIDE, 260), &series)
}

/// Whose traffic was on the links of one kind, the most intense jobs at the bottom, and over it the
/// share of GPUs that computed.
pub(super) fn draw_wire(timeline: &Timeline, wire: &TierSeries) -> String {
    let bands = wire.bands.iter().enumerate();
    let layers: Vec<StepSeries> = bands
        .map(|(band, values)| StepSeries {
            values: to_percent(values),
            shade: band_shade(band, wire.bands.len()),
        })
        .collect();
    let axes = time_axes(timeline.view, "share, %");
    let mut marks = stack_layers(&axes, &layers);
    marks.push(Mark::steps(&axes, &to_percent(&timeline.computing), INK));
    draw_marks(&axes, (WIDE / 2, 190), &marks)
}

/// The colours of `count` bands of intensity, the most intense first.
pub(super) fn band_shades(count: usize) -> Vec<ThemeShade> {
    (0..count).map(|band| band_shade(band, count)).collect()
}

fn band_shade(band: usize, count: usize) -> ThemeShade {
    BANDS[band * (BANDS.len() - 1) / count.saturating_sub(1).max(1)]
}

fn to_percent(shares: &[f64]) -> Vec<f64> {
    shares.iter().map(|share| share * 100.0).collect()
}

/// Axes of per cent over the time of a view.
fn time_axes(view: TimelineView, y: &str) -> FigureAxes<'_> {
    FigureAxes {
        x: "time, s",
        y,
        x_range: view.from_seconds..view.until_seconds,
        y_range: 0.0..100.0,
    }
}

/// The levels that a timeline shows with their colours, the highest first.
pub(super) fn level_shades(timeline: &Timeline) -> BTreeMap<u32, ThemeShade> {
    let all: BTreeSet<u32> =
        timeline.links.iter().flat_map(|link| link.levels.keys().copied()).collect();
    let last = all.len().saturating_sub(1).max(1);
    all.iter()
        .rev()
        .enumerate()
        .map(|(place, level)| {
            let strength = place * (LEVELS.len() - 2) / last;
            (*level, LEVELS[if all.len() == 1 { 3 } else { strength }])
        })
        .collect()
}

/// How a link was shared over time, the level served first at the bottom.
pub(super) fn draw_link(
    view: TimelineView,
    series: &LinkSeries,
    levels: &BTreeMap<u32, ThemeShade>,
) -> String {
    let layers: Vec<StepSeries> = series
        .levels
        .iter()
        .rev()
        .map(|(level, values)| StepSeries {
            values: to_percent(values),
            shade: levels.get(level).copied().unwrap_or(LEVELS[0]),
        })
        .collect();
    let axes = time_axes(view, "busy, %");
    draw_marks(&axes, (WIDE / 2, 190), &stack_layers(&axes, &layers))
}
