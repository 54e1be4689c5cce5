//! Devices and cables as inventories and labs list them, and the fabric that they are.
//!
//! The common part of the imports of containerlab, p4-utils and NetBox: what a device is
//! ([`roles`](super::roles)), omissions, and assumptions. The decision: devices and
//! cables become an explicit document, which is checked as any other; an error names the field of
//! the file that was read. A NIC's index is the place of its interface among those of its host, in
//! natural order (`eth2` before `eth10`). The port of a switch is the number that its interface
//! ends with; where two end with the same one, or one has no number that a port can have, all ports
//! of the switch are numbered in natural order. Names of ports are kept.

use std::collections::{BTreeMap, BTreeSet};

use super::left_out::ImportNotes;
use super::{ImportError, ImportedFabric};
use crate::document::nearest_name;
use crate::draft::{CPU_PORT, MAX_PORT, generated_address};
use crate::export::facts;
use crate::fabric::{Fabric, LinkScheduler, Tier};
use crate::finding::{count_noun, list_names};
use crate::ids::SwitchId;
use crate::natural_name::NaturalName;
use crate::spec::{
    CABLES_OF_NIC, FabricDocument, HostDocument, LinkDocument, PORTS_REMEDY, SwitchDocument,
};
use crate::units::MacAddress;

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
    /// Whether the file says so much of it that it stays without a cable.
    pub(super) is_complete: bool,
    /// What else is said of it, by name.
    pub(super) facts: BTreeMap<String, String>,
    /// Addresses by interface, where a file has them so.
    pub(super) addresses: BTreeMap<String, String>,
    /// Ethernet addresses by interface.
    pub(super) macs: BTreeMap<String, String>,
    /// Interfaces that are the second port of a NIC, with that of the first.
    pub(super) bonds: BTreeMap<String, String>,
}

/// What a file says that a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceRole {
    Host,
    /// A switch, perhaps without a tier.
    Switch(Option<Tier>),
    /// Either.
    Unknown,
}

/// An end of a cable.
#[derive(Clone, Debug)]
pub(super) struct CableEnd {
    pub(super) device: String,
    pub(super) interface: String,
    /// The number of the port, where a file states it.
    pub(super) port: Option<u32>,
}

/// A cable of a file.
pub(super) struct ListedCable {
    /// Where it is in the file, for errors.
    pub(super) field: String,
    pub(super) ends: [CableEnd; 2],
    pub(super) facts: BTreeMap<String, String>,
}

/// What to do for NICs without an address of hosts that have some.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingAddress {
    /// One is generated.
    Generate,
    /// The file is refused.
    Refuse,
}

/// All of a file.
pub(super) struct Inventory {
    pub(super) name: Option<String>,
    /// The name of a fabric whose file has none.
    pub(super) usual_name: &'static str,
    /// What the file calls its devices: `node`, `device`.
    pub(super) device_noun: &'static str,
    /// What the names of all our facts begin with, where others' names do not stand among them.
    pub(super) fact_prefix: Option<&'static str>,
    /// How a file states the tier of a switch, for errors.
    pub(super) tier_remedy: &'static str,
    /// Where devices are in the file, for errors.
    pub(super) devices_field: String,
    pub(super) devices: Vec<ListedDevice>,
    pub(super) cables: Vec<ListedCable>,
    pub(super) missing_address: MissingAddress,
    /// The name that the export of the format gives to a port; others are kept as names.
    pub(super) generated_port_name: fn(u32) -> String,
    pub(super) notes: ImportNotes,
}

/// The port of each interface, by device.
type PortNumbers = BTreeMap<(String, String), u32>;

/// What was assumed, to be told.
#[derive(Default)]
struct TakenAssumptions {
    speeds: usize,
    gpus: usize,
    addresses: usize,
    macs: usize,
    device_ids: usize,
}

pub(super) fn field_error(field: impl Into<String>, problem: impl Into<String>) -> ImportError {
    ImportError::Field { field: field.into(), problem: problem.into() }
}

