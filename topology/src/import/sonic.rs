//! `config_db.json` of SONiC, one file for each switch.
//!
//! Cables are those of `DEVICE_NEIGHBOR`, keyed by the own port or, as in older files, by the
//! neighbour; one that both ends list is one cable. A neighbour without a file of its own is a device
//! too. `DEVICE_METADATA` and `DEVICE_NEIGHBOR_METADATA` have the types of devices: a ToRRouter is a
//! leaf, a LeafRouter a spine, a SpineRouter a core. Images come with a type of their own, so types
//! count only where there is a ToRRouter; else tiers follow from the cables. Speeds are those of
//! `PORT`, the lower one of both ends, and ports have the numbers of their `id`.
//!
//! Keys may be nested, `TABLE` then key, or joined, `TABLE|key`, as a dump of the database has them.

use std::collections::{BTreeMap, BTreeSet};

use serde_yaml_ng::{Mapping, Value};

use super::containerlab::plain_text;
use super::inventory::{
    CableEnd, DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice,
    MissingAddress, field_error,
};
use super::left_out::ImportNotes;
use super::roles::{TakenPhrases, role_named};
use super::{ImportError, ImportedFabric};
use crate::export::facts;
use crate::fabric::Tier;
use crate::finding::list_names;

/// Types of devices that are no part of a fabric begin with one of these.
const OUTSIDE_TYPES: [&str; 4] = ["mgmt", "console", "terminal", "bmc"];
/// Megabits in `PORT.speed` for each Gb/s.
const MBPS_PER_GBPS: f64 = 1e3;

/// What the file of a switch says.
#[derive(Debug)]
pub struct SonicSwitch {
    name: String,
    /// Whether the name is that of the file, because the configuration has none.
    is_named_by_file: bool,
    kind: Option<String>,
    ports: BTreeMap<String, SonicPort>,
    neighbours: Vec<SonicNeighbour>,
    /// Types of neighbours by name.
    neighbour_kinds: BTreeMap<String, String>,
    unused_fields: Vec<String>,
}

#[derive(Debug)]
struct SonicPort {
    gbps: Option<f64>,
    id: Option<u32>,
    is_down: bool,
}

#[derive(Debug)]
struct SonicNeighbour {
    /// The key in `DEVICE_NEIGHBOR`.
    key: String,
    port: String,
    device: String,
    device_port: Option<String>,
}

