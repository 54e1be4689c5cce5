//! Models of topograph: switches with the switches or nodes below them.
//!
//! A model has neither NICs nor cables. A switch with nodes is a leaf, what is above leaves is a
//! pod, and what is above pods joins them; with rails, a switch with nodes is a group of leaves, one
//! for each NIC of a host. As many spines and cores as assumed stand for a pod and
//! for the top, so hosts are as near to each other in the fabric as in the model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::inventory::field_error;
use super::tier_assumptions::DataCounts;
use super::{ImportError, ImportedFabric, TierAssumptions};
use crate::draft::{CABLE_PORTS, FabricDraft};
use crate::fabric::{Fabric, Tier};
use crate::host_list::expand_host_list;
use crate::spec;

#[derive(Deserialize)]
struct Model {
    switches: BTreeMap<String, ModelSwitch>,
    #[serde(default)]
    nodes: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Deserialize)]
struct ModelSwitch {
    #[serde(default)]
    switches: Vec<String>,
    #[serde(default)]
    nodes: Vec<String>,
}

/// Leaves in pods, each with its hosts.
struct ModelTree {
    pods: Vec<Vec<ModelLeaf>>,
    /// Switches that are below no other.
    roots: usize,
}

struct ModelLeaf {
    name: String,
    hosts: Vec<String>,
}

/// The fabric of a model file.
///
/// # Errors
/// The text is no model, a switch or node is unknown or has two parents, or the assumptions make no
/// fabric; the error names the field.
pub fn import_topograph(
    text: &str,
    assumptions: &TierAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let model: Model = serde_yaml_ng::from_str(text)
        .map_err(|error| field_error("model of topograph", error.to_string()))?;
    let tree = model.read_tree()?;
    let fabric = build_fabric(&tree, assumptions)?;
    Fabric::try_from(&spec::explicit_document(&fabric))?;
    let mut sentences = vec![
        format!(
            "{} GPUs and {} NICs of {} Gb/s in each host, {}",
            assumptions.gpus_per_host,
            assumptions.host_links,
            assumptions.host_gbps,
            assumptions.describe_leaves()
        ),
        format!("{} spines in each pod, {} cores", assumptions.spines, assumptions.cores),
    ];
    if tree.roots > 1 && assumptions.cores > 0 {
        sentences.push(format!(
            "the cores join what is below {} switches, which the model does not join",
            tree.roots
        ));
    }
    Ok(ImportedFabric { fabric, skipped: BTreeMap::new(), assumptions: sentences })
}

impl Model {
    fn read_tree(&self) -> Result<ModelTree, ImportError> {
        let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, switch) in &self.switches {
            for below in &switch.switches {
                let field = format!("switches.{name}.switches");
                if !self.switches.contains_key(below) {
                    return Err(field_error(field, format!("no switch is named {below}")));
                }
                if let Some(other) = parents.insert(below, name) {
                    let problem = format!("{below} is also below {other}; a model is a tree");
                    return Err(field_error(field, problem));
                }
            }
        }
        let roots = self.switches.keys().filter(|name| !parents.contains_key(name.as_str()));
        let mut pods: BTreeMap<usize, Vec<ModelLeaf>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut pod_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut walk: Vec<&str> = roots.map(String::as_str).collect();
        walk.reverse();
        let roots = walk.len();
        while let Some(name) = walk.pop() {
            let switch = &self.switches[name];
            walk.extend(switch.switches.iter().rev().map(String::as_str));
            if switch.nodes.is_empty() {
                continue;
            }
            let next = pod_of.len();
            let pod = *pod_of.entry(parents.get(name).copied().unwrap_or(name)).or_insert(next);
            let hosts = self.read_hosts(name, switch, &mut seen)?;
            pods.entry(pod).or_default().push(ModelLeaf { name: name.to_owned(), hosts });
        }
        match pods.is_empty() {
            true => Err(field_error("switches", "no switch has nodes; leaves list their nodes")),
            false => Ok(ModelTree { pods: pods.into_values().collect(), roots }),
        }
    }

    /// Nodes of a leaf; lists such as `n[1-8]` are written out.
    fn read_hosts(
        &self,
        name: &str,
        switch: &ModelSwitch,
        seen: &mut BTreeSet<String>,
    ) -> Result<Vec<String>, ImportError> {
        let field = format!("switches.{name}.nodes");
        let mut hosts = Vec::new();
        for list in &switch.nodes {
            let names = expand_host_list(list);
            hosts.extend(names.map_err(|error| field_error(&field, error.to_string()))?);
        }
        for host in &hosts {
            let is_known = self.nodes.as_ref().is_none_or(|nodes| nodes.contains_key(host));
            if !is_known {
                let problem = format!("{host} is not in nodes; add it there, or leave nodes out");
                return Err(field_error(&field, problem));
            }
            if !seen.insert(host.clone()) {
                return Err(field_error(&field, format!("{host} is below another leaf as well")));
            }
        }
        Ok(hosts)
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
