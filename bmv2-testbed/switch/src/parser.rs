//! The parser: from packet bytes to header fields.
//!
//! A state machine compiled from the JSON; `device` runs it first on every packet. As in BMv2 an
//! error (a packet too short, a failed `verify`) ends parsing with an error code, keeps what was
//! extracted and lets the pipeline decide. Transition keys are compared as one number, which bounds
//! them to 128 bits.

use crate::action::{Action, Machine};
use crate::expression::{Cond, Expr};
use crate::header::{HeaderLayout, Stack, read_bits};
use crate::phv::{Field, Phv, Slot, mask};
use crate::program::{HeaderIndex, Next, ValueSetIndex};

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
    pub(crate) stack_out_of_bounds: u32,
    pub(crate) header_too_short: u32,
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
    Extract(HeaderIndex),
    /// Anything but a header of fixed length and place.
    ExtractTo(Box<Extraction>),
    Set(Field, Source),
    Advance(Expr),
    Verify(Cond, Expr),
    Primitive(Action),
}

/// Where to extract to, and how long the variable-length field is, in bits.
#[derive(Debug)]
pub(crate) struct Extraction {
    pub(crate) to: Destination,
    pub(crate) variable_bits: Option<Expr>,
}

/// Where a header is extracted to.
#[derive(Debug)]
pub(crate) enum Destination {
    Header(HeaderIndex),
    /// The next element of a stack; in a stack of unions this member of it.
    Stack {
        stack: Stack,
        member: usize,
    },
}

/// Where a value in the parser comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Expr(Expr),
    Lookahead { offset: usize, bits: u32 },
}

/// One part of a transition key, padded to whole bytes.
#[derive(Clone, Debug)]
pub(crate) enum KeyPart {
    Field(Slot, u32),
    Lookahead {
        offset: usize,
        bits: u32,
    },
    /// A field of a stack's last element.
    Computed(Expr, u32),
}

impl KeyPart {
    /// Its width without padding.
    pub(crate) fn bits(&self) -> u32 {
        match self {
            Self::Field(_, bits) | Self::Lookahead { bits, .. } | Self::Computed(_, bits) => *bits,
        }
    }
}

/// One transition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) test: Test,
    pub(crate) next: Next,
}

/// When a transition is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// The masked key equals the value.
    Masked { value: u128, mask: u128 },
    /// The masked key is in a value set.
    InSet { set: ValueSetIndex, mask: u128 },
}

/// One member of a value set, over the whole key: value and mask.
pub(crate) type SetMember = (u128, u128);

/// What parsing a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Bytes taken off the packet; the rest is payload.
    pub(crate) bytes: usize,
    /// The error code.
    pub(crate) error: u32,
}

/// A packet on its way through the parser.
struct Reading<'a> {
    packet: &'a [u8],
    cursor: usize,
    sets: &'a [Vec<SetMember>],
}

impl Parser {
    /// Fills the header vector from the packet; `sets` are the members of each value set.
    pub(crate) fn parse(
        &self,
        packet: &[u8],
        sets: &[Vec<SetMember>],
        machine: &mut Machine<'_>,
    ) -> Parsed {
        let mut reading = Reading {
            packet,
            cursor: 0,
            sets,
        };
        let mut next = self.start;
        let mut error = self.errors.parser_timeout;
        for _ in 0..STATE_LIMIT {
            let Some(state) = next else {
                error = self.errors.none;
                break;
            };
            match self.step(&self.states[state as usize], &mut reading, machine) {
                Ok(state) => next = state,
                Err(code) => {
                    error = code;
                    break;
                }
            }
        }
        Parsed {
            bytes: reading.cursor,
            error,
        }
    }

    fn step(
        &self,
        state: &State,
        reading: &mut Reading<'_>,
        machine: &mut Machine<'_>,
    ) -> Result<Next, u32> {
        for operation in &state.operations {
            self.run(operation, reading, machine)?;
        }
        if state.cases.is_empty() {
            return Ok(state.default);
        }
        let mut key = 0_u128;
        for part in &state.key {
            let value = self.key_part(part, reading.rest(), machine.phv)?;
            key = key.unbounded_shl(part.bits().next_multiple_of(8)) | value;
        }
        let taken = state
            .cases
            .iter()
            .find(|case| case.test.holds(key, reading.sets));
        Ok(taken.map_or(state.default, |case| case.next))
    }

