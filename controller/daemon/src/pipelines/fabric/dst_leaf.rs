//! `dst_leaf`: the leaf of an address, for every other leaf that can be reached. Its number never
//! changes; packets to unknown addresses, or to a leaf without a path, are dropped here.
//!
//! A NIC that receives flows without a port has a number of its own where the plan has a path for
//! them, by a longer prefix than its leaf's.

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let reachable = site.reachable_leaves();
    let rows = reachable.flat_map(|seen| {
        let prefixes = seen.leaf.prefixes.iter();
        prefixes.map(move |prefix| fabric::dst_leaf(*prefix, seen.leaf.id))
    });
    let nic_paths = site.nic_paths();
    let nics = nic_paths.iter().map(|path| fabric::dst_leaf(path.prefix, path.id));
    rows.chain(nics).collect()
}
