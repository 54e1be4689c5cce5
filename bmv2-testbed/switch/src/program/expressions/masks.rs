//! Masks that take nothing away, taken out of expressions.
//!
//! p4c cuts every result to its type's width by a mask, also where the operand is no wider, and
//! again where the field that it is assigned to cuts it anyway. In `fabric.p4` half of what is
//! computed are such masks.

use crate::expression::{Binary, Expr};
use crate::phv::mask;

/// An operation, without a mask that changes nothing.
pub(super) fn operation(op: Binary, left: Expr, right: Expr) -> Expr {
    match (op, left, right) {
        (Binary::And, of, Expr::Const(bits)) | (Binary::And, Expr::Const(bits), of) => {
            masked(of, bits)
        }
        (op, left, right) => Expr::Binary(op, Box::new((left, right))),
    }
}

/// A value whose low `width` bits alone count, as in an assignment.
pub(in crate::program) fn cut(of: Expr, width: u32) -> Expr {
    match of {
        Expr::Binary(Binary::And, operands) => match *operands {
            (of, Expr::Const(bits)) if covers(bits, width) => cut(of, width),
            operands => Expr::Binary(Binary::And, Box::new(operands)),
        },
        of => of,
    }
}

fn masked(of: Expr, bits: i128) -> Expr {
    match of {
        Expr::Binary(Binary::And, operands) => match *operands {
            (of, Expr::Const(others)) => masked(of, bits & others),
            operands => kept(Expr::Binary(Binary::And, Box::new(operands)), bits),
        },
        of => kept(of, bits),
    }
}

fn kept(of: Expr, bits: i128) -> Expr {
    let changes_nothing = of.is_unsigned() && of.bits().is_some_and(|width| covers(bits, width));
    match changes_nothing {
        true => of,
        false => Expr::Binary(Binary::And, Box::new((of, Expr::Const(bits)))),
    }
}

/// Whether all of the low `width` bits are set.
fn covers(bits: i128, width: u32) -> bool {
    let all = mask(width);
    bits as u128 & all == all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::phv::{Field, Phv, Shape, Slot};
    use crate::program::HeaderIndex;

    const WIDTH: u32 = 9;

    fn field(slot: u32) -> Expr {
        Expr::Field(Field {
            slot: Slot(slot),
            bits: WIDTH,
            signed: slot == 1,
            header: HeaderIndex(0),
        })
    }

    /// A tree, and the same as p4c wrote it.
    fn trees() -> impl Strategy<Value = (Expr, Expr)> {
        let plain = |of: Expr| (of.clone(), of);
        let leaf = prop_oneof![
            (0..2_u32).prop_map(move |slot| plain(field(slot))),
            (0..1024_i128).prop_map(move |value| plain(Expr::Const(value))),
        ];
        let ops = prop_oneof![
            3 => Just(Binary::And),
            1 => Just(Binary::Or),
            1 => Just(Binary::Add),
            1 => Just(Binary::Subtract),
        ];
        leaf.prop_recursive(5, 40, 2, move |inner| {
            (ops.clone(), inner.clone(), inner).prop_map(|(op, left, right)| {
                let written = Expr::Binary(op, Box::new((left.1, right.1)));
                (operation(op, left.0, right.0), written)
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
            let shape = Shape { slots: 2, ..Shape::default() };
            let mut phv = Phv::new(&shape);
            phv.set(Slot(0), values[0]);
            phv.set(Slot(1), values[1]);
            let value = written.eval(&phv, &[]);
            prop_assert_eq!(simple.eval(&phv, &[]), value);
            let low = |value: i128| value as u128 & mask(width);
            prop_assert_eq!(low(cut(simple, width).eval(&phv, &[])), low(value));
        }
    }

    #[test]
    fn what_p4c_adds_to_the_cell_of_a_counter_goes() {
        let and = |of, bits| operation(Binary::And, of, Expr::Const(bits));
        let port = and(field(0), 0xfff);
        let shifted = Expr::Binary(Binary::ShiftLeft, Box::new((port, Expr::Const(3))));
        assert!(matches!(and(field(0), 0xfff), Expr::Field(_)));
        assert!(matches!(
            and(and(shifted, 0xfff), 0xffff_ffff),
            Expr::Binary(Binary::ShiftLeft, _)
        ));
        // Bits that a sign would set are kept out.
        assert!(matches!(and(field(1), 0xfff), Expr::Binary(Binary::And, _)));
    }
}
