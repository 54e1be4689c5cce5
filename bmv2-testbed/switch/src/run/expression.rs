//! Expressions over fields, constants and action arguments, and how they are evaluated.
//!
//! `program/expressions.rs` compiles them from JSON into two small trees, one for numbers and one
//! for truth values, as BMv2 keeps the two apart. BMv2 computes with unbounded integers and
//! truncates when a field is written. Here numbers are 128-bit two's complement and wrap, which
//! gives the same bits for every operation that only carries upwards; the compiler refuses the
//! others (order, division, right shift, saturation) where an operand could need more than 127
//! bits.

use std::sync::Arc;

use crate::ids::{HeaderIndex, PhvSlot, StackIndex, VarbitIndex};
use crate::run::phv::Phv;
use crate::spec::{FieldRef, bit_mask};

/// An expression with a number as its value.
#[derive(Clone, Debug)]
pub(crate) enum NumberExpr {
    Const(i128),
    /// A constant of 128 bits that is not negative.
    Large(u128),
    Field(FieldRef),
    /// A runtime argument of the enclosing action and its width.
    Argument(usize, u32),
    /// 1 for true, 0 for false.
    FromBool(Box<BoolExpr>),
    Unary(UnaryOp, Box<NumberExpr>),
    Binary(BinaryOp, Box<(NumberExpr, NumberExpr)>),
    Choose(Box<(BoolExpr, NumberExpr, NumberExpr)>),
    /// The field of a stack's element, found by its index; 0 beyond the stack.
    Indexed(Box<(NumberExpr, Box<[FieldRef]>)>),
    /// How many elements of a stack have been filled.
    StackCount(StackIndex),
}

/// A header known when the program is loaded, or the element of a stack.
#[derive(Clone, Debug)]
pub(crate) enum HeaderRef {
    Fixed(HeaderIndex),
    Indexed(Box<(NumberExpr, Box<[HeaderIndex]>)>),
}

impl HeaderRef {
    /// The header for this packet; none beyond the stack.
    #[inline]
    pub(crate) fn resolve_header(&self, phv: &Phv, arguments: &[u128]) -> Option<HeaderIndex> {
        match self {
            Self::Fixed(header) => Some(*header),
            Self::Indexed(of) => indexed_element(&of.0, &of.1, phv, arguments),
        }
    }
}

/// The element that an index chooses.
#[inline]
pub(crate) fn indexed_element<T: Copy>(
    index: &NumberExpr,
    elements: &[T],
    phv: &Phv,
    arguments: &[u128],
) -> Option<T> {
    let at = usize::try_from(index.eval_number(phv, arguments)).ok()?;
    elements.get(at).copied()
}

/// Two headers of one type, to be compared.
#[derive(Clone, Debug)]
pub(crate) struct HeaderPair {
    pub(crate) headers: (HeaderIndex, HeaderIndex),
    pub(crate) slots: Vec<(PhvSlot, PhvSlot)>,
    pub(crate) varbits: Option<(VarbitIndex, VarbitIndex)>,
}

impl HeaderPair {
    /// Whether both are valid and equal, as BMv2 compares them.
    fn is_equal(&self, phv: &Phv) -> bool {
        phv.is_valid(self.headers.0)
            && phv.is_valid(self.headers.1)
            && self.slots.iter().all(|pair| phv.get(pair.0) == phv.get(pair.1))
            && self.varbits.is_none_or(|(a, b)| phv.varbit(a) == phv.varbit(b))
    }
}

/// Conditions of at most so many operations inside each other cost little to copy.
pub(crate) const SMALL_DEPTH: usize = 3;

/// An expression with a truth value.
#[derive(Clone, Debug)]
pub(crate) enum BoolExpr {
    Const(bool),
    Valid(HeaderIndex),
    /// A number other than 0.
    NonZero(NumberExpr),
    Not(Box<BoolExpr>),
    And(Box<(BoolExpr, BoolExpr)>),
    Or(Box<(BoolExpr, BoolExpr)>),
    SameTruth(Box<(BoolExpr, BoolExpr)>),
    Compare(CompareOp, Box<(NumberExpr, NumberExpr)>),
    /// Compares unsigned numbers of 128 bits.
    CompareLarge(CompareOp, Box<(NumberExpr, NumberExpr)>),
    /// The commonest comparison: whether a field has these bits.
    HasBits(PhvSlot, u128),
    /// Whether a field has other bits than these.
    HasOtherBits(PhvSlot, u128),
    Choose(Box<(BoolExpr, BoolExpr, BoolExpr)>),
    /// A condition of several nodes that is too large for a copy of each.
    Shared(Arc<BoolExpr>),
    /// The validity of a stack's element; false beyond the stack.
    ValidElement(HeaderRef),
    /// Whether some pair of headers is equal; of unions, the pairs of their members.
    AnyPairEqual(Vec<HeaderPair>),
    /// Whether two variable-length fields hold the same bytes.
    SameVarbits(VarbitIndex, VarbitIndex),
}

