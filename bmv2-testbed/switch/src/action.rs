//! Actions: lists of primitives, and the state they work on.
//!
//! Tables, the parser and the pipelines' plain calls all run an [`Action`] on a [`Machine`]. A
//! primitive this version does not have is refused when the program is loaded, so running one
//! cannot fail. As in BMv2, `exit` lets the rest of its action run and ends the pipeline after it,
//! and what concerns the packet as a whole (clones, resubmission) is only noted: `device` acts on
//! it when the pipeline has ended.

use crate::arrays::Arrays;
use crate::device::Nanos;
use crate::expression::{Cond, Expr, HeaderRef, element};
use crate::hash::Calculation;
use crate::header::{self, HeaderLayout, Stack, copy_element};
use crate::phv::{Field, Phv};
use crate::program::{FieldListIndex, HeaderIndex, LearnListIndex, VarbitIndex};

/// What packet processing reads and writes: one packet's headers and the device's arrays.
pub(crate) struct Machine<'a> {
    pub(crate) phv: &'a mut Phv,
    pub(crate) headers: &'a [HeaderLayout],
    pub(crate) arrays: &'a mut Arrays,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// What follows the parsed headers.
    pub(crate) payload: &'a [u8],
    /// Bytes of the packet as it arrived.
    pub(crate) arrived_bytes: u64,
    pub(crate) now: Nanos,
    /// Set by `exit`; ends the pipeline.
    pub(crate) exit: bool,
    pub(crate) requests: Requests,
}

/// What a pipeline has asked to be done with the whole packet; of each kind the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
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
pub(crate) struct Action {
    pub(crate) primitives: Vec<Primitive>,
}

/// One step of an action.
#[derive(Clone, Debug)]
pub(crate) enum Primitive {
    Assign(Field, Expr),
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
    CopyStack(Box<(Stack, Stack)>),
    Push(Box<(Stack, Expr)>),
    Pop(Box<(Stack, Expr)>),
    AddHeader(HeaderRef),
    RemoveHeader(HeaderRef),
    /// Egress to the drop port and to no multicast group.
    MarkToDrop {
        egress_spec: Field,
        multicast: Option<Field>,
    },
    Hash(Box<HashCall>),
    Count {
        array: usize,
        cell: Expr,
    },
    Meter {
        array: usize,
        cell: Expr,
        to: Field,
    },
    ReadRegister {
        array: usize,
        cell: Expr,
        to: Field,
    },
    WriteRegister {
        array: usize,
        cell: Expr,
        value: Expr,
    },
    Random {
        to: Field,
        low: Expr,
        high: Expr,
    },
    Clone {
        session: Expr,
        keep: Option<FieldListIndex>,
    },
    Digest(LearnListIndex),
    Resubmit(FieldListIndex),
    Recirculate(FieldListIndex),
    Truncate(Expr),
    Log(Box<LogCall>),
    Assert(Cond),
    /// Goes on at another primitive when the condition is false; from conditional expressions.
    JumpUnless {
        cond: Cond,
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
    pub(crate) index: Expr,
    pub(crate) fields: Box<[Field]>,
    pub(crate) value: Expr,
}

/// `base + calculation % size`.
#[derive(Clone, Debug)]
pub(crate) struct HashCall {
    pub(crate) to: Field,
    pub(crate) base: Expr,
    pub(crate) calculation: Calculation,
    pub(crate) size: Expr,
}

/// A message with a place `{}` for each value.
#[derive(Clone, Debug)]
pub(crate) struct LogCall {
    pub(crate) format: String,
    pub(crate) values: Vec<Expr>,
}

/// The egress port that means "drop" in simple_switch.
pub const DROP_PORT: u16 = 511;

/// A loop of an action may jump back this often; BMv2 would go on forever.
const LOOP_LIMIT: u32 = 1 << 16;

impl Action {
    /// Runs the action with these arguments.
    #[inline]
    pub(crate) fn run(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let (mut at, mut loops) = (0, 0);
        while let Some(primitive) = self.primitives.get(at) {
            at = match primitive {
                Primitive::Jump { to } if *to <= at => {
                    loops += 1;
                    if loops == LOOP_LIMIT {
                        machine.requests.failed = true;
                        return;
                    }
                    *to
                }
                Primitive::Jump { to } => *to,
                Primitive::JumpUnless { cond, to } if !cond.eval(machine.phv, arguments) => *to,
                Primitive::JumpUnless { .. } => at + 1,
                Primitive::Assign(field, value) => {
                    let value = value.eval(machine.phv, arguments);
                    machine.phv.assign(*field, value);
                    at + 1
                }
                primitive => {
                    primitive.run(arguments, machine);
                    at + 1
                }
            };
        }
    }
}

impl Primitive {
    fn run(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        match self {
            Self::CopyVarbit { from, to } => machine.phv.copy_varbit(*from, *to),
            Self::MarkToDrop {
                egress_spec,
                multicast,
            } => {
                machine.phv.assign(*egress_spec, i128::from(DROP_PORT));
                if let Some(multicast) = multicast {
                    machine.phv.assign(*multicast, 0);
                }
            }
            Self::AssignElement(of) => {
                let found = element(&of.index, &of.fields, machine.phv, arguments);
                let value = of.value.eval(machine.phv, arguments);
                if let Some(field) = found {
                    machine.phv.assign(field, value);
                }
            }
            Self::Hash(call) => call.run(arguments, machine),
            Self::Log(call) => call.run(arguments, machine.phv),
            Self::Assert(cond) => {
                machine.requests.failed |= !cond.eval(machine.phv, arguments);
            }
            Self::Exit => machine.exit = true,
            Self::Count { .. }
            | Self::Meter { .. }
            | Self::ReadRegister { .. }
            | Self::WriteRegister { .. }
            | Self::Random { .. } => self.use_arrays(arguments, machine),
            Self::Clone { .. }
            | Self::Digest(_)
            | Self::Resubmit(_)
            | Self::Recirculate(_)
            | Self::Truncate(_) => self.request(arguments, machine),
            _ => self.move_headers(arguments, machine),
        }
    }

