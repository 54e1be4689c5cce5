//! `--scheduler-command`: a scheduler that is a program of its own, and what it may do wrong.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{Files, json, lab, printed};

/// The Python package, and its examples.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/python");

/// Two jobs whose flows ECMP sends over one spine.
const JOBS: &str = r#"{"jobs": [
  {"id": "a", "gpus": {"h1": 8, "h4": 8}, "flop_per_iteration": 3e15, "compute_seconds": 1.0,
   "flows": [{"src": "h1", "dst": "h4", "bytes": 12.5e9, "udp_src_port": 50001}]},
  {"id": "b", "gpus": {"h2": 8, "h5": 8}, "flop_per_iteration": 2e15, "compute_seconds": 1.0,
   "flows": [{"src": "h2", "dst": "h5", "bytes": 12.5e9, "udp_src_port": 50003}]} ]}"#;

fn folder() -> Files {
    let lab = lab(3, 200.0, 200.0);
    Files::with(&[("lab.toml", lab.as_bytes()), ("jobs.json", JOBS.as_bytes())])
}

fn run(folder: &Files, command: &str, arguments: &[&str]) -> Output {
    let documents = [command, "--fabric", "lab.toml", "--jobs", "jobs.json", "--seconds", "30"];
    let mut crux = folder.command(&[&documents, arguments].concat());
    crux.env("PYTHONPATH", PACKAGE).output().unwrap()
}

fn example(name: &str) -> String {
    let file = Path::new(PACKAGE).join("crux_scheduler/examples").join(name);
    format!("python3 {}", file.display())
}

#[test]
fn the_examples_of_the_package_avoid_what_hashes_collide_on() {
    for name in ["least_loaded.py", "ethereal.py"] {
        let arguments = ["--schedulers", "ecmp", "--format", "json", "--scheduler-command"];
        let output = run(&folder(), "compare", &[&arguments[..], &[&example(name)]].concat());
        let outcomes = &json(&output)["outcomes"];
        let utilisation = |place: usize| outcomes[place]["gpu_utilization"].as_f64().unwrap();
        assert_eq!(
            (&outcomes[0]["scheduler"], &outcomes[1]["scheduler"]),
            (&Value::from("ecmp"), &Value::from("command"))
        );
        // Alone an iteration takes 1.5 s; on one spine both wait for each other.
        assert!(utilisation(0) < 0.6, "{outcomes}");
        assert!((utilisation(1) - 2.0 / 3.0).abs() < 0.01, "{name}: {outcomes}");
    }
}

/// Jobs of a trace that share two spines: the example avoids what hashes collide on.
#[test]
fn a_replay_asks_a_program_at_every_arrival_and_departure() {
    let header = "submitted_seconds,gpus,duration_seconds,id,model\n".to_owned();
    let rows = (0..8).map(|job| format!("{},16,600,j{job},gpt-24l/A100\n", 20 * job));
    let trace = rows.fold(header, |text, row| text + &row);
    let fabric = lab(8, 200.0, 200.0);
    let files = Files::with(&[("lab.toml", fabric.as_bytes()), ("trace.csv", trace.as_bytes())]);
    let replay = |command: &str| {
        let arguments =
            ["replay", "--trace", "trace.csv", "--fabric", "lab.toml", "--volume", "40"];
        let more = ["--placement", "random", "--scheduler", "ecmp", "--scheduler-command", command];
        let all = [&arguments[..], &more, &["--format", "json"]].concat();
        files.command(&all).env("PYTHONPATH", PACKAGE).output().unwrap()
    };
    let outcomes = &json(&replay(&example("least_loaded.py")))["outcomes"];
    assert_eq!(outcomes[1]["scheduler"], "command");
    assert_eq!(outcomes[1]["completed"], 8);
    let utilisation = |place: usize| outcomes[place]["gpu_utilization"].as_f64().unwrap();
    assert!(utilisation(1) > utilisation(0) + 0.01, "{outcomes}");
    let failed = replay("echo no");
    assert_eq!(failed.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&failed.stderr);
    assert!(errors.contains("--scheduler-command `echo no`: the reply is not"), "{errors}");
}

#[test]
fn an_example_has_at_most_forty_lines() {
    let examples = Path::new(PACKAGE).join("crux_scheduler/examples");
    let files: Vec<_> = std::fs::read_dir(examples).unwrap().map(|file| file.unwrap()).collect();
    let files = files.iter().filter(|file| file.file_name().to_string_lossy().ends_with(".py"));
    let lines = files.map(|file| std::fs::read_to_string(file.path()).unwrap().lines().count());
    let lines: Vec<usize> = lines.collect();
    assert!(lines.len() >= 2 && lines.iter().all(|lines| *lines <= 40), "{lines:?}");
}

