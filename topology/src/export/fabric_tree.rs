//! The trees that a scheduler can use of a Clos: hosts in groups of leaves, those in pods, those in
//! parts.
//!
//! Leaves that have a host in common are one group: a host with a NIC on each of eight leaves
//! (rails) is as near to every other host of these leaves. Groups that reach each other over spines
//! are one pod; cores join the pods of a part. Failed and drained switches and cables count like all
//! others, because a scheduler reads its topology seldom.
//!
//! The decision: any two hosts of a part have NICs that reach each other, since a scheduler places
//! a job anywhere below a common root. Planes and rails that meet in hosts alone are one part where
//! any two hosts have NICs in the same one: a job uses the NICs that reach each other. Hosts that
//! only a third host joins are not: it does not forward between them. A host that belongs to
//! several parts is in the first one.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::{Fabric, Host, Tier};
use crate::groups::DisjointSets;
use crate::ids::SwitchId;

/// Hosts of a fabric, by nearness. Names are unique in all trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricTree {
    /// Hosts that reach each other, in the order of the first host.
    pub parts: Vec<FabricPart>,
}

/// Pods that reach each other over cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricPart {
    /// Name of what joins its pods.
    pub name: String,
    /// Pods, in the order of their first leaf.
    pub pods: Vec<PodGroup>,
}

/// Groups of leaves that reach each other over spines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// `pod1` and so on.
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
    /// The trees of a fabric; leaves without hosts and hosts without NICs are left out.
    pub fn of_fabric(fabric: &Fabric) -> Self {
        let by_spines = leaves_joined_by_spines(fabric);
        let parts = hosts_by_part(fabric);
        let groups = parts.iter().map(|hosts| leaf_groups_by_pod(fabric, &by_spines, hosts));
        let mut groups: Vec<Vec<Vec<LeafGroup>>> = groups.collect();
        // Leaves keep their names; pods and parts avoid them.
        let mut names = BTreeSet::new();
        for group in groups.iter_mut().flatten().flatten() {
            group.name = unused_name(&mut names, &group.name);
        }
        let has_one = groups.len() == 1;
        let mut pod_numbers = 1..;
        let parts = (1..).zip(groups).map(|(part, pods)| {
            let pods = pods.into_iter().zip(&mut pod_numbers).map(|(leaves, pod)| PodGroup {
                name: unused_name(&mut names, &format!("pod{pod}")),
                leaves,
            });
            let pods = pods.collect();
            let name = if has_one { "fabric".to_owned() } else { format!("fabric{part}") };
            FabricPart { name: unused_name(&mut names, &name), pods }
        });
        Self { parts: parts.collect() }
    }

    /// The pods of all parts, in their order.
    pub fn pods(&self) -> impl Iterator<Item = &PodGroup> {
        self.parts.iter().flat_map(|part| &part.pods)
    }

    /// The groups of leaves of all pods, in their order.
    pub fn leaf_groups(&self) -> impl Iterator<Item = &LeafGroup> {
        self.pods().flat_map(|pod| &pod.leaves)
    }

    /// The parts with several pods, which need a root.
    pub fn joined_parts(&self) -> impl Iterator<Item = &FabricPart> {
        self.parts.iter().filter(|part| part.pods.len() > 1)
    }
}

/// The name, or one with a number behind it where the name is taken.
fn unused_name(taken: &mut BTreeSet<String>, wanted: &str) -> String {
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names.find(|name| taken.insert(name.clone())).unwrap_or_default()
}

