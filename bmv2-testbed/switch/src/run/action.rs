//! Actions: lists of primitives, and the state they work on.
//!
//! Tables, the parser and the pipelines' plain calls all run an [`Action`] on a [`PacketContext`].
//! A primitive this version does not have is refused when the program is loaded, so running one
//! cannot fail. As in BMv2, `exit` lets the rest of its action run and ends the pipeline after it,
//! and what concerns the packet as a whole (clones, resubmission) is only noted: `device` acts on
//! it when the pipeline has ended.

use std::sync::Arc;

use crate::ids::{FieldListIndex, HeaderIndex, LearnListIndex, PhvSlot, VarbitIndex};
use crate::run::arrays::StatefulArrays;
use crate::run::expression::{BoolExpr, HeaderRef, NumberExpr, indexed_element};
use crate::run::hash::HashCalculation;
use crate::run::header::{self, HeaderLayout, HeaderStack, copy_element};
use crate::run::phv::Phv;
use crate::spec::{FieldRef, bit_mask};
use crate::time::Nanos;

/// What packet processing reads and writes: one packet's headers and the device's arrays.
pub(crate) struct PacketContext<'a> {
    pub(crate) phv: &'a mut Phv,
    pub(crate) headers: &'a [HeaderLayout],
    pub(crate) arrays: &'a mut StatefulArrays,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// What follows the parsed headers.
    pub(crate) payload: &'a [u8],
    /// Bytes of the packet as it arrived.
    pub(crate) arrived_bytes: u64,
    pub(crate) now: Nanos,
    /// Set by `exit`; ends the pipeline.
    pub(crate) exit: bool,
    pub(crate) requests: PacketRequests,
}

/// What a pipeline has requested for the whole packet; of each kind the last request counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketRequests {
    pub(crate) clone: Option<CloneRequest>,
    pub(crate) digest: Option<LearnListIndex>,
    pub(crate) resubmit: Option<FieldListIndex>,
    pub(crate) recirculate: Option<FieldListIndex>,
    /// The most bytes that leave.
    pub(crate) truncate: Option<usize>,
    /// An assertion of the program did not hold.
    pub(crate) failed: bool,
}

/// A copy for a clone session, with these metadata fields kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloneRequest {
    pub(crate) session: u16,
    pub(crate) keep: Option<FieldListIndex>,
}

/// An action's body.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledAction {
    /// Shared by the nodes that run it.
    pub(crate) primitives: Arc<[ActionPrimitive]>,
}

/// One step of an action.
#[derive(Clone, Debug)]
pub(crate) enum ActionPrimitive {
    /// See [`ActionPrimitive::assignment`], which chooses the simplest of the three.
    Assign(FieldRef, NumberExpr),
    SetBits(PhvSlot, u128),
    CopyBits {
        from: PhvSlot,
        to: PhvSlot,
    },
    AssignElement(Box<ElementAssignment>),
    CopyVarbit {
        from: VarbitIndex,
        to: VarbitIndex,
    },
    /// Copies fields and validity between headers of one type.
    CopyHeader {
        from: HeaderRef,
        to: HeaderRef,
    },
    CopyUnion {
        from: Box<[HeaderIndex]>,
        to: Box<[HeaderIndex]>,
    },
    CopyStack(Box<(HeaderStack, HeaderStack)>),
    Push(Box<(HeaderStack, NumberExpr)>),
    Pop(Box<(HeaderStack, NumberExpr)>),
    AddHeader(HeaderRef),
    RemoveHeader(HeaderRef),
    /// Egress to the drop port and to no multicast group.
    MarkToDrop {
        egress_spec: FieldRef,
        multicast: Option<FieldRef>,
    },
    Hash(Box<HashCall>),
    Count {
        array: usize,
        cell: NumberExpr,
    },
    Meter {
        array: usize,
        cell: NumberExpr,
        to: FieldRef,
    },
    ReadRegister {
        array: usize,
        cell: NumberExpr,
        to: FieldRef,
    },
    WriteRegister {
        array: usize,
        cell: NumberExpr,
        value: NumberExpr,
    },
    Random {
        to: FieldRef,
        low: NumberExpr,
        high: NumberExpr,
    },
    Clone {
        session: NumberExpr,
        keep: Option<FieldListIndex>,
    },
    Digest(LearnListIndex),
    Resubmit(FieldListIndex),
    Recirculate(FieldListIndex),
    Truncate(NumberExpr),
    Log(Box<LogCall>),
    Assert(BoolExpr),
    /// Goes on at another primitive when the condition is false; from conditional expressions.
    JumpUnless {
        cond: BoolExpr,
        to: usize,
    },
    Jump {
        to: usize,
    },
    Nothing,
    Exit,
}

/// A write to a field of a stack's element.
#[derive(Clone, Debug)]
pub(crate) struct ElementAssignment {
    pub(crate) index: NumberExpr,
    pub(crate) fields: Box<[FieldRef]>,
    pub(crate) value: NumberExpr,
}

