//! Restrictions of entries and of actions, in the language of p4-constraints.
//!
//! The text is compiled once, with the P4Info (`restriction/parser.rs`), to conditions whose types
//! fit, so that checking an entry cannot fail. Numbers have 128 bits and no sign: fields have none
//! either, and no published program compares with a negative one.

mod lexer;
mod parser;

use switch::KeyField;
use switch::MatchKind;

/// Clauses that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryRestriction {
    clauses: Vec<RestrictionClause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RestrictionClause {
    /// As the program has it.
    source: String,
    rule: BooleanExpression,
}

/// A name that a restriction may use, at its place among the values that are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RestrictedName {
    pub(super) name: String,
    pub(super) kind: MatchKind,
    pub(super) bits: u32,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BooleanExpression {
    Always(bool),
    Not(Box<BooleanExpression>),
    Both(Box<BooleanExpression>, Box<BooleanExpression>),
    Either(Box<BooleanExpression>, Box<BooleanExpression>),
    /// Two conditions that both hold, or neither.
    Agree(Box<BooleanExpression>, Box<BooleanExpression>),
    Relation(NumericOperand, ComparisonOperator, NumericOperand),
    /// Whether a whole match is that of a value or of another match.
    SameMatch(usize, MatchAmount),
}

/// What a whole match is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchAmount {
    Value(NumericOperand),
    Match(usize),
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumericOperand {
    Literal(u128),
    Priority,
    Part(usize, MatchPart),
}

/// A number within a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchPart {
    Value,
    Mask,
    PrefixLength,
    Low,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonOperator {
    Equal,
    Less,
    LessOrEqual,
}

/// What is checked: the fields of a key or the arguments of an action, and the priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct RestrictedValues<'a> {
    pub(super) fields: &'a [KeyField],
    pub(super) names: &'a [RestrictedName],
    pub(super) priority: u32,
}

impl EntryRestriction {
    /// Compiles the text of an annotation.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub(super) fn compile(text: &str, names: &[RestrictedName]) -> Result<Self, String> {
        Ok(Self { clauses: parser::parse_clauses(text, names)? })
    }

    /// The first clause that does not hold, as the program has it.
    pub(super) fn broken_clause(&self, values: RestrictedValues<'_>) -> Option<&str> {
        let broken = self.clauses.iter().find(|clause| !clause.rule.holds(values));
        broken.map(|clause| clause.source.as_str())
    }
}

impl BooleanExpression {
    fn holds(&self, values: RestrictedValues<'_>) -> bool {
        match self {
            Self::Always(constant) => *constant,
            Self::Not(rule) => !rule.holds(values),
            Self::Both(left, right) => left.holds(values) && right.holds(values),
            Self::Either(left, right) => left.holds(values) || right.holds(values),
            Self::Agree(left, right) => left.holds(values) == right.holds(values),
            Self::Relation(left, comparator, right) => {
                comparator.compare(left.number(values), right.number(values))
            }
            Self::SameMatch(place, MatchAmount::Value(amount)) => {
                let bits = values.names[*place].bits;
                pair(values.fields[*place])
                    == full_match(values, *place, amount.number(values), bits)
            }
            Self::SameMatch(place, MatchAmount::Match(other)) => {
                pair(values.fields[*place]) == pair(values.fields[*other])
            }
        }
    }
}

impl ComparisonOperator {
    fn compare(self, left: u128, right: u128) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
        }
    }
}

impl NumericOperand {
    fn number(self, values: RestrictedValues<'_>) -> u128 {
        match self {
            Self::Literal(number) => number,
            Self::Priority => u128::from(values.priority),
            Self::Part(place, part) => {
                let (first, second) = match values.fields[place] {
                    // An optional match has a mask: all of its bits, or none.
                    KeyField::Optional(Some(value)) => (value, all_ones(values.names[place].bits)),
                    field => pair(field),
                };
                match part {
                    MatchPart::Value | MatchPart::Low => first,
                    MatchPart::Mask | MatchPart::PrefixLength | MatchPart::High => second,
                }
            }
        }
    }
}

/// A match as two numbers: value and mask, value and prefix length, or bounds.
fn pair(field: KeyField) -> (u128, u128) {
    match field {
        KeyField::Exact(value) => (value, 0),
        KeyField::Lpm { value, prefix } => (value, u128::from(prefix)),
        KeyField::Ternary { value, mask } => (value, mask),
        KeyField::Range { low, high } => (low, high),
        KeyField::Optional(Some(value)) => (value, u128::MAX),
        KeyField::Optional(None) => (0, 0),
    }
}

