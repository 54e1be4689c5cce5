//! Hosts below a tree of switches, as schedulers know a network, and the fabric that stands for it.
//!
//! The common part of the imports of topograph and Slurm. A tree has neither NICs nor cables. A
//! switch with hosts is a leaf, switches above leaves are pods, and those above pods join them;
//! with rails, a switch with hosts is a group of leaves, one for each NIC of a host. As many spines
//! and cores as assumed stand for a pod and for the top, so hosts are as near to each other in the
//! fabric as in the tree.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::field_error;
use super::left_out::ImportNotes;
use super::tier_assumptions::DataCounts;
use super::{ImportError, ImportedFabric, TierAssumptions};
use crate::draft::{CABLE_PORTS, FabricDraft};
use crate::fabric::{Fabric, Tier};
use crate::finding::{count_noun, list_names};
use crate::spec;

/// A tree while it is read.
pub(super) struct HostTree {
    /// The name of the fabric, which such a file does not have.
    name: &'static str,
    /// What the file calls a host: `node`.
    host_noun: &'static str,
    /// How a field that lists hosts, or switches below, follows the place of its switch: `.nodes`.
    hosts_key: &'static str,
    below_key: &'static str,
    pub(super) notes: ImportNotes,
    switches: Vec<TreeSwitch>,
    by_name: BTreeMap<String, usize>,
    hosts: BTreeSet<String>,
}

struct TreeSwitch {
    name: String,
    /// Where it is in the file, for errors.
    place: String,
    parent: Option<usize>,
    /// The switches below it.
    below: Vec<usize>,
    hosts: Vec<String>,
}

/// The leaves of a pod, as places of switches.
struct Pod {
    name: String,
    leaves: Vec<usize>,
}

