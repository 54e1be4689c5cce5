//! The deparser: checksums brought up to date, then header fields back to bytes.
//!
//! The last step of a packet in `device`. Valid headers are written in the program's order, in
//! front of what the parser left. As in BMv2 a checksum is updated while its condition holds, and
//! verified (after parsing) only if its header is there too.

use crate::ids::HeaderIndex;
use crate::run::action::{CompiledAction, PacketContext};
use crate::run::expression::BoolExpr;
use crate::run::hash::{BitWriter, HashCalculation};
use crate::spec::FieldRef;

/// The deparser of a program.
#[derive(Debug)]
pub(crate) struct Deparser {
    pub(crate) order: Vec<HeaderIndex>,
    /// Primitives run before the headers are written; p4c puts the deparser block's calls here.
    pub(crate) action: CompiledAction,
    pub(crate) updates: Vec<ChecksumField>,
}

/// A checksum field and how to compute it.
#[derive(Clone, Debug)]
pub(crate) struct ChecksumField {
    pub(crate) field: FieldRef,
    pub(crate) calculation: HashCalculation,
    pub(crate) condition: Option<BoolExpr>,
}

impl Deparser {
    /// Appends the packet to `out`.
    pub(crate) fn deparse_packet(&self, machine: &mut PacketContext<'_>, out: &mut Vec<u8>) {
        for checksum in &self.updates {
            // Before the deparser's own statements, which may look at the finished checksum.
            checksum.update_field(machine);
        }
        self.action.execute_primitives(&[], machine);
        for header in &self.order {
            if machine.phv.is_valid(*header) {
                // A writer for each header: every one begins at a byte, even if the one before
                // ended within one.
                let mut bits = BitWriter::append_to(out);
                machine.headers[header.0 as usize].emit_fields(machine.phv, &mut bits);
                bits.finish();
            }
        }
        out.extend_from_slice(machine.payload);
    }
}

impl ChecksumField {
    /// Whether the field holds the right value, as far as the checksum applies to this packet.
    pub(crate) fn is_correct(&self, machine: &mut PacketContext<'_>) -> bool {
        // The checksum of a header that the packet does not have cannot be wrong.
        let applies = machine.phv.is_valid(self.field.header) && self.condition_holds(machine);
        !applies || machine.phv.field_number(self.field) == self.compute_checksum(machine)
    }

    fn update_field(&self, machine: &mut PacketContext<'_>) {
        if self.condition_holds(machine) {
            let value = self.compute_checksum(machine);
            machine.phv.assign_field(self.field, value);
        }
    }

    fn condition_holds(&self, machine: &PacketContext<'_>) -> bool {
        let condition = self.condition.as_ref();
        condition.is_none_or(|cond| cond.eval_condition(machine.phv, &[]))
    }

    fn compute_checksum(&self, machine: &mut PacketContext<'_>) -> i128 {
        let PacketContext { phv, payload, scratch, .. } = machine;
        i128::from(self.calculation.compute_hash(phv, payload, scratch))
    }
}
