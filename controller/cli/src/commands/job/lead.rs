//! `crux job lead`: the clock of all jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use emulator::job::{Effect, Rhythm, Training};
use emulator::{Outcome, Scale};
use planner::Job;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval, sleep_until, timeout_at};
use topology::Fabric;

use super::Documents;
use super::result::RunResult;
use super::teller::Teller;
use super::wire::{Address, Counts, Listener, Order, Outgoing, Report};
use crate::client::Credentials;
use crate::failure::Failure;
use crate::output::FormatArg;

/// Reports of hosts that may wait.
const REPORT_QUEUE: usize = 1024;
/// Between two looks at what a controller was not told of for long.
const TICK: Duration = Duration::from_millis(250);

/// Lead the hosts of a run and print what iterations took.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job lead --fabric lab.toml --jobs jobs.json --listen 10.9.0.1:7000
  crux job lead --fabric lab.toml --jobs jobs.json --listen /run/lead --format json
  crux job lead --fabric lab.toml --jobs jobs.json --listen /run/lead --controller 127.0.0.1:9300")]
pub(crate) struct Args {
    #[command(flatten)]
    documents: Documents,
    /// Where hosts report: HOST:PORT beside the fabric, or the path of a Unix socket
    #[arg(long)]
    listen: Address,
    /// Tell the controller that listens there of the jobs, as agents on their hosts would
    #[arg(long, value_name = "HOST:PORT")]
    controller: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Give up after so long
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    patience: u64,
    #[command(flatten)]
    output: FormatArg,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::work(&error))?;
    runtime.block_on(lead(args))?.print(args.output.format)
}

async fn lead(args: &Args) -> Result<RunResult, Failure> {
    let scenario = args.documents.read()?;
    let deadline = Instant::now() + Duration::from_secs(args.patience);
    let mut lead = Lead::gather(args, &scenario.fabric, &scenario.jobs, deadline).await?;
    if let Some(at) = &args.controller {
        let contact = args.credentials.contact(at)?;
        lead.teller = Some(Teller::open(&contact, &scenario.fabric, &scenario.jobs)?);
    }
    for (index, start) in scenario.starts().into_iter().enumerate() {
        lead.timers
            .insert((nanos(Duration::from_secs_f64(start)), index));
    }
    let began = unix_seconds(lead.since);
    let wanted = usize::from(args.iterations);
    let scale = Scale::new(1.0).ok_or_else(|| Failure::Work("no scale".to_owned()))?;
    loop {
        let trainings = lead.trainings.iter();
        if let Some(outcome) = Outcome::measure(&scenario.jobs, trainings, (&[], wanted), scale) {
            let begun: Vec<_> = lead
                .trainings
                .iter()
                .map(|job| job.begun().to_vec())
                .collect();
            let counts = lead.dismiss().await?;
            return Ok(RunResult {
                began_unix_seconds: Some(began),
                ..RunResult::new(&outcome, &begun, counts)
            });
        }
        if timeout_at(deadline, lead.step()).await.is_err() {
            return Err(lead.stuck(&scenario.jobs));
        }
    }
}

/// The jobs, and the hosts that send for them.
struct Lead {
    trainings: Vec<Training>,
    /// For each job, its flows by the host that they begin at.
    flows: Vec<BTreeMap<String, Vec<u32>>>,
    /// The job of each flow.
    jobs: Vec<usize>,
    hosts: BTreeMap<String, Outgoing>,
    reports: mpsc::Receiver<Result<Report, Failure>>,
    /// When which job is to be woken, nanoseconds since `since`.
    timers: BTreeSet<(u64, usize)>,
    since: Instant,
    /// Who tells a controller of all that, if anybody does.
    teller: Option<Teller>,
    ticks: Interval,
}

