//! `crux job rehearse`: the same run on the embedded fabric, to compare with.

use emulator::Scale;

use super::Documents;
use super::result::RunResult;
use super::wire::Counts;
use crate::commands::demo::{Telling, Training, change, rehearse};
use crate::failure::Failure;
use crate::files;
use crate::output::FormatArg;

/// Make the same run on the embedded fabric and its virtual clock, with a controller.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job rehearse --fabric lab.toml --jobs jobs.json
  crux job rehearse --fabric lab.toml --jobs jobs.json --change policy.toml --iterations 4")]
pub(crate) struct Args {
    #[command(flatten)]
    documents: Documents,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// The controller knows no job: all flows go by ECMP at one level
    #[arg(long)]
    ecmp: bool,
    /// Instead: put this policy in force while the jobs train, and print what was foretold of it
    /// beside what they measured, before and after
    #[arg(long, value_name = "POLICY", conflicts_with = "ecmp")]
    change: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = args.documents.read()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::work(&error))?;
    let telling = match args.ecmp {
        true => Telling::Nothing,
        false => Telling::Jobs,
    };
    let training = Training {
        scale: Scale::new(1.0).ok_or_else(|| Failure::Work("no scale".to_owned()))?,
        iterations: usize::from(args.iterations),
    };
    if let Some(file) = &args.change {
        let changing = change(&scenario, files::named(file)?, training);
        return runtime.block_on(changing)?.print(args.output);
    }
    let run = runtime.block_on(rehearse(&scenario, telling, training))?;
    let counts = Counts {
        retransmitted: run.faults.retransmitted,
        unreadable: run.faults.unreadable + run.faults.misdelivered,
    };
    let begun = vec![Vec::new(); run.outcome.jobs.len()];
    RunResult::new(&run.outcome, &begun, counts).print(args.output.format)
}
