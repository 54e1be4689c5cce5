//! `path`: the numbered paths from a switch to a leaf, which pins refer to.
//!
//! The decision: a path's number is the port it leaves by while nothing has failed. Such numbers
//! need no memory, survive every failure, and let a person read a pin. All paths have a row, used
//! by a pin or not, so moving a flow is one write. When a path fails, its row leads to the next
//! usable one: one write per leaf repairs all its flows at once, before any pin has moved. A
//! drained path keeps its row: flows leave it pin by pin, each once, for the path in the plan.

use p4::entry::TableEntry;
use p4::fabric::{self, PortNumber};
use topology::LinkId;

use super::switch_context::{ReachableLeaf, SwitchContext};

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let chosen = site.reachable_leaves().filter(|seen| site.chooses_path(seen));
    let leaves = chosen.flat_map(|seen| path_rows(site, &seen, seen.leaf.id));
    // A NIC with a number of its own needs these for the pins to it.
    let nics = site.nic_paths().into_iter().filter(|path| path.has_pins);
    leaves.chain(nics.flat_map(|path| path_rows(site, &path.seen, path.id))).collect()
}

/// One row for each link to the leaf that exists now or while nothing has failed, under the number
/// `id` of the leaf or of a NIC there.
fn path_rows(site: &SwitchContext<'_>, seen: &ReachableLeaf<'_>, id: u16) -> Vec<TableEntry> {
    let mut links = [seen.choices, seen.usable, seen.standing].concat();
    links.sort_unstable();
    links.dedup();
    let rows = links.into_iter().filter_map(|link| {
        let (uplink, backup) = ports_of_path(site, seen, link)?;
        Some(fabric::path(id, site.port(link)?.number(), uplink, backup))
    });
    rows.collect()
}

/// The port of the path whose number is that of `link`, and the port that replaces it.
fn ports_of_path(
    site: &SwitchContext<'_>,
    seen: &ReachableLeaf<'_>,
    link: LinkId,
) -> Option<(PortNumber, PortNumber)> {
    let standing = Some(link).filter(|link| seen.standing.contains(link));
    let uplink = standing.or_else(|| usable_from(seen.usable, link))?;
    let backup = usable_after(seen.usable, uplink)?;
    Some((site.port(uplink)?, site.port(backup)?))
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
