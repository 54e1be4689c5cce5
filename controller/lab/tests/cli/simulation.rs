//! `crux simulate` and `crux compare` as a user meets them: documents, tables, the page, and what
//! is said of input that makes no sense.

use std::process::Output;

use serde_json::Value;

use super::support::{Files, json, lab, printed, refused};

/// Three jobs across two leaves, 1 s of computation and 0.5 s of communication each, all from the
/// host's one NIC to the other leaf.
const JOBS: &str = r#"{"jobs": [
  {"id": "a", "gpus": {"h1": 8, "h4": 8}, "flop_per_iteration": 3e15, "compute_seconds": 1.0,
   "flows": [{"src": "h1", "dst": "h4", "bytes": 12.5e9, "udp_src_port": 50001}]},
  {"id": "b <i>", "gpus": {"h2": 8, "h5": 8}, "flop_per_iteration": 2e15, "compute_seconds": 1.0,
   "flows": [{"src": "h2", "dst": "h5", "bytes": 12.5e9, "udp_src_port": 50002}]},
  {"id": "c", "gpus": {"h3": 8, "h6": 8}, "flop_per_iteration": 1e15, "compute_seconds": 1.0,
   "flows": [{"src": "h3", "dst": "h6", "bytes": 12.5e9, "udp_src_port": 50003}]} ]}"#;

const SCHEDULERS: [&str; 9] = [
    "ecmp",
    "sincronia",
    "varys",
    "taccl",
    "taccl-job",
    "cassini",
    "crux-pa",
    "crux-ps-pa",
    "crux",
];

fn folder() -> Files {
    let lab = lab(3, 200.0, 200.0);
    Files::with(&[("lab.toml", lab.as_bytes()), ("jobs.json", JOBS.as_bytes())])
}

/// Runs `crux COMMAND --fabric lab.toml --jobs jobs.json` with more arguments.
fn crux_in(folder: &Files, command: &str, arguments: &[&str]) -> Output {
    let documents = [command, "--fabric", "lab.toml", "--jobs", "jobs.json"];
    folder.crux(&[&documents, arguments].concat())
}

fn simulate(arguments: &[&str]) -> Value {
    json(&crux_in(&folder(), "simulate", &[arguments, &["--format", "json"]].concat()))
}

fn check_bad(command: &str, arguments: &[&str], expect: &[&str]) {
    refused(&crux_in(&folder(), command, arguments), expect);
}

#[test]
fn every_scheduler_gives_an_outcome() {
    for name in SCHEDULERS {
        let outcome = simulate(&["--scheduler", name, "--seconds", "60"]);
        assert_eq!(outcome["scheduler"], name);
        let utilisation = outcome["gpu_utilization"].as_f64().unwrap();
        assert!((0.4..=0.67).contains(&utilisation), "{name}: {utilisation}");
        assert_eq!(outcome["jobs"].as_array().unwrap().len(), 3);
        assert!(outcome["links"][0]["levels"][0]["busy_fraction"].is_number());
    }
}

#[test]
fn levels_are_those_asked_for() {
    let outcome = simulate(&["--scheduler", "sincronia", "--seconds", "9", "--levels", "2"]);
    let jobs = outcome["jobs"].as_array().unwrap();
    let mut levels: Vec<u64> = jobs.iter().map(|job| job["level"].as_u64().unwrap()).collect();
    levels.sort_unstable();
    assert_eq!(levels, [0, 0, 1]);
}

