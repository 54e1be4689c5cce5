//! `local_host`: the NICs of a leaf, each with its port. The rows stay when a cable fails and there is
//! no other path to the NIC. Of two ports, the row has the first that works.

use p4::SwitchTables;
use p4::entry::TableEntry;
use p4::fabric::local_host;
use topology::{Fabric, SwitchId};

use super::numbering::FabricNumbering;
use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    rows(site.shared.wiring, site.shared.fabric, site.switch).collect()
}

/// The rows of NICs that a leaf reaches by another of their ports than its tables have.
pub(super) fn protected_rows<'a>(
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    switch: SwitchId,
    tables: &'a SwitchTables,
) -> impl Iterator<Item = TableEntry> + 'a {
    let of_bonds = fabric.has_bonds().then(|| rows(wiring, fabric, switch));
    let other =
        |row: &TableEntry| tables.get(&row.key).is_some_and(|had| had.action != row.value.action);
    of_bonds.into_iter().flatten().filter(other)
}

fn rows<'a>(
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    switch: SwitchId,
) -> impl Iterator<Item = TableEntry> + 'a {
    let ports = wiring.leaf(switch).into_iter().flat_map(|leaf| &leaf.nics);
    let used = ports.filter(move |port| fabric.arrival_port(switch, **port) == Some(**port));
    used.filter_map(move |port| {
        let nic = fabric.nic(*port);
        Some(local_host(nic.ip, wiring.port(nic.uplink.reverse())?, nic.mac.0))
    })
}