/// `base + calculation % size`.
#[derive(Clone, Debug)]
pub(crate) struct HashCall {
    pub(crate) to: FieldRef,
    pub(crate) base: NumberExpr,
    pub(crate) calculation: HashCalculation,
    pub(crate) size: NumberExpr,
}

/// A message with a place `{}` for each value.
#[derive(Clone, Debug)]
pub(crate) struct LogCall {
    pub(crate) format: String,
    pub(crate) values: Vec<NumberExpr>,
}

/// The egress port that means "drop" in simple_switch.
pub const DROP_PORT: u16 = 511;

/// A loop of an action may jump back this often; BMv2 would go on forever.
const LOOP_LIMIT: u32 = 1 << 16;

impl CompiledAction {
    /// Runs the action with these arguments.
    #[inline]
    pub(crate) fn execute_primitives(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        let (mut at, mut loops) = (0, 0);
        while let Some(primitive) = self.primitives.get(at) {
            at = match primitive {
                // Only jumps backwards can make a loop, so nothing else is counted on the path of
                // packets.
                ActionPrimitive::Jump { to } if *to <= at => {
                    loops += 1;
                    if loops == LOOP_LIMIT {
                        machine.requests.failed = true;
                        return;
                    }
                    *to
                }
                ActionPrimitive::Jump { to } => *to,
                ActionPrimitive::JumpUnless { cond, to }
                    if !cond.eval_condition(machine.phv, arguments) =>
                {
                    *to
                }
                ActionPrimitive::JumpUnless { .. } => at + 1,
                // The three most frequent primitives are run here; a call for each costs more than
                // their work.
                ActionPrimitive::SetBits(slot, bits) => {
                    machine.phv.set(*slot, *bits);
                    at + 1
                }
                ActionPrimitive::CopyBits { from, to } => {
                    machine.phv.set(*to, machine.phv.get(*from));
                    at + 1
                }
                ActionPrimitive::Assign(field, value) => {
                    let value = value.eval_number(machine.phv, arguments);
                    machine.phv.assign_field(*field, value);
                    at + 1
                }
                primitive => {
                    primitive.execute_primitive(arguments, machine);
                    at + 1
                }
            };
        }
    }
}

impl ActionPrimitive {
    /// Writes a value to a field. Most values are constants or fields that fit, for which nothing
    /// is left to be computed for each packet.
    pub(crate) fn assignment(field: FieldRef, value: NumberExpr) -> Self {
        match value {
            NumberExpr::Const(value) => {
                Self::SetBits(field.slot, value as u128 & bit_mask(field.bits))
            }
            // A signed or wider field would need its sign extended or its high bits cut.
            NumberExpr::Field(from) if !from.signed && from.bits <= field.bits => {
                Self::CopyBits { from: from.slot, to: field.slot }
            }
            value => Self::Assign(field, value),
        }
    }

    /// The fields that it writes, if it changes nothing else about the headers and is followed by the
    /// next one.
    pub(crate) fn written_slots(&self) -> Option<[Option<PhvSlot>; 2]> {
        Some(match self {
            Self::SetBits(to, _) | Self::CopyBits { to, .. } => [Some(*to), None],
            Self::Assign(to, _)
            | Self::Meter { to, .. }
            | Self::ReadRegister { to, .. }
            | Self::Random { to, .. } => [Some(to.slot), None],
            Self::Hash(call) => [Some(call.to.slot), None],
            Self::MarkToDrop { egress_spec, multicast } => {
                [Some(egress_spec.slot), multicast.map(|field| field.slot)]
            }
            Self::Count { .. }
            | Self::WriteRegister { .. }
            | Self::Clone { .. }
            | Self::Digest(_)
            | Self::Nothing
            | Self::Exit => [None; 2],
            // Headers, stacks and computed elements write slots that only a packet decides.
            _ => return None,
        })
    }

    fn execute_primitive(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        match self {
            Self::CopyVarbit { from, to } => machine.phv.copy_varbit(*from, *to),
            Self::MarkToDrop { egress_spec, multicast } => {
                machine.phv.assign_field(*egress_spec, i128::from(DROP_PORT));
                if let Some(multicast) = multicast {
                    machine.phv.assign_field(*multicast, 0);
                }
            }
            Self::AssignElement(of) => {
                // Before the value is assigned: the assignment may change what the index depends
                // on.
                let found = indexed_element(&of.index, &of.fields, machine.phv, arguments);
                let value = of.value.eval_number(machine.phv, arguments);
                if let Some(field) = found {
                    machine.phv.assign_field(field, value);
                }
            }
            Self::Hash(call) => call.assign_hash(arguments, machine),
            Self::Log(call) => call.log_message(arguments, machine.phv),
            Self::Assert(cond) => {
                // The rest of the action still runs: its counters count a packet that is dropped
                // afterwards.
                machine.requests.failed |= !cond.eval_condition(machine.phv, arguments);
            }
            Self::Exit => machine.exit = true,
            Self::Count { .. }
            | Self::Meter { .. }
            | Self::ReadRegister { .. }
            | Self::WriteRegister { .. }
            | Self::Random { .. } => self.execute_array_primitive(arguments, machine),
            Self::Clone { .. }
            | Self::Digest(_)
            | Self::Resubmit(_)
            | Self::Recirculate(_)
            | Self::Truncate(_) => self.record_request(arguments, machine),
            _ => self.execute_header_primitive(arguments, machine),
        }
    }

