//! Reports as other languages exchange them: `protoc`, where it is installed, compiles
//! `telemetry.proto`, reads what this crate encodes, and encodes what this crate reads.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

use std::io::Write;
use std::process::{Command, Stdio};

use api::telemetry::job_report::Report;
use api::telemetry::{
    Collective, GpuIndices, JobAnnouncement, JobEnd, JobFlow, JobReport, JobWindow, RankGroups,
    RankTraffic,
};
use prost::Message;

/// What `protoc` makes of its standard input; `None` if it is not installed.
fn run_protoc(action: &str, input: &[u8]) -> Option<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let mut running = Command::new("protoc")
        .args([&format!("--{action}=crux.telemetry.v1.JobReport"), "-I", folder])
        .arg("telemetry.proto")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    running.stdin.take().unwrap().write_all(input).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// One report of each kind, with a value in every field.
fn reports() -> [JobReport; 3] {
    let flow = JobFlow {
        src: "h1".to_owned(),
        dst: "h2".to_owned(),
        src_nic: 1,
        dst_nic: 2,
        udp_src_port: Some(49_152),
        bytes: 1e9,
        src_gpu: Some(3),
        dst_gpu: Some(4),
        overlap_from: Some(0.25),
    };
    let collective = Collective {
        kind: "ring".to_owned(),
        bytes: 2e9,
        channels: Some(3),
        groups: Some(RankGroups { size: 4, stride: 3 }),
        overlap_from: Some(0.75),
    };
    let announcement = JobAnnouncement {
        job: "bert".to_owned(),
        tenant: Some("blue".to_owned()),
        model: Some("BERT".to_owned()),
        gpus: [("h1".to_owned(), 8), ("h2".to_owned(), 4)].into(),
        flows: vec![flow.clone(), JobFlow { udp_src_port: None, ..flow }],
        collective: Some(collective.clone()),
        collectives: vec![collective],
        profile: Some("bert".to_owned()),
        flop_per_iteration: Some(1.5e15),
        compute_seconds: Some(0.25),
        overlap_from: Some(0.5),
        pods: vec!["2dd1b5c4-1f7e-4b7a-9f0e-8a1c5f6b7d8e".to_owned()],
        hosts: vec!["h2".to_owned(), "h1".to_owned()],
        gpu_indices: [("h2".to_owned(), GpuIndices { indices: vec![0, 2, 4, 6] })].into(),
        rank_traffic: vec![RankTraffic { src: 0, dst: 11, bytes: 1e9, overlap_from: Some(0.5) }],
        can_wait: true,
    };
    let window = JobWindow {
        job: "bert".to_owned(),
        seconds: 2.0,
        iteration_starts: vec![0.0, 0.5, 1.25],
        flop: 3e15,
        compute_seconds: 0.75,
        communication_seconds: 0.125,
        flow_bytes: vec![1e9, 2e9],
        bytes: Some(3e9),
        slot_offset_seconds: Some(-0.01),
    };
    let end = JobEnd { job: "bert".to_owned() };
    [Report::Announcement(announcement), Report::Window(window), Report::End(end)]
        .map(|report| JobReport { report: Some(report) })
}

#[test]
fn protoc_reads_and_writes_the_reports_of_this_crate() {
    for report in reports() {
        let Some(text) = run_protoc("decode", &report.encode_to_vec()) else {
            eprintln!("skipped: protoc is not installed");
            return;
        };
        // What the file does not declare would be printed by its number.
        let is_number =
            |line: &str| line.trim_start().starts_with(|first: char| first.is_numeric());
        let shown = String::from_utf8(text.clone()).unwrap();
        assert!(!shown.lines().any(is_number), "{shown}");
        let encoded = run_protoc("encode", &text).unwrap();
        assert_eq!(JobReport::decode(encoded.as_slice()).unwrap(), report, "{shown}");
    }
}
