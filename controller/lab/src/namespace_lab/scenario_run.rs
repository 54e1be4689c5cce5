//! `crux lab run`: a scenario from beginning to end, and what became of its expectations.
//!
//! The lead of the jobs runs on a thread of its own, so that a policy that takes seconds to be in
//! force delays no iteration. The decision: whatever happens, the lab is removed at the end.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{ClientCredentials, CommandError, ControllerClient};
use controller::northbound::service::{ApplyPolicyRequest, PolicyChangeResponse};
use controller::policy_history::PolicyRevision;
use planner::PolicyDocument;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::LabTermArgs;
use super::lab_network::{CableState, LabNetwork, LabPlan, remove_lab, set_cables};
use super::scaling::LabScale;
use super::scenario::{CheckedExpectation, LabScenario, largest_difference};
use crate::demo::change_to;
use crate::job::{AppliedEvent, EventAction, JobRun, JobRunResult, ScriptedEvent};

/// Run a scenario of your own: a fabric, its jobs, events at instants, and what is expected
///
/// Starts a lab, trains, and removes the lab. Fails if an expectation does not hold. Needs root and
/// iproute2.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux lab run scenario.toml
  crux lab run scenario.toml --format json

A scenario:
  title = \"a cable fails\"
  fabric_file = \"fabric.toml\"            # or a table [fabric]
  jobs_file = \"jobs.toml\"                # or tables [[jobs]]
  iterations = 8
  [[event]]
  after_seconds = 2.0                    # of the jobs' own time
  name = \"the cable fails\"
  link_down = \"leaf1-spine1\"             # or link_up, or policy = { drained = [\"spine1\"] }
  [expect]
  gpu_utilization_at_least = 0.8
  within_embedded = 0.05                 # of the times on the embedded fabric
  [[expect.job]]
  id = \"gpt\"
  after_event = \"the cable fails\"       # only iterations after it, here from the third on
  skipped_iterations = 2
  iteration_seconds_at_most = 1.6")]
pub(crate) struct LabRunArgs {
    /// Scenario document (.toml, .yaml, .json)
    scenario: String,
    #[command(flatten)]
    terms: LabTermArgs,
    #[command(flatten)]
    output: FormatArg,
}

/// The result of a scenario, in the jobs' own time.
#[derive(Debug, Serialize)]
struct ScenarioReport {
    title: String,
    rate_scale: f64,
    slower: f64,
    jobs: Vec<ScenarioJob>,
    gpu_utilization: f64,
    embedded_gpu_utilization: Option<f64>,
    /// Largest relative difference of an iteration time from the embedded fabric.
    largest_difference: Option<f64>,
    retransmitted: u64,
    events: Vec<AppliedEvent>,
    expectations: Vec<CheckedExpectation>,
}

/// A job of the result.
#[derive(Debug, Serialize)]
struct ScenarioJob {
    id: String,
    gpus: u32,
    iterations: usize,
    iteration_seconds: Option<f64>,
    embedded_iteration_seconds: Option<f64>,
}

/// A run with the instants of its events.
struct TrainedRun {
    here: JobRunResult,
    embedded: Option<JobRunResult>,
}

/// Runs a scenario, and fails where an expectation does not hold.
pub(super) fn run_scenario(args: &LabRunArgs) -> Result<(), CommandError> {
    super::require_root()?;
    let scenario = LabScenario::read(&args.scenario)?;
    let plan = args.terms.plan_lab(&scenario.fabric, &scenario.jobs, scenario.policy.clone())?;
    let (folder, scale) = (plan.folder.clone(), plan.record.scale);
    eprintln!("{}: rates / {:.0}, times x {:.1}", scenario.title, scale.rate, scale.slower);
    let trained = start_and_train(plan, &scenario);
    remove_lab(&folder)?;
    let report = ScenarioReport::new(&scenario, scale, trained?);
    report.print(args.output)?;
    match report.expectations.iter().all(|one| one.holds) {
        true => Ok(()),
        false => Err(CommandError::Failed("an expectation does not hold".to_owned())),
    }
}

