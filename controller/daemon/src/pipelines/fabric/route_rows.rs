//! The rows of a switch about one leaf: its prefixes, its group, its paths, and those of single
//! NICs there.
//!
//! These are nearly all rows of a large fabric. The decision: they follow from the ports that lead
//! to the leaf and from nothing else of the switch, and leaves are wired alike, so rows are made
//! once for all switches that have the same ports; the others share them.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::EntryPool;
use p4::entry::{TableEntry, TableId};
use p4::fabric::table;
use p4::tables::sort_entries;
use topology::Fabric;

use super::numbering::FabricNumbering;
use super::switch_context::{NicPath, ReachableLeaf};
use super::{dst_leaf, ecmp_group, path};

/// The tables that have rows about leaves and no others.
pub(super) const TABLES: [TableId; 4] =
    [table::DST_LEAF, table::DST_LEAF6, table::ECMP_GROUP, table::PATH];

/// Rows that were made in one lowering.
pub(super) struct RouteRows<'a> {
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    /// Keys and values that are equal, once.
    pub(super) pool: EntryPool,
    /// The rows by leaf and ports.
    known: Vec<BTreeMap<Vec<u32>, Arc<[TableEntry]>>>,
}

impl<'a> RouteRows<'a> {
    pub(super) fn new(wiring: &'a FabricNumbering, fabric: &'a Fabric) -> Self {
        let known = wiring.leaves().iter().map(|_| BTreeMap::new()).collect();
        Self { wiring, fabric, pool: EntryPool::default(), known }
    }

    /// The rows about the leaf at a position, with those of NICs there, ascending; none where the
    /// switch has no way to it.
    pub(super) fn rows_about(
        &mut self,
        leaf: usize,
        seen: Option<&ReachableLeaf<'_>>,
        nics: &[NicPath],
    ) -> Arc<[TableEntry]> {
        let Some(seen) = seen else {
            return Arc::default();
        };
        let ports = self.port_key(seen);
        let common = match self.known[leaf].get(&ports) {
            Some(rows) => Arc::clone(rows),
            None => {
                let rows = self.leaf_rows(seen);
                let rows: Arc<[TableEntry]> = self.finish_rows(rows).into();
                self.known[leaf].insert(ports, Arc::clone(&rows));
                rows
            }
        };
        let of_nics: Vec<TableEntry> = nics
            .iter()
            .filter(|path| path.leaf == leaf)
            .flat_map(|path| self.nic_rows(seen, path))
            .collect();
        if of_nics.is_empty() {
            return common;
        }
        let of_nics = self.finish_rows(of_nics);
        let mut all = [&common, &of_nics[..]].concat();
        sort_entries(&mut all);
        all.into()
    }

    /// The ports towards a leaf in the order of their links, each with what it is there for; all
    /// that the rows about the leaf follow from.
    fn port_key(&self, seen: &ReachableLeaf<'_>) -> Vec<u32> {
        let kinds = [seen.choices, seen.links.usable, seen.links.spread, seen.links.standing];
        let mut links = kinds[0].to_vec();
        if kinds.iter().any(|kind| *kind != kinds[0]) {
            links = kinds.concat();
            links.sort_unstable();
            links.dedup();
        }
        let ports = links.iter().map(|link| {
            let port = self
                .wiring
                .port(*link)
                .map_or(u32::MAX >> kinds.len(), |port| port.number().into());
            let uses = kinds.iter().map(|kind| u32::from(kind.binary_search(link).is_ok()));
            uses.fold(port, |bits, is_used| bits << 1 | is_used)
        });
        std::iter::once(seen.is_from_leaf.into()).chain(ports).collect()
    }

    fn leaf_rows(&self, seen: &ReachableLeaf<'_>) -> Vec<TableEntry> {
        let mut rows: Vec<TableEntry> = dst_leaf::leaf_rows(seen).collect();
        rows.extend(ecmp_group::leaf_row(self.wiring, seen));
        rows.extend(path::rows_under(self.wiring, seen, seen.leaf.id));
        rows
    }

    /// The rows of one NIC; those of paths only where pins lead to it.
    fn nic_rows(&self, seen: &ReachableLeaf<'_>, path: &NicPath) -> Vec<TableEntry> {
        let mut rows = vec![dst_leaf::nic_row(self.fabric, path)];
        rows.extend(ecmp_group::nic_row(self.wiring, path));
        if path.has_pins {
            rows.extend(path::rows_under(self.wiring, seen, path.id));
        }
        rows
    }

    /// Signs rows and puts them in order.
    fn finish_rows(&mut self, rows: Vec<TableEntry>) -> Vec<TableEntry> {
        let rows = rows.into_iter().map(TableEntry::with_signature);
        let mut rows: Vec<TableEntry> = rows.map(|row| self.pool.share_entry(row)).collect();
        sort_entries(&mut rows);
        rows
    }
}
