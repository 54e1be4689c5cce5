//! Which devices of a file are hosts and which tiers its switches have, where it does not say.
//!
//! Labs and inventories know neither tiers nor which container is a host. The decision: roles
//! follow from the cables. A device is a host if all its cables lead to switches, or if it has one
//! neighbour only; a device beside a host is a switch. Switches with hosts are leaves, those beside
//! leaves are spines, all others are cores. What a file states comes first. Devices that no cable
//! joins to the fabric are left out by name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ImportError;
use super::inventory::{DeviceRole, Inventory, ListedCable, ListedDevice, field_error};
use crate::document::nearest_name;
use crate::export::facts;
use crate::fabric::Tier;
use crate::finding::{count_noun, list_names};

/// Words for devices that carry no traffic of the fabric, whatever else their role says.
const OTHER_WORDS: [&str; 14] = [
    "mgmt",
    "management",
    "oob",
    "console",
    "terminal",
    "power",
    "pdu",
    "ups",
    "panel",
    "patch",
    "kvm",
    "point",
    "balancer",
    "bmc",
];
const CORE_WORDS: [&str; 5] = ["core", "cores", "superspine", "superspines", "super"];
const SPINE_WORDS: [&str; 5] = ["spine", "spines", "aggregation", "agg", "distribution"];
const LEAF_WORDS: [&str; 6] = ["leaf", "leafs", "leaves", "tor", "access", "rack"];
const HOST_WORDS: [&str; 18] = [
    "host",
    "hosts",
    "server",
    "servers",
    "client",
    "clients",
    "compute",
    "gpu",
    "gpus",
    "dgx",
    "hgx",
    "worker",
    "workers",
    "node",
    "nodes",
    "hypervisor",
    "pc",
    "pcs",
];
const SWITCH_WORDS: [&str; 6] = ["switch", "switches", "router", "routers", "network", "sw"];

/// The role that a word or a phrase of a person means: `leaf`, `Leaf Switch`, `gpu-server`; none
/// for other words.
pub(super) fn role_named(phrase: &str) -> Option<DeviceRole> {
    let lower = phrase.to_lowercase();
    let words: BTreeSet<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let roles = [
        (&CORE_WORDS[..], DeviceRole::Switch(Some(Tier::Core))),
        (&SPINE_WORDS[..], DeviceRole::Switch(Some(Tier::Spine))),
        (&LEAF_WORDS[..], DeviceRole::Switch(Some(Tier::Leaf))),
        (&HOST_WORDS[..], DeviceRole::Host),
        (&SWITCH_WORDS[..], DeviceRole::Switch(None)),
    ];
    let named = roles.into_iter().find(|(list, _)| has(list)).map(|(_, role)| role);
    named.filter(|_| !has(&OTHER_WORDS))
}

/// Words that mean their role in files of any origin, our own exports included.
const PLAIN_WORDS: [&str; 12] = [
    "leaf",
    "tor",
    "top-of-rack",
    "spine",
    "aggregation",
    "core",
    "superspine",
    "super-spine",
    "host",
    "hosts",
    "server",
    "servers",
];

/// Phrases that were taken for a role, each with it.
#[derive(Default)]
pub(super) struct TakenPhrases(BTreeMap<String, DeviceRole>);

impl TakenPhrases {
    pub(super) fn add(&mut self, phrase: &str, role: DeviceRole) {
        if !PLAIN_WORDS.contains(&phrase.to_lowercase().as_str()) {
            self.0.insert(phrase.to_owned(), role);
        }
    }

    /// What was taken for what, if it was anything but a plain word.
    pub(super) fn sentence(self, noun: &str) -> Option<String> {
        let meanings = self.0.iter().map(|(phrase, role)| {
            let role = match role {
                DeviceRole::Host => "host".to_owned(),
                DeviceRole::Switch(Some(tier)) => tier.to_string(),
                DeviceRole::Switch(None) => "switch".to_owned(),
                DeviceRole::Unknown => "either".to_owned(),
            };
            format!("{phrase:?} is a {role}")
        });
        let meanings: Vec<String> = meanings.collect();
        (!meanings.is_empty()).then(|| format!("{noun} {}", list_names(&meanings)))
    }
}

