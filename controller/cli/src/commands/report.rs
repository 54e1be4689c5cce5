//! `crux report`: what the plan is worth, over time, as one HTML file.
//!
//! The controller has measured and forecast; this module asks, and [`page`] draws. The decision:
//! the figures are those of `/v1/utilization`, in HTML as in JSON, so that a reader who doubts a
//! plot can read its numbers.

mod page;
mod plot;

use std::time::Duration;

use ::controller::event_log::{EventPage, OperatorEvent};
use ::controller::northbound::controller_view::JobRow;
use ::controller::northbound::utilization::UtilizationHistory;
use serde::Serialize;
use topology::Finding;

use super::policy::parse_duration;
use command_io::files::write_requested;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};

/// Report GPU utilisation over time: measured, as planned, and as ECMP would give it
///
/// Writes one HTML file with plots and tables, by job and tenant. A controller keeps samples of a
/// day since its start: one each five seconds of the first hour, then fewer.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux report
  crux report --last 1h --output yesterday.html
  crux report --format json")]
pub(crate) struct ReportArgs {
    /// The HTML file that is written
    #[arg(long, value_name = "FILE", default_value = "crux-report.html")]
    output: String,
    /// Only the time before the latest sample, as 30m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    last: Option<Duration>,
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    format: FormatArg,
}

/// Everything that a report says.
#[derive(Clone, Debug, Serialize)]
struct UtilizationReport {
    /// How far measured utilisation is from the forecast for the same jobs, as a share of that.
    forecast_error: Option<f64>,
    /// Points of measured utilisation above what ECMP would give the same jobs by the fluid model.
    gain_points: Option<f64>,
    /// Points of planned utilisation above ECMP's, both by the fluid model.
    planned_gain_points: Option<f64>,
    history: UtilizationHistory,
    /// The jobs as they are now.
    jobs: Vec<JobRow>,
    findings: Vec<Finding>,
    /// What happened in the time of the samples.
    events: Vec<OperatorEvent>,
}

impl UtilizationReport {
    /// Reads what the controller has.
    fn read(args: &ReportArgs) -> Result<Self, CommandError> {
        let span =
            args.last.map_or_else(String::new, |last| format!("&seconds={}", last.as_secs()));
        let history: UtilizationHistory =
            args.client.get_json(&format!("/v1/utilization?samples=720{span}"))?;
        let jobs = args.client.get_json("/v1/jobs")?;
        let findings = args.client.get_json("/v1/findings")?;
        let page: EventPage = args.client.get_json("/v1/events")?;
        let first = history.at_ms.first().copied().unwrap_or(u64::MAX);
        let means = history.total.means;
        Ok(Self {
            forecast_error: means.forecast_error(),
            gain_points: means.measured_gain.map(|gain| 100.0 * gain),
            planned_gain_points: means.planned_gain().map(|gain| 100.0 * gain),
            jobs,
            findings,
            events: page.events.into_iter().filter(|event| event.at_ms >= first).collect(),
            history,
        })
    }
}

/// Writes the report, or prints it as JSON.
pub(crate) fn run_report(args: &ReportArgs) -> Result<(), CommandError> {
    let report = UtilizationReport::read(args)?;
    if args.format.format == OutputFormat::Json {
        return output::print_json(&report);
    }
    write_requested(Some(&args.output), || page::render_page(&report))?;
    page::summary_lines(&report).into_iter().try_for_each(output::print_line)
}
