//! What a pod says of its job.
//!
//! The fields of a pod that are read, as the API server writes them, and their meaning: which job,
//! which node, how many GPUs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The job of a pod with this label is announced.
const ANNOUNCE_LABEL: &str = "crux.fabric/announce";

/// Labels that name the job of a pod, the first one there counts: ours, JobSet, Kubeflow's training
/// operator, LeaderWorkerSet, Ray, Volcano, groups of pods that Kueue and the coscheduling plugin
/// admit together, Kubernetes' own jobs.
pub const JOB_LABELS: [&str; 12] = [
    "crux.fabric/job",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
];

/// How pods become jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNaming {
    /// Name of the cluster, with which the names of its jobs begin.
    pub cluster: String,
    /// A label that names the job, before [`JOB_LABELS`].
    pub job_label: Option<String>,
    /// What is cut off the names of nodes to get the names of hosts, such as `example.org`.
    pub node_domain: Option<String>,
    /// The resource that counts GPUs, such as `nvidia.com/gpu`.
    pub gpu_resource: String,
    /// GPUs of a pod that requests none of that resource, such as one with resource claims.
    pub gpus_per_pod: u32,
}

/// A pod, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub(super) metadata: PodMetadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodMetadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct OwnerReference {
    name: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(u32),
    Text(String),
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

impl Pod {
    /// The name of its job in the controller, `CLUSTER.NAMESPACE.JOB`. Only the last part may
    /// contain a `.`, so the names of two jobs are never equal.
    pub fn job_name(&self, naming: &PodNaming) -> String {
        let labels = naming.job_label.iter().map(String::as_str).chain(JOB_LABELS);
        let labelled = labels.filter_map(|label| self.metadata.labels.get(label)).next();
        let owner = self.metadata.owner_references.iter().find(|owner| owner.controller);
        let name = labelled.or(owner.map(|owner| &owner.name)).unwrap_or(&self.metadata.name);
        format!("{}.{}.{name}", naming.cluster, self.metadata.namespace)
    }

    /// The host that it runs on, from when it has a node until its last container has ended.
    pub fn host(&self, naming: &PodNaming) -> Option<&str> {
        let node = self.spec.node_name.as_str();
        let has_ended = matches!(self.status.phase.as_str(), "Succeeded" | "Failed");
        if node.is_empty() || has_ended {
            return None;
        }
        let domain = naming.node_domain.as_deref();
        let short = domain.and_then(|domain| node.strip_suffix(domain)?.strip_suffix('.'));
        Some(short.unwrap_or(node))
    }

    /// The resources other than processors, memory and storage that it has, and whether it is
    /// labelled to be announced.
    pub(super) fn devices(&self) -> (BTreeSet<&str>, bool) {
        // Kubernetes' own resources have no domain; those of device plugins have one.
        let names = self.spec.containers.iter().flat_map(|container| &container.resources.limits);
        let devices = names.map(|(name, _)| name.as_str()).filter(|name| name.contains('/'));
        (devices.collect(), self.metadata.labels.contains_key(ANNOUNCE_LABEL))
    }

    /// The GPUs that it has.
    pub fn gpus(&self, naming: &PodNaming) -> u32 {
        let limits = self.spec.containers.iter().filter_map(|container| {
            match container.resources.limits.get(&naming.gpu_resource)? {
                Quantity::Number(number) => Some(*number),
                Quantity::Text(text) => text.parse().ok(),
            }
        });
        match limits.fold(0, u32::saturating_add) {
            0 => naming.gpus_per_pod,
            counted => counted,
        }
    }
}
