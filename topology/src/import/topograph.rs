//! Models of topograph: switches with the switches below them, and nodes.
//!
//! Since topograph 1.0 nodes are in blocks that name their switch, and a switch that has nothing
//! but nodes need not be listed; before, nodes were in the switches. Both are read. A model has
//! neither NICs nor cables. A switch with nodes is a leaf, what is above leaves is a pod, and what
//! is above pods joins them; with rails, a switch with nodes is a group of leaves, one for each NIC
//! of a host. As many spines and cores as assumed stand for a pod and for the top, so hosts are as
//! near to each other in the fabric as in the model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::containerlab::plain_text;
use super::inventory::field_error;
use super::left_out::ImportNotes;
use super::tier_assumptions::DataCounts;
use super::{ImportError, ImportedFabric, TierAssumptions};
use crate::document::nearest_name;
use crate::draft::{CABLE_PORTS, FabricDraft};
use crate::fabric::{Fabric, Tier};
use crate::finding::list_names;
use crate::host_list::expand_host_list;
use crate::spec;

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

/// A switch of a model.
#[derive(Default)]
struct TreeSwitch {
    /// The switches below it.
    below: Vec<String>,
    parent: Option<String>,
    hosts: Vec<String>,
}

/// Leaves in pods, each with its hosts.
struct ModelTree {
    pods: Vec<Vec<ModelLeaf>>,
    /// Names of the pods' switches.
    pod_names: Vec<String>,
    /// Switches above pods.
    tops: Vec<String>,
    /// Switches that are below no other and have nodes below.
    roots: usize,
}

struct ModelLeaf {
    name: String,
    hosts: Vec<String>,
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
    let mut notes = ImportNotes::default();
    let tree = model.read_tree(&mut notes)?;
    let fabric = build_fabric(&tree, assumptions)?;
    Fabric::try_from(&spec::explicit_document(&fabric))?;
    notes.assumptions.extend(tree.sentences(assumptions));
    for name in &tree.tops {
        if tree.pods.len() == 1 {
            notes.leave_out("switch", "it is above a single pod", name);
        } else if assumptions.cores == 0 {
            notes.leave_out("switch", "no cores are assumed, so pods stay apart", name);
        }
    }
    let (left_out, assumptions) = notes.into_parts();
    Ok(ImportedFabric { fabric, left_out, assumptions })
}

impl Model {
    fn read_tree(self, notes: &mut ImportNotes) -> Result<ModelTree, ImportError> {
        self.other.keys().for_each(|key| notes.count_unused_field(key));
        let mut switches = self.read_switches(notes)?;
        self.attach_nodes(&mut switches, notes)?;
        refuse_cycles(&switches)?;
        if switches.values().all(|switch| switch.hosts.is_empty()) {
            let problem = "no switch has nodes: blocks name the switch of their nodes, and switches \
                           list the switches below them";
            return Err(field_error("switches", problem));
        }
        Ok(ModelTree::of(switches, notes))
    }

    /// The switches by name, with their parents.
    fn read_switches(
        &self,
        notes: &mut ImportNotes,
    ) -> Result<BTreeMap<String, TreeSwitch>, ImportError> {
        let Some(listed) = &self.switches else {
            let problem = "missing; a model lists its switches, without which it is no network";
            return Err(field_error("switches", problem));
        };
        let mut tree: BTreeMap<String, TreeSwitch> =
            listed.keys().map(|name| (name.clone(), TreeSwitch::default())).collect();
        for (name, switch) in listed {
            let Some(switch) = switch else {
                continue;
            };
            let keys = switch.other.keys().filter(|key| *key != "name");
            keys.for_each(|key| notes.count_unused_field(format!("switches.{key}")));
            for below in &switch.switches {
                let field = format!("switches.{name}.switches");
                // In models with blocks, leaves need not be listed.
                if self.blocks.is_none() && !tree.contains_key(below) {
                    return Err(field_error(field, format!("no switch is named {below}")));
                }
                let child = tree.entry(below.clone()).or_default();
                if let Some(other) = child.parent.replace(name.clone()) {
                    let problem = format!("{below} is also below {other}; a model is a tree");
                    return Err(field_error(field, problem));
                }
                if let Some(parent) = tree.get_mut(name) {
                    parent.below.push(below.clone());
                }
            }
        }
        Ok(tree)
    }

