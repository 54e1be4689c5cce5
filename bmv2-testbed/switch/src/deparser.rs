//! The deparser: checksums brought up to date, then header fields back to bytes.
//!
//! The last step of a packet in `device`. Valid headers are written in the program's order, in
//! front of what the parser left. As in BMv2 a checksum is updated only while its header is valid
//! and its condition holds, and verified (after parsing) under the same terms.

use crate::action::{Action, Machine};
use crate::expression::Cond;
use crate::hash::{BitWriter, Calculation};
use crate::parser::HeaderLayout;
use crate::phv::Field;

/// The deparser of a program.
#[derive(Debug)]
pub(crate) struct Deparser {
    pub(crate) order: Vec<HeaderLayout>,
    /// Primitives run first; p4c puts the calls of the deparser block here.
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
        self.action.run(&[], machine);
        for checksum in &self.updates {
            checksum.update(machine);
        }
        for layout in &self.order {
            if machine.phv.is_valid(layout.header) {
                let mut bits = BitWriter::after(out);
                for field in &layout.fields {
                    bits.push(machine.phv.get(field.slot), field.bits);
                }
                bits.finish();
            }
        }
        out.extend_from_slice(machine.payload);
    }
}

impl Checksum {
    /// Whether the field holds the right value, as far as the checksum applies to this packet.
    pub(crate) fn holds(&self, machine: &mut Machine<'_>) -> bool {
        !self.applies(machine) || machine.phv.number(self.field) == self.compute(machine)
    }

    fn update(&self, machine: &mut Machine<'_>) {
        if self.applies(machine) {
            let value = self.compute(machine);
            machine.phv.assign(self.field, value);
        }
    }

    fn applies(&self, machine: &Machine<'_>) -> bool {
        machine.phv.is_valid(self.field.header)
            && self
                .condition
                .as_ref()
                .is_none_or(|cond| cond.eval(machine.phv, &[]))
    }

    fn compute(&self, machine: &mut Machine<'_>) -> i128 {
        i128::from(
            self.calculation
                .compute(machine.phv, machine.payload, machine.scratch),
        )
    }
}
