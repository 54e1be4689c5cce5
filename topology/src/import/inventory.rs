//! Devices and cables as inventories and labs list them, and the fabric that they are.
//!
//! The common part of the imports of containerlab and NetBox. The decision: they become an explicit
//! document, which is checked as any other; an error names the field of the file that was read. A
//! NIC's index is the place of its interface among those of its host, in natural order (`eth2`
//! before `eth10`). The port of a switch is the number that its interface ends with, or that place
//! where two end with the same one.

use std::collections::{BTreeMap, BTreeSet};

use super::{ImportError, ImportedFabric};
use crate::draft::generated_address;
use crate::export::facts;
use crate::fabric::{Fabric, LinkScheduler, Tier};
use crate::ids::SwitchId;
use crate::spec::{FabricDocument, HostDocument, LinkDocument, SwitchDocument};

/// What is assumed where a file does not say it.
#[derive(Clone, Debug, PartialEq)]
pub struct InventoryAssumptions {
    /// GPUs of a host.
    pub gpus_per_host: u32,
    /// Each cable, in Gb/s.
    pub gbps: f64,
}

impl Default for InventoryAssumptions {
    /// Hosts of 8 GPUs, cables of 400 Gb/s.
    fn default() -> Self {
        Self { gpus_per_host: 8, gbps: 400.0 }
    }
}

/// A host or a switch of a file.
pub(super) struct ListedDevice {
    pub(super) name: String,
    /// Where it is in the file, for errors.
    pub(super) field: String,
    pub(super) role: DeviceRole,
    /// What else is said of it, by name.
    pub(super) facts: BTreeMap<String, String>,
    /// Addresses by interface, where a file has them so.
    pub(super) addresses: BTreeMap<String, String>,
}

pub(super) enum DeviceRole {
    Host,
    Switch(Tier),
}

/// A cable of a file.
pub(super) struct ListedCable {
    /// Where it is in the file, for errors.
    pub(super) field: String,
    /// Names of device and interface.
    pub(super) ends: [(String, String); 2],
    pub(super) facts: BTreeMap<String, String>,
}

/// All of a file.
pub(super) struct Inventory {
    pub(super) name: String,
    pub(super) devices: Vec<ListedDevice>,
    pub(super) cables: Vec<ListedCable>,
}

/// The port of each interface, by device.
type PortNumbers<'a> = BTreeMap<(&'a str, &'a str), u32>;

/// What was assumed, to be told.
#[derive(Default)]
struct TakenAssumptions {
    speeds: usize,
    gpus: usize,
    addresses: usize,
    device_ids: usize,
}

pub(super) fn field_error(field: impl Into<String>, problem: impl Into<String>) -> ImportError {
    ImportError::Field { field: field.into(), problem: problem.into() }
}

/// `leaf`, `spine`, `core`, or another usual word for a tier; none for other words.
pub(super) fn tier_named(word: &str) -> Option<Tier> {
    match word.to_ascii_lowercase().as_str() {
        "leaf" | "tor" | "top-of-rack" => Some(Tier::Leaf),
        "spine" | "aggregation" => Some(Tier::Spine),
        "core" | "superspine" | "super-spine" => Some(Tier::Core),
        _ => None,
    }
}

impl Inventory {
    /// The fabric, with what had to be assumed.
    ///
    /// # Errors
    /// A field has a value that is none, or the devices and cables are no fabric.
    pub(super) fn into_fabric(
        self,
        assumptions: &InventoryAssumptions,
    ) -> Result<ImportedFabric, ImportError> {
        self.check_host_cables()?;
        let mut taken = TakenAssumptions::default();
        let ports = self.number_ports();
        let document = FabricDocument {
            name: self.name.clone(),
            clos: None,
            switches: self.switch_documents(&mut taken)?,
            hosts: self.host_documents(&ports, assumptions, &mut taken)?,
            links: self.link_documents(&ports, assumptions, &mut taken)?,
            ..FabricDocument::default()
        };
        let fabric = Fabric::try_from(&document)
            .map_err(|error| field_error(self.source_field(&error.field), error.problem))?;
        let assumptions = taken.sentences(assumptions);
        Ok(ImportedFabric { fabric, skipped: BTreeMap::new(), assumptions })
    }

    /// Before addresses are generated, which needs leaves.
    fn check_host_cables(&self) -> Result<(), ImportError> {
        let hosts: BTreeSet<&str> = self.hosts().map(|host| host.name.as_str()).collect();
        let others = self.switches().filter(|(_, tier)| *tier != Tier::Leaf);
        let others: BTreeSet<&str> = others.map(|(switch, _)| switch.name.as_str()).collect();
        let is_wrong =
            |a: &str, b: &str| hosts.contains(a) && (hosts.contains(b) || others.contains(b));
        for cable in &self.cables {
            let [(a, _), (b, _)] = &cable.ends;
            if is_wrong(a, b) || is_wrong(b, a) {
                let problem = format!("connects {a} and {b}; hosts connect to leaves");
                return Err(field_error(&cable.field, problem));
            }
        }
        Ok(())
    }

