//! `crux bench decisions`: the microbenchmark of Crux §4.4.
//!
//! [`simulator::decisions`] makes the cases and judges them one by one; here many are examined at a
//! time ([`parallel_cases`]) and put before people ([`table`], [`figure`]).

mod figure;
mod table;

use simulator::decisions::{DecisionReport, examine_case, generate_case};

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::files;

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
    #[command(flatten)]
    cases: CaseArgs,
    /// Also draw how errors from the optimum are distributed to this file (SVG)
    #[arg(long, value_name = "FILE")]
    figure: Option<String>,
}

pub(crate) fn run_decisions(args: &DecisionsArgs) -> Result<(), CommandError> {
    let seed = args.cases.seed;
    let examined = args.cases.examine(|number| Ok(examine_case(&generate_case(seed, number))))?;
    let report = DecisionReport::new(seed, &examined)
        .ok_or_else(|| CommandError::input("--cases", "at least one is needed"))?;
    args.cases.write_raw(&report)?;
    files::write_requested(args.figure.as_deref(), || figure::draw_errors(&report.summary))?;
    args.cases.print(&table::SummaryTables(&report.summary))
}