/// The match of exactly one value.
fn full_match(values: RestrictedValues<'_>, place: usize, value: u128, bits: u32) -> (u128, u128) {
    let second = match values.names[place].kind {
        MatchKind::Exact => 0,
        MatchKind::Lpm => u128::from(bits),
        MatchKind::Ternary => all_ones(bits),
        MatchKind::Range => value,
        MatchKind::Optional => u128::MAX,
    };
    (value, second)
}

fn all_ones(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits.min(128)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<RestrictedName> {
        let name = |name: &str, kind, bits| RestrictedName { name: name.into(), kind, bits };
        vec![
            name("is_ip", MatchKind::Optional, 1),
            name("type", MatchKind::Ternary, 16),
            name("dst", MatchKind::Lpm, 32),
            name("port", MatchKind::Range, 16),
            name("hdr.vrf", MatchKind::Exact, 10),
        ]
    }

    fn fields() -> Vec<KeyField> {
        vec![
            KeyField::Optional(Some(1)),
            KeyField::Ternary { value: 0x0800, mask: 0xffff },
            KeyField::Lpm { value: 0x0a00_0000, prefix: 8 },
            KeyField::Range { low: 0, high: 0xffff },
            KeyField::Exact(0),
        ]
    }

    fn broken(text: &str, fields: &[KeyField]) -> Option<String> {
        let names = names();
        let restriction = EntryRestriction::compile(text, &names).unwrap();
        let values = RestrictedValues { fields, names: &names, priority: 7 };
        restriction.broken_clause(values).map(str::to_owned)
    }

    #[test]
    fn conditions_hold_or_the_first_broken_clause_is_quoted() {
        for text in [
            "",
            "true",
            "is_ip == 1; type == 0x0800;",
            "type != 0x86dd && type::mask == 0xffff // a comment\n;",
            "dst::prefix_length >= 8 && dst::value == ipv4('10.0.0.0')",
            "port::low == 0; port::high == 0b1111111111111111",
            "::priority < 0x7fffffff; ::priority > 6; 7 == ::priority",
            "hdr.vrf != 0 -> false",
            "is_ip::mask != 0 -> (is_ip == 1 || type == 1)",
            "!(is_ip == 0); (is_ip == 1) == true",
            "false -> is_ip == 0",
            "hdr.vrf::value <= 1_000",
            "type::mask == -1; -1 == is_ip::mask; type != -1",
        ] {
            assert_eq!(broken(text, &fields()), None, "{text}");
        }
        for (text, clause) in [
            ("is_ip == 1; hdr.vrf != 0 ;", "hdr.vrf != 0"),
            ("type::mask == 0", "type::mask == 0"),
            ("is_ip == 1 -> type == 6", "is_ip == 1 -> type == 6"),
            ("dst == 0x0a000000", "dst == 0x0a000000"),
            ("::priority != 7", "::priority != 7"),
            ("true && false", "true && false"),
        ] {
            assert_eq!(broken(text, &fields()).as_deref(), Some(clause));
        }
    }

    #[test]
    fn what_is_left_out_has_an_empty_mask() {
        let mut fields = fields();
        fields[0] = KeyField::Optional(None);
        fields[1] = KeyField::Ternary { value: 0, mask: 0 };
        assert_eq!(broken("is_ip::mask == 0; type::mask == 0", &fields), None);
        assert!(broken("is_ip == 0", &fields).is_some(), "anything is not only 0");
        assert!(broken("type == 0", &fields).is_some());
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, problem) in [
            ("vrf == 1", "nothing is called `vrf`"),
            ("is_ip", "a condition is needed"),
            ("is_ip < 1", "only == and != compare whole matches"),
            ("is_ip == true", "a condition and a number"),
            ("type::prefix_length == 1", "`type` has no prefix_length"),
            ("1 ==", "a value is needed"),
            ("(1 == 1", "`)` is needed"),
            ("1 == 1 1", "`;` is needed"),
            ("1 == 1 == 1", "brackets are needed"),
            ("true -> true -> true", "brackets are needed"),
            ("type == 0x1_0000_0000_0000_0000_0000_0000_0000_0000", "is no number"),
            ("type == $", "unexpected `$`"),
            ("dst == ipv4('10')", "is no address"),
            ("-1 == 1", "a negative number needs a field"),
            ("type == -vrf", "a number is needed after `-`"),
            ("-1", "a condition is needed"),
        ] {
            let found = EntryRestriction::compile(text, &names()).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
        let nested = format!("{}true{}", "(".repeat(1000), ")".repeat(1000));
        assert!(EntryRestriction::compile(&nested, &names()).unwrap_err().contains("too deep"));
    }
}
