//! The entries of one switch by key, in chunks that successive versions of its tables share.
//!
//! [`tables`](crate::tables) keeps them here. A controller has thousands of entries for each of
//! hundreds of switches, and a failure changes a few of them everywhere. The decision: a sorted
//! list of sorted chunks, each behind an [`Arc`]. A copy shares all chunks, a change replaces those
//! that it touches, and two versions are compared without a look at what they share: copying,
//! changing and comparing cost what has changed, not what there is.

use std::cmp::Ordering;
use std::iter;
use std::sync::Arc;

use crate::entry::{EntryKey, EntryValue, TableEntry};

/// Entries of a chunk that is built at once. Half a kilobyte to a kilobyte is copied for a change
/// of one entry, and a large switch has about a hundred chunks.
const CHUNK: usize = 48;
/// A chunk with more is split.
const CHUNK_MAX: usize = 2 * CHUNK;
/// A chunk with fewer takes in the next one.
const CHUNK_MIN: usize = CHUNK / 4;

/// Entries in ascending order of their keys; none has as many as [`CHUNK_MAX`] or is empty.
type EntryChunk = Arc<Vec<TableEntry>>;

/// Entries by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryMap {
    chunks: Vec<EntryChunk>,
    len: usize,
}

/// An entry before and after a change.
pub(crate) type EntryPair<'a> = (Option<&'a TableEntry>, Option<&'a TableEntry>);

