//! Headers as they lie in a packet, and what happens to them as a whole.
//!
//! The parser extracts through a [`HeaderLayout`], the deparser emits through it, and actions copy,
//! add, remove and shift headers by it. A layout is a list of pieces of at most 128 bits, which is
//! how fields of any width are carried; a variable-length field is kept as bytes beside them.

mod parts;

use crate::ids::{HeaderIndex, PhvSlot, StackIndex, VarbitIndex};
use crate::run::hash::BitWriter;
use crate::run::phv::Phv;
use crate::spec::bit_mask;
pub(crate) use parts::{HeaderPart, divide_fields};

/// How a header lies in the packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderLayout {
    /// Bytes without the variable-length field.
    pub(crate) bytes: usize,
    /// The pieces in order, those behind the variable-length field excepted.
    pub(crate) fields: Vec<FieldLayout>,
    /// These pieces as they are moved.
    pub(crate) parts: Vec<HeaderPart>,
    pub(crate) variable: Option<Box<VarbitLayout>>,
    /// The other members of its header union: at most one member is valid.
    pub(crate) union_peers: Box<[HeaderIndex]>,
}

/// Where a piece of a field starts within its header, in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldLayout {
    pub(crate) slot: PhvSlot,
    pub(crate) offset: usize,
    pub(crate) bits: u32,
}

/// The variable-length field of a header and what follows it.
#[derive(Clone, Debug)]
pub(crate) struct VarbitLayout {
    pub(crate) varbit: VarbitIndex,
    /// Where it starts, in bits.
    pub(crate) offset: usize,
    /// The pieces behind it, at the offsets they have when it is empty.
    pub(crate) behind: Vec<FieldLayout>,
    /// The longest the header may be, in bytes.
    pub(crate) max_bytes: usize,
}

/// A header stack, or a stack of unions: then an element is the members of one union.
#[derive(Clone, Debug)]
pub(crate) struct HeaderStack {
    pub(crate) index: StackIndex,
    pub(crate) elements: Vec<Vec<HeaderIndex>>,
}

impl HeaderLayout {
    /// Reads every field from the packet's bytes, which start with the header and are enough. What
    /// follows the header lets its last fields be read by whole words.
    #[inline]
    pub(crate) fn extract_fields(&self, bytes: &[u8], phv: &mut Phv) {
        self.parts.iter().for_each(|part| part.extract_fields(bytes, phv));
    }

    /// As [`HeaderLayout::extract`], with `length` bytes in the variable-length field.
    pub(crate) fn extract_variable(&self, bytes: &[u8], length: usize, phv: &mut Phv) {
        self.extract_fields(bytes, phv);
        let Some(variable) = &self.variable else {
            return;
        };
        // The buffer keeps its memory from packet to packet.
        let content = phv.varbit_mut(variable.varbit);
        content.clear();
        content.extend((0..length).map(|at| read_bits(bytes, variable.offset + 8 * at, 8) as u8));
        for field in &variable.behind {
            // Fields behind the variable one move by its length.
            let offset = field.offset + 8 * length;
            phv.set(field.slot, read_bits(bytes, offset, field.bits));
        }
    }

    /// Bytes of the header as it is now.
    #[inline]
    pub(crate) fn byte_length(&self, phv: &Phv) -> usize {
        let variable = self.variable.as_ref();
        self.bytes + variable.map_or(0, |variable| phv.varbit(variable.varbit).len())
    }

    /// Writes every field to a packet.
    #[inline]
    pub(crate) fn emit_fields(&self, phv: &Phv, bits: &mut BitWriter<'_>) {
        self.parts.iter().for_each(|part| part.emit_fields(phv, bits));
        if let Some(variable) = &self.variable {
            bits.push_bytes(phv.varbit(variable.varbit));
            for field in &variable.behind {
                bits.push_bits(phv.get(field.slot), field.bits);
            }
        }
    }

    /// Marks the header present and the other members of its union absent.
    #[inline]
    pub(crate) fn mark_valid(&self, header: HeaderIndex, phv: &mut Phv) {
        // At most one member of a union is valid, and writing one makes the others invalid.
        for rival in &self.union_peers {
            phv.set_valid(*rival, false);
        }
        phv.set_valid(header, true);
    }

    /// Sets every field to 0.
    pub(crate) fn clear_fields(&self, phv: &mut Phv) {
        self.slots().for_each(|slot| phv.set(slot, 0));
        if let Some(variable) = &self.variable {
            phv.varbit_mut(variable.varbit).clear();
        }
    }

    /// The slots of all pieces, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = PhvSlot> {
        let behind = self.variable.iter().flat_map(|variable| &variable.behind);
        self.fields.iter().chain(behind).map(|field| field.slot)
    }
}

/// Makes a header present with all fields 0, unless it is there already.
pub(crate) fn add_header(headers: &[HeaderLayout], header: HeaderIndex, phv: &mut Phv) {
    let layout = &headers[header.0 as usize];
    if !phv.is_valid(header) {
        layout.clear_fields(phv);
        layout.mark_valid(header, phv);
        // A header without its variable part, which is empty in a new one.
        phv.packet_length += layout.bytes as u32;
    }
}

