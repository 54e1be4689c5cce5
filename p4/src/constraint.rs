//! Restrictions of rows and calls (`@entry_restriction`, `@action_restriction`), in the language of
//! the p4-constraints project.
//!
//! P4Info has them as text; [`P4Info::check_constraints`] says which one an entry violates, before
//! it is written. The decision: a constraint is parsed and its types are checked once, with
//! P4Info, and a violation quotes the clause of the source, because that is what its author knows.

mod condition;
mod parser;
mod token;

use crate::P4Info;
use crate::entry::{ActionCall, RowField, TableEntry, TableRow};
use crate::p4info::{FieldInfo, MatchField, MatchKind};
use condition::{Condition, Operand, Subject};

/// A restriction of the rows of a table, or of the calls of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraint {
    clauses: Vec<Clause>,
}

/// A clause with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    text: String,
    condition: Condition,
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

/// An entry that its table or an action of it does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{object}` requires {clause}")]
pub struct ConstraintViolation {
    /// The table or action.
    pub object: String,
    /// The clause that does not hold, as in the source of the program.
    pub clause: String,
}

/// The names that a constraint may use.
pub(crate) struct Scope<'a> {
    operands: Vec<(&'a str, Operand)>,
    has_priority: bool,
}

impl Constraint {
    /// Parses a constraint.
    pub(crate) fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, ConstraintError> {
        let clauses = parser::parse_clauses(text, scope);
        let clauses = clauses.map_err(|(position, problem)| ConstraintError {
            text: text.to_owned(),
            position,
            problem,
        })?;
        Ok(Self { clauses })
    }

    /// The first clause that does not hold.
    fn violated_clause(&self, subject: Subject<'_>) -> Option<&str> {
        let violated = self.clauses.iter().find(|clause| !clause.condition.holds_for(subject))?;
        Some(&violated.text)
    }
}

impl<'a> Scope<'a> {
    /// The scope of a restriction of rows.
    pub(crate) fn for_table(fields: &'a [MatchField]) -> Self {
        let operands = fields.iter().map(|field| describe_operand(&field.info, field.kind));
        Self { operands: operands.collect(), has_priority: true }
    }

    /// The scope of a restriction of calls.
    pub(crate) fn for_action(params: &'a [FieldInfo]) -> Self {
        let operands = params.iter().map(|param| describe_operand(param, MatchKind::Exact));
        Self { operands: operands.collect(), has_priority: false }
    }

    fn operand(&self, name: &str) -> Option<Operand> {
        let found = self.operands.iter().find(|(known, _)| *known == name);
        found.map(|(_, operand)| *operand)
    }
}

fn describe_operand(field: &FieldInfo, kind: MatchKind) -> (&str, Operand) {
    let max = field.max_number().unwrap_or(u128::MAX);
    (&field.name, Operand { id: field.id, kind, max })
}

impl P4Info {
    /// Whether the program allows an entry. A default action is no row, and only its action is
    /// restricted.
    ///
    /// # Errors
    /// A restriction of the table or of an action does not hold.
    pub fn check_constraints(&self, entry: &TableEntry) -> Result<(), ConstraintViolation> {
        let table = self.table(entry.key.table);
        let restriction = table.and_then(|table| table.restriction.as_ref());
        if let (Some(restriction), TableRow::Match { fields, priority }) =
            (restriction, &entry.key.row)
        {
            let subject = Subject { fields, priority: *priority };
            let name = || table.map_or_else(String::new, |table| table.name.clone());
            require(restriction, subject, name)?;
        }
        entry.value.action.action_calls().try_for_each(|call| self.check_call(call))
    }

    /// Whether any table or action of the program has a restriction.
    pub fn has_constraints(&self) -> bool {
        self.tables().any(|table| table.restriction.is_some())
            || self.actions().any(|action| action.restriction.is_some())
    }

    fn check_call(&self, call: &ActionCall) -> Result<(), ConstraintViolation> {
        let Some(action) = self.action(call.action) else {
            return Ok(());
        };
        let Some(restriction) = &action.restriction else {
            return Ok(());
        };
        let params = call.params.iter().cloned();
        let params: Vec<_> = params.map(|param| RowField::exact(param.id, param.value)).collect();
        let subject = Subject { fields: &params, priority: 0 };
        require(restriction, subject, || action.name.clone())
    }
}

fn require(
    constraint: &Constraint,
    subject: Subject<'_>,
    object: impl Fn() -> String,
) -> Result<(), ConstraintViolation> {
    match constraint.violated_clause(subject) {
        None => Ok(()),
        Some(clause) => Err(ConstraintViolation { object: object(), clause: clause.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
