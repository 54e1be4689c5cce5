//! The parser: from packet bytes to header fields.
//!
//! A state machine compiled from the JSON; `device` runs it first on every packet. As in BMv2 an
//! error (a packet too short, a failed `verify`) ends parsing with an error code, keeps what was
//! extracted and lets the pipeline decide. Transition keys are compared as one number, which bounds
//! them to 128 bits.

use crate::ids::{HeaderIndex, PhvSlot, ValueSetIndex};
use crate::run::action::{CompiledAction, PacketContext};
use crate::run::expression::{BoolExpr, NumberExpr};
use crate::run::header::{HeaderLayout, HeaderStack, read_bits};
use crate::run::phv::Phv;
use crate::spec::{FieldRef, NextNode, bit_mask};

/// A parser may pass through this many states; BMv2 would go on forever.
const STATE_LIMIT: usize = 1024;

/// The parser of a program.
#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) states: Vec<ParserState>,
    pub(crate) start: NextNode,
    pub(crate) errors: ParserErrorCodes,
}

/// The numbers that the program gives to the errors the parser itself raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParserErrorCodes {
    pub(crate) none: u32,
    pub(crate) packet_too_short: u32,
    pub(crate) parser_timeout: u32,
    pub(crate) invalid_argument: u32,
    pub(crate) stack_out_of_bounds: u32,
    pub(crate) header_too_short: u32,
}

/// One state: operations, then a choice.
#[derive(Debug)]
pub(crate) struct ParserState {
    pub(crate) operations: Vec<ParserOperation>,
    pub(crate) key: Vec<SelectKeyPart>,
    pub(crate) cases: Vec<SelectCase>,
    pub(crate) default: NextNode,
}

/// What a state does before choosing.
#[derive(Debug)]
pub(crate) enum ParserOperation {
    Extract(HeaderIndex),
    /// Anything but a header of fixed length and place.
    ExtractTo(Box<HeaderExtraction>),
    Set(FieldRef, ValueSource),
    SetWide(WideLookahead),
    Advance(NumberExpr),
    Verify(BoolExpr, NumberExpr),
    Primitive(CompiledAction),
}

/// A look at more than 128 bits, for the pieces of a field of that width.
#[derive(Debug)]
pub(crate) struct WideLookahead {
    /// In bits from the end of what was parsed.
    pub(crate) offset: usize,
    pub(crate) bits: u32,
    /// The most significant first.
    pub(crate) pieces: Vec<FieldRef>,
}

/// Where to extract to, and how long the variable-length field is, in bits.
#[derive(Debug)]
pub(crate) struct HeaderExtraction {
    pub(crate) to: ExtractionTarget,
    pub(crate) variable_bits: Option<NumberExpr>,
}

/// Where a header is extracted to.
#[derive(Debug)]
pub(crate) enum ExtractionTarget {
    Header(HeaderIndex),
    /// The next element of a stack; in a stack of unions this member of it.
    Stack {
        stack: HeaderStack,
        member: usize,
    },
}

/// Where a value in the parser comes from.
#[derive(Clone, Debug)]
pub(crate) enum ValueSource {
    Expr(NumberExpr),
    Lookahead { offset: usize, bits: u32 },
}

/// One part of a transition key, padded to whole bytes.
#[derive(Clone, Debug)]
pub(crate) enum SelectKeyPart {
    Field(PhvSlot, u32),
    Lookahead {
        offset: usize,
        bits: u32,
    },
    /// A field of a stack's last element.
    Computed(NumberExpr, u32),
}

impl SelectKeyPart {
    /// Its width without padding.
    pub(crate) fn bits(&self) -> u32 {
        match self {
            Self::Field(_, bits) | Self::Lookahead { bits, .. } | Self::Computed(_, bits) => *bits,
        }
    }
}

/// One transition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectCase {
    pub(crate) select: SelectMatch,
    pub(crate) next: NextNode,
}

/// When a transition is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SelectMatch {
    /// The masked key equals the value.
    Masked { value: u128, mask: u128 },
    /// The masked key is in a value set.
    InSet { set: ValueSetIndex, mask: u128 },
}

/// One member of a value set, over the whole key: value and mask.
pub(crate) type ValueSetMember = (u128, u128);

/// What parsing a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParseOutcome {
    /// Bytes taken off the packet; the rest is payload.
    pub(crate) bytes: usize,
    /// The error code.
    pub(crate) error: u32,
}