impl SonicSwitch {
    /// Reads the configuration of a switch; `file_name` names a switch that says no name.
    ///
    /// # Errors
    /// The text is no JSON of tables, or a value cannot be read; the error names table and key.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ImportError> {
        let tables: Mapping = serde_yaml_ng::from_str(text)
            .map_err(|error| field_error("configuration of SONiC", error.to_string()))?;
        let stem = file_name.strip_suffix(".json").unwrap_or(file_name);
        let stem = stem.strip_suffix("config_db").unwrap_or(stem);
        let mut switch = Self {
            name: stem.trim_end_matches(['.', '_', '-']).to_owned(),
            is_named_by_file: true,
            kind: None,
            ports: BTreeMap::new(),
            neighbours: Vec::new(),
            neighbour_kinds: BTreeMap::new(),
            unused_fields: Vec::new(),
        };
        let mut unused_tables = BTreeSet::new();
        for (name, value) in &tables {
            let name = plain_text(name);
            match name.split_once('|') {
                Some((table, key)) if is_used(table) => {
                    // A dump of the database has the fields in `value`.
                    let fields = value.get("value").filter(|fields| fields.is_mapping());
                    switch.read_entry(table, key, fields.unwrap_or(value))?;
                }
                None if is_used(&name) => {
                    for (key, fields) in value.as_mapping().into_iter().flatten() {
                        switch.read_entry(&name, &plain_text(key), fields)?;
                    }
                }
                Some((table, _)) => {
                    unused_tables.insert(table.to_owned());
                }
                None => {
                    unused_tables.insert(name);
                }
            }
        }
        switch.unused_fields.extend(unused_tables);
        if switch.name.is_empty() {
            let problem = "missing; write it, or name the file after the switch";
            return Err(field_error("DEVICE_METADATA|localhost hostname", problem));
        }
        Ok(switch)
    }

    fn read_entry(&mut self, table: &str, key: &str, fields: &Value) -> Result<(), ImportError> {
        let text = |name: &str| {
            let text = fields.get(name).map(plain_text);
            text.filter(|text| !text.is_empty() && text != "None")
        };
        let used: &[&str] = match table {
            "DEVICE_METADATA" => {
                if let Some(name) = text("hostname").filter(|_| key == "localhost") {
                    self.name = name;
                    self.is_named_by_file = false;
                }
                self.kind = text("type").or(self.kind.take());
                &["hostname", "type"]
            }
            "PORT" => {
                let number = |name: &str| {
                    let of = |text: String| {
                        text.parse::<u32>().map_err(|_| {
                            let problem = format!("{text:?} is no whole number");
                            field_error(format!("PORT|{key} {name}"), problem)
                        })
                    };
                    text(name).map(of).transpose()
                };
                let gbps = number("speed")?.map(|mbps| f64::from(mbps) / MBPS_PER_GBPS);
                let is_down = text("admin_status").is_some_and(|status| status == "down");
                let port = SonicPort { gbps, id: number("id")?, is_down };
                self.ports.insert(key.to_owned(), port);
                &["speed", "id", "admin_status"]
            }
            "DEVICE_NEIGHBOR" => {
                // Older files have the neighbour as key, and name the own port.
                let local = text("local_port");
                let device = text("name").or_else(|| local.is_some().then(|| key.to_owned()));
                let Some(device) = device else {
                    let problem = "missing; write the name of the neighbour";
                    return Err(field_error(format!("DEVICE_NEIGHBOR|{key} name"), problem));
                };
                self.neighbour_kinds.extend(text("type").map(|kind| (device.clone(), kind)));
                self.neighbours.push(SonicNeighbour {
                    key: key.to_owned(),
                    port: local.unwrap_or_else(|| key.to_owned()),
                    device,
                    device_port: text("port"),
                });
                &["name", "port", "local_port", "type"]
            }
            _ => {
                self.neighbour_kinds.extend(text("type").map(|kind| (key.to_owned(), kind)));
                &["type"]
            }
        };
        let keys = fields.as_mapping().into_iter().flat_map(|fields| fields.keys()).map(plain_text);
        let unused = keys.filter(|key| !used.contains(&key.as_str()));
        self.unused_fields.extend(unused.map(|key| format!("{table}.{key}")));
        Ok(())
    }
}

fn is_used(table: &str) -> bool {
    ["DEVICE_METADATA", "PORT", "DEVICE_NEIGHBOR", "DEVICE_NEIGHBOR_METADATA"].contains(&table)
}

/// The fabric of switches and their neighbours.
///
/// # Errors
/// Two files are of one switch, a port has two cables, or devices and cables are no fabric; the
/// error names the switch and the entry.
pub fn import_sonic(
    switches: &[SonicSwitch],
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let mut notes = ImportNotes::default();
    for switch in switches {
        switch.unused_fields.iter().for_each(|field| notes.count_unused_field(field));
        if switches.iter().filter(|other| other.name == switch.name).count() > 1 {
            let problem = "several files are of this switch: give each switch one file, and write \
                           its hostname in DEVICE_METADATA";
            return Err(field_error(&switch.name, problem));
        }
    }
    let unnamed = switches.iter().filter(|switch| switch.is_named_by_file);
    let unnamed: Vec<&str> = unnamed.map(|switch| &*switch.name).collect();
    if !unnamed.is_empty() {
        let names = list_names(&unnamed);
        notes.assumptions.push(format!("the names of files for those of switches: {names}"));
    }
    let devices = list_devices(switches, &mut notes);
    let cables = list_cables(switches, &devices, &mut notes);
    let inventory = Inventory {
        name: None,
        usual_name: "sonic",
        device_noun: "device",
        fact_prefix: None,
        tier_remedy: "type ToRRouter, LeafRouter or SpineRouter in DEVICE_METADATA",
        devices_field: "DEVICE_NEIGHBOR".to_owned(),
        devices,
        cables,
        missing_address: MissingAddress::Generate,
        generated_port_name: |_| String::new(),
        notes,
    };
    inventory.into_fabric(assumptions)
}

