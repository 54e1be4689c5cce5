//! `crux bench decisions`: the microbenchmark of Crux §4.4.
//!
//! [`simulator::decisions`] makes the cases and judges them one by one; here many are examined at a
//! time, told about while they last ([`progress`]), and put before people ([`table`], [`figure`]).
//! The decision: threads only examine, and one owner collects; what is reported is in the order of
//! the cases, so it does not depend on how many threads there are.

mod figure;
mod progress;
mod table;

use std::sync::mpsc;
use std::{fs, thread};

use rayon::prelude::*;
use simulator::decisions::{Examined, Report, case, examine};

use self::progress::Progress;
use crate::failure::Failure;
use crate::output::{self, Format, FormatArg};

/// Compare decisions with the optimum: paths, order of jobs, compression, and all three together.
///
/// Small clusters are drawn from a seed: at most 20 hosts of 8 GPUs, 2 to 4 leaves, 2 spines, 5
/// jobs, 3 levels. The best paths and levels of each are found by enumeration in the fluid model;
/// each step is then tried with the optimum of the others, ours and those of other schedulers.
/// Shares are of the optimal GPU utilisation. About half a second of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench decisions --cases 100
  crux bench decisions --cases 1500 --seed 2 --raw cases.json --figure errors.svg
  crux bench decisions --cases 100 --format json > summary.json")]
pub(crate) struct Args {
    /// Cases to draw
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the figures of every single case to this file (JSON, a line for each)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    /// Also draw how errors from the optimum are distributed to this file (SVG)
    #[arg(long, value_name = "FILE")]
    figure: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let examined = examined(args.seed, args.cases);
    let report = Report::new(args.seed, &examined)
        .ok_or_else(|| Failure::input("--cases", "at least one is needed"))?;
    write(args.raw.as_deref(), || report.to_json())?;
    write(args.figure.as_deref(), || figure::svg(&report.summary))?;
    match args.output.format {
        Format::Json => output::print_json(&report.summary),
        Format::Table => table::print(&report.summary),
    }
}

/// All cases, examined, by number.
fn examined(seed: u64, cases: u32) -> Vec<Examined> {
    let (sender, receiver) = mpsc::channel();
    let mut progress = Progress::new(cases);
    let mut examined: Vec<Examined> = thread::scope(|scope| {
        scope.spawn(move || {
            let numbers = (0..cases).into_par_iter();
            // A collector that went away has panicked, and says so itself.
            numbers.for_each_with(sender, |sender, number| {
                let _ = sender.send(examine(&case(seed, number)));
            });
        });
        receiver
            .into_iter()
            .inspect(|_| progress.tell_of_one())
            .collect()
    });
    examined.sort_by_key(|case| case.number);
    examined
}

fn write(file: Option<&str>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(file) = file else {
        return Ok(());
    };
    fs::write(file, text()).map_err(|error| Failure::input(file, error))?;
    eprintln!("wrote {file}");
    Ok(())
}