/// A packet on its way through the parser.
struct ParserCursor<'a> {
    packet: &'a [u8],
    cursor: usize,
    sets: &'a [Vec<ValueSetMember>],
}

impl Parser {
    /// The fields outside of extracted headers that some state writes; none if that is not known.
    pub(crate) fn written_slots(&self) -> Option<Vec<PhvSlot>> {
        let mut written = Vec::new();
        for operation in self.states.iter().flat_map(|state| &state.operations) {
            match operation {
                ParserOperation::Set(field, _) => written.push(field.slot),
                ParserOperation::SetWide(ahead) => {
                    written.extend(ahead.pieces.iter().map(|piece| piece.slot));
                }
                ParserOperation::Primitive(action) => {
                    for primitive in &*action.primitives {
                        // One primitive that may write anywhere makes the whole answer unknown.
                        written.extend(primitive.written_slots()?.into_iter().flatten());
                    }
                }
                ParserOperation::Extract(_)
                | ParserOperation::ExtractTo(_)
                | ParserOperation::Advance(_)
                | ParserOperation::Verify(..) => {}
            }
        }
        Some(written)
    }

    /// Fills the header vector from the packet; `sets` are the members of each value set.
    pub(crate) fn parse_packet(
        &self,
        packet: &[u8],
        sets: &[Vec<ValueSetMember>],
        machine: &mut PacketContext<'_>,
    ) -> ParseOutcome {
        let mut reading = ParserCursor { packet, cursor: 0, sets };
        let mut next = self.start;
        // Assumed until a state ends the loop: a program may go round for ever.
        let mut error = self.errors.parser_timeout;
        for _ in 0..STATE_LIMIT {
            let Some(state) = next else {
                error = self.errors.none;
                break;
            };
            match self.run_state(&self.states[state as usize], &mut reading, machine) {
                Ok(state) => next = state,
                Err(code) => {
                    error = code;
                    break;
                }
            }
        }
        ParseOutcome { bytes: reading.cursor, error }
    }

    fn run_state(
        &self,
        state: &ParserState,
        reading: &mut ParserCursor<'_>,
        machine: &mut PacketContext<'_>,
    ) -> Result<NextNode, u32> {
        for operation in &state.operations {
            self.run_operation(operation, reading, machine)?;
        }
        if state.cases.is_empty() {
            return Ok(state.default);
        }
        let mut key = 0_u128;
        for part in &state.key {
            let value = self.read_key_part(part, reading.remaining_bytes(), machine.phv)?;
            // Each part fills whole bytes, as the values and masks of BMv2's JSON have them.
            key = key.unbounded_shl(part.bits().next_multiple_of(8)) | value;
        }
        // The first that matches, in the order of the program.
        let taken = state.cases.iter().find(|case| case.select.matches_key(key, reading.sets));
        Ok(taken.map_or(state.default, |case| case.next))
    }

    fn run_operation(
        &self,
        operation: &ParserOperation,
        reading: &mut ParserCursor<'_>,
        machine: &mut PacketContext<'_>,
    ) -> Result<(), u32> {
        match operation {
            ParserOperation::Extract(header) => {
                let layout = &machine.headers[header.0 as usize];
                let rest = reading.remaining_bytes();
                // Before anything is written: a header that does not fit stays invalid.
                if layout.bytes > rest.len() {
                    return Err(self.errors.packet_too_short);
                }
                layout.extract_fields(rest, machine.phv);
                layout.mark_valid(*header, machine.phv);
                reading.cursor += layout.bytes;
            }
            ParserOperation::ExtractTo(extraction) => {
                self.extract_header(extraction, reading, machine)?;
            }
            ParserOperation::Set(field, source) => {
                let value = self.eval_source(source, reading.remaining_bytes(), machine.phv)?;
                machine.phv.assign_field(*field, value);
            }
            ParserOperation::SetWide(ahead) => {
                self.read_wide(ahead, reading.remaining_bytes(), machine.phv)?;
            }
            ParserOperation::Advance(bits) => {
                let bytes = self.eval_byte_count(bits, machine.phv)?;
                if bytes > reading.remaining_bytes().len() {
                    return Err(self.errors.packet_too_short);
                }
                reading.cursor += bytes;
            }
            ParserOperation::Verify(cond, error) => {
                if !cond.eval_condition(machine.phv, &[]) {
                    return Err(error.eval_number(machine.phv, &[]) as u32);
                }
            }
            ParserOperation::Primitive(action) => action.execute_primitives(&[], machine),
        }
        Ok(())
    }

