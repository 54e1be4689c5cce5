//! `ecmp_group`: the links to each leaf for packets without a pin, with equal shares. Failed links
//! are in no group; for drained ones see [`ReachableLeaf::spread`].

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::{ReachableLeaf, SwitchContext};

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    site.reachable_leaves().filter_map(|seen| group_row(site, &seen)).collect()
}

fn group_row(site: &SwitchContext<'_>, seen: &ReachableLeaf<'_>) -> Option<TableEntry> {
    let ports = seen.spread.iter().filter_map(|link| site.port(*link));
    fabric::ecmp_group(seen.leaf.id, ports)
}
