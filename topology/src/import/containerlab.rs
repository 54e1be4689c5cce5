//! Topologies of containerlab (`.clab.yml`).
//!
//! A node has the labels, the kind and the group of its own, of its group, of its kind and of
//! `defaults`, in this order, as in containerlab. It is a switch if its label `crux.tier` or its
//! group names a tier, and a host if it has the label `crux.gpus` or its group names one (`host`,
//! `servers`). Of other nodes, a network operating system is a switch, and a Linux container is
//! what its cables make it ([`roles`](super::roles)). Links are in the short form or in the long
//! one; those that leave the lab (`host`, `mgmt-net`, `macvlan`, `vxlan`) are left out. `eth0`
//! belongs to containerlab.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::inventory::{
    CableEnd, DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice,
    MissingAddress, field_error,
};
use super::left_out::ImportNotes;
use super::roles::{TakenPhrases, role_named, stated_tier};
use super::{ImportError, ImportedFabric};
use crate::document::nearest_name;
use crate::export::facts;

/// Kinds of nodes that are no device of a fabric.
const OUTSIDE_KINDS: [&str; 4] = ["bridge", "ovs-bridge", "host", "k8s-kind"];
/// Kinds of nodes that may be hosts as well as switches; all others are switches.
const OPEN_KINDS: [&str; 7] =
    ["", "linux", "ext-container", "generic_vm", "freebsd", "openbsd", "keysight_ixia-c-one"];
/// Parts of the names of images that make a Linux container a switch.
const SWITCH_IMAGES: [&str; 7] =
    ["frr", "bird", "vyos", "sonic", "openvswitch", "behavioral-model", "bmv2"];
/// Ends of a short link that leave the lab.
const OUTSIDE_NODES: [&str; 3] = ["host", "mgmt-net", "macvlan"];
/// Types of long links that leave the lab.
const OUTSIDE_TYPES: [&str; 7] =
    ["host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy", "bridge"];
/// Types of links between two nodes.
const CABLE_TYPES: [&str; 3] = ["veth", "veth-stitch", "brief"];
/// Keys of `topology` that do nothing one level higher.
const TOPOLOGY_KEYS: [&str; 5] = ["nodes", "links", "kinds", "groups", "defaults"];
/// Labels that say what a node is in drawings of the lab.
const ROLE_LABELS: [&str; 4] = ["role", "graph-icon", "topoViewer-role", "graph-role"];

#[derive(Deserialize)]
struct LabFile {
    name: Option<Value>,
    topology: LabTopology,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct LabTopology {
    nodes: Option<Mapping>,
    links: Option<Vec<Value>>,
    kinds: Option<BTreeMap<String, Option<LabNode>>>,
    groups: Option<BTreeMap<String, Option<LabNode>>>,
    defaults: Option<LabNode>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// A node, or what a group, a kind or `defaults` gives to nodes.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct LabNode {
    kind: Option<String>,
    group: Option<GroupName>,
    image: Option<String>,
    network_mode: Option<String>,
    labels: Option<BTreeMap<String, Value>>,
    /// Whether the label with the GPUs is the node's own.
    #[serde(skip)]
    states_gpus: bool,
    /// Whether it is that of the node, its group or its kind: defaults are for switches as well.
    #[serde(skip)]
    is_given_gpus: bool,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// `leaf`, or `10`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum GroupName {
    Text(String),
    Number(i64),
}

#[derive(Deserialize)]
struct LabLink {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    endpoints: Vec<LabEndpoint>,
    endpoint: Option<LabEndpoint>,
    labels: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    ipv4: Vec<Option<String>>,
    #[serde(default)]
    ipv6: Vec<Option<String>>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LabEndpoint {
    Short(String),
    Long {
        node: String,
        interface: Option<Value>,
        mac: Option<String>,
        ipv4: Option<String>,
        ipv6: Option<String>,
        #[serde(flatten)]
        other: BTreeMap<String, Value>,
    },
}

/// An end of a link, with the addresses that the link gives to its interface.
struct LinkEnd {
    node: String,
    interface: String,
    address: Option<String>,
    mac: Option<String>,
}

/// The fabric of a `.clab.yml` file.
///
/// # Errors
/// The text is no such file, or its nodes and links are no fabric; the error names the field.
pub fn import_containerlab(
    text: &str,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let lab: LabFile = serde_yaml_ng::from_str(text).map_err(|error| {
        let is_template = text.contains("{{");
        let hint = "; this is a template: render it first, as containerlab does";
        let problem = error.to_string() + if is_template { hint } else { "" };
        field_error("topology of containerlab", problem)
    })?;
    let mut reader = LabReader::default();
    reader.count_unused(&lab.other, "");
    reader.count_unused(&lab.topology.other, "topology.");
    if let Some(key) = lab.other.keys().find(|key| TOPOLOGY_KEYS.contains(&key.as_str())) {
        let problem = "stands beside topology, where containerlab does not read it: move it below";
        return Err(field_error(key, problem));
    }
    for key in lab.topology.other.keys() {
        if let Some(meant) = nearest_name(key, TOPOLOGY_KEYS) {
            let problem = format!("unknown key; did you mean {meant}?");
            return Err(field_error(format!("topology.{key}"), problem));
        }
    }
    let name = lab.name.as_ref().map(plain_text);
    let links = lab.topology.links.clone().unwrap_or_default();
    reader.read_nodes(lab.topology)?;
    for (index, link) in links.into_iter().enumerate() {
        reader.read_link(&format!("topology.links[{index}]"), link)?;
    }
    reader.into_inventory(name).into_fabric(assumptions)
}

#[derive(Default)]
struct LabReader {
    devices: Vec<ListedDevice>,
    cables: Vec<ListedCable>,
    /// Nodes that are no device, with the reason.
    outside: BTreeMap<String, String>,
    /// Nodes that are a part of another one.
    parts: BTreeMap<String, String>,
    /// Nodes whose `eth0` is not containerlab's.
    unmanaged: BTreeSet<String>,
    phrases: TakenPhrases,
    notes: ImportNotes,
}

impl LabReader {
    fn count_unused(&mut self, keys: &BTreeMap<String, Value>, place: &str) {
        for key in keys.keys().filter(|key| !TOPOLOGY_KEYS.contains(&key.as_str())) {
            self.notes.count_unused_field(format!("{place}{key}"));
        }
    }

