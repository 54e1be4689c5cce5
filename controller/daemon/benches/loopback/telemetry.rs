//! Reports of jobs: how long the controller takes to handle each, at how many a second and in how
//! much memory, and how long from the last window of a profile to the last switch that holds what
//! follows from it.

use std::time::Duration;

use api::telemetry as proto;
use controller::northbound::{self, ApiServer};
use controller::{Config, ControllerHandle, RawConfig};
use planner::PlanInput;
use proto::job_report::Report;
use proto::telemetry_client::TelemetryClient;
use switch_server::p4runtime::ServiceOptions;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};
use topology::Fabric;

use crate::bounds::{resident_kib, resident_mib};
use crate::lab::{Lab, control};
use crate::protection::{ConnectionSecurity, TOKEN};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// Streams, one for each host, and the jobs that the first of them report.
const HOSTS: u32 = 1_000;
const JOBS: u32 = 100;

/// Reports of each host in a second: 10,000 together.
const RATE: u32 = 10;

/// How long they report while answers are timed.
const SECONDS: u32 = 20;

/// How long they report while memory is watched, and how often it is looked at.
const WATCHED_SECONDS: u32 = 300;
const PRINT_PERIOD: Duration = Duration::from_secs(20);

pub(crate) async fn measure(protection: ConnectionSecurity) -> Result<(), Failed> {
    let lab = Lab::large(protection.service_options()?).await?;
    let mut secured = RawConfig::default();
    protection.protect_southbound(&mut secured)?;
    let controller = control(&lab.fabric, |raw| raw.tls = secured.tls).await?;
    let server = serve(&controller, protection, HOSTS).await?;
    println!("telemetry{}", protection.label());
    profiles(&lab.fabric, &controller, (&server, protection)).await?;
    let load = ReportLoad::of_rings(&lab.fabric);
    let lines = load.open_lines((&server, protection)).await?;
    load.send_reports(lines).await?;
    server.shutdown().await;
    controller.shutdown().await;
    Ok(())
}

/// Hosts with eight NICs report, and their jobs have a flow from each NIC. The switches are not
/// there: this is about reports and plans.
pub(crate) async fn measure_eight_nics(input: PlanInput) -> Result<(), Failed> {
    let controller = control(&input.fabric, |_| {}).await?;
    let hosts = input.fabric.hosts().len() as u32;
    let server = serve(&controller, ConnectionSecurity::Clear, hosts).await?;
    println!("telemetry: resident memory at the start {} MiB", resident_mib()?);
    let load = ReportLoad::of_jobs(&input);
    // Hosts are other machines: their tasks do not wait for those of the controller.
    let hosts = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let within_hosts = hosts.enter();
    let lines = load.open_lines((&server, ConnectionSecurity::Clear)).await?;
    let planned = controller.await_rollout(|now| now.plan.jobs.len() == input.jobs.len());
    timeout(DEADLINE, planned).await??;
    println!("telemetry: resident memory with all jobs {} MiB", resident_mib()?);
    let before = controller.desired_tables().generation;
    load.send_reports(lines).await?;
    drop(within_hosts);
    hosts.shutdown_background();
    let plans = controller.desired_tables().generation - before;
    println!("telemetry: {plans} plans, resident memory then {} MiB", resident_mib()?);
    server.shutdown().await;
    controller.shutdown().await;
    Ok(())
}

/// Watches memory for minutes of the same load.
pub(crate) async fn watch_memory() -> Result<(), Failed> {
    let lab = Lab::large(ServiceOptions::default()).await?;
    let controller = control(&lab.fabric, |_| {}).await?;
    let server = serve(&controller, ConnectionSecurity::Clear, HOSTS).await?;
    let load = ReportLoad::of_rings(&lab.fabric);
    let lines = load.open_lines((&server, ConnectionSecurity::Clear)).await?;
    let began = Instant::now() + Duration::from_millis(100);
    let ticks = RATE * WATCHED_SECONDS;
    let reporting: Vec<_> = (0..)
        .zip(lines)
        .map(|(host, line)| tokio::spawn(load.reporter(host).report(line, (began, ticks), |_| {})))
        .collect();
    let mut prints = interval_at(began, PRINT_PERIOD);
    while began.elapsed() < Duration::from_secs(WATCHED_SECONDS.into()) {
        let at = prints.tick().await.duration_since(began).as_secs();
        println!("memory: after {at:>3} s of reports, {} KiB", resident_kib()?);
    }
    for reporter in reporting {
        reporter.await??;
    }
    println!("memory: {HOSTS} hosts, {} reports", HOSTS * ticks);
    server.shutdown().await;
    controller.shutdown().await;
    Ok(())
}

