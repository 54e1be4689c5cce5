//! A topology of containerlab: a Linux container for each host and each switch, a link for each
//! cable.
//!
//! Interface `ethN` of a switch is its port N. Interface `eth0` of a container belongs to
//! containerlab's management, so NIC n of a host is `eth` n+1; second ports of NICs come after all NICs. Links are in the long form, the one
//! in which the schema of containerlab has labels. Labels that begin with `crux.` say
//! what containerlab has no fields for, so that the file can be imported again.
//!
//! A switch with an image of bmv2 runs `simple_switch_grpc` on its ports, with a queue for each level
//! of a plan. Its P4Runtime server has the port that the document says, on the machine of the lab.

use serde_json::{Map, Value, json};
use serde_yaml_ng::Mapping;

use super::facts::{self, Fact};
use super::yaml_text;
use crate::fabric::{Fabric, Switch};
use crate::ids::{FabricNode, LinkId};
use crate::server_address::ServerAddress;

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
        let mut node = container(&images.switch, facts);
        if BMV2_IMAGES.iter().any(|part| images.switch.contains(part)) {
            node["cmd"] = bmv2_command(switch).into();
            let published = switch.p4runtime.as_ref().and_then(|at| published_port(at));
            if let Some(published) = published {
                node["ports"] = json!([published]);
            }
        }
        (switch.name.clone(), node)
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
        let ends = [endpoint(fabric, cable), endpoint(fabric, cable.reverse())];
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

/// Parts of the names of images in which a switch is bmv2.
const BMV2_IMAGES: [&str; 2] = ["behavioral-model", "bmv2"];

/// Where bmv2 listens in its container.
const BMV2_PORT: u16 = 9559;

/// What a container of bmv2 runs. It begins before containerlab has given it its interfaces, for which
/// it waits.
fn bmv2_command(switch: &Switch) -> String {
    let ports = || switch.ports.keys();
    let waits: Vec<String> = ports().map(|port| format!("eth{port}")).collect();
    let interfaces: Vec<String> = ports().map(|port| format!("-i {port}@eth{port}")).collect();
    format!(
        "sh -c 'for i in {}; do until [ -e /sys/class/net/$i ]; do sleep 0.1; done; done; exec \
         simple_switch_grpc --no-p4 --device-id {} {} -- --grpc-server-addr 0.0.0.0:{BMV2_PORT} \
         --cpu-port 255 --priority-queues 8'",
        waits.join(" "),
        switch.device_id,
        interfaces.join(" "),
    )
}

/// The port of a P4Runtime address, published by the container: on loopback alone if the address is
/// of loopback.
fn published_port(address: &str) -> Option<String> {
    let address = ServerAddress::parse(address)?;
    let is_local = ["127.0.0.1", "localhost", "::1"].contains(&address.bare_host());
    let on = if is_local { "127.0.0.1:" } else { "" };
    Some(format!("{on}{}:{BMV2_PORT}", address.port))
}

fn container(image: &str, facts: Vec<Fact>) -> Value {
    json!({ "kind": "linux", "image": image, "labels": labels(facts) })
}

fn labels(facts: Vec<Fact>) -> Map<String, Value> {
    let label = |(name, value): Fact| (format!("{}{name}", facts::LABEL_PREFIX), value.into());
    facts.into_iter().map(label).collect()
}

/// The end at which a link leaves.
fn endpoint(fabric: &Fabric, link: LinkId) -> Value {
    let (node, port) = (fabric.link(link).from.node, fabric.port_number(link));
    let interface = match node {
        FabricNode::Host(_) => port + 1,
        FabricNode::Switch(_) => port,
    };
    json!({ "node": fabric.node_name(node), "interface": format!("eth{interface}") })
}
