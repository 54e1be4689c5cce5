//! The tables of one switch, desired or actual, and the change between two of them.
//!
//! Lowering makes the desired [`SwitchTables`], reading a switch makes the actual ones,
//! [`diff_tables`] is what a session writes. The decision: a change is a list of updates in the
//! order in which they can be written one by one (`write_order`). Keys and values are shared: the
//! tables of hundreds of leaves have the same paths to others, which an [`EntryPool`] keeps once.
//! What successive tables of a switch have in common is shared as well, and not compared again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use crate::P4Info;
use crate::entry::{EntryKey, EntryValue, TableEntry, TableId};
pub use crate::entry_map::sort_entries;
use crate::entry_map::{EntryMap, EntryPair, keep_last, sorted_differences};
use crate::write_order::order_updates;

/// All entries of one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchTables {
    entries: EntryMap,
}

/// Keys and values of tables that are built together. Those that are equal are kept once.
#[derive(Debug, Default)]
pub struct EntryPool {
    keys: HashSet<Arc<EntryKey>>,
    values: HashSet<Arc<EntryValue>>,
}

/// A part of a switch's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableScope {
    /// Whole tables.
    pub tables: BTreeSet<TableId>,
    /// Single entries of others, whether or not they are there.
    pub entries: BTreeSet<EntryKey>,
}

/// Where more than one row in so many was written, a table is read whole.
const FEW: usize = 4;

impl TableScope {
    /// Whether an entry belongs to it.
    pub fn contains_key(&self, key: &EntryKey) -> bool {
        self.tables.contains(&key.table) || self.entries.contains(key)
    }

    /// A scope of whole tables.
    pub fn whole_tables(tables: BTreeSet<TableId>) -> Self {
        let entries = BTreeSet::new();
        Self { tables, entries }
    }

    /// What updates towards `desired` have touched: their entries, or the whole table where these
    /// are many.
    pub fn from_updates<'a>(
        updates: impl IntoIterator<Item = &'a TableUpdate>,
        desired: &SwitchTables,
    ) -> Self {
        let mut keys: BTreeMap<TableId, Vec<&EntryKey>> = BTreeMap::new();
        for update in updates {
            let key = &*update.entry.key;
            keys.entry(key.table).or_default().push(key);
        }
        let mut extent = Self::default();
        for (table, keys) in keys {
            if keys.len() * FEW > desired.table_len(table) {
                extent.tables.insert(table);
            } else {
                extent.entries.extend(keys.into_iter().cloned());
            }
        }
        extent
    }
}

/// One write to a switch: insertion, modification or deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableUpdate {
    /// What happens to the entry.
    pub kind: UpdateKind,
    /// The entry as it shall be; for a deletion, as it was.
    pub entry: TableEntry,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpdateKind {
    /// It is new. For a default action: it replaces the program's own.
    Insert,
    /// Its value changes.
    Modify,
    /// It goes. For a default action: the program's own returns.
    Delete,
}

impl SwitchTables {
    /// Adds an entry, or replaces the one with the same key and returns its value.
    pub fn insert(&mut self, entry: TableEntry) -> Option<Arc<EntryValue>> {
        self.entries.insert(entry)
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: &EntryKey) -> Option<Arc<EntryValue>> {
        self.entries.remove(key)
    }

    /// The value of an entry.
    pub fn get(&self, key: &EntryKey) -> Option<&EntryValue> {
        self.entries.get(key).map(|entry| &*entry.value)
    }

