//! The pods that are known, and the jobs that they are.
//!
//! The decision: jobs are a function of the pods that are there, not of the events that led to
//! them. Events that come twice, a list after missed events, and a watcher that was killed then
//! need no code of their own. A job is there from the first of its pods that has a node to the end
//! of the last one; its hosts follow its pods.

use std::collections::{BTreeMap, BTreeSet};

use planner::JobDocument;
use topology::NaturalName;

use super::pod::{Pod, PodNaming};
use crate::scheduler_hints::{self, HintError};

/// Annotations of a pod that say what Kubernetes does not know begin with this.
const ANNOTATION_PREFIX: &str = "crux.fabric/";

/// Pods by namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSet {
    pods: BTreeMap<(String, String), Pod>,
}

/// What the pods of a cluster are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodJobs {
    /// Sorted by name.
    pub jobs: Vec<JobDocument>,
    /// Annotations that cannot be read, by job; the job is there without them.
    pub problems: BTreeMap<String, BTreeSet<HintError>>,
    /// Jobs that are no jobs since none of their pods has a GPU, with the devices of these pods.
    /// Without devices, only those that are labelled to be announced.
    pub without_gpus: BTreeMap<String, BTreeSet<String>>,
}

impl PodSet {
    /// Adds a pod, or replaces the one of that name.
    pub fn add_pod(&mut self, pod: Pod) {
        self.pods.insert(pod_key(&pod), pod);
    }

    /// Removes a pod, unless another one has taken its name.
    pub fn remove_pod(&mut self, pod: &Pod) {
        let key = pod_key(pod);
        if self.pods.get(&key).is_some_and(|known| known.metadata.uid == pod.metadata.uid) {
            self.pods.remove(&key);
        }
    }

    /// The jobs of these pods. Pods without GPUs, such as launchers, give no host.
    pub fn jobs(&self, naming: &PodNaming) -> PodJobs {
        let mut jobs: BTreeMap<String, JobDocument> = BTreeMap::new();
        let mut problems: BTreeMap<String, BTreeSet<HintError>> = BTreeMap::new();
        // Frameworks number ranks as controllers number pods: 9 before 10.
        let mut pods: Vec<&Pod> = self.pods.values().collect();
        pods.sort_by_cached_key(|pod| NaturalName::of(&pod.metadata.name));
        for pod in pods {
            let (Some(host), gpus @ 1..) = (pod.host(naming), pod.gpus(naming)) else { continue };
            let name = pod.job_name(naming);
            let job = jobs.entry(name.clone()).or_insert_with(|| JobDocument {
                id: name.clone(),
                tenant: Some(pod.metadata.namespace.clone()),
                ..JobDocument::default()
            });
            let count = job.gpus.entry(host.to_owned()).or_default();
            *count = count.saturating_add(gpus);
            job.pods.push(pod.metadata.uid.clone());
            let unread = read_annotations(pod, job);
            if !unread.is_empty() {
                problems.entry(name).or_default().extend(unread);
            }
        }
        let without_gpus = self.jobs_without_gpus(naming);
        PodJobs { jobs: jobs.into_values().collect(), problems, without_gpus }
    }

    fn jobs_without_gpus(&self, naming: &PodNaming) -> BTreeMap<String, BTreeSet<String>> {
        // Also by pods that wait or have ended: a launcher may start first and end last.
        let with_gpus = self.pods.values().filter(|pod| pod.gpus(naming) > 0);
        let with_gpus: BTreeSet<String> = with_gpus.map(|pod| pod.job_name(naming)).collect();
        let mut without: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.host(naming).is_some()) {
            let (devices, is_labelled) = pod.devices();
            let name = pod.job_name(naming);
            if (is_labelled || !devices.is_empty()) && !with_gpus.contains(&name) {
                without.entry(name).or_default().extend(devices.into_iter().map(str::to_owned));
            }
        }
        without
    }
}

impl FromIterator<Pod> for PodSet {
    fn from_iter<T: IntoIterator<Item = Pod>>(pods: T) -> Self {
        Self { pods: pods.into_iter().map(|pod| (pod_key(&pod), pod)).collect() }
    }
}

fn pod_key(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone(), pod.metadata.name.clone())
}

