//! The commands of an operator, against a controller that runs: what the documentation shows works
//! as it is written there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use controller::config::{AccessRole, RawToken, TlsFiles};
use controller::northbound::{self, ApiServer, local_token};
use controller::{Config, Controller, ControllerHandle, PlanRollout, RawConfig, State, StateEvent};
use emulator::{EmulatedTestbed, HostErrorCounts, TestbedOptions, TimeScale};
use planner::{Job, JobsDocument, Policy};
use switch::ClockPace;
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tokio::net::TcpListener;
use topology::document::DocumentFormat;
use topology::{Fabric, LinkId, document, spec};

use super::support::{Files, lab, printed, refused};

pub(crate) const JOBS: &str = "
[[jobs]]
id = 'gpt'
gpus = { h1 = 8, h3 = 8 }
flop_per_iteration = 1e15
compute_seconds = 1.0
flows = [{ src = 'h1', dst = 'h3', bytes = 1e9, overlap_from = 0.5, udp_src_port = 50000 }]
[[jobs]]
id = 'bert'
gpus = { h2 = 8, h4 = 8 }
flop_per_iteration = 1e14
compute_seconds = 1.0
flows = [{ src = 'h2', dst = 'h4', bytes = 1e9, udp_src_port = 50001 }]
";

/// Between two looks at what the fabric does.
const POLL: Duration = Duration::from_millis(5);

/// An iteration of the hosts of a [`Stage`] computes for 20 ms and sends 25 packets a flow, so that a
/// debug build keeps up with real time.
const SHORTER: f64 = 50.0;
const SENT_BYTES: f64 = 1e5;

/// Switches with the hosts of [`JOBS`], a controller and its server.
pub(crate) struct Stage {
    _switches: Vec<ServerHandle>,
    testbed: EmulatedTestbed,
    fabric: Fabric,
    controller: ControllerHandle,
    server: ApiServer,
}

impl Stage {
    pub(crate) async fn open(config: &Config) -> Self {
        let fabric =
            spec::parse_fabric(&lab(2, 200.0, 400.0), DocumentFormat::Toml, "lab.toml").unwrap();
        let mut jobs = jobs(&fabric);
        for flow in jobs.iter_mut().flat_map(|job| &mut job.flows) {
            flow.bytes = SENT_BYTES * SHORTER;
        }
        let scale = TimeScale::new(SHORTER).unwrap();
        let testbed =
            EmulatedTestbed::build(&fabric, &jobs, scale, TestbedOptions::default()).unwrap();
        let mut explicit = spec::explicit_document(&fabric);
        let mut servers = Vec::new();
        for (switch, device) in explicit.switches.iter_mut().zip(fabric.switch_ids()) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            switch.p4runtime = Some(listener.local_addr().unwrap().to_string());
            let device = testbed.device(device);
            servers.push(serve(listener, device, ServiceOptions::default()).await.unwrap());
        }
        let text = document::print_document(&explicit, DocumentFormat::Json).unwrap();
        let fabric = spec::parse_fabric(&text, DocumentFormat::Json, "lab.json").unwrap();
        let controller = started(&fabric, config.clone()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            server: northbound::start_server(listener, controller.access(), config).unwrap(),
            _switches: servers,
            testbed,
            fabric,
            controller,
        }
    }

    /// The jobs of [`JOBS`] send from now on, in real time.
    pub(crate) async fn send(&self) {
        self.testbed.start_jobs(&[0, 0]).await.unwrap();
        self.testbed.network_handle().release_clock(ClockPace::RealTime).await.unwrap();
    }

    /// Where wires contradict the plan in force, once switches hold it: links of a planned flow that
    /// carry nothing, others between switches that carry the data of one, drained links that carry
    /// anything, and packets that were lost, overtaken or sent to another host.
    pub(crate) async fn contradictions(&self) -> Vec<String> {
        while self.controller.query_state(State::awaits_plan).await.unwrap() {
            tokio::time::sleep(POLL).await;
        }
        let generation = self.controller.query_state(State::generation).await.unwrap();
        let minute = Duration::from_secs(60);
        self.controller.await_verified(generation, minute).await.unwrap();
        // Packets that older tables forwarded are on the wires for microseconds.
        let before = self.carried_after_iterations(1).await;
        let after = self.carried_after_iterations(2).await;
        let PlanRollout { fabric, plan, .. } = self.controller.current_rollout().unwrap();
        let planned: BTreeSet<LinkId> =
            plan.flows.iter().flat_map(|flow| flow.links.iter().copied()).collect();
        let mut contradictions = Vec::new();
        for link in fabric.link_ids() {
            let name = fabric.link_name(link);
            // What the page's fabric has and the test's has not carries nothing.
            let Some(wire) = self.fabric.link_named(&name) else { continue };
            let carried = after[wire.index()] - before[wire.index()];
            let is_host_link = fabric.link(link).from.node.switch().is_none()
                || fabric.link(link).to.node.switch().is_none();
            let is_contradicted = match planned.contains(&link) {
                true => carried == 0,
                false if fabric.is_drained(link) => carried > 0,
                false => !is_host_link && carried as f64 > SENT_BYTES,
            };
            if is_contradicted {
                contradictions.push(format!("{name} carries {carried} bytes"));
            }
        }
        let errors = self.testbed.host_errors().await.unwrap();
        if errors != HostErrorCounts::default() {
            contradictions.push(format!("{errors:?}"));
        }
        contradictions
    }

    /// The bytes that each link has carried once every job has begun so many more iterations.
    async fn carried_after_iterations(&self, more: usize) -> Vec<u64> {
        let begun = async || -> Vec<usize> {
            let starts = self.testbed.iteration_starts().await.unwrap();
            starts.iter().map(Vec::len).collect()
        };
        let first = begun().await;
        let passed = async {
            while begun().await.iter().zip(&first).any(|(now, first)| now < &(first + more)) {
                tokio::time::sleep(POLL).await;
            }
        };
        let deadline = Duration::from_secs(20);
        tokio::time::timeout(deadline, passed).await.expect("every job goes on");
        self.testbed.carried_bytes().await.unwrap()
    }

    /// Where the controller listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub(crate) async fn close(self) {
        self.controller.shutdown().await;
    }
}