/// A served controller, and how its reporters reach it.
type ServedController<'a> = (&'a ApiServer, ConnectionSecurity);

async fn serve(
    controller: &ControllerHandle,
    protection: ConnectionSecurity,
    hosts: u32,
) -> Result<ApiServer, Failed> {
    let mut raw = RawConfig::default();
    protection.protect_northbound(&mut raw)?;
    // All of them come from this machine, with one token.
    raw.northbound.requests_per_second = 2 * hosts;
    raw.northbound.limits.connections_per_address = 2 * hosts as usize;
    raw.telemetry.streams_per_address = 2 * hosts as usize;
    let config = Config::try_from(raw)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(northbound::start_server(listener, controller.access(), &config)?)
}

/// A reporter's end of a stream.
pub(crate) struct ReportStream {
    sender: mpsc::Sender<proto::JobReport>,
    feedback: Streaming<proto::ReportFeedback>,
}

impl ReportStream {
    async fn open((server, protection): ServedController<'_>) -> Result<Self, Failed> {
        Self::open_at(&server.local_addr().to_string(), protection).await
    }

    pub(crate) async fn open_at(
        server: &str,
        protection: ConnectionSecurity,
    ) -> Result<Self, Failed> {
        let channel = protection.connect(server).await?;
        let mut client = TelemetryClient::new(channel);
        let (sender, reports) = mpsc::channel(4);
        let mut request = Request::new(ReceiverStream::new(reports));
        if protection == ConnectionSecurity::Secured {
            request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse()?);
        }
        let feedback = client.stream_reports(request).await?.into_inner();
        Ok(Self { sender, feedback })
    }

    async fn send(&self, report: Report) -> Result<(), Failed> {
        Ok(self.sender.send(proto::JobReport { report: Some(report) }).await?)
    }

    pub(crate) async fn send_report(&self, report: proto::JobReport) -> Result<(), Failed> {
        Ok(self.sender.send(report).await?)
    }

    pub(crate) async fn next_feedback(&mut self) -> Result<String, Failed> {
        let feedback = timeout(DEADLINE, self.feedback.message()).await??;
        Ok(feedback.ok_or("the stream has ended")?.text)
    }
}

pub(crate) fn announcement(fabric: &Fabric, number: u32) -> Report {
    Report::Announcement(announce_ring(fabric, number))
}

/// A job of four hosts.
fn announce_ring(fabric: &Fabric, number: u32) -> proto::JobAnnouncement {
    let hosts = fabric.hosts();
    let host = |step: usize| hosts[(number as usize * 7 + step * 20) % hosts.len()].name.clone();
    let flow = |step| proto::JobFlow {
        src: host(step),
        dst: host((step + 1) % 4),
        udp_src_port: Some(49_152 + number),
        ..proto::JobFlow::default()
    };
    proto::JobAnnouncement {
        job: format!("told{number}"),
        gpus: (0..4).map(|step| (host(step), 1)).collect(),
        flows: (0..4).map(flow).collect(),
        ..proto::JobAnnouncement::default()
    }
}

pub(crate) fn window(number: u32, flop: f64) -> Report {
    window_of(&format!("told{number}"), 4, flop)
}

fn window_of(job: &str, flows: usize, flop: f64) -> Report {
    Report::Window(proto::JobWindow {
        job: job.to_owned(),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![5e8; flows],
        bytes: None,
        slot_offset_seconds: None,
    })
}

/// Jobs that come one after the other, each profiled before the next.
async fn profiles(
    fabric: &Fabric,
    controller: &ControllerHandle,
    served: ServedController<'_>,
) -> Result<(), Failed> {
    let mut line = ReportStream::open(served).await?;
    let mut samples = Samples::default();
    for number in 0..20 {
        line.send(announcement(fabric, number)).await?;
        line.next_feedback().await?;
        let name = format!("told{number}").as_str().into();
        let announced = controller.await_rollout(|now| now.plan.job(&name).is_some());
        let generation = timeout(DEADLINE, announced).await??.generation;
        controller.await_verified(generation, DEADLINE).await?;

        let began = Instant::now();
        line.send(window(number, 1e12 * f64::from(number + 1))).await?;
        let planned = controller
            .await_rollout(|now| now.plan.job(&name).is_some_and(|(_, job)| job.intensity > 1e9));
        let generation = timeout(DEADLINE, planned).await??.generation;
        let timing = controller.await_verified(generation, DEADLINE).await?;
        samples.push(timing.verified - began);
    }
    samples.print("telemetry: from the last window of a profile to verified");
    for number in 0..20 {
        let job = format!("told{number}");
        line.send(Report::End(proto::JobEnd { job })).await?;
    }
    Ok(())
}

