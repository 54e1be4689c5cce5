//! Tables for the bulk import of NetBox (CSV): devices, interfaces, cables, to be imported in this
//! order.

use std::fmt::Write;

use crate::fabric::{Fabric, LinkEndpoint, Tier};
use crate::ids::FabricNode;

/// Which table of an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetboxTable {
    /// Hosts and switches; roles, a device type and a site must exist.
    Devices,
    /// Interfaces of all cables.
    Interfaces,
    /// Cables between interfaces.
    Cables,
}

/// A table with its header line.
pub fn export_netbox(fabric: &Fabric, table: NetboxTable) -> String {
    let (header, rows) = match table {
        NetboxTable::Devices => ("name,role,device_type,site,status", device_rows(fabric)),
        NetboxTable::Interfaces => ("device,name,type", interface_rows(fabric)),
        NetboxTable::Cables => (
            "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,status",
            cable_rows(fabric),
        ),
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
    let row = |name: &str, role: &str| format!("{},{role},{role},{site},active", cell(name));
    let role = |tier: Tier| tier.to_string();
    let hosts = fabric.hosts().iter().map(|host| row(&host.name, "host"));
    let switches = fabric.switches().iter().map(|switch| row(&switch.name, &role(switch.tier)));
    hosts.chain(switches).collect()
}

fn interface_rows(fabric: &Fabric) -> Vec<String> {
    let links = fabric.cables().map(|cable| fabric.link(cable));
    links
        .flat_map(|link| {
            let kind = interface_type(link.bandwidth.gbps());
            [link.from, link.to].map(|end| {
                format!("{},{},{kind}", cell(fabric.node_name(end.node)), interface_name(end))
            })
        })
        .collect()
}

fn cable_rows(fabric: &Fabric) -> Vec<String> {
    let side = |end: LinkEndpoint| {
        let name = cell(fabric.node_name(end.node));
        format!("{name},dcim.interface,{}", interface_name(end))
    };
    let links = fabric.cables().map(|cable| fabric.link(cable));
    links.map(|link| format!("{},{},connected", side(link.from), side(link.to))).collect()
}

fn interface_name(end: LinkEndpoint) -> String {
    match end.node {
        FabricNode::Host(_) => format!("nic{}", end.port),
        FabricNode::Switch(_) => format!("port{}", end.port),
    }
}

/// NetBox's slug for the form factor that is usual at a speed.
fn interface_type(gbps: f64) -> &'static str {
    match gbps as u64 {
        10 => "10gbase-x-sfpp",
        25 => "25gbase-x-sfp28",
        40 => "40gbase-x-qsfpp",
        100 => "100gbase-x-qsfp28",
        200 => "200gbase-x-qsfp56",
        400 => "400gbase-x-qsfpdd",
        800 => "800gbase-x-qsfpdd",
        _ => "other",
    }
}

/// A value of a table; quoted where it needs to be.
fn cell(text: &str) -> String {
    let is_plain = !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}
