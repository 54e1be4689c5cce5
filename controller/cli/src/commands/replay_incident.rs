//! `crux replay-incident`: what a controller recorded, run again.

use std::fs::File;
use std::io::BufReader;

use ::controller::recorder::replay::{Happened, Replayed, replay};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Format, FormatArg};

/// Run a flight recording again, and say whether it leads to the same plans.
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
pub(crate) struct Args {
    /// Recordings, one after the other
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Only what differs, and the sums
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// What a file came to.
#[derive(Serialize)]
struct Told {
    file: String,
    #[serde(flatten)]
    replayed: Replayed,
    happened: Vec<Happened>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let told = args.files.iter().map(|file| args.replay(file));
    let told = told.collect::<Result<Vec<Told>, Failure>>()?;
    match args.output.format {
        Format::Json => output::print_json(&told)?,
        Format::Table => told.iter().try_for_each(print)?,
    }
    let mut differing = told.iter().flat_map(|told| {
        let differs = |one: &&Happened| !one.differences.is_empty();
        told.happened.iter().find(differs).map(|one| (told, one))
    });
    match differing.next() {
        None => Ok(()),
        Some((told, first)) => Err(Failure::Work(format!(
            "{}: step {} (line {}) comes differently: {}",
            told.file,
            first.step,
            first.line,
            first.differences.join("; ")
        ))),
    }
}

impl Args {
    fn replay(&self, file: &str) -> Result<Told, Failure> {
        let opened = File::open(file).map_err(|error| Failure::input(file, error))?;
        let mut happened = Vec::new();
        let keep = &mut |one: &Happened| {
            if !self.quiet || !one.differences.is_empty() {
                happened.push(one.clone());
            }
        };
        let replayed = replay(&mut BufReader::new(opened), keep);
        Ok(Told {
            file: file.to_owned(),
            replayed: replayed.map_err(|error| Failure::input(file, error))?,
            happened,
        })
    }
}

fn print(told: &Told) -> Result<(), Failure> {
    let headings = ["step", "at s", "what", "generation", "plan", "again"];
    let mut table = output::table(headings);
    let start = told.happened.first().map_or(0, |one| one.at_ms);
    for one in &told.happened {
        let again = match one.differences.is_empty() {
            true => "the same".to_owned(),
            false => one.differences.join("\n"),
        };
        table.add_row([
            one.step.to_string(),
            format!("{:.3}", one.at_ms.saturating_sub(start) as f64 / 1e3),
            one.what.clone(),
            one.generation.to_string(),
            one.plan.clone().unwrap_or_default(),
            again,
        ]);
    }
    if !told.happened.is_empty() {
        output::print(&table)?;
    }
    let Replayed {
        steps,
        plans,
        given,
        is_cut,
        differing,
    } = told.replayed;
    let cut = if is_cut { "; its last line is cut" } else { "" };
    output::print(format_args!(
        "{}: {steps} events, {plans} plans, {given} times tables were given, {differing} \
         differences{cut}",
        told.file
    ))
}