impl Inventory {
    /// The fabric, with what had to be assumed.
    ///
    /// # Errors
    /// A field has an invalid value, or the devices and cables are no fabric.
    pub(super) fn into_fabric(
        mut self,
        assumptions: &InventoryAssumptions,
    ) -> Result<ImportedFabric, ImportError> {
        self.check_facts()?;
        self.check_interfaces()?;
        self.resolve_roles()?;
        self.check_host_cables()?;
        self.read_bonds()?;
        if self.switches().next().is_none() {
            return Err(self.no_switch_error());
        }
        let name = self.name.take().unwrap_or_else(|| {
            self.notes.assumptions.push(format!("the name {}", self.usual_name));
            self.usual_name.to_owned()
        });
        let mut taken = TakenAssumptions::default();
        let ports = self.number_ports();
        let document = FabricDocument {
            name,
            clos: None,
            switches: self.switch_documents(&ports, &mut taken)?,
            hosts: self.host_documents(&ports, assumptions, &mut taken)?,
            links: self.link_documents(&ports, assumptions, &mut taken)?,
            ..FabricDocument::default()
        };
        let fabric = Fabric::try_from(&document)
            .map_err(|error| field_error(self.source_field(&error.field), error.problem))?;
        self.notes.assumptions.extend(taken.sentences(assumptions));
        let (left_out, assumptions) = self.notes.into_parts();
        Ok(ImportedFabric { fabric, left_out, assumptions })
    }

    /// A label of ours that is misspelt would change the fabric in silence; words of a description
    /// may be anybody's.
    fn check_facts(&mut self) -> Result<(), ImportError> {
        let of_devices = self.devices.iter().map(|device| (&device.field, &device.facts));
        let of_cables = self.cables.iter().map(|cable| (&cable.field, &cable.facts));
        let devices = of_devices.map(|(field, facts)| (field, facts, &facts::OF_DEVICES[..]));
        let cables = of_cables.map(|(field, facts)| (field, facts, &facts::OF_CABLES[..]));
        for (field, facts, known) in devices.chain(cables) {
            for name in facts.keys().filter(|name| !known.contains(&name.as_str())) {
                let Some(prefix) = self.fact_prefix else {
                    self.notes.count_unused_field(format!("description {name}="));
                    continue;
                };
                let meant = nearest_name(name, known.iter().copied());
                let hint = meant.map(|meant| format!("; did you mean {prefix}{meant}?"));
                let problem = format!("{prefix}{name} is unknown here{}", hint.unwrap_or_default());
                return Err(field_error(field, problem));
            }
        }
        Ok(())
    }

    /// An interface of a switch has one cable; that of a host may be a bond of two.
    fn check_interfaces(&mut self) -> Result<(), ImportError> {
        let mut used: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        let is_switch = |device: &&ListedDevice| matches!(device.role, DeviceRole::Switch(_));
        let switches = self.devices.iter().filter(is_switch);
        let switches: BTreeSet<&str> = switches.map(|switch| switch.name.as_str()).collect();
        for cable in &self.cables {
            for end in &cable.ends {
                let interface = (end.device.as_str(), end.interface.as_str());
                let fields = used.entry(interface).or_default();
                let (cables_max, hint) = match switches.contains(end.device.as_str()) {
                    true => (1, String::new()),
                    false => (CABLES_OF_NIC, format!("; {PORTS_REMEDY}")),
                };
                if fields.len() == cables_max {
                    let fields = fields.join(" and ");
                    let problem = format!("{end} already has the cable of {fields}{hint}");
                    return Err(field_error(&cable.field, problem));
                }
                fields.push(&cable.field);
            }
        }
        let bonds = used.into_iter().filter(|(_, fields)| fields.len() > 1);
        let bonds: Vec<String> =
            bonds.map(|((device, interface), _)| format!("{device}:{interface}")).collect();
        if !bonds.is_empty() {
            let count = count_noun(bonds.len() as u64, "interface");
            let sentence = format!("bonds of {count} with two cables: {}", list_names(&bonds));
            self.notes.assumptions.push(sentence);
        }
        Ok(())
    }

    fn no_switch_error(mut self) -> ImportError {
        let (left_out, _) = std::mem::take(&mut self.notes).into_parts();
        let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        let noun = self.device_noun;
        let problem = format!(
            "no {noun} is a switch with a cable of the fabric; left out: {}",
            if left_out.is_empty() { "nothing".to_owned() } else { left_out.join("; ") }
        );
        field_error(&self.devices_field, problem)
    }

    /// Before addresses are generated, which needs leaves.
    fn check_host_cables(&self) -> Result<(), ImportError> {
        let hosts: BTreeSet<&str> = self.hosts().map(|host| host.name.as_str()).collect();
        let others = self.switches().filter(|(_, tier)| *tier != Tier::Leaf);
        let others: BTreeSet<&str> = others.map(|(switch, _)| switch.name.as_str()).collect();
        let is_wrong =
            |a: &str, b: &str| hosts.contains(a) && (hosts.contains(b) || others.contains(b));
        for cable in &self.cables {
            let [a, b] = cable.ends.each_ref().map(|end| end.device.as_str());
            if is_wrong(a, b) || is_wrong(b, a) {
                let problem = format!("connects {a} and {b}; hosts connect to leaves");
                return Err(field_error(&cable.field, problem));
            }
        }
        Ok(())
    }

