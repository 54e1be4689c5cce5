//! Models of topograph: switches with the switches below them, and nodes.
//!
//! Since topograph 1.0 nodes are in blocks that name their switch, and a switch that has nothing
//! but nodes need not be listed; before, nodes were in the switches. Both are read, as a
//! [tree of hosts](super::host_tree).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::containerlab::plain_text;
use super::host_tree::HostTree;
use super::inventory::field_error;
use super::{ImportError, ImportedFabric, TierAssumptions};
use crate::document::nearest_name;
use crate::host_list::expand_host_list;

#[derive(Deserialize)]
struct Model {
    switches: Option<BTreeMap<String, Option<ModelSwitch>>>,
    nodes: Option<BTreeMap<String, Value>>,
    blocks: Option<Vec<ModelBlock>>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelSwitch {
    /// The key of the switch again.
    name: Option<String>,
    switches: Vec<String>,
    nodes: Vec<Value>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct ModelBlock {
    switch: Option<String>,
    #[serde(default)]
    nodes: Vec<Value>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// The fabric of a model file.
///
/// # Errors
/// The text is no model, a switch or node is unknown, has two parents or is below itself, or the
/// assumptions make no fabric; the error names the field.
pub fn import_topograph(
    text: &str,
    assumptions: &TierAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let model: Model = serde_yaml_ng::from_str(text)
        .map_err(|error| field_error("model of topograph", error.to_string()))?;
    let mut tree = HostTree::new("topograph", "node", [".nodes", ".switches"]);
    model.other.keys().for_each(|key| tree.notes.count_unused_field(key));
    model.add_switches(&mut tree)?;
    model.attach_nodes(&mut tree)?;
    tree.into_fabric(assumptions)
}

impl Model {
    fn add_switches(&self, tree: &mut HostTree) -> Result<(), ImportError> {
        let Some(listed) = &self.switches else {
            let problem = "missing; a model lists its switches, without which it is no network";
            return Err(field_error("switches", problem));
        };
        for (name, switch) in listed {
            let place = format!("switches.{name}");
            let given = switch.as_ref().and_then(|switch| switch.name.as_ref());
            if let Some(other) = given.filter(|given| *given != name) {
                let problem = format!("is {other}, but the key is {name}: write the key");
                return Err(field_error(place + ".name", problem));
            }
            let keys = switch.iter().flat_map(|switch| switch.other.keys());
            keys.for_each(|key| tree.notes.count_unused_field(format!("switches.{key}")));
            tree.add_switch(name, place)?;
        }
        for (name, switch) in listed {
            let parent = tree.find(name).expect("all listed switches were added");
            for below in switch.iter().flat_map(|switch| &switch.switches) {
                let child = match tree.find(below) {
                    Some(child) => child,
                    // In models with blocks, leaves need not be listed.
                    None if self.blocks.is_some() => {
                        tree.add_switch(below, format!("switches.{below}"))?
                    }
                    None => {
                        let problem = format!("no switch is named {below}");
                        return Err(field_error(tree.below_field(parent), problem));
                    }
                };
                tree.put_below(parent, child)?;
            }
        }
        Ok(())
    }

    /// Gives switches their hosts; lists such as `n[1-8]` are written out.
    fn attach_nodes(&self, tree: &mut HostTree) -> Result<(), ImportError> {
        for (name, switch) in self.switches.iter().flatten() {
            let field = format!("switches.{name}.nodes");
            let hosts = switch.as_ref().map(|switch| expand_nodes(&field, &switch.nodes));
            let hosts = hosts.transpose()?.unwrap_or_default();
            let is_known =
                |host: &String| self.nodes.as_ref().is_none_or(|nodes| nodes.contains_key(host));
            if let Some(host) = hosts.iter().find(|host| !is_known(host)) {
                let problem = format!("{host} is not in nodes; add it there, or leave nodes out");
                return Err(field_error(field, problem));
            }
            let at = tree.find(name).expect("all listed switches were added");
            tree.add_hosts(at, &field, hosts)?;
        }
        for (index, block) in self.blocks.iter().flatten().enumerate() {
            let keys = block.other.keys();
            keys.for_each(|key| tree.notes.count_unused_field(format!("blocks.{key}")));
            let field = format!("blocks[{index}].nodes");
            let hosts = expand_nodes(&field, &block.nodes)?;
            if hosts.is_empty() {
                return Err(field_error(field, "a block has at least one node, found none"));
            }
            let Some(name) = &block.switch else {
                tree.leave_out_hosts(&field, "its block names no switch", hosts)?;
                continue;
            };
            let Some(at) = tree.find(name) else {
                let meant = nearest_name(name, tree.names());
                let hint = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                let field = format!("blocks[{index}].switch");
                return Err(field_error(field, format!("no switch is named {name}{hint}")));
            };
            tree.add_hosts(at, &field, hosts)?;
        }
        for (node, value) in self.nodes.iter().flatten() {
            let keys = value.as_mapping().into_iter().flat_map(|keys| keys.keys());
            keys.for_each(|key| {
                tree.notes.count_unused_field(format!("nodes.{}", plain_text(key)));
            });
            if !tree.has_host(node) {
                tree.leave_out_hosts("nodes", "it is below no switch", vec![node.clone()])?;
            }
        }
        Ok(())
    }
}

fn expand_nodes(field: &str, lists: &[Value]) -> Result<Vec<String>, ImportError> {
    let mut hosts = Vec::new();
    for list in lists {
        let names = expand_host_list(&plain_text(list));
        hosts.extend(names.map_err(|error| field_error(field, error.to_string()))?);
    }
    Ok(hosts)
}
