//! Tables of NetBox (CSV): devices, interfaces, cables, and addresses if there are any.
//!
//! Columns are those of NetBox's bulk import, or those of its exported tables (`Device A`,
//! `Termination A`). The role of a device, by its slug or its name, says what it is; devices of
//! other roles are left out with their cables, and so is what is planned or being removed. Cables
//! are followed through patch panels. The speed of a cable is the lower one of its ends, from the
//! interface (kb/s) or from its type. The address of a bond, a bridge or a subinterface is that of
//! the interface below it that has a cable.

mod panels;

use std::collections::{BTreeMap, BTreeSet};

use self::panels::{CableRow, PortKind, Side, trace_cables};
use super::csv_table::{Column, CsvRow, CsvTable};
use super::inventory::{
    CableEnd, DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice,
    MissingAddress, field_error,
};
use super::left_out::ImportNotes;
use super::roles::{TakenPhrases, role_named};
use super::{ImportError, ImportedFabric, NetboxTable};
use crate::export::facts;
use crate::export::netbox::{INTERFACE_TYPES, KBPS_PER_GBPS};
use crate::finding::count_noun;
use crate::spec::PORTS_REMEDY;

const NAME: Column = &["name"];
const ROLE: Column = &["role", "device_role", "device role"];
const SITE: Column = &["site"];
const STATUS: Column = &["status"];
const DESCRIPTION: Column = &["description"];
const DEVICE: Column = &["device"];
const TYPE: Column = &["type"];
const SPEED: Column = &["speed", "speed (kbps)"];
const MANAGEMENT: Column = &["mgmt_only", "management only"];
const ENABLED: Column = &["enabled"];
/// Interfaces above another one: bonds, subinterfaces and bridges.
const LAG: Column = &["lag", "parent lag"];
const PARENT: Column = &["parent", "parent interface"];
const BRIDGE: Column = &["bridge", "bridged interface", "bridge interface"];
const ADDRESS: Column = &["address", "ip address"];
const ADDRESS_DEVICE: Column = &["device", "parent"];
const INTERFACE: Column = &["interface", "assigned_object", "assigned object"];
/// Device, kind of port, and port of both sides of a cable.
const SIDES: [[Column; 3]; 2] = [
    [
        &["side_a_device", "device a", "side a"],
        &["side_a_type", "termination_a_type"],
        &["side_a_name", "termination a"],
    ],
    [
        &["side_b_device", "device b", "side b"],
        &["side_b_type", "termination_b_type"],
        &["side_b_name", "termination b"],
    ],
];

/// Texts of the tables.
#[derive(Clone, Copy, Debug)]
pub struct NetboxTables<'a> {
    /// Hosts and switches.
    pub devices: &'a str,
    /// Interfaces of devices.
    pub interfaces: &'a str,
    /// Cables between interfaces.
    pub cables: &'a str,
    /// IP addresses of interfaces; generated without them.
    pub addresses: Option<&'a str>,
}

/// An interface, by device and name.
type InterfaceName<'a> = (&'a str, &'a str);
type Interfaces<'a> = BTreeMap<InterfaceName<'a>, CsvRow<'a>>;