fn read_annotations(pod: &Pod, job: &mut JobDocument) -> Vec<HintError> {
    let own = pod.metadata.annotations.iter();
    let hints = own.filter_map(|(key, value)| Some((key.strip_prefix(ANNOTATION_PREFIX)?, value)));
    scheduler_hints::apply_hints(hints.map(|(key, value)| (key, value.as_str())), job)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn naming() -> PodNaming {
        PodNaming {
            cluster: "k8s".to_owned(),
            job_label: None,
            node_domain: Some("example.org".to_owned()),
            gpu_resource: "nvidia.com/gpu".to_owned(),
            gpus_per_pod: 0,
        }
    }

    fn pod(name: &str, uid: &str, node: &str, phase: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "ml", "uid": uid,
                "labels": { "jobset.sigs.k8s.io/jobset-name": "gpt", "job-name": "gpt-workers-0" },
            },
            "spec": { "nodeName": node, "containers": [
                { "resources": { "limits": { "nvidia.com/gpu": "4", "memory": "1Gi" } } }, {},
            ] },
            "status": { "phase": phase },
        })
    }

    fn parse(pod: Value) -> Pod {
        serde_json::from_value(pod).unwrap()
    }

    fn hosts(pods: &PodSet) -> Vec<(String, Vec<(String, u32)>)> {
        let jobs = pods.jobs(&naming()).jobs;
        jobs.into_iter().map(|job| (job.id, job.gpus.into_iter().collect())).collect()
    }

    #[test]
    fn a_job_has_the_hosts_of_its_pods_until_they_end() {
        let mut pods = PodSet::default();
        let gpt = |hosts: &[(&str, u32)]| {
            let hosts = hosts.iter().map(|(host, gpus)| ((*host).to_owned(), *gpus)).collect();
            [("k8s.ml.gpt".to_owned(), hosts)]
        };
        pods.add_pod(parse(pod("a", "1", "", "Pending")));
        assert_eq!(hosts(&pods), []);
        pods.add_pod(parse(pod("a", "1", "h1.example.org", "Pending")));
        pods.add_pod(parse(pod("b", "2", "h1.example.org", "Running")));
        pods.add_pod(parse(pod("c", "3", "h2", "Running")));
        assert_eq!(hosts(&pods), gpt(&[("h1", 8), ("h2", 4)]));
        pods.add_pod(parse(pod("a", "1", "h1.example.org", "Failed")));
        pods.add_pod(parse(pod("c", "3", "h2", "Succeeded")));
        assert_eq!(hosts(&pods), gpt(&[("h1", 4)]));
        assert_eq!(pods.jobs(&naming()).jobs[0].pods, ["2"]);
        pods.remove_pod(&parse(pod("b", "2", "h1.example.org", "Running")));
        assert_eq!(hosts(&pods), []);
    }

    #[test]
    fn hosts_are_in_the_order_of_the_numbers_of_pods() {
        let of = |number: u32| {
            let (name, uid) = (format!("gpt-workers-0-{number}-x7k2p"), number.to_string());
            parse(pod(&name, &uid, &format!("h{number}"), "Running"))
        };
        let pods = PodSet::from_iter([10, 2, 9, 1].map(of));
        let job = pods.jobs(&naming()).jobs.remove(0);
        assert_eq!(job.gpus.keys().collect::<Vec<_>>(), ["h1", "h2", "h9", "h10"]);
    }

    #[test]
    fn the_end_of_a_pod_is_not_that_of_its_successor() {
        let mut pods = PodSet::default();
        pods.add_pod(parse(pod("a", "2", "h1", "Running")));
        pods.remove_pod(&parse(pod("a", "1", "h1", "Running")));
        assert_eq!(hosts(&pods).len(), 1);
    }

    #[test]
    fn jobs_are_named_by_label_then_owner_then_pod() {
        let name = |change: &dyn Fn(&mut Value), naming: &PodNaming| {
            let mut pod = pod("a-7", "1", "h1", "Running");
            change(&mut pod["metadata"]);
            parse(pod).job_name(naming)
        };
        let unlabelled = |metadata: &mut Value| metadata["labels"] = json!({});
        let owned = |metadata: &mut Value| {
            metadata["labels"] = json!({});
            metadata["ownerReferences"] =
                json!([{ "name": "o" }, { "name": "p", "controller": true }]);
        };
        let own = PodNaming { job_label: Some("job-name".to_owned()), ..naming() };
        assert_eq!(name(&|_| {}, &naming()), "k8s.ml.gpt");
        assert_eq!(name(&|_| {}, &own), "k8s.ml.gpt-workers-0");
        assert_eq!(name(&unlabelled, &naming()), "k8s.ml.a-7");
        assert_eq!(name(&owned, &naming()), "k8s.ml.p");
    }

    #[test]
    fn annotations_say_what_kubernetes_does_not_know() {
        let mut pod = pod("a", "1", "h1", "Running");
        pod["metadata"]["annotations"] =
            json!({ "crux.fabric/profile": "gpt-24l/A100", "other": "x" });
        let read = |pod: &Value| PodSet::from_iter([parse(pod.clone())]).jobs(&naming());
        assert_eq!(read(&pod).jobs[0].profile.as_deref(), Some("gpt-24l/A100"));
        pod["metadata"]["annotations"] = json!({
            "crux.fabric/flop": "-1", "crux.fabric/bytes": "512MiB", "crux.fabric/colour": "red",
        });
        let PodJobs { jobs, problems, .. } = read(&pod);
        let collective = jobs[0].collective.as_ref().unwrap();
        assert_eq!(collective.bytes, Some(536_870_912.0));
        let keys: Vec<&str> = problems["k8s.ml.gpt"].iter().map(|hint| hint.key.as_str()).collect();
        assert_eq!(keys, ["colour", "flop"]);
    }

    #[test]
    fn a_group_that_is_admitted_together_is_one_job() {
        let labels = [
            "kueue.x-k8s.io/pod-group-name",
            "scheduling.x-k8s.io/pod-group",
            "pod-group.scheduling.sigs.k8s.io",
        ];
        for label in labels {
            let member = |name: &str, namespace: &str, group: &str| {
                let mut pod = pod(name, name, &format!("h{name}"), "Running");
                pod["metadata"]["namespace"] = json!(namespace);
                pod["metadata"]["labels"] = json!({ label: group, "job-name": name });
                parse(pod)
            };
            let pods = PodSet::from_iter([
                member("1", "ml", "red"),
                member("2", "ml", "red"),
                member("3", "ml", "blue"),
                member("4", "web", "red"),
            ]);
            let jobs = hosts(&pods);
            let jobs: Vec<(&str, usize)> =
                jobs.iter().map(|(job, hosts)| (job.as_str(), hosts.len())).collect();
            assert_eq!(
                jobs,
                [("k8s.ml.blue", 1), ("k8s.ml.red", 2), ("k8s.web.red", 1)],
                "{label}"
            );
        }
    }

    #[test]
    fn jobs_without_the_resource_of_gpus_are_named_with_their_devices() {
        let with = |name: &str, job: &str, limits: Value, is_labelled: bool| {
            let mut pod = pod(name, name, "h1", "Running");
            pod["metadata"]["labels"] = json!({ "job-name": job });
            if is_labelled {
                pod["metadata"]["labels"]["crux.fabric/announce"] = json!("true");
            }
            pod["spec"]["containers"] = json!([{ "resources": { "limits": limits } }]);
            parse(pod)
        };
        let mig = "nvidia.com/mig-3g.40gb";
        let pods = PodSet::from_iter([
            with("a", "amd", json!({ "amd.com/gpu": "8", "cpu": "4" }), true),
            with("b", "mig", json!({ mig: "1", "rdma/hca": "1" }), false),
            with("c", "bare", json!({ "cpu": "4" }), true),
            with("d", "other", json!({ "cpu": "4", "memory": "1Gi" }), false),
            // A launcher beside a worker.
            with("e", "mpi", json!({ "cpu": "1" }), true),
            with("f", "mpi", json!({ "nvidia.com/gpu": 8 }), true),
        ]);
        let found = pods.jobs(&naming());
        assert_eq!(found.jobs.len(), 1);
        let shown: Vec<String> = found
            .without_gpus
            .iter()
            .map(|(job, devices)| format!("{job}: {}", Vec::from_iter(devices.clone()).join(" ")))
            .collect();
        let expect =
            ["k8s.ml.amd: amd.com/gpu", "k8s.ml.bare: ", &format!("k8s.ml.mig: {mig} rdma/hca")];
        assert_eq!(shown, expect);
        let amd = PodNaming { gpu_resource: "amd.com/gpu".to_owned(), ..naming() };
        assert!(!pods.jobs(&amd).without_gpus.contains_key("k8s.ml.amd"));
    }
}
