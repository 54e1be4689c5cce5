//! Wrong input, as a user meets it: the program's exit status and the message with file and field.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use super::support::{Files, lab, printed, refused};

/// Two leaves that no spine joins: hosts `a` and `b` cannot reach each other.
const SPLIT: &str = r#"{
  "name": "split",
  "switches": [ {"name": "leaf1", "tier": "leaf", "device_id": 1},
                {"name": "leaf2", "tier": "leaf", "device_id": 2} ],
  "hosts": [ {"name": "a", "gpus": 8, "ips": ["10.0.1.1"]},
             {"name": "b", "gpus": 8, "ips": ["10.0.2.1"]} ],
  "links": [ {"a": "a:0", "b": "leaf1:1", "gbps": 200.0},
             {"a": "b:0", "b": "leaf2:1", "gbps": 200.0} ] }"#;

/// The fabric of cases that are about something else.
fn good() -> String {
    lab(2, 200.0, 400.0)
}

fn check_jobs(jobs: &str, expect: &[&str]) {
    let files = Files::with(&[("lab.toml", good().as_bytes()), ("jobs.json", jobs.as_bytes())]);
    refused(&files.crux(&["plan", "--fabric", "lab.toml", "--jobs", "jobs.json"]), expect);
}

fn check_fabric(name: &str, bytes: &[u8], expect: &[&str]) {
    let files = Files::with(&[(name, bytes)]);
    refused(&files.crux(&["fabric", "check", name]), expect);
}

fn job(gpus: &str, flows: &str) -> String {
    format!(
        r#"{{"jobs": [{{"id": "j", "gpus": {gpus}, "flop_per_iteration": 1e15,
            "compute_seconds": 1.0, "overlap_from": 0.5, "flows": [{flows}]}}]}}"#
    )
}

