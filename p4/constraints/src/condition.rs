//! Conditions of a constraint, and whether they hold. The decision: types are checked when a
//! condition is built, so that evaluation cannot fail.

use std::cmp::Ordering;

use crate::{MatchKind, Operand};

/// A condition on a row or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Constant(bool),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Implies(Box<Condition>, Box<Condition>),
    /// Both hold, or none does.
    Same(Box<Condition>, Box<Condition>),
    Compare(Comparison),
}

/// Two values of one type, and the orders in which the condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) left: Term,
    pub(super) holds: &'static [Ordering],
    pub(super) right: Term,
    /// What both are converted to.
    pub(super) common: TermType,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Literal(Integer),
    Priority,
    Negated(Box<Term>),
    /// A match field or parameter.
    Whole(Operand),
    Part(Operand, FieldPart),
}

/// A number that is part of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldPart {
    Value,
    Mask,
    PrefixLength,
    Low,
    High,
}

/// The type of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermType {
    /// Any integer.
    Integer,
    /// Numbers up to this one.
    Bits(u128),
    /// A match of numbers up to this one.
    Match(MatchKind, u128),
}

/// An integer of any sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    negative: bool,
    magnitude: u128,
}

/// What a condition is evaluated on.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) priority: u32,
    /// The two numbers of which the match of an operand consists.
    pub(super) matched: &'a dyn Fn(Operand) -> [u128; 2],
}

impl Condition {
    /// Whether it holds.
    pub(super) fn holds_for(&self, subject: Subject<'_>) -> bool {
        let holds = |condition: &Self| condition.holds_for(subject);
        match self {
            Self::Constant(constant) => *constant,
            Self::Not(inner) => !holds(inner),
            Self::And(left, right) => holds(left) && holds(right),
            Self::Or(left, right) => holds(left) || holds(right),
            Self::Implies(left, right) => !holds(left) || holds(right),
            Self::Same(left, right) => holds(left) == holds(right),
            Self::Compare(comparison) => comparison.holds_for(subject),
        }
    }
}

impl Comparison {
    fn holds_for(&self, subject: Subject<'_>) -> bool {
        let order = match self.common {
            TermType::Integer => self.left.integer(subject).cmp(&self.right.integer(subject)),
            TermType::Bits(max) => {
                self.left.integer(subject).wrap(max).cmp(&self.right.integer(subject).wrap(max))
            }
            TermType::Match(kind, max) => {
                let matched = |term: &Term| term.matched(subject, kind, max);
                matched(&self.left).cmp(&matched(&self.right))
            }
        };
        self.holds.contains(&order)
    }
}

impl Term {
    pub(super) fn term_type(&self) -> TermType {
        match self {
            Self::Literal(_) | Self::Priority | Self::Part(_, FieldPart::PrefixLength) => {
                TermType::Integer
            }
            Self::Negated(inner) => inner.term_type(),
            Self::Part(operand, _) => TermType::Bits(operand.max),
            Self::Whole(operand) => TermType::Match(operand.kind, operand.max),
        }
    }

    /// As a match of this type.
    fn matched(&self, subject: Subject<'_>, kind: MatchKind, max: u128) -> [u128; 2] {
        match self {
            Self::Whole(operand) => (subject.matched)(*operand),
            scalar => {
                let number = scalar.integer(subject).wrap(max);
                match kind {
                    MatchKind::Exact => [number, 0],
                    MatchKind::Ternary | MatchKind::Optional => [number, max],
                    MatchKind::Lpm => [number, (128 - max.leading_zeros()).into()],
                    MatchKind::Range => [number, number],
                }
            }
        }
    }

    fn integer(&self, subject: Subject<'_>) -> Integer {
        match self {
            Self::Literal(integer) => *integer,
            Self::Priority => u128::from(subject.priority).into(),
            Self::Negated(inner) => inner.integer(subject).negated(),
            Self::Whole(operand) => (subject.matched)(*operand)[0].into(),
            Self::Part(operand, part) => {
                let [first, second] = (subject.matched)(*operand);
                match part {
                    FieldPart::Value | FieldPart::Low => first.into(),
                    FieldPart::Mask | FieldPart::PrefixLength | FieldPart::High => second.into(),
                }
            }
        }
    }
}

impl Integer {
    pub(super) fn negated(self) -> Self {
        let negative = !self.negative && self.magnitude != 0;
        Self { negative, ..self }
    }

    /// As a number of as many bits as `max` has.
    fn wrap(self, max: u128) -> u128 {
        let number = if self.negative { self.magnitude.wrapping_neg() } else { self.magnitude };
        number & max
    }
}

impl From<u128> for Integer {
    fn from(magnitude: u128) -> Self {
        Self { negative: false, magnitude }
    }
}

impl PartialOrd for Integer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.magnitude.cmp(&other.magnitude),
            (true, true) => other.magnitude.cmp(&self.magnitude),
            (negative, _) => {
                if negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }
}
