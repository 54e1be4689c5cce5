//! Topologies in JSON of p4-utils (`p4app.json`) and of the P4 tutorials (`topology.json`).
//!
//! Both list hosts, switches and links; p4-utils has them under `topology`. An end of a link is the
//! name of a node, or `s1-p3` for port 3; p4-utils states ports and rates in an object behind the
//! ends. Neither knows tiers. The decision: tiers follow from where hosts are, unless a switch has
//! the key `crux.tier`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::inventory::{
    DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice, field_error, tier_named,
};
use super::{ImportError, ImportedFabric};
use crate::export::facts;
use crate::fabric::Tier;

/// Either kind of file.
#[derive(Deserialize)]
struct AppFile {
    #[serde(default, rename = "crux.name")]
    name: Option<String>,
    topology: Option<AppTopology>,
    #[serde(flatten)]
    own: AppTopology,
}

/// Nodes and links.
#[derive(Default, Deserialize)]
struct AppTopology {
    #[serde(default)]
    hosts: Mapping,
    #[serde(default)]
    switches: Mapping,
    #[serde(default)]
    links: Vec<Vec<Value>>,
}

/// An end of a link, with the port where one is stated.
struct LinkEnd {
    node: String,
    port: Option<u64>,
}

/// A link before ports are given to the ends that state none.
struct DraftLink {
    field: String,
    ends: [LinkEnd; 2],
    facts: BTreeMap<String, String>,
}

/// The fabric of a topology of p4-utils or of the P4 tutorials.
///
/// # Errors
/// The text is no such file, or its nodes and links are no fabric; the error names the field.
pub fn import_p4utils(
    text: &str,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let file: AppFile = serde_yaml_ng::from_str(text)
        .map_err(|error| field_error("topology of p4-utils", error.to_string()))?;
    let topology = file.topology.unwrap_or(file.own);
    let hosts: BTreeSet<String> = topology.hosts.keys().map(plain_text).collect();
    let switches: BTreeSet<String> = topology.switches.keys().map(plain_text).collect();
    let links = topology.links.iter().enumerate();
    let links: Vec<DraftLink> = links
        .map(|(index, link)| read_link(index, link, &[&hosts, &switches]))
        .collect::<Result<_, _>>()?;
    let tiers = tiers_by_hosts(&hosts, &switches, &links);
    let mut assumed = 0;
    let mut devices = Vec::new();
    for (name, node) in topology.switches {
        devices.push(read_switch(&plain_text(&name), node, &tiers, &mut assumed)?);
    }
    for (name, node) in topology.hosts {
        devices.push(read_host(plain_text(&name), node));
    }
    let inventory = Inventory {
        name: file.name.unwrap_or_else(|| "lab".to_owned()),
        devices,
        cables: number_ports(links),
    };
    let mut imported = inventory.into_fabric(assumptions)?;
    if assumed > 0 {
        imported.assumptions.push(format!("tiers by where hosts are of {assumed} switches"));
    }
    Ok(imported)
}

fn read_switch(
    name: &str,
    node: Value,
    tiers: &BTreeMap<String, Tier>,
    assumed: &mut usize,
) -> Result<ListedDevice, ImportError> {
    let field = format!("topology.switches.{name}");
    let facts = own_facts(node);
    let tier = match facts.get(facts::TIER) {
        Some(word) => tier_named(word).ok_or_else(|| {
            field_error(&field, format!("crux.tier {word:?} is none: use leaf, spine or core"))
        })?,
        None => {
            *assumed += 1;
            tiers.get(name).copied().unwrap_or(Tier::Core)
        }
    };
    let role = DeviceRole::Switch(tier);
    Ok(ListedDevice { name: name.to_owned(), field, role, facts, addresses: BTreeMap::new() })
}

fn read_host(name: String, node: Value) -> ListedDevice {
    let stated = |key: &str| node.get(key).map(plain_text).filter(|text| !text.is_empty());
    let (ip, mac) = (stated("ip"), stated("mac"));
    let field = format!("topology.hosts.{name}");
    let mut facts = own_facts(node);
    // Our own exports list the addresses of all NICs.
    if !facts.contains_key(facts::IPS) {
        let ip = ip.map(|ip| ip.split('/').next().unwrap_or_default().to_owned());
        let mac = mac.filter(|_| ip.is_some());
        facts.extend(ip.map(|ip| (facts::IPS.to_owned(), ip)));
        facts.extend(mac.map(|mac| (facts::MACS.to_owned(), mac)));
    }
    ListedDevice { name, field, role: DeviceRole::Host, facts, addresses: BTreeMap::new() }
}