    fn read_nodes(&mut self, topology: LabTopology) -> Result<(), ImportError> {
        let defaults = topology.defaults.unwrap_or_default();
        let given =
            |nodes: Option<BTreeMap<String, Option<LabNode>>>| -> BTreeMap<String, LabNode> {
                let nodes = nodes.unwrap_or_default().into_iter();
                nodes.map(|(name, node)| (name, node.unwrap_or_default())).collect()
            };
        let (kinds, groups) = (given(topology.kinds), given(topology.groups));
        let shared = kinds.values().chain(groups.values()).chain([&defaults]);
        shared.for_each(|node| self.count_unused(&node.other, ""));
        let mut nodes = Vec::new();
        for (name, node) in topology.nodes.unwrap_or_default() {
            let name = plain_text(&name);
            // A node may have no fields at all; then it has the group of the defaults.
            let own: LabNode = match node {
                Value::Null => LabNode { group: defaults.group.clone(), ..LabNode::default() },
                node => serde_yaml_ng::from_value(node).map_err(|error| {
                    field_error(format!("topology.nodes.{name}"), error.to_string())
                })?,
            };
            self.count_unused(&own.other, "");
            nodes.push((name, own.with_inherited(&groups, &kinds, &defaults)));
        }
        let names: BTreeSet<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
        for (name, node) in nodes {
            self.read_node(name, node, &names)?;
        }
        Ok(())
    }

