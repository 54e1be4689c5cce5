//! Jobs tell of themselves over gRPC, and switches are seen to hold what follows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent::dscp_rules::DscpRules;
use agent::kernel_dscp::DscpSetter;
use agent::report_stream::ControllerTarget;
use agent::service::{HostAgent, ReportSink};
use agent::{AgentSettings, ReportLimits};
use api::telemetry as proto;
use controller::config::AccessRole;
use controller::northbound::ApiServer;
use controller::{Controller, ControllerHandle, StateEvent};
use proto::job_report::Report;
use proto::telemetry_client::TelemetryClient;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::http::ask;
use crate::lab::{
    DEADLINE, Lab, config, eventually, open_config, rollout_with, serve_controller, until, verified,
};

/// A reporter's end of a stream.
pub(crate) struct ReportStream {
    sender: mpsc::Sender<proto::JobReport>,
    feedback: Streaming<proto::ReportFeedback>,
}

impl ReportStream {
    pub(crate) async fn open(server: &ApiServer) -> Self {
        let address = format!("http://{}", server.local_addr());
        let mut client = TelemetryClient::connect(address).await.unwrap();
        let (sender, reports) = mpsc::channel(4);
        let stream = client.stream_reports(ReceiverStream::new(reports)).await.unwrap();
        let feedback = stream.into_inner();
        Self { sender, feedback }
    }

    pub(crate) async fn send(&self, report: Report) {
        self.sender.send(proto::JobReport { report: Some(report) }).await.unwrap();
    }

    /// The next feedback on a report; that on flows comes by itself with plans.
    pub(crate) async fn next_feedback(&mut self) -> String {
        self.find_feedback(|text| !text.contains(" flows: ")).await
    }

    /// The next slot, and the job that it is of.
    async fn next_slot(&mut self) -> (String, proto::StartSlot) {
        loop {
            let feedback = tokio::time::timeout(DEADLINE, self.feedback.message());
            let feedback = feedback.await.unwrap().unwrap().unwrap();
            if let Some(slot) = feedback.slot {
                return (feedback.job, slot);
            }
        }
    }

    async fn find_feedback(&mut self, what: impl Fn(&str) -> bool) -> String {
        loop {
            let feedback = tokio::time::timeout(DEADLINE, self.feedback.message());
            let text = feedback.await.unwrap().unwrap().unwrap().text;
            if what(&text) {
                return text;
            }
        }
    }
}

pub(crate) async fn served(controller: &ControllerHandle) -> ApiServer {
    serve_controller(controller, &open_config()).await
}

pub(crate) fn announcement(job: &str, port: u32) -> Report {
    announcement_from("h1", 1, job, port)
}

/// A job of a flow to h3 from `src`, where it has so many GPUs.
fn announcement_from(src: &str, gpus: u32, job: &str, port: u32) -> Report {
    Report::Announcement(proto::JobAnnouncement {
        job: job.to_owned(),
        gpus: [(src.to_owned(), gpus), ("h3".to_owned(), 1)].into(),
        flows: vec![proto::JobFlow {
            src: src.to_owned(),
            dst: "h3".to_owned(),
            udp_src_port: Some(port),
            ..proto::JobFlow::default()
        }],
        ..proto::JobAnnouncement::default()
    })
}

pub(crate) fn window(job: &str, flop: f64) -> Report {
    Report::Window(proto::JobWindow {
        job: job.to_owned(),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![5e9],
        bytes: None,
        slot_offset_seconds: None,
    })
}

