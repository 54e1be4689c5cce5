//! Jobs of Kubernetes from their pods to what an agent reports, as processes: a watcher, an agent,
//! and an API server that is a part of the test.

#[path = "kubernetes/api_server.rs"]
mod api_server;
#[path = "kubernetes/manifests.rs"]
mod manifests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::api_server::{ApiServer, ServerFault};
use super::support::{Files, refused};

/// Longer than anything takes on a busy machine.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
/// What is killed stays away for this time.
const ABSENCE: Duration = Duration::from_millis(300);

/// What the agent has reported.
#[derive(Default)]
struct Reports {
    /// By job: each set of hosts with the time of its first announcement.
    announced: BTreeMap<String, Vec<(Instant, BTreeSet<String>)>>,
    ended: BTreeMap<String, Instant>,
}

/// A cluster with a watcher and an agent, which share a folder.
struct Deployment {
    files: Files,
    server: ApiServer,
    watcher: Child,
    agent: Child,
    reports: Arc<Mutex<Reports>>,
}

impl Deployment {
    fn start() -> Self {
        let server = ApiServer::start();
        let config = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{}'}}}}]\n",
            server.url()
        );
        let files = Files::with(&[("config", config.as_bytes())]);
        let reports = Arc::default();
        let (watcher, agent) = (start_watcher(&files), start_agent(&files, &reports));
        Self { files, server, watcher, agent, reports }
    }

    fn recorded(&self) -> BTreeSet<String> {
        let Ok(entries) = std::fs::read_dir(self.files.path("spool")) else {
            return BTreeSet::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect()
    }

    fn wait_recorded(&self, jobs: &[&str]) {
        let expected: BTreeSet<String> = jobs.iter().map(|job| format!("k8s.ml.{job}")).collect();
        wait_until(&format!("{expected:?} are recorded"), || self.recorded() == expected);
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        kill(&mut self.watcher);
        kill(&mut self.agent);
    }
}

fn kill(process: &mut Child) {
    // SIGKILL.
    let _gone = process.kill();
    process.wait().unwrap();
}

fn start_watcher(files: &Files) -> Child {
    let arguments = ["jobs", "kubernetes", "watch", "--kubeconfig", "config", "--spool", "spool"];
    let mut command = files.command(&arguments);
    command.args(["--watch-seconds", "2", "--log", "error"]).spawn().unwrap()
}

fn start_agent(files: &Files, reports: &Arc<Mutex<Reports>>) -> Child {
    let arguments = ["agent", "--dry-run", "--host", "head", "--spool", "spool"];
    let mut command = files.command(&arguments);
    let mut agent = command.args(["--max-jobs", "300"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(agent.stdout.take().unwrap()).lines();
    let reports = Arc::clone(reports);
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let report: Value = serde_json::from_str(&line).unwrap();
            reports.lock().unwrap().add_report(&report);
        }
    });
    agent
}

impl Reports {
    fn add_report(&mut self, report: &Value) {
        let now = Instant::now();
        if let Some(job) = report.get("announcement") {
            let hosts = job["gpus"].as_object().unwrap().keys().cloned().collect();
            let known = self.announced.entry(job["job"].as_str().unwrap().to_owned()).or_default();
            if !known.iter().any(|(_, other)| *other == hosts) {
                known.push((now, hosts));
            }
        } else if let Some(end) = report.get("end") {
            self.ended.insert(end["job"].as_str().unwrap().to_owned(), now);
        }
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + RECORD_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {RECORD_TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn pod(name: &str, job: &str, node: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ml", "uid": format!("uid-of-{name}"),
            "labels": { "crux.fabric/announce": "true", "jobset.sigs.k8s.io/jobset-name": job },
        },
        "spec": {
            "nodeName": node,
            "containers": [{ "resources": { "limits": { "nvidia.com/gpu": "8" } } }],
        },
        "status": { "phase": phase },
    })
}

