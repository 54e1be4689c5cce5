//! `dst_leaf`: the leaf of an address, for every other leaf that can be reached. Its number never
//! changes; packets to unknown addresses, or to a leaf without a path, are dropped here.
//!
//! A NIC that receives flows without a port has a number of its own where the plan has a path for
//! them, by a longer prefix than its leaf's.

use p4::entry::TableEntry;
use p4::fabric::{self, IpPrefix};
use topology::Fabric;

use super::switch_context::{NicPath, ReachableLeaf};

pub(super) fn leaf_rows(seen: &ReachableLeaf<'_>) -> impl Iterator<Item = TableEntry> {
    let prefixes = seen.leaf.prefixes.iter();
    prefixes.map(|prefix| fabric::dst_leaf(*prefix, seen.leaf.id))
}

/// The row of a NIC; it replaces that of a leaf whose only address is the NIC's.
pub(super) fn nic_row(fabric: &Fabric, path: &NicPath) -> TableEntry {
    fabric::dst_leaf(IpPrefix::from(fabric.nic(path.nic).ip), path.id)
}
