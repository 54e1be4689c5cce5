//! A topology of containerlab: a Linux container for each host and each switch, a link for each
//! cable.
//!
//! Interface `ethN` of a switch is its port N. Interface `eth0` of a container belongs to
//! containerlab's management, so NIC n of a host is `eth` n+1.

use serde_json::{Map, Value, json};

use super::yaml_text;
use crate::fabric::{Fabric, LinkEndpoint};
use crate::ids::FabricNode;

/// Images of the containers.
#[derive(Clone, Debug)]
pub struct ContainerlabImages {
    /// Of switches.
    pub switch: String,
    /// Of hosts.
    pub host: String,
}

/// The text of a `.clab.yml` file.
pub fn export_containerlab(fabric: &Fabric, images: &ContainerlabImages) -> String {
    let node = |image: &str| json!({ "kind": "linux", "image": image });
    let switches =
        fabric.switches().iter().map(|switch| (switch.name.clone(), node(&images.switch)));
    let hosts = fabric.hosts().iter().map(|host| (host.name.clone(), node(&images.host)));
    let nodes: Map<String, Value> = switches.chain(hosts).collect();
    let links: Vec<Value> = fabric
        .cables()
        .map(|cable| fabric.link(cable))
        .map(
            |link| json!({ "endpoints": [endpoint(fabric, link.from), endpoint(fabric, link.to)] }),
        )
        .collect();
    yaml_text(&json!({
        "name": fabric.name(),
        "topology": { "nodes": nodes, "links": links },
    }))
}

fn endpoint(fabric: &Fabric, end: LinkEndpoint) -> String {
    let interface = match end.node {
        FabricNode::Host(_) => end.port + 1,
        FabricNode::Switch(_) => end.port,
    };
    format!("{}:eth{interface}", fabric.node_name(end.node))
}