    fn run(
        &self,
        operation: &Operation,
        reading: &mut Reading<'_>,
        machine: &mut Machine<'_>,
    ) -> Result<(), u32> {
        match operation {
            Operation::Extract(header) => {
                let layout = &machine.headers[header.0 as usize];
                let bytes = reading.rest().get(..layout.bytes);
                layout.extract(bytes.ok_or(self.errors.packet_too_short)?, machine.phv);
                layout.validate(*header, machine.phv);
                reading.cursor += layout.bytes;
            }
            Operation::ExtractTo(extraction) => self.extract_to(extraction, reading, machine)?,
            Operation::Set(field, source) => {
                let value = self.value(source, reading.rest(), machine.phv)?;
                machine.phv.assign(*field, value);
            }
            Operation::Advance(bits) => {
                let bytes = self.whole_bytes(bits, machine.phv)?;
                if bytes > reading.rest().len() {
                    return Err(self.errors.packet_too_short);
                }
                reading.cursor += bytes;
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

    fn extract_to(
        &self,
        extraction: &Extraction,
        reading: &mut Reading<'_>,
        machine: &mut Machine<'_>,
    ) -> Result<(), u32> {
        let phv = &mut *machine.phv;
        let header = match &extraction.to {
            Destination::Header(header) => *header,
            Destination::Stack { stack, member } => {
                let element = stack.elements.get(phv.next(stack.index));
                element.ok_or(self.errors.stack_out_of_bounds)?[*member]
            }
        };
        let layout = &machine.headers[header.0 as usize];
        let variable = match &extraction.variable_bits {
            Some(bits) => self.whole_bytes(bits, phv)?,
            None => 0,
        };
        let bytes = layout.bytes.saturating_add(variable);
        self.check_length(layout, bytes, reading.rest())?;
        layout.extract_variable(&reading.rest()[..bytes], variable, phv);
        layout.validate(header, phv);
        reading.cursor += bytes;
        if let Destination::Stack { stack, .. } = &extraction.to {
            phv.set_next(stack.index, phv.next(stack.index) + 1);
        }
        Ok(())
    }

    fn check_length(&self, layout: &HeaderLayout, bytes: usize, rest: &[u8]) -> Result<(), u32> {
        let most = layout
            .variable
            .as_ref()
            .map_or(bytes, |variable| variable.max_bytes);
        if bytes > rest.len() {
            Err(self.errors.packet_too_short)
        } else if bytes > most {
            Err(self.errors.header_too_short)
        } else {
            Ok(())
        }
    }

    fn whole_bytes(&self, bits: &Expr, phv: &Phv) -> Result<usize, u32> {
        let bits = usize::try_from(bits.eval(phv, &[])).unwrap_or(usize::MAX);
        if bits.is_multiple_of(8) {
            Ok(bits / 8)
        } else {
            Err(self.errors.invalid_argument)
        }
    }

    fn value(&self, source: &Source, rest: &[u8], phv: &Phv) -> Result<i128, u32> {
        match source {
            Source::Expr(expr) => Ok(expr.eval(phv, &[])),
            Source::Lookahead { offset, bits } => Ok(self.look(rest, *offset, *bits)? as i128),
        }
    }

    fn key_part(&self, part: &KeyPart, rest: &[u8], phv: &Phv) -> Result<u128, u32> {
        match part {
            KeyPart::Field(slot, _) => Ok(phv.get(*slot)),
            KeyPart::Lookahead { offset, bits } => self.look(rest, *offset, *bits),
            KeyPart::Computed(expr, bits) => Ok(expr.eval(phv, &[]) as u128 & mask(*bits)),
        }
    }

    fn look(&self, rest: &[u8], offset: usize, bits: u32) -> Result<u128, u32> {
        if (offset + bits as usize).div_ceil(8) > rest.len() {
            return Err(self.errors.packet_too_short);
        }
        Ok(read_bits(rest, offset, bits))
    }
}

impl Reading<'_> {
    fn rest(&self) -> &[u8] {
        &self.packet[self.cursor..]
    }
}

impl Test {
    #[inline]
    fn holds(self, key: u128, sets: &[Vec<SetMember>]) -> bool {
        match self {
            Self::Masked { value, mask } => key & mask == value,
            Self::InSet { set, mask } => {
                let holds = |&(value, of): &SetMember| key & mask & of == value & mask;
                sets[set.0 as usize].iter().any(holds)
            }
        }
    }
}
