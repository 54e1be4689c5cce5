//! The pods that are known, and the jobs that they are.
//!
//! The decision: jobs are a function of the pods that are there, not of the events that led to
//! them. Events that come twice, a list after missed events, and a watcher that was killed then
//! need no code of their own. A job is there from the first of its pods that has a node to the end
//! of the last one; its hosts follow its pods.

use std::collections::BTreeMap;

use planner::JobDocument;

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
    pub problems: BTreeMap<String, HintError>,
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
        let mut problems = BTreeMap::new();
        for pod in self.pods.values() {
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
            if let Err(problem) = read_annotations(pod, job) {
                problems.insert(name, problem);
            }
        }
        PodJobs { jobs: jobs.into_values().collect(), problems }
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

fn read_annotations(pod: &Pod, job: &mut JobDocument) -> Result<(), HintError> {
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
        pod["metadata"]["annotations"] = json!({ "crux.fabric/profile": "gpt-24l", "other": "x" });
        let read = |pod: &Value| PodSet::from_iter([parse(pod.clone())]).jobs(&naming());
        assert_eq!(read(&pod).jobs[0].profile.as_deref(), Some("gpt-24l"));
        pod["metadata"]["annotations"] = json!({ "crux.fabric/flop": "-1" });
        let PodJobs { jobs, problems } = read(&pod);
        assert_eq!((jobs.len(), problems.len()), (1, 1));
    }
}
