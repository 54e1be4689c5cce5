//! `path`: the numbered ways from a switch to a leaf, which pins refer to.
//!
//! The decision: a path's number is the port it leaves by while everything works. Such numbers need
//! no memory, survive every failure, and let a person read a pin. All ways have their row, used by
//! a pin or not, so moving a flow is one write. When a way fails, its row leads to the next usable
//! one: one write per leaf repairs all its flows at once, before any pin has moved. A way that is
//! drained keeps its row: flows leave it pin by pin, each of them once, for where the plan has it.

use p4::entry::TableEntry;
use p4::fabric;
use topology::LinkId;

use super::switch_context::{ReachableLeaf, SwitchContext};

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let chosen = site.reachable_leaves().filter(|seen| site.chooses_path(seen));
    chosen.flat_map(|seen| path_rows(site, &seen)).collect()
}

/// One row for each way that there is now or would be if everything worked.
fn path_rows(site: &SwitchContext<'_>, seen: &ReachableLeaf<'_>) -> Vec<TableEntry> {
    let mut ways = [seen.choices, seen.usable, seen.standing].concat();
    ways.sort_unstable();
    ways.dedup();
    let row = |way: LinkId| {
        let stands = Some(way).filter(|way| seen.standing.contains(way));
        let uplink = stands.or_else(|| usable_from(seen.usable, way))?;
        let backup = usable_after(seen.usable, uplink)?;
        let number = site.port(way)?.number();
        let (uplink, backup) = (site.port(uplink)?, site.port(backup)?);
        Some(fabric::path(seen.leaf.id, number, uplink, backup))
    };
    ways.into_iter().filter_map(row).collect()
}

/// The link itself if it is usable, else the next.
fn usable_from(usable: &[LinkId], link: LinkId) -> Option<LinkId> {
    let next = usable.iter().find(|usable| **usable >= link);
    next.or_else(|| usable.first()).copied()
}

/// The next usable link, the first after the last; the link itself where there is no other.
fn usable_after(usable: &[LinkId], link: LinkId) -> Option<LinkId> {
    let next = usable.iter().find(|usable| **usable > link);
    next.or_else(|| usable.first()).copied()
}
