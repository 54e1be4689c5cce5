//! The demo's result as one HTML page with plots, which needs nothing else.
//!
//! Pure: a report goes in, text comes out. The decision: the figures are those of the JSON.

use command_io::html::escape_html;
use topology::count_noun;

use super::{BusyLinkReport, DemoReport, format_percent};
use crate::figure::theme::{SERIES, ThemeShade};
use crate::figure::{self, FigureAxes, FigureRow, draw_bars, draw_dots};
use crate::page::{full_figure, render_html, render_legend, render_section, render_table};

const CRUX: ThemeShade = SERIES[0];
const ECMP: ThemeShade = SERIES[1];
const PAPER: ThemeShade = SERIES[3];
const ALONE: ThemeShade = SERIES[4];

/// The page.
pub(super) fn render_page(report: &DemoReport) -> String {
    let baseline = report.baseline();
    let title = format!("Crux against {baseline} on the testbed of the paper");
    let heading = format!(
        "<h1>{title}</h1>\n<p class=\"lead\">{} on 96 GPUs and {} embedded switches; seed {}, \
         {} iterations of the slowest job measured. GPU utilisation {:.1}&nbsp;% under Crux, \
         {:.1}&nbsp;% under {baseline}: {} (paper, ECMP: {}).</p>\n",
        count_noun(report.jobs.len(), "job"),
        report.switches,
        report.seed,
        report.iterations,
        report.gpu_utilization.crux * 100.0,
        report.gpu_utilization.ecmp * 100.0,
        format_percent(report.gpu_utilization_change.ours),
        format_percent(report.gpu_utilization_change.paper),
    );
    let body = [
        heading,
        render_utilization(report),
        render_slowdowns(report),
        render_changes(report),
        render_seeds(report),
        render_times(report),
        render_links(report),
        render_evidence(report),
    ];
    render_html(&title, &body.concat())
}

fn render_utilization(report: &DemoReport) -> String {
    let utilization = &report.gpu_utilization;
    let row = |name: &str, value: f64, shade| FigureRow {
        name: name.to_owned(),
        values: vec![(value * 100.0, shade)],
        note: format!("{:.1} %", value * 100.0),
    };
    let rows = [
        row("each job alone", utilization.alone, ALONE),
        row(report.baseline(), utilization.ecmp, ECMP),
        row("Crux", utilization.crux, CRUX),
    ];
    let about = "Share of the jobs' GPU time in which they computed.";
    render_section("GPU utilisation", about, &full_figure(&draw_bars(&percent_axes(), &rows), ""))
}

fn render_slowdowns(report: &DemoReport) -> String {
    let rows: Vec<FigureRow> = report
        .jobs
        .iter()
        .map(|job| {
            let times = &job.iteration_seconds;
            let values = [(times.crux, CRUX), (times.ecmp, ECMP), (times.alone, ALONE)];
            FigureRow {
                name: format!("{} ({} GPUs)", job.id, job.gpus),
                values: values.map(|(seconds, shade)| (seconds / times.alone, shade)).into(),
                note: String::new(),
            }
        })
        .collect();
    let legend = render_legend([("Crux", CRUX), (report.baseline(), ECMP), ("alone", ALONE)]);
    let about = "How much longer than alone on the fabric an iteration takes.";
    let drawn = draw_dots(&axes("times the time alone", &rows), &rows);
    render_section("Iteration time per job", about, &full_figure(&drawn, &legend))
}

fn render_changes(report: &DemoReport) -> String {
    let rows: Vec<FigureRow> = report
        .jobs
        .iter()
        .map(|job| {
            let change = &job.iteration_change;
            let known = [(change.ours, CRUX), (change.paper, PAPER)].into_iter();
            let known = known.filter(|(value, _)| value.is_finite());
            FigureRow {
                name: job.id.clone(),
                values: known.map(|(value, shade)| (value * 100.0, shade)).collect(),
                note: String::new(),
            }
        })
        .collect();
    let legend = render_legend([("ours", CRUX), ("the paper's", PAPER)]);
    let about = "Iteration time under Crux against the network without it, beside Crux (SIGCOMM 2024) section 6.2.";
    let drawn = draw_dots(&axes("%", &rows), &rows);
    render_section("Against the paper", about, &full_figure(&drawn, &legend))
}

/// Nothing for a single seed.
fn render_seeds(report: &DemoReport) -> String {
    if report.seeds.len() < 2 {
        return String::new();
    }
    let rows: Vec<FigureRow> = report
        .seeds
        .iter()
        .map(|seed| {
            let values = [(seed.gpu_utilization.crux, CRUX), (seed.gpu_utilization.ecmp, ECMP)];
            FigureRow {
                name: format!("seed {}", seed.seed),
                values: values.map(|(value, shade)| (value * 100.0, shade)).into(),
                note: String::new(),
            }
        })
        .collect();
    let legend = render_legend([("Crux", CRUX), (report.baseline(), ECMP)]);
    let about = "GPU utilisation by seed of hash and starts.";
    let drawn = draw_dots(&percent_axes(), &rows);
    render_section("Luck of the draw", about, &full_figure(&drawn, &legend))
}

fn render_times(report: &DemoReport) -> String {
    let rows = report.jobs.iter().map(|job| {
        let times = &job.iteration_seconds;
        [
            escape_html(&job.id),
            job.gpus.to_string(),
            job.level.to_string(),
            format!("{:.4}", times.alone),
            format!("{:.4}", times.ecmp),
            format!("{:.4}", times.crux),
            format_percent(job.iteration_change.ours),
        ]
    });
    let baseline = report.baseline();
    let (seconds, change) = (format!("{baseline} s"), format!("Crux vs {baseline}"));
    let headings = ["job", "GPUs", "level", "alone s", &seconds, "Crux s", &change];
    let table = render_table(headings, rows);
    render_section("Iteration times", "Seconds of an iteration.", &table)
}

fn render_links(report: &DemoReport) -> String {
    let figure = |links: &[BusyLinkReport], shade: ThemeShade| {
        let rows: Vec<FigureRow> = links
            .iter()
            .map(|link| FigureRow {
                name: link.link.clone(),
                values: vec![(link.busy_fraction * 100.0, shade)],
                note: format!("{:.1} %", link.busy_fraction * 100.0),
            })
            .collect();
        draw_bars(&percent_axes(), &rows)
    };
    let links = &report.busiest_links;
    let body = [
        full_figure(&figure(&links.ecmp, ECMP), &render_legend([(report.baseline(), ECMP)])),
        full_figure(&figure(&links.crux, CRUX), &render_legend([("Crux", CRUX)])),
    ];
    let about = "Share of time in which the busiest links between switches sent.";
    render_section("Busiest links", about, &body.concat())
}

fn render_evidence(report: &DemoReport) -> String {
    let text = report.evidence_text().replace('\n', "<br>\n");
    render_section("What was checked", "", &format!("<p>{text}</p>\n"))
}

fn percent_axes() -> FigureAxes<'static> {
    FigureAxes { x: "%", y: "", x_range: 0.0..100.0, y_range: 0.0..1.0 }
}

fn axes<'a>(x: &'a str, rows: &[FigureRow]) -> FigureAxes<'a> {
    let values = rows.iter().flat_map(|row| row.values.iter().map(|(value, _)| *value));
    FigureAxes { x, y: "", x_range: figure::round_range(values), y_range: 0.0..1.0 }
}
