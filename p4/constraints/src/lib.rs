//! Restrictions of rows and calls (`@entry_restriction`, `@action_restriction`), in the language of
//! the p4-constraints project.
//!
//! The controller and the embedded switch both check them, each on entries of its own form: they
//! say which fields there are ([`Scope`]), and which numbers an entry has in each. The decision: a
//! constraint is parsed and its types are checked once, with P4Info, so that checking an entry
//! cannot fail; a violation quotes the clause of the source, because that is what its author knows.

mod condition;
mod parser;
mod token;

use std::fmt::{self, Display, Formatter};

use condition::{Condition, Subject};

/// A restriction of the rows of a table, or of the calls of an action. The default one has no
/// clauses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraint {
    clauses: Vec<Clause>,
}

/// A clause with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    /// In one line, without comments.
    text: String,
    condition: Condition,
}

/// The names that a constraint may use.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// Match fields or parameters, by their names.
    pub operands: Vec<(&'a str, Operand)>,
    /// Whether there is a `::priority`, as in restrictions of rows.
    pub has_priority: bool,
}

/// A match field or parameter, and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What its owner finds it by.
    pub id: u32,
    /// How it matches; a parameter is exact.
    pub kind: MatchKind,
    /// The greatest number; all ones for strings.
    pub max: u128,
}

/// How a field matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// One value.
    Exact,
    /// A prefix.
    Lpm,
    /// A value under a mask.
    Ternary,
    /// A range of values.
    Range,
    /// One value or all.
    Optional,
}

/// A constraint that is not in the language.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, at byte {position} of `{text}`")]
pub struct ConstraintError {
    /// The constraint.
    pub text: String,
    /// Where the problem is.
    pub position: usize,
    /// What the problem is.
    pub problem: ConstraintProblem,
}

/// What is wrong with a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintProblem {
    /// A character that begins no word.
    #[error("unexpected character {0:?}")]
    Character(char),
    /// A number that is not written as one, or exceeds 128 bits.
    #[error("`{0}` is no number of 128 bits")]
    Number(String),
    /// A quote without its end.
    #[error("a quote is not closed")]
    OpenQuote,
    /// An invalid address.
    #[error("`{0}` is no such address")]
    Address(String),
    /// Something else must stand here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// No field, parameter or attribute has this name.
    #[error("nothing is called `{0}`")]
    UnknownName(String),
    /// A field does not have this part.
    #[error("`{name}` has no part `{part}`")]
    UnknownPart {
        /// The field.
        name: String,
        /// The part.
        part: String,
    },
    /// A comparison of a comparison, or an implication of an implication, without brackets.
    #[error("brackets are needed here")]
    Ambiguous,
    /// Operands of different types, or an operator that their type does not have.
    #[error("the types do not fit")]
    Types,
    /// Too many brackets.
    #[error("nested too deeply")]
    TooDeep,
}

impl Constraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// It is not in the language, or uses what the scope does not have.
    pub fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, ConstraintError> {
        let clauses = parser::parse_clauses(text, scope);
        let clauses = clauses.map_err(|(position, problem)| ConstraintError {
            text: text.to_owned(),
            position,
            problem,
        })?;
        Ok(Self { clauses })
    }

    /// The first clause that does not hold for an entry of this priority.
    ///
    /// `matched` has the numbers of the entry's match of an operand: value and mask, value and
    /// prefix length, or low and high. An exact match has a value and 0, an optional one has the
    /// mask of a ternary one. What an entry leaves out matches everything.
    pub fn violated_clause(
        &self,
        priority: u32,
        matched: impl Fn(Operand) -> [u128; 2],
    ) -> Option<&str> {
        let subject = Subject { priority, matched: &matched };
        let violated = self.clauses.iter().find(|clause| !clause.condition.holds_for(subject))?;
        Some(&violated.text)
    }
}

impl Scope<'_> {
    fn operand(&self, name: &str) -> Option<Operand> {
        let found = self.operands.iter().find(|(known, _)| *known == name);
        found.map(|(_, operand)| *operand)
    }
}

impl Display for MatchKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Lpm => "lpm",
            Self::Ternary => "ternary",
            Self::Range => "range",
            Self::Optional => "optional",
        })
    }
}

#[cfg(test)]
mod tests;