    /// All entries, ascending by key.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryKey, &EntryValue)> {
        self.entries.iter().map(|entry| (&*entry.key, &*entry.value))
    }

    /// The entries of one table, ascending by key.
    pub fn table_entries(&self, table: TableId) -> impl Iterator<Item = (&EntryKey, &EntryValue)> {
        self.shared_entries(table).map(|entry| (&*entry.key, &*entry.value))
    }

    /// The entries from one key on, whether or not it is there, up to the end of its table.
    pub fn entries_from<'a>(
        &'a self,
        first: &'a EntryKey,
    ) -> impl Iterator<Item = (&'a EntryKey, &'a EntryValue)> {
        let entries = self.entries.iter_after(move |key| key < first);
        let entries = entries.map(|entry| (&*entry.key, &*entry.value));
        entries.take_while(move |(key, _)| key.table == first.table)
    }

    fn shared_entries(&self, table: TableId) -> impl Iterator<Item = &TableEntry> {
        let entries = self.entries.iter_after(move |key| key.table < table);
        entries.take_while(move |entry| entry.key.table == table)
    }

    /// The number of entries of one table.
    pub fn table_len(&self, table: TableId) -> usize {
        let before = self.entries.count_before(|key| key.table < table);
        self.entries.count_before(|key| key.table <= table) - before
    }

    /// Removes the entries outside of a scope.
    #[must_use]
    pub fn restricted_to(self, extent: &TableScope) -> Self {
        let inside = self.entries.iter().filter(|entry| extent.contains_key(&entry.key));
        inside.cloned().collect()
    }

    /// The entries that belong to a part of the tables.
    pub fn entries_within(&self, extent: &TableScope) -> Self {
        let whole = extent.tables.iter().flat_map(|table| self.shared_entries(*table));
        let single = extent.entries.iter().filter_map(|key| self.entries.get(key));
        whole.chain(single).cloned().collect()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes updates, in any order; of those of one entry, the last one counts. What they do not
    /// touch stays shared with the tables that these are a copy of.
    pub fn apply<'a>(&mut self, updates: impl IntoIterator<Item = &'a TableUpdate>) {
        let changes = updates.into_iter().map(|update| match update.kind {
            UpdateKind::Insert | UpdateKind::Modify => (&update.entry.key, Some(&update.entry)),
            UpdateKind::Delete => (&update.entry.key, None),
        });
        let mut changes: Vec<_> = changes.collect();
        // Cheaper than whole keys, and within a table most updates come in order.
        changes.sort_by_key(|(key, _)| key.table);
        changes.sort_by_key(|(key, _)| *key);
        keep_last(&mut changes, |(key, _)| key);
        self.entries.apply_sorted(&changes);
    }

    /// The updates by which the entries of some tables become these.
    pub fn updates_to(
        &self,
        tables: impl IntoIterator<Item = TableId>,
        mut entries: Vec<TableEntry>,
    ) -> Vec<TableUpdate> {
        sort_entries(&mut entries);
        let tables: BTreeSet<TableId> = tables.into_iter().collect();
        let held = tables.into_iter().flat_map(|table| self.shared_entries(table));
        updates_between(sorted_differences(held, &entries)).collect()
    }
}

/// The updates from one list of entries to another, both in ascending order of their keys.
pub fn diff_entries<'a>(
    before: &'a [TableEntry],
    after: &'a [TableEntry],
) -> impl Iterator<Item = TableUpdate> + 'a {
    updates_between(sorted_differences(before, after))
}

fn updates_between<'a>(
    pairs: impl Iterator<Item = EntryPair<'a>>,
) -> impl Iterator<Item = TableUpdate> {
    pairs.filter_map(|(before, after)| {
        let (kind, entry) = match (before, after) {
            (None, Some(after)) => (UpdateKind::Insert, after),
            (Some(_), Some(after)) => (UpdateKind::Modify, after),
            (Some(before), None) => (UpdateKind::Delete, before),
            (None, None) => return None,
        };
        Some(TableUpdate { kind, entry: entry.clone() })
    })
}

impl EntryPool {
    /// Tables with these entries, which share what the pool has and add the rest to it.
    pub fn share_entries(&mut self, entries: impl IntoIterator<Item = TableEntry>) -> SwitchTables {
        entries.into_iter().map(|entry| self.share_entry(entry)).collect()
    }

    /// An entry that shares what the pool has and adds the rest to it.
    pub fn share_entry(&mut self, entry: TableEntry) -> TableEntry {
        let key = share_value(&mut self.keys, entry.key);
        TableEntry { key, value: share_value(&mut self.values, entry.value) }
    }
}

/// The value of the pool that equals `value`, which is added if it is missing.
fn share_value<T: Eq + Hash>(pool: &mut HashSet<Arc<T>>, value: Arc<T>) -> Arc<T> {
    if let Some(known) = pool.get(&value) {
        return Arc::clone(known);
    }
    pool.insert(Arc::clone(&value));
    value
}

impl Extend<TableEntry> for SwitchTables {
    fn extend<I: IntoIterator<Item = TableEntry>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| drop(self.insert(entry)));
    }
}

impl FromIterator<TableEntry> for SwitchTables {
    fn from_iter<I: IntoIterator<Item = TableEntry>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect() }
    }
}

