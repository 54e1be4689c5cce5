//! The report as one HTML page that needs nothing else.
//!
//! Pure: a report goes in, text comes out.

use ::controller::event_log::OperatorEvent;
use ::controller::northbound::controller_view::JobRow;
use ::controller::northbound::utilization::{UtilizationMeans, UtilizationSeries};
use topology::Finding;
use topology::count_noun;

use super::UtilizationReport;
use super::plot::{self, PlotMark};
use crate::commands::local_time::format_time;
use command_io::html::escape_html;

const STYLE: &str = include_str!("style.css");

/// Jobs with a plot of their own: those with the most GPUs.
const PLOTTED_JOBS: usize = 12;

/// Events that are listed, the latest.
const LISTED_EVENTS: usize = 100;

/// The page.
pub(super) fn render_page(report: &UtilizationReport) -> String {
    let body = [
        render_summary(report),
        render_plots(report),
        render_table("Tenants", &report.history.tenants),
        render_table("Jobs", &report.history.jobs),
        render_iterations(&report.jobs),
        render_findings(&report.findings),
        render_events(&report.events),
        METHOD.to_owned(),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Crux: GPU utilisation</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {}</main>\n</body>\n</html>\n",
        body.concat()
    )
}

const METHOD: &str = "<h2>How to read it</h2>\n<p class=\"quiet\">Utilisation is the time in which \
    the GPUs of a job compute, as a share of all of its time: its computation time over the time \
    of an iteration. Measured: iterations as jobs report them, else as switches count them. \
    Planned: by the fluid model under the plan in force. ECMP: by that model with paths by hash, \
    the mean of several draws, and one level. Gain: measured less ECMP, of the jobs that are \
    measured; planned gain: planned less ECMP, of all. Measured and planned values are compared \
    over the jobs that are measured. By phases: the mean iteration over the stretch of a forecast where it \
    is shortest, and where it is longest.</p>\n";

/// The result in a few lines.
pub(super) fn summary_lines(report: &UtilizationReport) -> Vec<String> {
    let UtilizationReport { history, forecast_error, gain_points, planned_gain_points, .. } =
        report;
    let (Some(from), Some(to)) = (history.at_ms.first(), history.at_ms.last()) else {
        return vec!["no sample yet; a controller takes one every five seconds".to_owned()];
    };
    let UtilizationMeans { measured, expected, forecast, ecmp, .. } = history.total.means;
    let error =
        forecast_error.map_or_else(String::new, |error| format!(" ({:+.1} %)", 100.0 * error));
    let points = |gain: Option<f64>| {
        gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:+.1} points"))
    };
    vec![
        format!(
            "{} to {}, {}",
            format_time(*from),
            format_time(*to),
            count_noun(history.jobs.len(), "job")
        ),
        format!(
            "GPU utilisation measured {}, planned {}{error}; gain over ECMP {}",
            percent(measured),
            percent(expected),
            points(*gain_points)
        ),
        format!(
            "of all jobs planned {}, under ECMP {}; planned gain {}",
            percent(forecast),
            percent(ecmp),
            points(*planned_gain_points)
        ),
    ]
}

fn render_summary(report: &UtilizationReport) -> String {
    let lines = summary_lines(report).into_iter().map(|line| format!("<p>{line}</p>\n"));
    format!("<h1>GPU utilisation</h1>\n<div class=\"lead\">{}</div>\n", lines.collect::<String>())
}

fn render_plots(report: &UtilizationReport) -> String {
    let history = &report.history;
    let marks: Vec<PlotMark<'_>> = report
        .events
        .iter()
        .map(|event| PlotMark { at_ms: event.at_ms, text: &event.text })
        .collect();
    let figure = |name: &str, series: &UtilizationSeries| {
        let svg = plot::draw_series(&history.at_ms, series, &marks);
        format!("<figure><figcaption>{}</figcaption>\n{svg}</figure>\n", escape_html(name))
    };
    let mut largest: Vec<&UtilizationSeries> = history.jobs.iter().collect();
    largest.sort_by_key(|series| std::cmp::Reverse(series.gpus.iter().max().copied()));
    largest.truncate(PLOTTED_JOBS);
    let legend = "<p class=\"legend\"><i class=\"measured\"></i>measured <i class=\"planned\"></i>\
        planned <i class=\"ecmp\"></i>under ECMP; dotted: events</p>\n";
    let tenants = history.tenants.iter().map(|one| figure(&format!("tenant {}", one.name), one));
    let jobs = largest.into_iter().map(|one| figure(&format!("job {}", one.name), one));
    format!(
        "{legend}{}<div class=\"small\">\n{}</div>\n",
        figure("all jobs", &history.total),
        tenants.chain(jobs).collect::<String>()
    )
}

