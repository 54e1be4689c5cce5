//! Hash and checksum algorithms over a list of fields, with BMv2's bit packing.
//!
//! Used by hash primitives, by action selectors and by checksum updates. The inputs are packed bit
//! after bit, most significant first, fields of absent headers skipped, and the last byte filled
//! with zero bits. All buffers are reused; CRCs work from tables built at compile time.

use crate::ids::{HeaderIndex, PhvSlot, VarbitIndex};
use crate::run::phv::Phv;
use crate::spec::{FieldRef, bit_mask};

/// A hash or checksum over some fields.
#[derive(Clone, Debug)]
pub(crate) struct HashCalculation {
    algorithm: HashAlgorithm,
    inputs: Vec<HashInput>,
    /// Where it is a checksum of fields of one header.
    header_sum: Option<HeaderSum>,
}

/// The Internet checksum of fields of one header, without packing them: a sum of halfwords in one's
/// complement is one modulo 2^16 - 1, in which 2^16 counts as 1, so a field counts by the place that
/// its last bit has in a halfword.
#[derive(Clone, Debug)]
struct HeaderSum {
    header: HeaderIndex,
    /// Fields of at most 32 bits, with the bits between the end of each and that of its halfword.
    terms: Vec<(PhvSlot, u32)>,
}

/// One input of a calculation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashInput {
    Field(FieldRef),
    Const {
        value: u128,
        bits: u32,
    },
    /// A variable-length field and the header it is in.
    Varbit {
        varbit: VarbitIndex,
        header: HeaderIndex,
    },
    /// Everything after the parsed headers.
    Payload,
}

/// The algorithms of simple_switch that need no settings of their own. The `_custom` CRCs have the
/// parameters they start with there; only Thrift could change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashAlgorithm {
    /// CRC-32 as in Ethernet.
    Crc32,
    /// CRC-16/ARC.
    Crc16,
    /// The Internet checksum, RFC 1071.
    Csum16,
    /// Exclusive or of 16-bit words.
    Xor16,
    /// Exclusive or of 32-bit words.
    Xor32,
    /// CRC-16/CCITT-FALSE.
    CrcCcitt,
    /// CRC-8 with polynomial 7.
    Crc8,
    /// CRC-64 with polynomial 1b.
    Crc64,
    /// The first eight bytes.
    Identity,
}

impl HashAlgorithm {
    /// The algorithm of this name in the BMv2 JSON.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            // The custom ones with the settings that BMv2 begins with, which only Thrift can
            // change.
            "crc32" | "crc32_custom" => Self::Crc32,
            "crc16" | "crc16_custom" => Self::Crc16,
            "csum16" | "cksum16" => Self::Csum16,
            "xor16" => Self::Xor16,
            "xor32" => Self::Xor32,
            "crcCCITT" => Self::CrcCcitt,
            "crc8_custom" => Self::Crc8,
            "crc64_custom" => Self::Crc64,
            "identity" => Self::Identity,
            _ => return None,
        })
    }

    fn hash_bytes(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Crc32 => u64::from(crc32fast::hash(bytes)),
            Self::Crc16 => u64::from(crc16(bytes)),
            Self::Csum16 => u64::from(csum16(bytes)),
            Self::Xor16 => u64::from(u16_words(bytes).fold(0, |sum, word| sum ^ word)),
            Self::Xor32 => bytes.chunks(4).fold(0, |sum, word| sum ^ leading_number(word, 4)),
            Self::CrcCcitt => unreflected_crc(bytes, 16, 0x1021, 0xffff),
            Self::Crc8 => unreflected_crc(bytes, 8, 0x07, 0),
            Self::Crc64 => unreflected_crc(bytes, 64, 0x1b, 0),
            // A hash has 64 bits, so that only the first eight bytes of the input count.
            Self::Identity => {
                bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
        }
    }
}

impl HeaderSum {
    fn new(algorithm: HashAlgorithm, inputs: &[HashInput]) -> Option<Self> {
        let fields = inputs.iter().map(|input| match input {
            HashInput::Field(field) if field.bits <= u32::BITS => Some(*field),
            _ => None,
        });
        let fields: Vec<FieldRef> = fields.collect::<Option<_>>()?;
        // Fields of several headers may be absent one by one, so only those of one header can be
        // summed at once.
        let header = fields.first()?.header;
        // As many cannot overflow the sum.
        let is_of_one = fields.iter().all(|field| field.header == header)
            && fields.len() <= usize::from(u16::MAX);
        let mut end = 0_u32;
        let terms = fields.iter().map(|field| {
            end += field.bits;
            // The distance from the end of the field to that of its 16-bit word, where the checksum
            // adds it.
            (field.slot, end.wrapping_neg() % u16::BITS)
        });
        let terms = terms.collect();
        (algorithm == HashAlgorithm::Csum16 && is_of_one).then_some(Self { header, terms })
    }

