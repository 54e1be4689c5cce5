//! Tables of NetBox (CSV): devices, interfaces, cables, and addresses if there are any.
//!
//! Columns are those of NetBox's bulk import. The role of a device names its tier, or is `host` or
//! `server`; devices of other roles are left out with their cables. The speed of a cable is that of
//! an interface (kb/s), or follows from its type.

use std::collections::{BTreeMap, BTreeSet};

use super::csv_table::{CsvRow, CsvTable};
use super::inventory::{
    DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice, tier_named,
};
use super::{ImportError, ImportedFabric, NetboxTable};
use crate::export::facts;
use crate::export::netbox::{INTERFACE_TYPES, KBPS_PER_GBPS};

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

/// The fabric of NetBox's tables; its name is the site of the first device.
///
/// # Errors
/// A table has not its columns, a cell cannot be read, or devices and cables are no fabric; the
/// error names table, row and column.
pub fn import_netbox(
    tables: &NetboxTables<'_>,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let devices = CsvTable::parse(NetboxTable::Devices, tables.devices, &["name", "role"])?;
    let columns = ["device", "name"];
    let interfaces = CsvTable::parse(NetboxTable::Interfaces, tables.interfaces, &columns)?;
    let columns = ["side_a_device", "side_a_name", "side_b_device", "side_b_name"];
    let cables = CsvTable::parse(NetboxTable::Cables, tables.cables, &columns)?;
    let columns = ["address", "device", "interface"];
    let addresses = tables.addresses;
    let addresses = addresses.map(|text| CsvTable::parse(NetboxTable::Addresses, text, &columns));
    let addresses = addresses.transpose()?;
    let site = devices.rows().next().map_or("", |row| row.cell("site"));
    let interfaces = index_interfaces(&interfaces)?;
    let listed = listed_devices(&devices, addresses.as_ref())?;
    let names: BTreeSet<&str> = listed.iter().map(|device| device.name.as_str()).collect();
    let all: BTreeSet<&str> = devices.rows().map(|row| row.cell("name")).collect();
    let cables: Vec<ListedCable> = cables
        .rows()
        .filter(|row| {
            // A cable of a device that is left out is left out as well; one of a device that is
            // nowhere is a mistake.
            let ends = [row.cell("side_a_device"), row.cell("side_b_device")];
            ends.iter().all(|end| names.contains(end) || !all.contains(end))
        })
        .map(|row| read_cable(row, &interfaces))
        .collect::<Result<_, _>>()?;
    let name = if site.is_empty() { "netbox" } else { site }.to_owned();
    Inventory { name, devices: listed, cables }.into_fabric(assumptions)
}

fn index_interfaces(
    table: &CsvTable,
) -> Result<BTreeMap<InterfaceName<'_>, CsvRow<'_>>, ImportError> {
    let mut interfaces = BTreeMap::new();
    for row in table.rows() {
        if interfaces.insert((row.cell("device"), row.cell("name")), row).is_some() {
            return Err(row.error("name", "the device has another interface of this name"));
        }
    }
    Ok(interfaces)
}

fn listed_devices(
    devices: &CsvTable,
    addresses: Option<&CsvTable>,
) -> Result<Vec<ListedDevice>, ImportError> {
    let mut by_device: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    for row in addresses.into_iter().flat_map(CsvTable::rows) {
        let (ip, _) = row.cell("address").split_once('/').unwrap_or((row.cell("address"), ""));
        let own = by_device.entry(row.cell("device")).or_default();
        if own.insert(row.cell("interface").to_owned(), ip.to_owned()).is_some() {
            return Err(row.error("interface", "it has another address: give one for each NIC"));
        }
    }
    let listed = devices.rows().filter_map(|row| {
        let role = row.cell("role");
        let is_host = ["host", "server"].contains(&role.to_ascii_lowercase().as_str());
        let role = match tier_named(role) {
            Some(tier) => DeviceRole::Switch(tier),
            None => is_host.then_some(DeviceRole::Host)?,
        };
        let name = row.cell("name");
        Some(ListedDevice {
            name: name.to_owned(),
            field: row.field(),
            role,
            facts: description_facts(row),
            addresses: by_device.remove(name).unwrap_or_default(),
        })
    });
    Ok(listed.collect())
}

fn read_cable(
    row: CsvRow<'_>,
    interfaces: &BTreeMap<InterfaceName<'_>, CsvRow<'_>>,
) -> Result<ListedCable, ImportError> {
    let mut facts = BTreeMap::new();
    let mut ends = Vec::new();
    for (device, column) in [("side_a_device", "side_a_name"), ("side_b_device", "side_b_name")] {
        let (device, name) = (row.cell(device), row.cell(column));
        let interface = interfaces.get(&(device, name)).ok_or_else(|| {
            let problem = format!("{device} has no interface {name:?} in the table of interfaces");
            row.error(column, problem)
        })?;
        facts.extend(description_facts(*interface));
        let speed = read_speed(*interface)?.map(|gbps| (facts::GBPS.to_owned(), gbps.to_string()));
        if let Some((fact, speed)) = speed {
            facts.entry(fact).or_insert(speed);
        }
        ends.push((device.to_owned(), name.to_owned()));
    }
    let ends = <[_; 2]>::try_from(ends).expect("one for each of two columns");
    Ok(ListedCable { field: row.field(), ends, facts })
}

/// In Gb/s; none if the table does not say it.
fn read_speed(interface: CsvRow<'_>) -> Result<Option<f64>, ImportError> {
    let speed = interface.cell("speed");
    if speed.is_empty() {
        let kind = interface.cell("type");
        let usual = INTERFACE_TYPES.iter().find(|(_, slug)| *slug == kind);
        return Ok(usual.map(|(gbps, _)| *gbps));
    }
    let kbps = speed.parse::<f64>().ok().filter(|kbps| kbps.is_finite() && *kbps > 0.0);
    let kbps = kbps.ok_or_else(|| {
        interface
            .error("speed", format!("{speed:?} is no speed: write kb/s, 400000000 for 400 Gb/s"))
    })?;
    Ok(Some(kbps / KBPS_PER_GBPS))
}

/// Words of a description of the form `name=value`.
fn description_facts(row: CsvRow<'_>) -> BTreeMap<String, String> {
    let words = row.cell("description").split_whitespace();
    let facts = words.filter_map(|word| word.split_once('='));
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