/// The tier that the value of `crux.tier` means.
pub(super) fn stated_tier(
    device: &str,
    facts: &BTreeMap<String, String>,
) -> Result<Option<Tier>, ImportError> {
    let Some(word) = facts.get(facts::TIER) else {
        return Ok(None);
    };
    match role_named(word) {
        Some(DeviceRole::Switch(Some(tier))) => Ok(Some(tier)),
        _ => {
            let problem = format!("crux.tier {word:?} is unknown: use leaf, spine or core");
            Err(field_error(device, problem))
        }
    }
}

/// What leads to what, by the places of devices in the inventory.
struct DeviceGraph {
    neighbours: Vec<BTreeSet<usize>>,
}

impl DeviceGraph {
    fn of(inventory: &Inventory) -> Result<Self, ImportError> {
        let places = inventory.device_places();
        let mut neighbours = vec![BTreeSet::new(); inventory.devices.len()];
        for cable in &inventory.cables {
            let place = |device: &String| {
                places.get(device.as_str()).copied().ok_or_else(|| {
                    let meant = nearest_name(device, places.keys().copied());
                    let hint = meant.map(|name| format!("; did you mean {name}?"));
                    let problem = format!("no host or switch is named {device}");
                    field_error(&cable.field, problem + &hint.unwrap_or_default())
                })
            };
            let [a, b] = cable.ends.each_ref().map(|end| place(&end.device));
            let (a, b) = (a?, b?);
            neighbours[a].insert(b);
            neighbours[b].insert(a);
        }
        Ok(Self { neighbours })
    }

    fn all(&self, device: usize, holds: impl Fn(usize) -> bool) -> bool {
        self.neighbours[device].iter().all(|other| holds(*other))
    }

    fn any(&self, device: usize, holds: impl Fn(usize) -> bool) -> bool {
        self.neighbours[device].iter().any(|other| holds(*other))
    }
}

impl Inventory {
    fn device_places(&self) -> BTreeMap<&str, usize> {
        self.devices.iter().enumerate().map(|(at, device)| (device.name.as_str(), at)).collect()
    }

    /// Gives every device the role of a host or a tier, and leaves out what no cable joins to the
    /// fabric.
    ///
    /// # Errors
    /// A cable ends nowhere, a device can be a host as well as a switch, or no host says which
    /// switches are leaves.
    pub(super) fn resolve_roles(&mut self) -> Result<(), ImportError> {
        let hosts = self.devices.iter().filter(|device| device.role == DeviceRole::Host);
        let stated_hosts: BTreeSet<String> = hosts.map(|host| host.name.clone()).collect();
        let is_spare = |inventory: &Self, graph: &DeviceGraph, at: usize| {
            graph.neighbours[at].is_empty() && !inventory.devices[at].is_complete
        };
        self.leave_out_devices("no cable", is_spare)?;
        self.infer_roles()?;
        self.infer_tiers()?;
        self.leave_out_spine_cables(&stated_hosts);
        self.leave_out_devices("no cable to a leaf", is_spare)
    }

    /// Leaves out devices and their cables.
    fn leave_out_devices(
        &mut self,
        reason: &str,
        is_out: impl Fn(&Self, &DeviceGraph, usize) -> bool,
    ) -> Result<(), ImportError> {
        let graph = DeviceGraph::of(self)?;
        let out: Vec<bool> = (0..self.devices.len()).map(|at| is_out(self, &graph, at)).collect();
        let mut at = 0..;
        let noun = self.device_noun;
        let mut names = BTreeSet::new();
        let devices = std::mem::take(&mut self.devices);
        for device in devices {
            if at.next().is_some_and(|at: usize| out[at]) {
                self.notes.leave_out(noun, reason, &device.name);
                names.insert(device.name);
            } else {
                self.devices.push(device);
            }
        }
        self.leave_out_cables(&format!("ends at a {noun} that is left out"), |cable| {
            cable.ends.iter().any(|end| names.contains(&end.device))
        });
        Ok(())
    }

    pub(super) fn leave_out_cables(&mut self, reason: &str, is_out: impl Fn(&ListedCable) -> bool) {
        let (out, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.cables).into_iter().partition(|cable| is_out(cable));
        self.cables = kept;
        out.iter().for_each(|cable| self.notes.leave_out("cable", reason, cable.name()));
    }