/// Operations on one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOp {
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
pub(crate) enum BinaryOp {
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
    /// On numbers of 128 bits without a sign.
    ShiftRightLarge,
}

/// Comparisons of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl NumberExpr {
    /// The value for this packet, with the arguments of the action around it. Operands that are no
    /// operations, which most are, cost no call.
    #[inline]
    pub(crate) fn eval_number(&self, phv: &Phv, arguments: &[u128]) -> i128 {
        match self {
            Self::Const(value) => *value,
            Self::Field(field) => phv.field_number(*field),
            Self::Argument(at, _) => arguments.get(*at).map_or(0, |value| *value as i128),
            // Out of line, so that the frequent cases are small enough to be inlined everywhere.
            operation => operation.eval_operation(phv, arguments),
        }
    }

    #[inline(never)]
    fn eval_operation(&self, phv: &Phv, arguments: &[u128]) -> i128 {
        match self {
            Self::Const(_) | Self::Field(_) | Self::Argument(..) => {
                self.eval_number(phv, arguments)
            }
            Self::Large(value) => *value as i128,
            Self::FromBool(cond) => i128::from(cond.eval_condition(phv, arguments)),
            Self::Unary(op, of) => op.apply_to(of.eval_number(phv, arguments)),
            Self::Binary(op, of) => {
                op.apply_to(of.0.eval_number(phv, arguments), of.1.eval_number(phv, arguments))
            }
            Self::Choose(of) => {
                let chosen = if of.0.eval_condition(phv, arguments) { &of.1 } else { &of.2 };
                chosen.eval_number(phv, arguments)
            }
            Self::Indexed(of) => {
                let field = indexed_element(&of.0, &of.1, phv, arguments);
                // Beyond the stack a read gives 0, which P4 leaves undefined.
                field.map_or(0, |field| phv.field_number(field))
            }
            Self::StackCount(stack) => phv.next_element(*stack) as i128,
        }
    }

    /// Whether 128 bits of two's complement, or 128 bits without a sign, hold the exact value.
    pub(crate) fn is_exact(&self) -> bool {
        // A number with a sign needs one of the 128 bits for it.
        let most = if self.is_unsigned() { 128 } else { 127 };
        self.magnitude_bits().is_some_and(|bits| bits <= most)
    }

    /// Whether the value may need the 128th bit.
    pub(crate) fn is_large(&self) -> bool {
        self.magnitude_bits().is_none_or(|bits| bits > 127)
    }

    /// A bound on the bits of the value's magnitude, or none where it may exceed 128.
    pub(crate) fn magnitude_bits(&self) -> Option<u32> {
        let bits = match self {
            Self::Const(value) => 128 - value.unsigned_abs().leading_zeros(),
            Self::Large(_) => 128,
            Self::Field(field) => field.bits,
            Self::Argument(_, bits) => *bits,
            Self::FromBool(_) => 1,
            // The complement is negative, and its magnitude larger by one.
            Self::Unary(UnaryOp::Not, of) => of.magnitude_bits()? + 1,
            Self::Unary(UnaryOp::Wrap(bits), _) => *bits,
            Self::Unary(UnaryOp::SaturateUnsigned(bits) | UnaryOp::SaturateSigned(bits), _) => {
                *bits
            }
            Self::Binary(op, of) => op.result_bits(&of.0, &of.1)?,
            Self::Choose(of) => of.1.magnitude_bits()?.max(of.2.magnitude_bits()?),
            Self::Indexed(of) => of.1.first().map_or(0, |field| field.bits),
            Self::StackCount(_) => 32,
        };
        (bits <= 128).then_some(bits)
    }

    /// Whether the value cannot be negative.
    pub(crate) fn is_unsigned(&self) -> bool {
        match self {
            Self::Const(value) => *value >= 0,
            Self::Field(field) => !field.signed,
            Self::Argument(..) | Self::FromBool(_) | Self::Large(_) => true,
            Self::Unary(op, _) => matches!(op, UnaryOp::SaturateUnsigned(_)),
            Self::Binary(BinaryOp::Subtract, _) => false,
            // An operand without a sign clears the sign bit of the other.
            Self::Binary(BinaryOp::And, of) => of.0.is_unsigned() || of.1.is_unsigned(),
            Self::Binary(_, of) => of.0.is_unsigned() && of.1.is_unsigned(),
            Self::Choose(of) => of.1.is_unsigned() && of.2.is_unsigned(),
            Self::Indexed(of) => of.1.iter().all(|field| !field.signed),
            Self::StackCount(_) => true,
        }
    }
}