fn start_and_train(plan: LabPlan, scenario: &LabScenario) -> Result<TrainedRun, CommandError> {
    let network = LabNetwork::start(plan)?;
    let folder = &network.plan.folder;
    let (fabric, jobs) = (folder.file("fabric.json"), folder.file("jobs.json"));
    let run = JobRun::new(&fabric, &jobs, scenario.iterations);
    let here = train(&network, scenario, &run)?;
    let embedded = scenario.is_compared().then(|| {
        let events = events_as_happened(scenario, &here);
        run.rehearse(&events, !scenario.ecmp)
    });
    Ok(TrainedRun { here, embedded: embedded.transpose()? })
}

/// Lets the jobs train while events happen.
fn train(
    network: &LabNetwork,
    scenario: &LabScenario,
    run: &JobRun,
) -> Result<JobRunResult, CommandError> {
    let address = network.plan.record.controller.to_string();
    let (socket, lead) = (network.lead_socket(), run.clone());
    let reported = Some(address.clone()).filter(|_| !scenario.ecmp);
    let (sender, result) = oneshot::channel();
    thread::spawn(move || sender.send(lead.lead_hosts(&socket, reported)));
    network.await_socket(None)?;
    network.start_hosts()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    runtime.block_on(watch_run(network, scenario, result))
}

/// Waits for the result; applies events at their instants meanwhile.
async fn watch_run(
    network: &LabNetwork,
    scenario: &LabScenario,
    mut result: oneshot::Receiver<Result<JobRunResult, CommandError>>,
) -> Result<JobRunResult, CommandError> {
    let slower = network.plan.record.scale.slower;
    let (began, mut happened) = (Instant::now(), Vec::new());
    for (event, action) in &scenario.events {
        let due = began + Duration::from_secs_f64(event.after_seconds * slower);
        tokio::select! {
            early = &mut result => {
                received(early)?;
                let what = format!("the jobs ended before: {}", event.name);
                return Err(CommandError::Failed(what));
            }
            () = sleep_until(due) => {}
            _ = tokio::signal::ctrl_c() => return Err(interrupted()),
        }
        let at = unix_seconds();
        tokio::task::block_in_place(|| apply_action(network, event, action))?;
        happened.push((event.name.clone(), at));
    }
    let run = tokio::select! {
        run = &mut result => received(run)?,
        _ = tokio::signal::ctrl_c() => return Err(interrupted()),
    };
    let since = run.began_unix_seconds.unwrap_or_default();
    let events = happened.into_iter().map(|(name, at)| {
        let at_seconds = (at - since).max(0.0);
        AppliedEvent { name, at_seconds }
    });
    Ok(JobRunResult { events: events.collect(), ..run })
}

fn received(
    result: Result<Result<JobRunResult, CommandError>, oneshot::error::RecvError>,
) -> Result<JobRunResult, CommandError> {
    result.unwrap_or_else(|_| Err(CommandError::Failed("the lead of the jobs ended".to_owned())))
}

fn interrupted() -> CommandError {
    CommandError::Failed("interrupted; the lab is removed".to_owned())
}

fn apply_action(
    network: &LabNetwork,
    event: &ScriptedEvent,
    action: &EventAction,
) -> Result<(), CommandError> {
    let LabPlan { folder, fabric, record, .. } = &network.plan;
    match action {
        EventAction::CutCables(links) => set_cables(folder, fabric, links, CableState::Down),
        EventAction::RestoreCables(links) => set_cables(folder, fabric, links, CableState::Up),
        EventAction::ApplyPolicy(policy) => {
            apply_policy(&record.controller.to_string(), policy, &event.name)
        }
    }
}