impl EntryMap {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &EntryKey) -> Option<&TableEntry> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let place = find_key(chunk, key).ok()?;
        chunk.get(place)
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The entries after those that are `before`, which holds for the first ones and no other.
    pub(crate) fn iter_after(
        &self,
        before: impl Fn(&EntryKey) -> bool,
    ) -> impl Iterator<Item = &TableEntry> {
        let (chunks, place) = self.place_after(&before);
        let rest = chunks.iter().flat_map(|chunk| chunk.iter());
        rest.skip(place)
    }

    /// How many entries are `before`, which holds for the first ones and no other.
    pub(crate) fn count_before(&self, before: impl Fn(&EntryKey) -> bool) -> usize {
        let (chunks, place) = self.place_after(&before);
        let whole = self.chunks.len() - chunks.len();
        self.chunks[..whole].iter().map(|chunk| chunk.len()).sum::<usize>() + place
    }

    /// The chunks from the one with the first entry that is not `before`, and its place there.
    fn place_after(&self, before: &impl Fn(&EntryKey) -> bool) -> (&[EntryChunk], usize) {
        let is_before = |chunk: &EntryChunk| chunk.last().is_some_and(|last| before(&last.key));
        let chunks = &self.chunks[self.chunks.partition_point(is_before)..];
        let place = |chunk: &EntryChunk| chunk.partition_point(|entry| before(&entry.key));
        (chunks, chunks.first().map_or(0, place))
    }

    /// The chunk that has a key or would have it.
    fn chunk_of(&self, key: &EntryKey) -> usize {
        let begins = |chunk: &EntryChunk| chunk.first().is_some_and(|first| *first.key <= *key);
        self.chunks.partition_point(begins).saturating_sub(1)
    }

    /// Adds an entry, or gives the one with the same key another value and returns its old one.
    pub(crate) fn insert(&mut self, entry: TableEntry) -> Option<Arc<EntryValue>> {
        let at = self.chunk_of(&entry.key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Arc::new(vec![entry]));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match find_key(chunk, &entry.key) {
            Ok(place) => Some(std::mem::replace(&mut chunk[place].value, entry.value)),
            Err(place) => {
                chunk.insert(place, entry);
                self.len += 1;
                if chunk.len() > CHUNK_MAX {
                    let rest = chunk.split_off(CHUNK);
                    self.chunks.insert(at + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    /// Removes an entry and returns its value.
    pub(crate) fn remove(&mut self, key: &EntryKey) -> Option<Arc<EntryValue>> {
        let at = self.chunk_of(key);
        let chunk = self.chunks.get_mut(at)?;
        let place = find_key(chunk, key).ok()?;
        let removed = Arc::make_mut(chunk).remove(place);
        self.len -= 1;
        if chunk.len() < CHUNK_MIN {
            let small = self.chunks.remove(at);
            let next = (at < self.chunks.len()).then(|| self.chunks.remove(at));
            let mut merged = Vec::new();
            [small].into_iter().chain(next).for_each(|chunk| push_chunk(&mut merged, chunk));
            self.chunks.splice(at..at, merged);
        }
        Some(removed.value)
    }

    /// Makes changes in ascending order of their keys: an entry, or none where one goes. Chunks
    /// without a change stay shared.
    pub(crate) fn apply_sorted(&mut self, changes: &[(&Arc<EntryKey>, Option<&TableEntry>)]) {
        if changes.is_empty() {
            return;
        }
        let mut left = changes;
        let mut chunks = Vec::with_capacity(self.chunks.len());
        let old = std::mem::take(&mut self.chunks);
        let mut old = old.into_iter().peekable();
        if old.peek().is_none() {
            push_rows(&mut chunks, left.iter().filter_map(|(_, entry)| entry.cloned()).collect());
        }
        while let Some(chunk) = old.next() {
            let next = old.peek().and_then(|next| next.first());
            let is_here = |key: &EntryKey| next.is_none_or(|next| *key < *next.key);
            let here = left.iter().take_while(|(key, _)| is_here(key)).count();
            let (of_chunk, rest) = left.split_at(here);
            left = rest;
            match of_chunk.is_empty() {
                true => push_chunk(&mut chunks, chunk),
                false => push_rows(&mut chunks, merge_rows(&chunk, of_chunk)),
            }
        }
        self.len = chunks.iter().map(|chunk| chunk.len()).sum();
        self.chunks = chunks;
    }

    /// The entries that differ from those of `before`, ascending; chunks that both share are
    /// skipped.
    pub(crate) fn differences<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = EntryPair<'a>> {
        let mut old = EntryCursor { chunks: &before.chunks, place: 0 };
        let mut new = EntryCursor { chunks: &self.chunks, place: 0 };
        iter::from_fn(move || {
            loop {
                old.skip_shared(&mut new);
                let pair = next_pair(old.entry(), new.entry())?;
                old.advance_if(pair.0.is_some());
                new.advance_if(pair.1.is_some());
                if is_changed(pair) {
                    return Some(pair);
                }
            }
        })
    }
}

impl PartialEq for EntryMap {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.differences(other).next().is_none()
    }
}

impl Eq for EntryMap {}

impl FromIterator<TableEntry> for EntryMap {
    /// Of entries with the same key, the last one counts.
    fn from_iter<I: IntoIterator<Item = TableEntry>>(entries: I) -> Self {
        let mut entries: Vec<TableEntry> = entries.into_iter().collect();
        sort_entries(&mut entries);
        let (mut chunks, len) = (Vec::new(), entries.len());
        push_rows(&mut chunks, entries);
        Self { chunks, len }
    }
}

/// Puts entries in ascending order of their keys; of those with the same key, the last one stays.
pub fn sort_entries(entries: &mut Vec<TableEntry>) {
    entries.sort_by(|a, b| compare_keys(&a.key, &b.key));
    keep_last(entries, |entry| &entry.key);
}

/// Of neighbours with the same key, the last one stays.
pub(crate) fn keep_last<T>(list: &mut Vec<T>, key: impl Fn(&T) -> &Arc<EntryKey>) {
    list.dedup_by(|later, earlier| {
        let is_same = key(later) == key(earlier);
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
}

/// What differs between two lists in ascending order.
pub(crate) fn sorted_differences<'a>(
    before: impl IntoIterator<Item = &'a TableEntry>,
    after: impl IntoIterator<Item = &'a TableEntry>,
) -> impl Iterator<Item = EntryPair<'a>> {
    let (mut old, mut new) = (before.into_iter().peekable(), after.into_iter().peekable());
    let pairs = iter::from_fn(move || {
        let pair = next_pair(old.peek().copied(), new.peek().copied())?;
        old.next_if(|_| pair.0.is_some());
        new.next_if(|_| pair.1.is_some());
        Some(pair)
    });
    pairs.filter(|pair| is_changed(*pair))
}

/// The next of two ascending lists, with the entry of the same key in the other one.
fn next_pair<'a>(
    old: Option<&'a TableEntry>,
    new: Option<&'a TableEntry>,
) -> Option<EntryPair<'a>> {
    let order = match (old, new) {
        (Some(old), Some(new)) => compare_keys(&old.key, &new.key),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => return None,
    };
    Some((old.filter(|_| order.is_le()), new.filter(|_| order.is_ge())))
}

fn is_changed((old, new): EntryPair<'_>) -> bool {
    old.map(|old| &old.value) != new.map(|new| &new.value)
}