/// Hosts of which any two reach each other.
///
/// Paths climb, then descend, so two hosts reach each other where some switch is above both. Each
/// host joins the first part in which this holds for all: reaching each other is not transitive,
/// where fabrics have a leaf or a host in common.
fn hosts_by_part(fabric: &Fabric) -> Vec<Vec<&Host>> {
    let mut by_leaves: BTreeMap<BTreeSet<SwitchId>, usize> = BTreeMap::new();
    let mut above: Vec<BTreeSet<SwitchId>> = Vec::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (at, host) in fabric.hosts().iter().enumerate().filter(|(_, host)| !host.nics.is_empty()) {
        let leaves: BTreeSet<SwitchId> = leaves_of(fabric, host).collect();
        let class = *by_leaves.entry(leaves).or_insert_with_key(|leaves| {
            let tops = switches_above(fabric, leaves);
            above.iter().position(|other| *other == tops).unwrap_or_else(|| {
                above.push(tops);
                members.push(Vec::new());
                above.len() - 1
            })
        });
        members[class].push(at);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for (class, tops) in above.iter().enumerate() {
        let reaches = |other: &usize| !above[*other].is_disjoint(tops);
        match parts.iter_mut().find(|part| part.iter().all(reaches)) {
            Some(part) => part.push(class),
            None => parts.push(vec![class]),
        }
    }
    let hosts_of = |part: Vec<usize>| {
        let mut hosts: Vec<usize> = part.iter().flat_map(|class| members[*class].clone()).collect();
        hosts.sort_unstable();
        hosts.into_iter().map(|host| &fabric.hosts()[host]).collect()
    };
    parts.into_iter().map(hosts_of).collect()
}

fn leaves_of<'a>(fabric: &'a Fabric, host: &'a Host) -> impl Iterator<Item = SwitchId> + 'a {
    host.nics.iter().flat_map(|nic| fabric.leaves_of(*nic).leaves())
}

/// The switches to which packets climb from any of these leaves; a leaf without uplinks is its own.
fn switches_above(fabric: &Fabric, leaves: &BTreeSet<SwitchId>) -> BTreeSet<SwitchId> {
    let mut found: BTreeSet<SwitchId> =
        leaves.iter().copied().filter(|leaf| fabric.up_links(*leaf).is_empty()).collect();
    let mut open: Vec<SwitchId> = leaves.iter().copied().collect();
    while let Some(switch) = open.pop() {
        let next = fabric.up_links(switch).iter().filter_map(|link| fabric.switch_after(*link));
        open.extend(next.filter(|next| found.insert(*next)));
    }
    found
}

/// Leaves and the spines above them.
fn leaves_joined_by_spines(fabric: &Fabric) -> DisjointSets {
    let mut joined = DisjointSets::new(fabric.switches().len());
    for leaf in fabric.switches_of_tier(Tier::Leaf) {
        let above = fabric.up_links(leaf).iter().filter_map(|link| fabric.switch_after(*link));
        for spine in above.filter(|above| fabric.switch(*above).tier == Tier::Spine) {
            joined.join(leaf.index(), spine.index());
        }
    }
    joined
}

/// The hosts of a part by pod and group of leaves, both in the order of their first leaf.
fn leaf_groups_by_pod(
    fabric: &Fabric,
    by_spines: &DisjointSets,
    hosts: &[&Host],
) -> Vec<Vec<LeafGroup>> {
    let mut groups = DisjointSets::new(fabric.switches().len());
    let mut pods = by_spines.clone();
    let mut first_leaves: Vec<usize> = Vec::new();
    for host in hosts {
        let first = leaves_of(fabric, host).min().map_or(0, SwitchId::index);
        for leaf in leaves_of(fabric, host) {
            groups.join(first, leaf.index());
            pods.join(first, leaf.index());
        }
        first_leaves.push(first);
    }
    let mut members: BTreeMap<(usize, usize), Vec<&Host>> = BTreeMap::new();
    for (host, first) in hosts.iter().zip(first_leaves) {
        members.entry((pods.find_root(first), groups.find_root(first))).or_default().push(*host);
    }
    let mut by_pod: BTreeMap<usize, Vec<LeafGroup>> = BTreeMap::new();
    for ((pod, _), hosts) in members {
        by_pod.entry(pod).or_default().push(leaf_group(fabric, &hosts));
    }
    by_pod.into_values().collect()
}

fn leaf_group(fabric: &Fabric, hosts: &[&Host]) -> LeafGroup {
    let leaves: BTreeSet<SwitchId> =
        hosts.iter().flat_map(|host| leaves_of(fabric, host)).collect();
    let ends = [leaves.first(), leaves.last()].into_iter().flatten();
    let mut ends: Vec<&str> = ends.map(|leaf| &*fabric.switch(*leaf).name).collect();
    ends.dedup();
    LeafGroup { name: ends.join("-"), hosts: hosts.iter().map(|host| host.name.clone()).collect() }
}
