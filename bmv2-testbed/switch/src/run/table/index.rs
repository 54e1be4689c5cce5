//! From a packet's key to the number of the matching entry.
//!
//! A key is packed into whole 128-bit words, field after field, at places fixed when the table is
//! made; nearly every key fits one word, which is hashed and compared as a number. Exact keys are
//! one hash probe; prefixes one probe per prefix length in use, longest first; everything with a
//! priority is a list in the order of preference, scanned with one mask and compare per entry.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::ids::{HeaderIndex, PhvSlot};
use crate::run::phv::Phv;
use crate::spec::entry::{KeyField, MatchKey};
use crate::spec::{KeySource, MatchKind, TableSpec, bit_mask};

/// The lookup structure of one table.
#[derive(Debug)]
pub(super) struct KeyIndex {
    places: Box<[KeyPlace]>,
    entries: IndexEntries,
    /// The static masks of the fields, in the first word and in all.
    first_mask: u128,
    masks: Box<[u128]>,
    /// The packet's key, reused from packet to packet.
    scratch: Vec<u128>,
}

/// Where a field sits in the packed key. Packets read it for every field of every table, so four of
/// them share a cache line.
#[derive(Clone, Copy, Debug)]
struct KeyPlace {
    source: PlaceSource,
    word: u16,
    shift: u8,
    bits: u8,
}

/// A [`KeySource`] without its mask.
#[derive(Clone, Copy, Debug)]
enum PlaceSource {
    Field(PhvSlot, HeaderIndex),
    Valid(HeaderIndex),
}

#[derive(Debug)]
enum IndexEntries {
    /// No key: nothing can match.
    None,
    Exact(ExactMap),
    /// One map per prefix length in use, the longest first.
    Prefixes(Vec<PrefixMap>),
    /// In the order of preference: priority downwards, then number upwards.
    Ordered(Vec<OrderedRule>),
}

#[derive(Debug)]
struct PrefixMap {
    prefix: u32,
    mask: Vec<u128>,
    map: ExactMap,
}

#[derive(Debug)]
struct OrderedRule {
    priority: u32,
    number: u32,
    /// Mask and value of each word of the key.
    words: Vec<(u128, u128)>,
    ranges: Vec<FieldRange>,
}

#[derive(Debug)]
struct FieldRange {
    place: KeyPlace,
    low: u128,
    high: u128,
}

impl KeyIndex {
    pub(super) fn new(spec: &TableSpec) -> Self {
        let places = key_places(spec);
        let words = places.last().map_or(0, |place| usize::from(place.word) + 1);
        let mut masks = vec![0; words];
        for (key, place) in spec.keys.iter().zip(&places) {
            let mask = match key.source {
                KeySource::Field { mask, .. } => mask,
                KeySource::Valid(_) => 1,
            };
            // The static masks of all fields in one: a packet's key is masked once for each word.
            masks[usize::from(place.word)] |= mask << place.shift;
        }
        let has_prefix = spec.keys.iter().any(|key| key.kind == MatchKind::Lpm);
        let entries = match words {
            0 => IndexEntries::None,
            _ if spec.takes_priority() => IndexEntries::Ordered(Vec::new()),
            _ if has_prefix => IndexEntries::Prefixes(Vec::new()),
            _ => IndexEntries::Exact(ExactMap::new(words)),
        };
        let first_mask = masks.first().copied().unwrap_or(0);
        let (places, masks) = (places.into(), masks.into());
        Self { places, entries, first_mask, masks, scratch: vec![0; words] }
    }

    /// The entry that matches the packet best.
    #[inline]
    pub(super) fn lookup(&mut self, phv: &Phv) -> Option<u32> {
        match &self.entries {
            // Empty tables are frequent in a fabric without jobs, and need no key.
            IndexEntries::Exact(map) if map.is_empty() => None,
            IndexEntries::Ordered(rules) if rules.is_empty() => None,
            IndexEntries::Prefixes(maps) if maps.is_empty() => None,
            IndexEntries::None => None,
            IndexEntries::Exact(ExactMap::Narrow(map)) => {
                let key = self
                    .places
                    .iter()
                    .fold(0, |key, place| key | place.source.read_bits(phv) << place.shift);
                map.get(&(key & self.first_mask)).copied()
            }
            _ => self.lookup_packed(phv),
        }
    }