/// Keeps the requests that it gets, and gives each job the first path and its own level.
const KEEPER: &str = "\
import json, sys
for line in sys.stdin:
    open('requests.jsonl', 'a').write(line)
    asked = json.loads(line)
    jobs = [{'id': job['id'], 'level': level, 'start_shift_seconds': 0.25 * level,
             'paths': [0 if flow['paths'] else None for flow in job['flows']]}
            for level, job in enumerate(asked['jobs'])]
    print(json.dumps({'call': asked['call'], 'jobs': jobs}), flush=True)
";

#[test]
fn decisions_are_executed_and_asked_for_again_after_a_failure() {
    let folder = folder();
    folder.write("keeper.py", KEEPER);
    let faults = ["--fail", "leaf1-spine1@10s", "--repair", "leaf1-spine1@20s"];
    let command = ["--scheduler-command", "python3 keeper.py", "--format", "json"];
    let outcome = json(&run(&folder, "simulate", &[&faults[..], &command].concat()));
    let jobs: Vec<[f64; 2]> = { outcome["jobs"].as_array().unwrap().iter() }
        .map(|job| ["level", "start_shift_seconds"].map(|field| job[field].as_f64().unwrap()))
        .collect();
    assert_eq!(jobs, [[0.0, 0.0], [1.0, 0.25]]);
    let requests = folder.text("requests.jsonl");
    let requests: Vec<Value> =
        requests.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths = |request: &Value| request["jobs"][0]["flows"][0]["paths"].as_array().unwrap().len();
    let calls = requests.iter().map(|request| (request["call"].as_u64().unwrap(), paths(request)));
    assert_eq!(calls.collect::<Vec<_>>(), [(1, 2), (2, 1), (3, 2)]);
    let downs = |request: &Value| {
        let links = request["fabric"]["links"].as_array().unwrap().iter();
        links.filter(|link| link["up"] == false).count()
    };
    assert_eq!(requests.iter().map(downs).collect::<Vec<_>>(), [0, 2, 0]);
}

#[test]
fn a_program_that_fails_is_an_error_within_the_deadline() {
    for (command, expect) in [
        ("exit 3", "it ended without a reply (exit status: 3); reply to every line"),
        ("kill -9 $$", "it ended without a reply (signal: 9 (SIGKILL))"),
        ("sleep 300 & sleep 300", "no reply within 0.5 s; write a line and flush it"),
        ("exec >&-; sleep 300", "no reply within 0.5 s"),
        ("cat > all; sleep 300", "no reply within 0.5 s"),
        ("echo nonsense", "crux schema scheduler-reply"),
        ("printf '\\377\\n'", "invalid utf-8"),
        ("head -c 50000000 /dev/zero", "more than 16777216 bytes without a line end"),
        ("echo '{\"call\": 1, \"jobs\": []}'", "job a: it is not decided; decide each job once"),
    ] {
        let start = Instant::now();
        let deadline = if command.contains("sleep") { "0.5" } else { "20" };
        let arguments = ["--scheduler-command", command, "--scheduler-deadline", deadline];
        let output = run(&folder(), "simulate", &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {errors}");
        assert!(errors.contains(&format!("--scheduler-command `{command}`: ")), "{errors}");
        assert!(errors.contains(expect) && !errors.contains("panicked"), "{command}: {errors}");
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(start.elapsed() < Duration::from_secs(20), "{command}");
    }
}

/// What the shell has started ends with it, so no program is left behind.
#[test]
fn nothing_that_the_command_started_is_left() {
    let folder = folder();
    let command = "sleep 300 & echo $! > started; sleep 300";
    let arguments = ["--scheduler-command", command, "--scheduler-deadline", "0.5"];
    assert_eq!(run(&folder, "simulate", &arguments).status.code(), Some(1));
    let started = folder.text("started");
    let is_left = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", started.trim()));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while is_left() {
        assert!(Instant::now() < end, "process {started} is left");
        std::thread::yield_now();
    }
}

#[test]
fn the_documents_have_schemas() {
    for (kind, field) in [("scheduler-request", "fabric"), ("scheduler-reply", "jobs")] {
        let output = folder().crux(&["schema", kind]);
        let schema: Value = serde_json::from_str(printed(&output)).unwrap();
        assert!(schema["properties"][field].is_object(), "{kind}: {schema}");
    }
}

#[test]
fn a_deadline_and_a_choice_of_scheduler_are_required() {
    for (arguments, expect) in [
        (&["--scheduler-command", "true", "--scheduler-deadline", "0"][..], "above 0"),
        (&["--scheduler-command", "true", "--scheduler", "ecmp"], "cannot be used with"),
        (&[], "--scheduler <NAME>"),
    ] {
        let output = run(&folder(), "simulate", arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expect), "{errors}");
    }
}
