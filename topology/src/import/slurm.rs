//! `topology.conf` and `topology.yaml` of Slurm, and what `scontrol show topology` prints: switches
//! with the switches or the nodes below them.
//!
//! Both are a [tree of hosts](super::host_tree). Blocks (plugin topology/block) are leaves that
//! nothing joins. A `topology.yaml` may describe several topologies: the default of the cluster is
//! read, or else the first one with switches or blocks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::containerlab::plain_text;
use super::host_tree::HostTree;
use super::inventory::field_error;
use super::{ImportError, ImportedFabric, TierAssumptions};
use crate::document::nearest_name;
use crate::finding::list_names;
use crate::host_list::expand_host_list;

/// A switch or a block, as lists.
struct ListedSwitch {
    name: String,
    place: String,
    /// Lists of what is below it.
    below: String,
    hosts: String,
}

#[derive(Deserialize)]
struct YamlTopology {
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    tree: Option<YamlTree>,
    block: Option<YamlBlocks>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct YamlTree {
    switches: Vec<YamlSwitch>,
}

#[derive(Deserialize)]
struct YamlSwitch {
    switch: Value,
    children: Option<Value>,
    nodes: Option<Value>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct YamlBlocks {
    blocks: Vec<YamlBlock>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct YamlBlock {
    block: Value,
    nodes: Option<Value>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// The fabric of a `topology.conf`.
///
/// # Errors
/// A line cannot be read, a switch is unknown, has two parents or is below itself, a node is below
/// two switches, or the assumptions make no fabric; the error names the line.
pub fn import_slurm_conf(
    text: &str,
    assumptions: &TierAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let mut tree = HostTree::new("slurm", "node", [", Nodes", ", Switches"]);
    let (mut switches, mut blocks) = (Vec::new(), Vec::new());
    for (line, text) in logical_lines(text) {
        let place = format!("line {line}");
        if text.split_whitespace().next().is_some_and(|it| it.eq_ignore_ascii_case("include")) {
            tree.notes.leave_out("line", "it includes another file", format!("{line} ({text})"));
            continue;
        }
        let mut values = read_values(&place, &text)?;
        let (listed, name) = match (values.remove("switchname"), values.remove("blockname")) {
            (Some(name), _) => (&mut switches, Some(name)),
            (None, name) => (&mut blocks, name),
        };
        if let Some(name) = name {
            let mut take = |key| values.remove(key).unwrap_or_default();
            let (below, mut hosts) = (take("switches"), take("nodes"));
            // `scontrol show topology` names the nodes below leaves at every switch above them.
            if values.contains_key("level") && !below.is_empty() {
                hosts.clear();
            }
            listed.push(ListedSwitch { name, place, below, hosts });
        }
        values.keys().for_each(|key| tree.notes.count_unused_field(key));
    }
    add_switches(tree, switches, blocks)?.into_fabric(assumptions)
}

/// The fabric of a `topology.yaml`.
///
/// # Errors
/// As of [`import_slurm_conf`]; the error names the field.
pub fn import_slurm_yaml(
    text: &str,
    assumptions: &TierAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let topologies: Vec<YamlTopology> = serde_yaml_ng::from_str(text)
        .map_err(|error| field_error("topology.yaml of Slurm", error.to_string()))?;
    let mut tree = HostTree::new("slurm", "node", [".nodes", ".children"]);
    let has_hosts = |it: &YamlTopology| it.tree.is_some() || it.block.is_some();
    let default = topologies.iter().position(|it| it.cluster_default && has_hosts(it));
    let Some(read) = default.or_else(|| topologies.iter().position(has_hosts)) else {
        let problem = "no topology has a tree or blocks, so nothing says which nodes are near";
        return Err(field_error("topology.yaml of Slurm", problem));
    };
    let (mut switches, mut blocks) = (Vec::new(), Vec::new());
    for (at, topology) in topologies.into_iter().enumerate() {
        if at != read {
            let is_default = "another topology is the default of the cluster, or stands before";
            let reason = if has_hosts(&topology) { is_default } else { "no tree and no blocks" };
            tree.notes.leave_out("topology", reason, topology.topology);
            continue;
        }
        topology.other.keys().for_each(|key| tree.notes.count_unused_field(key));
        for (at, switch) in topology.tree.into_iter().flat_map(|tree| tree.switches).enumerate() {
            let place = format!("[{read}].tree.switches[{at}]");
            switch.other.keys().for_each(|key| tree.notes.count_unused_field(key));
            switches.push(ListedSwitch {
                name: plain_text(&switch.switch),
                place,
                below: list_text(switch.children),
                hosts: list_text(switch.nodes),
            });
        }
        let listed = topology.block.iter().flat_map(|listed| listed.other.keys());
        listed.for_each(|key| tree.notes.count_unused_field(key));
        for (at, block) in topology.block.into_iter().flat_map(|it| it.blocks).enumerate() {
            let place = format!("[{read}].block.blocks[{at}]");
            block.other.keys().for_each(|key| tree.notes.count_unused_field(key));
            let (name, hosts) = (plain_text(&block.block), list_text(block.nodes));
            blocks.push(ListedSwitch { name, place, below: String::new(), hosts });
        }
    }
    add_switches(tree, switches, blocks)?.into_fabric(assumptions)
}

/// A list as one text: Slurm's own form, or a list of YAML.
fn list_text(value: Option<Value>) -> String {
    match value {
        Some(Value::Sequence(parts)) => parts.iter().map(plain_text).collect::<Vec<_>>().join(","),
        Some(value) => plain_text(&value),
        None => String::new(),
    }
}

/// Lines without comments, each with its number; one that ends with a backslash goes on.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| is_continued) {
            Some((_, text)) => text.push_str(part),
            None => lines.push((number, part.to_owned())),
        }
        is_continued = goes_on;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// `Name=value` pairs, the names in small letters.
fn read_values(place: &str, line: &str) -> Result<BTreeMap<String, String>, ImportError> {
    let tight: Vec<&str> = line.split('=').map(str::trim).collect();
    let tight = tight.join("=");
    let mut values = BTreeMap::new();
    for pair in tight.split_whitespace() {
        let Some((name, value)) = pair.split_once('=') else {
            let problem = format!("{pair:?} is no NAME=VALUE, such as SwitchName=leaf1");
            return Err(field_error(place, problem));
        };
        if values.insert(name.to_lowercase(), value.trim_matches('"').to_owned()).is_some() {
            return Err(field_error(place, format!("{name} stands there twice")));
        }
    }
    Ok(values)
}

/// Puts what is listed into the tree.
fn add_switches(
    mut tree: HostTree,
    switches: Vec<ListedSwitch>,
    blocks: Vec<ListedSwitch>,
) -> Result<HostTree, ImportError> {
    if !blocks.is_empty() {
        let names: Vec<&str> = blocks.iter().map(|block| &*block.name).collect();
        let sentence = format!("each block is a leaf: {}", list_names(&names));
        tree.notes.assumptions.push(sentence);
    }
    let listed: Vec<ListedSwitch> = switches.into_iter().chain(blocks).collect();
    for switch in &listed {
        tree.add_switch(&switch.name, switch.place.clone())?;
    }
    for (at, switch) in listed.iter().enumerate() {
        let field = tree.below_field(at);
        for below in expand(&field, &switch.below)? {
            let Some(child) = tree.find(&below) else {
                let meant = nearest_name(&below, tree.names());
                let hint = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                return Err(field_error(field, format!("no switch is named {below}{hint}")));
            };
            tree.put_below(at, child)?;
        }
        let field = tree.hosts_field(at);
        let hosts = expand(&field, &switch.hosts)?;
        tree.add_hosts(at, &field, hosts)?;
    }
    Ok(tree)
}

fn expand(field: &str, list: &str) -> Result<Vec<String>, ImportError> {
    if list.eq_ignore_ascii_case("ALL") {
        let problem = "ALL does not say which: the names are in slurm.conf, list them";
        return Err(field_error(field, problem));
    }
    expand_host_list(list).map_err(|error| field_error(field, error.to_string()))
}
