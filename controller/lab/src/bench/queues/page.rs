//! The cases as one HTML page: the deepest queue and the allowed rates of the first seed over time.

use command_io::html::escape_html;

use super::CaseRuns;
use super::case_run::CaseOutcome;
use crate::figure::theme::SERIES;
use crate::figure::{FigureAxes, StepSeries, WIDE, draw_lines, round_end};
use crate::page::{full_figure, render_html, render_legend, render_section};

/// Height of a figure in pixels.
const HEIGHT: u32 = 220;
/// Flows whose rates are drawn; more would hide each other.
const MOST_FLOWS: usize = 5;

/// The page.
pub(super) fn render_page(measured: &[CaseRuns]) -> String {
    let title = "DCQCN over lossless queues";
    let sections: String = measured.iter().filter_map(render_case).collect();
    render_html(title, &format!("<h1>{title}</h1>\n{sections}"))
}

fn render_case(case: &CaseRuns) -> Option<String> {
    let run = case.runs.first()?;
    let about = format!(
        "{} {} marked packets, {} notifications, {} pauses; the last flow ended after {:.0} us, in \
         the fluid model after {:.0} us.",
        case.about,
        run.marked,
        run.notifications,
        run.pauses,
        run.last_us(),
        run.last_fluid_us()
    );
    let queue: Vec<f64> = run.queue_bytes.iter().map(|bytes| *bytes as f64 / 1e3).collect();
    let of_queue = format!("<p class=\"legend\">{}</p>", escape_html(&run.queue_link));
    let queue = StepSeries { values: queue, shade: SERIES[0] };
    let rates = run.rates_gbps.iter().zip(SERIES).take(MOST_FLOWS);
    let rates: Vec<StepSeries> =
        rates.map(|(rates, shade)| StepSeries { values: rates.clone(), shade }).collect();
    let body = format!(
        "{}{}",
        full_figure(&draw_series(run, "queue, kB", &[queue]), &of_queue),
        full_figure(&draw_series(run, "allowed rate, Gb/s", &rates), &flow_legend(run)),
    );
    Some(render_section(&escape_html(&case.case), &about, &body))
}

fn flow_legend(run: &CaseOutcome) -> String {
    let flows = run.flows.iter().zip(SERIES).take(MOST_FLOWS).enumerate();
    render_legend(
        flows
            .map(|(index, (flow, shade))| (format!("{} ({index})", escape_html(&flow.job)), shade)),
    )
}

fn draw_series(run: &CaseOutcome, unit: &str, series: &[StepSeries]) -> String {
    let most = series.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
    let steps = run.queue_bytes.len().max(1) as u64;
    let axes = FigureAxes {
        x: "microseconds",
        y: unit,
        x_range: 0.0..(steps * run.step_us) as f64,
        y_range: 0.0..round_end(most),
    };
    draw_lines(&axes, (WIDE, HEIGHT), series)
}
