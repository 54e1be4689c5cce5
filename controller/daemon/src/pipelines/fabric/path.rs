//! `path`: the numbered paths from a switch to a class of leaves, which pins refer to.
//!
//! The decision: a path's number is the port it leaves by while nothing has failed. Such numbers
//! need no memory, survive every failure, and let a person read a pin. All paths have a row, used
//! by a pin or not, so moving a flow is one write. When a path fails, its row leads to the next
//! usable one: one write repairs all flows to a leaf at once, before any pin has moved. A
//! drained path keeps its row: flows leave it pin by pin, each once, for the path in the plan.

use p4::entry::TableEntry;
use p4::fabric;
use topology::LinkId;

use super::numbering::FabricNumbering;
use super::switch_context::ReachableLeaf;

/// One row for each link to leaves that exists now or while nothing has failed, under the number
/// `id` of their class or of a NIC there, if pins of the switch lead to them.
pub(super) fn rows_under(
    wiring: &FabricNumbering,
    seen: &ReachableLeaf<'_>,
    id: u16,
) -> Vec<TableEntry> {
    if !seen.chooses_path() {
        return Vec::new();
    }
    let mut links = [seen.choices, seen.links.usable, seen.links.standing].concat();
    links.sort_unstable();
    links.dedup();
    let rows = links.into_iter().filter_map(|link| {
        let (uplink, backup) = links_of_path(seen, link)?;
        let number = wiring.port(link)?.number();
        Some(fabric::path(id, number, wiring.port(uplink)?, wiring.port(backup)?))
    });
    rows.collect()
}

/// The link that the path with the number of `link` takes, and the one that replaces it.
fn links_of_path(seen: &ReachableLeaf<'_>, link: LinkId) -> Option<(LinkId, LinkId)> {
    let standing = Some(link).filter(|link| seen.links.standing.contains(link));
    let uplink = standing.or_else(|| usable_from(seen.links.usable, link))?;
    Some((uplink, usable_after(seen.links.usable, uplink)?))
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
