//! `port_down` and `backup_down`: ports whose cable, or the switch at its end, has failed. A
//! drained port is not down: packets under way may use it.

use p4::entry::TableEntry;
use p4::fabric::{PortNumber, backup_down, port_down};
use topology::{Fabric, SwitchId};

use super::numbering::FabricNumbering;
use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    failed_port_rows(site.shared.wiring, site.shared.fabric, site.switch).collect()
}

/// The rows for the failed ports of a switch; they depend only on its own cables.
pub(super) fn failed_port_rows<'a>(
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    switch: SwitchId,
) -> impl Iterator<Item = TableEntry> + 'a {
    let ports = failed_ports(wiring, fabric, switch);
    ports.flat_map(|port| [port_down(port), backup_down(port)])
}

/// The ports of a switch to other switches whose cables, or what is at their end, have failed.
pub(super) fn failed_ports<'a>(
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    switch: SwitchId,
) -> impl Iterator<Item = PortNumber> + 'a {
    let links = fabric.switch(switch).ports.values().copied();
    let failed = links.filter(|link| fabric.switch_after(*link).is_some() && !fabric.is_up(*link));
    failed.filter_map(|link| wiring.port(link))
}