/// What a type of SONiC says that a device is.
fn role_of_type(kind: &str) -> Option<DeviceRole> {
    let lower = kind.to_lowercase();
    let tier = match lower.strip_prefix("backend").unwrap_or(&lower) {
        "torrouter" => Some(Tier::Leaf),
        "leafrouter" => Some(Tier::Spine),
        "spinerouter" | "upperspinerouter" | "regionalhub" => Some(Tier::Core),
        other if other.ends_with("router") => None,
        _ => return role_named(kind),
    };
    Some(DeviceRole::Switch(tier))
}

/// The switches that have a file, then their neighbours that have none.
fn list_devices(switches: &[SonicSwitch], notes: &mut ImportNotes) -> Vec<ListedDevice> {
    let kinds = || switches.iter().flat_map(|switch| &switch.neighbour_kinds);
    let kind_of = |name: &str| {
        let own = switches.iter().find(|switch| switch.name == name);
        let listed = || kinds().find(|(device, _)| *device == name).map(|(_, kind)| kind);
        own.and_then(|switch| switch.kind.as_ref()).or_else(listed)
    };
    let stated = switches.iter().filter_map(|switch| switch.kind.as_ref());
    let stated: Vec<&String> = stated.chain(kinds().map(|(_, kind)| kind)).collect();
    let leaf = Some(DeviceRole::Switch(Some(Tier::Leaf)));
    let has_leaves = stated.iter().any(|kind| role_of_type(kind) == leaf);
    let mut phrases = TakenPhrases::default();
    let mut role = |name: &str, usual: DeviceRole| {
        let stated = kind_of(name).and_then(|kind| Some((kind, role_of_type(kind)?)));
        match stated {
            Some((_, DeviceRole::Switch(Some(_)))) if !has_leaves => DeviceRole::Switch(None),
            Some((kind, role)) => {
                phrases.add(kind, role);
                role
            }
            None => usual,
        }
    };
    let mut listed: Vec<ListedDevice> = Vec::new();
    let mut seen = BTreeSet::new();
    let own = switches.iter().map(|switch| (&switch.name, DeviceRole::Switch(None)));
    let neighbours = switches.iter().flat_map(|switch| &switch.neighbours).map(|neighbour| {
        // Switches of SONiC and of EOS call their ports so.
        let port = neighbour.device_port.as_deref().unwrap_or_default();
        let is_switch = port.starts_with("Ethernet");
        let usual = if is_switch { DeviceRole::Switch(None) } else { DeviceRole::Unknown };
        (&neighbour.device, usual)
    });
    for (name, usual) in own.chain(neighbours) {
        if !seen.insert(name) {
            continue;
        }
        let kind = kind_of(name).map(|kind| kind.to_lowercase()).unwrap_or_default();
        if OUTSIDE_TYPES.iter().any(|outside| kind.starts_with(outside)) {
            notes.leave_out("device", format!("type {kind} is no device of a fabric"), name);
            continue;
        }
        listed.push(ListedDevice {
            name: name.clone(),
            field: name.clone(),
            role: role(name, usual),
            is_complete: false,
            facts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            macs: BTreeMap::new(),
            bonds: BTreeMap::new(),
        });
    }
    if !has_leaves && stated.iter().any(|kind| role_of_type(kind).is_some()) {
        let sentence = "types of switches do not count, since none is a ToRRouter";
        notes.assumptions.push(sentence.to_owned());
    }
    notes.assumptions.extend(phrases.sentence("type"));
    listed
}

