//! `topology.conf` of Slurm (plugin topology/tree), and `topology.yaml`, which Slurm 25.05 and
//! later read instead.

use std::fmt::Write;

use serde::Serialize;

use super::fabric_tree::FabricTree;
use super::yaml_text;
use crate::fabric::Fabric;
use crate::host_list::compress_host_list;

/// A switch of Slurm's tree: of hosts, or of other switches.
#[derive(Serialize)]
struct SlurmSwitch {
    switch: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<String>,
}

#[derive(Serialize)]
struct SlurmTree {
    switches: Vec<SlurmSwitch>,
}

/// A topology; its name must come first.
#[derive(Serialize)]
struct SlurmTopology {
    topology: String,
    cluster_default: bool,
    tree: SlurmTree,
}

/// The text of `topology.conf`.
pub fn export_slurm_conf(fabric: &Fabric) -> String {
    let mut text = format!("# Fabric {}, by crux fabric export slurm.\n", fabric.name());
    for switch in slurm_switches(fabric) {
        let _infallible = match (&switch.nodes, &switch.children) {
            (Some(nodes), _) => writeln!(text, "SwitchName={} Nodes={nodes}", switch.switch),
            (None, children) => {
                let children = children.as_deref().unwrap_or_default();
                writeln!(text, "SwitchName={} Switches={children}", switch.switch)
            }
        };
    }
    text
}

/// The text of `topology.yaml`.
pub fn export_slurm_yaml(fabric: &Fabric) -> String {
    yaml_text(&[SlurmTopology {
        topology: fabric.name().to_owned(),
        cluster_default: true,
        tree: SlurmTree { switches: slurm_switches(fabric) },
    }])
}

/// Groups of leaves, pods, and what joins the pods of a part where there are several.
fn slurm_switches(fabric: &Fabric) -> Vec<SlurmSwitch> {
    let tree = FabricTree::of_fabric(fabric);
    let list = |names: Vec<&str>| Some(compress_host_list(names));
    let leaves = tree.leaf_groups().map(|leaf| SlurmSwitch {
        switch: leaf.name.clone(),
        children: None,
        nodes: list(leaf.hosts.iter().map(String::as_str).collect()),
    });
    let pods = tree.pods().map(|pod| SlurmSwitch {
        switch: pod.name.clone(),
        children: list(pod.leaves.iter().map(|leaf| leaf.name.as_str()).collect()),
        nodes: None,
    });
    let roots = tree.joined_parts().map(|part| SlurmSwitch {
        switch: part.name.clone(),
        children: list(part.pods.iter().map(|pod| pod.name.as_str()).collect()),
        nodes: None,
    });
    leaves.chain(pods).chain(roots).collect()
}