    /// Hosts and switches among devices of which the file says neither.
    fn infer_roles(&mut self) -> Result<(), ImportError> {
        let graph = DeviceGraph::of(self)?;
        let open: Vec<usize> = (0..self.devices.len())
            .filter(|at| self.devices[*at].role == DeviceRole::Unknown)
            .collect();
        let is_known_switch: Vec<bool> = self
            .devices
            .iter()
            .map(|device| matches!(device.role, DeviceRole::Switch(_)))
            .collect();
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for &at in &open {
                let role = |at: usize| self.devices[at].role;
                let is_end = graph.neighbours[at].len() == 1;
                let is_host = graph.all(at, |other| {
                    let has_others = graph.neighbours[other].len() > 1;
                    is_known_switch[other]
                        || is_end && role(other) != DeviceRole::Host && has_others
                });
                let found = match role(at) {
                    DeviceRole::Unknown
                        if graph.any(at, |other| role(other) == DeviceRole::Host) =>
                    {
                        DeviceRole::Switch(None)
                    }
                    DeviceRole::Unknown if is_host => DeviceRole::Host,
                    _ => continue,
                };
                self.devices[at].role = found;
                is_changed = true;
            }
        }
        self.infer_inner_roles(&graph, &is_known_switch);
        let unclear: Vec<&ListedDevice> =
            self.devices.iter().filter(|device| device.role == DeviceRole::Unknown).collect();
        if let Some(first) = unclear.first() {
            let names: Vec<&str> = unclear.iter().map(|device| device.name.as_str()).collect();
            let problem = format!(
                "cables do not say whether it is a switch or a host: add the {}, or crux.gpus with \
                 the GPUs of a host; so for {}",
                self.tier_remedy,
                list_names(&names)
            );
            return Err(field_error(&first.field, problem));
        }
        let named = |role: DeviceRole| {
            let of_role = open.iter().filter(|at| self.devices[**at].role == role);
            of_role.map(|at| self.devices[*at].name.as_str()).collect::<Vec<_>>()
        };
        let kinds =
            [("hosts", named(DeviceRole::Host)), ("switches", named(DeviceRole::Switch(None)))];
        let kinds = kinds.iter().filter(|(_, names)| !names.is_empty());
        let kinds: Vec<String> =
            kinds.map(|(kind, names)| format!("{kind} {}", list_names(names))).collect();
        if !open.is_empty() {
            let count = count_noun(open.len() as u64, self.device_noun);
            let sentence = format!("roles by cables of {count}: ");
            self.notes.assumptions.push(sentence + &kinds.join("; "));
        }
        Ok(())
    }

    /// Devices between switches: hosts if the file states one of the switches, else switches, such
    /// as spines that are containers like their leaves.
    fn infer_inner_roles(&mut self, graph: &DeviceGraph, is_known_switch: &[bool]) {
        let is_switch: Vec<bool> = self
            .devices
            .iter()
            .map(|device| matches!(device.role, DeviceRole::Switch(_)))
            .collect();
        for at in 0..self.devices.len() {
            if self.devices[at].role == DeviceRole::Unknown
                && graph.all(at, |other| is_switch[other])
            {
                let is_host = graph.any(at, |other| is_known_switch[other]);
                self.devices[at].role =
                    if is_host { DeviceRole::Host } else { DeviceRole::Switch(None) };
            }
        }
    }

    /// Tiers by the distance from hosts, for switches of which the file does not say one.
    fn infer_tiers(&mut self) -> Result<(), ImportError> {
        let is_open = |device: &ListedDevice| device.role == DeviceRole::Switch(None);
        if !self.devices.iter().any(is_open) {
            return Ok(());
        }
        let graph = DeviceGraph::of(self)?;
        let is_leaf = |at: usize| match self.devices[at].role {
            DeviceRole::Switch(Some(tier)) => tier == Tier::Leaf,
            DeviceRole::Switch(None) => {
                graph.any(at, |other| self.devices[other].role == DeviceRole::Host)
                    || self.devices[at].name.to_lowercase().starts_with("leaf")
            }
            _ => false,
        };
        let leaves: Vec<usize> = (0..self.devices.len()).filter(|at| is_leaf(*at)).collect();
        let has_hosts = self.devices.iter().any(|device| device.role == DeviceRole::Host);
        let is_stated = |device: &ListedDevice| matches!(device.role, DeviceRole::Switch(Some(_)));
        if !has_hosts && !self.devices.iter().any(is_stated) || leaves.is_empty() {
            return Err(self.no_hosts_error());
        }
        let mut distance: Vec<Option<usize>> = vec![None; self.devices.len()];
        let mut queue: VecDeque<usize> = leaves.into();
        queue.iter().for_each(|leaf| distance[*leaf] = Some(0));
        while let Some(at) = queue.pop_front() {
            for &next in &graph.neighbours[at] {
                let is_switch = matches!(self.devices[next].role, DeviceRole::Switch(_));
                if is_switch && distance[next].is_none() {
                    distance[next] = distance[at].map(|distance| distance + 1);
                    queue.push_back(next);
                }
            }
        }
        let mut inferred: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (at, distance) in distance.iter().enumerate() {
            let tier = match distance {
                Some(0) => Tier::Leaf,
                Some(1) => Tier::Spine,
                Some(_) => Tier::Core,
                None => continue,
            };
            if self.devices[at].role == DeviceRole::Switch(None) {
                let is_beside_host =
                    graph.any(at, |other| self.devices[other].role == DeviceRole::Host);
                let by_name = if tier == Tier::Leaf && !is_beside_host { " by name" } else { "" };
                let names = inferred.entry(format!("{tier}{by_name}")).or_default();
                names.push(self.devices[at].name.clone());
                self.devices[at].role = DeviceRole::Switch(Some(tier));
            }
        }
        let count: usize = inferred.values().map(Vec::len).sum();
        if count > 0 {
            let tiers =
                inferred.iter().map(|(tier, names)| format!("{tier} {}", list_names(names)));
            let tiers = tiers.collect::<Vec<_>>().join("; ");
            let count = count_noun(count as u64, "switch");
            let sentence = format!("tiers by where hosts are of {count}: {tiers}");
            self.notes.assumptions.push(sentence);
        }
        self.leave_out_devices("no way to a leaf", |inventory, _, at| {
            inventory.devices[at].role == DeviceRole::Switch(None)
        })
    }

    fn no_hosts_error(&self) -> ImportError {
        let open = self.devices.iter().filter(|device| device.role == DeviceRole::Switch(None));
        let names: Vec<&str> = open.map(|device| device.name.as_str()).collect();
        let problem = format!(
            "no host has a cable to a switch, so nothing says which of {} are leaves: add hosts, \
             or state tiers ({})",
            list_names(&names),
            self.tier_remedy
        );
        field_error(&self.devices_field, problem)
    }

    /// A host that only cables make one may have cables to spines: a server of telemetry, say.
    fn leave_out_spine_cables(&mut self, stated_hosts: &BTreeSet<String>) {
        let role = |device: &ListedDevice| (device.name.clone(), device.role);
        let roles: BTreeMap<String, DeviceRole> = self.devices.iter().map(role).collect();
        self.leave_out_cables("joins a host to a switch that is no leaf", |cable| {
            let [a, b] = &cable.ends;
            [(a, b), (b, a)].into_iter().any(|(host, other)| {
                let is_leaf = roles[&other.device] == DeviceRole::Switch(Some(Tier::Leaf));
                let is_switch = matches!(roles[&other.device], DeviceRole::Switch(_));
                roles[&host.device] == DeviceRole::Host
                    && is_switch
                    && !is_leaf
                    && !stated_hosts.contains(&host.device)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_people_are_roles() {
        let cases = [
            ("leaf", Some(DeviceRole::Switch(Some(Tier::Leaf)))),
            ("Leaf Switch", Some(DeviceRole::Switch(Some(Tier::Leaf)))),
            ("Top-of-Rack", Some(DeviceRole::Switch(Some(Tier::Leaf)))),
            ("super-spine", Some(DeviceRole::Switch(Some(Tier::Core)))),
            ("spines", Some(DeviceRole::Switch(Some(Tier::Spine)))),
            ("GPU Server", Some(DeviceRole::Host)),
            ("routers", Some(DeviceRole::Switch(None))),
            ("Console Server", None),
            ("management-switch", None),
            ("Patch Panel", None),
            ("10", None),
            ("", None),
        ];
        for (phrase, expect) in cases {
            assert_eq!(role_named(phrase), expect, "{phrase}");
        }
    }
}