impl HostTree {
    pub(super) fn new(
        name: &'static str,
        host_noun: &'static str,
        [hosts_key, below_key]: [&'static str; 2],
    ) -> Self {
        Self {
            name,
            host_noun,
            hosts_key,
            below_key,
            notes: ImportNotes::default(),
            switches: Vec::new(),
            by_name: BTreeMap::new(),
            hosts: BTreeSet::new(),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.switches.iter().map(|switch| &*switch.name)
    }

    /// The switch of this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Adds a switch.
    ///
    /// # Errors
    /// The name is invalid, or that of another switch.
    pub(super) fn add_switch(&mut self, name: &str, place: String) -> Result<usize, ImportError> {
        check_name(&place, name)?;
        if self.find(name).is_some() {
            return Err(field_error(place, format!("another switch is named {name}; rename one")));
        }
        let at = self.switches.len();
        self.by_name.insert(name.to_owned(), at);
        let (name, parent, below, hosts) = (name.to_owned(), None, Vec::new(), Vec::new());
        self.switches.push(TreeSwitch { name, place, parent, below, hosts });
        Ok(at)
    }

    /// Puts a switch below another one.
    ///
    /// # Errors
    /// It is below one already.
    pub(super) fn put_below(&mut self, parent: usize, child: usize) -> Result<(), ImportError> {
        if let Some(other) = self.switches[child].parent.replace(parent) {
            let (name, other) = (&self.switches[child].name, &self.switches[other].name);
            let problem = format!("{name} is also below {other}; the switches must be a tree");
            return Err(field_error(self.below_field(parent), problem));
        }
        self.switches[parent].below.push(child);
        Ok(())
    }

    /// Puts hosts below a switch; `field` is where they are listed.
    ///
    /// # Errors
    /// One of them is below a switch already, or its name is invalid.
    pub(super) fn add_hosts(
        &mut self,
        switch: usize,
        field: &str,
        hosts: Vec<String>,
    ) -> Result<(), ImportError> {
        self.claim_hosts(field, &hosts)?;
        self.switches[switch].hosts.extend(hosts);
        Ok(())
    }

    /// Leaves hosts out that are below no switch.
    pub(super) fn leave_out_hosts(
        &mut self,
        field: &str,
        reason: &str,
        hosts: Vec<String>,
    ) -> Result<(), ImportError> {
        self.claim_hosts(field, &hosts)?;
        hosts.into_iter().for_each(|host| self.notes.leave_out(self.host_noun, reason, host));
        Ok(())
    }

    pub(super) fn has_host(&self, name: &str) -> bool {
        self.hosts.contains(name)
    }

    fn claim_hosts(&mut self, field: &str, hosts: &[String]) -> Result<(), ImportError> {
        for host in hosts {
            check_name(field, host)?;
            if !self.hosts.insert(host.clone()) {
                return Err(field_error(field, format!("{host} is below another leaf as well")));
            }
        }
        Ok(())
    }

    pub(super) fn below_field(&self, switch: usize) -> String {
        self.switches[switch].place.clone() + self.below_key
    }

    pub(super) fn hosts_field(&self, switch: usize) -> String {
        self.switches[switch].place.clone() + self.hosts_key
    }

    /// The fabric, and what it leaves out and assumes.
    ///
    /// # Errors
    /// A switch is below itself, no switch has hosts, or the assumptions make no fabric.
    pub(super) fn into_fabric(
        mut self,
        assumptions: &TierAssumptions,
    ) -> Result<ImportedFabric, ImportError> {
        self.refuse_cycles()?;
        if self.switches.iter().all(|switch| switch.hosts.is_empty()) {
            let problem = format!("no switch has {}s: list the hosts below leaves", self.host_noun);
            return Err(field_error("switches", problem));
        }
        let is_used = self.find_used();
        let pods = self.find_pods();
        let fabric = self.build_fabric(&pods, assumptions)?;
        Fabric::try_from(&spec::explicit_document(&fabric))?;
        let tops = self.name_tops(&pods, &is_used);
        for (switch, _) in self.switches.iter().zip(&is_used).filter(|(_, is_used)| !**is_used) {
            let reason = format!("no {}s are below it", self.host_noun);
            self.notes.leave_out("switch", reason, &switch.name);
        }
        for name in &tops {
            if pods.len() == 1 {
                self.notes.leave_out("switch", "it is above a single pod", name);
            } else if assumptions.cores == 0 {
                self.notes.leave_out("switch", "no cores are assumed, so pods stay apart", name);
            }
        }
        let roots = self.switches.iter().zip(&is_used);
        let roots = roots.filter(|(switch, is_used)| **is_used && switch.parent.is_none()).count();
        let sentences = self.sentences(&pods, &tops, roots, assumptions);
        self.notes.assumptions.extend(sentences);
        let (left_out, assumptions) = self.notes.into_parts();
        Ok(ImportedFabric { fabric, left_out, assumptions })
    }

    /// A switch below itself has no root above it, and its hosts would vanish.
    fn refuse_cycles(&self) -> Result<(), ImportError> {
        let mut clear = vec![false; self.switches.len()];
        for start in 0..self.switches.len() {
            let mut way = vec![start];
            let mut at = start;
            while let Some(parent) = self.switches[at].parent.filter(|parent| !clear[*parent]) {
                if let Some(first) = way.iter().position(|other| *other == parent) {
                    let cycle = way[first..].iter().chain([&parent]).rev();
                    let names: Vec<&str> = cycle.map(|at| &*self.switches[*at].name).collect();
                    let problem = format!(
                        "{} is below itself ({}); the switches must be a tree: remove one of them \
                         from the list of the one above it",
                        names[0],
                        names.join(" > ")
                    );
                    return Err(field_error(self.below_field(parent), problem));
                }
                way.push(parent);
                at = parent;
            }
            way.into_iter().for_each(|at| clear[at] = true);
        }
        Ok(())
    }

    /// Which switches have hosts somewhere below.
    fn find_used(&self) -> Vec<bool> {
        let mut is_used = vec![false; self.switches.len()];
        for start in (0..self.switches.len()).filter(|at| !self.switches[*at].hosts.is_empty()) {
            let mut at = Some(start);
            while let Some(switch) = at.filter(|at| !std::mem::replace(&mut is_used[*at], true)) {
                at = self.switches[switch].parent;
            }
        }
        is_used
    }

    /// Leaves by the switch above them, each root with all that is below it before the next.
    fn find_pods(&self) -> Vec<Pod> {
        let roots = (0..self.switches.len()).filter(|at| self.switches[*at].parent.is_none());
        let mut walk: Vec<usize> = roots.collect();
        walk.reverse();
        let mut pods: Vec<Pod> = Vec::new();
        let mut pod_of: BTreeMap<usize, usize> = BTreeMap::new();
        while let Some(at) = walk.pop() {
            let switch = &self.switches[at];
            walk.extend(switch.below.iter().rev());
            if switch.hosts.is_empty() {
                continue;
            }
            let above = switch.parent.unwrap_or(at);
            let pod = *pod_of.entry(above).or_insert_with(|| {
                pods.push(Pod { name: self.switches[above].name.clone(), leaves: Vec::new() });
                pods.len() - 1
            });
            pods[pod].leaves.push(at);
        }
        pods
    }

    /// Switches above pods.
    fn name_tops(&self, pods: &[Pod], is_used: &[bool]) -> Vec<String> {
        let pods: BTreeSet<&str> = pods.iter().map(|pod| &*pod.name).collect();
        let used = self.switches.iter().zip(is_used).filter(|(_, is_used)| **is_used);
        let tops =
            used.filter(|(switch, _)| switch.hosts.is_empty() && !pods.contains(&*switch.name));
        tops.map(|(switch, _)| switch.name.clone()).collect()
    }

    fn sentences(
        &self,
        pods: &[Pod],
        tops: &[String],
        roots: usize,
        assumptions: &TierAssumptions,
    ) -> Vec<String> {
        let TierAssumptions { spines, cores, gpus_per_host, host_links, host_gbps, .. } =
            assumptions;
        let names: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
        let mut sentences = vec![
            format!(
                "{gpus_per_host} GPUs and {host_links} NICs of {host_gbps} Gb/s in each host, {}",
                assumptions.describe_leaves()
            ),
            format!(
                "{spines} spines with links of {} Gb/s stand for each of {}: {}",
                assumptions.uplink_gbps,
                count_noun(pods.len() as u64, "pod"),
                list_names(&names)
            ),
        ];
        if pods.len() > 1 && *cores > 0 {
            let above = match tops.is_empty() {
                true => "join the pods".to_owned(),
                false => format!("stand for what is above pods: {}", list_names(tops)),
            };
            let gbps = assumptions.core_gbps;
            sentences.push(format!("{cores} cores with links of {gbps} Gb/s {above}"));
        }
        if roots > 1 && *cores > 0 {
            sentences.push(format!(
                "the cores join what is below {roots} switches, which the file does not join"
            ));
        }
        sentences.push(format!(
            "addresses 10.LEAF.LEAF.PLACE, Ethernet addresses and P4Runtime servers as of generated \
             fabrics, and the name {}",
            self.name
        ));
        sentences
    }

    fn build_fabric(
        &self,
        pods: &[Pod],
        assumptions: &TierAssumptions,
    ) -> Result<Fabric, ImportError> {
        let speeds = assumptions.link_speeds()?;
        let leaves = || pods.iter().flat_map(|pod| &pod.leaves);
        let hosts = |leaf: &usize| &self.switches[*leaf].hosts;
        let most = assumptions.max_hosts_per_leaf();
        if let Some(leaf) = leaves().find(|leaf| hosts(leaf).len() as u64 > most) {
            let problem = full_leaf_problem(hosts(leaf).len(), assumptions);
            return Err(field_error(self.hosts_field(*leaf), problem));
        }
        // Pods that nothing joins would be fabrics of their own.
        let tops = usize::from(pods.len() > 1);
        assumptions.check_counts(DataCounts {
            hosts: leaves().map(|leaf| hosts(leaf).len()).sum(),
            hosts_per_leaf: leaves().map(|leaf| hosts(leaf).len()).max().unwrap_or(0),
            leaves: leaves().count(),
            pods: pods.len(),
            tops,
        })?;
        let mut draft = FabricDraft::with_name(self.name);
        let rails = assumptions.leaves_per_leaf();
        let leaf_ids = draft.add_switches(Tier::Leaf, leaves().count() * rails);
        let spines = draft.add_switches(Tier::Spine, pods.len() * assumptions.spines as usize);
        let cores = draft.add_switches(Tier::Core, tops * assumptions.cores as usize);
        let names = leaves().flat_map(|leaf| assumptions.leaf_names(&self.switches[*leaf].name));
        draft.rename_switches(&leaf_ids, names);
        for (leaf, ids) in leaves().zip(leaf_ids.chunks(rails)) {
            let nics = assumptions.leaves_of_nics(ids);
            for host in hosts(leaf) {
                draft.add_host(host.clone(), assumptions.gpus_per_host, &nics, speeds.host);
            }
        }
        let mut ids = leaf_ids.iter().copied();
        for (pod, spines) in pods.iter().zip(spines.chunks(assumptions.spines as usize)) {
            for leaf in ids.by_ref().take(pod.leaves.len() * rails) {
                spines.iter().for_each(|spine| draft.connect_switches(leaf, *spine, speeds.uplink));
            }
        }
        for spine in &spines {
            cores.iter().for_each(|core| draft.connect_switches(*spine, *core, speeds.core));
        }
        Ok(draft.into_fabric())
    }
}

fn check_name(field: &str, name: &str) -> Result<(), ImportError> {
    match spec::is_valid_name(name) {
        true => Ok(()),
        false => {
            let problem = format!("{name:?} is not a name: use letters, digits, '-', '_' and '.'");
            Err(field_error(field, problem))
        }
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