    /// The bonds of which hosts state the numbers of the interfaces.
    fn read_bonds(&mut self) -> Result<(), ImportError> {
        let stated: Vec<_> =
            self.hosts().filter_map(|host| Some((host, host.facts.get(facts::BONDS)?))).collect();
        if stated.is_empty() {
            return Ok(());
        }
        let interfaces = self.interfaces_by_device();
        let mut bonds: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (host, list) in stated {
            let refuse = |part: &str| {
                let problem =
                    format!("bonds {part:?} is invalid: write FIRST+SECOND, numbers of interfaces");
                field_error(&host.field, problem)
            };
            let own = interfaces.get(host.name.as_str());
            let name = |number: usize| {
                let name = own.and_then(|own| own.keys().nth(number));
                name.map(|name| name.text().to_owned()).ok_or_else(|| refuse(list))
            };
            let pairs = facts::read_bonds(list).map_err(refuse)?;
            let mut seen = BTreeSet::new();
            if !pairs.iter().flatten().all(|number| seen.insert(*number)) {
                let problem = format!("bonds {list:?} have an interface twice");
                return Err(field_error(&host.field, problem));
            }
            let named = pairs.into_iter().map(|[first, second]| Ok((name(second)?, name(first)?)));
            bonds.insert(host.name.clone(), named.collect::<Result<_, ImportError>>()?);
        }
        for device in &mut self.devices {
            device.bonds.extend(bonds.remove(&device.name).unwrap_or_default());
        }
        Ok(())
    }