    fn read_node(
        &mut self,
        name: String,
        node: LabNode,
        names: &BTreeSet<String>,
    ) -> Result<(), ImportError> {
        let field = format!("topology.nodes.{name}");
        let labels = node.labels.unwrap_or_default();
        let facts = own_facts(&labels);
        let kind = node.kind.unwrap_or_default();
        let network = node.network_mode.unwrap_or_default();
        if let Some(whole) =
            network.strip_prefix("container:").filter(|whole| names.contains(*whole))
        {
            self.notes.leave_out("node", format!("part of {whole} (network-mode)"), &name);
            self.parts.insert(name, whole.to_owned());
            return Ok(());
        }
        if network == "none" {
            self.unmanaged.insert(name.clone());
        }
        let tier = stated_tier(&field, &facts)?;
        if OUTSIDE_KINDS.contains(&kind.as_str()) && tier.is_none() {
            let reason = format!("kind {kind} is no device of a fabric");
            self.notes.leave_out("node", &reason, &name);
            self.outside.insert(name, reason);
            return Ok(());
        }
        for label in labels.keys().filter(|label| !label.starts_with(facts::LABEL_PREFIX)) {
            if !ROLE_LABELS.contains(&label.as_str()) {
                self.notes.count_unused_field(format!("label {label}"));
            }
        }
        let group = node.group.map(|group| group.to_string()).unwrap_or_default();
        let drawn = ROLE_LABELS.iter().filter_map(|label| labels.get(*label)).map(plain_text);
        let mut words = std::iter::once(group).chain(drawn);
        let stated = words.find_map(|word| Some((role_named(&word)?, word)));
        let is_open = OPEN_KINDS.contains(&kind.as_str());
        let image = node.image.unwrap_or_default().to_lowercase();
        let is_switch = !is_open || SWITCH_IMAGES.iter().any(|part| image.contains(part));
        let has_gpus = node.is_given_gpus || is_open && facts.contains_key(facts::GPUS);
        let role = match (tier, stated) {
            (Some(tier), _) => DeviceRole::Switch(Some(tier)),
            (None, Some((role, word))) => {
                self.phrases.add(&word, role);
                role
            }
            (None, None) if has_gpus => DeviceRole::Host,
            (None, None) if is_switch => DeviceRole::Switch(None),
            (None, None) => DeviceRole::Unknown,
        };
        let is_complete = matches!(role, DeviceRole::Switch(Some(_)))
            || role == DeviceRole::Host && node.states_gpus;
        let (addresses, macs) = (BTreeMap::new(), BTreeMap::new());
        self.devices.push(ListedDevice {
            name,
            field,
            role,
            is_complete,
            facts,
            addresses,
            macs,
            bonds: BTreeMap::new(),
        });
        Ok(())
    }

    fn read_link(&mut self, field: &str, link: Value) -> Result<(), ImportError> {
        let link: LabLink = serde_yaml_ng::from_value(link)
            .map_err(|error| field_error(field, error.to_string()))?;
        self.count_unused(&link.other, "links.");
        let mut ends = Vec::new();
        let endpoints = link.endpoints.into_iter().chain(link.endpoint);
        for (side, endpoint) in endpoints.enumerate() {
            let given = [link.ipv4.get(side), link.ipv6.get(side)];
            let given = given.into_iter().flatten().flatten().find(|text| !text.is_empty());
            ends.push(self.read_endpoint(field, endpoint, given)?);
        }
        let names: Vec<String> =
            ends.iter().map(|end| format!("{}:{}", end.node, end.interface)).collect();
        let name = format!("{} ({field})", names.join("-"));
        let kind = link.kind.unwrap_or_else(|| "veth".to_owned());
        let nodes = ends.iter().map(|end| &*end.node);
        let outside_node = nodes.into_iter().find(|node| OUTSIDE_NODES.contains(node));
        let outside_type = Some(kind.as_str()).filter(|kind| OUTSIDE_TYPES.contains(kind));
        if let Some(outside) = outside_type.or(outside_node) {
            self.notes.leave_out("cable", format!("leaves the lab: {outside}"), name);
            return Ok(());
        }
        if !CABLE_TYPES.contains(&kind.as_str()) {
            let problem = format!("a link of type {kind} is unknown: use veth, or remove it");
            return Err(field_error(field, problem));
        }
        let ends = <[_; 2]>::try_from(ends).map_err(|ends| {
            field_error(field, format!("{} endpoints; a cable has two", ends.len()))
        })?;
        if let Some(reason) = ends.iter().find_map(|end| self.outside.get(&end.node)) {
            self.notes.leave_out(
                "cable",
                format!("ends at a node that is left out: {reason}"),
                name,
            );
            return Ok(());
        }
        let ends = ends.map(|end| self.cable_end(end));
        let [a, b] = &ends;
        if a.device == b.device {
            self.notes.leave_out("cable", "joins a node to itself", name);
            return Ok(());
        }
        let facts = own_facts(&link.labels.unwrap_or_default());
        self.cables.push(ListedCable { field: field.to_owned(), ends, facts });
        Ok(())
    }