/// The writes that turn `actual` into `desired`, in the order in which to write them.
pub fn diff_tables(
    p4info: &P4Info,
    desired: &SwitchTables,
    actual: &SwitchTables,
) -> Vec<TableUpdate> {
    let updates = updates_between(desired.entries.differences(&actual.entries));
    order_updates(p4info, (desired, actual), updates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForwardingPipeline;
    use crate::fabric::{self, FlowKey, HashSlice, PinPoint, PortNumber, PriorityLevel, table};
    use proptest::prelude::*;
    use std::num::NonZeroU32;
    fn p4info() -> &'static P4Info {
        &ForwardingPipeline::embedded_fabric().p4info
    }

    /// Few keys and few values, so that two tables often share them.
    fn entry() -> impl Strategy<Value = TableEntry> {
        (0..6_u8, 0..3_u16, 0..3_u32).prop_map(|(kind, key, value)| {
            let port = PortNumber::new(value).unwrap();
            let job = NonZeroU32::new(value + 1).unwrap();
            let flow = FlowKey::for_roce([10, 0, 0, 1], [10, 0, 0, 2], key);
            match kind {
                0 => fabric::flow_pin(PinPoint::Transit, &flow, key, job).unwrap(),
                1 => fabric::path(1, key, port, PortNumber::CPU),
                2 => fabric::ecmp_group(key, [port, PortNumber::CPU]).unwrap(),
                3 => fabric::dst_leaf([10, 0, 0, 3].into(), key),
                4 => fabric::job_qos(job, PriorityLevel::new(key.into()).unwrap()),
                _ => fabric::switch_salt(job, HashSlice::FIRST),
            }
        })
    }

    fn tables() -> impl Strategy<Value = SwitchTables> {
        prop::collection::vec(entry(), 0..24).prop_map(SwitchTables::from_iter)
    }

    fn apply_updates<'a>(
        mut tables: SwitchTables,
        updates: impl IntoIterator<Item = &'a TableUpdate>,
    ) -> SwitchTables {
        tables.apply(updates);
        tables
    }

    /// Every pin of path n has its row, and every path row its group: the references of the
    /// program, as far as [`entry`] makes them.
    fn closed(mut tables: SwitchTables) -> SwitchTables {
        for key in 0..3 {
            tables.insert(fabric::path(1, key, PortNumber::CPU, PortNumber::CPU));
            tables.insert(fabric::job_qos(
                NonZeroU32::MIN.saturating_add(key.into()),
                PriorityLevel::new(0).unwrap(),
            ));
        }
        tables
    }

    fn pins_have_paths(tables: &SwitchTables) -> bool {
        let has_pins = tables.table_entries(table::FLOW_PIN).next().is_some();
        !has_pins
            || tables.table_entries(table::PATH).count() == 3
                && tables.table_entries(table::JOB_QOS).count() == 3
    }

    proptest! {
        #[test]
        fn applying_the_difference_gives_the_desired(desired in tables(), actual in tables()) {
            let updates = diff_tables(p4info(), &desired, &actual);
            prop_assert_eq!(apply_updates(actual, &updates), desired);
        }

        #[test]
        fn what_was_not_written_is_seen_in_what_was_touched(
            desired in tables(),
            actual in tables(),
            lost in any::<prop::sample::Index>(),
        ) {
            let mut updates = diff_tables(p4info(), &desired, &actual);
            let touched = TableScope::from_updates(&updates, &desired);
            let missing = |updates: &[TableUpdate]| {
                let held = apply_updates(actual.clone(), updates).entries_within(&touched);
                diff_tables(p4info(), &desired.entries_within(&touched), &held)
            };
            prop_assert_eq!(missing(&updates), vec![]);
            if !updates.is_empty() {
                let lost = updates.remove(lost.index(updates.len()));
                prop_assert_eq!(missing(&updates), vec![lost]);
            }
        }

        #[test]
        fn shared_entries_are_those_given(one in tables(), other in tables()) {
            let mut pool = EntryPool::default();
            for tables in [&one, &other] {
                let shared = pool.share_entries(tables.iter().map(TableEntry::from));
                prop_assert_eq!(&shared, tables);
            }
            let keys: BTreeSet<_> = one.iter().chain(other.iter()).map(|(key, _)| key).collect();
            prop_assert_eq!(pool.keys.len(), keys.len());
        }

        #[test]
        fn equal_tables_do_not_differ(tables in tables()) {
            prop_assert_eq!(diff_tables(p4info(), &tables, &tables), vec![]);
        }

        #[test]
        fn a_pass_after_any_prefix_converges(
            desired in tables(),
            actual in tables(),
            written in any::<prop::sample::Index>(),
        ) {
            let updates = diff_tables(p4info(), &desired, &actual);
            let written = &updates[..written.index(updates.len() + 1)];
            let halfway = apply_updates(actual, written);
            let rest = diff_tables(p4info(), &desired, &halfway);
            prop_assert_eq!(written.len() + rest.len(), updates.len());
            prop_assert_eq!(apply_updates(halfway, &rest), desired);
        }

        #[test]
        fn no_update_twice(desired in tables(), actual in tables()) {
            let updates = diff_tables(p4info(), &desired, &actual);
            let keys: std::collections::BTreeSet<_> =
                updates.iter().map(|update| &update.entry.key).collect();
            prop_assert_eq!(keys.len(), updates.len());
        }

        #[test]
        fn references_hold_after_every_single_write(from in tables(), to in tables()) {
            for (desired, actual) in [
                (closed(to.clone()), SwitchTables::default()),
                (closed(to), closed(from.clone())),
                (SwitchTables::default(), closed(from)),
            ] {
                let mut now = actual.clone();
                for update in diff_tables(p4info(), &desired, &actual) {
                    now = apply_updates(now, [&update]);
                    prop_assert!(pins_have_paths(&now), "after {}", p4info().display(&update));
                }
            }
        }
    }
}
