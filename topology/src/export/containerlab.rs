//! A topology of containerlab: a Linux container for each host and each switch, a link for each
//! cable.
//!
//! Interface `ethN` of a switch is its port N. Interface `eth0` of a container belongs to
//! containerlab's management, so NIC n of a host is `eth` n+1. Links are in the long form, the one
//! in which the schema of containerlab has labels. Labels that begin with `crux.` say
//! what containerlab has no fields for, so that the file can be imported again.

use serde_json::{Map, Value, json};
use serde_yaml_ng::Mapping;

use super::facts::{self, Fact};
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
    let switches = fabric.switches().iter().map(|switch| {
        let tier = (facts::TIER, switch.tier.to_string());
        let facts = std::iter::once(tier).chain(facts::switch_facts(switch));
        let facts = facts.chain(facts::port_names_fact(switch)).collect();
        (switch.name.clone(), container(&images.switch, facts))
    });
    let hosts = fabric.hosts().iter().map(|host| {
        let mut facts = facts::host_facts(fabric, host);
        facts.push(facts::address_fact(fabric, host));
        (host.name.clone(), container(&images.host, facts))
    });
    // In the order of the fabric, which YAML keeps and JSON's map does not.
    let nodes: Mapping = switches
        .chain(hosts)
        .map(|(name, node)| (name.into(), serde_yaml_ng::to_value(node).expect("JSON is YAML")))
        .collect();
    let links = facts::unusual_schedulers(fabric).into_iter().map(|(cable, scheduler)| {
        let link = fabric.link(cable);
        let speed = (facts::GBPS, link.bandwidth.gbps().to_string());
        let facts = std::iter::once(speed).chain(scheduler).collect();
        let ends = [endpoint(fabric, link.from), endpoint(fabric, link.to)];
        json!({ "type": "veth", "endpoints": ends, "labels": labels(facts) })
    });
    let links: Vec<Value> = links.collect();
    let mut topology = Mapping::new();
    topology.insert("nodes".into(), nodes.into());
    topology.insert("links".into(), serde_yaml_ng::to_value(links).expect("JSON is YAML"));
    let mut text = Mapping::new();
    text.insert("name".into(), fabric.name().into());
    text.insert("topology".into(), topology.into());
    yaml_text(&text)
}

fn container(image: &str, facts: Vec<Fact>) -> Value {
    json!({ "kind": "linux", "image": image, "labels": labels(facts) })
}

fn labels(facts: Vec<Fact>) -> Map<String, Value> {
    let label = |(name, value): Fact| (format!("{}{name}", facts::LABEL_PREFIX), value.into());
    facts.into_iter().map(label).collect()
}

fn endpoint(fabric: &Fabric, end: LinkEndpoint) -> Value {
    let interface = match end.node {
        FabricNode::Host(_) => end.port + 1,
        FabricNode::Switch(_) => end.port,
    };
    json!({ "node": fabric.node_name(end.node), "interface": format!("eth{interface}") })
}