fn read_link(
    index: usize,
    link: &[Value],
    nodes: &[&BTreeSet<String>],
) -> Result<DraftLink, ImportError> {
    let field = format!("topology.links[{index}]");
    let [one, other, rest @ ..] = link else {
        return Err(field_error(field, "a link has the names of two nodes"));
    };
    let options = rest.iter().find(|value| value.is_mapping());
    let end = |value: &Value, key: &str| {
        let stated = options.and_then(|options| options.get(key)).and_then(Value::as_u64);
        read_end(&plain_text(value), stated, nodes).map_err(|problem| field_error(&field, problem))
    };
    let ends = [end(one, "port1")?, end(other, "port2")?];
    let mut facts = options.cloned().map_or_else(BTreeMap::new, own_facts);
    let megabits = options.and_then(|options| options.get("bw")).and_then(Value::as_f64);
    if let Some(megabits) = megabits.filter(|_| !facts.contains_key(facts::GBPS)) {
        facts.insert(facts::GBPS.to_owned(), (megabits / 1e3).to_string());
    }
    Ok(DraftLink { field, ends, facts })
}

/// A node by its name, or a port of it as `s1-p3`.
fn read_end(
    text: &str,
    stated: Option<u64>,
    nodes: &[&BTreeSet<String>],
) -> Result<LinkEnd, String> {
    let is_node = |name: &str| nodes.iter().any(|known| known.contains(name));
    if is_node(text) {
        return Ok(LinkEnd { node: text.to_owned(), port: stated });
    }
    let split = text.rsplit_once("-p").filter(|(node, _)| is_node(node));
    match split.and_then(|(node, port)| Some((node, port.parse().ok()?))) {
        Some((node, port)) => Ok(LinkEnd { node: node.to_owned(), port: Some(port) }),
        None => Err(format!("{text:?} is neither among hosts nor among switches")),
    }
}

/// Names of interfaces by ports; an end without one has the lowest number that its node has left.
fn number_ports(links: Vec<DraftLink>) -> Vec<ListedCable> {
    let mut taken: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for end in links.iter().flat_map(|link| &link.ends) {
        taken.entry(end.node.clone()).or_default().extend(end.port);
    }
    let mut number = |end: LinkEnd| {
        let own = taken.entry(end.node.clone()).or_default();
        let port = end.port.unwrap_or_else(|| {
            (1..).find(|port| !own.contains(port)).expect("there are more numbers than links")
        });
        own.insert(port);
        (end.node, format!("eth{port}"))
    };
    let cables = links.into_iter().map(|DraftLink { field, ends, facts }| {
        let ends = ends.map(&mut number);
        ListedCable { field, ends, facts }
    });
    cables.collect()
}

/// Switches with hosts are leaves, those beside leaves are spines, all others are cores.
fn tiers_by_hosts(
    hosts: &BTreeSet<String>,
    switches: &BTreeSet<String>,
    links: &[DraftLink],
) -> BTreeMap<String, Tier> {
    let beside = |known: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        let found = links.iter().flat_map(|link| {
            let [a, b] = link.ends.each_ref().map(|end| end.node.as_str());
            [(a, b), (b, a)].into_iter().filter(|(_, other)| known(other)).map(|(node, _)| node)
        });
        found.map(str::to_owned).collect()
    };
    let leaves = beside(&|node| hosts.contains(node));
    let spines = beside(&|node| leaves.contains(node) && !hosts.contains(node));
    let tier = |name: &String| match name {
        leaf if leaves.contains(leaf) => Tier::Leaf,
        spine if spines.contains(spine) => Tier::Spine,
        _ => Tier::Core,
    };
    switches.iter().map(|name| (name.clone(), tier(name))).collect()
}

/// Keys that begin with `crux.`, without that.
fn own_facts(node: Value) -> BTreeMap<String, String> {
    let Value::Mapping(keys) = node else {
        return BTreeMap::new();
    };
    let own = keys.into_iter().filter_map(|(name, value)| {
        Some((name.as_str()?.strip_prefix(facts::LABEL_PREFIX)?.to_owned(), plain_text(&value)))
    });
    own.collect()
}

/// A text or a number as text.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
