//! Reports of jobs: how long the controller takes to handle each, at how many a second, and how long
//! from the last window of a profile to the last switch that holds what follows from it.

use std::time::Duration;

use api::telemetry as proto;
use controller::northbound::{self, ApiServer};
use controller::{Config, ControllerHandle, RawConfig};
use proto::job_report::Report;
use proto::telemetry_client::TelemetryClient;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};
use topology::Fabric;

use crate::lab::{Lab, control};
use crate::protection::{ConnectionSecurity, TOKEN};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// Streams, one for each host, and the jobs that the first of them report.
const HOSTS: u32 = 1_000;
const JOBS: u32 = 100;

/// Reports of each host in a second: 10,000 together.
const RATE: u32 = 10;

/// Reports of each host, of 20 seconds.
const REPORTS: u32 = 20 * RATE;

pub(crate) async fn measure(protection: ConnectionSecurity) -> Result<(), Failed> {
    let lab = Lab::large(protection.service_options()?).await?;
    let mut secured = RawConfig::default();
    protection.protect_southbound(&mut secured)?;
    let controller = control(&lab.fabric, |raw| raw.tls = secured.tls).await?;
    let server = serve(&controller, protection).await?;
    println!("telemetry{}", protection.label());
    profiles(&lab.fabric, &controller, (&server, protection)).await?;
    let lines = open_lines(&lab.fabric, (&server, protection)).await?;
    send_reports(lines).await?;
    server.shutdown().await;
    controller.shutdown().await;
    Ok(())
}

/// A served controller, and how its reporters reach it.
type ServedController<'a> = (&'a ApiServer, ConnectionSecurity);

async fn serve(
    controller: &ControllerHandle,
    protection: ConnectionSecurity,
) -> Result<ApiServer, Failed> {
    let mut raw = RawConfig::default();
    protection.protect_northbound(&mut raw)?;
    // All of them come from this machine, with one token.
    raw.northbound.requests_per_second = 2 * HOSTS;
    raw.northbound.limits.connections_per_address = 2 * HOSTS as usize;
    raw.telemetry.streams_per_address = 2 * HOSTS as usize;
    let config = Config::try_from(raw)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(northbound::start_server(listener, controller.access(), &config)?)
}

/// A reporter's end of a stream.
struct ReportStream {
    sender: mpsc::Sender<proto::JobReport>,
    feedback: Streaming<proto::ReportFeedback>,
}

impl ReportStream {
    async fn open((server, protection): ServedController<'_>) -> Result<Self, Failed> {
        let channel = protection.connect(&server.local_addr().to_string()).await?;
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

    async fn next_feedback(&mut self) -> Result<String, Failed> {
        let feedback = timeout(DEADLINE, self.feedback.message()).await??;
        Ok(feedback.ok_or("the stream has ended")?.text)
    }
}

/// A job of four hosts.
fn announcement(fabric: &Fabric, number: u32) -> Report {
    let hosts = fabric.hosts();
    let host = |step: usize| hosts[(number as usize * 7 + step * 20) % hosts.len()].name.clone();
    let flow = |step| proto::JobFlow {
        src: host(step),
        dst: host((step + 1) % 4),
        udp_src_port: Some(49_152 + number),
        ..proto::JobFlow::default()
    };
    Report::Announcement(proto::JobAnnouncement {
        job: format!("told{number}"),
        gpus: (0..4).map(|step| (host(step), 1)).collect(),
        flows: (0..4).map(flow).collect(),
        ..proto::JobAnnouncement::default()
    })
}

fn window(number: u32, flop: f64) -> Report {
    Report::Window(proto::JobWindow {
        job: format!("told{number}"),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![5e8; 4],
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

/// The streams of all hosts; the first of them announce a job of four hosts each.
async fn open_lines(
    fabric: &Fabric,
    served: ServedController<'_>,
) -> Result<Vec<ReportStream>, Failed> {
    let mut lines = Vec::new();
    for host in 0..HOSTS {
        let mut line = ReportStream::open(served).await?;
        if host < JOBS {
            line.send(announcement(fabric, 100 + host)).await?;
            line.next_feedback().await?;
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Many hosts report at once. What most of them report is answered, which is how handling is
/// timed: from when it is due to when the answer is read.
async fn send_reports(lines: Vec<ReportStream>) -> Result<(), Failed> {
    let began = Instant::now() + Duration::from_millis(100);
    let reporting = (0..).zip(lines).map(|(host, line)| tokio::spawn(report(host, line, began)));
    let reporting: Vec<_> = reporting.collect();
    // Plans follow from the profiles of the jobs in the first half.
    let [mut first, mut second] = [(); 2].map(|()| Samples::default());
    for reporter in reporting {
        let mut times: Vec<Duration> = reporter.await??;
        second.extend(times.split_off(times.len() / 2));
        first.extend(times);
    }
    let sent = HOSTS * REPORTS;
    let rate = f64::from(sent) / began.elapsed().as_secs_f64();
    println!("telemetry: {HOSTS} hosts, {sent} reports, {rate:.0} a second");
    first.print("telemetry: a report until its answer is heard, first half");
    second.print("telemetry: a report until its answer is heard, second half");
    Ok(())
}

/// The reports of one host, and how long each took to be answered. Windows of a job of this host
/// are not answered.
async fn report(
    host: u32,
    mut line: ReportStream,
    began: Instant,
) -> Result<Vec<Duration>, Failed> {
    let period = Duration::from_secs(1) / RATE;
    // Hosts do not report at the same instant.
    let mut due = interval_at(began + period * host / HOSTS, period);
    if host < JOBS {
        report_job(window(100 + host, 1e12), line, due).await?;
        return Ok(Vec::new());
    }
    let mut times = Vec::new();
    for _ in 0..REPORTS {
        let due = due.tick().await;
        line.send(window(host, 1e12)).await?;
        line.next_feedback().await?;
        times.push(due.elapsed());
    }
    Ok(times)
}

/// Reports windows of a job. Answers are read and forgotten, or they would pile up here.
async fn report_job(window: Report, line: ReportStream, mut due: Interval) -> Result<(), Failed> {
    let ReportStream { sender, mut feedback } = line;
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = feedback.message().await {} });
    for _ in 0..REPORTS {
        due.tick().await;
        let report = Some(window.clone());
        sender.send(proto::JobReport { report }).await?;
    }
    reading.abort();
    Ok(())
}
