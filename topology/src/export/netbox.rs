//! Tables for the bulk import of NetBox (CSV): devices, interfaces, cables, addresses, to be
//! imported in this order.
//!
//! Speeds are in kb/s, as NetBox has them. Descriptions say what NetBox has no fields for, so that
//! the tables can be imported again.

use std::fmt::Write;

use super::facts::{self, Fact};
use crate::fabric::{Fabric, LinkEndpoint};
use crate::ids::{FabricNode, LinkId};

/// Columns of devices.
pub(crate) const DEVICE_COLUMNS: &str = "name,role,device_type,site,status,description";
/// Columns of interfaces.
pub(crate) const INTERFACE_COLUMNS: &str = "device,name,type,speed,description";
/// Columns of cables.
pub(crate) const CABLE_COLUMNS: &str =
    "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,status";
/// Columns of addresses.
pub(crate) const ADDRESS_COLUMNS: &str = "address,device,interface,status";
/// The speed of 1 Gb/s in NetBox.
pub(crate) const KBPS_PER_GBPS: f64 = 1e6;

/// Which table of an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetboxTable {
    /// Hosts and switches; roles, a device type and a site must exist.
    Devices,
    /// Interfaces of all cables.
    Interfaces,
    /// Cables between interfaces.
    Cables,
    /// IP addresses of the NICs.
    Addresses,
}

impl std::fmt::Display for NetboxTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Devices => "devices",
            Self::Interfaces => "interfaces",
            Self::Cables => "cables",
            Self::Addresses => "addresses",
        })
    }
}

/// A table with its header line.
pub fn export_netbox(fabric: &Fabric, table: NetboxTable) -> String {
    let (header, rows) = match table {
        NetboxTable::Devices => (DEVICE_COLUMNS, device_rows(fabric)),
        NetboxTable::Interfaces => (INTERFACE_COLUMNS, interface_rows(fabric)),
        NetboxTable::Cables => (CABLE_COLUMNS, cable_rows(fabric)),
        NetboxTable::Addresses => (ADDRESS_COLUMNS, address_rows(fabric)),
    };
    let mut text = String::new();
    for line in std::iter::once(header.to_owned()).chain(rows) {
        let _infallible = writeln!(text, "{line}");
    }
    text
}

/// The site is the fabric; roles are `host`, `leaf`, `spine` and `core`.
fn device_rows(fabric: &Fabric) -> Vec<String> {
    let site = cell(fabric.name());
    let row = |name: &str, role: &str, facts: Vec<Fact>| {
        format!("{},{role},{role},{site},active,{}", cell(name), description(facts))
    };
    let hosts = fabric.hosts().iter();
    let hosts = hosts.map(|host| row(&host.name, "host", facts::host_facts(fabric, host)));
    let switches = fabric
        .switches()
        .iter()
        .map(|switch| row(&switch.name, &switch.tier.to_string(), facts::switch_facts(switch)));
    hosts.chain(switches).collect()
}

/// The scheduler of a cable is a property of both its interfaces.
fn interface_rows(fabric: &Fabric) -> Vec<String> {
    let cables = facts::unusual_schedulers(fabric).into_iter();
    let rows = cables.flat_map(|(cable, scheduler)| {
        let link = fabric.link(cable);
        let gbps = link.bandwidth.gbps();
        let (kind, speed) = (interface_type(gbps), (gbps * KBPS_PER_GBPS).round());
        // Fractions of 1 kb/s are not for NetBox's field.
        let is_exact = speed / KBPS_PER_GBPS == gbps;
        let exact = (!is_exact).then(|| (facts::GBPS, gbps.to_string()));
        let facts: Vec<Fact> = scheduler.into_iter().chain(exact).collect();
        [cable, cable.reverse()].map(|link| {
            let end = fabric.link(link).from;
            let device = cell(fabric.node_name(end.node));
            let name = interface_name(fabric, link);
            // A name of the switch's own need not have the number of the port.
            let is_named = own_port_name(fabric, end).is_some();
            let number = is_named.then(|| (facts::PORT, end.port.to_string()));
            let text = description(facts.iter().cloned().chain(number).collect());
            format!("{device},{name},{kind},{speed},{text}")
        })
    });
    rows.collect()
}

fn address_rows(fabric: &Fabric) -> Vec<String> {
    let rows = fabric.hosts().iter().flat_map(|host| {
        host.nics.iter().map(|nic| {
            let nic = fabric.nic(*nic);
            let length = if nic.ip.is_ipv4() { 32 } else { 128 };
            format!("{}/{length},{},nic{},active", nic.ip, cell(&host.name), nic.index)
        })
    });
    rows.collect()
}

/// `name=value` words, quoted as one value of the table.
fn description(facts: Vec<Fact>) -> String {
    let words: Vec<String> =
        facts.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    cell(&words.join(" "))
}

fn cable_rows(fabric: &Fabric) -> Vec<String> {
    let side = |link: LinkId| {
        let name = cell(fabric.node_name(fabric.link(link).from.node));
        format!("{name},dcim.interface,{}", interface_name(fabric, link))
    };
    let cables = fabric.cables();
    cables.map(|cable| format!("{},{},connected", side(cable), side(cable.reverse()))).collect()
}

/// The interface at which a link leaves.
fn interface_name(fabric: &Fabric, link: LinkId) -> String {
    let end = fabric.link(link).from;
    match (end.node, own_port_name(fabric, end)) {
        (FabricNode::Host(_), _) => format!("nic{}", fabric.port_number(link)),
        (FabricNode::Switch(_), Some(name)) => cell(name),
        (FabricNode::Switch(_), None) => format!("port{}", end.port),
    }
}

/// The name of a port in its switch's own software, where it is known.
fn own_port_name(fabric: &Fabric, end: LinkEndpoint) -> Option<&str> {
    let switch = fabric.switch(end.node.switch()?);
    switch.port_names.get(&end.port).map(String::as_str)
}

/// NetBox's slugs for the form factors that are usual at a speed in Gb/s.
pub(crate) const INTERFACE_TYPES: [(f64, &str); 7] = [
    (10.0, "10gbase-x-sfpp"),
    (25.0, "25gbase-x-sfp28"),
    (40.0, "40gbase-x-qsfpp"),
    (100.0, "100gbase-x-qsfp28"),
    (200.0, "200gbase-x-qsfp56"),
    (400.0, "400gbase-x-qsfpdd"),
    (800.0, "800gbase-x-qsfpdd"),
];

fn interface_type(gbps: f64) -> &'static str {
    let usual = INTERFACE_TYPES.iter().find(|(speed, _)| *speed == gbps.trunc());
    usual.map_or("other", |(_, slug)| slug)
}

/// A value of a table; quoted where it needs to be.
fn cell(text: &str) -> String {
    let is_plain = !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}
