//! The packet header vector: the values of every header and metadata field while one packet is
//! processed.
//!
//! The parser fills it, expressions and actions read and write it, the deparser empties it. One
//! `Phv` belongs to a device and is wiped for each packet, so that no packet allocates; copies of a
//! packet (multicast, clones) take a copy of it. A field is a [`PhvSlot`]: its place here is
//! decided when the program is loaded, never looked up by name. A field of more than 128 bits is
//! several slots, one after the other.

use crate::ids::{HeaderIndex, PhvSlot, StackIndex, VarbitIndex};
use crate::spec::{FieldRef, bit_mask};

/// What a program's header vector consists of.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhvLayout {
    /// How many slots there are.
    pub(crate) slots: usize,
    /// For each header, whether it is metadata and so always valid.
    pub(crate) metadata: Vec<bool>,
    /// How many header stacks there are.
    pub(crate) stacks: usize,
    /// How many variable-length fields there are.
    pub(crate) varbits: usize,
}

/// The values and validity of all headers for one packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phv {
    values: Vec<u128>,
    valid: Vec<bool>,
    /// Which headers are valid before parsing: the metadata ones.
    metadata: Vec<bool>,
    /// For each stack, the element that is extracted to next.
    next_elements: Vec<usize>,
    varbits: Vec<Vec<u8>>,
    /// Length of the packet in bytes as headers come and go.
    pub(crate) packet_length: u32,
}

impl Phv {
    /// An empty vector.
    pub(crate) fn new(shape: &PhvLayout) -> Self {
        Self {
            values: vec![0; shape.slots],
            valid: shape.metadata.clone(),
            metadata: shape.metadata.clone(),
            next_elements: vec![0; shape.stacks],
            varbits: vec![Vec::new(); shape.varbits],
            packet_length: 0,
        }
    }

    /// Back to all zero, with only metadata valid.
    #[inline]
    pub(crate) fn reset(&mut self, packet_length: u32) {
        self.values.fill(0);
        // Metadata is valid in every packet and has no place in it.
        self.valid.copy_from_slice(&self.metadata);
        self.next_elements.fill(0);
        // Cleared and not replaced: no packet allocates.
        self.varbits.iter_mut().for_each(Vec::clear);
        self.packet_length = packet_length;
    }

    /// The bits of a field, whether or not its header is valid.
    #[inline]
    pub(crate) fn get(&self, slot: PhvSlot) -> u128 {
        self.values[slot.0 as usize]
    }

    /// The number a field stands for: two's complement when the field is signed.
    #[inline]
    pub(crate) fn field_number(&self, field: FieldRef) -> i128 {
        field.number_of_bits(self.get(field.slot))
    }

    /// Writes bits already cut to the field's width.
    #[inline]
    pub(crate) fn set(&mut self, slot: PhvSlot, bits: u128) {
        self.values[slot.0 as usize] = bits;
    }

    /// Writes a number into a field, keeping its low bits: the one place where values are
    /// truncated.
    #[inline]
    pub(crate) fn assign_field(&mut self, field: FieldRef, number: i128) {
        // Cut to the field's width here and nowhere else: expressions work with more bits.
        self.set(field.slot, number as u128 & bit_mask(field.bits));
    }

    /// Whether a header is present.
    #[inline]
    pub(crate) fn is_valid(&self, header: HeaderIndex) -> bool {
        self.valid[header.0 as usize]
    }

    /// Marks a header present or absent, leaving its fields.
    #[inline]
    pub(crate) fn set_valid(&mut self, header: HeaderIndex, valid: bool) {
        self.valid[header.0 as usize] = valid;
    }

    /// How many elements of a stack have been filled.
    pub(crate) fn next_element(&self, stack: StackIndex) -> usize {
        self.next_elements[stack.0 as usize]
    }

    /// Says how many elements of a stack are filled.
    pub(crate) fn set_next_element(&mut self, stack: StackIndex, next: usize) {
        self.next_elements[stack.0 as usize] = next;
    }

    /// The bytes of a variable-length field.
    pub(crate) fn varbit(&self, varbit: VarbitIndex) -> &[u8] {
        &self.varbits[varbit.0 as usize]
    }

    /// The bytes of a variable-length field, to be changed.
    pub(crate) fn varbit_mut(&mut self, varbit: VarbitIndex) -> &mut Vec<u8> {
        &mut self.varbits[varbit.0 as usize]
    }

    /// Gives one variable-length field the bytes of another.
    pub(crate) fn copy_varbit(&mut self, from: VarbitIndex, to: VarbitIndex) {
        // A copy in between, since both are parts of one vector.
        let bytes = self.varbit(from).to_vec();
        *self.varbit_mut(to) = bytes;
    }

    /// Sets every field of metadata headers to 0, as at the start of a packet.
    pub(crate) fn reset_metadata(&mut self, metadata: &[PhvSlot]) {
        metadata.iter().for_each(|slot| self.set(*slot, 0));
    }
}