impl BoolExpr {
    /// Whether a number is not 0.
    pub(crate) fn is_nonzero(number: NumberExpr) -> Self {
        match number {
            NumberExpr::Field(field) => Self::HasOtherBits(field.slot, 0),
            number => Self::NonZero(number),
        }
    }

    /// Whether a field stands for a number. A single bit that is set is one that is not clear, so
    /// that one test of it decides the other.
    pub(crate) fn field_equals(field: FieldRef, number: i128) -> Self {
        let bits = number as u128 & bit_mask(field.bits);
        // A constant that the field cannot hold never equals it, although its low bits may.
        match field.number_of_bits(bits) == number {
            // The form of a truth value, so that both ways to write it become one node.
            true if field.bits == 1 && bits == 1 => Self::HasOtherBits(field.slot, 0),
            true => Self::HasBits(field.slot, bits),
            false => Self::Const(false),
        }
    }

    /// The opposite.
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Const(truth) => Self::Const(!truth),
            Self::HasBits(slot, bits) => Self::HasOtherBits(slot, bits),
            Self::HasOtherBits(slot, bits) => Self::HasBits(slot, bits),
            Self::Not(of) => *of,
            other => Self::Not(Box::new(other)),
        }
    }

    /// The condition in a form of which copies cost little.
    pub(crate) fn shareable(self) -> Self {
        // Conditions are copied to many nodes; a small one is cheaper to copy than to count
        // references of.
        if self.is_small(SMALL_DEPTH) { self } else { Self::Shared(Arc::new(self)) }
    }

    /// Whether it is at most so many operations deep.
    pub(crate) fn is_small(&self, depth: usize) -> bool {
        match self {
            Self::Const(_) | Self::Valid(_) | Self::HasBits(..) | Self::HasOtherBits(..) => true,
            Self::Not(of) => depth > 0 && of.is_small(depth - 1),
            Self::And(of) | Self::Or(of) => {
                depth > 0 && of.0.is_small(depth - 1) && of.1.is_small(depth - 1)
            }
            Self::Compare(_, of) => {
                let is_plain =
                    |side: &NumberExpr| matches!(side, NumberExpr::Const(_) | NumberExpr::Field(_));
                is_plain(&of.0) && is_plain(&of.1)
            }
            _ => false,
        }
    }

    /// The truth for this packet. The commonest conditions cost no call.
    #[inline]
    pub(crate) fn eval_condition(&self, phv: &Phv, arguments: &[u128]) -> bool {
        match self {
            Self::Valid(header) => phv.is_valid(*header),
            Self::HasBits(slot, bits) => phv.get(*slot) == *bits,
            Self::HasOtherBits(slot, bits) => phv.get(*slot) != *bits,
            Self::NonZero(number) => number.eval_number(phv, arguments) != 0,
            compound => compound.eval_compound(phv, arguments),
        }
    }

    #[inline(never)]
    fn eval_compound(&self, phv: &Phv, arguments: &[u128]) -> bool {
        match self {
            Self::Valid(_) | Self::HasBits(..) | Self::HasOtherBits(..) | Self::NonZero(_) => {
                self.eval_condition(phv, arguments)
            }
            Self::Const(value) => *value,
            Self::Shared(of) => of.eval_condition(phv, arguments),
            Self::Not(of) => !of.eval_condition(phv, arguments),
            Self::And(of) => {
                of.0.eval_condition(phv, arguments) && of.1.eval_condition(phv, arguments)
            }
            Self::Or(of) => {
                of.0.eval_condition(phv, arguments) || of.1.eval_condition(phv, arguments)
            }
            Self::SameTruth(of) => {
                of.0.eval_condition(phv, arguments) == of.1.eval_condition(phv, arguments)
            }
            Self::Compare(op, of) => op
                .compare_values(of.0.eval_number(phv, arguments), of.1.eval_number(phv, arguments)),
            Self::CompareLarge(op, of) => {
                let (left, right) =
                    (of.0.eval_number(phv, arguments), of.1.eval_number(phv, arguments));
                op.compare_values(left as u128, right as u128)
            }
            Self::Choose(of) => {
                let chosen = if of.0.eval_condition(phv, arguments) { &of.1 } else { &of.2 };
                chosen.eval_condition(phv, arguments)
            }
            Self::ValidElement(header) => {
                let header = header.resolve_header(phv, arguments);
                header.is_some_and(|header| phv.is_valid(header))
            }
            Self::SameVarbits(a, b) => phv.varbit(*a) == phv.varbit(*b),
            Self::AnyPairEqual(pairs) => pairs.iter().any(|pair| pair.is_equal(phv)),
        }
    }
}

