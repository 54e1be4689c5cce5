//! `ecmp_group`: the links to each leaf for packets without a pin, with equal shares. Failed links
//! are in no group; for drained ones see [`ReachableLeaf::spread`]. The group of a single NIC has
//! the links of the plan for flows to it that have no port.

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::{ReachableLeaf, SwitchContext};

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let leaves = site.reachable_leaves().filter_map(|seen| group_row(site, &seen));
    let nics = site.nic_paths().into_iter().filter_map(|path| {
        let ports = path.links.iter().filter_map(|link| site.port(*link));
        fabric::ecmp_group(path.id, ports)
    });
    leaves.chain(nics).collect()
}

fn group_row(site: &SwitchContext<'_>, seen: &ReachableLeaf<'_>) -> Option<TableEntry> {
    let ports = seen.spread.iter().filter_map(|link| site.port(*link));
    fabric::ecmp_group(seen.leaf.id, ports)
}
