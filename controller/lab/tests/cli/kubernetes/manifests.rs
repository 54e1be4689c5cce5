//! The example manifests and the script that places gated pods.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use topology::document::{DocumentFormat, parse_document};

use super::Deployment;
use crate::support::{Files, lab};

const WATCHER: &str = include_str!("../../../../agent/kubernetes/watcher.yaml");
const JOBSET: &str = include_str!("../../../../agent/kubernetes/jobset.yaml");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/kubernetes/place-gated.py");

/// The objects of a file by their kind, of which it has one each.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let parse =
        |text: &str| -> Value { parse_document(text, DocumentFormat::Yaml, "manifest").unwrap() };
    let objects = yaml.split("\n---\n").map(parse);
    objects.map(|object| (object["kind"].as_str().unwrap().to_owned(), object)).collect()
}

fn pod_template() -> Value {
    objects(JOBSET)["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].clone()
}

/// A pod as the controllers of JobSet and Kubernetes make it from the example.
fn jobset_pod(number: usize) -> Value {
    let mut pod = pod_template();
    let name = format!("gpt-workers-0-{number}");
    pod["metadata"]["name"] = name.clone().into();
    pod["metadata"]["namespace"] = "training".into();
    pod["metadata"]["uid"] = name.into();
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "gpt".into();
    // The API server writes quantities as text.
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8".into();
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

#[test]
fn the_watcher_may_do_what_it_does_and_shares_its_folder() {
    let objects = objects(WATCHER);
    let rule = &objects["ClusterRole"]["rules"][0];
    assert_eq!((&rule["resources"], &rule["verbs"]), (&json!(["pods"]), &json!(["list", "watch"])));
    let account = &objects["ServiceAccount"]["metadata"];
    let subject = &objects["ClusterRoleBinding"]["subjects"][0];
    let role = &objects["ClusterRoleBinding"]["roleRef"]["name"];
    assert_eq!(role, &objects["ClusterRole"]["metadata"]["name"]);
    let names = |object: &Value| (object["name"].clone(), object["namespace"].clone());
    assert_eq!(names(subject), names(account));
    let pod = &objects["Deployment"]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["name"]);
    let volume = &pod["volumes"][0]["name"];
    for container in pod["containers"].as_array().unwrap() {
        let mount = &container["volumeMounts"][0];
        assert_eq!((&mount["name"], &mount["mountPath"]), (volume, &json!("/run/crux")));
        let command = container["command"].as_array().unwrap();
        assert!(command.contains(&json!("/run/crux/jobs")), "{command:?}");
        // Without a cluster and a controller they stop at once, but not for their arguments.
        let arguments: Vec<&str> = command.iter().skip(1).filter_map(Value::as_str).collect();
        let files = Files::with(&[]);
        let mut command = files.command(&arguments);
        command.args(["--cluster-that-is-none", "x"]);
        let complaint = command.output().unwrap().stderr;
        let complaint = String::from_utf8_lossy(&complaint);
        assert!(complaint.contains("'--cluster-that-is-none' found"), "{complaint}");
    }
}

#[test]
fn pods_of_the_example_are_announced_with_their_annotations() {
    let deployment = Deployment::start();
    for number in 0..4 {
        let mut pod = jobset_pod(number);
        pod["spec"]["nodeName"] = format!("h{}", 1 + number).into();
        deployment.server.put_pod(&format!("p{number}"), pod);
    }
    let record = deployment.files.path("spool/k8s.training.gpt.json");
    let read = || serde_json::from_slice::<Value>(&std::fs::read(&record).ok()?).ok();
    let four = || read().is_some_and(|job| job["gpus"].as_object().unwrap().len() == 4);
    super::wait_until("the job has four hosts", four);
    let job = read().unwrap();
    assert_eq!(job["gpus"], json!({ "h1": 8, "h2": 8, "h3": 8, "h4": 8 }));
    assert_eq!((&job["profile"], &job["tenant"]), (&json!("gpt-24l/A100"), &json!("training")));
    assert_eq!(job["collective"]["bytes"], json!(6.5e9));
}

/// Runs the script beside a kubectl that lists these pods, and returns the patch of each.
fn place_gated(pods: &[Value]) -> BTreeMap<String, Value> {
    let listed = json!({ "items": pods }).to_string();
    let kubectl = "#!/bin/sh\n[ \"$1\" = get ] && exec cat pods.json\necho \"$3 $9\" >> patches\n";
    let document = lab(4, 200.0, 400.0);
    // Both hosts of the first leaf's beginning are taken.
    let jobs = json!({ "jobs": [{
        "id": "other", "gpus": { "h1": 8, "h2": 8 }, "profile": "gpt-24l/A100",
        "flows": [{ "src": "h1", "dst": "h2", "bytes": 2.4e6 }],
    }] });
    let files = Files::with(&[
        ("pods.json", listed.as_bytes()),
        ("kubectl", kubectl.as_bytes()),
        ("patches", b""),
        ("lab.toml", document.as_bytes()),
        ("jobs.json", jobs.to_string().as_bytes()),
    ]);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(files.path("kubectl"), executable).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_crux-lab"), files.path("crux")).unwrap();
    let folder = files.path("").display().to_string();
    let search = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let arguments = ["--model", "gpt-24l/A100", "--", "--fabric", "lab.toml"];
    let output = std::process::Command::new("python3")
        .arg(SCRIPT)
        .args(arguments)
        .args(["--jobs", "jobs.json", "--placement", "same-leaf"])
        .current_dir(folder)
        .env("PATH", search)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaint}");
    let patches = files.text("patches");
    let patches = patches.lines().map(|line| line.split_once(' ').unwrap());
    patches.map(|(pod, text)| (pod.to_owned(), serde_json::from_str(text).unwrap())).collect()
}

#[test]
fn gated_pods_get_the_hosts_that_place_says() {
    let mut pods: Vec<Value> = (0..4).map(jobset_pod).collect();
    assert!(place_gated(&pods[..3]).is_empty(), "one is missing");
    let mut open = jobset_pod(7);
    open["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other".into();
    open["spec"].as_object_mut().unwrap().remove("schedulingGates");
    pods.push(open);
    let patches = place_gated(&pods);
    assert_eq!(patches.len(), 4);
    for patch in patches.values() {
        let path = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                    /nodeSelectorTerms/0/matchExpressions/0/values";
        assert_eq!(patch[0]["value"].pointer(path), Some(&json!(["h5", "h6", "h7", "h8"])));
        let gates = json!({ "op": "replace", "path": "/spec/schedulingGates", "value": [] });
        assert_eq!(patch[1], gates);
    }
}