    fn switches(&self) -> impl Iterator<Item = (&ListedDevice, Tier)> {
        self.devices.iter().filter_map(|device| match device.role {
            DeviceRole::Switch(tier) => Some((device, tier)),
            DeviceRole::Host => None,
        })
    }

    fn hosts(&self) -> impl Iterator<Item = &ListedDevice> {
        self.devices.iter().filter(|device| matches!(device.role, DeviceRole::Host))
    }

    fn number_ports(&self) -> PortNumbers<'_> {
        let mut interfaces: BTreeMap<&str, BTreeSet<NaturalName<'_>>> = BTreeMap::new();
        for (device, interface) in self.cables.iter().flat_map(|cable| &cable.ends) {
            interfaces.entry(device).or_default().insert(NaturalName::of(interface));
        }
        let mut ports = BTreeMap::new();
        let hosts: BTreeSet<&str> = self.hosts().map(|host| host.name.as_str()).collect();
        for (device, names) in interfaces {
            let written: BTreeSet<u32> =
                names.iter().filter_map(NaturalName::last_number).collect();
            let is_written = !hosts.contains(device) && written.len() == names.len();
            for (place, name) in (0..).zip(&names) {
                let place = if hosts.contains(device) { place } else { place + 1 };
                let written = name.last_number().filter(|_| is_written);
                ports.insert((device, name.text), written.unwrap_or(place));
            }
        }
        ports
    }

    fn switch_documents(
        &self,
        taken: &mut TakenAssumptions,
    ) -> Result<Vec<SwitchDocument>, ImportError> {
        let switches = (1..).zip(self.switches()).map(|(place, (switch, tier))| {
            let device_id = match switch.number::<u64>(facts::DEVICE_ID)? {
                Some(id) => id,
                None => {
                    taken.device_ids += 1;
                    place
                }
            };
            let p4runtime = switch.facts.get(facts::P4RUNTIME).cloned();
            let gnmi = switch.facts.get(facts::GNMI).cloned();
            Ok(SwitchDocument {
                name: switch.name.clone(),
                tier,
                device_id,
                p4runtime,
                gnmi,
                pipeline: None,
                queues: None,
            })
        });
        switches.collect()
    }

    fn host_documents(
        &self,
        ports: &PortNumbers<'_>,
        assumptions: &InventoryAssumptions,
        taken: &mut TakenAssumptions,
    ) -> Result<Vec<HostDocument>, ImportError> {
        let mut generated = GeneratedAddresses::new(self);
        let hosts = self.hosts().map(|host| {
            let gpus = match host.number::<u32>(facts::GPUS)? {
                Some(gpus) => gpus,
                None => {
                    taken.gpus += 1;
                    assumptions.gpus_per_host
                }
            };
            let list = |name| host.facts.get(name).map_or_else(Vec::new, |text| split_list(text));
            let mut ips = match host.addresses.is_empty() {
                true => list(facts::IPS),
                false => host.listed_addresses(ports)?,
            };
            if ips.is_empty() {
                ips = generated.addresses_of(&host.name);
                taken.addresses += ips.len();
            }
            let macs = list(facts::MACS);
            Ok(HostDocument { name: host.name.clone(), gpus, ips, macs, interconnect: None })
        });
        hosts.collect()
    }

    fn link_documents(
        &self,
        ports: &PortNumbers<'_>,
        assumptions: &InventoryAssumptions,
        taken: &mut TakenAssumptions,
    ) -> Result<Vec<LinkDocument>, ImportError> {
        let end = |(device, interface): &(String, String)| {
            format!("{device}:{}", ports[&(device.as_str(), interface.as_str())])
        };
        let links = self.cables.iter().map(|cable| {
            let gbps = match cable.facts.get(facts::GBPS) {
                Some(text) => text.parse().map_err(|_| {
                    field_error(&cable.field, format!("{text:?} is no speed in Gb/s"))
                })?,
                None => {
                    taken.speeds += 1;
                    assumptions.gbps
                }
            };
            let [a, b] = cable.ends.each_ref().map(end);
            Ok(LinkDocument { a, b, gbps, scheduler: cable.scheduler()?, metres: None })
        });
        links.collect()
    }

    /// The field of the file for one of the document, such as `links[3].b`.
    fn source_field(&self, field: &str) -> String {
        let index = |text: &str| text.split_once(']').and_then(|(index, _)| index.parse().ok());
        let found: Option<&String> = match field.split_once('[') {
            Some(("links", rest)) => {
                index(rest).and_then(|at: usize| self.cables.get(at)).map(|cable| &cable.field)
            }
            Some(("hosts", rest)) => {
                index(rest).and_then(|at| self.hosts().nth(at)).map(|host| &host.field)
            }
            Some(("switches", rest)) => {
                index(rest).and_then(|at| self.switches().nth(at)).map(|(switch, _)| &switch.field)
            }
            _ => None,
        };
        found.map_or(field, String::as_str).to_owned()
    }
}