    /// The interfaces with a cable, in natural order, with the number of a port where it is stated.
    fn interfaces_by_device(&self) -> BTreeMap<&str, BTreeMap<NaturalName<'_>, Option<u32>>> {
        let mut interfaces: BTreeMap<&str, BTreeMap<NaturalName<'_>, Option<u32>>> =
            BTreeMap::new();
        for end in self.cables.iter().flat_map(|cable| &cable.ends) {
            let name = NaturalName::of(&end.interface);
            interfaces.entry(&end.device).or_default().insert(name, end.port);
        }
        interfaces
    }

    fn switches(&self) -> impl Iterator<Item = (&ListedDevice, Tier)> {
        self.devices.iter().filter_map(|device| match device.role {
            DeviceRole::Switch(tier) => Some((device, tier?)),
            DeviceRole::Host | DeviceRole::Unknown => None,
        })
    }

    fn hosts(&self) -> impl Iterator<Item = &ListedDevice> {
        self.devices.iter().filter(|device| device.role == DeviceRole::Host)
    }

    fn number_ports(&mut self) -> PortNumbers {
        let mut ports = PortNumbers::new();
        let mut renumbered = Vec::new();
        let hosts: BTreeMap<&str, &ListedDevice> =
            self.hosts().map(|host| (host.name.as_str(), host)).collect();
        for (device, mut names) in self.interfaces_by_device() {
            let is_host = hosts.contains_key(device);
            let bonds = hosts.get(device).map(|host| &host.bonds);
            names.retain(|name, _| bonds.is_none_or(|bonds| !bonds.contains_key(name.text())));
            let written: Vec<Option<u32>> = names
                .iter()
                .map(|(name, stated)| stated.or_else(|| name.last_number().filter(is_usual_port)))
                .collect();
            let different: BTreeSet<u32> = written.iter().flatten().copied().collect();
            let is_written = !is_host && different.len() == names.len();
            if !is_host && !is_written {
                renumbered.push(device);
            }
            for ((place, name), written) in (0..).zip(names.keys()).zip(written) {
                // Ports count from 1 and leave out the one of the controller.
                let port = match place + 1 {
                    _ if is_host => place,
                    port if port < CPU_PORT => port,
                    port => port + 1,
                };
                let port = written.filter(|_| is_written).unwrap_or(port);
                ports.insert((device.to_owned(), name.text().to_owned()), port);
            }
            for (second, first) in bonds.into_iter().flatten() {
                let of_first = ports.get(&(device.to_owned(), first.clone())).copied();
                ports.extend(of_first.map(|port| ((device.to_owned(), second.clone()), port)));
            }
        }
        if !renumbered.is_empty() {
            let sentence = format!(
                "ports by the order of their interfaces, whose numbers repeat or are none of 1 to \
                 {MAX_PORT}, on {} switches: {}",
                renumbered.len(),
                list_names(&renumbered)
            );
            self.notes.assumptions.push(sentence);
        }
        ports
    }

    fn switch_documents(
        &self,
        ports: &PortNumbers,
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
                port_names: self.port_names(switch, ports)?,
                pipeline: None,
                queues: None,
            })
        });
        switches.collect()
    }

    /// The names of a switch's ports that its export would not give them.
    fn port_names(
        &self,
        switch: &ListedDevice,
        ports: &PortNumbers,
    ) -> Result<BTreeMap<String, u32>, ImportError> {
        if let Some(list) = switch.facts.get(facts::PORT_NAMES) {
            return facts::read_port_names(list).map_err(|text| {
                let problem = format!("port-names {text:?} is invalid: write NAME=PORT,NAME=PORT");
                field_error(&switch.field, problem)
            });
        }
        let own = interfaces_of(&switch.name, ports);
        let unusual = own.filter(|(name, port)| *name != (self.generated_port_name)(*port));
        Ok(unusual.map(|(name, port)| (name.to_owned(), port)).collect())
    }

    fn host_documents(
        &self,
        ports: &PortNumbers,
        assumptions: &InventoryAssumptions,
        taken: &mut TakenAssumptions,
    ) -> Result<Vec<HostDocument>, ImportError> {
        let mut generated = GeneratedAddresses::new(self, ports);
        let hosts = self.hosts().map(|host| {
            let gpus = match host.number::<u32>(facts::GPUS)? {
                Some(gpus) => gpus,
                None => {
                    taken.gpus += 1;
                    assumptions.gpus_per_host
                }
            };
            let list = |name| host.facts.get(name).map_or_else(Vec::new, |text| split_list(text));
            let stated = match host.addresses.is_empty() {
                true => list(facts::IPS).into_iter().map(Some).collect(),
                false => host.listed_addresses(ports, self.missing_address)?,
            };
            let stated = match stated.is_empty() {
                true => vec![None; generated.nics_of(&host.name)],
                false => stated,
            };
            let ips = stated.into_iter().enumerate().map(|(nic, stated)| {
                stated.unwrap_or_else(|| {
                    taken.addresses += 1;
                    generated.next_address(&host.name, nic)
                })
            });
            let ips: Vec<String> = ips.collect();
            // Our own exports state Ethernet addresses unless all are made of the others.
            if !host.states(facts::MACS) && !host.states(facts::GPUS) {
                taken.macs += ips.len() - host.macs.len().min(ips.len());
            }
            let macs = match list(facts::MACS) {
                listed if host.macs.is_empty() => listed,
                _ => host.listed_macs(ports, &ips),
            };
            Ok(HostDocument { name: host.name.clone(), gpus, ips, macs, interconnect: None })
        });
        hosts.collect()
    }

    fn link_documents(
        &self,
        ports: &PortNumbers,
        assumptions: &InventoryAssumptions,
        taken: &mut TakenAssumptions,
    ) -> Result<Vec<LinkDocument>, ImportError> {
        let end = |end: &CableEnd| {
            format!("{}:{}", end.device, ports[&(end.device.clone(), end.interface.clone())])
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

    pub(super) fn states(&self, fact: &str) -> bool {
        self.facts.contains_key(fact)
    }

    /// Addresses in the order of its NICs.
    fn listed_addresses(
        &self,
        ports: &PortNumbers,
        missing: MissingAddress,
    ) -> Result<Vec<Option<String>>, ImportError> {
        let find = |interfaces: Vec<&str>| {
            let found = interfaces.iter().find_map(|name| self.addresses.get(*name));
            if found.is_none() && missing == MissingAddress::Refuse {
                let problem = format!("{} has a cable, but no address: add one", interfaces[0]);
                return Err(field_error(&self.field, problem));
            }
            Ok(found.cloned())
        };
        self.interfaces_of_nics(ports).into_iter().map(find).collect()
    }

    /// Ethernet addresses in the order of its NICs; one that is not listed follows from the IP
    /// address.
    fn listed_macs(&self, ports: &PortNumbers, ips: &[String]) -> Vec<String> {
        let macs = self.interfaces_of_nics(ports).into_iter().zip(ips).map(|(interfaces, ip)| {
            let listed = interfaces.iter().find_map(|name| self.macs.get(*name)).cloned();
            let made = || ip.parse().map(|ip| MacAddress::from_ip(ip).to_string());
            listed.unwrap_or_else(|| made().unwrap_or_default())
        });
        macs.collect()
    }

    /// The interfaces of each NIC, the NICs in order.
    fn interfaces_of_nics<'a>(&self, ports: &'a PortNumbers) -> Vec<Vec<&'a str>> {
        let mut by_port: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (interface, port) in interfaces_of(&self.name, ports) {
            by_port.entry(port).or_default().push(interface);
        }
        by_port.into_values().collect()
    }
}