    /// As [`KeyIndex::lookup`], for keys that may be longer or are not hashed.
    fn lookup_packed(&mut self, phv: &Phv) -> Option<u32> {
        self.scratch.fill(0);
        for place in &self.places {
            self.scratch[usize::from(place.word)] |= place.source.read_bits(phv) << place.shift;
        }
        self.scratch.iter_mut().zip(&self.masks).for_each(|(word, mask)| *word &= mask);
        match &self.entries {
            IndexEntries::None => None,
            IndexEntries::Exact(map) => map.get(&self.scratch),
            IndexEntries::Prefixes(maps) => longest_prefix(maps, &self.scratch),
            IndexEntries::Ordered(rules) => {
                rules.iter().find(|rule| rule.matches_key(&self.scratch)).map(|rule| rule.number)
            }
        }
    }

    /// Adds an entry whose key is not there yet.
    pub(super) fn insert(&mut self, key: &MatchKey, number: u32) {
        let packed = self.pack_key(key);
        match &mut self.entries {
            IndexEntries::None => {}
            IndexEntries::Exact(map) => map.insert(&packed.values(), number),
            IndexEntries::Prefixes(maps) => {
                let prefix = prefix_length(key);
                // Longest first, so that the first hit is the longest prefix.
                let at = maps.partition_point(|map| map.prefix > prefix);
                if maps.get(at).is_none_or(|map| map.prefix != prefix) {
                    let map = ExactMap::new(packed.words.len());
                    maps.insert(at, PrefixMap { prefix, mask: packed.masks(), map });
                }
                maps[at].map.insert(&packed.values(), number);
            }
            IndexEntries::Ordered(rules) => {
                let at = rule_position(rules, key.priority, number);
                let PackedKey { words, ranges } = packed;
                rules.insert(at, OrderedRule { priority: key.priority, number, words, ranges });
            }
        }
    }

    /// Forgets an entry.
    pub(super) fn remove(&mut self, key: &MatchKey, number: u32) {
        let packed = self.pack_key(key);
        match &mut self.entries {
            IndexEntries::None => {}
            IndexEntries::Exact(map) => map.remove(&packed.values()),
            IndexEntries::Prefixes(maps) => {
                let prefix = prefix_length(key);
                if let Some(at) = maps.iter().position(|map| map.prefix == prefix) {
                    maps[at].map.remove(&packed.values());
                    // A length without entries would cost each packet a probe.
                    if maps[at].map.is_empty() {
                        maps.remove(at);
                    }
                }
            }
            IndexEntries::Ordered(rules) => {
                let at = rule_position(rules, key.priority, number);
                if rules.get(at).is_some_and(|rule| rule.number == number) {
                    rules.remove(at);
                }
            }
        }
    }

    fn pack_key(&self, key: &MatchKey) -> PackedKey {
        let mut packed = PackedKey { words: vec![(0, 0); self.scratch.len()], ranges: Vec::new() };
        for (field, place) in key.fields.iter().zip(&self.places) {
            let bits = u32::from(place.bits);
            let all = bit_mask(bits);
            let (field_mask, value) = match *field {
                KeyField::Exact(value) | KeyField::Optional(Some(value)) => (all, value),
                KeyField::Lpm { value, prefix } => (all & !bit_mask(bits - prefix), value),
                KeyField::Ternary { value, mask } => (mask, value),
                KeyField::Optional(None) => (0, 0),
                KeyField::Range { low, high } => {
                    packed.ranges.push(FieldRange { place: *place, low, high });
                    (0, 0)
                }
            };
            let word = &mut packed.words[usize::from(place.word)];
            word.0 |= field_mask << place.shift;
            word.1 |= value << place.shift;
        }
        packed
    }
}

/// An entry's key as words of mask and value.
struct PackedKey {
    words: Vec<(u128, u128)>,
    ranges: Vec<FieldRange>,
}

impl PackedKey {
    fn masks(&self) -> Vec<u128> {
        self.words.iter().map(|word| word.0).collect()
    }

    fn values(&self) -> Vec<u128> {
        self.words.iter().map(|word| word.1).collect()
    }
}

impl OrderedRule {
    #[inline]
    fn matches_key(&self, key: &[u128]) -> bool {
        let masked = self.words.iter().zip(key).all(|((mask, value), word)| word & mask == *value);
        masked && self.ranges.iter().all(|bounds| bounds.contains_key(key))
    }
}