    fn execute_header_primitive(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        let PacketContext { phv, headers, .. } = machine;
        let amount = |by: &NumberExpr, phv: &Phv| {
            usize::try_from(by.eval_number(phv, arguments)).unwrap_or(usize::MAX)
        };
        match self {
            Self::CopyHeader { from, to } => {
                let (from, to) =
                    (from.resolve_header(phv, arguments), to.resolve_header(phv, arguments));
                if let (Some(from), Some(to)) = (from, to) {
                    header::copy_header(headers, from, to, phv);
                }
            }
            Self::CopyUnion { from, to } => copy_element(from, to, headers, phv),
            Self::CopyStack(of) => of.1.assign_stack(&of.0, headers, phv),
            Self::Push(of) => of.0.push_front(amount(&of.1, phv), headers, phv),
            Self::Pop(of) => of.0.pop_front(amount(&of.1, phv), headers, phv),
            Self::AddHeader(header) => {
                if let Some(header) = header.resolve_header(phv, arguments) {
                    header::add_header(headers, header, phv);
                }
            }
            Self::RemoveHeader(header) => {
                if let Some(header) = header.resolve_header(phv, arguments) {
                    header::remove_header(headers, header, phv);
                }
            }
            _ => {}
        }
    }

    fn execute_array_primitive(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        let PacketContext { phv, arrays, now, arrived_bytes, .. } = machine;
        match self {
            Self::Count { array, cell } => {
                arrays.count_packet(*array, cell.eval_number(phv, arguments), *arrived_bytes);
            }
            Self::Meter { array, cell, to } => {
                let cell = cell.eval_number(phv, arguments);
                if let Some(color) = arrays.meter_packet(*array, cell, *now, *arrived_bytes) {
                    phv.assign_field(*to, i128::from(color));
                }
            }
            Self::ReadRegister { array, cell, to } => {
                if let Some(value) = arrays.read_register(*array, cell.eval_number(phv, arguments))
                {
                    phv.assign_field(*to, value as i128);
                }
            }
            Self::WriteRegister { array, cell, value } => {
                let value = value.eval_number(phv, arguments);
                arrays.write_register(*array, cell.eval_number(phv, arguments), value);
            }
            Self::Random { to, low, high } => {
                let (low, high) =
                    (low.eval_number(phv, arguments), high.eval_number(phv, arguments));
                if let Some(value) = arrays.random_between(low as u64, high as u64) {
                    phv.assign_field(*to, i128::from(value));
                }
            }
            _ => {}
        }
    }

    fn record_request(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        let PacketContext { phv, requests, .. } = machine;
        match self {
            Self::Clone { session, keep } => {
                // Session ids have 15 bits in simple_switch; the highest one means something else
                // there.
                let session = session.eval_number(phv, arguments) as u16 & SESSION_MASK;
                requests.clone = Some(CloneRequest { session, keep: *keep });
            }
            Self::Digest(list) => requests.digest = Some(*list),
            Self::Resubmit(list) => requests.resubmit = Some(*list),
            Self::Recirculate(list) => requests.recirculate = Some(*list),
            Self::Truncate(to) => {
                let to = usize::try_from(to.eval_number(phv, arguments)).unwrap_or(usize::MAX);
                // A later and longer limit cannot bring back what an earlier one has cut.
                requests.truncate = Some(requests.truncate.map_or(to, |least| least.min(to)));
            }
            _ => {}
        }
    }
}

/// Clone sessions have numbers of 15 bits in simple_switch.
pub const SESSION_MASK: u16 = 0x7fff;

impl HashCall {
    fn assign_hash(&self, arguments: &[u128], machine: &mut PacketContext<'_>) {
        let hash = self.calculation.compute_hash(machine.phv, machine.payload, machine.scratch);
        let base = self.base.eval_number(machine.phv, arguments) as u64;
        // A range of no values would be a division by zero, and it is the program that states it.
        let size = (self.size.eval_number(machine.phv, arguments) as u64).max(1);
        // Wraps as the field does; a base near the top is the program's to choose.
        let value = i128::from((hash % size).wrapping_add(base));
        machine.phv.assign_field(self.to, value);
    }
}

impl LogCall {
    fn log_message(&self, arguments: &[u128], phv: &Phv) {
        let mut values = self.values.iter();
        let mut parts = self.format.split("{}");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let value = values.next().map_or(0, |value| value.eval_number(phv, arguments));
            text.push_str(&value.to_string());
            text.push_str(part);
        }
        tracing::info!(target: "p4", "{text}");
    }
}
