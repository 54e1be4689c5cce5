//! Slices of fields over 128 bits.
//!
//! p4c writes `field[high:low]` as `(field >> low) & mask`. Only the pieces of the field that the
//! mask can reach are read, so the result fits the interpreter's numbers.

use super::{ExprCompiler, UnwrappedValue, masks};
use crate::compile::headers::{FieldContent, FieldReference};
use crate::compile::{LoadError, json};
use crate::run::expression::{BinaryOp, NumberExpr};
use crate::spec::FieldRef;

/// The pieces of a wide field, the most significant first, and how far it is shifted to the right.
struct ShiftedField {
    pieces: Vec<FieldRef>,
    shift: u32,
}

impl ExprCompiler<'_> {
    /// The slice that a conjunction with a constant takes of a wide field, if it is one.
    pub(super) fn wide_slice(
        &self,
        of: &json::OperationDecl,
    ) -> Result<Option<NumberExpr>, LoadError> {
        if of.op != "&" {
            return Ok(None);
        }
        let (left, right) = (self.required_operand(&of.left)?, self.required_operand(&of.right)?);
        for (field, mask) in [(&left, &right), (&right, &left)] {
            if let Some(field) = self.shifted_field(field)? {
                return match self.compile_number(mask)? {
                    mask @ NumberExpr::Const(0..) => {
                        Ok(Some(masks::binary_operation(BinaryOp::And, field.low_bits(), mask)))
                    }
                    _ => Err(LoadError::unsupported("a mask over 127 bits", self.at)),
                };
            }
        }
        Ok(None)
    }

    fn shifted_field(&self, typed: &json::TypedValue) -> Result<Option<ShiftedField>, LoadError> {
        match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) if plain.kind == "field" => {
                Ok(match self.headers.resolve_field(&plain.value, self.at)? {
                    FieldReference::Content(FieldContent::Wide(pieces)) => {
                        Some(ShiftedField { pieces, shift: 0 })
                    }
                    _ => None,
                })
            }
            UnwrappedValue::Operation(of) if of.op == ">>" => {
                let Some(field) = self.shifted_field(&self.required_operand(&of.left)?)? else {
                    return Ok(None);
                };
                match self.compile_number(&self.required_operand(&of.right)?)? {
                    NumberExpr::Const(by @ 0..=0xffff) => {
                        let shift = field.shift + by as u32;
                        Ok(Some(ShiftedField { shift, ..field }))
                    }
                    _ => Err(LoadError::unsupported("a computed shift over 128 bits", self.at)),
                }
            }
            _ => Ok(None),
        }
    }
}

impl ShiftedField {
    /// The low 128 bits.
    fn low_bits(&self) -> NumberExpr {
        let mut place = 0;
        let mut low = NumberExpr::Const(0);
        for piece in self.pieces.iter().rev() {
            let end = place + piece.bits;
            if end > self.shift && place < self.shift + 128 {
                let (op, by) = if place < self.shift {
                    (BinaryOp::ShiftRightLarge, self.shift - place)
                } else {
                    (BinaryOp::ShiftLeft, place - self.shift)
                };
                let operands = (NumberExpr::Field(*piece), NumberExpr::Const(i128::from(by)));
                let part = match by {
                    0 => operands.0,
                    _ => NumberExpr::Binary(op, Box::new(operands)),
                };
                low = match low {
                    NumberExpr::Const(_) => part,
                    low => NumberExpr::Binary(BinaryOp::Or, Box::new((low, part))),
                };
            }
            place = end;
        }
        low
    }
}
