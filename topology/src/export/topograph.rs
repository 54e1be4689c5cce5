//! A model of topograph (its providers `test` and `*-sim` read it): switches with the switches or
//! nodes below them, and the nodes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fabric_tree::FabricTree;
use super::yaml_text;
use crate::fabric::Fabric;

#[derive(Serialize)]
struct TopographModel {
    switches: BTreeMap<String, TopographSwitch>,
    nodes: BTreeMap<String, TopographNode>,
}

#[derive(Serialize)]
struct TopographSwitch {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    switches: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
}

/// A node without a type and without NVLink domains: the fabric document has neither.
#[derive(Serialize)]
struct TopographNode {}

/// The text of a model file.
pub fn export_topograph(fabric: &Fabric) -> String {
    let tree = FabricTree::of_fabric(fabric);
    let mut switches = BTreeMap::new();
    for leaf in tree.leaf_groups() {
        let below = TopographSwitch { switches: Vec::new(), nodes: leaf.hosts.clone() };
        switches.insert(leaf.name.clone(), below);
    }
    let mut add = |name: &str, below: Vec<String>| {
        let below = TopographSwitch { switches: below, nodes: Vec::new() };
        switches.insert(name.to_owned(), below);
    };
    for pod in tree.pods() {
        add(&pod.name, pod.leaves.iter().map(|leaf| leaf.name.clone()).collect());
    }
    for part in tree.joined_parts() {
        add(&part.name, part.pods.iter().map(|pod| pod.name.clone()).collect());
    }
    let hosts = fabric.hosts().iter().map(|host| (host.name.clone(), TopographNode {}));
    yaml_text(&TopographModel { switches, nodes: hosts.collect() })
}
