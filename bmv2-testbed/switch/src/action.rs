//! Actions: straight lists of primitives, and the state they work on.
//!
//! Tables, the parser and the pipelines' plain calls all run an [`Action`] on a [`Machine`]. A
//! primitive this version does not have is refused when the program is loaded, so running one
//! cannot fail. As in BMv2, `exit` lets the rest of its action run and ends the pipeline after it.

use crate::counter::Count;
use crate::expression::{Cond, Expr};
use crate::hash::Calculation;
use crate::phv::{Field, Phv};
use crate::program::HeaderIndex;

/// What packet processing reads and writes: one packet's headers and the device's arrays.
pub(crate) struct Machine<'a> {
    pub(crate) phv: &'a mut Phv,
    pub(crate) counters: &'a mut [Vec<Count>],
    pub(crate) scratch: &'a mut Vec<u8>,
    /// What follows the parsed headers.
    pub(crate) payload: &'a [u8],
    /// Bytes of the packet as it arrived.
    pub(crate) arrived_bytes: u64,
    /// Set by `exit`; ends the pipeline.
    pub(crate) exit: bool,
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
    /// Copies fields and validity between headers of one type.
    CopyHeader {
        from: HeaderIndex,
        to: HeaderIndex,
        fields: Vec<(Field, Field)>,
    },
    AddHeader {
        header: HeaderIndex,
        bytes: u32,
        fields: Vec<Field>,
    },
    RemoveHeader {
        header: HeaderIndex,
        bytes: u32,
    },
    /// Egress to the drop port and to no multicast group.
    MarkToDrop {
        egress_spec: Field,
        multicast: Option<Field>,
    },
    Hash {
        to: Field,
        base: Expr,
        calculation: Calculation,
        size: Expr,
    },
    Count {
        array: usize,
        cell: Expr,
    },
    /// Goes on at another primitive when the condition is false; from conditional expressions.
    JumpUnless {
        cond: Cond,
        to: usize,
    },
    Jump {
        to: usize,
    },
    Exit,
}

/// The egress port that means "drop" in simple_switch.
pub const DROP_PORT: u16 = 511;

impl Action {
    /// Runs the action with these arguments.
    #[inline]
    pub(crate) fn run(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        let mut at = 0;
        while let Some(primitive) = self.primitives.get(at) {
            at = match primitive {
                Primitive::Jump { to } => *to,
                Primitive::JumpUnless { cond, to } if !cond.eval(machine.phv, arguments) => *to,
                Primitive::JumpUnless { .. } => at + 1,
                primitive => {
                    primitive.run(arguments, machine);
                    at + 1
                }
            };
        }
    }
}

impl Primitive {
    #[inline]
    fn run(&self, arguments: &[u128], machine: &mut Machine<'_>) {
        match self {
            Self::Assign(field, value) => {
                let value = value.eval(machine.phv, arguments);
                machine.phv.assign(*field, value);
            }
            Self::CopyHeader { from, to, fields } => copy_header(machine.phv, *from, *to, fields),
            Self::AddHeader {
                header,
                bytes,
                fields,
            } => {
                add_header(machine.phv, *header, *bytes, fields);
            }
            Self::RemoveHeader { header, bytes } => {
                if machine.phv.is_valid(*header) {
                    machine.phv.set_valid(*header, false);
                    machine.phv.packet_length = machine.phv.packet_length.saturating_sub(*bytes);
                }
            }
            Self::MarkToDrop {
                egress_spec,
                multicast,
            } => {
                machine.phv.assign(*egress_spec, i128::from(DROP_PORT));
                if let Some(multicast) = multicast {
                    machine.phv.assign(*multicast, 0);
                }
            }
            Self::Hash {
                to,
                base,
                calculation,
                size,
            } => {
                let hash = calculation.compute(machine.phv, machine.payload, machine.scratch);
                let base = base.eval(machine.phv, arguments) as u64;
                let size = (size.eval(machine.phv, arguments) as u64).max(1);
                machine
                    .phv
                    .assign(*to, i128::from((hash % size).wrapping_add(base)));
            }
            Self::Count { array, cell } => {
                let cell = usize::try_from(cell.eval(machine.phv, arguments)).unwrap_or(usize::MAX);
                if let Some(count) = machine.counters[*array].get_mut(cell) {
                    count.add_packet(machine.arrived_bytes);
                }
            }
            Self::Exit => machine.exit = true,
            Self::Jump { .. } | Self::JumpUnless { .. } => {}
        }
    }
}

fn copy_header(phv: &mut Phv, from: HeaderIndex, to: HeaderIndex, fields: &[(Field, Field)]) {
    let valid = phv.is_valid(from);
    phv.set_valid(to, valid);
    if valid {
        for (from, to) in fields {
            phv.set(to.slot, phv.get(from.slot));
        }
    }
}

fn add_header(phv: &mut Phv, header: HeaderIndex, bytes: u32, fields: &[Field]) {
    if phv.is_valid(header) {
        return;
    }
    for field in fields {
        phv.set(field.slot, 0);
    }
    phv.set_valid(header, true);
    phv.packet_length += bytes;
}