/// The fabric of NetBox's tables; its name is the site of the first device.
///
/// # Errors
/// A table has not its columns, a cell cannot be read, or devices and cables are no fabric; the
/// error names table, row and column.
pub fn import_netbox(
    tables: &NetboxTables<'_>,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let mut notes = ImportNotes::default();
    let devices = CsvTable::parse(NetboxTable::Devices, tables.devices, &[NAME, ROLE])?;
    let interfaces = CsvTable::parse(NetboxTable::Interfaces, tables.interfaces, &[DEVICE, NAME])?;
    let cables = parse_cables(tables.cables)?;
    let addresses = tables.addresses.map(|text| {
        CsvTable::parse(NetboxTable::Addresses, text, &[ADDRESS, ADDRESS_DEVICE, INTERFACE])
    });
    let addresses = addresses.transpose()?;
    let site = devices.rows().next().map_or("", |row| row.cell(SITE));
    let index = index_interfaces(&interfaces)?;
    let mut listed = listed_devices(&devices, &mut notes);
    let names: BTreeSet<&str> = listed.iter().map(|device| device.name.as_str()).collect();
    let all: BTreeSet<&str> = devices.rows().map(|row| row.cell(NAME)).collect();
    let tables = InterfaceTables { names: &names, all: &all, index: &index };
    let cables_of = tables.read_cables(&cables, &mut notes)?;
    if let Some(addresses) = &addresses {
        let cabled = cabled_interfaces(&cables_of);
        let by_device = read_addresses(addresses, &index, &cabled, &mut notes)?;
        for device in &mut listed {
            let of_device = by_device.get(&device.name).cloned().unwrap_or_default();
            (device.addresses, device.bonds) = (of_device.addresses, of_device.bonds);
        }
    }
    count_unused(&devices, &[NAME, ROLE, SITE, STATUS, DESCRIPTION], &mut notes);
    let used = [DEVICE, NAME, TYPE, SPEED, DESCRIPTION, MANAGEMENT, ENABLED, LAG, PARENT, BRIDGE];
    count_unused(&interfaces, &used, &mut notes);
    let used: Vec<Column> = SIDES.into_iter().flatten().chain([STATUS]).collect();
    count_unused(&cables, &used, &mut notes);
    if let Some(addresses) = &addresses {
        let used = [ADDRESS, ADDRESS_DEVICE, INTERFACE, STATUS];
        count_unused(addresses, &used, &mut notes);
    }
    let inventory = Inventory {
        name: Some(site.to_owned()).filter(|site| !site.is_empty()),
        usual_name: "netbox",
        device_noun: "device",
        fact_prefix: None,
        tier_remedy: "role leaf, spine or core",
        devices_field: "devices".to_owned(),
        devices: listed,
        cables: cables_of,
        missing_address: MissingAddress::Refuse,
        generated_port_name: |port| format!("port{port}"),
        notes,
    };
    inventory.into_fabric(assumptions)
}

fn count_unused(table: &CsvTable, used: &[Column], notes: &mut ImportNotes) {
    for (column, count) in table.unused_columns(used) {
        (0..count).for_each(|_| notes.count_unused_field(&*column));
    }
}

/// The table of cables; one with ids alone is an export that has not what is needed.
fn parse_cables(text: &str) -> Result<CsvTable, ImportError> {
    let needed: Vec<Column> =
        SIDES.into_iter().flat_map(|[device, _, name]| [device, name]).collect();
    CsvTable::parse(NetboxTable::Cables, text, &needed).map_err(|error| match error {
        ImportError::Field { field, problem } => {
            let remedy = "; export the view of NetBox's cables with the columns Device A, \
                          Termination A, Device B, Termination B and Status, or write the columns \
                          of its bulk import";
            field_error(field, problem + remedy)
        }
        other => other,
    })
}

fn index_interfaces(table: &CsvTable) -> Result<Interfaces<'_>, ImportError> {
    let mut interfaces = BTreeMap::new();
    for row in table.rows() {
        if interfaces.insert((row.cell(DEVICE), row.cell(NAME)), row).is_some() {
            return Err(row.error(NAME, "the device has another interface of that name"));
        }
    }
    Ok(interfaces)
}

/// Whether a status says that something is not there, or not any more.
fn is_absent(status: &str) -> bool {
    ["planned", "decommissioning", "inventory"].contains(&status.to_lowercase().as_str())
}

/// Hosts and switches; others are left out by their role.
fn listed_devices(devices: &CsvTable, notes: &mut ImportNotes) -> Vec<ListedDevice> {
    let mut phrases = TakenPhrases::default();
    let listed = devices.rows().filter_map(|row| {
        let (name, status) = (row.cell(NAME), row.cell(STATUS));
        let named = if name.is_empty() { row.field() } else { name.to_owned() };
        if is_absent(status) || name.is_empty() {
            let reason = match name {
                "" => "no name".to_owned(),
                _ => format!("status {}", status.to_lowercase()),
            };
            notes.leave_out("device", reason, named);
            return None;
        }
        let facts = description_facts(row);
        let Some(role) = role_named(row.cell(ROLE)) else {
            let reason = format!("role {:?} is neither a switch nor a host", row.cell(ROLE));
            notes.leave_out("device", reason, named);
            return None;
        };
        phrases.add(row.cell(ROLE), role);
        let role = match facts.get(facts::TIER).and_then(|tier| role_named(tier)) {
            Some(DeviceRole::Switch(Some(tier))) => DeviceRole::Switch(Some(tier)),
            _ => role,
        };
        let is_complete =
            matches!(role, DeviceRole::Switch(Some(_))) || facts.contains_key(facts::GPUS);
        Some(ListedDevice {
            name: named,
            field: row.field(),
            role,
            is_complete,
            facts,
            addresses: BTreeMap::new(),
            macs: BTreeMap::new(),
            bonds: BTreeMap::new(),
        })
    });
    let listed = listed.collect();
    notes.assumptions.extend(phrases.sentence("role"));
    listed
}

