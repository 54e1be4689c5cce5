//! `crux job lead`: the clock of all jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::process_message::StartSlot;
use emulator::job::{IterationSpec, StartGrid, TrainingEffect, TrainingJob};
use emulator::{EmulationOutcome, MeasuredIterations, TimeScale};
use planner::Job;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval, sleep_until, timeout_at};
use topology::Fabric;

use super::RunDocumentArgs;
use super::job_reporter::JobReporter;
use super::protocol::{
    HostMessage, LeadAddress, LeadListener, LeadMessage, MessageWriter, PacketCounts,
};
use super::run_result::JobRunResult;
use crate::demo::DemoScenario;
use command_io::ClientCredentials;
use command_io::CommandError;
use command_io::output::{FormatArg, OutputFormat};

/// Messages of hosts that can wait.
const REPORT_QUEUE: usize = 1024;
/// How long a run may take unless another time is given.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// The interval at which reports to a controller are checked.
const TICK: Duration = Duration::from_millis(250);

/// Lead the hosts of a run and print what iterations took.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job lead --fabric lab.toml --jobs jobs.json --listen 10.9.0.1:7000
  crux job lead --fabric lab.toml --jobs jobs.json --listen /run/lead --format json
  crux job lead --fabric lab.toml --jobs jobs.json --listen /run/lead --controller 127.0.0.1:9300")]
pub(crate) struct LeadArgs {
    #[command(flatten)]
    documents: RunDocumentArgs,
    /// Where hosts report: HOST:PORT beside the fabric, or the path of a Unix socket
    #[arg(long)]
    listen: LeadAddress,
    /// Report the jobs to the controller that listens there, as agents on their hosts would
    #[arg(long, value_name = "HOST:PORT")]
    controller: Option<String>,
    #[command(flatten)]
    credentials: ClientCredentials,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Train until interrupted, and print nothing
    #[arg(long, conflicts_with_all = ["iterations", "run_timeout"])]
    endless: bool,
    /// Give up after so long
    #[arg(long = "patience", default_value_t = RUN_TIMEOUT.as_secs(), value_name = "SECONDS")]
    run_timeout: u64,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn run_lead(args: &LeadArgs) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed)?;
    let scenario = args.documents.read_scenario()?;
    if args.endless {
        return runtime.block_on(lead_forever(args, &scenario));
    }
    runtime.block_on(lead_run(args, &scenario))?.print_result(args.output.format)
}

impl LeadArgs {
    /// The arguments of a run that another command leads.
    pub(super) fn for_run(
        documents: RunDocumentArgs,
        listen: LeadAddress,
        controller: Option<String>,
        iterations: u16,
    ) -> Self {
        Self {
            documents,
            listen,
            controller,
            credentials: ClientCredentials::default(),
            iterations,
            endless: false,
            run_timeout: RUN_TIMEOUT.as_secs(),
            output: FormatArg { format: OutputFormat::Table },
        }
    }

    /// Leads the run.
    pub(super) fn measure_run(&self) -> Result<JobRunResult, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CommandError::failed)?;
        runtime.block_on(lead_run(self, &self.documents.read_scenario()?))
    }
}

/// Gathers the hosts, connects to the controller and lets the jobs begin.
async fn begin_run(
    args: &LeadArgs,
    scenario: &DemoScenario,
    deadline: Instant,
) -> Result<RunCoordinator, CommandError> {
    let mut lead =
        RunCoordinator::gather_hosts(args, &scenario.fabric, &scenario.jobs, deadline).await?;
    if let Some(at) = &args.controller {
        let contact = agent::program::controller_target(&args.credentials, at)?;
        let (fabric, jobs) = (&scenario.fabric, &scenario.jobs);
        let since = unix_seconds(lead.since);
        lead.reporter = Some(JobReporter::connect_and_announce(&contact, fabric, jobs, since)?);
    }
    for (index, start) in scenario.start_seconds().into_iter().enumerate() {
        lead.timers.insert((duration_nanos(Duration::from_secs_f64(start)), index));
    }
    Ok(lead)
}

/// Trains until a host fails or the process is ended.
async fn lead_forever(args: &LeadArgs, scenario: &DemoScenario) -> Result<(), CommandError> {
    let deadline = Instant::now() + RUN_TIMEOUT;
    let mut lead = begin_run(args, scenario, deadline).await?;
    loop {
        lead.process_next().await?;
    }
}