/// The level of a job in force, once `what` holds of it.
pub(crate) async fn planned(controller: &ControllerHandle, job: &str, intensity: f64) -> u8 {
    let id = job.into();
    let is_planned = |plan: &planner::Plan| {
        let planned = plan.job(&id);
        planned.is_some_and(|(_, planned)| planned.intensity >= intensity)
    };
    let realised = rollout_with(controller, |realised| is_planned(&realised.plan)).await;
    realised.plan.job(&id).unwrap().1.level
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reporter_receives_how_its_flows_are_known() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    let Report::Announcement(mut job) = announcement("gpt", 50_000) else { unreachable!() };
    let pair = proto::JobFlow { udp_src_port: None, ..job.flows[0].clone() };
    job.flows.push(pair);
    line.send(Report::Announcement(job)).await;
    let text = line.find_feedback(|text| text.contains(" flows: ")).await;
    assert_eq!(
        text,
        "2 flows: 1 known by ports, 1 by NICs; 2 have paths of the plan; 0 other connections \
         learned"
    );
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_profiled_then_ranked_and_then_gone() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    // They meet where the leaf sends to h3: a NIC that both left by would serve both alike.
    for (job, port, src, gpus) in [("weak", 50_000, "h1", 1), ("strong", 50_001, "h2", 7)] {
        line.send(announcement_from(src, gpus, job, port)).await;
        assert_eq!(line.next_feedback().await, "profiled in the highest class");
    }
    // Both have the highest class until they are known.
    assert_eq!(planned(&controller, "strong", 0.0).await, 6);
    verified(&lab, &controller).await;

    for (job, flop) in [("weak", 1e12), ("strong", 1e14)] {
        line.send(window(job, flop)).await;
        assert_eq!(line.next_feedback().await, "profile complete");
    }
    // What runs keeps its levels at first; then the better plan comes.
    let level = |plan: &planner::Plan, job: &str| plan.job(&job.into()).unwrap().1.level;
    rollout_with(&controller, |had| level(&had.plan, "strong") > level(&had.plan, "weak")).await;
    verified(&lab, &controller).await;

    for job in ["weak", "strong"] {
        let job = job.to_owned();
        line.send(Report::End(proto::JobEnd { job })).await;
        assert_eq!(line.next_feedback().await, "ended");
    }
    rollout_with(&controller, |realised| realised.plan.jobs.is_empty()).await;
    verified(&lab, &controller).await;
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn implausible_and_excessive_reports_do_not_affect_others() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut liar = ReportStream::open(&server).await;
    liar.send(announcement("liar", 50_000)).await;
    liar.next_feedback().await;
    liar.send(window("liar", 1e30)).await;
    assert!(liar.next_feedback().await.contains("no GPU does"));
    liar.send(announcement("l*", 50_002)).await;
    assert!(liar.next_feedback().await.contains("no `*`"));
    for name in ["a\u{1b}[2J", "a\nb", "a\0", "a\u{202e}b", " ", ""] {
        liar.send(announcement(name, 50_002)).await;
        assert!(liar.next_feedback().await.contains("letters, digits"), "{name:?}");
    }

    let babbler = ReportStream::open(&server).await;
    let flood = tokio::spawn(async move {
        loop {
            babbler.send(window("nobody's", 1.0)).await;
        }
    });
    let mut honest = ReportStream::open(&server).await;
    honest.send(announcement("honest", 50_001)).await;
    assert_eq!(honest.next_feedback().await, "profiled in the highest class");
    honest.send(window("honest", 1e12)).await;
    assert_eq!(honest.next_feedback().await, "profile complete");
    flood.abort();
    planned(&controller, "honest", 1e11).await;
    verified(&lab, &controller).await;
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_jobs_survive_a_restart() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let controller = lab.control(|raw| raw.store.path = Some(path.clone())).await;
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    line.send(announcement("a", 50_000)).await;
    line.next_feedback().await;
    line.send(window("a", 1e12)).await;
    line.next_feedback().await;
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
async fn reports_reach_the_controller_through_an_agent() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let outlet = ReportSink::for_controller(&ControllerTarget::from_address(
        &server.local_addr().to_string(),
    ))
    .unwrap();
    let agent = HostAgent::open(settings("h1", Some(&path)), outlet).unwrap();
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
        // Reports from before the agent has reached the controller are lost.
        loop {
            process.write_all(iteration.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        level = planned(&controller, "a", 1e11) => assert_eq!(level, 6),
        never = training => never,
    }
    verified(&lab, &controller).await;
    let bytes = controller.query_state(|state| state.reported_jobs().jobs[0].flows[0].bytes);
    assert_eq!(bytes.await.unwrap(), 1e9);

    stop.cancel();
    running.await.unwrap();
    rollout_with(&controller, |realised| realised.plan.jobs.is_empty()).await;
    server.shutdown().await;
    controller.shutdown().await;
}

/// An agent of a host that listens at `socket`.
pub(crate) fn settings(host: &str, socket: Option<&Path>) -> AgentSettings {
    AgentSettings {
        host: host.to_owned(),
        socket: socket.map(Path::to_owned),
        jobs: Vec::new(),
        nics: BTreeMap::new(),
        spool: None,
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

/// Finding H3: 63 streams with names of 1.9 MB took 1.4 GB, and honest jobs expired.
#[tokio::test(flavor = "multi_thread")]
async fn large_reports_take_no_room_from_others() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut honest = ReportStream::open(&server).await;
    honest.send(announcement("honest", 50_001)).await;
    assert_eq!(honest.next_feedback().await, "profiled in the highest class");
    let before = resident_bytes();
    let mut floods = Vec::new();
    for number in 0..62 {
        let name = "x".repeat(1_900_000 - number);
        let flood = ReportStream::open(&server).await;
        floods.push(tokio::spawn(async move {
            // Until the stream is ended.
            let report = Report::Window(proto::JobWindow { job: name, ..Default::default() });
            let report = proto::JobReport { report: Some(report) };
            while flood.sender.send(report.clone()).await.is_ok() {}
        }));
    }
    for flood in floods {
        tokio::time::timeout(DEADLINE, flood).await.unwrap().unwrap();
    }
    // The clients are in this process as well, with a message each.
    let grown = resident_bytes().saturating_sub(before);
    println!("{} MB", grown >> 20);
    honest.send(window("honest", 1e12)).await;
    assert_eq!(honest.next_feedback().await, "profile complete");
    assert!(limit_count(&server, "large_report").await >= 62);
    server.shutdown().await;
    controller.shutdown().await;
}

/// How often a limit was reached, by the metrics.
async fn limit_count(server: &ApiServer, limit: &str) -> u64 {
    let (_, metrics) = ask(server.local_addr(), "/metrics", None).await;
    let line = format!("crux_northbound_limited_total{{limit=\"{limit}\"}} ");
    let count = metrics.lines().find_map(|text| text.strip_prefix(&line));
    count.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_of_reports_is_counted_when_it_bites() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let tight = config(|raw| {
        raw.northbound.anyone = true;
        raw.telemetry.streams_per_address = 1;
        raw.telemetry.reports_per_second = 5;
        raw.telemetry.jobs_per_reporter = 1;
    });
    let server = serve_controller(&controller, &tight).await;
    let limits = ["report_streams", "report_rate", "report_refused"];
    for limit in limits {
        assert_eq!(limit_count(&server, limit).await, 0, "{limit}");
    }
    let mut stream = ReportStream::open(&server).await;
    let second = TelemetryClient::connect(format!("http://{}", server.local_addr()));
    let mut second = second.await.unwrap();
    assert!(second.stream_reports(tokio_stream::empty()).await.is_err());
    stream.send(announcement("a", 50_001)).await;
    stream.next_feedback().await;
    for number in 0..12 {
        stream.send(announcement(&format!("b{number}"), 50_002)).await;
        let refused = stream.next_feedback().await;
        assert!(refused.contains("a reporter has at most 1 jobs"), "{refused}");
    }
    for limit in limits {
        assert!(limit_count(&server, limit).await > 0, "{limit}");
    }
    server.shutdown().await;
    controller.shutdown().await;
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Finding H2: a token reports jobs of its hosts only.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_reports_jobs_of_its_hosts_only() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let mut raw = controller::RawConfig::default();
    let mut bound = crate::grpc::token("rack", AccessRole::Report, b"rack");
    bound.hosts = vec!["h1".to_owned(), "h3".to_owned()];
    raw.northbound.tokens = vec![bound];
    let config = raw.try_into().unwrap();
    let server = serve_controller(&controller, &config).await;
    let client = TelemetryClient::connect(format!("http://{}", server.local_addr()));
    let (sender, reports) = mpsc::channel(4);
    let mut asked = tonic::Request::new(ReceiverStream::new(reports));
    let token = tonic::metadata::MetadataValue::from_static("Bearer rack");
    asked.metadata_mut().insert("authorization", token);
    let feedback = client.await.unwrap().stream_reports(asked).await.unwrap().into_inner();
    let mut rack = ReportStream { sender, feedback };
    rack.send(announcement_from("h2", 1, "other", 50_000)).await;
    let refused = rack.next_feedback().await;
    assert!(refused.contains("no jobs of host `h2`"), "{refused}");
    rack.send(announcement_from("h1", 1, "own", 50_000)).await;
    assert_eq!(rack.next_feedback().await, "profiled in the highest class");
    server.shutdown().await;
    controller.shutdown().await;
}

/// The findings, once they are as expected.
async fn await_findings(server: &ApiServer, is_expected: impl Fn(&str) -> bool) -> String {
    eventually(async || {
        let (_, found) = ask(server.local_addr(), "/v1/findings", None).await;
        Some(found).filter(|found| is_expected(found))
    })
    .await
}

/// A setter of an agent that remembers the rules in force.
#[derive(Debug, Default)]
struct RememberedRules(Mutex<Option<DscpRules>>);

impl DscpSetter for RememberedRules {
    fn apply_rules(&self, rules: &DscpRules) -> Vec<String> {
        *self.0.lock().unwrap() = Some(rules.clone());
        vec!["no program iptables".to_owned()]
    }

    fn undo_rules(&self) -> Vec<String> {
        *self.0.lock().unwrap() = None;
        Vec::new()
    }
}

/// Waits until the host of this setter sends one pair, and with this DSCP.
async fn set_at_host(setter: &RememberedRules, dscp: u8) {
    until(async || {
        let rules = setter.0.lock().unwrap();
        rules.as_ref().is_some_and(|rules| rules.pairs.values().eq([&dscp]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_of_a_job_sets_its_level_and_follows_it() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let stop = CancellationToken::new();
    let start_agent = |host: &str| {
        let target = ControllerTarget::from_address(&server.local_addr().to_string());
        let sink = ReportSink::for_controller(&target).unwrap();
        let setter = Arc::new(RememberedRules::default());
        let agent = HostAgent::open(settings(host, None), sink).unwrap();
        let agent = agent.with_dscp(Arc::clone(&setter) as Arc<dyn DscpSetter>);
        (setter, tokio::spawn(agent.run_until(stop.clone().cancelled_owned())))
    };
    let agents = [start_agent("h1"), start_agent("h3")];
    // Neither of them reports the job.
    let mut reporter = ReportStream::open(&server).await;
    let Report::Announcement(mut job) = announcement("gpt", 50_000) else { unreachable!() };
    let back = proto::JobFlow { src: "h3".into(), dst: "h1".into(), ..job.flows[0].clone() };
    job.flows.push(back);
    (job.flop_per_iteration, job.compute_seconds) = (Some(1e12), Some(0.1));
    reporter.send(Report::Announcement(job)).await;
    assert_eq!(reporter.next_feedback().await, "planned by what is known of it");
    for (setter, _) in &agents {
        set_at_host(setter, 48).await;
    }
    // A policy gives the job another level.
    let fixed = planner::Policy {
        overrides: vec![planner::JobOverride::fixing_level("job:gpt", Some(2))],
        ..planner::Policy::default()
    };
    controller.submit_event(StateEvent::PolicyChanged(fixed)).await.unwrap();
    for (setter, _) in &agents {
        set_at_host(setter, 16).await;
    }
    let is_reported = |findings: &str| {
        ["h1", "h3"].iter().all(|host| findings.contains(&format!("levels at host {host}")))
    };
    let findings = await_findings(&server, is_reported).await;
    assert!(findings.contains("at the host: no program iptables"), "{findings}");
    stop.cancel();
    for (setter, agent) in agents {
        agent.await.unwrap();
        assert_eq!(*setter.0.lock().unwrap(), None);
    }
    server.shutdown().await;
    controller.shutdown().await;
}

/// Five iterations of so many seconds each; alone they take 0.0065, of which 0.004 are
/// communication.
fn busy_window(job: &str, flop: f64, iteration_seconds: f64) -> Report {
    let seconds = 5.0 * iteration_seconds;
    Report::Window(proto::JobWindow {
        job: job.to_owned(),
        seconds,
        iteration_starts: (0..5).map(|number| f64::from(number) * iteration_seconds).collect(),
        flop,
        compute_seconds: 0.0125,
        communication_seconds: seconds - 0.0125,
        flow_bytes: vec![0.5e9],
        bytes: None,
        slot_offset_seconds: None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn measured_slowdown_changes_levels_under_a_fair_policy() {
    let lab = Lab::new().await;
    let policy = planner::Policy { fairness: 0.4, ..planner::Policy::default() };
    let controller = Controller::start(config(|_| {}), lab.fabric.clone(), policy).await.unwrap();
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    let jobs = [("weak", 50_000, "h1", 1, 5e10), ("strong", 50_001, "h2", 7, 5e12)];
    for (job, port, src, gpus, flop) in jobs {
        line.send(announcement_from(src, gpus, job, port)).await;
        assert_eq!(line.next_feedback().await, "profiled in the highest class");
        line.send(busy_window(job, flop, 0.007)).await;
        assert_eq!(line.next_feedback().await, "profile complete");
    }
    let level = |plan: &planner::Plan, job: &str| plan.job(&job.into()).map(|(_, job)| job.level);
    rollout_with(&controller, |had| {
        let (weak, strong) = (level(&had.plan, "weak"), level(&had.plan, "strong"));
        weak.is_some() && weak < strong
    })
    .await;

    // From here on the strong job is nearly as fast as alone, and the weak one is not.
    let reports = async {
        loop {
            line.send(busy_window("weak", 5e10, 0.075)).await;
            line.send(busy_window("strong", 5e12, 0.007)).await;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        _ = rollout_with(&controller, |had| level(&had.plan, "weak") > level(&had.plan, "strong")) => {}
        () = reports => {}
    }
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn iterations_unlike_their_forecast_are_a_finding() {
    let lab = Lab::new().await;
    let policy = planner::Policy::default();
    let controller = Controller::start(config(|_| {}), lab.fabric.clone(), policy).await.unwrap();
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    for (job, port, src) in [("slow", 50_000, "h1"), ("steady", 50_001, "h2")] {
        line.send(announcement_from(src, 1, job, port)).await;
        assert_eq!(line.next_feedback().await, "profiled in the highest class");
        line.send(busy_window(job, 5e10, 0.007)).await;
        assert_eq!(line.next_feedback().await, "profile complete");
    }
    let findings = eventually(async || {
        line.send(busy_window("slow", 5e10, 0.075)).await;
        let (_, findings) = ask(server.local_addr(), "/v1/findings", None).await;
        Some(findings).filter(|findings| findings.contains("longer than the"))
    })
    .await;
    assert!(findings.contains("iterations take 0.0750 s"), "{findings}");
    assert!(!findings.contains("job steady"), "{findings}");
    let (_, jobs) = ask(server.local_addr(), "/v1/jobs", None).await;
    assert!(jobs.contains("\"reported_seconds\":0.075"), "{jobs}");
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_an_agent_leaves_out_are_a_finding_until_there_is_room() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let spool = tempfile::tempdir().unwrap();
    let path = |job: &str| spool.path().join(format!("{job}.json"));
    for job in ["a", "b", "c"] {
        let document = serde_json::json!({ "id": job, "gpus": { "h1": 1, "h3": 1 } });
        std::fs::write(path(job), document.to_string()).unwrap();
    }
    let target = ControllerTarget::from_address(&server.local_addr().to_string());
    let mut settings = settings("h1", None);
    settings.spool = Some(spool.path().to_owned());
    settings.limits.jobs = 1;
    let agent = HostAgent::open(settings, ReportSink::for_controller(&target).unwrap()).unwrap();
    let stop = CancellationToken::new();
    let agent = tokio::spawn(agent.run_until(stop.clone().cancelled_owned()));
    let found = await_findings(&server, |found| found.contains("host h1")).await;
    assert!(found.contains("2 jobs of this host not reported"), "{found}");
    assert!(found.contains("agent reports 1 at most; raise --max-jobs"), "{found}");
    std::fs::remove_file(path("a")).unwrap();
    await_findings(&server, |found| found.contains("1 job of this host not reported")).await;
    std::fs::remove_file(path("b")).unwrap();
    await_findings(&server, |found| !found.contains("host h1")).await;
    stop.cancel();
    agent.await.unwrap();
    server.shutdown().await;
    controller.shutdown().await;
}

/// Two jobs from two hosts to one, which need its link 102 % of their common period.
fn slotted(src: &str, port: u32, can_wait: bool) -> Report {
    Report::Announcement(proto::JobAnnouncement {
        job: format!("job-{src}"),
        gpus: [(src.to_owned(), 8), ("h3".to_owned(), 4)].into(),
        flows: vec![proto::JobFlow {
            src: src.to_owned(),
            dst: "h3".to_owned(),
            udp_src_port: Some(port),
            bytes: 0.51 * 200e9 / 8.0,
            ..proto::JobFlow::default()
        }],
        flop_per_iteration: Some(1e15),
        compute_seconds: Some(0.49),
        can_wait,
        ..proto::JobAnnouncement::default()
    })
}

/// Jobs that can wait are asked to take turns, also after a reconnect, and one that cannot ends it.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_can_wait_are_given_slots_that_do_not_meet() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    for (src, port) in [("h1", 50_000), ("h2", 50_001)] {
        line.send(slotted(src, port, true)).await;
    }
    let (a, b) = (line.next_slot().await, line.next_slot().await);
    assert_ne!(a.0, b.0);
    let ((_, a), (_, b)) = (a, b);
    assert_eq!(a.period_seconds, b.period_seconds);
    assert!(a.period_seconds > 1.01 && a.period_seconds < 1.06, "{a:?}");
    let apart = (a.first_send_seconds - b.first_send_seconds).rem_euclid(a.period_seconds);
    assert!((apart / a.period_seconds - 0.5).abs() < 0.02, "{a:?} {b:?}");
    assert!(a.most_wait_seconds > 0.0 && a.most_wait_seconds < 0.1 * a.period_seconds, "{a:?}");

    // Announced again, it has forgotten its slot; one that cannot wait any more leaves both free.
    line.send(slotted("h1", 50_000, true)).await;
    assert_eq!(line.next_slot().await, ("job-h1".to_owned(), a));
    line.send(slotted("h2", 50_001, false)).await;
    let (job, none) = line.next_slot().await;
    assert_eq!((job.as_str(), none.period_seconds), ("job-h1", 0.0));
    server.shutdown().await;
    controller.shutdown().await;
}
