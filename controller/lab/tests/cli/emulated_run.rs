//! `crux job rehearse` beside `crux simulate`: the emulated fabric, packet by packet, agrees with
//! the fluid model that the planner goes by.

use serde_json::{Value, json};

use super::support::{self, Files, lab};

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
fn iteration_seconds(files: &Files, command: &str) -> Vec<f64> {
    let documents = "--fabric lab.toml --jobs jobs.json --format json";
    let arguments: Vec<&str> = command.split(' ').chain(documents.split(' ')).collect();
    let result = support::json(&files.crux(&arguments));
    let jobs = result["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["mean_iteration_seconds"].as_f64().unwrap()).collect()
}

#[test]
fn packets_behave_as_the_fluid_model_predicts() {
    check_model(&lab(2, 1.0, 1.0), &jobs());
}

#[test]
fn sprayed_packets_behave_as_the_fluid_model_predicts() {
    check_model(&format!("forwarding = \"spray\"\n{}", lab(2, 1.0, 1.0)), &jobs());
}

/// Half of what `great` sends begins with its computation, so half is left at the end of it.
#[test]
fn flows_that_begin_early_behave_as_the_fluid_model_predicts() {
    let mut jobs = jobs();
    let mut early = jobs["jobs"][0]["flows"].as_array().unwrap().clone();
    for flow in &mut early {
        flow["overlap_from"] = json!(0.0);
        flow["udp_src_port"] = json!(52_000);
    }
    let late = jobs["jobs"][0]["flows"].as_array_mut().unwrap();
    late.extend(early);
    late.iter_mut().for_each(|flow| flow["bytes"] = json!(1.2e6));
    let [all_late, half] =
        [self::jobs(), jobs].map(|jobs| check_model(&lab(2, 1.0, 1.0), &jobs)[0]);
    assert!(half < 0.8 * all_late, "{half} s, {all_late} s all late");
}

/// The iterations of the jobs in packets, against those of the model; the mean ones in packets.
fn check_model(fabric: &str, jobs: &Value) -> Vec<f64> {
    let files =
        Files::with(&[("lab.toml", fabric.as_bytes()), ("jobs.json", jobs.to_string().as_bytes())]);
    let simulated = iteration_seconds(&files, "simulate --scheduler crux --seconds 2");
    let rehearsed = iteration_seconds(&files, "job rehearse --iterations 10");
    // Headers are 1.4 % of the bytes sent, and are not in the model.
    for (simulated, rehearsed) in simulated.iter().zip(&rehearsed) {
        let ratio = rehearsed / simulated;
        assert!((0.99..1.03).contains(&ratio), "{rehearsed} for {simulated}");
    }
    assert_eq!((simulated.len(), rehearsed.len()), (2, 2));
    rehearsed
}

/// What `job rehearse --change` measures of a policy.
fn changed(policy: &str) -> Value {
    let files = Files::with(&[
        ("lab.toml", lab(2, 1.0, 1.0).as_bytes()),
        ("jobs.json", jobs().to_string().as_bytes()),
        ("policy.toml", policy.as_bytes()),
    ]);
    let command = "job rehearse --fabric lab.toml --jobs jobs.json --iterations 20 \
                   --change policy.toml --format json";
    let arguments: Vec<&str> = command.split_whitespace().collect();
    support::json(&files.crux(&arguments))
}

#[test]
fn the_emulated_fabric_measures_what_a_policy_diff_predicts() {
    let one_spine = "drained = ['spine2']\n";
    let turned = "drained = ['spine2']\n[[job]]\nmatch = 'great'\nlevel = 0\n";
    let one_level = "levels = 1\ndrained = ['spine2']\n";
    for policy in [one_spine, turned, one_level] {
        let changed = changed(policy);
        let largest = changed["largest_difference"].as_f64().unwrap();
        assert!(largest < 0.05, "{policy}: {changed:#}");
        let slows = |job: &Value| {
            let measured = |when| job["iteration_seconds"][when]["measured"].as_f64().unwrap();
            measured("after") > 1.05 * measured("before")
        };
        let is_change = changed["jobs"].as_array().unwrap().iter().any(slows);
        assert!(is_change, "{policy} changes nothing: {changed:#}");
    }
}

/// Mean time of the iterations of a job that began and ended in a span of time.
fn mean_within(job: &Value, from: f64, until: f64) -> f64 {
    let begun: Vec<f64> =
        job["begun_seconds"].as_array().unwrap().iter().map(|at| at.as_f64().unwrap()).collect();
    let whole = begun.windows(2).filter(|ends| from <= ends[0] && ends[1] <= until);
    let lasted: Vec<f64> = whole.map(|ends| ends[1] - ends[0]).collect();
    assert!(lasted.len() > 1, "{begun:?}");
    lasted.iter().sum::<f64>() / lasted.len() as f64
}

#[test]
fn events_of_a_run_happen_at_their_time() {
    let events = "[[event]]\nafter_seconds = 0.4\nname = 'fails'\nlink_down = 'leaf1-spine1'\n\
                  [[event]]\nafter_seconds = 0.8\nname = 'alone'\npolicy = { levels = 1 }\n";
    let files = Files::with(&[
        ("lab.toml", lab(2, 1.0, 1.0).as_bytes()),
        ("jobs.json", jobs().to_string().as_bytes()),
        ("events.toml", events.as_bytes()),
    ]);
    let command = "job rehearse --fabric lab.toml --jobs jobs.json --iterations 40 \
                   --events events.toml --format json";
    let arguments: Vec<&str> = command.split_whitespace().collect();
    let result = support::json(&files.crux(&arguments));
    let at = |event: usize| result["events"][event]["at_seconds"].as_f64().unwrap();
    assert_eq!((at(0), at(1)), (0.4, 0.8));
    let is_slower = |job: &Value| mean_within(job, 0.45, 0.8) > 1.1 * mean_within(job, 0.05, 0.4);
    let jobs = result["jobs"].as_array().unwrap();
    assert!(jobs.iter().any(is_slower), "both as fast on one spine as on two: {result:#}");
}

#[test]
fn an_invalid_event_is_reported() {
    let lab = lab(2, 1.0, 1.0);
    for (event, why) in [
        ("link_down = 'leaf1-leaf2'", "the fabric has no cable leaf1-leaf2"),
        ("", "give one of policy, link_down and link_up"),
        ("link_dwn = 'leaf1-spine1'", "unknown field `link_dwn`"),
    ] {
        let events = format!("[[event]]\nafter_seconds = 1.0\nname = 'it'\n{event}\n");
        let files = Files::with(&[
            ("lab.toml", lab.as_bytes()),
            ("jobs.json", jobs().to_string().as_bytes()),
            ("events.toml", events.as_bytes()),
        ]);
        let command = "job rehearse --fabric lab.toml --jobs jobs.json --events events.toml";
        let arguments: Vec<&str> = command.split(' ').collect();
        support::refused(&files.crux(&arguments), &["events.toml", why]);
    }
}

/// Two jobs whose communication needs 102 % of their common period of a link.
fn sweep(can_wait: bool) -> Value {
    let job = |(number, src, dst): (u64, &str, &str)| {
        json!({
            "id": format!("j{number}"), "gpus": { src: 8, dst: 8 }, "flop_per_iteration": 1e12,
            "compute_seconds": 0.0049, "can_wait": can_wait,
            "flows": [{ "src": src, "dst": dst, "bytes": 6.375e6, "udp_src_port": 50_000 + number }],
        })
    };
    let jobs = [(0, "h1", "h3"), (1, "h2", "h4")].map(job);
    json!({ "jobs": jobs })
}

#[test]
fn jobs_that_can_wait_take_turns_on_the_emulated_fabric() {
    let fabric = lab(2, 10.0, 10.0).replace("spines = 2", "spines = 1");
    let seconds = |can_wait| {
        let files = Files::with(&[
            ("lab.toml", fabric.as_bytes()),
            ("jobs.json", sweep(can_wait).to_string().as_bytes()),
        ]);
        iteration_seconds(&files, "job rehearse --iterations 20")
    };
    let longest = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
    // If none waits, both are late in every iteration. Headers are 1.4 % of the bytes.
    let (waiting, others) = (longest(&seconds(true)), longest(&seconds(false)));
    assert!(waiting < 0.01 * 1.02 * 1.02 / 0.98, "{waiting}");
    assert!(others > 1.15 * waiting, "{others} {waiting}");
}