impl ListedDevice {
    fn number<T: std::str::FromStr>(&self, fact: &str) -> Result<Option<T>, ImportError> {
        let invalid = |text: &String| {
            field_error(&self.field, format!("{fact} {text:?} is not a whole number in range"))
        };
        let text = self.facts.get(fact);
        text.map(|text| text.parse().map_err(|_| invalid(text))).transpose()
    }

    /// Addresses in the order of its NICs.
    fn listed_addresses(&self, ports: &PortNumbers<'_>) -> Result<Vec<String>, ImportError> {
        let own = ports.range((self.name.as_str(), "")..);
        let own = own.take_while(|((device, _), _)| *device == self.name);
        let by_port: BTreeMap<u32, &str> =
            own.map(|((_, interface), port)| (*port, *interface)).collect();
        let find = |interface: &&str| {
            let address = self.addresses.get(*interface).cloned();
            address.ok_or_else(|| {
                let problem = format!("{interface} has a cable, but no address: add one");
                field_error(&self.field, problem)
            })
        };
        by_port.values().map(find).collect()
    }
}

impl ListedCable {
    fn scheduler(&self) -> Result<Option<LinkScheduler>, ImportError> {
        let Some(name) = self.facts.get(facts::SCHEDULER) else {
            return Ok(None);
        };
        facts::scheduler_named(name).map(Some).ok_or_else(|| {
            let problem = format!("{name:?} is no scheduler: use fifo, strict or host-strict");
            field_error(&self.field, problem)
        })
    }
}

/// Addresses by the place of a NIC on its leaf, as of generated fabrics.
struct GeneratedAddresses<'a> {
    /// Interfaces with a cable to a leaf, by host.
    uplinks: BTreeMap<&'a str, Vec<(NaturalName<'a>, SwitchId)>>,
    /// NICs that have an address, by leaf.
    places: BTreeMap<SwitchId, u32>,
    leaves: u32,
}

impl<'a> GeneratedAddresses<'a> {
    fn new(inventory: &'a Inventory) -> Self {
        let leaves = inventory.switches().filter(|(_, tier)| *tier == Tier::Leaf);
        let leaves = leaves.enumerate().map(|(index, (leaf, _))| (&*leaf.name, index.into()));
        let leaves: BTreeMap<&str, SwitchId> = leaves.collect();
        let mut uplinks: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for [a, b] in inventory.cables.iter().map(|cable| &cable.ends) {
            for ((host, interface), (other, _)) in [(a, b), (b, a)] {
                if let Some(leaf) = leaves.get(other.as_str()) {
                    uplinks.entry(host).or_default().push((NaturalName::of(interface), *leaf));
                }
            }
        }
        uplinks.values_mut().for_each(|interfaces| interfaces.sort());
        Self { uplinks, places: BTreeMap::new(), leaves: leaves.len() as u32 }
    }

    /// One for each cable of a host to a leaf, in the natural order of its interfaces.
    fn addresses_of(&mut self, host: &str) -> Vec<String> {
        let generate = |(_, leaf): (_, SwitchId)| {
            let place = self.places.entry(leaf).or_default();
            *place += 1;
            generated_address(leaf, *place, self.leaves, false).0.to_string()
        };
        self.uplinks.remove(host).unwrap_or_default().into_iter().map(generate).collect()
    }
}

/// A name of an interface, ordered by its numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NaturalName<'a> {
    /// Texts and the numbers that follow them.
    parts: Vec<(&'a str, Option<u32>)>,
    text: &'a str,
}

impl<'a> NaturalName<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(digits);
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            let (number, tail) = tail.split_at(end);
            parts.push((word, number.parse().ok()));
            rest = tail;
        }
        Self { parts, text }
    }

    fn last_number(&self) -> Option<u32> {
        self.parts.last()?.1
    }
}

impl TakenAssumptions {
    fn sentences(&self, assumptions: &InventoryAssumptions) -> Vec<String> {
        let kinds = [
            (self.gpus, format!("{} GPUs in each of", assumptions.gpus_per_host), "hosts"),
            (self.speeds, format!("{} Gb/s of each of", assumptions.gbps), "cables"),
            (self.addresses, "addresses 10.LEAF.LEAF.PLACE of".to_owned(), "NICs"),
            (
                self.device_ids,
                "P4Runtime device ids in the order of the file of".to_owned(),
                "switches",
            ),
        ];
        let assumed = kinds.into_iter().filter(|(count, ..)| *count > 0);
        assumed.map(|(count, what, of)| format!("{what} {count} {of}")).collect()
    }
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