    fn extract_header(
        &self,
        extraction: &HeaderExtraction,
        reading: &mut ParserCursor<'_>,
        machine: &mut PacketContext<'_>,
    ) -> Result<(), u32> {
        let phv = &mut *machine.phv;
        let header = match &extraction.to {
            ExtractionTarget::Header(header) => *header,
            ExtractionTarget::Stack { stack, member } => {
                let element = stack.elements.get(phv.next_element(stack.index));
                element.ok_or(self.errors.stack_out_of_bounds)?[*member]
            }
        };
        let layout = &machine.headers[header.0 as usize];
        let variable = match &extraction.variable_bits {
            Some(bits) => self.eval_byte_count(bits, phv)?,
            None => 0,
        };
        let bytes = layout.bytes.saturating_add(variable);
        // The length comes from the packet, so it is checked against both the packet and the type.
        self.check_length(layout, bytes, reading.remaining_bytes())?;
        layout.extract_variable(reading.remaining_bytes(), variable, phv);
        layout.mark_valid(header, phv);
        reading.cursor += bytes;
        if let ExtractionTarget::Stack { stack, .. } = &extraction.to {
            phv.set_next_element(stack.index, phv.next_element(stack.index) + 1);
        }
        Ok(())
    }

    fn check_length(&self, layout: &HeaderLayout, bytes: usize, rest: &[u8]) -> Result<(), u32> {
        let most = layout.variable.as_ref().map_or(bytes, |variable| variable.max_bytes);
        // A short packet is reported before a wrong length in its header.
        if bytes > rest.len() {
            Err(self.errors.packet_too_short)
        } else if bytes > most {
            Err(self.errors.header_too_short)
        } else {
            Ok(())
        }
    }

    fn eval_byte_count(&self, bits: &NumberExpr, phv: &Phv) -> Result<usize, u32> {
        let bits = usize::try_from(bits.eval_number(phv, &[])).unwrap_or(usize::MAX);
        if bits.is_multiple_of(8) { Ok(bits / 8) } else { Err(self.errors.invalid_argument) }
    }

    fn eval_source(&self, source: &ValueSource, rest: &[u8], phv: &Phv) -> Result<i128, u32> {
        match source {
            ValueSource::Expr(expr) => Ok(expr.eval_number(phv, &[])),
            ValueSource::Lookahead { offset, bits } => {
                Ok(self.read_ahead(rest, *offset, *bits)? as i128)
            }
        }
    }

    fn read_key_part(&self, part: &SelectKeyPart, rest: &[u8], phv: &Phv) -> Result<u128, u32> {
        match part {
            SelectKeyPart::Field(slot, _) => Ok(phv.get(*slot)),
            SelectKeyPart::Lookahead { offset, bits } => self.read_ahead(rest, *offset, *bits),
            SelectKeyPart::Computed(expr, bits) => {
                Ok(expr.eval_number(phv, &[]) as u128 & bit_mask(*bits))
            }
        }
    }

    fn read_wide(&self, ahead: &WideLookahead, rest: &[u8], phv: &mut Phv) -> Result<(), u32> {
        self.check_ahead(rest, ahead.offset, ahead.bits)?;
        let mut offset = ahead.offset;
        for piece in &ahead.pieces {
            phv.assign_field(*piece, read_bits(rest, offset, piece.bits) as i128);
            offset += piece.bits as usize;
        }
        Ok(())
    }

    fn read_ahead(&self, rest: &[u8], offset: usize, bits: u32) -> Result<u128, u32> {
        self.check_ahead(rest, offset, bits)?;
        Ok(read_bits(rest, offset, bits))
    }

    fn check_ahead(&self, rest: &[u8], offset: usize, bits: u32) -> Result<(), u32> {
        let needed = (offset + bits as usize).div_ceil(8);
        if needed > rest.len() { Err(self.errors.packet_too_short) } else { Ok(()) }
    }
}

impl ParserCursor<'_> {
    fn remaining_bytes(&self) -> &[u8] {
        &self.packet[self.cursor..]
    }
}

impl SelectMatch {
    #[inline]
    fn matches_key(self, key: u128, sets: &[Vec<ValueSetMember>]) -> bool {
        match self {
            Self::Masked { value, mask } => key & mask == value,
            Self::InSet { set, mask } => {
                // The mask of the case and that of the member both apply.
                sets[set.0 as usize].iter().any(|&(value, of)| key & mask & of == value & mask)
            }
        }
    }
}
