//! What each figure of the page shows: from outcomes and timelines to axes, rows and series.

use std::collections::{BTreeMap, BTreeSet};

use simulator::{Comparison, LinkSeries, Timeline, View, WireSeries};

use super::super::Compared;
use crate::figure::theme::{BANDS, CLASSES, INK, SERIES, Shade};
use crate::figure::{Axes, Row, Steps, WIDE, bars, dots, lines, round_end, stacked};

/// The colour of a scheduler: the same on every page.
pub(in crate::commands) fn shade(scheduler: &str) -> Shade {
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
pub(super) fn utilisation(comparison: &Comparison) -> String {
    let rows: Vec<Row> = comparison
        .outcomes
        .iter()
        .map(|outcome| Row {
            name: outcome.scheduler.clone(),
            values: vec![(outcome.gpu_utilization * 100.0, shade(&outcome.scheduler))],
            note: format!("{:.2} %", outcome.gpu_utilization * 100.0),
        })
        .collect();
    let most = rows.iter().flat_map(|row| &row.values);
    let most = most.map(|(value, _)| *value).fold(0.0, f64::max);
    let axes = Axes {
        x: "GPU utilisation, %",
        y: "",
        x_range: 0.0..round_end(most).min(100.0),
        y_range: 0.0..1.0,
    };
    bars(&axes, &rows)
}

/// Jobs that have a row of their own.
const MOST_ROWS: usize = 60;

/// A row for each job, slowest first, with a dot for each scheduler.
pub(super) fn slowdowns(comparison: &Comparison) -> String {
    let by_outcome: Vec<_> = comparison
        .outcomes
        .iter()
        .map(|o| comparison.slowdowns(o))
        .collect();
    let row = |(index, job): (usize, &simulator::Alone)| {
        let named = comparison.outcomes.iter().zip(&by_outcome);
        let values = named.filter_map(|(o, all)| Some((longer(all[index]?), shade(&o.scheduler))));
        // What matters most comes first, and is drawn last.
        let mut values: Vec<(f64, Shade)> = values.collect();
        values.sort_by_key(|(_, shade)| *shade != SERIES[0]);
        Row {
            name: job.id.clone(),
            values,
            note: format!("{} GPUs", job.gpus),
        }
    };
    let mut rows: Vec<Row> = comparison.alone.iter().enumerate().map(row).collect();
    let worst = |row: &Row| {
        row.values
            .iter()
            .map(|(value, _)| *value)
            .fold(0.0, f64::max)
    };
    rows.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
    rows.truncate(MOST_ROWS);
    let most = rows.iter().map(worst).fold(0.0, f64::max);
    let axes = Axes {
        x: "iteration longer than alone, %",
        y: "",
        x_range: 0.0..round_end(most),
        y_range: 0.0..1.0,
    };
    dots(&axes, &rows)
}

/// Per cent that an iteration takes longer than alone.
fn longer(slowdown: f64) -> f64 {
    (slowdown - 1.0) * 100.0
}

/// FLOP/s in the unit of the axis.
const PETA: f64 = 1e15;

/// A line for each scheduler: what its jobs' traffic unblocks, over the whole run.
pub(super) fn intensity(compared: &Compared) -> String {
    let timelines: Vec<&Timeline> = compared.timelines.iter().map(|[whole, _]| whole).collect();
    let Some(first) = timelines.first() else {
        return String::new();
    };
    let named = compared.comparison.outcomes.iter().zip(&timelines);
    let mut series: Vec<Steps> = named
        .map(|(outcome, timeline)| Steps {
            values: timeline
                .intensity
                .iter()
                .map(|flops| flops / PETA)
                .collect(),
            shade: shade(&outcome.scheduler),
        })
        .collect();
    series.sort_by_key(|line| line.shade != SERIES[0]);
    let most = series.iter().flat_map(|line| &line.values);
    let most = most.copied().fold(0.0, f64::max);
    let axes = Axes {
        x: "time, s",
        y: "intensity, PFLOP/s",
        x_range: first.view.from_seconds..first.view.until_seconds,
        y_range: 0.0..round_end(most),
    };
    lines(&axes, (WIDE, 260), &series)
}

/// Whose traffic was on the links of one kind, the most intense jobs at the bottom, and over it the
/// share of GPUs that computed.
pub(super) fn wire(timeline: &Timeline, wire: &WireSeries) -> String {
    let bands = wire.bands.iter().enumerate();
    let layers: Vec<Steps> = bands
        .map(|(band, values)| Steps {
            values: percent(values),
            shade: band_shade(band, wire.bands.len()),
        })
        .collect();
    let computing = Steps {
        values: percent(&timeline.computing),
        shade: INK,
    };
    let axes = over_time(timeline.view, "share, %");
    stacked(&axes, (WIDE / 2, 190), &layers, &[computing])
}

/// The colours of `count` bands of intensity, the most intense first.
pub(super) fn band_shades(count: usize) -> Vec<Shade> {
    (0..count).map(|band| band_shade(band, count)).collect()
}

fn band_shade(band: usize, count: usize) -> Shade {
    BANDS[band * (BANDS.len() - 1) / count.saturating_sub(1).max(1)]
}

fn percent(shares: &[f64]) -> Vec<f64> {
    shares.iter().map(|share| share * 100.0).collect()
}

/// Axes of per cent over the time of a view.
fn over_time(view: View, y: &str) -> Axes<'_> {
    Axes {
        x: "time, s",
        y,
        x_range: view.from_seconds..view.until_seconds,
        y_range: 0.0..100.0,
    }
}

/// The classes that a timeline shows with their colours, the highest first.
pub(super) fn classes(timeline: &Timeline) -> BTreeMap<u32, Shade> {
    let all: BTreeSet<u32> = timeline
        .links
        .iter()
        .flat_map(|link| link.levels.keys().copied())
        .collect();
    let last = all.len().saturating_sub(1).max(1);
    let shade = |(place, class): (usize, &u32)| {
        let strength = place * (CLASSES.len() - 2) / last;
        (*class, CLASSES[if all.len() == 1 { 3 } else { strength }])
    };
    all.iter().rev().enumerate().map(shade).collect()
}

/// How a link was shared over time, the class served first at the bottom.
pub(super) fn link(view: View, series: &LinkSeries, classes: &BTreeMap<u32, Shade>) -> String {
    let layers: Vec<Steps> = series
        .levels
        .iter()
        .rev()
        .map(|(class, values)| Steps {
            values: percent(values),
            shade: classes.get(class).copied().unwrap_or(CLASSES[0]),
        })
        .collect();
    stacked(&over_time(view, "busy, %"), (WIDE / 2, 190), &layers, &[])
}