    fn read_endpoint(
        &mut self,
        field: &str,
        end: LabEndpoint,
        given: Option<&String>,
    ) -> Result<LinkEnd, ImportError> {
        let end = match end {
            LabEndpoint::Long { node, interface, mac, ipv4, ipv6, other } => {
                self.count_unused(&other, "links.endpoints.");
                let interface = interface.as_ref().map(plain_text).unwrap_or_default();
                let address = ipv4.or(ipv6).filter(|text| !text.is_empty());
                LinkEnd { node, interface, address: address.or(given.cloned()), mac }
            }
            LabEndpoint::Short(text) => {
                let parts = text.split_once(':');
                let (node, interface) = parts.ok_or_else(|| {
                    let problem = format!("{text:?} is no endpoint: write node:interface");
                    field_error(field, problem)
                })?;
                let (node, interface) = (node.to_owned(), interface.to_owned());
                LinkEnd { node, interface, address: given.cloned(), mac: None }
            }
        };
        let is_managed =
            !OUTSIDE_NODES.contains(&end.node.as_str()) && !self.unmanaged.contains(&end.node);
        if end.interface == "eth0" && is_managed {
            let problem = format!("{}:eth0 belongs to containerlab: use eth1 and up", end.node);
            return Err(field_error(field, problem));
        }
        Ok(end)
    }

    /// The end of a cable; its addresses go to the device.
    fn cable_end(&mut self, end: LinkEnd) -> CableEnd {
        let device = self.parts.get(&end.node).unwrap_or(&end.node).clone();
        let is_addressed = end.address.is_some() || end.mac.is_some();
        let listed = self.devices.iter_mut().find(|listed| is_addressed && listed.name == device);
        if let Some(listed) = listed {
            if let Some(address) = end.address {
                // Addresses in labels are those of all NICs, in order.
                if !listed.facts.contains_key(facts::IPS) {
                    let ip = address.split('/').next().unwrap_or_default().to_owned();
                    listed.addresses.insert(end.interface.clone(), ip);
                }
            }
            if let Some(mac) = end.mac.filter(|_| !listed.facts.contains_key(facts::MACS)) {
                listed.macs.insert(end.interface.clone(), mac);
            }
        }
        CableEnd { device, interface: end.interface, port: None }
    }

    fn into_inventory(mut self, name: Option<String>) -> Inventory {
        self.notes.assumptions.extend(self.phrases.sentence("group or label"));
        Inventory {
            name,
            usual_name: "lab",
            device_noun: "node",
            fact_prefix: Some(facts::LABEL_PREFIX),
            tier_remedy: "label crux.tier (leaf, spine or core)",
            devices_field: "topology.nodes".to_owned(),
            devices: self.devices,
            cables: self.cables,
            missing_address: MissingAddress::Generate,
            generated_port_name: |port| format!("eth{port}"),
            notes: self.notes,
        }
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl LabNode {
    /// The node with what its group, its kind and the defaults give it, the nearest first.
    fn with_inherited(
        self,
        groups: &BTreeMap<String, Self>,
        kinds: &BTreeMap<String, Self>,
        defaults: &Self,
    ) -> Self {
        let named = |group: &Option<GroupName>| {
            group.as_ref().and_then(|name| groups.get(&name.to_string()))
        };
        let with_kind = [Some(&self), named(&self.group), named(&defaults.group), Some(defaults)];
        let kind = with_kind.into_iter().flatten().find_map(|node| node.kind.clone());
        let of_kind = kind.as_ref().and_then(|kind| kinds.get(kind));
        let with_group = [Some(&self), of_kind, Some(defaults)];
        let group = with_group.into_iter().flatten().find_map(|node| node.group.clone());
        let of_group = named(&group);
        let gpus = format!("{}{}", facts::LABEL_PREFIX, facts::GPUS);
        let gives_gpus =
            |node: &Self| node.labels.as_ref().is_some_and(|labels| labels.contains_key(&gpus));
        let states_gpus = gives_gpus(&self);
        let is_given_gpus = [Some(&self), of_group, of_kind].into_iter().flatten().any(gives_gpus);
        let mut node = Self { kind, group, states_gpus, is_given_gpus, ..self };
        for near in [of_group, of_kind, Some(defaults)].into_iter().flatten() {
            node.image = node.image.or_else(|| near.image.clone());
            node.network_mode = node.network_mode.or_else(|| near.network_mode.clone());
            let mut labels = near.labels.clone().unwrap_or_default();
            labels.extend(node.labels.unwrap_or_default());
            node.labels = Some(labels);
        }
        node
    }
}

/// Labels that begin with `crux.`, without that.
fn own_facts(labels: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let own = labels.iter().filter_map(|(name, value)| {
        Some((name.strip_prefix(facts::LABEL_PREFIX)?.to_owned(), plain_text(value)))
    });
    own.collect()
}

/// A text, a number or a truth value as text.
pub(super) fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => String::new(),
    }
}