/// What decides whether a cable is one of the fabric.
struct InterfaceTables<'a> {
    /// Hosts and switches.
    names: &'a BTreeSet<&'a str>,
    /// All devices.
    all: &'a BTreeSet<&'a str>,
    index: &'a Interfaces<'a>,
}

impl InterfaceTables<'_> {
    fn read_cables(
        &self,
        table: &CsvTable,
        notes: &mut ImportNotes,
    ) -> Result<Vec<ListedCable>, ImportError> {
        let mut rows = Vec::new();
        for row in table.rows() {
            let status = row.cell(STATUS);
            let is_present = status.is_empty() || status.eq_ignore_ascii_case("connected");
            if !is_present {
                let ends = SIDES
                    .map(|[device, _, name]| format!("{}:{}", row.cell(device), row.cell(name)));
                let name = format!("{} ({})", ends.join("-"), row.field());
                notes.leave_out("cable", format!("status {}", status.to_lowercase()), name);
                continue;
            }
            let sides = [self.read_side(row, SIDES[0])?, self.read_side(row, SIDES[1])?];
            let cable = CableRow { field: row.field(), sides };
            let other = cable.sides.iter().find_map(|side| match &side.kind {
                PortKind::Other(reason) => Some(reason.clone()),
                _ => None,
            });
            let other = other.or(self.reason_for_unlisted(row, &cable)?);
            match other {
                Some(reason) => notes.leave_out("cable", reason, cable.name()),
                None => rows.push(cable),
            }
        }
        let traced = trace_cables(&rows, notes);
        let mut cables = Vec::new();
        let mut of_lanes = 0;
        for cable in traced {
            if let Some(reason) = self.reason_to_leave_out(&cable) {
                notes.leave_out("cable", reason, cable.name());
            } else {
                of_lanes +=
                    cable.sides.iter().filter(|side| has_assumed_lanes(self.row(side))).count();
                cables.push(self.listed_cable(cable)?);
            }
        }
        if of_lanes > 0 {
            let ends = count_noun(of_lanes as u64, "interface");
            notes.assumptions.push(format!("4 lanes of InfiniBand at {ends}"));
        }
        Ok(cables)
    }

    fn read_side(&self, row: CsvRow<'_>, columns: [Column; 3]) -> Result<Side, ImportError> {
        let [device, kind, name] = columns.map(|column| row.cell(column));
        let side = |kind| Side { device: device.to_owned(), name: name.to_owned(), kind };
        let is_known = self.index.contains_key(&(device, name));
        let is_outside = self.all.contains(device) && !self.names.contains(device);
        let kind = kind.rsplit(['.', ' ']).next().unwrap_or_default().to_lowercase();
        Ok(side(match kind.as_str() {
            // An export does not say what it ends at.
            "" if is_known => PortKind::Interface,
            "" if is_outside => PortKind::Panel,
            "interface" if is_outside => PortKind::Interface,
            "" if name.contains(',') => PortKind::Other("several ends on one side".to_owned()),
            "" if self.names.contains(device) => PortKind::Unlisted,
            "" | "interface" if !is_known => {
                let problem =
                    format!("{device} has no interface {name:?} in the table of interfaces");
                return Err(row.error(columns[2], problem));
            }
            "interface" => PortKind::Interface,
            "frontport" => PortKind::Front,
            "rearport" => PortKind::Rear,
            other => PortKind::Other(format!("ends at a port of kind {other}")),
        }))
    }

    /// A cable from a power supply to a PDU is no mistake, one between devices of the fabric is.
    fn reason_for_unlisted(
        &self,
        row: CsvRow<'_>,
        cable: &CableRow,
    ) -> Result<Option<String>, ImportError> {
        let [a, b] = &cable.sides;
        for (side, other, columns) in [(a, b, SIDES[0]), (b, a, SIDES[1])] {
            if side.kind != PortKind::Unlisted {
                continue;
            }
            if self.names.contains(other.device.as_str()) {
                let (device, name) = (&side.device, &side.name);
                let problem =
                    format!("{device} has no interface {name:?} in the table of interfaces");
                return Err(row.error(columns[2], problem));
            }
            return Ok(Some("ends at a port that is no interface of the table".to_owned()));
        }
        Ok(None)
    }

    fn reason_to_leave_out(&self, cable: &CableRow) -> Option<String> {
        let outside = cable.sides.iter().find(|side| !self.names.contains(side.device.as_str()));
        if outside.is_some() {
            return Some("ends at a device that is left out".to_owned());
        }
        let rows = cable.sides.iter().map(|side| self.row(side));
        let is = |row: CsvRow<'_>, column, word: &str| row.cell(column).eq_ignore_ascii_case(word);
        for row in rows {
            if is(row, MANAGEMENT, "true") {
                return Some("ends at an interface for management".to_owned());
            }
            if is(row, ENABLED, "false") {
                return Some("ends at an interface that is not enabled".to_owned());
            }
        }
        let [a, b] = &cable.sides;
        (a.device == b.device).then(|| "joins a device to itself".to_owned())
    }

    fn row(&self, side: &Side) -> CsvRow<'_> {
        self.index[&(side.device.as_str(), side.name.as_str())]
    }

    /// The cable, at the lower speed of its ends.
    fn listed_cable(&self, cable: CableRow) -> Result<ListedCable, ImportError> {
        let mut facts = BTreeMap::new();
        let mut lowest: Option<f64> = None;
        for side in &cable.sides {
            let mut own = description_facts(self.row(side));
            let speed = match own.remove(facts::GBPS) {
                Some(text) => Some(text.parse().map_err(|_| {
                    field_error(self.row(side).field(), format!("{text:?} is no speed in Gb/s"))
                })?),
                None => read_speed(self.row(side))?,
            };
            lowest = [lowest, speed].into_iter().flatten().reduce(f64::min);
            facts.extend(own);
        }
        facts.extend(lowest.map(|gbps| (facts::GBPS.to_owned(), gbps.to_string())));
        let port = |side: &Side| description_facts(self.row(side)).get(facts::PORT)?.parse().ok();
        let ends = cable.sides.map(|side| {
            let port = port(&side);
            CableEnd { device: side.device, interface: side.name, port }
        });
        Ok(ListedCable { field: cable.field, ends, facts })
    }
}