    fn checksum(&self, phv: &Phv) -> u16 {
        let terms = self.terms.iter().map(|(slot, shift)| (phv.get(*slot) as u64) << shift);
        complement_halfwords(terms.sum())
    }
}

impl HashCalculation {
    pub(crate) fn new(algorithm: HashAlgorithm, inputs: Vec<HashInput>) -> Self {
        let header_sum = HeaderSum::new(algorithm, &inputs);
        Self { algorithm, inputs, header_sum }
    }

    /// The value for this packet; `scratch` is overwritten.
    pub(crate) fn compute_hash(&self, phv: &Phv, payload: &[u8], scratch: &mut Vec<u8>) -> u64 {
        // The checksum of IPv4 without packing its fields: with every packet twice, it is the most
        // frequent hash.
        if let Some(sum) = self.header_sum.as_ref().filter(|sum| phv.is_valid(sum.header)) {
            return sum.checksum(phv).into();
        }
        let mut bits = BitWriter::new(scratch);
        for input in &self.inputs {
            match *input {
                HashInput::Field(field) if phv.is_valid(field.header) => {
                    bits.push_bits(phv.get(field.slot), field.bits);
                }
                // A field of an absent header is skipped and not taken as zero, as BMv2 does.
                HashInput::Field(_) => {}
                HashInput::Const { value, bits: width } => bits.push_bits(value, width),
                HashInput::Varbit { varbit, header } if phv.is_valid(header) => {
                    bits.push_bytes(phv.varbit(varbit));
                }
                HashInput::Varbit { .. } => {}
                HashInput::Payload => bits.push_bytes(payload),
            }
        }
        bits.finish();
        self.algorithm.hash_bytes(scratch)
    }
}

/// Appends values of any width to a byte buffer, most significant bit first. Bytes are there after
/// [`BitWriter::finish`].
pub(crate) struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bits not yet written, in the low end.
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitWriter<'a> {
    /// Starts over in `bytes`.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        Self::append_to(bytes)
    }

    /// Continues after what `bytes` holds.
    pub(crate) fn append_to(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, pending: 0, pending_bits: 0 }
    }

    /// Appends the low `bits` bits of `value`, which has no others.
    #[inline]
    pub(crate) fn push_bits(&mut self, value: u128, bits: u32) {
        // The word takes it whole in nearly all cases; `push_wide` may have to divide it.
        if self.pending_bits + bits <= 64 {
            self.push_word(value as u64, bits);
        } else {
            self.push_wide(value, bits);
        }
    }

    /// Appends the low `bits` bits of `value`, at most 64 and whole bytes. Where no bits are
    /// pending, the bytes are stored at once.
    #[inline]
    pub(crate) fn push_whole_bytes(&mut self, value: u64, bits: u32) {
        if self.pending_bits > 0 {
            return self.push_bits(u128::from(value), bits);
        }
        let end = self.bytes.len() + (bits / 8) as usize;
        self.bytes.extend_from_slice(&value.unbounded_shl(64 - bits).to_be_bytes());
        // A store of constant length and a truncation are faster than a copy of variable length.
        self.bytes.truncate(end);
    }

    /// What the pending word has room for.
    #[inline]
    fn push_word(&mut self, value: u64, bits: u32) {
        self.pending = self.pending.unbounded_shl(bits) | value;
        self.pending_bits += bits;
    }

    fn push_wide(&mut self, value: u128, bits: u32) {
        let mut left = bits;
        while left > 0 {
            self.flush_bytes();
            // 56 bits, because up to seven may be pending after a flush.
            let part = left.min(WORD_BITS);
            left -= part;
            self.push_word((value >> left) as u64 & bit_mask(part) as u64, part);
        }
    }

    /// Writes the whole bytes that are pending. Always stores eight and keeps the right ones: a
    /// store of fixed size costs less than a copy of the right one.
    fn flush_bytes(&mut self) {
        let end = self.bytes.len() + (self.pending_bits / 8) as usize;
        let word = self.pending.unbounded_shl(64 - self.pending_bits);
        self.bytes.extend_from_slice(&word.to_be_bytes());
        self.bytes.truncate(end);
        self.pending_bits %= 8;
        // What was written is cleared, as the next value is combined with the rest by `or`.
        self.pending &= (1 << self.pending_bits) - 1;
    }

    /// Appends whole bytes.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.flush_bytes();
        if self.pending_bits == 0 {
            self.bytes.extend_from_slice(bytes);
        } else {
            bytes.iter().for_each(|byte| self.push_bits(u128::from(*byte), 8));
        }
    }

    /// Writes what is pending, a last partial byte filled with zero bits.
    #[inline]
    pub(crate) fn finish(mut self) {
        self.push_bits(0, self.pending_bits.wrapping_neg() % 8);
        self.flush_bytes();
    }
}