#[test]
fn a_failure_stops_jobs_and_a_repair_lets_them_go_on() {
    // Alone 1.5 s an iteration. Without a spine from 6 s on, nothing ends after the iterations
    // under way; with one again from 12 s on, 6 s and less than two iterations are lost.
    let fixed = ["--scheduler", "crux", "--seconds", "60"];
    let run = |arguments: &[&str]| simulate(&[&fixed, arguments].concat());
    let iterations = |outcome: &Value| -> u64 {
        let jobs = outcome["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["iterations"].as_u64().unwrap()).sum()
    };
    let failures = ["--fail", "spine1@6s", "--fail", "spine2@6s"];
    let failed = run(&failures);
    let repaired = run(&[&failures[..], &["--repair", "spine2@12s"]].concat());
    assert!((3 * 3..=3 * 4).contains(&iterations(&failed)), "{failed}");
    assert!((3 * 33..=3 * 36).contains(&iterations(&repaired)), "{repaired}");
    for outcome in [failed, repaired] {
        let findings = outcome["findings"].to_string();
        assert!(findings.contains("waits for one"), "{findings}");
    }
}

#[test]
fn tables_are_for_people() {
    let output = crux_in(&folder(), "simulate", &["--scheduler", "crux", "--seconds", "0.5"]);
    let text = printed(&output);
    for part in ["GPU utilisation", "mean iteration s", "no iteration ended within 0.5 s"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let output = crux_in(&folder(), "compare", &["--seconds", "30", "--schedulers", "ecmp,crux"]);
    let text = printed(&output);
    for part in ["GPU utilisation %", "worst slowdown", "alone", "ecmp", "crux", "+0.00"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn a_comparison_has_every_scheduler_and_each_job_alone() {
    let arguments = ["--seconds", "30", "--schedulers", "ecmp,cassini,crux", "--format", "json"];
    let comparison = json(&crux_in(&folder(), "compare", &arguments));
    let names: Vec<&str> = comparison["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|outcome| outcome["scheduler"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ecmp", "cassini", "crux"]);
    for job in comparison["alone"].as_array().unwrap() {
        assert_eq!(job["iteration_seconds"], 1.5);
    }
}

#[test]
fn the_page_needs_nothing_else_and_escapes_names() {
    let folder = folder();
    let arguments = ["--seconds", "30", "--html", "page.html"];
    assert!(crux_in(&folder, "compare", &arguments).status.success());
    let page = folder.text("page.html");
    // Two bars and dots, two views of intensity, and links for each of six schedulers.
    assert!(page.matches("<svg").count() >= 4 + 6, "{}", page.matches("<svg").count());
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("b &lt;i&gt;") && !page.contains("b <i>"));
    for reference in ["<script", "src=", "@import", "<link", "NaN"] {
        assert!(!page.contains(reference), "{reference}");
    }
    let written = crux_in(&folder, "compare", &["--seconds", "1", "--html", "no/such/page.html"]);
    assert_eq!(written.status.code(), Some(2));
}

#[test]
fn arguments_that_make_no_sense() {
    check_bad("simulate", &["--scheduler", "cruxx"], &["cruxx", "crux-pa"]);
    check_bad("simulate", &[], &["--scheduler"]);
    check_bad("compare", &["--schedulers", "ecmp,nobody"], &["nobody", "sincronia"]);
    for seconds in ["0", "-1", "NaN", "inf", "1e12"] {
        let seconds = format!("--seconds={seconds}");
        let arguments = ["--scheduler", "crux", seconds.as_str()];
        check_bad("simulate", &arguments, &["--seconds", "cannot simulate"]);
    }
    check_bad("simulate", &["--scheduler", "crux", "--levels", "0"], &["levels", "0"]);
    check_bad("simulate", &["--scheduler", "crux", "--levels", "9"], &["levels", "9"]);
}

#[test]
fn faults_that_make_no_sense() {
    for (text, expect) in [
        ("leaf1-spine1", "10s"),
        ("leaf1-spine9@1s", "leaf1-spine9"),
        ("leaf1-spine1@soon", "soon"),
    ] {
        check_bad("simulate", &["--scheduler", "crux", "--fail", text], &["--fail", expect]);
        check_bad("compare", &["--repair", text], &["--repair", expect]);
    }
}

/// Replaces `from` in one of the documents; both commands must fail with status 2 and say `expect`.
fn check_bad_document(file: &str, (from, to): (&str, &str), expect: &[&str]) {
    let folder = folder();
    let text = folder.text(file);
    assert!(text.contains(from), "no {from:?} in {file}");
    folder.write(file, &text.replacen(from, to, 1));
    for arguments in [&["simulate", "--scheduler", "crux"][..], &["compare"]] {
        refused(&crux_in(&folder, arguments[0], &arguments[1..]), expect);
    }
}

#[test]
fn numbers_that_make_no_sense_are_named_by_file_and_field() {
    for bandwidth in ["0.0", "-1.0", "nan", "inf"] {
        let change = ("uplink_gbps = 200.0", &*format!("uplink_gbps = {bandwidth}"));
        check_bad_document("lab.toml", change, &["lab.toml", "uplink_gbps"]);
    }
    for number in ["-1.0", "1e300", "null", "\"NaN\""] {
        let fields = [
            ("\"compute_seconds\": 1.0", "compute_seconds"),
            ("\"bytes\": 12.5e9", "bytes"),
            ("\"flop_per_iteration\": 3e15", "flop_per_iteration"),
        ];
        for (from, field) in fields {
            let change = (from, &*format!("\"{field}\": {number}"));
            check_bad_document("jobs.json", change, &["jobs.json", "jobs[0]", field]);
        }
    }
    check_bad_document("jobs.json", ("\"dst\": \"h4\"", "\"dst\": \"h9\""), &["jobs.json", "h9"]);
}

#[test]
fn a_policy_without_levels_is_refused() {
    let folder = folder();
    folder.write("policy.toml", "levels = 0");
    let output = crux_in(&folder, "compare", &["--policy", "policy.toml"]);
    refused(&output, &["policy.toml:1: levels: 0"]);
}

#[test]
fn more_iterations_than_anybody_waits_for_are_refused() {
    let folder = folder();
    let jobs = JOBS.replace("1.0", "0.0").replace("12.5e9", "12.5");
    folder.write("jobs.json", &jobs);
    let output = crux_in(&folder, "simulate", &["--scheduler", "ecmp", "--seconds", "1e6"]);
    refused(&output, &["jobs.json: job a would iterate"]);
}

#[test]
fn an_iteration_longer_than_the_horizon_is_a_finding() {
    for scheduler in SCHEDULERS {
        let outcome = simulate(&["--scheduler", scheduler, "--seconds", "1.25"]);
        let findings = outcome["findings"].to_string();
        assert!(findings.contains("no iteration ended within 1.25 s"), "{findings}");
        assert_eq!(outcome["jobs"][0]["mean_iteration_seconds"], Value::Null);
    }
}

#[test]
fn no_jobs_are_no_failure() {
    let folder = folder();
    folder.write("jobs.json", "{\"jobs\": []}");
    let output = crux_in(&folder, "compare", &["--html", "page.html", "--format", "json"]);
    assert_eq!(json(&output)["outcomes"][0]["gpu_utilization"], 0.0);
    let page = folder.text("page.html");
    assert!(page.contains("0 jobs") && !page.contains("NaN"));
}

#[test]
fn a_job_without_a_path_is_a_finding() {
    let folder = folder();
    folder.write("policy.toml", "drained = [\"spine1\", \"spine2\"]");
    for scheduler in SCHEDULERS {
        let arguments = [
            "--scheduler",
            scheduler,
            "--policy",
            "policy.toml",
            "--seconds",
            "5",
            "--format",
            "json",
        ];
        let outcome = json(&crux_in(&folder, "simulate", &arguments));
        assert_eq!(outcome["jobs"][0]["iterations"], 0);
        assert_eq!(outcome["jobs"][0]["mean_iteration_seconds"], Value::Null);
        let findings = outcome["findings"].to_string();
        assert!(findings.contains("job a") && findings.contains("path"), "{findings}");
    }
}

#[test]
fn a_reproduction_has_rows_assumptions_and_a_page() {
    let folder = folder();
    let crux = |arguments: &[&str]| folder.crux(&[&["reproduce"], arguments].concat());
    let arguments = ["crux-fig7", "--format", "json", "--html", "page.html"];
    let found = json(&crux(&arguments));
    assert_eq!(found["experiment"], "crux-fig7");
    let row = &found["rows"][0];
    assert!(row["measure"].is_string() && row["paper"] == 1.53 && row["ours"].is_number());
    assert!(!found["assumptions"].as_array().unwrap().is_empty());
    let page = folder.text("page.html");
    assert!(page.contains("<svg") && page.contains("1.530"));
    refused(&crux(&["crux-fig8"]), &["crux-fig7", "all"]);
}

/// Three cells of the map with two seeds, one after the other.
fn run_map(folder: &Files) -> Output {
    folder.crux(&["map", "run", "--results", "map.jsonl", "--shard", "97/128", "--seeds", "2"])
}

#[test]
fn a_map_that_was_interrupted_goes_on_to_the_same_results() {
    let folder = folder();
    printed(&run_map(&folder));
    let whole = folder.text("map.jsonl");
    assert_eq!(whole.lines().count(), 6);
    for line in whole.lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        assert_eq!(result["hashes"][0].as_object().unwrap().len(), 10);
    }
    folder.write("map.jsonl", &whole[..whole.len() * 2 / 3]);
    printed(&run_map(&folder));
    assert_eq!(folder.text("map.jsonl"), whole);
    refused(&folder.crux(&["map", "merge", "map.jsonl"]), &["762 results are missing", "cell 0"]);
    let wrong = ["map", "run", "--results", "map.jsonl", "--shard", "4/3"];
    refused(&folder.crux(&wrong), &["`4/3` must be I/N with I from 1 to N"]);
}

/// Jobs `a` and `b` send from the one NIC of h1; h3 and h6 are idle.
const SHARED_NIC: &str = r#"{"jobs": [
  {"id": "a", "gpus": {"h1": 4, "h4": 4}, "flop_per_iteration": 3e15, "compute_seconds": 1.0,
   "flows": [{"src": "h1", "dst": "h4", "bytes": 12.5e9, "udp_src_port": 50001}]},
  {"id": "b", "gpus": {"h1": 4, "h5": 4}, "flop_per_iteration": 2e15, "compute_seconds": 1.0,
   "flows": [{"src": "h1", "dst": "h5", "bytes": 12.5e9, "udp_src_port": 50002}]},
  {"id": "c", "gpus": {"h2": 8}, "flop_per_iteration": 1e15, "compute_seconds": 1.0, "flows": []}
]}"#;