/// The jobs of [`JOBS`].
fn jobs(fabric: &Fabric) -> Vec<Job> {
    let document: JobsDocument =
        document::parse_document(JOBS, DocumentFormat::Toml, "jobs.toml").unwrap();
    document.resolve_jobs(fabric, "jobs.toml").unwrap().jobs
}

async fn started(fabric: &Fabric, config: Config) -> ControllerHandle {
    let controller = Controller::start(config, fabric.clone(), Policy::default());
    let controller = controller.await.unwrap();
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs(fabric))).await.unwrap();
    let minute = Duration::from_secs(60);
    controller.await_verified(receipt.generation, minute).await.unwrap();
    controller
}

/// Runs `crux` in a folder, against the controller at an address.
fn crux(files: &Files, at: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = files.command(arguments);
    command.env("USER", "ada");
    if arguments.get(1) != Some(&"check") {
        command.arg("--controller").arg(at.to_string());
    }
    command.output().unwrap()
}

/// A command, its exit status, and texts that it prints.
type Case = (&'static str, i32, &'static [&'static str]);

/// Runs the commands one after the other.
fn check(files: &Files, at: SocketAddr, cases: &[Case]) {
    for (command, status, expected) in cases {
        let arguments: Vec<&str> = command.split(' ').collect();
        let output = crux(files, at, &arguments);
        let [printed_text, wrong] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let ended = output.status.code();
        assert_eq!(ended, Some(*status), "{command}: {printed_text}{wrong}");
        for text in *expected {
            let is_there = printed_text.contains(text) || wrong.contains(text);
            assert!(is_there, "{command}: no {text:?} in {printed_text}{wrong}");
        }
    }
}

const LOOKING: [Case; 14] = [
    ("jobs", 0, &["gpt", "bert", "document"]),
    ("switches", 0, &["leaf1", "primary"]),
    ("links --format json", 0, &["\"link\": \"leaf1:"]),
    ("explain gpt", 0, &["job gpt has level", "* h1 > leaf1 >"]),
    ("explain h1>h3:50000", 0, &["flow h1>h3:50000 (announced, pinned, begins after "]),
    ("explain gtp", 1, &["did you mean `gpt`?"]),
    ("place --gpus 8 --model gpt-24l/A100 --placement first-fit", 0, &["it waits: too few GPUs"]),
    ("place --gpus 8 --model gpt-24l/A100 --fabric lab.toml", 2, &["cannot be used with"]),
    ("doctor", 0, &["no problems found"]),
    ("events", 0, &["job gpt arrived: level", "this controller leads"]),
    ("events --since 1 --json", 0, &["\"kind\":\"plan_adopted\""]),
    ("top --once", 0, &["2 jobs", "GPU use:", "leaf1", "primary", "job bert arrived"]),
    ("report --output worth.html", 0, &["wrote worth.html"]),
    ("report --last 1h --format json", 0, &["\"forecast_error\"", "\"jobs\": ["]),
];

const STEERING: [Case; 14] = [
    ("policy diff idle.toml", 0, &["the override `gtp` matches no job; did you mean `gpt`?"]),
    ("policy check policy.toml", 0, &["ok"]),
    ("policy check bad.toml", 2, &["bad.toml:3: fairness: 2 is not"]),
    ("policy diff bad.toml", 2, &["bad.toml:3: fairness: 2 is not"]),
    ("policy diff policy.toml", 0, &["gpt", "-> 0", "modify job_qos", "GPU utilisation"]),
    (
        "policy apply policy.toml --reason test --confirm-within 10m",
        0,
        &["revision 2 is on trial until", "crux policy confirm"],
    ),
    ("policy apply policy.toml", 2, &["on trial; confirm it"]),
    ("policy confirm", 0, &["revision 2 is in force\n"]),
    ("policy rollback 1", 0, &["revision 3 is in force\n"]),
    (
        "policy suggest --goal slowest --output better.toml",
        0,
        &["in force", "fairness=0.2", "nothing is forecast to be better"],
    ),
    ("policy override job:bert --weight=-1 --for 1h", 2, &["job[0].weight: -1 is not above 0"]),
    ("policy override job:bert --max-level 1 --for 1h", 0, &["revision 4 is in force\n"]),
    ("policy show", 0, &["# revision 4", "# until 20", "max_level = 1", "fairness = 0.0"]),
    ("policy history", 0, &["local (says ada)", "test", "override until"]),
];

/// Single fields, and what else they change: nothing.
const EDITING: [Case; 11] = [
    ("policy set fairnes=0.4", 2, &["fairnes", "did you mean `fairness`?"]),
    ("policy set fairness", 2, &["FIELD=VALUE"]),
    ("policy set fairness=2", 2, &["fairness: 2 is not"]),
    ("policy set fairness=0.4 --preview", 0, &["fairness: 0.0 -> 0.4"]),
    ("policy set fairness=0.4 max_correction=4.0", 0, &["revision 7 is in force"]),
    ("drain spine3", 2, &["no switch or cable `spine3`; did you mean"]),
    ("drain spine2", 0, &["revision 8 is in force", "crux undrain spine2"]),
    ("policy show", 0, &["fairness = 0.4", "no part of a file: spine2", "job = \"storage\""]),
    ("undrain spine1", 2, &["drained are: spine2"]),
    ("undrain spine2", 0, &["revision 9 is in force"]),
    ("policy unset fairness", 0, &["revision 10 is in force"]),
];

/// A rule that adopts, and what is seen of it.
const ADOPTING: [Case; 9] = [
    (
        "policy check lost.toml --fabric fabric.toml",
        2,
        &["lost.toml:3: adopt[0].src[0]: the fabric has no host `h11`; did you mean `h1`?"],
    ),
    ("policy diff lost.toml", 2, &["adopt[0].src[0]", "`h11`"]),
    ("policy diff adopt.toml", 0, &["guest", "insert job_classify", "dport=2049"]),
    ("policy apply adopt.toml", 0, &["revision 5 is in force"]),
    ("jobs", 0, &["guest", "rule", "document"]),
    ("explain guest", 0, &["no override", "adopts      h1 > any host, to port 2049"]),
    ("flows", 0, &["UDP port", "known for"]),
    ("flows adopt storage --src h2 --dst h3 --level 2", 0, &["revision 6 is in force"]),
    ("explain storage", 0, &["adopts      h2 > h3, to port 4791"]),
];

const ADOPT: &[u8] = b"[[adopt]]\njob = 'guest'\nsrc = ['h1']\ndport = 2049\n";
const LOST: &[u8] = b"[[adopt]]\njob = 'guest'\nsrc = ['h11']\n";
const FABRIC: &[u8] = b"name = 'lab'\n[clos]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
    gpus_per_host = 8\nhost_gbps = 200.0\nuplink_gbps = 400.0\n";

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_as_documented() {
    let files = Files::with(&[
        ("policy.toml", b"[[job]]\nmatch = 'gpt'\nlevel = 0\n"),
        ("bad.toml", b"levels = 8\n\nfairness = 2\n"),
        ("idle.toml", b"[[job]]\nmatch = 'gtp'\nlevel = 0\n"),
        ("adopt.toml", ADOPT),
        ("lost.toml", LOST),
        ("fabric.toml", FABRIC),
    ]);
    let mut raw = RawConfig::default();
    raw.recorder.folder = Some(files.path("flight"));
    // As `crux controller` does it; the commands find the token by themselves.
    let mut config = Config::try_from(raw).unwrap();
    local_token::admit_file_owner(&mut config.northbound, &files.path("crux/token")).unwrap();
    let stage = Stage::open(&config).await;
    let at = stage.server.local_addr();
    check(&files, at, &LOOKING);
    assert!(files.text("worth.html").contains("<h1>GPU utilisation</h1>"));
    check(&files, at, &STEERING);
    check(&files, at, &ADOPTING);
    check(&files, at, &EDITING);
    stage.controller.shutdown().await;
    let output = files.crux(&["replay-incident", "flight/flight-000001.jsonl"]);
    let printed_text = printed(&output);
    for text in ["a policy of local (says ada)", "the same", " 0 differences"] {
        assert!(printed_text.contains(text), "no {text:?} in {printed_text}");
    }
}

const ROOTS: &[u8] =
    include_bytes!("../../../../bmv2-testbed/switch-server/tests/p4runtime/tls/roots.pem");
const CERTIFICATE: &[u8] =
    include_bytes!("../../../../bmv2-testbed/switch-server/tests/p4runtime/tls/switch.pem");
const KEY: &[u8] =
    include_bytes!("../../../../bmv2-testbed/switch-server/tests/p4runtime/tls/switch.key.pem");
const STRANGER: &[u8] =
    include_bytes!("../../../../bmv2-testbed/switch-server/tests/p4runtime/tls/controller.pem");

/// What a controller that is protected says to commands.
const PROTECTED: [Case; 9] = [
    ("jobs", 1, &["ask with https"]),
    ("jobs --ca stranger.pem", 1, &["has no certificate of an authority of --ca"]),
    ("jobs --ca token", 2, &["token: no PEM certificate"]),
    ("jobs --ca roots.pem", 1, &["a token is missing"]),
    ("jobs --ca roots.pem --token-file token", 0, &["gpt"]),
    (
        "place --ca roots.pem --token-file token --gpus 8 --model gpt-24l/A100 --placement hived",
        0,
        &["hived", "it waits: too few GPUs"],
    ),
    ("policy apply policy.toml --ca roots.pem --token-file token", 0, &["revision 2 is in force"]),
    ("policy history --ca roots.pem --token-file token", 0, &["ops (says ada)"]),
    ("top --once --ca roots.pem --token-file token", 0, &["2 jobs"]),
];

fn protected(files: &Files) -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.tls = Some(TlsFiles {
        certificate: files.path("switch.pem"),
        key: files.path("switch.key.pem"),
        client_roots: None,
        revoked: None,
    });
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let token = |name: &str, role| RawToken {
        name: name.to_owned(),
        role,
        sha256: digest.to_owned(),
        hosts: Vec::new(),
        tenants: Vec::new(),
    };
    raw.northbound.tokens =
        vec![token("ops", AccessRole::Write), token("hosts", AccessRole::Report)];
    Config::try_from(raw).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_controller_answers_authorized_clients_only() {
    let files = Files::with(&[
        ("roots.pem", ROOTS),
        ("switch.pem", CERTIFICATE),
        ("switch.key.pem", KEY),
        ("stranger.pem", STRANGER),
        ("token", b"test\n"),
        ("policy.toml", b"fairness = 0.2\n"),
    ]);
    let stage = Stage::open(&protected(&files)).await;
    let at = stage.server.local_addr();
    check(&files, at, &PROTECTED);
    let mut agent = files.command(&["agent", "--host", "h1", "--log", "info", "--controller"]);
    let known = ["--ca", "roots.pem", "--token-file", "token"];
    let agent = agent.arg(at.to_string()).args(known);
    let mut agent = agent.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(agent.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let reports = lines.find(|line| line.contains("reporting") || line.contains("trying again"));
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(reports.as_ref().is_some_and(|line| line.contains("reporting")), "{reports:?}");
    stage.controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_requires_tls_fails_without_it() {
    let files = Files::with(&[("roots.pem", ROOTS)]);
    let mut config = Config::default();
    config.northbound.anyone = true;
    let stage = Stage::open(&config).await;
    let plain: [Case; 1] = [("jobs --ca roots.pem", 1, &["does not use TLS"])];
    check(&files, stage.server.local_addr(), &plain);
    stage.controller.shutdown().await;
}

#[test]
fn an_invalid_recording_is_refused_with_its_line() {
    let files = Files::with(&[("no.jsonl", b"{}\n"), ("empty.jsonl", b"")]);
    refused(&files.crux(&["replay-incident", "no.jsonl"]), &["no.jsonl: line 1"]);
    refused(&files.crux(&["replay-incident", "empty.jsonl"]), &["begins with a state"]);
}
