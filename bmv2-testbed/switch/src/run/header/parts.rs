//! Fields of a header in parts of up to eight bytes, each moved between packet and fields by one
//! load or one store.
//!
//! A field alone costs a load, two shifts by variable amounts and tests of its limits; in a part
//! it costs one shift and one mask. What does not fit a part, such as an IPv6 address, is moved
//! alone.

use super::{FieldLayout, read_bits};
use crate::ids::PhvSlot;
use crate::run::hash::BitWriter;
use crate::run::phv::Phv;
use crate::spec::bit_mask;

/// Bits of the largest part.
const PART_BITS: usize = 64;

/// Some fields of a header that follow each other.
#[derive(Clone, Debug)]
pub(crate) enum HeaderPart {
    Word(HeaderWord),
    Field(FieldLayout),
}

/// Whole bytes that hold whole fields.
#[derive(Clone, Debug)]
pub(crate) struct HeaderWord {
    /// Where it starts in the header, in bytes.
    offset: usize,
    /// 8 to 64, whole bytes.
    bits: u32,
    fields: Box<[WordField]>,
}

/// A field within a word, whose last bit is bit 0.
#[derive(Clone, Copy, Debug)]
struct WordField {
    slot: PhvSlot,
    shift: u32,
    mask: u64,
}

/// Divides fields that follow each other into as few words as possible.
pub(crate) fn divide_fields(fields: &[FieldLayout]) -> Vec<HeaderPart> {
    let (mut parts, mut rest) = (Vec::new(), fields);
    while let Some(first) = rest.first() {
        let count = word_length(rest);
        let (word, behind) = rest.split_at(count.max(1));
        parts.push(match count {
            0 => HeaderPart::Field(*first),
            _ => HeaderPart::Word(HeaderWord::from_fields(word)),
        });
        rest = behind;
    }
    parts
}

/// How many of the fields from the first on make the largest word; 0 where none do.
fn word_length(fields: &[FieldLayout]) -> usize {
    let start = fields[0].offset;
    // A field that begins within a byte belongs to no part of its own.
    if !start.is_multiple_of(8) {
        return 0;
    }
    let ends = fields.iter().map(|field| field.offset + field.bits as usize - start);
    let fitting = ends.take_while(|bits| *bits <= PART_BITS);
    // Parts end at a byte, so that they can be written without pending bits.
    let whole = fitting.zip(1..).filter(|(bits, _)| bits.is_multiple_of(8));
    whole.last().map_or(0, |(_, count)| count)
}

impl HeaderPart {
    /// Reads the fields from the bytes of a packet from the header on.
    #[inline]
    pub(crate) fn extract_fields(&self, bytes: &[u8], phv: &mut Phv) {
        match self {
            Self::Word(word) => word.extract_fields(bytes, phv),
            Self::Field(field) => phv.set(field.slot, read_bits(bytes, field.offset, field.bits)),
        }
    }

    /// Appends the fields.
    #[inline]
    pub(crate) fn emit_fields(&self, phv: &Phv, bits: &mut BitWriter<'_>) {
        match self {
            Self::Word(word) => bits.push_whole_bytes(word.packed_fields(phv), word.bits),
            Self::Field(field) => bits.push_bits(phv.get(field.slot), field.bits),
        }
    }
}

impl HeaderWord {
    fn from_fields(fields: &[FieldLayout]) -> Self {
        let start = fields[0].offset;
        let end = fields.last().map_or(start, |field| field.offset + field.bits as usize);
        let in_word = |field: &FieldLayout| WordField {
            slot: field.slot,
            shift: (end - field.offset) as u32 - field.bits,
            mask: bit_mask(field.bits) as u64,
        };
        Self {
            offset: start / 8,
            bits: (end - start) as u32,
            fields: fields.iter().map(in_word).collect(),
        }
    }

    #[inline]
    fn extract_fields(&self, bytes: &[u8], phv: &mut Phv) {
        let word = read_bits(bytes, 8 * self.offset, self.bits) as u64;
        for field in &self.fields {
            phv.set(field.slot, u128::from(word >> field.shift & field.mask));
        }
    }

    #[inline]
    fn packed_fields(&self, phv: &Phv) -> u64 {
        let shifted = self.fields.iter().map(|field| (phv.get(field.slot) as u64) << field.shift);
        shifted.fold(0, |word, field| word | field)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::phv::PhvLayout;

    fn header(widths: &[u32]) -> Vec<FieldLayout> {
        let mut offset = 0;
        let places = (0..).zip(widths).map(|(slot, bits)| {
            let place = FieldLayout { slot: PhvSlot(slot), offset, bits: *bits };
            offset += *bits as usize;
            place
        });
        places.collect()
    }

    fn shape(parts: &[HeaderPart]) -> Vec<(u32, usize)> {
        let of_part = |part: &HeaderPart| match part {
            HeaderPart::Word(word) => (word.bits, word.fields.len()),
            HeaderPart::Field(field) => (field.bits, 0),
        };
        parts.iter().map(of_part).collect()
    }

    #[test]
    fn headers_of_ipv4_are_three_words_and_addresses_of_ipv6_are_moved_alone() {
        let ipv4 = header(&[4, 4, 6, 2, 16, 16, 1, 1, 1, 13, 8, 8, 16, 32, 32]);
        assert_eq!(shape(&divide_fields(&ipv4)), [(64, 10), (64, 4), (32, 1)]);
        let ipv6 = header(&[4, 6, 2, 20, 16, 8, 8, 128, 128]);
        assert_eq!(shape(&divide_fields(&ipv6)), [(64, 7), (128, 0), (128, 0)]);
        assert_eq!(shape(&divide_fields(&header(&[3, 65, 4]))), [(3, 0), (65, 0), (4, 0)]);
    }

    proptest! {
        /// However the fields lie: they are read as one by one, and written back as they were.
        #[test]
        fn fields_are_those_read_alone_and_bytes_come_back(
            widths in proptest::collection::vec(1..=128_u32, 1..16),
            bytes in proptest::collection::vec(any::<u8>(), 256 + 8),
            behind in 0..9_usize,
        ) {
            let fields = header(&widths);
            let all: usize = widths.iter().map(|bits| *bits as usize).sum();
            let packet = &bytes[..all.div_ceil(8) + behind];
            let mut phv = Phv::new(&PhvLayout { slots: fields.len(), ..PhvLayout::default() });
            let parts = divide_fields(&fields);
            parts.iter().for_each(|part| part.extract_fields(packet, &mut phv));
            for field in &fields {
                let alone = read_bits(packet, field.offset, field.bits);
                prop_assert_eq!(phv.get(field.slot), alone);
            }
            let mut written = Vec::new();
            let mut bits = BitWriter::new(&mut written);
            parts.iter().for_each(|part| part.emit_fields(&phv, &mut bits));
            bits.finish();
            for at in 0..all {
                prop_assert_eq!(read_bits(&written, at, 1), read_bits(packet, at, 1), "bit {}", at);
            }
        }
    }
}
