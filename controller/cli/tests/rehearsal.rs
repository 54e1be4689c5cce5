//! `crux job rehearse` beside `crux simulate`: the emulated fabric, packet by packet, agrees with
//! the fluid model that the planner goes by.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails where its own set-up fails"
)]

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const LAB: &str = r#"
name = "lab"
[clos]
leaves = 2
spines = 2
hosts_per_leaf = 2
gpus_per_host = 8
host_gbps = 1.0
uplink_gbps = 1.0
"#;

/// So many flows each way between two hosts.
fn flows(between: [&str; 2], each_way: u64, bytes: f64, first_port: u64) -> Vec<Value> {
    let [one, other] = between;
    let pairs = (0..each_way).flat_map(|_| [(one, other), (other, one)]);
    let flow =
        |(port, (src, dst))| json!({"src": src, "dst": dst, "bytes": bytes, "udp_src_port": port});
    (first_port..).zip(pairs).map(flow).collect()
}

/// A job that fills its spine for half of its time, and a lesser one with many flows, whose
/// answers take either spine.
fn jobs() -> Value {
    json!({"jobs": [
        {"id": "great", "gpus": {"h1": 8, "h3": 8}, "flop_per_iteration": 4e12,
         "compute_seconds": 0.02, "flows": flows(["h1", "h3"], 1, 2.4e6, 50_000)},
        {"id": "small", "gpus": {"h2": 8, "h4": 8}, "flop_per_iteration": 1e11,
         "compute_seconds": 0.02, "overlap_from": 0.0,
         "flows": flows(["h2", "h4"], 8, 0.2e6, 51_000)},
    ]})
}

/// The mean iteration time of each job, in seconds, as the output of a command has it.
fn iteration_seconds(folder: &Path, command: &str) -> Vec<f64> {
    let output = Command::new(env!("CARGO_BIN_EXE_crux"))
        .args(command.split(' '))
        .args(["--fabric", "lab.toml", "--jobs", "jobs.json"])
        .args(["--format", "json"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let jobs = result["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["mean_iteration_seconds"].as_f64().unwrap())
        .collect()
}

#[test]
fn what_the_fluid_model_says_is_what_packets_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lab.toml"), LAB).unwrap();
    std::fs::write(folder.path().join("jobs.json"), jobs().to_string()).unwrap();
    let simulated = iteration_seconds(folder.path(), "simulate --scheduler crux --seconds 2");
    let rehearsed = iteration_seconds(folder.path(), "job rehearse --iterations 10");
    // Headers are 1.4 % of what is sent, and are not in the model.
    for (simulated, rehearsed) in simulated.iter().zip(&rehearsed) {
        let ratio = rehearsed / simulated;
        assert!((0.99..1.03).contains(&ratio), "{rehearsed} for {simulated}");
    }
    assert_eq!((simulated.len(), rehearsed.len()), (2, 2));
}