#[test]
fn a_pod_is_a_job_from_its_node_to_its_end_whatever_happens_to_the_server() {
    let mut deployment = Deployment::start();
    let put = |deployment: &Deployment, name: &str, node: &str, phase: &str| {
        deployment.server.put_pod(name, pod(name, name, node, phase));
    };
    let mut unselected = pod("other", "other", "h9", "Running");
    unselected["metadata"]["labels"]["crux.fabric/announce"] = "false".into();
    deployment.server.put_pod("other", unselected);
    put(&deployment, "a", "", "Pending");
    put(&deployment, "b", "h2", "Pending");
    deployment.wait_recorded(&["b"]);
    put(&deployment, "a", "h1", "Running");
    deployment.wait_recorded(&["a", "b"]);
    for (number, fault) in [
        ServerFault::Disconnect,
        ServerFault::Compact,
        ServerFault::Fail(3),
        ServerFault::Repeat(true),
        ServerFault::Repeat(false),
    ]
    .into_iter()
    .enumerate()
    {
        deployment.server.inject(fault);
        let name = format!("f{number}");
        put(&deployment, &name, "h3", "Running");
        deployment.wait_recorded(&["a", "b", &name]);
        deployment.server.delete_pod(&name);
        deployment.wait_recorded(&["a", "b"]);
    }
    // Nothing is heard of a change until the silence is noticed.
    deployment.server.inject(ServerFault::Silence(true));
    put(&deployment, "c", "h4", "Running");
    put(&deployment, "a", "h1", "Succeeded");
    thread::sleep(Duration::from_millis(500));
    deployment.server.inject(ServerFault::Silence(false));
    deployment.wait_recorded(&["b", "c"]);
    deployment.server.kill();
    deployment.server.restart();
    put(&deployment, "b", "h2", "Failed");
    deployment.wait_recorded(&["c"]);
    // What happens while nothing watches is found in the list.
    kill(&mut deployment.watcher);
    deployment.server.delete_pod("c");
    put(&deployment, "d", "h5", "Running");
    deployment.watcher = start_watcher(&deployment.files);
    deployment.wait_recorded(&["d"]);
    // A backup has lower versions, which a watch must not go on from.
    put(&deployment, "e", "h6", "Running");
    deployment.wait_recorded(&["d", "e"]);
    deployment.server.restore(&["e"]);
    deployment.wait_recorded(&["e"]);
}

#[test]
fn a_list_of_several_pages_is_one() {
    let deployment = Deployment::start();
    for number in 0..1_203 {
        let name = format!("p{number:04}");
        deployment.server.put_pod(&name, pod(&name, "large", &format!("h{number}"), "Running"));
    }
    let lists = deployment.server.requests().0;
    deployment.server.inject(ServerFault::Compact);
    let record = || std::fs::read(deployment.files.path("spool/k8s.ml.large.json")).ok();
    let hosts = || {
        let job: Value = serde_json::from_slice(&record()?).ok()?;
        Some(job["gpus"].as_object()?.len())
    };
    wait_until("all hosts are recorded", || hosts() == Some(1_203));
    wait_until("three pages", || deployment.server.requests().0 >= lists + 3);
}

#[test]
fn a_watcher_without_a_cluster_says_what_to_do() {
    let files = Files::with(&[("config", b"clusters: []")]);
    let watch = ["jobs", "kubernetes", "watch"];
    let mut command = files.command(&watch);
    let output = command.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    refused(&output, &["--kubeconfig", "no pod"]);
    refused(&files.crux(&[&watch[..], &["--kubeconfig", "config"]].concat()), &["current-context"]);
    refused(&files.crux(&[&watch[..], &["--cluster", "a.b"]].concat()), &["lower-case letters"]);
}

/// A job of the test below: when it begins and ends, and its hosts.
struct ScheduledJob {
    name: String,
    hosts: BTreeSet<String>,
    begin: Duration,
    end: Duration,
}

#[derive(Clone, Copy)]
enum Step {
    Begin(usize),
    Run(usize),
    End(usize),
    Kill(usize),
    Restart(usize),
}

const JOBS: usize = 200;
const FAULTS: usize = 8;

fn scheduled_jobs() -> Vec<ScheduledJob> {
    let milliseconds = |value: usize| Duration::from_millis(value as u64);
    let jobs = (0..JOBS).map(|number| ScheduledJob {
        name: format!("j{number}"),
        hosts: (0..=number % 3).map(|more| format!("h{}", 1 + (number + more) % 12)).collect(),
        begin: milliseconds(1_000 + 80 * number),
        end: milliseconds(1_000 + 80 * number + 1_500 + 37 * number % 1_500),
    });
    jobs.collect()
}

