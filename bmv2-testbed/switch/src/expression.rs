//! Expressions over fields, constants and action arguments, and how they are evaluated.
//!
//! `program/expressions.rs` compiles them from JSON into two small trees, one for numbers and one
//! for truth values, as BMv2 keeps the two apart. BMv2 computes with unbounded integers and
//! truncates when a field is written. Here numbers are 128-bit two's complement and wrap, which
//! gives the same bits for every operation that only carries upwards; the compiler refuses the
//! others (order, division, right shift, saturation) where an operand could need more than 127
//! bits.

use crate::phv::{Field, Phv};
use crate::program::HeaderIndex;

/// An expression with a number as its value.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Const(i128),
    Field(Field),
    /// A runtime argument of the enclosing action and its width.
    Argument(usize, u32),
    /// 1 for true, 0 for false.
    FromBool(Box<Cond>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<(Expr, Expr)>),
    Choose(Box<(Cond, Expr, Expr)>),
}

/// An expression with a truth value.
#[derive(Clone, Debug)]
pub(crate) enum Cond {
    Const(bool),
    Valid(HeaderIndex),
    /// A number other than 0.
    NonZero(Expr),
    Not(Box<Cond>),
    And(Box<(Cond, Cond)>),
    Or(Box<(Cond, Cond)>),
    Same(Box<(Cond, Cond)>),
    Compare(Compare, Box<(Expr, Expr)>),
    /// The commonest comparison: a field with a constant.
    FieldIs(Field, i128),
    Choose(Box<(Cond, Cond, Cond)>),
}

/// Operations on one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    /// The value of the low bits read as two's complement of this width.
    Wrap(u32),
    /// The nearest value of an unsigned field of this width.
    SaturateUnsigned(u32),
    /// The nearest value of a signed field of this width.
    SaturateSigned(u32),
}

/// Operations on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    /// 0 when the divisor is 0.
    Divide,
    /// 0 when the divisor is 0.
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Comparisons of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expr {
    /// The value for this packet, with the arguments of the action around it.
    #[inline]
    pub(crate) fn eval(&self, phv: &Phv, arguments: &[u128]) -> i128 {
        match self {
            Self::Const(value) => *value,
            Self::Field(field) => phv.number(*field),
            Self::Argument(at, _) => arguments.get(*at).map_or(0, |value| *value as i128),
            Self::FromBool(cond) => i128::from(cond.eval(phv, arguments)),
            Self::Unary(op, of) => op.apply(of.eval(phv, arguments)),
            Self::Binary(op, of) => op.apply(of.0.eval(phv, arguments), of.1.eval(phv, arguments)),
            Self::Choose(of) => {
                let chosen = if of.0.eval(phv, arguments) {
                    &of.1
                } else {
                    &of.2
                };
                chosen.eval(phv, arguments)
            }
        }
    }

    /// A bound on the bits of the value's magnitude, or none where it may exceed 127.
    pub(crate) fn bits(&self) -> Option<u32> {
        let bits = match self {
            Self::Const(value) => 128 - value.unsigned_abs().leading_zeros(),
            Self::Field(field) => field.bits,
            Self::Argument(_, bits) => *bits,
            Self::FromBool(_) => 1,
            Self::Unary(Unary::Not, of) => of.bits()? + 1,
            Self::Unary(Unary::Wrap(bits), _) => *bits,
            Self::Unary(Unary::SaturateUnsigned(bits) | Unary::SaturateSigned(bits), _) => *bits,
            Self::Binary(op, of) => op.bits(&of.0, &of.1)?,
            Self::Choose(of) => of.1.bits()?.max(of.2.bits()?),
        };
        (bits <= 127).then_some(bits)
    }

    /// Whether the value cannot be negative.
    fn is_unsigned(&self) -> bool {
        match self {
            Self::Const(value) => *value >= 0,
            Self::Field(field) => !field.signed,
            Self::Argument(..) | Self::FromBool(_) => true,
            Self::Unary(op, _) => matches!(op, Unary::SaturateUnsigned(_)),
            Self::Binary(Binary::Subtract, _) => false,
            Self::Binary(Binary::And, of) => of.0.is_unsigned() || of.1.is_unsigned(),
            Self::Binary(_, of) => of.0.is_unsigned() && of.1.is_unsigned(),
            Self::Choose(of) => of.1.is_unsigned() && of.2.is_unsigned(),
        }
    }
}