async fn lead_run(args: &LeadArgs, scenario: &DemoScenario) -> Result<JobRunResult, CommandError> {
    let deadline = Instant::now() + Duration::from_secs(args.run_timeout);
    let mut lead = begin_run(args, scenario, deadline).await?;
    let began = unix_seconds(lead.since);
    let range = MeasuredIterations { skipped: Vec::new(), measured: usize::from(args.iterations) };
    loop {
        let trainings = lead.trainings.iter();
        if let Some(outcome) =
            EmulationOutcome::measure_jobs(&scenario.jobs, trainings, &range, TimeScale::REAL)
        {
            let begun: Vec<_> =
                lead.trainings.iter().map(|job| job.iteration_starts().to_vec()).collect();
            let counts = lead.stop_hosts().await?;
            return Ok(JobRunResult {
                began_unix_seconds: Some(began),
                ..JobRunResult::new(&outcome, &begun, counts)
            });
        }
        if timeout_at(deadline, lead.process_next()).await.is_err() {
            return Err(lead.timeout_error(&scenario.jobs));
        }
    }
}

/// The jobs, and the hosts that send for them.
struct RunCoordinator {
    trainings: Vec<TrainingJob>,
    /// For each job and each start of its iterations, the flows by the host that they begin at.
    flows: Vec<Vec<FlowsByHost>>,
    /// The job of each flow.
    jobs: Vec<usize>,
    hosts: BTreeMap<String, MessageWriter>,
    reports: mpsc::Receiver<Result<HostMessage, CommandError>>,
    /// When each job has to be woken, in nanoseconds since `since`.
    timers: BTreeSet<(u64, usize)>,
    since: Instant,
    /// Reports to a controller, if one is named.
    reporter: Option<JobReporter>,
    ticks: Interval,
}

impl RunCoordinator {
    /// Waits until every host that has flows has reported.
    async fn gather_hosts(
        args: &LeadArgs,
        fabric: &Fabric,
        jobs: &[Job],
        deadline: Instant,
    ) -> Result<Self, CommandError> {
        let listener = LeadListener::bind_address(&args.listen).await?;
        let mut missing = hosts_of(fabric, jobs);
        let (to_lead, reports) = mpsc::channel(REPORT_QUEUE);
        let mut hosts = BTreeMap::new();
        while !missing.is_empty() {
            let accepted = timeout_at(deadline, listener.accept_host()).await.map_err(|_| {
                let names: Vec<_> = missing.iter().cloned().collect();
                CommandError::Failed(format!("hosts that have not reported: {}", names.join(", ")))
            })?;
            let (mut incoming, outgoing) = accepted?;
            let Some(HostMessage::Ready(host)) = incoming.next().await? else {
                continue;
            };
            missing.remove(&host);
            hosts.insert(host, outgoing);
            let to_lead = to_lead.clone();
            tokio::spawn(async move {
                while let Some(report) = incoming.next().await.transpose() {
                    if to_lead.send(report).await.is_err() {
                        return;
                    }
                }
            });
        }
        let (trainings, flows) = trainings_of(fabric, jobs);
        Ok(Self {
            trainings,
            flows,
            jobs: jobs
                .iter()
                .enumerate()
                .flat_map(|(index, job)| job.flows.iter().map(move |_| index))
                .collect(),
            hosts,
            reports,
            timers: BTreeSet::new(),
            since: Instant::now(),
            reporter: None,
            ticks: interval(TICK),
        })
    }