/// A place in the chunks of a map.
struct EntryCursor<'a> {
    chunks: &'a [EntryChunk],
    place: usize,
}

impl<'a> EntryCursor<'a> {
    fn entry(&self) -> Option<&'a TableEntry> {
        self.chunks.first()?.get(self.place)
    }

    fn advance_if(&mut self, is_taken: bool) {
        self.place += usize::from(is_taken);
        if self.chunks.first().is_some_and(|chunk| self.place == chunk.len()) {
            (self.chunks, self.place) = (&self.chunks[1..], 0);
        }
    }

    /// Leaves out the chunks that both have, where both are at the begin of one.
    fn skip_shared(&mut self, other: &mut Self) {
        while let (0, 0, Some(one), Some(two)) =
            (self.place, other.place, self.chunks.first(), other.chunks.first())
            && Arc::ptr_eq(one, two)
        {
            (self.chunks, other.chunks) = (&self.chunks[1..], &other.chunks[1..]);
        }
    }
}

/// The order of two keys; most of those that are equal are the same.
fn compare_keys(one: &Arc<EntryKey>, other: &Arc<EntryKey>) -> Ordering {
    if Arc::ptr_eq(one, other) { Ordering::Equal } else { one.cmp(other) }
}

fn find_key(chunk: &[TableEntry], key: &EntryKey) -> Result<usize, usize> {
    chunk.binary_search_by(|entry| (*entry.key).cmp(key))
}

/// The entries of a chunk after changes that belong there. A key that stays is the one that was
/// there, which other switches share.
fn merge_rows(
    chunk: &[TableEntry],
    changes: &[(&Arc<EntryKey>, Option<&TableEntry>)],
) -> Vec<TableEntry> {
    let mut merged = Vec::with_capacity(chunk.len() + changes.len());
    let mut rows = chunk.iter().peekable();
    for (key, entry) in changes {
        while let Some(row) = rows.next_if(|row| compare_keys(&row.key, key).is_lt()) {
            merged.push(row.clone());
        }
        let had = rows.next_if(|row| row.key == **key);
        merged.extend(entry.map(|entry| TableEntry {
            key: Arc::clone(had.map_or(&entry.key, |had| &had.key)),
            value: Arc::clone(&entry.value),
        }));
    }
    merged.extend(rows.cloned());
    merged
}

/// Appends entries, in chunks of equal size.
fn push_rows(chunks: &mut Vec<EntryChunk>, mut rows: Vec<TableEntry>) {
    if rows.len() <= CHUNK_MAX {
        rows.shrink_to_fit();
        push_chunk(chunks, Arc::new(rows));
        return;
    }
    let size = rows.len().div_ceil(rows.len().div_ceil(CHUNK));
    rows.chunks(size).for_each(|part| push_chunk(chunks, Arc::new(part.to_vec())));
}

