//! The tables of one switch, desired or actual, and the change between two of them.
//!
//! Lowering makes the desired [`Tables`], reading a switch makes the actual ones, [`diff`] is what a
//! session writes. The decision: a change is a list of updates in the order in which they can be
//! written one by one. First what is new or different, every table after those it refers to; then
//! what has to go, in the reverse order. So no row ever points to nothing, and traffic moves before
//! its old way is taken away.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::P4Info;
use crate::entry::{EntryKey, EntryValue, TableEntry, TableId};

/// All entries of one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    entries: BTreeMap<EntryKey, EntryValue>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
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

impl Tables {
    /// Adds an entry, or replaces the one with the same key and returns its value.
    pub fn insert(&mut self, entry: TableEntry) -> Option<EntryValue> {
        self.entries.insert(entry.key, entry.value)
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: &EntryKey) -> Option<EntryValue> {
        self.entries.remove(key)
    }

    /// The value of an entry.
    pub fn get(&self, key: &EntryKey) -> Option<&EntryValue> {
        self.entries.get(key)
    }

    /// All entries, ascending by key.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryKey, &EntryValue)> {
        self.entries.iter()
    }

    /// The entries of one table, ascending by key.
    pub fn of(&self, table: TableId) -> impl Iterator<Item = (&EntryKey, &EntryValue)> {
        // A default action is the first entry of its table.
        self.entries
            .range(EntryKey::default_of(table)..)
            .take_while(move |(key, _)| key.table == table)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Extend<TableEntry> for Tables {
    fn extend<I: IntoIterator<Item = TableEntry>>(&mut self, entries: I) {
        self.entries
            .extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
    }
}

impl FromIterator<TableEntry> for Tables {
    fn from_iter<I: IntoIterator<Item = TableEntry>>(entries: I) -> Self {
        let mut tables = Self::default();
        tables.extend(entries);
        tables
    }
}

/// The writes that turn `actual` into `desired`, in the order in which to write them.
pub fn diff(p4info: &P4Info, desired: &Tables, actual: &Tables) -> Vec<Update> {
    let mut writes: Vec<_> = desired
        .iter()
        .filter_map(|(key, value)| upsert(key, value, actual.get(key)))
        .collect();
    let mut deletions: Vec<_> = actual
        .iter()
        .filter(|(key, _)| desired.get(key).is_none())
        .map(|(key, value)| update(UpdateKind::Delete, key, value))
        .collect();
    let rank = |update: &Update| p4info.rank(update.entry.key.table);
    writes.sort_by_key(rank);
    deletions.sort_by_key(|update| Reverse(rank(update)));
    writes.append(&mut deletions);
    writes
}

/// The tables after these updates.
pub fn apply<'a>(mut tables: Tables, updates: impl IntoIterator<Item = &'a Update>) -> Tables {
    for update in updates {
        match update.kind {
            UpdateKind::Insert | UpdateKind::Modify => tables.insert(update.entry.clone()),
            UpdateKind::Delete => tables.remove(&update.entry.key),
        };
    }
    tables
}

fn upsert(key: &EntryKey, desired: &EntryValue, actual: Option<&EntryValue>) -> Option<Update> {
    match actual {
        None => Some(update(UpdateKind::Insert, key, desired)),
        Some(actual) if actual != desired => Some(update(UpdateKind::Modify, key, desired)),
        Some(_) => None,
    }
}

fn update(kind: UpdateKind, key: &EntryKey, value: &EntryValue) -> Update {
    let (key, value) = (key.clone(), value.clone());
    let entry = TableEntry { key, value };
    Update { kind, entry }
}
