//! Jobs tell of themselves over gRPC, and switches are seen to hold what follows.

use std::collections::BTreeMap;
use std::path::Path;

use agent::report_stream::ControllerTarget;
use agent::service::{HostAgent, ReportSink};
use agent::{AgentSettings, ReportLimits};
use api::telemetry as proto;
use controller::northbound::{self, ApiServer};
use controller::{Config, ControllerHandle};
use proto::report::Said;
use proto::telemetry_client::TelemetryClient;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::lab::{DEADLINE, Lab, verified};

/// A reporter's end of a stream.
pub(crate) struct Line {
    say: mpsc::Sender<proto::Report>,
    remarks: Streaming<proto::Remark>,
}

impl Line {
    pub(crate) async fn open(server: &ApiServer) -> Self {
        let address = format!("http://{}", server.local_addr());
        let mut client = TelemetryClient::connect(address).await.unwrap();
        let (say, reports) = mpsc::channel(4);
        let stream = client.report(ReceiverStream::new(reports)).await.unwrap();
        let remarks = stream.into_inner();
        Self { say, remarks }
    }

    pub(crate) async fn say(&self, said: Said) {
        self.say.send(proto::Report { said: Some(said) }).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> String {
        let remark = tokio::time::timeout(DEADLINE, self.remarks.message());
        remark.await.unwrap().unwrap().unwrap().text
    }
}

pub(crate) async fn served(controller: &ControllerHandle) -> ApiServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    northbound::start_server(listener, controller.access(), &Config::default()).unwrap()
}

pub(crate) fn announcement(job: &str, port: u32) -> Said {
    Said::Announcement(proto::Announcement {
        job: job.to_owned(),
        gpus: [("h1".to_owned(), 1), ("h3".to_owned(), 1)].into(),
        flows: vec![proto::Flow {
            src: "h1".to_owned(),
            dst: "h3".to_owned(),
            udp_src_port: Some(port),
            ..proto::Flow::default()
        }],
        ..proto::Announcement::default()
    })
}

fn window(job: &str, flop: f64) -> Said {
    Said::Window(proto::Window {
        job: job.to_owned(),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![5e9],
        bytes: None,
    })
}

/// The level of a job in force, once `what` holds of it.
pub(crate) async fn planned(controller: &ControllerHandle, job: &str, intensity: f64) -> u8 {
    let id = job.into();
    let is_planned = |plan: &planner::Plan| {
        let planned = plan.job(&id);
        planned.is_some_and(|(_, planned)| planned.intensity >= intensity)
    };
    let waiting = controller.await_rollout(|realised| is_planned(&realised.plan));
    let realised = tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap();
    realised.plan.job(&id).unwrap().1.level
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_profiled_then_ranked_and_then_gone() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut line = Line::open(&server).await;
    for (job, port) in [("weak", 50_000), ("strong", 50_001)] {
        line.say(announcement(job, port)).await;
        assert_eq!(line.hear().await, "profiled in the highest class");
    }
    // Both have the highest class until they are known.
    assert_eq!(planned(&controller, "strong", 0.0).await, 7);
    verified(&lab, &controller).await;

    for (job, flop) in [("weak", 1e12), ("strong", 1e14)] {
        line.say(window(job, flop)).await;
        assert_eq!(line.hear().await, "profile complete");
    }
    let strong = planned(&controller, "strong", 1e12).await;
    let weak = planned(&controller, "weak", 1e11).await;
    assert!(strong > weak, "{strong} {weak}");
    verified(&lab, &controller).await;

    for job in ["weak", "strong"] {
        let job = job.to_owned();
        line.say(Said::End(proto::End { job })).await;
        assert_eq!(line.hear().await, "ended");
    }
    let empty = controller.await_rollout(|realised| realised.plan.jobs.is_empty());
    tokio::time::timeout(DEADLINE, empty).await.unwrap().unwrap();
    verified(&lab, &controller).await;
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liar_and_a_babbler_hear_so_and_others_are_served() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut liar = Line::open(&server).await;
    liar.say(announcement("liar", 50_000)).await;
    liar.hear().await;
    liar.say(window("liar", 1e30)).await;
    assert!(liar.hear().await.contains("no GPU does"));
    liar.say(announcement("l*", 50_002)).await;
    assert!(liar.hear().await.contains("no `*`"));

    let babbler = Line::open(&server).await;
    let flood = tokio::spawn(async move {
        loop {
            babbler.say(window("nobody's", 1.0)).await;
        }
    });
    let mut honest = Line::open(&server).await;
    honest.say(announcement("honest", 50_001)).await;
    assert_eq!(honest.hear().await, "profiled in the highest class");
    honest.say(window("honest", 1e12)).await;
    assert_eq!(honest.hear().await, "profile complete");
    flood.abort();
    planned(&controller, "honest", 1e11).await;
    verified(&lab, &controller).await;
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_told_of_themselves_outlive_the_controller() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let controller = lab.control(|raw| raw.store.path = Some(path.clone())).await;
    let server = served(&controller).await;
    let mut line = Line::open(&server).await;
    line.say(announcement("a", 50_000)).await;
    line.hear().await;
    line.say(window("a", 1e12)).await;
    line.hear().await;
    planned(&controller, "a", 1e11).await;
    verified(&lab, &controller).await;
    server.shutdown().await;
    controller.shutdown().await;

    let again = lab.control(|raw| raw.store.path = Some(path.clone())).await;
    verified(&lab, &again).await;
    assert_eq!(crate::lab::written(&again), 0, "the switches hold it already");
    planned(&again, "a", 1e11).await;
    again.shutdown().await;
}