    fn move_headers(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let Machine { phv, headers, .. } = machine;
        let amount =
            |by: &Expr, phv: &Phv| usize::try_from(by.eval(phv, arguments)).unwrap_or(usize::MAX);
        match self {
            Self::CopyHeader { from, to } => {
                let (from, to) = (from.resolve(phv, arguments), to.resolve(phv, arguments));
                if let (Some(from), Some(to)) = (from, to) {
                    header::copy(headers, from, to, phv);
                }
            }
            Self::CopyUnion { from, to } => copy_element(from, to, headers, phv),
            Self::CopyStack(of) => of.1.assign(&of.0, headers, phv),
            Self::Push(of) => of.0.push(amount(&of.1, phv), headers, phv),
            Self::Pop(of) => of.0.pop(amount(&of.1, phv), headers, phv),
            Self::AddHeader(header) => {
                if let Some(header) = header.resolve(phv, arguments) {
                    header::add(headers, header, phv);
                }
            }
            Self::RemoveHeader(header) => {
                if let Some(header) = header.resolve(phv, arguments) {
                    header::remove(headers, header, phv);
                }
            }
            _ => {}
        }
    }

    fn use_arrays(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let Machine {
            phv,
            arrays,
            now,
            arrived_bytes,
            ..
        } = machine;
        match self {
            Self::Count { array, cell } => {
                arrays.count(*array, cell.eval(phv, arguments), *arrived_bytes);
            }
            Self::Meter { array, cell, to } => {
                let cell = cell.eval(phv, arguments);
                if let Some(color) = arrays.meter(*array, cell, *now, *arrived_bytes) {
                    phv.assign(*to, i128::from(color));
                }
            }
            Self::ReadRegister { array, cell, to } => {
                if let Some(value) = arrays.read(*array, cell.eval(phv, arguments)) {
                    phv.assign(*to, value as i128);
                }
            }
            Self::WriteRegister { array, cell, value } => {
                let value = value.eval(phv, arguments);
                arrays.write(*array, cell.eval(phv, arguments), value);
            }
            Self::Random { to, low, high } => {
                let (low, high) = (low.eval(phv, arguments), high.eval(phv, arguments));
                if let Some(value) = arrays.random(low as u64, high as u64) {
                    phv.assign(*to, i128::from(value));
                }
            }
            _ => {}
        }
    }

    fn request(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let Machine { phv, requests, .. } = machine;
        match self {
            Self::Clone { session, keep } => {
                let session = session.eval(phv, arguments) as u16 & SESSION_MASK;
                requests.clone = Some(CloneRequest {
                    session,
                    keep: *keep,
                });
            }
            Self::Digest(list) => requests.digest = Some(*list),
            Self::Resubmit(list) => requests.resubmit = Some(*list),
            Self::Recirculate(list) => requests.recirculate = Some(*list),
            Self::Truncate(to) => {
                let to = usize::try_from(to.eval(phv, arguments)).unwrap_or(usize::MAX);
                requests.truncate = Some(requests.truncate.map_or(to, |least| least.min(to)));
            }
            _ => {}
        }
    }
}

/// Clone sessions have numbers of 15 bits in simple_switch.
pub(crate) const SESSION_MASK: u16 = 0x7fff;

impl HashCall {
    fn run(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let hash = self
            .calculation
            .compute(machine.phv, machine.payload, machine.scratch);
        let base = self.base.eval(machine.phv, arguments) as u64;
        let size = (self.size.eval(machine.phv, arguments) as u64).max(1);
        let value = i128::from((hash % size).wrapping_add(base));
        machine.phv.assign(self.to, value);
    }
}

impl LogCall {
    fn run(&self, arguments: &[u128], phv: &Phv) {
        let mut values = self.values.iter();
        let mut parts = self.format.split("{}");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let value = values.next().map_or(0, |value| value.eval(phv, arguments));
            text.push_str(&value.to_string());
            text.push_str(part);
        }
        tracing::info!(target: "p4", "{text}");
    }
}
