//! The deparser: checksums brought up to date, then header fields back to bytes.
//!
//! The last step of a packet in `device`. Valid headers are written in the program's order, in
//! front of what the parser left. As in BMv2 a checksum is updated while its condition holds, and
//! verified (after parsing) only if its header is there too.

use crate::action::{Action, Machine};
use crate::expression::Cond;
use crate::hash::{BitWriter, Calculation};
use crate::phv::Field;
use crate::program::HeaderIndex;

/// The deparser of a program.
#[derive(Debug)]
pub(crate) struct Deparser {
    pub(crate) order: Vec<HeaderIndex>,
    /// Primitives run before the headers are written; p4c puts the deparser block's calls here.
    pub(crate) action: Action,
    pub(crate) updates: Vec<Checksum>,
}

/// A checksum field and how to compute it.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) field: Field,
    pub(crate) calculation: Calculation,
    pub(crate) condition: Option<Cond>,
}

impl Deparser {
    /// Appends the packet to `out`.
    pub(crate) fn deparse(&self, machine: &mut Machine<'_>, out: &mut Vec<u8>) {
        for checksum in &self.updates {
            checksum.update(machine);
        }
        self.action.run(&[], machine);
        for header in &self.order {
            if machine.phv.is_valid(*header) {
                let mut bits = BitWriter::after(out);
                machine.headers[header.0 as usize].emit(machine.phv, &mut bits);
                bits.finish();
            }
        }
        out.extend_from_slice(machine.payload);
    }
}

impl Checksum {
    /// Whether the field holds the right value, as far as the checksum applies to this packet.
    pub(crate) fn holds(&self, machine: &mut Machine<'_>) -> bool {
        let applies = machine.phv.is_valid(self.field.header) && self.is_wanted(machine);
        !applies || machine.phv.number(self.field) == self.compute(machine)
    }

    fn update(&self, machine: &mut Machine<'_>) {
        if self.is_wanted(machine) {
            let value = self.compute(machine);
            machine.phv.assign(self.field, value);
        }
    }

    fn is_wanted(&self, machine: &Machine<'_>) -> bool {
        let condition = self.condition.as_ref();
        condition.is_none_or(|cond| cond.eval(machine.phv, &[]))
    }

    fn compute(&self, machine: &mut Machine<'_>) -> i128 {
        let Machine {
            phv,
            payload,
            scratch,
            ..
        } = machine;
        i128::from(self.calculation.compute(phv, payload, scratch))
    }
}