/// Makes a header absent.
pub(crate) fn remove_header(headers: &[HeaderLayout], header: HeaderIndex, phv: &mut Phv) {
    if phv.is_valid(header) {
        let bytes = headers[header.0 as usize].byte_length(phv) as u32;
        phv.set_valid(header, false);
        phv.packet_length = phv.packet_length.saturating_sub(bytes);
    }
}

/// Gives one header the fields and the validity of another of its type.
pub(crate) fn copy_header(
    headers: &[HeaderLayout],
    from: HeaderIndex,
    to: HeaderIndex,
    phv: &mut Phv,
) {
    if !phv.is_valid(from) {
        // The copy of an invalid header is invalid; its fields are undefined and stay.
        return phv.set_valid(to, false);
    }
    copy_fields(headers, from, to, phv);
    headers[to.0 as usize].mark_valid(to, phv);
}

impl HeaderStack {
    /// Moves every element `by` places towards the end; the first become absent (P4 §8.18).
    pub(crate) fn push_front(&self, by: usize, headers: &[HeaderLayout], phv: &mut Phv) {
        let size = self.elements.len();
        phv.set_next_element(self.index, size.min(phv.next_element(self.index).saturating_add(by)));
        // From the end, so that no element is overwritten before it has moved.
        for to in (by..size).rev() {
            self.move_element(to - by, to, headers, phv);
        }
        self.elements.iter().take(by).for_each(|element| invalidate_element(element, phv));
    }

    /// Moves every element `by` places towards the start; the last become absent.
    pub(crate) fn pop_front(&self, by: usize, headers: &[HeaderLayout], phv: &mut Phv) {
        phv.set_next_element(self.index, phv.next_element(self.index).saturating_sub(by));
        // From the front, for the same reason.
        for from in by..self.elements.len() {
            self.move_element(from, from - by, headers, phv);
        }
        let kept = self.elements.len().saturating_sub(by);
        self.elements.iter().skip(kept).for_each(|element| invalidate_element(element, phv));
    }

    /// Gives this stack the elements of another of its type.
    pub(crate) fn assign_stack(&self, from: &Self, headers: &[HeaderLayout], phv: &mut Phv) {
        phv.set_next_element(self.index, phv.next_element(from.index));
        for (from, to) in from.elements.iter().zip(&self.elements) {
            copy_element(from, to, headers, phv);
        }
    }

    fn move_element(&self, from: usize, to: usize, headers: &[HeaderLayout], phv: &mut Phv) {
        copy_element(&self.elements[from], &self.elements[to], headers, phv);
    }
}

/// Copies a header, or a union member by member.
pub(crate) fn copy_element(
    from: &[HeaderIndex],
    to: &[HeaderIndex],
    headers: &[HeaderLayout],
    phv: &mut Phv,
) {
    let pairs = from.iter().zip(to);
    pairs.for_each(|(from, to)| copy_header(headers, *from, *to, phv));
}

fn invalidate_element(element: &[HeaderIndex], phv: &mut Phv) {
    element.iter().for_each(|header| phv.set_valid(*header, false));
}

fn copy_fields(headers: &[HeaderLayout], from: HeaderIndex, to: HeaderIndex, phv: &mut Phv) {
    let (from, to) = (&headers[from.0 as usize], &headers[to.0 as usize]);
    for (from, to) in from.slots().zip(to.slots()) {
        phv.set(to, phv.get(from));
    }
    if let (Some(from), Some(to)) = (&from.variable, &to.variable) {
        phv.copy_varbit(from.varbit, to.varbit);
    }
}

/// `bits` bits (at most 128) of `bytes` from bit `offset`; the bytes are there. Nearly always eight
/// bytes in one load cover the field.
#[inline]
pub(crate) fn read_bits(bytes: &[u8], offset: usize, bits: u32) -> u128 {
    let (start, skip) = (offset / 8, (offset % 8) as u32);
    match bytes[start..].first_chunk() {
        // One load where eight bytes are left in the packet; the last fields of a packet take the
        // slow way.
        Some(word) if skip + bits <= 64 => {
            u128::from(u64::from_be_bytes(*word) << skip >> (64 - bits))
        }
        _ => read_bits_bytewise(&bytes[start..], skip, bits),
    }
}

fn read_bits_bytewise(bytes: &[u8], skip: u32, bits: u32) -> u128 {
    let end = (skip + bits).div_ceil(8) as usize;
    let spare = end as u32 * 8 - skip - bits;
    let (last, whole) = bytes[..end].split_last().unwrap_or((&0, &[]));
    let high = whole.iter().fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
    (high << (8 - spare) | u128::from(*last >> spare)) & bit_mask(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_and_bytewise_reads_give_equal_bits() {
        let bytes: Vec<u8> = (1..=40_u8).map(|at| at.wrapping_mul(37)).collect();
        for offset in 0..64 {
            for bits in 1..=128 {
                let bit = |at: usize| u128::from(bytes[at / 8] >> (7 - at % 8) & 1);
                let expected = (offset..offset + bits).fold(0, |value, at| value << 1 | bit(at));
                let just = &bytes[..(offset + bits).div_ceil(8)];
                assert_eq!(read_bits(&bytes, offset, bits as u32), expected);
                assert_eq!(read_bits(just, offset, bits as u32), expected);
            }
        }
    }
}
