//! `dst_leaf`: the class of leaves that an address is at, for every other leaf that can be reached.
//! Packets to unknown addresses, or to a leaf without a path, are dropped here.
//!
//! A NIC with a port at each of two leaves of which one may not be used has a row of its own, which
//! leads to the other, where other links lead there. At the leaf that has lost its port, that row is for packets from hosts alone.
//!
//! A NIC that receives flows without a port has a number of its own where the plan has a path for
//! them, by a longer prefix than its leaf's.

use p4::entry::TableEntry;
use p4::fabric::{self, IpPrefix};
use topology::{Fabric, NicId, SwitchId};

use super::numbering::LeafWiring;

/// The rows of a leaf that is in the class with a number.
pub(super) fn leaf_rows(leaf: &LeafWiring, class: u16) -> impl Iterator<Item = TableEntry> {
    leaf.prefixes.iter().map(move |prefix| fabric::dst_leaf(*prefix, class))
}

/// The row of a NIC, by its own number or by that of the class of the leaf that is left of its two;
/// it replaces that of a leaf whose only address is the NIC's.
pub(super) fn nic_row(fabric: &Fabric, nic: NicId, at: SwitchId, number: u16) -> TableEntry {
    let address = IpPrefix::from(fabric.nic(nic).ip);
    match fabric.leaves_of(nic).contains(at) {
        true => fabric::dst_leaf_of_hosts(address, number),
        false => fabric::dst_leaf(address, number),
    }
}
