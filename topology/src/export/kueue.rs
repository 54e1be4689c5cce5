//! Kueue's `Topology` and `ResourceFlavor` (kueue.x-k8s.io/v1beta1, Kueue 0.14), and the labels of
//! nodes that they read.
//!
//! The labels are those that topograph writes, the nearest tier 0, so that either program may set
//! them. The nodes are manifests with labels only, for `kubectl apply --server-side`.
//!
//! Kueue may spread a job over all nodes of a flavor, and gives a set of pods one flavor, so parts
//! of a fabric that do not reach each other have a flavor each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fabric_tree::FabricTree;
use super::yaml_documents;
use crate::fabric::{Fabric, Host};

const LEAF_LABEL: &str = "fabric.topograph.run/tier-0";
const POD_LABEL: &str = "fabric.topograph.run/tier-1";
const HOST_LABEL: &str = "kubernetes.io/hostname";
const FABRIC_LABEL: &str = "crux.fabric/name";
const PART_LABEL: &str = "crux.fabric/part";
const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";
/// Characters of a label's value.
const MAX_LABEL: usize = 63;
/// Characters of an object's name.
const MAX_NAME: usize = 253;

/// Why hosts cannot be nodes of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KueueExportError {
    /// The name of a node has other characters.
    #[error(
        "host {0}: no node of Kubernetes can have this name; names of nodes have small letters, \
         digits, - and ., and begin and end with a letter or digit: give the host its node's name \
         in the fabric document"
    )]
    NodeName(String),
    /// Two names differ in capital letters alone.
    #[error(
        "hosts {0} and {1}: both would be the node {node}; give each its node's name in the fabric \
         document",
        node = .0.to_ascii_lowercase()
    )]
    SameNode(String, String),
}

/// A topology, a flavor for the hosts of each part of the fabric, and a node for each host.
///
/// # Errors
/// A host's name, in small letters, is no name of a node, or is that of another host.
pub fn export_kueue(fabric: &Fabric) -> Result<String, KueueExportError> {
    check_nodes(fabric.hosts())?;
    let name = object_name(fabric.name());
    let topology = json!({
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": { "name": name },
        "spec": { "levels": [
            { "nodeLabel": POD_LABEL }, { "nodeLabel": LEAF_LABEL }, { "nodeLabel": HOST_LABEL },
        ] },
    });
    let tree = FabricTree::of_fabric(fabric);
    let mut flavors = Vec::new();
    let mut nodes = Vec::new();
    for part in &tree.parts {
        let mut flavor = name.clone();
        let mut labels = json!({ FABRIC_LABEL: name });
        if tree.parts.len() > 1 {
            flavor = format!("{name}-{}", part.name);
            labels[PART_LABEL] = part.name.as_str().into();
        }
        flavors.push(json!({
            "apiVersion": API_VERSION,
            "kind": "ResourceFlavor",
            "metadata": { "name": flavor },
            "spec": { "nodeLabels": labels, "topologyName": name },
        }));
        let leaves = part.pods.iter().flat_map(|pod| pod.leaves.iter().map(move |it| (pod, it)));
        for (pod, leaf) in leaves {
            labels[POD_LABEL] = label_value(&pod.name).into();
            labels[LEAF_LABEL] = label_value(&leaf.name).into();
            nodes.extend(leaf.hosts.iter().map(|host| {
                json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": { "name": host.to_ascii_lowercase(), "labels": labels },
                })
            }));
        }
    }
    let documents: Vec<Value> = [topology].into_iter().chain(flavors).chain(nodes).collect();
    Ok(yaml_documents(&documents))
}

fn check_nodes(hosts: &[Host]) -> Result<(), KueueExportError> {
    let mut nodes: BTreeMap<String, &str> = BTreeMap::new();
    for host in hosts {
        let node = host.name.to_ascii_lowercase();
        let is_name = node.len() <= MAX_NAME && node.split('.').all(is_dns_label);
        if !is_name {
            return Err(KueueExportError::NodeName(host.name.clone()));
        }
        if let Some(other) = nodes.insert(node, &host.name) {
            return Err(KueueExportError::SameNode(other.to_owned(), host.name.clone()));
        }
    }
    Ok(())
}

/// Whether small letters, digits and dashes, with a letter or digit at both ends.
fn is_dns_label(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_letter)
        && text.ends_with(is_letter)
        && text.chars().all(|c| is_letter(c) || c == '-')
}

/// The text, or where it is no value of a label, its hash, as topograph has it.
fn label_value(text: &str) -> String {
    let is_value = text.len() <= MAX_LABEL
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_value { text.to_owned() } else { format!("x{:x}", fnv1a(text)) }
}

/// The text, or where it can name no object, what can be kept of it and its hash. The result is
/// also a value of a label.
fn object_name(text: &str) -> String {
    if text.len() <= MAX_LABEL && is_dns_label(text) {
        return text.to_owned();
    }
    let hash = format!("x{:x}", fnv1a(text));
    let letters = text.to_ascii_lowercase();
    let letters = letters.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let kept: String = letters.take(MAX_LABEL - hash.len() - 1).collect();
    let name = format!("{kept}-{hash}");
    name.trim_start_matches('-').to_owned()
}

/// FNV-1a of 64 bits (Fowler, Noll and Vo): the same on every machine and in every version.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
