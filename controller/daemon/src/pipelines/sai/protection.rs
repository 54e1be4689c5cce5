//! Failed ports out of use, in the tables that a switch holds, without a plan.
//!
//! The decision: only what the rows themselves say is needed. A group gives up its failed members,
//! a pinned pair goes by the group of its leaf, and a pin by five-tuple is withdrawn, so that its
//! flow goes by the route of its pair. A switch with no other way keeps its rows.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use p4::SwitchTables;
use p4::entry::{
    ActionSpec, EntryKey, EntryValue, FieldMatch, TableEntry, TableId, TableRow, WeightedAction,
};
use p4::sai::{self, RouteTarget, table};
use topology::{Fabric, NicId, SwitchId};

use super::group_number;

/// What becomes of one row.
enum RowChange {
    Replace(TableEntry),
    Withdraw(EntryKey),
}

/// Takes the failed ports of a switch out of use. Tables that stay as they are stay shared.
pub(super) fn protect_switch(fabric: &Fabric, switch: SwitchId, tables: &mut Arc<SwitchTables>) {
    let failed = failed_ports(fabric, switch);
    if failed.is_empty() {
        return;
    }
    let rows = tables.iter().filter(|(_, value)| uses_port(value, &failed));
    let changes: Vec<RowChange> =
        rows.filter_map(|row| change_row(fabric, (switch, tables), row, &failed)).collect();
    if changes.is_empty() {
        return;
    }
    let tables = Arc::make_mut(tables);
    for change in changes {
        match change {
            RowChange::Replace(entry) => drop(tables.insert(entry)),
            RowChange::Withdraw(key) => drop(tables.remove(&key)),
        }
    }
}

/// The ports of a switch to other switches, or to NICs that have another port here, whose cables,
/// or what is at their end, have failed.
fn failed_ports(fabric: &Fabric, switch: SwitchId) -> BTreeSet<u32> {
    let ports = fabric.switch(switch).ports.iter();
    let has_other = |nic| fabric.arrival_port(switch, nic).is_some_and(|port| port != nic);
    let failed = ports.filter(|(_, link)| {
        !fabric.is_up(**link) && fabric.nic_after(**link).is_none_or(has_other)
    });
    failed.map(|(port, _)| *port).collect()
}

fn uses_port(value: &EntryValue, failed: &BTreeSet<u32>) -> bool {
    let mut ports = value.action.action_calls().filter_map(sai::nexthop_port);
    ports.any(|port| failed.contains(&port))
}

fn change_row(
    fabric: &Fabric,
    (switch, tables): (SwitchId, &SwitchTables),
    (key, value): (&EntryKey, &EntryValue),
    failed: &BTreeSet<u32>,
) -> Option<RowChange> {
    let action = match key.table {
        table::ACL_INGRESS => return Some(RowChange::Withdraw(key.clone())),
        table::WCMP_GROUP => ActionSpec::OneShot(working_members(value, failed)?),
        table::IPV4 | table::IPV6 => {
            let nic = fabric.nic_with_ip(pinned_address(key)?)?;
            sai::route_action(other_target(fabric, (switch, tables), nic, failed)?).into()
        }
        _ => return None,
    };
    let value = EntryValue { action, ..value.clone() };
    Some(RowChange::Replace(TableEntry { key: Arc::new(key.clone()), value: Arc::new(value) }))
}

/// Where packets to a NIC go without a pin: to another port of it here, or by the group of its
/// leaves if that has a working member.
fn other_target(
    fabric: &Fabric,
    (switch, tables): (SwitchId, &SwitchTables),
    nic: NicId,
    failed: &BTreeSet<u32>,
) -> Option<RouteTarget> {
    if let Some(port) = fabric.arrival_port(switch, nic) {
        return Some(RouteTarget::Port(fabric.link(fabric.nic(port).uplink).to.port));
    }
    let group = group_number(fabric, fabric.destination_position(fabric.arrival_leaves(nic))?);
    working_members(tables.get(&sai::group_key(group))?, failed)?;
    Some(RouteTarget::Group(group))
}

/// The members of a group that lead to working ports; `None` if no port works.
fn working_members(group: &EntryValue, failed: &BTreeSet<u32>) -> Option<Vec<WeightedAction>> {
    let ActionSpec::OneShot(members) = &group.action else {
        return None;
    };
    let works = |member: &&WeightedAction| {
        sai::nexthop_port(&member.call).is_none_or(|port| !failed.contains(&port))
    };
    let working: Vec<WeightedAction> = members.iter().filter(works).cloned().collect();
    (!working.is_empty()).then_some(working)
}

/// The address that a route is for, if it is for one address.
fn pinned_address(key: &EntryKey) -> Option<IpAddr> {
    let TableRow::Match { fields, .. } = &key.row else {
        return None;
    };
    let lpm = fields.iter().find_map(|field| match field.matches {
        FieldMatch::Lpm { value, prefix_len } => Some((value, prefix_len)),
        _ => None,
    });
    match (key.table, lpm?) {
        (table::IPV4, (value, 32)) => Some(Ipv4Addr::from_bits(u32::try_from(value).ok()?).into()),
        (TableId(_), (value, 128)) => Some(Ipv6Addr::from_bits(value).into()),
        _ => None,
    }
}