/// The interfaces of a device that have a cable, with their ports.
fn interfaces_of<'a>(device: &str, ports: &'a PortNumbers) -> impl Iterator<Item = (&'a str, u32)> {
    let own = ports.range((device.to_owned(), String::new())..);
    let own = own.take_while(move |((other, _), _)| other == device);
    own.map(|((_, interface), port)| (interface.as_str(), *port))
}

/// A number that a port with a cable may have.
fn is_usual_port(number: &u32) -> bool {
    (1..=MAX_PORT).contains(number) && *number != CPU_PORT
}

impl std::fmt::Display for CableEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.device, self.interface)
    }
}

impl ListedCable {
    /// Both ends and the place in the file.
    pub(super) fn name(&self) -> String {
        let [a, b] = &self.ends;
        format!("{a}-{b} ({})", self.field)
    }

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
struct GeneratedAddresses {
    /// The leaf of each NIC with a cable to one, of several the first, by host, in order.
    uplinks: BTreeMap<String, Vec<SwitchId>>,
    /// NICs that have an address, by leaf.
    places: BTreeMap<SwitchId, u32>,
    leaves: u32,
    /// Addresses that the file states.
    stated: BTreeSet<String>,
}

impl GeneratedAddresses {
    fn new(inventory: &Inventory, ports: &PortNumbers) -> Self {
        let leaves = inventory.switches().filter(|(_, tier)| *tier == Tier::Leaf);
        let leaves = leaves.enumerate().map(|(index, (leaf, _))| (&*leaf.name, index.into()));
        let leaves: BTreeMap<&str, SwitchId> = leaves.collect();
        let mut uplinks: BTreeMap<&str, BTreeMap<u32, SwitchId>> = BTreeMap::new();
        for [a, b] in inventory.cables.iter().map(|cable| &cable.ends) {
            for (host, other) in [(a, b), (b, a)] {
                if let Some(leaf) = leaves.get(other.device.as_str()) {
                    let port = ports[&(host.device.clone(), host.interface.clone())];
                    uplinks.entry(&host.device).or_default().entry(port).or_insert(*leaf);
                }
            }
        }
        let in_order =
            uplinks.into_iter().map(|(host, nics)| (host.to_owned(), nics.into_values().collect()));
        let listed = inventory.hosts().flat_map(|host| {
            let facts = host.facts.get(facts::IPS).into_iter().flat_map(|list| split_list(list));
            host.addresses.values().cloned().chain(facts).collect::<Vec<_>>()
        });
        Self {
            uplinks: in_order.collect(),
            places: BTreeMap::new(),
            leaves: leaves.len() as u32,
            stated: listed.collect(),
        }
    }

    fn nics_of(&self, host: &str) -> usize {
        self.uplinks.get(host).map_or(0, Vec::len)
    }

    /// One for a NIC of a host, on the leaf that its cable leads to.
    fn next_address(&mut self, host: &str, nic: usize) -> String {
        let leaf = self.uplinks.get(host).and_then(|leaves| leaves.get(nic).copied());
        let leaf = leaf.unwrap_or_else(|| SwitchId::from(0));
        let place = self.places.entry(leaf).or_default();
        loop {
            *place += 1;
            let (ip, _) = generated_address(leaf, *place, self.leaves, false);
            if !self.stated.contains(&ip.to_string()) {
                return ip.to_string();
            }
        }
    }
}

impl TakenAssumptions {
    fn sentences(&self, assumptions: &InventoryAssumptions) -> Vec<String> {
        let kinds = [
            (self.gpus, format!("{} GPUs in each of", assumptions.gpus_per_host), "hosts"),
            (self.speeds, format!("{} Gb/s of each of", assumptions.gbps), "cables"),
            (self.addresses, "addresses 10.LEAF.LEAF.PLACE of".to_owned(), "NICs"),
            (self.macs, "Ethernet addresses made of the IP addresses of".to_owned(), "NICs"),
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