fn steps_by_time(jobs: &[ScheduledJob]) -> Vec<(Duration, Step)> {
    let of_job = jobs.iter().enumerate().flat_map(|(index, job)| {
        let run = job.begin + Duration::from_millis(200);
        [(job.begin, Step::Begin(index)), (run, Step::Run(index)), (job.end, Step::End(index))]
    });
    let faults = (0..FAULTS).flat_map(|index| {
        let at = Duration::from_millis(2_900 + 1_900 * index as u64);
        [(at, Step::Kill(index)), (at + ABSENCE, Step::Restart(index))]
    });
    let mut steps: Vec<(Duration, Step)> = of_job.chain(faults).collect();
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// When steps were taken.
#[derive(Default)]
struct TakenSteps {
    begun: BTreeMap<usize, Instant>,
    ended: BTreeMap<usize, Instant>,
}

impl Deployment {
    fn take_step(&mut self, step: Step, jobs: &[ScheduledJob], taken: &mut TakenSteps) {
        let put_pods = |server: &ApiServer, index: usize, phase: &str| {
            for host in &jobs[index].hosts {
                let name = format!("{}-{host}", jobs[index].name);
                server.put_pod(&name, pod(&name, &jobs[index].name, host, phase));
            }
        };
        match step {
            Step::Begin(index) => {
                put_pods(&self.server, index, "Pending");
                taken.begun.insert(index, Instant::now());
            }
            Step::Run(index) => put_pods(&self.server, index, "Running"),
            Step::End(index) => {
                // Half of the jobs end by themselves, the others are deleted.
                match index % 2 {
                    0 => put_pods(&self.server, index, "Succeeded"),
                    _ => jobs[index].hosts.iter().for_each(|host| {
                        self.server.delete_pod(&format!("{}-{host}", jobs[index].name));
                    }),
                }
                taken.ended.insert(index, Instant::now());
            }
            Step::Kill(index) => match index % 4 {
                0 => kill(&mut self.watcher),
                1 => kill(&mut self.agent),
                2 => self.server.kill(),
                _ => self.server.inject(ServerFault::Compact),
            },
            Step::Restart(index) => match index % 4 {
                0 => self.watcher = start_watcher(&self.files),
                1 => self.agent = start_agent(&self.files, &self.reports),
                2 => self.server.restart(),
                _ => {}
            },
        }
    }
}

fn seconds_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

fn print_latencies(what: &str, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let (median, most) = (seconds[seconds.len() / 2], seconds[seconds.len() - 1]);
    println!("{what}: {} jobs, median {median:.3} s, at most {most:.3} s", seconds.len());
    let limit = std::env::var("CRUX_LATENCY_LIMIT").ok().and_then(|text| text.parse().ok());
    assert!(limit.is_none_or(|limit: f64| most < limit), "{what} after {most} s");
}

/// Prints latencies, those around a kill among them, and compares them with the environment's
/// CRUX_LATENCY_LIMIT (seconds), which an idle machine may be given.
#[test]
fn no_job_of_two_hundred_is_lost_whoever_is_killed() {
    let mut deployment = Deployment::start();
    let (jobs, mut taken) = (scheduled_jobs(), TakenSteps::default());
    let began = Instant::now();
    for (at, step) in steps_by_time(&jobs) {
        thread::sleep((began + at).saturating_duration_since(Instant::now()));
        deployment.take_step(step, &jobs, &mut taken);
    }
    deployment.wait_recorded(&[]);
    thread::sleep(Duration::from_secs(1));
    let reports = deployment.reports.lock().unwrap();
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for (index, job) in jobs.iter().enumerate() {
        let name = format!("k8s.ml.{}", job.name);
        let known = reports.announced.get(&name).into_iter().flatten();
        let announced = known.filter(|(_, hosts)| *hosts == job.hosts).map(|(at, _)| *at).next();
        let announced = announced.unwrap_or_else(|| panic!("{name} was never announced"));
        starts.push(seconds_between(taken.begun[&index], announced));
        // An agent that is killed reports no end; the controller then misses its presence.
        let ended = reports.ended.get(&name);
        ends.extend(ended.map(|ended| seconds_between(taken.ended[&index], *ended)));
    }
    assert!(ends.len() > JOBS / 2, "too few ends were reported");
    print_latencies("announced", starts);
    print_latencies("ended", ends);
}
