//! `crux job rehearse`: the same run on the embedded fabric, to compare with.

use std::time::Duration;

use emulator::{TestbedOptions, TimeScale};

use super::RunDocumentArgs;
use super::protocol::PacketCounts;
use super::run_result::{AppliedEvent, JobRunResult};
use super::scripted_event::{self, ScriptedEffect, ScriptedEvent};
use crate::demo::{
    DemoScenario, JobVisibility, PolicyTransition, ServedTestbed, TrainingOptions, measure_change,
};
use crate::transport_flags::TransportFlags;
use command_io::CommandError;
use command_io::output::FormatArg;

/// Make the same run on the embedded fabric and its virtual clock, with a controller.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job rehearse --fabric lab.toml --jobs jobs.json
  crux job rehearse --fabric lab.toml --jobs jobs.json --events events.toml
  crux job rehearse --fabric lab.toml --jobs jobs.json --change policy.toml --iterations 4
  crux job rehearse --fabric lab.toml --jobs jobs.json --transport dcqcn --levels 2

Events, one table each:
  [[event]]
  after_seconds = 2.0
  name = \"the cable fails\"
  link_down = \"leaf1-spine1\"   # or link_up, or policy = { drained = [\"spine1\"] }")]
pub(crate) struct RehearseArgs {
    #[command(flatten)]
    documents: RunDocumentArgs,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// The controller knows no job: all flows go by ECMP at one level
    #[arg(long)]
    ecmp: bool,
    /// Events while the jobs train: a TOML or JSON file
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// Instead: apply this policy while the jobs train, and print its forecast beside what they
    /// measured, before and after
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["ecmp", "events"])]
    change: Option<String>,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn run_rehearse(args: &RehearseArgs) -> Result<(), CommandError> {
    let scenario = args.documents.read_scenario()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let training = training_options(args.iterations, args.transport.testbed_options()?);
    if let Some(file) = &args.change {
        let policy = crux::read_policy_to_send(file)?;
        let transition = PolicyTransition::from_default(policy, training.testbed.levels);
        let changing = measure_change(&scenario, transition, training);
        return runtime.block_on(changing)?.print_report(args.output);
    }
    let events = match &args.events {
        Some(file) => scripted_event::read_events(file, &scenario.fabric)?,
        None => Vec::new(),
    };
    let telling = job_visibility(!args.ecmp);
    let rehearsed = runtime.block_on(train_with_events(&scenario, telling, training, &events))?;
    rehearsed.print_result(args.output.format)
}

/// The run of another command, on the embedded fabric.
pub(super) fn rehearse_run(
    documents: &RunDocumentArgs,
    iterations: u16,
    events: &[ScriptedEvent],
    is_planned: bool,
) -> Result<JobRunResult, CommandError> {
    let scenario = documents.read_scenario()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let events = scripted_event::resolve_events("events", events.to_vec(), &scenario.fabric)?;
    let training = training_options(iterations, TestbedOptions::default());
    let telling = job_visibility(is_planned);
    runtime.block_on(train_with_events(&scenario, telling, training, &events))
}

fn training_options(iterations: u16, testbed: TestbedOptions) -> TrainingOptions {
    TrainingOptions { scale: TimeScale::REAL, iterations: usize::from(iterations), testbed }
}

fn job_visibility(is_planned: bool) -> JobVisibility {
    match is_planned {
        true => JobVisibility::Reported,
        false => JobVisibility::Hidden,
    }
}

/// Trains on the converged network, and applies events at their instants.
async fn train_with_events(
    scenario: &DemoScenario,
    telling: JobVisibility,
    training: TrainingOptions,
    events: &[(ScriptedEvent, ScriptedEffect)],
) -> Result<JobRunResult, CommandError> {
    let stage = ServedTestbed::start_servers(scenario, training).await?;
    let controller = stage.start_controller().await?;
    stage.report_jobs(&controller, telling).await?;
    let began = stage.begin_training().await?;
    let mut happened = Vec::new();
    for (event, what) in events {
        let at = began + Duration::from_secs_f64(event.after_seconds);
        let at = stage.advance_to(at).await?;
        what.apply_effect(&stage, &controller).await?;
        happened.push(AppliedEvent {
            name: event.name.clone(),
            at_seconds: (at - began).as_secs_f64(),
        });
    }
    let testbed = stage.testbed();
    let outcome =
        testbed.run_iterations(training.iterations).await.map_err(CommandError::failed)?;
    let faults = testbed.host_errors().await.map_err(CommandError::failed)?;
    let congestion = testbed.host_congestion().await.map_err(CommandError::failed)?;
    let mut begun = testbed.iteration_starts().await.map_err(CommandError::failed)?;
    let since = began.as_nanos() as u64;
    begun.iter_mut().flatten().for_each(|at| *at -= since);
    controller.shutdown().await;
    stage.close().await;
    let counts = PacketCounts {
        retransmitted: faults.retransmitted,
        unreadable: faults.undecodable + faults.misdelivered,
        marked: congestion.marked,
        notifications: congestion.notifications,
        timeouts: congestion.timeouts,
    };
    Ok(JobRunResult { events: happened, ..JobRunResult::new(&outcome, &begun, counts) })
}