/// Appends a chunk, to the last one if that is small.
fn push_chunk(chunks: &mut Vec<EntryChunk>, chunk: EntryChunk) {
    match chunks.last_mut() {
        _ if chunk.is_empty() => {}
        Some(last) if last.len() < CHUNK_MIN => {
            // No chunk has more than the most, so that both together fit two.
            let mut rows = Vec::with_capacity(last.len() + chunk.len());
            rows.extend(last.iter().chain(chunk.iter()).cloned());
            chunks.pop();
            if rows.len() > CHUNK_MAX {
                let rest = rows.split_off(CHUNK);
                chunks.extend([Arc::new(rows), Arc::new(rest)]);
            } else {
                chunks.push(Arc::new(rows));
            }
        }
        _ => chunks.push(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{self, PortNumber};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// One of three values under one of as many keys as give several chunks.
    fn entry((key, value): (u16, u32)) -> TableEntry {
        let port = PortNumber::new(value).unwrap();
        fabric::path(1 + key / 100, key % 100, port, port)
    }

    fn entries() -> impl Strategy<Value = Vec<TableEntry>> {
        prop::collection::vec((0..400_u16, 0..3_u32).prop_map(entry), 0..400)
    }

    fn check_chunks(map: &EntryMap) -> Result<(), TestCaseError> {
        let sizes: Vec<usize> = map.chunks.iter().map(|chunk| chunk.len()).collect();
        prop_assert!(sizes.iter().all(|size| (1..=CHUNK_MAX).contains(size)), "{sizes:?}");
        let inner = &sizes[..sizes.len().saturating_sub(1)];
        prop_assert!(inner.iter().all(|size| *size >= CHUNK_MIN), "{sizes:?}");
        prop_assert_eq!(map.len(), sizes.iter().sum::<usize>());
        Ok(())
    }

    type ExpectedEntries = BTreeMap<Arc<EntryKey>, Arc<EntryValue>>;

    fn model(entries: &[TableEntry]) -> ExpectedEntries {
        entries.iter().map(|entry| (Arc::clone(&entry.key), Arc::clone(&entry.value))).collect()
    }

    fn check_content(map: &EntryMap, model: &ExpectedEntries) -> Result<(), TestCaseError> {
        check_chunks(map)?;
        let content: Vec<_> = map.iter().map(|entry| (&entry.key, &entry.value)).collect();
        prop_assert_eq!(content, model.iter().collect::<Vec<_>>());
        Ok(())
    }

    proptest! {
        #[test]
        fn it_is_the_map_of_its_entries(all in entries(), more in entries(), less in entries()) {
            let (mut map, mut expected) = (all.iter().cloned().collect(), model(&all));
            check_content(&map, &expected)?;
            for entry in more {
                let had = expected.insert(Arc::clone(&entry.key), Arc::clone(&entry.value));
                prop_assert_eq!(map.insert(entry), had);
                check_chunks(&map)?;
            }
            check_content(&map, &expected)?;
            for entry in &less {
                let found = map.get(&entry.key).map(|found| &found.value);
                prop_assert_eq!(found, expected.get(&entry.key));
                prop_assert_eq!(map.remove(&entry.key), expected.remove(&entry.key));
                check_chunks(&map)?;
            }
            check_content(&map, &expected)?;
            for entry in less.iter().take(9) {
                let before = |key: &EntryKey| *key < *entry.key;
                let rest = map.iter_after(before).map(|entry| &entry.key);
                let all = expected.range::<EntryKey, _>(&*entry.key..).map(|(key, _)| key);
                prop_assert_eq!(map.count_before(before), map.len() - all.clone().count());
                prop_assert_eq!(rest.collect::<Vec<_>>(), all.collect::<Vec<_>>());
            }
        }

        #[test]
        fn changes_touch_few_chunks_and_are_found(all in entries(), changed in entries()) {
            let before: EntryMap = all.iter().cloned().collect();
            let (mut after, mut expected) = (before.clone(), model(&all));
            // Every third goes.
            let mut of_keys: BTreeMap<&Arc<EntryKey>, Option<&TableEntry>> = BTreeMap::new();
            for (place, entry) in changed.iter().enumerate() {
                of_keys.insert(&entry.key, (place % 3 > 0).then_some(entry));
            }
            for (key, entry) in &of_keys {
                match entry {
                    Some(entry) => expected.insert(Arc::clone(key), Arc::clone(&entry.value)),
                    None => expected.remove(*key),
                };
            }
            after.apply_sorted(&of_keys.into_iter().collect::<Vec<_>>());
            check_content(&after, &expected)?;
            let old = model(&all);
            let differing = |key: &&Arc<EntryKey>| old.get(*key) != expected.get(*key);
            let keys: std::collections::BTreeSet<_> = old.keys().chain(expected.keys()).collect();
            let differing: Vec<_> = keys.into_iter().filter(differing).collect();
            let found = after.differences(&before).map(|(old, new)| &old.or(new).unwrap().key);
            prop_assert_eq!(found.collect::<Vec<_>>(), differing.clone());
            prop_assert_eq!(after == before, differing.is_empty());
            let own: Vec<TableEntry> = after.iter().cloned().collect();
            let had: Vec<TableEntry> = before.iter().cloned().collect();
            prop_assert_eq!(sorted_differences(&had, &own).count(), differing.len());
        }
    }

    #[test]
    fn a_change_of_one_entry_leaves_all_other_chunks_shared() {
        let before: EntryMap = (0..1_000).map(|key| entry((key, 0))).collect();
        let mut after = before.clone();
        let change = entry((500, 1));
        after.apply_sorted(&[(&change.key, Some(&change))]);
        let chunks = before.chunks.iter().zip(&after.chunks);
        assert_eq!(chunks.filter(|(old, new)| !Arc::ptr_eq(old, new)).count(), 1);
        assert_eq!((before.chunks.len(), after.chunks.len()), (21, 21));
    }
}