/// What hosts report: each by a stream of its own, the first ones of a job each.
struct ReportLoad {
    hosts: u32,
    /// Reports of each host in a second.
    rate: u32,
    announcements: Vec<proto::JobAnnouncement>,
}

impl ReportLoad {
    /// Jobs of four hosts.
    fn of_rings(fabric: &Fabric) -> Self {
        let announcements = (0..JOBS).map(|job| announce_ring(fabric, 100 + job)).collect();
        Self { hosts: HOSTS, rate: RATE, announcements }
    }

    /// All hosts of the input, with its jobs; 10,000 reports a second together.
    fn of_jobs(input: &PlanInput) -> Self {
        let hosts = input.fabric.hosts().len() as u32;
        let document = controller::store::jobs_document(&input.fabric, &input.jobs);
        let announcements = document.jobs.iter().map(agent::announcement::announce_job).collect();
        Self { hosts, rate: (HOSTS * RATE).div_ceil(hosts), announcements }
    }

    /// The streams of all hosts, with the jobs announced.
    async fn open_lines(&self, served: ServedController<'_>) -> Result<Vec<ReportStream>, Failed> {
        let mut lines = Vec::new();
        for host in 0..self.hosts as usize {
            let mut line = ReportStream::open(served).await?;
            if let Some(announcement) = self.announcements.get(host) {
                line.send(Report::Announcement(announcement.clone())).await?;
                line.next_feedback().await?;
            }
            lines.push(line);
        }
        Ok(lines)
    }

    /// Many hosts report at once. What most of them report is answered, which is how handling is
    /// timed: from when it is due to when the answer is read.
    async fn send_reports(&self, lines: Vec<ReportStream>) -> Result<(), Failed> {
        let began = Instant::now() + Duration::from_millis(100);
        let ticks = self.rate * SECONDS;
        let reporting = (0..).zip(lines).map(|(host, line)| {
            let reporter = self.reporter(host);
            tokio::spawn(async move {
                let mut times = Vec::new();
                reporter.report(line, (began, ticks), |time| times.push(time)).await?;
                Ok::<_, Failed>(times)
            })
        });
        let reporting: Vec<_> = reporting.collect();
        // Plans follow from the profiles of the jobs in the first half.
        let [mut first, mut second] = [(); 2].map(|()| Samples::default());
        for reporter in reporting {
            let mut times: Vec<Duration> = reporter.await??;
            second.extend(times.split_off(times.len() / 2));
            first.extend(times);
        }
        let sent = self.hosts * ticks;
        let rate = f64::from(sent) / began.elapsed().as_secs_f64();
        println!("telemetry: {} hosts, {sent} reports, {rate:.0} a second", self.hosts);
        first.print("telemetry: a report until its answer is heard, first half");
        second.print("telemetry: a report until its answer is heard, second half");
        Ok(())
    }

    fn reporter(&self, host: u32) -> HostReporter {
        let announced = self.announcements.get(host as usize);
        let period = Duration::from_secs(1) / self.rate;
        HostReporter {
            // Hosts do not report at the same instant.
            offset: period * host / self.hosts,
            period,
            window: announced.map_or_else(
                || window(host, 1e12),
                |job| window_of(&job.job, job.flows.len(), 1e12),
            ),
            has_job: announced.is_some(),
        }
    }
}

/// A host that reports at its rate.
struct HostReporter {
    offset: Duration,
    period: Duration,
    window: Report,
    /// Whether the window is of a job of this host; if not, it is answered.
    has_job: bool,
}

impl HostReporter {
    async fn report(
        self,
        mut line: ReportStream,
        (began, ticks): (Instant, u32),
        mut answered_in: impl FnMut(Duration),
    ) -> Result<(), Failed> {
        let mut due = interval_at(began + self.offset, self.period);
        if self.has_job {
            return report_job(self.window, line, due, ticks).await;
        }
        for _ in 0..ticks {
            let due = due.tick().await;
            line.send(self.window.clone()).await?;
            line.next_feedback().await?;
            answered_in(due.elapsed());
        }
        Ok(())
    }
}

/// Reports windows of a job. Answers are read and forgotten, or they would pile up here.
async fn report_job(
    window: Report,
    line: ReportStream,
    mut due: Interval,
    ticks: u32,
) -> Result<(), Failed> {
    let ReportStream { sender, mut feedback } = line;
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = feedback.message().await {} });
    for _ in 0..ticks {
        due.tick().await;
        let report = Some(window.clone());
        sender.send(proto::JobReport { report }).await?;
    }
    reading.abort();
    Ok(())
}
