//! `crux replay` and `crux place` as a user meets them: traces good and bad, runs that are killed
//! and go on, and where a new job would go.

use std::fmt::Write;
use std::process::{Output, Stdio};

use super::support::{Files, json, printed, refused};

const LAB: &str = r#"
name = "lab"
[clos]
leaves = 4
spines = 2
hosts_per_leaf = 3
gpus_per_host = 8
host_gbps = 200.0
uplink_gbps = 200.0
"#;

const JOBS: &str = r#"{"jobs": [
  {"id": "a", "gpus": {"h1": 8, "h4": 8}, "flop_per_iteration": 3e15, "compute_seconds": 1.0,
   "flows": [{"src": "h1", "dst": "h4", "bytes": 12.5e9},
             {"src": "h4", "dst": "h1", "bytes": 12.5e9}]}]}"#;

/// Jobs every 50 s of all sizes, and five rows that make no sense.
fn trace() -> String {
    let mut text = "submitted_seconds,gpus,duration_seconds,id,model\n".to_owned();
    for job in 0..60 {
        let gpus = [8, 16, 24, 40][job % 4];
        let seconds = 200 + 37 * (job % 7);
        writeln!(text, "{},{gpus},{seconds},job{job},gpt-24l/A100", 50 * job).unwrap();
    }
    text + "x,8,60,bad1,\n10,8\n-5,8,60,bad2,\n20,8,-1,bad3,\n20,0,10,bad4,\n"
}

fn folder() -> Files {
    let trace = trace();
    Files::with(&[
        ("lab.toml", LAB.as_bytes()),
        ("jobs.json", JOBS.as_bytes()),
        ("trace.csv", trace.as_bytes()),
    ])
}

const REPLAY: [&str; 7] =
    ["replay", "--trace", "trace.csv", "--fabric", "lab.toml", "--volume", "8"];

fn replay(folder: &Files, more: &[&str]) -> Output {
    folder.crux(&[&REPLAY, more].concat())
}

#[test]
fn a_trace_is_replayed_under_every_scheduler_and_bad_rows_are_counted() {
    let folder = folder();
    let found = json(&replay(&folder, &["--format", "json", "--html", "page.html"]));
    let outcomes = found["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 5);
    for outcome in outcomes {
        assert_eq!(outcome["completed"], 60, "{outcome}");
        assert!(outcome["gpu_utilization"].as_f64().unwrap() > 0.2);
    }
    let notes = found["notes"].to_string();
    assert!(notes.contains("skipped"), "{notes}");
    let page = folder.text("page.html");
    assert!(page.contains("<svg") && page.contains("skipped"));
    let table = replay(&folder, &["--scheduler", "crux", "--placement", "hived"]);
    let table = printed(&table);
    assert!(table.contains("60 jobs, placed by hived, seed 1"), "{table}");
}

#[test]
fn the_composed_trace_needs_a_large_cluster() {
    let folder = folder();
    let traced = ["replay", "--trace", "lingjun-like", "--fabric", "lab.toml"];
    // The lab is smaller than the large jobs.
    refused(&folder.crux(&traced), &["a job of 128 GPUs in a cluster of 96"]);
}

#[test]
fn an_invalid_trace_is_reported_with_its_line() {
    let folder = folder();
    let check = |text: &str, expect: &str| {
        folder.write("trace.csv", text);
        refused(&replay(&folder, &["--scheduler", "ecmp"]), &[expect]);
    };
    check("a,b\n1,2\n", "trace.csv: line 1: expected the columns");
    check(
        "submitted_seconds,gpus,duration_seconds\n1,2\nx,1,1\n",
        "no job of the selection in the trace; skipped:",
    );
}

#[test]
fn a_killed_replay_resumes_and_ends_with_the_same_result() {
    let folder = folder();
    let arguments = ["--scheduler", "crux", "--format", "json"];
    let whole = json(&replay(&folder, &arguments));
    let kept = folder.path("run.crux");
    let keep = ["--checkpoint", "run", "--checkpoint-seconds", "0"];
    let mut run = folder.command(&[&REPLAY[..], &arguments, &keep].concat());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Killed as soon as there is anything to go on from.
    while !kept.exists() && run.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = run.kill();
    run.wait().unwrap();
    let resumed = replay(&folder, &[&arguments[..], &keep].concat());
    assert!(String::from_utf8_lossy(&resumed.stderr).contains("going on from run.crux"));
    assert_eq!(json(&resumed), whole);
    // Another replay does not go on from it.
    let other = replay(&folder, &[&arguments[..], &keep, &["--seed", "2"]].concat());
    refused(&other, &["it belongs to another replay"]);
}

#[test]
fn every_policy_places_a_job_and_gives_the_reason() {
    let folder = folder();
    let fixed = ["place", "--fabric", "lab.toml", "--jobs", "jobs.json"];
    let ask = |more: &[&str]| folder.crux(&[&fixed, more].concat());
    let new = ["--gpus", "16", "--model", "gpt-24l/A100"];
    let advices = json(&ask(&[&new[..], &["--format", "json"]].concat()));
    let same_leaf = advices.as_array().unwrap().iter();
    let same_leaf = same_leaf.clone().find(|advice| advice["placement"] == "same-leaf").unwrap();
    assert_eq!(same_leaf["leaves"], 1, "{same_leaf}");
    let table = ask(&[&new[..], &["--placement", "same-leaf"]].concat());
    assert!(printed(&table).contains("nobody is delayed"));
    refused(&ask(&["--gpus", "16", "--model", "gpt"]), &["known are"]);
}
