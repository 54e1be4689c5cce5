//! What schedulers exchange with `crux`: every command of docs/bring-your-jobs.md that ends is run
//! as it is written there.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use topology::host_list::expand_host_list;

use super::support::{Files, RunningProcess, json, lab, printed, refused};

const PAGE: &str = include_str!("../../../../docs/bring-your-jobs.md");

const JOBS: &str = r#"{"jobs": [{
    "id": "gpt", "gpus": {"h1": 8, "h3": 8}, "flop_per_iteration": 4e12, "compute_seconds": 0.02,
    "flows": [{"src": "h1", "dst": "h3", "bytes": 2.4e6}]
}]}"#;

/// Commands that run until they are stopped, or need hardware; a test of the help parses them.
const NOT_RUN: [&str; 6] = [
    "crux agent --controller 10.0.0.1:9300 --socket /run/crux/agent.sock --spool /run/crux/jobs",
    "crux agent --queue-pairs",
    "crux jobs slurm sync --rest unix:/run/slurmrestd/slurmrestd.sock --every 0.5",
    "crux jobs slurm sync --rest http://10.0.0.2:6820 --user crux \
     --token-file /etc/crux/slurm.token --every 0.5",
    "crux jobs kubernetes watch --spool /run/crux/jobs",
    "crux jobs kubernetes watch --kubeconfig ~/.kube/config --namespace training \
     --node-domain example.org",
];

fn files() -> Files {
    Files::with(&[("lab.toml", lab(2, 200.0, 400.0).as_bytes()), ("jobs.json", JOBS.as_bytes())])
}

/// The command lines of the page's shell blocks.
fn page_commands() -> Vec<&'static str> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix("sh\n"));
    blocks.flat_map(str::lines).filter(|line| line.starts_with("crux ")).collect()
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let files = files();
    let commands = page_commands();
    assert!(commands.len() >= 12, "{commands:?}");
    for line in commands.iter().filter(|line| !NOT_RUN.contains(line)) {
        let (line, redirection) = line.split_once(" > ").unwrap_or((line, ""));
        let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut command = files.command(&arguments);
        if line.starts_with("crux jobs slurm") {
            command.args(["--spool", "spool"]);
        }
        if line.ends_with("sync") {
            command.args(["--squeue", "true"]);
        }
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "h[1-2]")];
        let output = command.envs(slurm).output().unwrap();
        if !redirection.is_empty() {
            files.write(redirection, printed(&output));
        }
        if line.contains("import containerlab") || line.contains("import netbox") {
            let expanded = files.crux(&["fabric", "expand", "lab.toml", "--format", "json"]);
            assert_eq!(json(&output), json(&expanded), "{line}");
        }
        let is_silent = printed(&output).trim().is_empty();
        assert_eq!(is_silent, line.ends_with("sync"), "{line}");
    }
    for line in NOT_RUN {
        assert!(commands.contains(&line), "{line} is no longer in the page");
    }
}

#[test]
fn a_file_that_cannot_be_imported_is_named_with_its_field() {
    let files = files();
    let pair = "topology: { nodes: { x: { kind: linux }, y: { kind: linux } }, links: [L] }";
    files.write("a.clab.yml", &pair.replace('L', "{ endpoints: ['x:eth1', 'y:eth1'] }"));
    let refuse = |arguments: &[&str], expected: &[&str]| refused(&files.crux(arguments), expected);
    let import = ["fabric", "import"];
    let lab = [&import[..], &["containerlab", "a.clab.yml"]].concat();
    refuse(&lab, &["a.clab.yml: topology.nodes.x: cables do not say", "crux.tier", "x, y"]);
    files.write("devices.csv", "name,role\nl,leaf\nh,host\n");
    files.write("interfaces.csv", "device,name,speed\nl,p1,fast\nh,n0,\n");
    let header = "side_a_device,side_a_name,side_b_device,side_b_name";
    files.write("cables.csv", &format!("{header}\nh,n0,l,p1\n"));
    let tables = ["--devices", "devices.csv", "--interfaces", "interfaces.csv"];
    let netbox = [&import[..], &["netbox"], &tables, &["--cables", "cables.csv"]].concat();
    refuse(&netbox, &["interfaces.csv: interfaces row 2, speed: \"fast\"", "400000000"]);
    files.write("model.yaml", "switches: { s: { switches: [t] } }");
    let model = [&import[..], &["topograph", "model.yaml"]].concat();
    refuse(&model, &["model.yaml: switches.s.switches: no switch is named t"]);
}

#[test]
fn an_import_says_what_it_leaves_out_and_assumes() {
    let files = files();
    let text = "topology:\n  nodes: { l: { kind: srl }, x: { kind: linux }, logs: { kind: linux } }\n  \
                links: [{ endpoints: ['x:eth1', 'l:e1-1'] }]\n";
    files.write("a.clab.yml", text);
    let output = files.crux(&["fabric", "import", "containerlab", "a.clab.yml"]);
    assert_eq!(json(&output)["links"].as_array().unwrap().len(), 1);
    let notes = String::from_utf8(output.stderr).unwrap();
    for line in
        ["left out: 1 node (no cable): logs\n", "assumed: roles by cables of 1 node: hosts x\n"]
    {
        assert!(notes.contains(line), "{notes}");
    }
}

