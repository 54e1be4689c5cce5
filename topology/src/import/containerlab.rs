//! Topologies of containerlab (`.clab.yml`).
//!
//! A node is a switch if its label `crux.tier`, or else its group, names a tier, and a host if it
//! has the label `crux.gpus` or its group is `host` or `server`. Links are in the short form or in
//! the long one of type `veth`; interfaces may have any names. `eth0` belongs to containerlab.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::inventory::{
    DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice, field_error, tier_named,
};
use super::{ImportError, ImportedFabric};
use crate::export::facts;

#[derive(Deserialize)]
struct LabFile {
    #[serde(default)]
    name: Option<String>,
    topology: LabTopology,
}

#[derive(Deserialize)]
struct LabTopology {
    #[serde(default)]
    nodes: Mapping,
    #[serde(default)]
    links: Vec<LabLink>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LabNode {
    group: Option<String>,
    labels: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct LabLink {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    endpoints: Vec<LabEndpoint>,
    #[serde(default)]
    labels: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LabEndpoint {
    Short(String),
    Long { node: String, interface: String },
}

/// The fabric of a `.clab.yml` file.
///
/// # Errors
/// The text is no such file, or its nodes and links are no fabric; the error names the field.
pub fn import_containerlab(
    text: &str,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let lab: LabFile = serde_yaml_ng::from_str(text)
        .map_err(|error| field_error("topology of containerlab", error.to_string()))?;
    let devices = lab.topology.nodes.into_iter().map(|(name, node)| read_node(&name, node));
    let links = lab.topology.links.into_iter().enumerate();
    let inventory = Inventory {
        name: lab.name.unwrap_or_else(|| "lab".to_owned()),
        devices: devices.collect::<Result<_, _>>()?,
        cables: links.map(|(index, link)| read_link(index, link)).collect::<Result<_, _>>()?,
    };
    inventory.into_fabric(assumptions)
}

fn read_node(name: &Value, node: Value) -> Result<ListedDevice, ImportError> {
    let name = plain_text(name);
    let field = format!("topology.nodes.{name}");
    // A node may have no fields at all.
    let node = match node {
        Value::Null => LabNode::default(),
        node => serde_yaml_ng::from_value(node)
            .map_err(|error| field_error(&field, error.to_string()))?,
    };
    let facts = own_facts(node.labels);
    let group = node.group.unwrap_or_default();
    let tier = facts.get(facts::TIER).unwrap_or(&group);
    let is_host = facts.contains_key(facts::GPUS) || ["host", "server"].contains(&&*group);
    let role = match tier_named(tier) {
        Some(tier) => DeviceRole::Switch(tier),
        None if is_host => DeviceRole::Host,
        None => {
            let problem = "neither a switch nor a host: add the label crux.tier (leaf, spine or \
                           core), or crux.gpus with the GPUs of a host";
            return Err(field_error(field, problem));
        }
    };
    Ok(ListedDevice { name, field, role, facts, addresses: BTreeMap::new() })
}

fn read_link(index: usize, link: LabLink) -> Result<ListedCable, ImportError> {
    let field = format!("topology.links[{index}]");
    if let Some(kind) = link.kind.filter(|kind| kind != "veth") {
        let problem = format!("a link of type {kind} leaves the lab: remove it, or use veth");
        return Err(field_error(field, problem));
    }
    let ends: Vec<(String, String)> = link
        .endpoints
        .into_iter()
        .map(|end| read_endpoint(&field, end))
        .collect::<Result<_, _>>()?;
    let ends = <[_; 2]>::try_from(ends).map_err(|ends| {
        field_error(&field, format!("{} endpoints; a cable has two", ends.len()))
    })?;
    Ok(ListedCable { field, ends, facts: own_facts(link.labels) })
}

fn read_endpoint(field: &str, end: LabEndpoint) -> Result<(String, String), ImportError> {
    let (node, interface) = match end {
        LabEndpoint::Long { node, interface } => (node, interface),
        LabEndpoint::Short(text) => {
            let parts = text.split_once(':').map(|(node, name)| (node.to_owned(), name.to_owned()));
            parts.ok_or_else(|| {
                let problem = format!("{text:?} is no endpoint: write node:interface");
                field_error(field, problem)
            })?
        }
    };
    match interface.as_str() {
        "eth0" => {
            let problem = format!("{node}:eth0 belongs to containerlab: use eth1 and up");
            Err(field_error(field, problem))
        }
        _ => Ok((node, interface)),
    }
}

/// Labels that begin with `crux.`, without that.
fn own_facts(labels: BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let own = labels.into_iter().filter_map(|(name, value)| {
        Some((name.strip_prefix(facts::LABEL_PREFIX)?.to_owned(), plain_text(&value)))
    });
    own.collect()
}

/// A text, a number or a truth value as text.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => String::new(),
    }
}