fn apply_policy(
    controller: &str,
    policy: &PolicyDocument,
    reason: &str,
) -> Result<(), CommandError> {
    let client = ControllerClient::new(controller, &ClientCredentials::default());
    let apply = || -> Result<PolicyChangeResponse, CommandError> {
        let now: PolicyRevision = client.get_json("/v1/policy")?;
        let order = ApplyPolicyRequest {
            change: change_to(policy, &now.content.policy.drained)?,
            author: "crux lab run".to_owned(),
            reason: reason.to_owned(),
            ..ApplyPolicyRequest::default()
        };
        client.post_json("/v1/policy/apply", &order)
    };
    // A client makes a runtime of its own, which a thread that runs one refuses.
    let applied = thread::scope(|scope| scope.spawn(apply).join())
        .unwrap_or_else(|_| Err(CommandError::Failed("no response to a policy".to_owned())))?;
    match applied.applied {
        true => Ok(()),
        false => {
            let texts: Vec<String> = applied.findings.iter().map(ToString::to_string).collect();
            Err(CommandError::Failed(texts.join("\n")))
        }
    }
}

/// The events at the instants at which they happened here.
fn events_as_happened(scenario: &LabScenario, here: &JobRunResult) -> Vec<ScriptedEvent> {
    let events = scenario.events.iter().zip(&here.events);
    events.map(|((event, _), applied)| event.clone().rescheduled_to(applied.at_seconds)).collect()
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl ScenarioReport {
    fn new(scenario: &LabScenario, scale: LabScale, run: TrainedRun) -> Self {
        let TrainedRun { here, embedded } = run;
        let expectations = scenario.check_run(&here, embedded.as_ref(), scale.slower);
        let own_time = |seconds: Option<f64>| seconds.map(|seconds| seconds / scale.slower);
        let jobs = here.jobs.iter().enumerate().map(|(index, job)| ScenarioJob {
            id: job.id.clone(),
            gpus: job.gpus,
            iterations: job.iterations,
            iteration_seconds: own_time(job.mean_iteration_seconds),
            embedded_iteration_seconds: own_time(
                embedded.as_ref().and_then(|run| run.jobs[index].mean_iteration_seconds),
            ),
        });
        Self {
            title: scenario.title.clone(),
            rate_scale: scale.rate,
            slower: scale.slower,
            jobs: jobs.collect(),
            gpu_utilization: here.gpu_utilization,
            embedded_gpu_utilization: embedded.as_ref().map(|run| run.gpu_utilization),
            largest_difference: embedded.as_ref().map(|run| largest_difference(&here, run)),
            retransmitted: here.retransmitted,
            events: here.events.iter().map(|event| event.in_own_time(scale.slower)).collect(),
            expectations,
        }
    }

    fn print(&self, format: FormatArg) -> Result<(), CommandError> {
        if format.format == OutputFormat::Json {
            return output::print_json(self);
        }
        let headings = ["job", "GPUs", "iterations", "mean s", "embedded s"];
        let mut table = output::new_table(headings);
        let seconds =
            |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.4}"));
        for job in &self.jobs {
            table.add_row([
                job.id.clone(),
                job.gpus.to_string(),
                job.iterations.to_string(),
                seconds(job.iteration_seconds),
                seconds(job.embedded_iteration_seconds),
            ]);
        }
        output::print_line(table)?;
        for AppliedEvent { name, at_seconds } in &self.events {
            output::print_line(format_args!("{name} after {at_seconds:.2} s"))?;
        }
        output::print_line(format_args!(
            "GPU utilisation {:.1} %; {} packets sent again",
            self.gpu_utilization * 100.0,
            self.retransmitted
        ))?;
        for CheckedExpectation { expected, found, holds } in &self.expectations {
            let word = if *holds { "holds" } else { "FAILS" };
            output::print_line(format_args!("{word}: {expected} ({found})"))?;
        }
        Ok(())
    }
}
