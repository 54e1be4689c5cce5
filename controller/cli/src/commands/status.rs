//! `crux jobs`, `switches`, `links`, `explain`, `doctor`: state and decisions of a controller.
//!
//! They only query and print; JSON is printed as the controller returned it.

use ::controller::northbound::controller_view::{JobRow, JobSource, LevelLoad, LinkRow, SwitchRow};
use ::controller::northbound::explanation::{ExplainJobResponse, FlowExplanation};
use comfy_table::Table;
use serde::Serialize;

use super::comparison_table;
use command_io::CommandError;
use command_io::ControllerClient;
use command_io::output::{self, FormatArg, OutputFormat};

/// Arguments of all of them.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) client: ControllerClient,
    #[command(flatten)]
    pub(super) output: FormatArg,
}

/// Arguments of `explain`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux explain gpt
  crux explain 'h1>h3:50000'
  crux explain 'h1>h3'")]
pub(crate) struct ExplainArgs {
    /// A job, or a flow as SOURCE>DESTINATION:UDP-PORT, without a port as SOURCE>DESTINATION
    name: String,
    #[command(flatten)]
    args: StatusArgs,
}

pub(crate) fn print_jobs(args: &StatusArgs) -> Result<(), CommandError> {
    let rows: Vec<JobRow> = args.client.get_json("/v1/jobs")?;
    args.print_rows(&rows, || {
        let headings = [
            "job",
            "level",
            "TFLOP/s",
            "alone s",
            "forecast s",
            "measured s",
            "GPUs",
            "counted Gbit/s",
            "known by",
        ];
        let mut table = output::new_table(headings);
        for row in &rows {
            let known = match (row.source, row.profiled) {
                (_, true) => "being profiled",
                (JobSource::Telemetry, false) => "telemetry",
                (JobSource::Document, false) => "document",
                (JobSource::Rule, false) => "rule",
            };
            let seconds = |time: Option<f64>| {
                time.map_or_else(|| "-".to_owned(), |time| format!("{time:.4}"))
            };
            let counted =
                row.measured_bytes_per_second.map(|bytes| format!("{:.2}", bytes * 8.0 / 1e9));
            table.add_row([
                row.id.clone(),
                row.level.to_string(),
                format!("{:.1}", row.intensity / 1e12),
                format!("{:.4}", row.alone_seconds),
                forecast_cell(row),
                seconds(row.measured_seconds()),
                row.gpus.to_string(),
                counted.unwrap_or_else(|| "-".to_owned()),
                known.to_owned(),
            ]);
        }
        table
    })
}

/// What an iteration is to take, with its band where that is wide.
fn forecast_cell(row: &JobRow) -> String {
    let Some(seconds) = row.forecast_seconds else { return "-".to_owned() };
    let band = row.forecast_band.and_then(|band| band.describe(seconds));
    band.map_or_else(|| format!("{seconds:.4}"), |band| format!("{seconds:.4} ({band})"))
}

pub(crate) fn print_switches(args: &StatusArgs) -> Result<(), CommandError> {
    let rows: Vec<SwitchRow> = args.client.get_json("/v1/switches")?;
    args.print_rows(&rows, || {
        let headings =
            ["switch", "state", "mastership", "verified", "seen", "entries", "drifted", "problems"];
        let mut table = output::new_table(headings);
        for row in &rows {
            let [verified, entries] =
                [row.verified_generation, row.verified_entries.map(|entries| entries as u64)]
                    .map(|number| number.map_or("-".to_owned(), |number| number.to_string()));
            table.add_row([
                row.name.clone(),
                row.state.clone(),
                row.mastership.clone(),
                verified,
                row.verified_age_seconds.map_or("-".to_owned(), |age| format!("{age:.1} s ago")),
                entries,
                row.entries_drifted.to_string(),
                row.problems.join("\n"),
            ]);
        }
        table
    })
}

pub(crate) fn print_links(args: &StatusArgs) -> Result<(), CommandError> {
    let rows: Vec<LinkRow> = args.client.get_json("/v1/links")?;
    args.print_rows(&rows, || {
        let headings =
            ["link", "state", "Gbit/s", "planned", "by level", "measured", "by level", "jobs"];
        let mut table = output::new_table(headings);
        for row in &rows {
            let measured = row.measured.map_or("-".to_owned(), |load| format!("{load:.3}"));
            table.add_row([
                row.link.clone(),
                row.state.clone(),
                row.gbps.to_string(),
                format!("{:.3}", row.load),
                format_levels(&row.levels),
                measured,
                format_levels(&row.measured_levels),
                row.jobs.join(", "),
            ]);
        }
        table
    })
}

fn format_levels(levels: &[LevelLoad]) -> String {
    let levels = levels.iter().map(|level| format!("{}: {:.3}", level.level, level.load));
    levels.collect::<Vec<_>>().join(", ")
}