    /// Gives switches their hosts; lists such as `n[1-8]` are written out.
    fn attach_nodes(
        &self,
        switches: &mut BTreeMap<String, TreeSwitch>,
        notes: &mut ImportNotes,
    ) -> Result<(), ImportError> {
        let mut seen = BTreeSet::new();
        for (name, switch) in self.switches.iter().flatten() {
            let field = format!("switches.{name}.nodes");
            let hosts = switch.as_ref().map(|switch| expand_nodes(&field, &switch.nodes));
            let hosts = hosts.transpose()?.unwrap_or_default();
            for host in &hosts {
                let is_known = self.nodes.as_ref().is_none_or(|nodes| nodes.contains_key(host));
                if !is_known {
                    let problem =
                        format!("{host} is not in nodes; add it there, or leave nodes out");
                    return Err(field_error(&field, problem));
                }
            }
            claim_hosts(&field, &hosts, &mut seen)?;
            switches.entry(name.clone()).or_default().hosts.extend(hosts);
        }
        for (index, block) in self.blocks.iter().flatten().enumerate() {
            block.other.keys().for_each(|key| notes.count_unused_field(format!("blocks.{key}")));
            let field = format!("blocks[{index}].nodes");
            let hosts = expand_nodes(&field, &block.nodes)?;
            if hosts.is_empty() {
                return Err(field_error(field, "a block has at least one node, found none"));
            }
            claim_hosts(&field, &hosts, &mut seen)?;
            let Some(name) = &block.switch else {
                let reason = "its block names no switch";
                hosts.into_iter().for_each(|host| notes.leave_out("node", reason, host));
                continue;
            };
            if !switches.contains_key(name) {
                let meant = nearest_name(name, switches.keys().map(String::as_str));
                let hint = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                let field = format!("blocks[{index}].switch");
                return Err(field_error(field, format!("no switch is named {name}{hint}")));
            }
            switches.entry(name.clone()).or_default().hosts.extend(hosts);
        }
        for (node, value) in self.nodes.iter().flatten() {
            let keys = value.as_mapping().into_iter().flat_map(|keys| keys.keys());
            keys.for_each(|key| notes.count_unused_field(format!("nodes.{}", plain_text(key))));
            if !seen.contains(node) {
                notes.leave_out("node", "it is below no switch", node);
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

/// A host is below one leaf.
fn claim_hosts(
    field: &str,
    hosts: &[String],
    seen: &mut BTreeSet<String>,
) -> Result<(), ImportError> {
    match hosts.iter().find(|host| !seen.insert((*host).clone())) {
        Some(host) => Err(field_error(field, format!("{host} is below another leaf as well"))),
        None => Ok(()),
    }
}

/// A switch below itself has no root above it, and its hosts would vanish.
fn refuse_cycles(switches: &BTreeMap<String, TreeSwitch>) -> Result<(), ImportError> {
    let mut clear: BTreeSet<&str> = BTreeSet::new();
    for name in switches.keys() {
        let mut way = vec![name.as_str()];
        while let Some(parent) = way.last().and_then(|last| switches[*last].parent.as_deref()) {
            if clear.contains(parent) {
                break;
            }
            if let Some(at) = way.iter().position(|other| *other == parent) {
                let mut cycle: Vec<&str> = way[at..].to_vec();
                cycle.push(parent);
                cycle.reverse();
                let problem = format!(
                    "{parent} is below itself ({}); a model is a tree: remove one of the switches \
                     from the list of the one above it",
                    cycle.join(" > ")
                );
                return Err(field_error(format!("switches.{parent}.switches"), problem));
            }
            way.push(parent);
        }
        clear.extend(way);
    }
    Ok(())
}

impl ModelTree {
    fn of(mut switches: BTreeMap<String, TreeSwitch>, notes: &mut ImportNotes) -> Self {
        let mut is_used: BTreeSet<String> = BTreeSet::new();
        for (name, _) in switches.iter().filter(|(_, switch)| !switch.hosts.is_empty()) {
            let mut at = Some(name);
            while let Some(name) = at.filter(|name| is_used.insert((*name).clone())) {
                at = switches[name].parent.as_ref();
            }
        }
        for name in switches.keys().filter(|name| !is_used.contains(*name)) {
            notes.leave_out("switch", "no nodes are below it", name);
        }
        let roots = switches.iter().filter(|(_, switch)| switch.parent.is_none());
        let mut walk: Vec<String> = roots.map(|(name, _)| name.clone()).collect();
        let roots = walk.iter().filter(|name| is_used.contains(*name)).count();
        walk.reverse();
        let mut pods: BTreeMap<usize, Vec<ModelLeaf>> = BTreeMap::new();
        let mut pod_of: BTreeMap<String, usize> = BTreeMap::new();
        let mut pod_names = Vec::new();
        let mut leaves = BTreeSet::new();
        while let Some(name) = walk.pop() {
            let Some(switch) = switches.get_mut(&name) else {
                continue;
            };
            walk.extend(switch.below.iter().rev().cloned());
            let hosts = std::mem::take(&mut switch.hosts);
            if hosts.is_empty() {
                continue;
            }
            let pod = switch.parent.clone().unwrap_or_else(|| name.clone());
            let next = pod_of.len();
            let number = *pod_of.entry(pod.clone()).or_insert_with(|| {
                pod_names.push(pod);
                next
            });
            leaves.insert(name.clone());
            pods.entry(number).or_default().push(ModelLeaf { name, hosts });
        }
        let is_top = |name: &String| !leaves.contains(name) && !pod_of.contains_key(name);
        let tops = is_used.into_iter().filter(is_top).collect();
        Self { pods: pods.into_values().collect(), pod_names, tops, roots }
    }

    fn sentences(&self, assumptions: &TierAssumptions) -> Vec<String> {
        let TierAssumptions { spines, cores, gpus_per_host, host_links, host_gbps, .. } =
            assumptions;
        let mut sentences = vec![
            format!(
                "{gpus_per_host} GPUs and {host_links} NICs of {host_gbps} Gb/s in each host, {}",
                assumptions.describe_leaves()
            ),
            format!(
                "{spines} spines with links of {} Gb/s stand for each of {} pods: {}",
                assumptions.uplink_gbps,
                self.pods.len(),
                list_names(&self.pod_names)
            ),
        ];
        if self.pods.len() > 1 && *cores > 0 {
            let above = match self.tops.is_empty() {
                true => "join the pods".to_owned(),
                false => format!("stand for what is above pods: {}", list_names(&self.tops)),
            };
            let gbps = assumptions.core_gbps;
            sentences.push(format!("{cores} cores with links of {gbps} Gb/s {above}"));
        }
        if self.roots > 1 && *cores > 0 {
            sentences.push(format!(
                "the cores join what is below {} switches, which the model does not join",
                self.roots
            ));
        }
        sentences.push(
            "addresses 10.LEAF.LEAF.PLACE, Ethernet addresses and P4Runtime servers as of generated \
             fabrics, and the name topograph"
                .to_owned(),
        );
        sentences
    }
}

/// Why a switch cannot have so many hosts below it, and what to do.
fn full_leaf_problem(hosts: usize, assumptions: &TierAssumptions) -> String {
    let remedy = match assumptions.rails {
        true => "divide the switch",
        false => "give --rails, which puts each NIC of a host on a leaf of its own",
    };
    format!(
        "{hosts} hosts with {} NICs each, {}; a leaf has {CABLE_PORTS} ports, {} of them to spines, \
         so {} hosts fit: {remedy}",
        assumptions.host_links,
        assumptions.describe_leaves(),
        assumptions.spines,
        assumptions.max_hosts_per_leaf(),
    )
}

fn build_fabric(tree: &ModelTree, assumptions: &TierAssumptions) -> Result<Fabric, ImportError> {
    let speeds = assumptions.link_speeds()?;
    let leaves = || tree.pods.iter().flatten();
    let most = assumptions.max_hosts_per_leaf();
    if let Some(leaf) = leaves().find(|leaf| leaf.hosts.len() as u64 > most) {
        let problem = full_leaf_problem(leaf.hosts.len(), assumptions);
        return Err(field_error(format!("switches.{}.nodes", leaf.name), problem));
    }
    // Pods that nothing joins would be fabrics of their own.
    let tops = usize::from(tree.pods.len() > 1);
    assumptions.check_counts(DataCounts {
        hosts: leaves().map(|leaf| leaf.hosts.len()).sum(),
        hosts_per_leaf: leaves().map(|leaf| leaf.hosts.len()).max().unwrap_or(0),
        leaves: leaves().count(),
        pods: tree.pods.len(),
        tops,
    })?;
    let mut draft = FabricDraft::with_name("topograph");
    let rails = assumptions.leaves_per_leaf();
    let leaf_ids = draft.add_switches(Tier::Leaf, leaves().count() * rails);
    let spines = draft.add_switches(Tier::Spine, tree.pods.len() * assumptions.spines as usize);
    let cores = draft.add_switches(Tier::Core, tops * assumptions.cores as usize);
    draft.rename_switches(&leaf_ids, leaves().flat_map(|leaf| assumptions.leaf_names(&leaf.name)));
    let mut ids = leaf_ids.iter().copied();
    for (leaf, ids) in leaves().zip(leaf_ids.chunks(rails)) {
        let nics = assumptions.leaves_of_nics(ids);
        for host in &leaf.hosts {
            draft.add_host(host.clone(), assumptions.gpus_per_host, &nics, speeds.host);
        }
    }
    for (pod, spines) in tree.pods.iter().zip(spines.chunks(assumptions.spines as usize)) {
        for leaf in ids.by_ref().take(pod.len() * rails) {
            spines.iter().for_each(|spine| draft.connect_switches(leaf, *spine, speeds.uplink));
        }
    }
    for spine in &spines {
        cores.iter().for_each(|core| draft.connect_switches(*spine, *core, speeds.core));
    }
    Ok(draft.into_fabric())
}