impl FieldRange {
    fn contains_key(&self, key: &[u128]) -> bool {
        let KeyPlace { word, shift, bits, .. } = self.place;
        let value = (key[usize::from(word)] >> shift) & bit_mask(bits.into());
        (self.low..=self.high).contains(&value)
    }
}

/// Where a rule is, or would be.
fn rule_position(rules: &[OrderedRule], priority: u32, number: u32) -> usize {
    // Of equal priorities the lower number wins, as P4Runtime leaves it open.
    let own = (Reverse(priority), number);
    rules.partition_point(|rule| (Reverse(rule.priority), rule.number) < own)
}

/// Fields in order, each within one word: a field that does not fit what is left starts the next.
fn key_places(spec: &TableSpec) -> Vec<KeyPlace> {
    let (mut word, mut used) = (0_u16, 0);
    let mut places = Vec::with_capacity(spec.keys.len());
    for key in &spec.keys {
        // A field is never divided between words: it is compared by one mask.
        if used + key.bits > 128 {
            (word, used) = (word + 1, 0);
        }
        let source = match key.source {
            KeySource::Field { slot, header, .. } => PlaceSource::Field(slot, header),
            KeySource::Valid(header) => PlaceSource::Valid(header),
        };
        // At most 127 and 128.
        places.push(KeyPlace { source, word, shift: used as u8, bits: key.bits as u8 });
        used += key.bits;
    }
    places
}

impl PlaceSource {
    #[inline]
    fn read_bits(self, phv: &Phv) -> u128 {
        match self {
            Self::Field(slot, header) if phv.is_valid(header) => phv.get(slot),
            // A field of an absent header matches as zero.
            Self::Field(..) => 0,
            Self::Valid(header) => u128::from(phv.is_valid(header)),
        }
    }
}

fn longest_prefix(maps: &[PrefixMap], key: &[u128]) -> Option<u32> {
    if let [word] = key {
        return maps.iter().find_map(|map| map.map.get(&[word & map.mask[0]]));
    }
    maps.iter().find_map(|map| {
        let masked: Vec<u128> = key.iter().zip(&map.mask).map(|(word, mask)| word & mask).collect();
        map.map.get(&masked)
    })
}

fn prefix_length(key: &MatchKey) -> u32 {
    key.fields
        .iter()
        .find_map(|field| match field {
            KeyField::Lpm { prefix, .. } => Some(*prefix),
            _ => None,
        })
        .unwrap_or(0)
}

/// A hash map from packed keys to entry numbers, with one-word keys kept inline. Its order never
/// reaches an output.
#[derive(Debug)]
enum ExactMap {
    Narrow(HashMap<u128, u32, BuildHasherDefault<KeyHasher>>),
    Wide(HashMap<Box<[u128]>, u32, BuildHasherDefault<KeyHasher>>),
}

impl ExactMap {
    fn new(words: usize) -> Self {
        if words == 1 { Self::Narrow(HashMap::default()) } else { Self::Wide(HashMap::default()) }
    }

    #[inline]
    fn get(&self, key: &[u128]) -> Option<u32> {
        match self {
            Self::Narrow(map) => map.get(&key[0]).copied(),
            Self::Wide(map) => map.get(key).copied(),
        }
    }

    fn insert(&mut self, key: &[u128], number: u32) {
        match self {
            Self::Narrow(map) => map.insert(key[0], number),
            Self::Wide(map) => map.insert(key.into(), number),
        };
    }

    fn remove(&mut self, key: &[u128]) {
        match self {
            Self::Narrow(map) => map.remove(&key[0]),
            Self::Wide(map) => map.remove(key),
        };
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Narrow(map) => map.is_empty(),
            Self::Wide(map) => map.is_empty(),
        }
    }
}

/// Multiply and fold, one step per 64 bits. Keys come from an operator's own tables, so resistance
/// to chosen collisions is not needed; the same hash in every run is.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl KeyHasher {
    #[inline]
    fn mix_word(&mut self, word: u64) {
        // 2^64 divided by the golden ratio, made odd.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from((self.0 ^ word).wrapping_add(1)) * u128::from(SPREAD);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix_word(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.mix_word(word);
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.mix_word(word as u64);
        self.mix_word((word >> 64) as u64);
    }
}
