//! `dst_leaf`: the class of leaves that an address is at, for every other leaf that can be reached.
//! Packets to unknown addresses, or to a leaf without a path, are dropped here.
//!
//! A NIC that receives flows without a port has a number of its own where the plan has a path for
//! them, by a longer prefix than its leaf's.

use p4::entry::TableEntry;
use p4::fabric::{self, IpPrefix};
use topology::Fabric;

use super::numbering::LeafWiring;
use super::switch_context::NicPath;

/// The rows of a leaf that is in the class with a number.
pub(super) fn leaf_rows(leaf: &LeafWiring, class: u16) -> impl Iterator<Item = TableEntry> {
    leaf.prefixes.iter().map(move |prefix| fabric::dst_leaf(*prefix, class))
}

/// The row of a NIC; it replaces that of a leaf whose only address is the NIC's.
pub(super) fn nic_row(fabric: &Fabric, path: &NicPath) -> TableEntry {
    fabric::dst_leaf(IpPrefix::from(fabric.nic(path.nic).ip), path.id)
}