#[test]
fn a_job_is_advised_to_move_where_no_path_helps() {
    let folder = folder();
    let advise = |more: &[&str]| crux_in(&folder, "advise", &[&["--move"], more].concat());
    // Each job has its own NICs: nothing is to gain.
    assert!(printed(&advise(&[])).starts_with("no move of a job to free GPUs gains 0.1 points"));
    folder.write("jobs.json", SHARED_NIC);
    let moves = json(&advise(&["--format", "json"]));
    let best = &moves[0];
    assert_eq!(best["gpus"], 4);
    assert!(best["hosts"]["h1"].is_string(), "{moves}");
    let of = |field: &str| best[field].as_f64().unwrap();
    assert!(of("moved_utilization") > of("now_utilization") + 0.02, "{moves}");
    assert!((of("moved_seconds") / of("alone_seconds") - 1.0).abs() < 0.01, "{moves}");
    let table = advise(&["--job", best["job"].as_str().unwrap()]);
    assert!(printed(&table).contains("h1 to "), "{}", printed(&table));
}

#[test]
fn a_comparison_has_the_spread_over_draws_of_ports_and_a_row_for_each_job() {
    let folder = folder();
    let run = |arguments: &[&str]| {
        let fixed = ["--schedulers", "ecmp,crux", "--seconds", "15"];
        crux_in(&folder, "compare", &[&fixed, arguments].concat())
    };
    let table = run(&["--csv", "outcomes.csv"]);
    assert!(printed(&table).contains("over 10 draws of UDP source ports"), "{}", printed(&table));
    let csv = folder.text("outcomes.csv");
    // Ten draws, two schedulers, three jobs.
    assert_eq!(csv.lines().count(), 1 + 60);
    assert!(csv.starts_with("seed,scheduler,gpu_utilization,"));
    let draws = json(&run(&["--seeds", "4", "--format", "json"]))["draws"].clone();
    assert_eq!((draws.as_array().unwrap().len(), &draws[1]["count"]), (2, &Value::from(4)));
    let spread =
        |place: usize, field: &str| draws[place]["gpu_utilization"][field].as_f64().unwrap();
    assert!(spread(0, "least") < spread(0, "most"), "{draws}");
    assert!(spread(0, "least") <= spread(0, "mean") && spread(0, "mean") <= spread(0, "most"));
    assert_eq!(draws[0]["gain"]["most"], 0.0);
    let single = json(&run(&["--seeds", "1", "--format", "json"]));
    assert!(single.get("draws").is_none(), "{single}");
}

#[test]
fn hashes_that_polarise_change_what_ecmp_does() {
    for hash in ["independent", "same-function", "same-function-and-seed"] {
        let outcome = simulate(&["--scheduler", "ecmp", "--seconds", "15", "--switch-hash", hash]);
        assert_eq!(outcome["jobs"].as_array().unwrap().len(), 3);
    }
    let wrong = ["--scheduler", "ecmp", "--switch-hash", "crc"];
    check_bad("simulate", &wrong, &["unknown hash `crc`: use one of independent"]);
}
