//! `crux replay-incident`: replays what a controller recorded.

use std::fs::File;
use std::io::BufReader;

use ::controller::recorder::replay::{ReplaySummary, ReplayedLine, replay_recording};
use serde::Serialize;
use topology::count_noun;

use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Run a flight recording again, and report whether it leads to the same plans.
///
/// Every event that the controller took in goes into the same state machine, the planner plans anew
/// and tables are made anew; generations, plans and tables are compared with what was recorded.
/// Each file of a recorder's folder can be run alone. Exit status 1 if anything comes differently.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux replay-incident /var/lib/crux/flight/flight-000007.jsonl
  crux replay-incident --quiet /var/lib/crux/flight/*.jsonl
  crux replay-incident --format json flight-000007.jsonl")]
pub(crate) struct ReplayIncidentArgs {
    /// Recordings, one after the other
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Only what differs, and the sums
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// The result of replaying one file.
#[derive(Serialize)]
struct RecordingReport {
    file: String,
    #[serde(flatten)]
    replayed: ReplaySummary,
    happened: Vec<ReplayedLine>,
}

pub(crate) fn run_replay_incident(args: &ReplayIncidentArgs) -> Result<(), CommandError> {
    let reports = args
        .files
        .iter()
        .map(|file| args.replay_recording(file))
        .collect::<Result<Vec<RecordingReport>, CommandError>>()?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&reports)?,
        OutputFormat::Table => reports.iter().try_for_each(print_report)?,
    }
    let mut differing = reports.iter().flat_map(|report| {
        report.happened.iter().find(|one| !one.differences.is_empty()).map(|one| (report, one))
    });
    match differing.next() {
        None => Ok(()),
        Some((report, first)) => Err(CommandError::Failed(format!(
            "{}: step {} (line {}) differs: {}",
            report.file,
            first.step,
            first.line,
            first.differences.join("; ")
        ))),
    }
}

impl ReplayIncidentArgs {
    fn replay_recording(&self, file: &str) -> Result<RecordingReport, CommandError> {
        let opened = File::open(file).map_err(|error| CommandError::input(file, error))?;
        let mut happened = Vec::new();
        let keep = &mut |one: &ReplayedLine| {
            if !self.quiet || !one.differences.is_empty() {
                happened.push(one.clone());
            }
        };
        let replayed = replay_recording(&mut BufReader::new(opened), keep)
            .map_err(|error| CommandError::input(file, error))?;
        if replayed.steps == 0 {
            let what = "there is no event to replay: the recording is empty or cut off";
            return Err(CommandError::input(file, what));
        }
        Ok(RecordingReport { file: file.to_owned(), replayed, happened })
    }
}

fn print_report(reports: &RecordingReport) -> Result<(), CommandError> {
    let headings = ["step", "at s", "what", "generation", "plan", "again"];
    let mut table = output::new_table(headings);
    let start = reports.happened.first().map_or(0, |one| one.at_ms);
    for one in &reports.happened {
        let again = match one.differences.is_empty() {
            true => "the same".to_owned(),
            false => one.differences.join("\n"),
        };
        table.add_row([
            one.step.to_string(),
            format!("{:.3}", one.at_ms.saturating_sub(start) as f64 / 1e3),
            one.title.clone(),
            one.generation.to_string(),
            one.plan.clone().unwrap_or_default(),
            again,
        ]);
    }
    if !reports.happened.is_empty() {
        output::print_line(&table)?;
    }
    let ReplaySummary { steps, plans, published: given, is_cut, differing } = reports.replayed;
    let cut = if is_cut { "; its last line is cut" } else { "" };
    output::print_line(format_args!(
        "{}: {}, {}, {given} times tables were given, {}{cut}",
        reports.file,
        count_noun(steps, "event"),
        count_noun(plans, "plan"),
        count_noun(differing, "difference"),
    ))
}