/// A process behind an agent, as a training script with `crux-telemetry` is.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_tells_its_agent_and_the_agent_the_controller() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let outlet = ReportSink::for_controller(&ControllerTarget::from_address(
        &server.local_addr().to_string(),
    ))
    .unwrap();
    let agent = HostAgent::open(settings(&path), outlet).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(agent.run_until(stop.clone().cancelled_owned()));

    let mut process = UnixStream::connect(&path).await.unwrap();
    let job = r#"{"job": {"id": "a", "gpus": {"h1": 1, "h3": 1},
        "flows": [{"src": "h1", "dst": "h3", "bytes": 0, "udp_src_port": 50000}]}}"#;
    let iteration = r#"{"iteration": {"job": "a", "seconds": 0.2, "flop": 1e12,
        "compute_seconds": 0.1, "communication_seconds": 0.1, "bytes": 1e9}}"#;
    let [job, iteration] = [job, iteration].map(|text| text.replace('\n', "") + "\n");
    process.write_all(job.as_bytes()).await.unwrap();
    let training = async {
        // What is said before the agent has reached the controller is lost.
        loop {
            process.write_all(iteration.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        level = planned(&controller, "a", 1e11) => assert_eq!(level, 7),
        never = training => never,
    }
    verified(&lab, &controller).await;
    let bytes = controller.query_state(|state| state.reported_jobs().jobs[0].flows[0].bytes);
    assert_eq!(bytes.await.unwrap(), 1e9);

    stop.cancel();
    running.await.unwrap();
    let empty = controller.await_rollout(|realised| realised.plan.jobs.is_empty());
    let empty = tokio::time::timeout(DEADLINE, empty).await;
    empty.unwrap().unwrap();
    server.shutdown().await;
    controller.shutdown().await;
}

fn settings(socket: &Path) -> AgentSettings {
    AgentSettings {
        host: "h1".to_owned(),
        socket: Some(socket.to_owned()),
        jobs: Vec::new(),
        nics: BTreeMap::new(),
        sys: "/sys".into(),
        limits: ReportLimits {
            window_seconds: 1.0,
            presence_seconds: 3.0,
            jobs: 4,
            sample_seconds: 0.01,
            memory_seconds: 10.0,
        },
    }
}
