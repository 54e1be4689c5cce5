//! The parser: from packet bytes to header fields.
//!
//! A state machine compiled from the JSON; `device` runs it first on every packet. As in BMv2 an
//! error (a packet too short, a failed `verify`) ends parsing with an error code, keeps what was
//! extracted and lets the pipeline decide. Transition keys are compared as one number, which bounds
//! them to 128 bits.

use crate::action::{Action, Machine};
use crate::expression::{Cond, Expr};
use crate::phv::{Field, Phv, Slot, mask};
use crate::program::{HeaderIndex, Next};

/// A parser may pass through this many states; BMv2 would go on forever.
const STATE_LIMIT: usize = 1024;

/// The parser of a program.
#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) states: Vec<State>,
    pub(crate) start: Next,
    pub(crate) errors: ErrorCodes,
}

/// The numbers that the program gives to the errors the parser itself raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorCodes {
    pub(crate) none: u32,
    pub(crate) packet_too_short: u32,
    pub(crate) parser_timeout: u32,
    pub(crate) invalid_argument: u32,
}

/// One state: operations, then a choice.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) operations: Vec<Operation>,
    pub(crate) key: Vec<KeyPart>,
    pub(crate) cases: Vec<Case>,
    pub(crate) default: Next,
}

/// What a state does before choosing.
#[derive(Debug)]
pub(crate) enum Operation {
    Extract(HeaderLayout),
    Set(Field, Source),
    Advance(Expr),
    Verify(Cond, Expr),
    Primitive(Action),
}

/// Where a value in the parser comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Expr(Expr),
    Lookahead { offset: usize, bits: u32 },
}

/// One part of a transition key, padded to whole bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyPart {
    Field(Slot, u32),
    Lookahead { offset: usize, bits: u32 },
}

impl KeyPart {
    /// Its width without padding.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Field(_, bits) | Self::Lookahead { bits, .. } => bits,
        }
    }
}

/// One transition: taken when the masked key equals the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) value: u128,
    pub(crate) mask: u128,
    pub(crate) next: Next,
}

/// How a header lies in the packet.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLayout {
    pub(crate) header: HeaderIndex,
    pub(crate) bytes: usize,
    pub(crate) fields: Vec<FieldLayout>,
}

/// Where a field starts within its header, in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldLayout {
    pub(crate) slot: Slot,
    pub(crate) offset: usize,
    pub(crate) bits: u32,
}

/// What parsing a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Bytes taken off the packet; the rest is payload.
    pub(crate) bytes: usize,
    /// The error code.
    pub(crate) error: u32,
}

impl Parser {
    /// Fills the header vector from the packet.
    pub(crate) fn parse(&self, packet: &[u8], machine: &mut Machine<'_>) -> Parsed {
        let mut cursor = 0;
        let mut next = self.start;
        for _ in 0..STATE_LIMIT {
            let Some(state) = next else {
                return Parsed {
                    bytes: cursor,
                    error: self.errors.none,
                };
            };
            match self.step(&self.states[state as usize], packet, &mut cursor, machine) {
                Ok(state) => next = state,
                Err(error) => {
                    return Parsed {
                        bytes: cursor,
                        error,
                    };
                }
            }
        }
        Parsed {
            bytes: cursor,
            error: self.errors.parser_timeout,
        }
    }

    fn step(
        &self,
        state: &State,
        packet: &[u8],
        cursor: &mut usize,
        machine: &mut Machine<'_>,
    ) -> Result<Next, u32> {
        for operation in &state.operations {
            self.run(operation, packet, cursor, machine)?;
        }
        if state.cases.is_empty() {
            return Ok(state.default);
        }
        let mut key = 0_u128;
        for part in &state.key {
            let value = self.key_part(*part, &packet[*cursor..], machine.phv)?;
            key = key.unbounded_shl(part.bits().next_multiple_of(8)) | value;
        }
        let taken = state
            .cases
            .iter()
            .find(|case| key & case.mask == case.value);
        Ok(taken.map_or(state.default, |case| case.next))
    }

    fn run(
        &self,
        operation: &Operation,
        packet: &[u8],
        cursor: &mut usize,
        machine: &mut Machine<'_>,
    ) -> Result<(), u32> {
        match operation {
            Operation::Extract(layout) => {
                let rest = &packet[*cursor..];
                let bytes = rest
                    .get(..layout.bytes)
                    .ok_or(self.errors.packet_too_short)?;
                layout.extract(bytes, machine.phv);
                *cursor += layout.bytes;
            }
            Operation::Set(field, source) => {
                let value = self.value(source, &packet[*cursor..], machine.phv)?;
                machine.phv.assign(*field, value);
            }
            Operation::Advance(bits) => {
                let bits = usize::try_from(bits.eval(machine.phv, &[])).unwrap_or(usize::MAX);
                if bits % 8 != 0 {
                    return Err(self.errors.invalid_argument);
                }
                if bits / 8 > packet.len() - *cursor {
                    return Err(self.errors.packet_too_short);
                }
                *cursor += bits / 8;
            }
            Operation::Verify(cond, error) => {
                if !cond.eval(machine.phv, &[]) {
                    return Err(error.eval(machine.phv, &[]) as u32);
                }
            }
            Operation::Primitive(action) => action.run(&[], machine),
        }
        Ok(())
    }

    fn value(&self, source: &Source, rest: &[u8], phv: &Phv) -> Result<i128, u32> {
        match source {
            Source::Expr(expr) => Ok(expr.eval(phv, &[])),
            Source::Lookahead { offset, bits } => Ok(self.look(rest, *offset, *bits)? as i128),
        }
    }

    fn key_part(&self, part: KeyPart, rest: &[u8], phv: &Phv) -> Result<u128, u32> {
        match part {
            KeyPart::Field(slot, _) => Ok(phv.get(slot)),
            KeyPart::Lookahead { offset, bits } => self.look(rest, offset, bits),
        }
    }

    fn look(&self, rest: &[u8], offset: usize, bits: u32) -> Result<u128, u32> {
        if (offset + bits as usize).div_ceil(8) > rest.len() {
            return Err(self.errors.packet_too_short);
        }
        Ok(read_bits(rest, offset, bits))
    }
}

impl HeaderLayout {
    /// Reads every field from the packet's bytes, which start with the header, and marks the header
    /// valid.
    #[inline]
    fn extract(&self, bytes: &[u8], phv: &mut Phv) {
        for field in &self.fields {
            phv.set(field.slot, read_bits(bytes, field.offset, field.bits));
        }
        phv.set_valid(self.header, true);
    }
}

/// `bits` bits (at most 128) of `bytes` from bit `offset`; the bytes are there. Nearly always eight
/// bytes in one load cover the field.
#[inline]
fn read_bits(bytes: &[u8], offset: usize, bits: u32) -> u128 {
    let (start, skip) = (offset / 8, (offset % 8) as u32);
    match bytes[start..].first_chunk() {
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
    let high = whole
        .iter()
        .fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
    (high << (8 - spare) | u128::from(*last >> spare)) & mask(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_read_alike_in_one_load_and_bytewise() {
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