/// Interfaces with a cable.
fn cabled_interfaces(cables: &[ListedCable]) -> BTreeSet<(String, String)> {
    let ends = cables.iter().flat_map(|cable| &cable.ends);
    ends.map(|end| (end.device.clone(), end.interface.clone())).collect()
}

/// Addresses and bonds of a device, by interface.
#[derive(Clone, Default)]
struct DeviceAddresses {
    addresses: BTreeMap<String, String>,
    /// The second cabled interface below an address with two, with the first.
    bonds: BTreeMap<String, String>,
}

/// Addresses by device. One of an interface without a cable counts for those below it that have one:
/// two are a bond.
fn read_addresses(
    table: &CsvTable,
    interfaces: &Interfaces<'_>,
    cabled: &BTreeSet<(String, String)>,
    notes: &mut ImportNotes,
) -> Result<BTreeMap<String, DeviceAddresses>, ImportError> {
    let mut by_device: BTreeMap<String, DeviceAddresses> = BTreeMap::new();
    for row in table.rows() {
        let (device, interface) = (row.cell(ADDRESS_DEVICE), row.cell(INTERFACE));
        let address = row.cell(ADDRESS);
        let name = format!("{address} of {device}:{interface}");
        let below = cabled_below(interfaces, cabled, (device, interface));
        let (cabled, second) = match &below[..] {
            [one] => (one, None),
            [one, other] => (one, Some(*other)),
            [] => {
                notes.leave_out("address", "its interface has no cable of the fabric", name);
                continue;
            }
            several => {
                let problem = format!(
                    "{device}:{interface} has one address for {} cables ({}); {PORTS_REMEDY}",
                    several.len(),
                    several.join(", ")
                );
                return Err(row.error(INTERFACE, problem));
            }
        };
        let (ip, _) = address.split_once('/').unwrap_or((address, ""));
        let DeviceAddresses { addresses: own, bonds } =
            by_device.entry(device.to_owned()).or_default();
        bonds.extend(second.map(|second| (second.to_owned(), (*cabled).to_owned())));
        if own.contains_key(*cabled) {
            notes.leave_out("address", "its interface has another one before it", name);
        } else {
            own.insert((*cabled).to_owned(), ip.to_owned());
        }
    }
    Ok(by_device)
}

