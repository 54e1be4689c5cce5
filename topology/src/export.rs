//! A fabric in the formats of schedulers, labs, inventories and switches.
//!
//! Schedulers know trees, and a Clos is not a tree: [`FabricTree`] has what they can use of it. A
//! text is a pure function of the fabric; `crux fabric export` prints it.

mod containerlab;
mod fabric_tree;
pub(crate) mod facts;
mod kueue;
pub(crate) mod netbox;
mod p4utils;
mod qos;
mod slurm;
mod sonic_config;
mod topograph;

pub use containerlab::{ContainerlabImages, export_containerlab};
pub use fabric_tree::{FabricPart, FabricTree, LeafGroup, PodGroup};
pub use kueue::{KueueExportError, export_kueue};
pub use netbox::{NetboxTable, export_netbox};
pub use p4utils::export_p4utils;
pub use qos::{LevelMarking, LevelQueue, PortQueues, QueuePlan, export_qos, port_queues};
pub use slurm::{export_slurm_conf, export_slurm_yaml};
pub use sonic_config::{SonicConfigError, SonicFragment, SonicPorts, export_sonic_config};
pub use topograph::export_topograph;

use serde::Serialize;

/// YAML of a value that has neither maps with other keys than text nor numbers out of range.
fn yaml_text(value: &impl Serialize) -> String {
    serde_yaml_ng::to_string(value).expect("plain maps, lists and texts are YAML")
}

/// Several YAML documents in one text.
fn yaml_documents(values: &[serde_json::Value]) -> String {
    let documents: Vec<String> = values.iter().map(yaml_text).collect();
    documents.join("---\n")
}

#[cfg(test)]
mod tests;
