//! `ecmp_group`: the links to each leaf for packets without a pin, with equal shares. Failed links
//! are in no group; for drained ones see
//! [`LeafLinks::spread`](crate::pipelines::switch_routes::LeafLinks::spread). The group of a single NIC has
//! the links of the plan for flows to it that have no port.

use std::collections::BTreeSet;

use p4::SwitchTables;
use p4::entry::{EntryKey, RowField, TableEntry};
use p4::fabric::{self, PortNumber, table};
use topology::{Fabric, SwitchId};

use super::liveness::failed_ports;
use super::numbering::FabricNumbering;
use super::switch_context::{NicPath, ReachableLeaf};

pub(super) fn leaf_row(wiring: &FabricNumbering, seen: &ReachableLeaf<'_>) -> Option<TableEntry> {
    let ports = seen.links.spread.iter().filter_map(|link| wiring.port(*link));
    fabric::ecmp_group(seen.leaf.id, ports)
}

pub(super) fn nic_row(wiring: &FabricNumbering, path: &NicPath) -> Option<TableEntry> {
    let ports = path.links.iter().filter_map(|link| wiring.port(*link));
    fabric::ecmp_group(path.id, ports)
}

/// The groups of single NICs at a switch that have a failed port, without it; one that would be
/// empty gets the working ports of the NIC's leaf. Pins have their backups in the same step.
pub(super) fn protected_groups(
    wiring: &FabricNumbering,
    fabric: &Fabric,
    switch: SwitchId,
    tables: &SwitchTables,
) -> Vec<TableEntry> {
    let failed: BTreeSet<PortNumber> = failed_ports(wiring, fabric, switch).collect();
    if failed.is_empty() {
        return Vec::new();
    }
    let groups = fabric.nic_ids().filter_map(|nic| {
        let id = wiring.nic_number(nic)?;
        let ports = group_ports(tables, id);
        if ports.is_disjoint(&failed) {
            return None;
        }
        let left: BTreeSet<PortNumber> = ports.difference(&failed).copied().collect();
        let of_leaf = group_ports(tables, wiring.leaf(fabric.leaf_of(nic))?.id);
        let other = of_leaf.difference(&failed).copied();
        fabric::ecmp_group(id, if left.is_empty() { other.collect() } else { left })
    });
    groups.collect()
}

/// The ports of a group; none where the table has no such group.
fn group_ports(tables: &SwitchTables, id: u16) -> BTreeSet<PortNumber> {
    let key = EntryKey::for_row(table::ECMP_GROUP, vec![RowField::exact(1, id)], 0);
    let calls = tables.get(&key).into_iter().flat_map(|value| value.action.action_calls());
    let ports = calls.filter_map(|call| u32::try_from(call.params.first()?.value.number()?).ok());
    ports.filter_map(|port| PortNumber::new(port).ok()).collect()
}
