//! Kueue's `Topology` and `ResourceFlavor` (kueue.x-k8s.io/v1beta1, Kueue 0.14), and the labels of
//! nodes that they read.
//!
//! The labels are those that topograph writes, the nearest tier 0, so that either program may set
//! them. The nodes are manifests with labels only, for `kubectl apply --server-side`.

use serde_json::{Value, json};

use super::fabric_tree::FabricTree;
use super::yaml_documents;
use crate::fabric::Fabric;

const LEAF_LABEL: &str = "fabric.topograph.run/tier-0";
const POD_LABEL: &str = "fabric.topograph.run/tier-1";
const HOST_LABEL: &str = "kubernetes.io/hostname";
const FABRIC_LABEL: &str = "crux.fabric/name";
const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";

/// A topology, a flavor for the hosts of the fabric, and a node for each host.
pub fn export_kueue(fabric: &Fabric) -> String {
    let name = kubernetes_name(fabric.name());
    let topology = json!({
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": { "name": name },
        "spec": { "levels": [
            { "nodeLabel": POD_LABEL }, { "nodeLabel": LEAF_LABEL }, { "nodeLabel": HOST_LABEL },
        ] },
    });
    let flavor = json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": { "name": name },
        "spec": { "nodeLabels": { FABRIC_LABEL: name }, "topologyName": name },
    });
    let tree = FabricTree::of_fabric(fabric);
    let nodes = tree.leaf_groups().flat_map(|(pod, leaf)| {
        leaf.hosts.iter().map(|host| {
            let labels = json!({
                FABRIC_LABEL: name, POD_LABEL: pod.name, LEAF_LABEL: leaf.name,
            });
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": host, "labels": labels },
            })
        })
    });
    let documents: Vec<Value> = [topology, flavor].into_iter().chain(nodes).collect();
    yaml_documents(&documents)
}

/// Names of Kubernetes are of lower-case letters, digits and dashes.
fn kubernetes_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let letters = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = letters.collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "fabric".to_owned() } else { name.to_owned() }
}