fn render_table(title: &str, rows: &[UtilizationSeries]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows: String = rows.iter().map(render_row).collect();
    format!(
        "<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>name</th><th>tenant</th>\
         <th>GPUs</th><th>measured</th><th>gain, points</th><th>planned for these</th>\
         <th>difference</th><th>planned</th><th>ECMP</th><th>planned gain</th></tr></thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n"
    )
}

fn render_row(series: &UtilizationSeries) -> String {
    let UtilizationMeans { measured, expected, forecast, ecmp, measured_gain } = series.means;
    let signed = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:+.1}{unit}"))
    };
    let hundredfold = |value: Option<f64>| value.map(|value| 100.0 * value);
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escape_html(&series.name),
        escape_html(series.tenant.as_deref().unwrap_or_default()),
        series.gpus.last().copied().unwrap_or(0),
        percent(measured),
        signed(hundredfold(measured_gain), ""),
        percent(expected),
        signed(hundredfold(series.means.forecast_error()), " %"),
        percent(forecast),
        percent(ecmp),
        signed(hundredfold(series.means.planned_gain()), ""),
    )
}

/// What an iteration of each job takes: alone, as forecast with its band, and measured.
fn render_iterations(jobs: &[JobRow]) -> String {
    let seconds =
        |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.4}"));
    let rows = jobs.iter().map(|job| {
        let band = job.forecast_band.map_or_else(
            || "-".to_owned(),
            |band| format!("{:.4} to {:.4}", band.least, band.most),
        );
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{band}</td><td>{}</td></tr>\n",
            escape_html(&job.id),
            job.level,
            seconds(Some(job.alone_seconds)),
            seconds(job.forecast_seconds),
            seconds(job.measured_seconds()),
        )
    });
    match jobs.is_empty() {
        true => String::new(),
        false => format!(
            "<h2>Iterations now, seconds</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>job</th>\
             <th>level</th><th>alone</th><th>planned</th><th>by phases</th><th>measured</th></tr>\
             </thead>\n<tbody>\n{}</tbody></table></div>\n",
            rows.collect::<String>()
        ),
    }
}

fn render_findings(findings: &[Finding]) -> String {
    let items = findings.iter().map(|finding| {
        let (about, text) = (escape_html(&finding.about), escape_html(&finding.text));
        format!("<li class=\"{}\"><b>{about}</b> {text}</li>\n", finding.severity)
    });
    match findings.is_empty() {
        true => String::new(),
        false => format!("<h2>Findings</h2>\n<ul>\n{}</ul>\n", items.collect::<String>()),
    }
}

fn render_events(events: &[OperatorEvent]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let items = events.iter().rev().take(LISTED_EVENTS).map(|event| {
        format!("<li><time>{}</time> {}</li>\n", format_time(event.at_ms), escape_html(&event.text))
    });
    format!("<h2>Events</h2>\n<ul>\n{}</ul>\n", items.collect::<String>())
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use ::controller::northbound::utilization::UtilizationHistory;

    use super::*;

    #[test]
    fn a_report_has_plots_and_tables_and_no_requests() {
        let series = |name: &str| UtilizationSeries {
            name: name.to_owned(),
            gpus: vec![8, 8],
            measured: vec![Some(0.7), Some(0.72)],
            forecast: vec![Some(0.7); 2],
            ecmp: vec![Some(0.5); 2],
            means: UtilizationMeans {
                measured: Some(0.71),
                expected: Some(0.7),
                forecast: Some(0.7),
                ecmp: Some(0.5),
                measured_gain: Some(0.21),
            },
            ..UtilizationSeries::default()
        };
        let history = UtilizationHistory {
            at_ms: vec![5_000, 10_000],
            total: series(""),
            tenants: vec![series("red")],
            jobs: vec![series("<gpt>")],
        };
        let report = UtilizationReport {
            forecast_error: history.total.means.forecast_error(),
            gain_points: Some(21.0),
            planned_gain_points: Some(20.0),
            history,
            jobs: Vec::new(),
            findings: vec![Finding::warning("leaf1", "down")],
            events: Vec::new(),
        };
        let page = render_page(&report);
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
        for expected in ["&lt;gpt&gt;", "71.0 %", "+1.4 %", "+21.0", "+20.0", "<b>leaf1</b> down"] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert!(!page.contains("http") && !page.contains("<gpt>"), "{page}");
        let summary = summary_lines(&report);
        let measured = "measured 71.0 %, planned 70.0 % (+1.4 %); gain over ECMP +21.0 points";
        assert!(summary[1].ends_with(measured), "{summary:?}");
        assert!(summary[2].ends_with("planned gain +20.0 points"), "{summary:?}");
    }
}