/// What fits a 64-bit word beside the up to 7 bits that no whole byte holds, in whole bytes.
const WORD_BITS: u32 = 56;

fn u16_words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    // An odd last byte is the high one of its word (RFC 1071).
    bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
}

/// The Internet checksum: the complement of the sum of all halfwords in one's complement (RFC 1071).
pub(crate) fn csum16(bytes: &[u8]) -> u16 {
    complement_halfwords(u16_words(bytes).map(u64::from).sum())
}

/// The complement of a sum, with what is above a halfword added to it.
fn complement_halfwords(mut sum: u64) -> u16 {
    // Carries are added at the end: addition in ones' complement may be done in any order (RFC
    // 1071).
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> u16::BITS);
    }
    !(sum as u16)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc >> 8) ^ CRC16[((crc ^ u16::from(*byte)) & 0xff) as usize])
}

/// A CRC of `width` bits whose bits are not reflected.
fn unreflected_crc(bytes: &[u8], width: u32, polynomial: u64, start: u64) -> u64 {
    let top = width - 1;
    let all = bit_mask(width) as u64;
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte) << (width - 8), |crc, _bit| match crc >> top & 1 {
            1 => (crc << 1 ^ polynomial) & all,
            _ => crc << 1 & all,
        })
    })
}

/// The first `length` bytes as a number, filled up with zero bytes at the end.
fn leading_number(bytes: &[u8], length: usize) -> u64 {
    let filled = bytes.iter().chain(std::iter::repeat(&0)).take(length);
    filled.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

static CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = reflected_remainder(byte as u32, 0xa001) as u16;
        byte += 1;
    }
    table
};

/// The remainder of one byte under a polynomial written least significant bit first.
const fn reflected_remainder(byte: u32, polynomial: u32) -> u32 {
    let mut remainder = byte;
    let mut bit = 0;
    while bit < 8 {
        remainder = if remainder & 1 == 1 { remainder >> 1 ^ polynomial } else { remainder >> 1 };
        bit += 1;
    }
    remainder
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::phv::PhvLayout;

    proptest! {
        #[test]
        fn the_checksum_of_a_header_is_that_of_its_packed_fields(
            fields in proptest::collection::vec((any::<u32>(), 1_u32..=32), 1..30),
        ) {
            let shape = PhvLayout { slots: fields.len(), metadata: vec![true], stacks: 0, varbits: 0 };
            let mut phv = Phv::new(&shape);
            let inputs = fields.iter().zip(0..).map(|((value, bits), slot)| {
                let (slot, header) = (PhvSlot(slot), HeaderIndex(0));
                phv.set(slot, u128::from(*value) & bit_mask(*bits));
                HashInput::Field(FieldRef { slot, bits: *bits, signed: false, header })
            });
            let at_once = HashCalculation::new(HashAlgorithm::Csum16, inputs.collect());
            prop_assert!(at_once.header_sum.is_some());
            let packed = HashCalculation { header_sum: None, ..at_once.clone() };
            let hash = |sum: &HashCalculation| sum.compute_hash(&phv, &[], &mut Vec::new());
            prop_assert_eq!(hash(&at_once), hash(&packed));
        }
    }

    #[test]
    fn digests_agree_with_published_check_values() {
        let check = b"123456789";
        assert_eq!(HashAlgorithm::Crc32.hash_bytes(check), 0xcbf4_3926);
        assert_eq!(HashAlgorithm::Crc16.hash_bytes(check), 0xbb3d);
        assert_eq!(HashAlgorithm::CrcCcitt.hash_bytes(check), 0x29b1);
        assert_eq!(HashAlgorithm::Crc8.hash_bytes(check), 0xf4);
        assert_eq!(HashAlgorithm::Xor32.hash_bytes(&[0x12, 0x34, 0x56, 0x78, 0x9a]), 0x8834_5678);
        assert_eq!(HashAlgorithm::Identity.hash_bytes(check), 0x3132_3334_3536_3738);
        assert_eq!(HashAlgorithm::Xor16.hash_bytes(&[0x12, 0x34, 0x56]), 0x4434);
        // The worked example of RFC 1071, section 3.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(HashAlgorithm::Csum16.hash_bytes(&example), u64::from(!0xddf2_u16));
    }

    #[test]
    fn bits_are_packed_without_gaps() {
        let mut bytes = Vec::new();
        let mut bits = BitWriter::new(&mut bytes);
        bits.push_bits(0x4, 4);
        bits.push_bits(0x5, 4);
        bits.push_bits(1 << 96 | 1, 100);
        bits.push_bits(0b1, 1);
        bits.finish();
        let expected = [0x45, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x18];
        assert_eq!(bytes, expected);
    }
}
