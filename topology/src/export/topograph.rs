//! A model of topograph 1.0 (its providers `test` and `*-sim` read it): switches with the switches
//! below them, and blocks of nodes with the switch that each is attached to.
//!
//! Switches that have nothing but nodes are named by the ones above them and by their blocks alone.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fabric_tree::FabricTree;
use super::yaml_text;
use crate::fabric::Fabric;

#[derive(Serialize)]
struct TopographModel {
    switches: BTreeMap<String, TopographSwitch>,
    blocks: Vec<TopographBlock>,
}

#[derive(Serialize)]
struct TopographSwitch {
    switches: Vec<String>,
}

/// Nodes without labels: the fabric document has none.
#[derive(Serialize)]
struct TopographBlock {
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<String>,
    nodes: Vec<String>,
}

/// The text of a model file.
pub fn export_topograph(fabric: &Fabric) -> String {
    let tree = FabricTree::of_fabric(fabric);
    let pods = tree.pods().map(|pod| {
        let leaves = pod.leaves.iter().map(|leaf| leaf.name.clone()).collect();
        (pod.name.clone(), TopographSwitch { switches: leaves })
    });
    let joins = tree.joined_parts().map(|part| {
        let pods = part.pods.iter().map(|pod| pod.name.clone()).collect();
        (part.name.clone(), TopographSwitch { switches: pods })
    });
    let attached = tree
        .leaf_groups()
        .map(|leaf| TopographBlock { switch: Some(leaf.name.clone()), nodes: leaf.hosts.clone() });
    let hosts = fabric.hosts().iter();
    let alone = hosts.filter(|host| host.nics.is_empty()).map(|host| host.name.clone());
    let alone = TopographBlock { switch: None, nodes: alone.collect() };
    let alone = Some(alone).filter(|block| !block.nodes.is_empty());
    let model = TopographModel {
        switches: pods.chain(joins).collect(),
        blocks: attached.chain(alone).collect(),
    };
    yaml_text(&model)
}