impl UnaryOp {
    #[inline]
    fn apply_to(self, value: i128) -> i128 {
        match self {
            Self::Not => !value,
            Self::Wrap(bits) => {
                let spare = 128 - bits;
                // The shift to the right is arithmetic and brings the sign back.
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

impl BinaryOp {
    #[inline]
    fn apply_to(self, left: i128, right: i128) -> i128 {
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            // Division by zero is 0, where bmv2 ends. `checked_div` also has the one quotient that
            // overflows.
            Self::Divide => left.checked_div(right).unwrap_or(0),
            Self::Modulo => left.checked_rem(right).unwrap_or(0),
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::ShiftLeft => shift_amount(right).map_or(0, |by| left << by),
            // By 127 at most: the sign is all that is left then, as with unbounded integers.
            Self::ShiftRight => left >> shift_amount(right).unwrap_or(127),
            Self::ShiftRightLarge => {
                shift_amount(right).map_or(0, |by| (left as u128 >> by) as i128)
            }
        }
    }

    fn result_bits(self, left: &NumberExpr, right: &NumberExpr) -> Option<u32> {
        let wider = || Some(left.magnitude_bits()?.max(right.magnitude_bits()?));
        match self {
            // One bit for the carry.
            Self::Add | Self::Subtract => Some(wider()? + 1),
            Self::Multiply => Some(left.magnitude_bits()? + right.magnitude_bits()?),
            Self::Divide => left.magnitude_bits(),
            Self::ShiftRight | Self::ShiftRightLarge => match right {
                NumberExpr::Const(by) => {
                    Some(left.magnitude_bits()?.saturating_sub(u32::try_from(*by).ok()?.min(127)))
                }
                _ => left.magnitude_bits(),
            },
            Self::Modulo => right.magnitude_bits(),
            Self::And => narrowest_mask(left, right),
            Self::Or | Self::Xor => wider(),
            Self::ShiftLeft => match right {
                NumberExpr::Const(by) => {
                    Some(left.magnitude_bits()? + u32::try_from(*by).ok()?.min(128))
                }
                _ => None,
            },
        }
    }
}

/// A mask with a number that is not negative bounds the result by that number.
fn narrowest_mask(left: &NumberExpr, right: &NumberExpr) -> Option<u32> {
    let bound = |side: &NumberExpr| {
        // A negative mask has all high bits, and bounds nothing.
        if side.is_unsigned() { side.magnitude_bits() } else { None }
    };
    match (bound(left), bound(right)) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (one, other) => {
            one.or(other).or_else(|| Some(left.magnitude_bits()?.max(right.magnitude_bits()?)))
        }
    }
}

/// A shift by 128 or more leaves nothing; BMv2 never shifts by a negative amount.
fn shift_amount(by: i128) -> Option<u32> {
    u32::try_from(by).ok().filter(|by| *by < 128)
}

impl CompareOp {
    #[inline]
    fn compare_values<T: Copy + PartialOrd>(self, left: T, right: T) -> bool {
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