#[test]
fn an_agent_announces_what_a_prolog_records() {
    let files = files();
    let start = ["jobs", "slurm", "start", "--spool", "spool", "--gpus-per-host", "8"];
    let slurm = |number: &'static str| [("SLURM_JOB_ID", number), ("SLURM_JOB_NODELIST", "h[1-2]")];
    let output = files.command(&start).envs(slurm("7")).output().unwrap();
    assert_eq!(printed(&output), "slurm-7 on 2 hosts\n");
    let record = files.text("spool/slurm-7.json");
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["gpus"], serde_json::json!({ "h1": 8, "h2": 8 }));
    let other_host = files.command(&start).envs(slurm("8")).env("SLURMD_NODENAME", "h2").output();
    assert_eq!(printed(&other_host.unwrap()), "another host records this job\n");
    let end = ["jobs", "slurm", "end", "--spool", "spool"];
    let output = files.command(&end).envs(slurm("7")).output().unwrap();
    assert_eq!(printed(&output), "slurm-7 has ended\n");
    assert!(!files.path("spool/slurm-7.json").exists());
    refused(&files.crux(&start), &["SLURM_JOB_ID"]);
    printed(&files.command(&start).envs(slurm("9")).output().unwrap());
    // A slurmctld that does not answer ends no job.
    let sync = |squeue: &str| {
        files.crux(&["jobs", "slurm", "sync", "--spool", "spool", "--squeue", squeue])
    };
    assert_eq!(sync("false").status.code(), Some(1));
    assert!(files.path("spool/slurm-9.json").exists());
    assert_eq!(printed(&sync("true")), "slurm-9 does not run any more\n");
}

/// A controller of the fabric, whose switches do not answer, and its address.
fn start_controller(files: &Files) -> (RunningProcess, String) {
    files.write("crux.toml", "[northbound]\nlisten = \"127.0.0.1:0\"\nanyone = true\n");
    let arguments =
        ["controller", "--config", "crux.toml", "--fabric", "lab.toml", "--log", "error"];
    let mut child = files.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let begin = line.find("127.0.0.1:")?;
        let address = line[begin..].split(|c: char| !(c.is_ascii_digit() || ".:".contains(c)));
        address.map(str::to_owned).next()
    });
    // It may print more, and must not wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (RunningProcess(child), address.unwrap())
}

#[test]
fn a_controller_plans_what_a_scheduler_says_and_nothing_else_is_known_of() {
    let files = files();
    let (_controller, address) = start_controller(&files);
    let agent = ["agent", "--controller", &address, "--host", "head", "--spool", "spool"];
    let _agent = RunningProcess(files.command(&agent).spawn().unwrap());
    let slurm = |verb: &str| {
        let mut command = files.command(&["jobs", "slurm", verb, "--spool", "spool"]);
        command.env("SLURM_JOB_ID", "7").env("SLURM_JOB_NODELIST", "h[1-3]");
        command.env("SLURM_JOB_GPUS", "0-7");
        printed(&command.output().unwrap());
    };
    let wait_flows = |expected: &[u64]| {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let jobs = json(&files.crux(&["jobs", "--controller", &address, "--format", "json"]));
            let flows: Vec<u64> =
                jobs.as_array().unwrap().iter().filter_map(|job| job["flows"].as_u64()).collect();
            if flows == expected {
                return;
            }
            assert!(Instant::now() < deadline, "flows {flows:?}, expected {expected:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    slurm("start");
    wait_flows(&[3]);
    let explain = ["explain", "slurm-7", "--controller", &address];
    let explained = files.crux(&explain);
    assert!(printed(&explained).contains("flow h2>h3 (pair, pinned)"), "{explained:?}");
    slurm("end");
    wait_flows(&[]);
}

#[test]
fn a_node_list_names_the_hosts_of_the_best_placement() {
    let files = files();
    let place = |more: &[&str]| {
        let first = ["place", "--fabric", "lab.toml", "--jobs", "jobs.json", "--gpus", "16"];
        let arguments = [&first[..], &["--model", "gpt-24l/A100"], more].concat();
        files.crux(&arguments)
    };
    let list = place(&["--nodelist"]);
    let hosts = expand_host_list(printed(&list).trim()).unwrap();
    let advices = json(&place(&["--format", "json"]));
    let advices = advices.as_array().unwrap();
    let seconds = |advice: &serde_json::Value| advice["iteration_seconds"].as_f64();
    let best = advices.iter().filter_map(seconds).fold(f64::INFINITY, f64::min);
    let is_best = |advice: &&serde_json::Value| {
        let named: Vec<&String> = advice["gpus"].as_object().unwrap().keys().collect();
        seconds(advice) == Some(best) && named.iter().all(|host| hosts.contains(host))
    };
    assert_eq!(hosts.len(), 2);
    assert!(advices.iter().any(|advice| is_best(&advice)), "{hosts:?}");
}
