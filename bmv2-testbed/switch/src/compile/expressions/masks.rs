//! Masks that take nothing away, taken out of expressions.
//!
//! p4c cuts every result to its type's width by a mask, also where the operand is no wider, and
//! again where the field that it is assigned to cuts it anyway. In `fabric.p4` half of what is
//! computed are such masks.

use crate::run::expression::{BinaryOp, NumberExpr};
use crate::spec::bit_mask;

/// An operation, without a mask that changes nothing.
pub(super) fn binary_operation(op: BinaryOp, left: NumberExpr, right: NumberExpr) -> NumberExpr {
    match (op, left, right) {
        (BinaryOp::And, of, NumberExpr::Const(bits))
        | (BinaryOp::And, NumberExpr::Const(bits), of) => merge_masks(of, bits),
        (op, left, right) => NumberExpr::Binary(op, Box::new((left, right))),
    }
}

/// A value whose low `width` bits alone count, as in an assignment.
pub(in crate::compile) fn strip_masks(of: NumberExpr, width: u32) -> NumberExpr {
    match of {
        NumberExpr::Binary(BinaryOp::And, operands) => match *operands {
            (of, NumberExpr::Const(bits)) if covers_width(bits, width) => strip_masks(of, width),
            operands => NumberExpr::Binary(BinaryOp::And, Box::new(operands)),
        },
        of => of,
    }
}

fn merge_masks(of: NumberExpr, bits: i128) -> NumberExpr {
    match of {
        NumberExpr::Binary(BinaryOp::And, operands) => match *operands {
            (of, NumberExpr::Const(others)) => merge_masks(of, bits & others),
            operands => apply_mask(NumberExpr::Binary(BinaryOp::And, Box::new(operands)), bits),
        },
        of => apply_mask(of, bits),
    }
}

fn apply_mask(of: NumberExpr, bits: i128) -> NumberExpr {
    let changes_nothing =
        of.is_unsigned() && of.magnitude_bits().is_some_and(|width| covers_width(bits, width));
    match changes_nothing {
        true => of,
        false => NumberExpr::Binary(BinaryOp::And, Box::new((of, NumberExpr::Const(bits)))),
    }
}

/// Whether all of the low `width` bits are set.
fn covers_width(bits: i128, width: u32) -> bool {
    let all = bit_mask(width);
    bits as u128 & all == all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::HeaderIndex;
    use crate::ids::PhvSlot;
    use crate::run::phv::{Phv, PhvLayout};
    use crate::spec::FieldRef;

    const WIDTH: u32 = 9;

    fn field(slot: u32) -> NumberExpr {
        NumberExpr::Field(FieldRef {
            slot: PhvSlot(slot),
            bits: WIDTH,
            signed: slot == 1,
            header: HeaderIndex(0),
        })
    }

    /// A tree, and the same as p4c wrote it.
    fn trees() -> impl Strategy<Value = (NumberExpr, NumberExpr)> {
        let plain = |of: NumberExpr| (of.clone(), of);
        let leaf = prop_oneof![
            (0..2_u32).prop_map(move |slot| plain(field(slot))),
            (0..1024_i128).prop_map(move |value| plain(NumberExpr::Const(value))),
        ];
        let ops = prop_oneof![
            3 => Just(BinaryOp::And),
            1 => Just(BinaryOp::Or),
            1 => Just(BinaryOp::Add),
            1 => Just(BinaryOp::Subtract),
        ];
        leaf.prop_recursive(5, 40, 2, move |inner| {
            (ops.clone(), inner.clone(), inner).prop_map(|(op, left, right)| {
                let written = NumberExpr::Binary(op, Box::new((left.1, right.1)));
                (binary_operation(op, left.0, right.0), written)
            })
        })
    }

    proptest! {
        #[test]
        fn values_stay_what_they_were(
            (simple, written) in trees(),
            values in proptest::array::uniform2(0..1_u128 << WIDTH),
            width in 1..40_u32,
        ) {
            let shape = PhvLayout { slots: 2, ..PhvLayout::default() };
            let mut phv = Phv::new(&shape);
            phv.set(PhvSlot(0), values[0]);
            phv.set(PhvSlot(1), values[1]);
            let value = written.eval_number(&phv, &[]);
            prop_assert_eq!(simple.eval_number(&phv, &[]), value);
            let low = |value: i128| value as u128 & bit_mask(width);
            prop_assert_eq!(low(strip_masks(simple, width).eval_number(&phv, &[])), low(value));
        }
    }

    #[test]
    fn redundant_masks_of_p4c_on_a_cell_index_are_removed() {
        let and = |of, bits| binary_operation(BinaryOp::And, of, NumberExpr::Const(bits));
        let port = and(field(0), 0xfff);
        let shifted =
            NumberExpr::Binary(BinaryOp::ShiftLeft, Box::new((port, NumberExpr::Const(3))));
        assert!(matches!(and(field(0), 0xfff), NumberExpr::Field(_)));
        assert!(matches!(
            and(and(shifted, 0xfff), 0xffff_ffff),
            NumberExpr::Binary(BinaryOp::ShiftLeft, _)
        ));
        // Bits that a sign would set are kept out.
        assert!(matches!(and(field(1), 0xfff), NumberExpr::Binary(BinaryOp::And, _)));
    }
}
