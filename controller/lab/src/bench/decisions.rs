//! `crux bench decisions`: the microbenchmark of Crux §4.4.
//!
//! [`simulator::decisions`] makes the cases and judges them one by one; here many are examined at a
//! time ([`parallel_cases`]) and put before people ([`table`], [`figure`]).

mod figure;
mod table;

use simulator::decisions::{DecisionReport, examine_case, generate_case};

use super::parallel_cases;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

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
  crux bench decisions --cases 1 --seed 1 --first 262
  crux bench decisions --cases 100 --format json > summary.json")]
pub(crate) struct DecisionsArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first case, to look at a single one again
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    first: u32,
    /// Also write the figures of every single case to this file (JSON, a line for each)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    /// Also draw how errors from the optimum are distributed to this file (SVG)
    #[arg(long, value_name = "FILE")]
    figure: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_decisions(args: &DecisionsArgs) -> Result<(), CommandError> {
    let examined = parallel_cases::run_cases(args.cases, |number| {
        examine_case(&generate_case(args.seed, args.first.saturating_add(number)))
    })?;
    let report = DecisionReport::new(args.seed, &examined)
        .ok_or_else(|| CommandError::input("--cases", "at least one is needed"))?;
    files::write_requested(args.raw.as_deref(), || report.to_json())?;
    files::write_requested(args.figure.as_deref(), || figure::draw_errors(&report.summary))?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&report.summary),
        OutputFormat::Table => table::print_summary(&report.summary),
    }
}