impl Cond {
    /// The truth for this packet.
    #[inline]
    pub(crate) fn eval(&self, phv: &Phv, arguments: &[u128]) -> bool {
        match self {
            Self::Const(value) => *value,
            Self::Valid(header) => phv.is_valid(*header),
            Self::FieldIs(field, value) => phv.number(*field) == *value,
            Self::NonZero(number) => number.eval(phv, arguments) != 0,
            Self::Not(of) => !of.eval(phv, arguments),
            Self::And(of) => of.0.eval(phv, arguments) && of.1.eval(phv, arguments),
            Self::Or(of) => of.0.eval(phv, arguments) || of.1.eval(phv, arguments),
            Self::Same(of) => of.0.eval(phv, arguments) == of.1.eval(phv, arguments),
            Self::Compare(op, of) => op.holds(of.0.eval(phv, arguments), of.1.eval(phv, arguments)),
            Self::Choose(of) => {
                let chosen = if of.0.eval(phv, arguments) {
                    &of.1
                } else {
                    &of.2
                };
                chosen.eval(phv, arguments)
            }
        }
    }
}

impl Unary {
    #[inline]
    fn apply(self, value: i128) -> i128 {
        match self {
            Self::Not => !value,
            Self::Wrap(bits) => {
                let spare = 128 - bits;
                (value << spare) >> spare
            }
            Self::SaturateUnsigned(bits) => value.clamp(0, (1 << bits) - 1),
            Self::SaturateSigned(bits) => {
                let half = 1_i128 << (bits - 1);
                value.clamp(-half, half - 1)
            }
        }
    }
}

impl Binary {
    #[inline]
    fn apply(self, left: i128, right: i128) -> i128 {
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right).unwrap_or(0),
            Self::Modulo => left.checked_rem(right).unwrap_or(0),
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::ShiftLeft => shift_amount(right).map_or(0, |by| left << by),
            Self::ShiftRight => left >> shift_amount(right).unwrap_or(127),
        }
    }

    /// Whether the operation needs its left operand exactly, not only modulo 2^128.
    pub(crate) fn needs_exact_operands(self) -> bool {
        matches!(self, Self::Divide | Self::Modulo | Self::ShiftRight)
    }

    fn bits(self, left: &Expr, right: &Expr) -> Option<u32> {
        let wider = || Some(left.bits()?.max(right.bits()?));
        match self {
            Self::Add | Self::Subtract => Some(wider()? + 1),
            Self::Multiply => Some(left.bits()? + right.bits()?),
            Self::Divide | Self::ShiftRight => left.bits(),
            Self::Modulo => right.bits(),
            Self::And => narrowest_mask(left, right),
            Self::Or | Self::Xor => wider(),
            Self::ShiftLeft => match right {
                Expr::Const(by) => Some(left.bits()? + u32::try_from(*by).ok()?.min(128)),
                _ => None,
            },
        }
    }
}

/// A mask with a number that is not negative bounds the result by that number.
fn narrowest_mask(left: &Expr, right: &Expr) -> Option<u32> {
    let bound = |side: &Expr| {
        if side.is_unsigned() {
            side.bits()
        } else {
            None
        }
    };
    match (bound(left), bound(right)) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (one, other) => one
            .or(other)
            .or_else(|| Some(left.bits()?.max(right.bits()?))),
    }
}

/// A shift by 128 or more leaves nothing; BMv2 never shifts by a negative amount.
fn shift_amount(by: i128) -> Option<u32> {
    u32::try_from(by).ok().filter(|by| *by < 128)
}

impl Compare {
    #[inline]
    fn holds(self, left: i128, right: i128) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}
