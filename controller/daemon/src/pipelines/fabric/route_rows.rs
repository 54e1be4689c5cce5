//! The rows of a switch about leaves: the prefixes of each, the group and the paths of each class
//! of them, and those of single NICs.
//!
//! These are nearly all rows of a large fabric. The decision: prefixes follow from the class of the
//! leaf, the rows of a class from the ports that lead to it, and neither from anything else of the
//! switch. Switches are wired alike, so rows are made once for all that have the same; the others
//! share them.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::EntryPool;
use p4::entry::{TableEntry, TableId};
use p4::fabric::table;
use p4::tables::sort_entries;
use topology::Fabric;

use super::leaf_classes::LeafClasses;
use super::numbering::FabricNumbering;
use super::switch_context::{NicPath, ReachableLeaf, SwitchContext};
use super::{dst_leaf, ecmp_group, path};
use crate::pipelines::switch_routes::MovedNic;

/// The tables that have rows about leaves and no others.
pub(super) const TABLES: [TableId; 4] =
    [table::DST_LEAF, table::DST_LEAF6, table::ECMP_GROUP, table::PATH];

/// The NICs that have rows of their own at a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct NicWays<'a> {
    pub(super) paths: &'a [NicPath],
    /// Those that one of their two leaves is not used for.
    pub(super) moved: &'a [MovedNic],
}

/// Rows that were made in one lowering.
pub(super) struct RouteRows<'a> {
    wiring: &'a FabricNumbering,
    fabric: &'a Fabric,
    /// Keys and values that are equal, once.
    pub(super) pool: EntryPool,
    /// The prefixes by leaf and class.
    prefixes: BTreeMap<(usize, u16), Arc<[TableEntry]>>,
    /// Groups and paths by class and ports.
    classes: BTreeMap<(u16, Vec<u32>), Arc<[TableEntry]>>,
}

impl<'a> RouteRows<'a> {
    pub(super) fn new(wiring: &'a FabricNumbering, fabric: &'a Fabric) -> Self {
        let pool = EntryPool::default();
        Self { wiring, fabric, pool, prefixes: BTreeMap::new(), classes: BTreeMap::new() }
    }

    /// The rows about the leaf at a position, with those of NICs there, ascending; none where the
    /// switch has no way to it.
    pub(super) fn rows_about(
        &mut self,
        leaf: usize,
        site: &SwitchContext<'_>,
        (classes, ways): (&LeafClasses, NicWays<'_>),
    ) -> Arc<[TableEntry]> {
        let moved = || ways.moved.iter().filter(|moved| moved.leaf == leaf);
        let links_to = |leaf| classes.number(leaf).and_then(|class| classes.links(class));
        let to_one_leaf = moved().filter_map(|moved| {
            let class = classes.number(moved.to)?;
            // Where the same links lead to both leaves, as at most leaves, switches above decide.
            let is_elsewhere = links_to(moved.to) != links_to(leaf);
            is_elsewhere.then(|| dst_leaf::nic_row(self.fabric, moved.nic, site.switch, class))
        });
        let mut of_nics: Vec<TableEntry> = to_one_leaf.collect();
        for path in ways.paths.iter().filter(|path| path.leaf == leaf) {
            let now = moved().find(|moved| moved.nic == path.nic).map_or(leaf, |moved| moved.to);
            let seen = links_to(now).map(|links| site.seen_over(now, links));
            of_nics.extend(seen.into_iter().flat_map(|seen| self.nic_rows(site, &seen, path)));
        }
        let class = classes.number(leaf);
        let prefixes = class.map(|class| self.prefix_rows(leaf, class)).unwrap_or_default();
        if of_nics.is_empty() {
            return prefixes;
        }
        let of_nics = self.finish_rows(of_nics);
        let mut all = [&prefixes, &of_nics[..]].concat();
        sort_entries(&mut all);
        all.into()
    }

    fn prefix_rows(&mut self, leaf: usize, class: u16) -> Arc<[TableEntry]> {
        if let Some(rows) = self.prefixes.get(&(leaf, class)) {
            return Arc::clone(rows);
        }
        let rows = dst_leaf::leaf_rows(&self.wiring.leaves()[leaf], class).collect();
        let rows: Arc<[TableEntry]> = self.finish_rows(rows).into();
        self.prefixes.insert((leaf, class), Arc::clone(&rows));
        rows
    }

    /// The group and the paths of a class, ascending; none where the switch has no such class.
    pub(super) fn class_rows(
        &mut self,
        class: u16,
        site: &SwitchContext<'_>,
        classes: &LeafClasses,
    ) -> Arc<[TableEntry]> {
        let Some(links) = classes.links(class) else {
            return Arc::default();
        };
        let seen = site.seen_over(self.wiring.numbered(class), links);
        let key = (class, self.port_key(&seen));
        if let Some(rows) = self.classes.get(&key) {
            return Arc::clone(rows);
        }
        let group = ecmp_group::class_row(self.wiring, class, &seen);
        let paths = path::rows_under(self.wiring, &seen, class);
        let rows: Arc<[TableEntry]> =
            self.finish_rows(group.into_iter().chain(paths).collect()).into();
        self.classes.insert(key, Arc::clone(&rows));
        rows
    }

    /// The ports towards a class in the order of their links, each with what it is there for; all
    /// that the rows of the class follow from.
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

    /// The rows of one NIC; those of paths only where pins lead to it.
    fn nic_rows(
        &self,
        site: &SwitchContext<'_>,
        seen: &ReachableLeaf<'_>,
        path: &NicPath,
    ) -> Vec<TableEntry> {
        let mut rows = vec![dst_leaf::nic_row(self.fabric, path.nic, site.switch, path.id)];
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
