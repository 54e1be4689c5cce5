//! `ecmp_group`: every usable equal-cost way to each leaf, with equal shares. What failed is in no
//! group, and what is drained in none by which a packet might get there.

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let group = |seen: super::switch_context::ReachableLeaf<'_>| {
        let ports = seen.spread.iter().filter_map(|link| site.port(*link));
        fabric::ecmp_group(seen.leaf.id, ports)
    };
    site.reachable_leaves().filter_map(group).collect()
}