pub(crate) fn print_explanation(args: &ExplainArgs) -> Result<(), CommandError> {
    // What a path of a URL cannot hold as it is.
    let name = args.name.replace('%', "%25").replace('>', "%3E").replace(' ', "%20");
    let why: ExplainJobResponse = args.args.client.get_json(&format!("/v1/explanations/{name}"))?;
    match args.args.output.format {
        OutputFormat::Json => output::print_json(&why),
        OutputFormat::Table => {
            output::print_line(explain_level(&why))?;
            why.flows.iter().try_for_each(|flow| output::print_line(explain_path(flow)))?;
            let are_sprayed = why.flows.iter().any(|flow| flow.sprayed);
            let mut comparisons = why.comparison.iter();
            comparisons.try_for_each(|one| comparison_table::print_comparison(one, are_sprayed))
        }
    }
}

impl StatusArgs {
    fn print_rows(
        &self,
        rows: &impl Serialize,
        table: impl FnOnce() -> Table,
    ) -> Result<(), CommandError> {
        match self.output.format {
            OutputFormat::Json => output::print_json(rows),
            OutputFormat::Table => output::print_line(table()),
        }
    }
}

/// Why the level.
fn explain_level(why: &ExplainJobResponse) -> String {
    let [contenders, merged_with] =
        [&why.contenders, &why.merged_with].map(|names| match names.is_empty() {
            true => "nobody".to_owned(),
            false => names.join(", "),
        });
    let bottleneck = why.bottleneck.as_deref().unwrap_or("no link");
    let reference = why.reference.as_deref().unwrap_or("its contenders");
    let rule = match (&why.override_pattern, why.profiled) {
        (_, true) => "the highest level, because it is being profiled".to_owned(),
        (Some(rule), false) => format!("the override `{rule}`"),
        (None, false) => "no override".to_owned(),
    };
    let adopts: String =
        why.adopted_traffic.iter().map(|rule| format!("\n  adopts      {rule}")).collect();
    let begins = why.start_shift.map(|shift| {
        format!(
            "\n  begins      every {:.4} s, in turn with its contenders; it waits {:.4} s at most",
            shift.period_seconds, shift.most_wait_seconds
        )
    });
    format!(
        "job {} has level {} of 0..{}, rank {}\n  \
         intensity   {:.3e} FLOP/s: {bottleneck} takes {:.4} s of an iteration\n  \
         correction  {:.3}, compared with {reference}\n  \
         priority    {:.3e}\n  \
         contends    with {}; compression left {} above it at its level\n  \
         policy      {rule}{adopts}{}",
        why.id,
        why.level,
        why.levels - 1,
        why.rank,
        why.intensity,
        why.bottleneck_seconds,
        why.correction,
        why.priority,
        contenders,
        merged_with,
        begins.unwrap_or_default(),
    )
}

/// Why the path.
fn explain_path(flow: &FlowExplanation) -> String {
    let pinning = match (flow.pinned, flow.candidates.len(), &flow.no_room_at) {
        (true, ..) => "pinned".to_owned(),
        (false, 2.., _) if flow.sprayed => "sprayed over all its paths".to_owned(),
        (false, ..2, _) => "the only path".to_owned(),
        (false, _, None) => "left to ECMP".to_owned(),
        (false, _, Some(switch)) => format!("left to ECMP: {switch} has no room for its pin"),
    };
    let connections = match flow.connections {
        0 => String::new(),
        count => format!(", {count} learned connections"),
    };
    let begins = flow.begins_after_seconds;
    let begins = begins.map(|at| format!(", begins after {at:.4} s")).unwrap_or_default();
    let mut text =
        format!("\nflow {} ({}, {pinning}{connections}{begins})", flow.flow, flow.identity);
    for candidate in &flow.candidates {
        let mark = if candidate.chosen { "*" } else { " " };
        let busiest = candidate.busiest.as_deref().unwrap_or("no link");
        let path = candidate.path.join(" > ");
        text += &format!("\n  {mark} {path}  others' load {:.3} on {busiest}", candidate.load);
    }
    text + &explain_choice(flow)
}

/// Why the path is taken though others have less load now.
fn explain_choice(flow: &FlowExplanation) -> String {
    let Some(chosen) = flow.candidates.iter().find(|candidate| candidate.chosen) else {
        return String::new();
    };
    let is_less = |a: f64, b: f64| a < b - 1e-9;
    let candidates = flow.candidates.iter();
    if !flow.pinned || !{ candidates.clone() }.any(|other| is_less(other.load, chosen.load)) {
        return String::new();
    }
    let earlier = chosen.earlier_load;
    match { candidates }.any(|other| is_less(other.earlier_load, earlier)) {
        false => format!(
            "\n    a path with less load is left: jobs choose in order of intensity, and by those \
             above this one no path has less than {earlier:.3}; moving now would not gain enough"
        ),
        true => "\n    a path with less load is left: the flow keeps its path from an earlier \
                 plan, as moving would not gain enough"
            .to_owned(),
    }
}