    /// Waits for the next timer or message, and applies its effects.
    async fn process_next(&mut self) -> Result<(), CommandError> {
        let due = self.timers.first().map(|(due, _)| self.since + Duration::from_nanos(*due));
        let forever = self.since + Duration::from_secs(1 << 30);
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or(forever)) => {
                if let Some((due, job)) = self.timers.pop_first() {
                    // The due time, not the time of waking, so that delays do not accumulate.
                    let effects = self.trainings[job].handle_wake(due);
                    self.apply_effects(job, &effects).await?;
                }
            }
            report = self.reports.recv() => {
                let Some(report) = report else {
                    return Err(CommandError::Failed("all hosts have disconnected".to_owned()));
                };
                if let HostMessage::Done(flow) = report? {
                    self.finish_flow(flow).await?;
                }
            }
            changed = receive_feedback(&mut self.reporter) => {
                if let Some((job, slot)) = changed {
                    let training = &mut self.trainings[job];
                    training.set_grid(slot.map(|slot| start_grid(&slot, training.iteration_spec())));
                }
            }
            _ = self.ticks.tick(), if self.reporter.is_some() => {
                let now = self.since.elapsed().as_secs_f64();
                self.reporter.iter_mut().for_each(|reporter| reporter.advance_time(now));
            }
        }
        Ok(())
    }

    async fn finish_flow(&mut self, flow: u32) -> Result<(), CommandError> {
        let now = duration_nanos(self.since.elapsed());
        let Some(&job) = self.jobs.get(flow as usize) else {
            return Err(CommandError::Failed(format!("a host reported unknown flow {flow}")));
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.finish_flow(job, nanos_to_seconds(now));
        }
        let effects = self.trainings[job].handle_flow_done(now);
        self.apply_effects(job, &effects).await
    }

    async fn apply_effects(
        &mut self,
        job: usize,
        effects: &[TrainingEffect],
    ) -> Result<(), CommandError> {
        if let Some(reporter) = &mut self.reporter {
            let begun = self.trainings[job].iteration_starts().last().copied();
            begun.into_iter().for_each(|at| reporter.begin_iteration(job, nanos_to_seconds(at)));
            if effects.contains(&TrainingEffect::StartFlows(0)) {
                reporter.begin_sending(job, self.since.elapsed().as_secs_f64());
            }
        }
        for effect in effects {
            match effect {
                TrainingEffect::WakeAt(at) => {
                    self.timers.insert((*at, job));
                }
                TrainingEffect::StartFlows(start) => {
                    for (host, flows) in &self.flows[job][*start] {
                        if let Some(outgoing) = self.hosts.get_mut(host) {
                            outgoing.send_message(&LeadMessage::Begin(flows.clone())).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Stops the hosts and adds up their counters.
    async fn stop_hosts(mut self) -> Result<PacketCounts, CommandError> {
        if let Some(reporter) = self.reporter.take() {
            reporter.close().await;
        }
        for outgoing in self.hosts.values_mut() {
            outgoing.send_message(&LeadMessage::Stop).await?;
        }
        let (mut total, mut waiting) = (PacketCounts::default(), self.hosts.len());
        while waiting > 0 {
            match self.reports.recv().await {
                Some(Ok(HostMessage::Counted(counts))) => {
                    total += counts;
                    waiting -= 1;
                }
                Some(Ok(_)) => {}
                Some(Err(failure)) => return Err(failure),
                None => break,
            }
        }
        Ok(total)
    }

    fn timeout_error(&self, jobs: &[Job]) -> CommandError {
        let ended: Vec<_> = jobs
            .iter()
            .zip(&self.trainings)
            .map(|(job, training)| format!("{} {}", job.id, training.completed_iterations()))
            .collect();
        CommandError::Failed(format!("timed out; completed iterations: {}", ended.join(", ")))
    }
}

/// When iterations begin, so that communication begins in a slot by the clock of the run.
fn start_grid(slot: &StartSlot, spec: &IterationSpec) -> StartGrid {
    let seconds = slot.first_send_seconds - nanos_to_seconds(spec.first_start_ns());
    let nanos = |seconds: f64| duration_nanos(Duration::from_secs_f64(seconds));
    StartGrid {
        origin: nanos(seconds.rem_euclid(slot.period_seconds)),
        period: nanos(slot.period_seconds),
        most_wait: nanos(slot.most_wait_seconds),
    }
}

/// Hosts at which a flow begins or ends.
fn hosts_of(fabric: &Fabric, jobs: &[Job]) -> BTreeSet<String> {
    let flows = jobs.iter().flat_map(|job| &job.flows);
    let nics = flows.flat_map(|flow| [flow.src, flow.dst]);
    nics.map(|nic| fabric.host(fabric.nic(nic).host).name.clone()).collect()
}

/// The jobs, and by job and start of an iteration the flows of each host that begin then.
fn trainings_of(fabric: &Fabric, jobs: &[Job]) -> (Vec<TrainingJob>, Vec<Vec<FlowsByHost>>) {
    let mut number = 0;
    jobs.iter()
        .map(|job| {
            let to_nanos = |at| duration_nanos(Duration::from_secs_f64(at));
            let (iteration, starts) = IterationSpec::of_job(job, to_nanos);
            let mut flows = vec![FlowsByHost::new(); iteration.starts.len()];
            for (flow, start) in job.flows.iter().zip(starts) {
                let host = fabric.host(fabric.nic(flow.src).host).name.clone();
                flows[start].entry(host).or_default().push(number);
                number += 1;
            }
            (TrainingJob::new(iteration), flows)
        })
        .unzip()
}

/// Numbers of flows.
type FlowsByHost = BTreeMap<String, Vec<u32>>;

/// Receives feedback of the controller, if there is one.
async fn receive_feedback(
    reporter: &mut Option<JobReporter>,
) -> Option<(usize, Option<StartSlot>)> {
    match reporter {
        Some(reporter) => reporter.receive_feedback().await,
        None => std::future::pending().await,
    }
}

/// The Unix time of an instant that has passed.
fn unix_seconds(at: Instant) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() - at.elapsed().as_secs_f64()
}

fn nanos_to_seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

fn duration_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
