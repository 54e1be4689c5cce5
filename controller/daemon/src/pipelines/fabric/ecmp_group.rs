//! `ecmp_group`: the links to each class of leaves for packets without a pin, with equal shares.
//! Failed links are in no group; for drained ones see
//! [`LeafLinks::spread`](crate::pipelines::switch_routes::LeafLinks::spread). The group of a single
//! NIC has the links of the plan for flows to it that have no port.

use std::collections::BTreeSet;

use p4::SwitchTables;
use p4::entry::{EntryKey, EntryValue, FieldMatch, RowField, TableEntry, TableRow};
use p4::fabric::{self, PortNumber, table};
use topology::{Fabric, NicId, SwitchId};

use super::liveness::failed_ports;
use super::numbering::FabricNumbering;
use super::switch_context::{NicPath, ReachableLeaf};

pub(super) fn class_row(
    wiring: &FabricNumbering,
    class: u16,
    seen: &ReachableLeaf<'_>,
) -> Option<TableEntry> {
    let ports = seen.links.spread.iter().filter_map(|link| wiring.port(*link));
    fabric::ecmp_group(class, ports)
}

pub(super) fn nic_row(wiring: &FabricNumbering, path: &NicPath) -> Option<TableEntry> {
    let ports = path.links.iter().filter_map(|link| wiring.port(*link));
    fabric::ecmp_group(path.id, ports)
}

/// The groups of single NICs at a switch that have a failed port, without it; one that would be
/// empty gets the ports to the NIC's leaf that have not failed here. Pins have their backups in the
/// same step.
pub(super) fn protected_groups(
    wiring: &FabricNumbering,
    fabric: &Fabric,
    switch: SwitchId,
    tables: &SwitchTables,
) -> Vec<TableEntry> {
    let failed: BTreeSet<PortNumber> = failed_ports(wiring, fabric, switch).collect();
    let Some(first) = wiring.nic_number(NicId(0)).filter(|_| !failed.is_empty()) else {
        return Vec::new();
    };
    let first = group_key(first);
    let groups = tables.entries_from(&first).filter_map(|(key, group)| {
        let (id, ports) = (group_id(key)?, group_ports(group));
        if ports.is_disjoint(&failed) {
            return None;
        }
        let left: BTreeSet<PortNumber> = ports.difference(&failed).copied().collect();
        let nic = wiring.nic_numbered(id)?;
        let leaf = fabric.destination_position(fabric.arrival_leaves(nic))?;
        let of_leaf = wiring.choices(switch, leaf).iter().filter_map(|link| wiring.port(*link));
        let other = of_leaf.filter(|port| !failed.contains(port));
        fabric::ecmp_group(id, if left.is_empty() { other.collect() } else { left })
    });
    groups.collect()
}

fn group_key(id: u16) -> EntryKey {
    EntryKey::for_row(table::ECMP_GROUP, vec![RowField::exact(1, id)], 0)
}

/// What a group is for: the number of a leaf or a NIC.
fn group_id(key: &EntryKey) -> Option<u16> {
    let TableRow::Match { fields, .. } = &key.row else {
        return None;
    };
    match &fields.first()?.matches {
        FieldMatch::Exact(id) => u16::try_from(id.number()?).ok(),
        _ => None,
    }
}

/// The ports of a group.
fn group_ports(group: &EntryValue) -> BTreeSet<PortNumber> {
    let calls = group.action.action_calls();
    let ports = calls.filter_map(|call| u32::try_from(call.params.first()?.value.number()?).ok());
    ports.filter_map(|port| PortNumber::new(port).ok()).collect()
}
