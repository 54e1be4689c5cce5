//! The tree that a scheduler can use of a Clos: hosts in groups of leaves, those in pods.
//!
//! Leaves that have a host in common are one group: a host with a NIC on each of eight leaves
//! (rails) is as near to every other host of these leaves. Groups that reach each other over spines
//! are one pod; cores join the pods. Failed and drained parts count like all others, because a
//! scheduler reads its topology seldom.

use std::collections::BTreeMap;

use crate::fabric::{Fabric, Tier};
use crate::groups::DisjointSets;
use crate::ids::{FabricNode, SwitchId};

/// Hosts of a fabric, by nearness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricTree {
    /// Name of what joins all pods.
    pub root: String,
    /// Pods, in the order of their first leaf.
    pub pods: Vec<PodGroup>,
}

/// Groups of leaves that reach each other over spines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// Unique in the tree.
    pub name: String,
    /// Groups of leaves, in the order of the fabric.
    pub leaves: Vec<LeafGroup>,
}

/// Leaves that have hosts in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafGroup {
    /// The leaf, or the first and the last of several.
    pub name: String,
    /// Hosts in the order of the fabric.
    pub hosts: Vec<String>,
}

impl FabricTree {
    /// The tree of a fabric; leaves without hosts are left out.
    pub fn of_fabric(fabric: &Fabric) -> Self {
        let groups = leaf_sets(fabric);
        let mut pods = DisjointSets::new(fabric.switches().len());
        for set in &groups {
            for leaf in set {
                pods.join(set[0], *leaf);
            }
        }
        for (leaf, spine) in leaf_to_spine(fabric) {
            pods.join(leaf, spine);
        }
        let mut by_pod: BTreeMap<usize, Vec<LeafGroup>> = BTreeMap::new();
        for set in &groups {
            by_pod.entry(pods.find_root(set[0])).or_default().push(leaf_group(fabric, set));
        }
        let pods = by_pod.into_values().enumerate();
        Self {
            root: "fabric".to_owned(),
            pods: pods
                .map(|(index, leaves)| PodGroup { name: format!("pod{}", index + 1), leaves })
                .collect(),
        }
    }

    /// Every group of leaves with the pod that it is in.
    pub fn leaf_groups(&self) -> impl Iterator<Item = (&PodGroup, &LeafGroup)> {
        self.pods.iter().flat_map(|pod| pod.leaves.iter().map(move |leaf| (pod, leaf)))
    }
}

/// Leaves with hosts in common, as indices of switches; each set ascends.
fn leaf_sets(fabric: &Fabric) -> Vec<Vec<usize>> {
    let mut sets = DisjointSets::new(fabric.switches().len());
    let mut has_hosts = vec![false; fabric.switches().len()];
    for host in fabric.hosts() {
        let leaves: Vec<usize> = host.nics.iter().map(|nic| fabric.leaf_of(*nic).index()).collect();
        for leaf in &leaves {
            has_hosts[*leaf] = true;
            sets.join(leaves[0], *leaf);
        }
    }
    let mut sets = sets.into_sets();
    sets.retain(|set| has_hosts[set[0]]);
    sets
}

/// Leaves with the spines above them.
fn leaf_to_spine(fabric: &Fabric) -> Vec<(usize, usize)> {
    let links = fabric.link_ids().map(|link| fabric.link(link));
    let switch = |node: FabricNode| match node {
        FabricNode::Switch(switch) => Some(switch),
        FabricNode::Host(_) => None,
    };
    links
        .filter_map(|link| Some((switch(link.from.node)?, switch(link.to.node)?)))
        .filter(|(from, to)| {
            let tier = |switch: &SwitchId| fabric.switch(*switch).tier;
            tier(from) == Tier::Leaf && tier(to) == Tier::Spine
        })
        .map(|(from, to)| (from.index(), to.index()))
        .collect()
}

fn leaf_group(fabric: &Fabric, set: &[usize]) -> LeafGroup {
    let name = |index: usize| fabric.switches()[index].name.as_str();
    let name = match set {
        [one] => name(*one).to_owned(),
        [first, .., last] => format!("{}-{}", name(*first), name(*last)),
        [] => String::new(),
    };
    let hosts = fabric
        .hosts()
        .iter()
        .filter(|host| host.nics.iter().any(|nic| set.contains(&fabric.leaf_of(*nic).index())));
    LeafGroup { name, hosts: hosts.map(|host| host.name.clone()).collect() }
}