/// Every cable once, from the first end that lists it.
fn list_cables(
    switches: &[SonicSwitch],
    devices: &[ListedDevice],
    notes: &mut ImportNotes,
) -> Vec<ListedCable> {
    let names: BTreeSet<&str> = devices.iter().map(|device| &*device.name).collect();
    let file_of = |name: &str| switches.iter().find(|switch| switch.name == name);
    let port_of = |end: &CableEnd| file_of(&end.device)?.ports.get(&end.interface);
    let mut seen: BTreeSet<[(String, String); 2]> = BTreeSet::new();
    let mut unnamed = 0;
    let mut cables = Vec::new();
    for switch in switches {
        for neighbour in &switch.neighbours {
            let there = neighbour.device_port.clone().or_else(|| {
                let other = file_of(&neighbour.device)?.neighbours.iter();
                let mut back = other.filter(|it| it.device == switch.name);
                let back = back.find(|it| it.device_port.as_ref() == Some(&neighbour.port))?;
                Some(back.port.clone())
            });
            let there = there.unwrap_or_else(|| {
                unnamed += 1;
                format!("to-{}-{}", switch.name, neighbour.port)
            });
            let here = (switch.name.clone(), neighbour.port.clone());
            let mut pair = [here, (neighbour.device.clone(), there)];
            let ends = pair.clone().map(|(device, interface)| {
                let mut end = CableEnd { device, interface, port: None };
                end.port = port_of(&end).and_then(|port| port.id);
                end
            });
            pair.sort();
            let field = format!("{}: DEVICE_NEIGHBOR|{}", switch.name, neighbour.key);
            let cable = ListedCable { field, ends, facts: BTreeMap::new() };
            if !seen.insert(pair) {
                continue;
            }
            let [a, b] = &cable.ends;
            let has_port = |end: &CableEnd| {
                file_of(&end.device).is_none_or(|file| {
                    file.ports.is_empty() || file.ports.contains_key(&end.interface)
                })
            };
            let reason = if cable.ends.iter().any(|end| !names.contains(&*end.device)) {
                "ends at a device that is left out"
            } else if a.device == b.device {
                "joins a device to itself"
            } else if !has_port(a) || !has_port(b) {
                "ends at a port that is not in PORT"
            } else if cable.ends.iter().any(|end| port_of(end).is_some_and(|port| port.is_down)) {
                "ends at a port with admin_status down"
            } else {
                let speeds = cable.ends.iter().filter_map(|end| port_of(end)?.gbps);
                let gbps = speeds.reduce(f64::min);
                let facts = gbps.map(|gbps| (facts::GBPS.to_owned(), gbps.to_string()));
                cables.push(ListedCable { facts: facts.into_iter().collect(), ..cable });
                continue;
            };
            notes.leave_out("cable", reason, cable.name());
        }
    }
    if unnamed > 0 {
        let sentence = format!("ports in order of {unnamed} neighbours whose port no file names");
        notes.assumptions.push(sentence);
    }
    leave_out_ports(switches, &seen, notes);
    cables
}

/// Ports of which no file says where they lead.
fn leave_out_ports(
    switches: &[SonicSwitch],
    cabled: &BTreeSet<[(String, String); 2]>,
    notes: &mut ImportNotes,
) {
    let used: BTreeSet<&(String, String)> = cabled.iter().flatten().collect();
    for switch in switches {
        for port in switch.ports.keys() {
            if !used.contains(&(switch.name.clone(), port.clone())) {
                let name = format!("{}:{port}", switch.name);
                notes.leave_out("port", "no neighbour in DEVICE_NEIGHBOR", name);
            }
        }
    }
}