#[test]
fn jobs_that_make_no_sense() {
    let flow = r#"{"src": "h1", "dst": "h3", "src_nic": 0, "dst_nic": 0, "bytes": 1e9}"#;
    let cases = [
        (job(r#"{"h9": 8}"#, flow), vec!["jobs.json", "jobs[0].gpus", "h9"]),
        (job(r#"{"h1": 9}"#, flow), vec!["jobs.json", "jobs[0].gpus", "9", "8"]),
        (job(r#"{"h1": 8}"#, &flow.replace("h3", "h33")), vec!["jobs[0].flows[0].dst", "h33"]),
        (job(r#"{"h1": 8}"#, &flow.replace("1e9", "-5")), vec!["jobs[0].flows[0].bytes", "-5"]),
        (job(r#"{"h1": 8}"#, &flow.replace("bytes", "byts")), vec!["byts", "bytes"]),
        (job(r#"{"h1": 8}"#, &flow.replace(r#""src_nic": 0"#, r#""src_nic": 7"#)), vec!["src_nic"]),
    ];
    for (jobs, expect) in cases {
        check_jobs(&jobs, &expect);
    }
}

#[test]
fn files_that_are_no_documents() {
    check_jobs("", &["jobs.json", "empty"]);
    check_jobs("{\"jobs\": [", &["jobs.json:1"]);
    check_fabric("empty.toml", b"", &["empty.toml", "empty"]);
    check_fabric(
        "junk.json",
        b"\x7fELF\x02\x01\x01\x00\xff\xfe",
        &["junk.json", "not a text file"],
    );
    check_fabric("list.json", b"[1, 2]", &["list.json:1"]);
    check_fabric("fabric.ini", b"[clos]", &["fabric.ini", ".toml"]);
}

#[test]
fn fabrics_that_make_no_sense() {
    let twice = SPLIT.replace("leaf2:1", "leaf1:1");
    check_fabric("twice.json", twice.as_bytes(), &["twice.json", "links[1].b", "leaf1:1"]);
    let unknown = good().replace("spines", "spine");
    check_fabric("lab.toml", unknown.as_bytes(), &["lab.toml", "spine", "spines"]);
    let none = good().replace("leaves = 2", "leaves = 0");
    check_fabric("lab.toml", none.as_bytes(), &["lab.toml", "clos.leaves"]);
    let slow = good().replace("200.0", "-1.0");
    check_fabric("lab.toml", slow.as_bytes(), &["lab.toml", "clos.host_gbps"]);
}

#[test]
fn a_file_of_200_megabytes_is_refused_unread() {
    let files = Files::with(&[("lab.toml", good().as_bytes())]);
    File::create(files.path("huge.json")).unwrap().set_len(200 << 20).unwrap();
    refused(&files.crux(&["fabric", "check", "huge.json"]), &["huge.json", "at most"]);
    let plan = ["plan", "--fabric", "lab.toml", "--jobs", "huge.json"];
    refused(&files.crux(&plan), &["huge.json", "at most"]);
}

#[test]
fn a_file_that_is_not_there() {
    let files = Files::with(&[]);
    refused(&files.crux(&["fabric", "check", "lab.toml"]), &["lab.toml", "No such file"]);
}

#[test]
fn a_flow_between_unconnected_hosts_is_a_finding() {
    let flow = r#"{"src": "a", "dst": "b", "src_nic": 0, "dst_nic": 0, "bytes": 1e9}"#;
    let jobs = job(r#"{"a": 8, "b": 8}"#, flow);
    let files = Files::with(&[("split.json", SPLIT.as_bytes()), ("jobs.json", jobs.as_bytes())]);
    let arguments = ["plan", "--fabric", "split.json", "--jobs", "jobs.json", "--format", "json"];
    let output = files.crux(&arguments);
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = plan["findings"].to_string();
    assert!(findings.contains("job j") && findings.contains("path"), "{findings}");
    let output = files.crux(&["fabric", "check", "split.json"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn configurations_are_refused_with_line_field_and_suggestion() {
    let cases = [
        (
            "[recncile]\n",
            "crux.toml:1: recncile: unknown field `recncile`; did you mean `reconcile`?",
        ),
        (
            "\n[reconcile]\nbatchs = 1\n",
            "crux.toml:3: reconcile.batchs: unknown field `batchs`; did you mean `batch`?",
        ),
        ("[switches]\nlevels = 9\n", "crux.toml:2: switches.levels: must be 1 to 8, found 9"),
        ("[tls]\nca = 'gone.pem'\n", "crux.toml:2: tls.ca: cannot read gone.pem"),
        (
            "[northbound]\nlisten = '10.0.0.1'\n",
            "crux.toml:2: northbound.listen: invalid socket address",
        ),
    ];
    for (text, expect) in cases {
        let files = Files::with(&[("crux.toml", text.as_bytes())]);
        refused(&files.crux(&["config", "check", "crux.toml"]), &[expect]);
        let start = ["controller", "--config", "crux.toml", "--fabric", "lab.toml"];
        refused(&files.crux(&start), &[expect]);
    }
}

#[test]
fn a_checked_configuration_lists_what_it_sets() {
    let text = b"[reconcile]\nbatch = 7\n[store]\npath = 'x'\n";
    let files = Files::with(&[("crux.toml", text)]);
    let table = printed_text(&files, &["config", "check", "crux.toml"]);
    assert!(table.contains("reconcile.batch") && table.contains("500"), "{table}");
    let commented = printed_text(&files, &["config", "print", "crux.toml"]);
    assert!(commented.contains("\nbatch = 7\n") && commented.contains("\n#readers = 4\n"));
    files.write("again.toml", &commented);
    assert_eq!(printed_text(&files, &["config", "print", "again.toml"]), commented);
}

#[test]
fn a_controller_needs_a_fabric_or_switches() {
    let files = Files::with(&[]);
    refused(&files.crux(&["controller"]), &["--fabric <FABRIC>|--switch <NAME=HOST:PORT/ID>"]);
    let portless = files.crux(&["controller", "--switch", "s1=10.0.0.1/1"]);
    refused(&portless, &["s1=10.0.0.1/1", "write NAME=HOST:PORT/ID"]);
}

#[test]
fn a_recording_without_events_is_no_success() {
    let files = Files::with(&[("cut.jsonl", b"")]);
    refused(&files.crux(&["replay-incident", "cut.jsonl"]), &["cut.jsonl"]);
}

#[test]
fn a_trace_with_more_jobs_than_wanted_is_refused() {
    let files = Files::with(&[(
        "lab.toml",
        include_bytes!("../../../../topology/fabrics/crux-clos-173x16.toml"),
    )]);
    let replay = ["replay", "--trace", "lingjun-like", "--fabric", "lab.toml", "--max-jobs", "800"];
    refused(&files.crux(&replay), &["--max-jobs 800", "more than that"]);
}

#[test]
fn an_expanded_fabric_is_a_document_in_every_language() {
    let files = Files::with(&[("lab.toml", good().as_bytes())]);
    let cables = printed_text(&files, &["fabric", "expand", "lab.toml"]);
    for language in ["toml", "yaml", "json"] {
        let text = printed_text(&files, &["fabric", "expand", "lab.toml", "--format", language]);
        let name = format!("again.{language}");
        files.write(&name, &text);
        assert_eq!(printed_text(&files, &["fabric", "expand", &name]), cables, "{language}");
    }
}

#[test]
fn logs_are_lines_of_json_where_that_is_asked() {
    let files = Files::with(&[("lab.toml", good().as_bytes())]);
    let wrong = files.crux(&["--log-format", "xml", "fabric", "check", "lab.toml"]);
    refused(&wrong, &["possible values: text, json"]);
}

#[test]
fn lines_in_the_journal_have_no_time_of_their_own() {
    let files = Files::with(&[
        ("lab.toml", good().as_bytes()),
        ("crux.toml", b"[store]\npath = 'absent/store.redb'\n"),
    ]);
    let log_of = |stream: &dyn Fn(&Metadata) -> String| {
        let log = File::create(files.path("log")).unwrap();
        let stream = stream(&log.metadata().unwrap());
        let arguments = ["--log", "info", "controller", "--fabric", "lab.toml"];
        let mut controller = files.command(&[&arguments[..], &["--config", "crux.toml"]].concat());
        controller.env("JOURNAL_STREAM", stream).stdout(Stdio::null()).stderr(log);
        assert!(!controller.status().unwrap().success(), "its store has no folder");
        files.text("log")
    };
    let journal = log_of(&|log| format!("{}:{}", log.dev(), log.ino()));
    assert!(journal.trim_start().starts_with("INFO"), "{journal}");
    let redirected = log_of(&|log| format!("{}:{}", log.dev(), log.ino() + 1));
    assert!(redirected.starts_with("20"), "{redirected}");
}

fn printed_text(files: &Files, arguments: &[&str]) -> String {
    printed(&files.crux(arguments)).to_owned()
}