/// The interface itself if it has a cable, or else those with a cable on which it is: the members
/// of a bond or a bridge, the parent of a subinterface.
fn cabled_below<'a>(
    interfaces: &Interfaces<'a>,
    cabled: &BTreeSet<(String, String)>,
    (device, interface): InterfaceName<'a>,
) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut open = vec![interface];
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if name.is_empty() || !seen.insert(name) {
            continue;
        }
        if cabled.contains(&(device.to_owned(), name.to_owned())) {
            found.push(name);
            continue;
        }
        open.extend(interfaces.get(&(device, name)).map(|row| row.cell(PARENT)));
        let own = interfaces.range((device, "")..).take_while(|((other, _), _)| *other == device);
        let members = own.filter(|(_, row)| [row.cell(LAG), row.cell(BRIDGE)].contains(&name));
        open.extend(members.map(|((_, member), _)| *member));
    }
    found.sort_unstable();
    found
}

/// In Gb/s; none if the table does not say it.
fn read_speed(interface: CsvRow<'_>) -> Result<Option<f64>, ImportError> {
    let speed = interface.cell(SPEED);
    if speed.is_empty() {
        return Ok(speed_of_type(interface.cell(TYPE)));
    }
    // NetBox counts in kb/s, and prints units.
    let units = [("kbps", 1.0), ("mbps", 1e3), ("gbps", KBPS_PER_GBPS), ("tbps", 1e9)];
    let lower = speed.to_lowercase();
    let in_unit = units.iter().find_map(|(unit, kbps)| Some((lower.strip_suffix(unit)?, *kbps)));
    let (number, unit) = in_unit.unwrap_or((&lower, 1.0));
    let kbps = number.trim().parse::<f64>().ok().map(|number| number * unit);
    let kbps = kbps.filter(|kbps| kbps.is_finite() && *kbps > 0.0).ok_or_else(|| {
        let problem = format!("{speed:?} is no speed: write kb/s, 400000000 for 400 Gb/s");
        interface.error(SPEED, problem)
    })?;
    Ok(Some(kbps / KBPS_PER_GBPS))
}

/// Gb/s of InfiniBand with four lanes, as the last word of NetBox's slugs.
const INFINIBAND: [(&str, f64); 9] = [
    ("sdr", 10.0),
    ("ddr", 20.0),
    ("qdr", 40.0),
    ("fdr10", 40.0),
    ("fdr", 56.0),
    ("edr", 100.0),
    ("hdr", 200.0),
    ("ndr", 400.0),
    ("xdr", 800.0),
];

/// The rate that a type of InfiniBand names: of `infiniband-ndr`, or of `NDR (100 Gbps)`, where
/// NetBox prints that of one lane.
fn infiniband_rate(kind: &str) -> Option<&str> {
    let printed = || kind.split_once(" (").filter(|(_, rest)| rest.ends_with(" gbps)"));
    kind.strip_prefix("infiniband-").or_else(|| printed().map(|(rate, _)| rate))
}

/// Whether the speed of an interface is that of its type, and the type does not name the lanes.
fn has_assumed_lanes(interface: CsvRow<'_>) -> bool {
    let kind = interface.cell(TYPE).to_lowercase();
    interface.cell(SPEED).is_empty() && infiniband_rate(&kind).is_some()
}

/// The speed of an interface's type: a slug such as `400gbase-x-qsfpdd`, or as NetBox prints it,
/// `QSFP-DD (400GE)`; none for types without a speed.
fn speed_of_type(kind: &str) -> Option<f64> {
    if let Some((gbps, _)) = INTERFACE_TYPES.iter().find(|(_, slug)| *slug == kind) {
        return Some(*gbps);
    }
    let kind = kind.to_lowercase();
    if let Some(rate) = infiniband_rate(&kind) {
        return INFINIBAND.iter().find(|(name, _)| *name == rate).map(|(_, gbps)| *gbps);
    }
    let printed = kind.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix("ge)"));
    let megabits = || kind.split_once("base").and_then(|(number, _)| number.parse::<f64>().ok());
    let gigabits = kind.split_once("gbase").map(|(number, _)| number).or(printed);
    let gbps = gigabits.and_then(|number| number.trim().parse::<f64>().ok());
    gbps.or_else(|| megabits().map(|megabits| megabits / 1e3)).filter(|gbps| *gbps > 0.0)
}

/// Words of a description of the form `name=value`.
fn description_facts(row: CsvRow<'_>) -> BTreeMap<String, String> {
    let words = row.cell(DESCRIPTION).split_whitespace();
    let facts = words.filter_map(|word| word.split_once('='));
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
