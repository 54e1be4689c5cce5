//! `crux job rehearse`: the same run on the embedded fabric, to compare with.

use std::time::Duration;

use emulator::Scale;

use super::Documents;
use super::happening::{self, Happening, What};
use super::result::{Happened, RunResult};
use super::wire::Counts;
use crate::commands::demo::{Scenario, Stage, Telling, Training, change};
use crate::failure::Failure;
use crate::files;
use crate::output::FormatArg;

/// Make the same run on the embedded fabric and its virtual clock, with a controller.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job rehearse --fabric lab.toml --jobs jobs.json
  crux job rehearse --fabric lab.toml --jobs jobs.json --events events.toml
  crux job rehearse --fabric lab.toml --jobs jobs.json --change policy.toml --iterations 4

Events, one table each:
  [[event]]
  after_seconds = 2.0
  name = \"the cable fails\"
  link_down = \"leaf1-spine1\"   # or link_up, or policy = { drained = [\"spine1\"] }")]
pub(crate) struct Args {
    #[command(flatten)]
    documents: Documents,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// The controller knows no job: all flows go by ECMP at one level
    #[arg(long)]
    ecmp: bool,
    /// What happens while the jobs train: a TOML or JSON file
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// Instead: put this policy in force while the jobs train, and print what was foretold of it
    /// beside what they measured, before and after
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["ecmp", "events"])]
    change: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = args.documents.read()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::work(&error))?;
    let training = Training {
        scale: Scale::new(1.0).ok_or_else(|| Failure::Work("no scale".to_owned()))?,
        iterations: usize::from(args.iterations),
    };
    if let Some(file) = &args.change {
        let changing = change(&scenario, files::named(file)?, training);
        return runtime.block_on(changing)?.print(args.output);
    }
    let telling = match args.ecmp {
        true => Telling::Nothing,
        false => Telling::Jobs,
    };
    let events = match &args.events {
        Some(file) => happening::read(file, &scenario.fabric)?,
        None => Vec::new(),
    };
    let rehearsed = runtime.block_on(rehearse(&scenario, telling, training, &events))?;
    rehearsed.print(args.output.format)
}

/// Trains from the finished network on, and lets events happen at their instants.
async fn rehearse(
    scenario: &Scenario,
    telling: Telling,
    training: Training,
    events: &[(Happening, What)],
) -> Result<RunResult, Failure> {
    let stage = Stage::build(scenario, training.scale).await?;
    let controller = stage.control().await?;
    stage.tell(&controller, telling).await?;
    let began = stage.begin().await?;
    let mut happened = Vec::new();
    for (event, what) in events {
        let at = began + Duration::from_secs_f64(event.after_seconds);
        let at = stage.pass_to(at).await?;
        what.happen(&stage, &controller).await?;
        happened.push(Happened {
            name: event.name.clone(),
            at_seconds: (at - began).as_secs_f64(),
        });
    }
    let testbed = stage.testbed();
    let outcome = testbed.finish(training.iterations).await;
    let outcome = outcome.map_err(|error| Failure::work(&error))?;
    let faults = testbed.faults().await;
    let faults = faults.map_err(|error| Failure::work(&error))?;
    let begun = testbed.begun().await;
    let mut begun = begun.map_err(|error| Failure::work(&error))?;
    let since = began.as_nanos() as u64;
    begun.iter_mut().flatten().for_each(|at| *at -= since);
    controller.shutdown().await;
    stage.close().await;
    let counts = Counts {
        retransmitted: faults.retransmitted,
        unreadable: faults.unreadable + faults.misdelivered,
    };
    Ok(RunResult {
        events: happened,
        ..RunResult::new(&outcome, &begun, counts)
    })
}