impl Lead {
    /// Waits until every host that has flows has reported.
    async fn gather(
        args: &Args,
        fabric: &Fabric,
        jobs: &[Job],
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let listener = Listener::bind(&args.listen).await?;
        let mut missing = hosts_of(fabric, jobs);
        let (to_lead, reports) = mpsc::channel(REPORT_QUEUE);
        let mut hosts = BTreeMap::new();
        while !missing.is_empty() {
            let late = |_| {
                let names: Vec<_> = missing.iter().cloned().collect();
                Failure::Work(format!(
                    "hosts that have not reported: {}",
                    names.join(", ")
                ))
            };
            let accepted = timeout_at(deadline, listener.accept())
                .await
                .map_err(late)?;
            let (mut incoming, outgoing) = accepted?;
            let Some(Report::Ready(host)) = incoming.next().await? else {
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
        Ok(Self {
            trainings: jobs.iter().map(training).collect(),
            flows: flows_of(fabric, jobs),
            jobs: jobs
                .iter()
                .enumerate()
                .flat_map(|(index, job)| job.flows.iter().map(move |_| index))
                .collect(),
            hosts,
            reports,
            timers: BTreeSet::new(),
            since: Instant::now(),
            teller: None,
            ticks: interval(TICK),
        })
    }

    /// Waits for the next timer or report, and does what follows.
    async fn step(&mut self) -> Result<(), Failure> {
        let due = self
            .timers
            .first()
            .map(|(due, _)| self.since + Duration::from_nanos(*due));
        let forever = self.since + Duration::from_secs(1 << 30);
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or(forever)) => {
                if let Some((due, job)) = self.timers.pop_first() {
                    // When it was due, not when that was noticed: so nothing adds up.
                    let effects = self.trainings[job].wake(due);
                    self.carry_out(job, &effects).await?;
                }
            }
            report = self.reports.recv() => {
                let gone = || Failure::Work("all hosts have gone".to_owned());
                if let Report::Done(flow) = report.ok_or_else(gone)?? {
                    let now = nanos(self.since.elapsed());
                    let unknown = || Failure::Work(format!("a host ended flow {flow}"));
                    let job = *self.jobs.get(flow as usize).ok_or_else(unknown)?;
                    if let Some(teller) = &mut self.teller {
                        teller.sent(job, seconds(now));
                    }
                    let effects = self.trainings[job].flow_done(now);
                    self.carry_out(job, &effects).await?;
                }
            }
            () = listen(&mut self.teller) => {}
            _ = self.ticks.tick(), if self.teller.is_some() => {
                let now = self.since.elapsed().as_secs_f64();
                self.teller.iter_mut().for_each(|teller| teller.tick(now));
            }
        }
        Ok(())
    }

    async fn carry_out(&mut self, job: usize, effects: &[Effect]) -> Result<(), Failure> {
        if let Some(teller) = &mut self.teller {
            let begun = self.trainings[job].begun().last().copied();
            begun
                .into_iter()
                .for_each(|at| teller.begins(job, seconds(at)));
            if effects.contains(&Effect::StartFlows) {
                teller.sends(job, self.since.elapsed().as_secs_f64());
            }
        }
        for effect in effects {
            match effect {
                Effect::WakeAt(at) => {
                    self.timers.insert((*at, job));
                }
                Effect::StartFlows => {
                    for (host, flows) in &self.flows[job] {
                        if let Some(outgoing) = self.hosts.get_mut(host) {
                            outgoing.send(&Order::Begin(flows.clone())).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the hosts and adds up what they counted.
    async fn dismiss(mut self) -> Result<Counts, Failure> {
        if let Some(teller) = self.teller.take() {
            teller.close().await;
        }
        for outgoing in self.hosts.values_mut() {
            outgoing.send(&Order::Stop).await?;
        }
        let (mut total, mut waiting) = (Counts::default(), self.hosts.len());
        while waiting > 0 {
            match self.reports.recv().await {
                Some(Ok(Report::Counted(counts))) => {
                    total.retransmitted += counts.retransmitted;
                    total.unreadable += counts.unreadable;
                    waiting -= 1;
                }
                Some(Ok(_)) => {}
                Some(Err(failure)) => return Err(failure),
                None => break,
            }
        }
        Ok(total)
    }

    fn stuck(&self, jobs: &[Job]) -> Failure {
        let ended = jobs.iter().zip(&self.trainings);
        let ended = ended.map(|(job, training)| format!("{} {}", job.id, training.iterations()));
        let ended: Vec<_> = ended.collect();
        Failure::Work(format!(
            "out of patience; iterations ended: {}",
            ended.join(", ")
        ))
    }
}

fn training(job: &Job) -> Training {
    let compute = Duration::from_secs_f64(job.compute_seconds);
    Training::new(Rhythm {
        compute_ns: nanos(compute),
        communicate_after_ns: nanos(compute.mul_f64(job.overlap_from)),
        flows: job.flows.len() as u32,
    })
}

/// Hosts at which a flow begins or ends.
fn hosts_of(fabric: &Fabric, jobs: &[Job]) -> BTreeSet<String> {
    let flows = jobs.iter().flat_map(|job| &job.flows);
    let nics = flows.flat_map(|flow| [flow.src, flow.dst]);
    nics.map(|nic| fabric.host(fabric.nic(nic).host).name.clone())
        .collect()
}

fn flows_of(fabric: &Fabric, jobs: &[Job]) -> Vec<BTreeMap<String, Vec<u32>>> {
    let mut number = 0;
    let of_job = |job: &Job| {
        let mut flows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for flow in &job.flows {
            let host = fabric.host(fabric.nic(flow.src).host).name.clone();
            flows.entry(host).or_default().push(number);
            number += 1;
        }
        flows
    };
    jobs.iter().map(of_job).collect()
}

/// Waits for what a controller says.
async fn listen(teller: &mut Option<Teller>) {
    match teller {
        Some(teller) => teller.listen().await,
        None => std::future::pending().await,
    }
}

/// The Unix time of an instant that has passed.
fn unix_seconds(at: Instant) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() - at.elapsed().as_secs_f64()
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
