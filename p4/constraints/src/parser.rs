//! From the text of a constraint to its clauses. The decision: types are checked while parsing, by
//! recursive descent with one function for each strength of operators; nesting is bounded, because
//! the text comes from a file.

use std::cmp::Ordering;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::condition::{Comparison, Condition, FieldPart, Integer, Term, TermType};
use crate::token::{PlacedToken, Token, split_tokens};
use crate::{Clause, ConstraintProblem, MatchKind, Operand, Scope};

/// How deep brackets and negations may nest.
const DEPTH_MAX: usize = 64;

/// A parsed expression: of what type it is decides where it may stand.
enum Expression {
    Condition(Condition),
    Term(Term),
}

/// The clauses of a constraint, which `;` joins.
pub(super) fn parse_clauses(
    text: &str,
    scope: &Scope<'_>,
) -> Result<Vec<Clause>, (usize, ConstraintProblem)> {
    let tokens = split_tokens(text)?;
    let mut parser = Parser { text, tokens: &tokens, next: 0, depth: 0, scope };
    let clauses = parser.parse_top_level();
    clauses.map_err(|problem| (parser.position(), problem))
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [PlacedToken],
    next: usize,
    depth: usize,
    scope: &'a Scope<'a>,
}

type Parsed<T> = Result<T, ConstraintProblem>;

impl Parser<'_> {
    /// Where the next word begins.
    fn position(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |token| token.start)
    }

    /// Words as they are in the text, with one blank wherever blanks or comments stand.
    fn quote(&self, tokens: &[PlacedToken]) -> String {
        let mut quoted = String::new();
        let mut end = None;
        for token in tokens {
            if end.is_some_and(|end| end < token.start) {
                quoted.push(' ');
            }
            quoted.push_str(&self.text[token.start..token.end]);
            end = Some(token.end);
        }
        quoted
    }

    fn take_symbol(&mut self, symbol: &'static str) -> bool {
        let matches = self.peek() == Some(&Token::Symbol(symbol));
        self.next += usize::from(matches);
        matches
    }

    fn expect_symbol(&mut self, symbol: &'static str) -> Parsed<()> {
        let found = self.take_symbol(symbol);
        found.then_some(()).ok_or(ConstraintProblem::Expected(symbol))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|placed| &placed.token)
    }

    fn parse_top_level(&mut self) -> Parsed<Vec<Clause>> {
        let mut clauses = Vec::new();
        while self.peek().is_some() {
            let first = self.next;
            let condition = self.parse_implication()?.into_condition()?;
            clauses.push(Clause { text: self.quote(&self.tokens[first..self.next]), condition });
            if self.peek().is_some() {
                self.expect_symbol(";")?;
            }
        }
        Ok(clauses)
    }

    fn parse_implication(&mut self) -> Parsed<Expression> {
        let left = self.parse_disjunction()?;
        if !self.take_symbol("->") {
            return Ok(left);
        }
        let right = self.parse_disjunction()?;
        match self.peek() {
            Some(Token::Symbol("->")) => Err(ConstraintProblem::Ambiguous),
            _ => join(Condition::Implies, left, right),
        }
    }

    fn parse_disjunction(&mut self) -> Parsed<Expression> {
        let mut left = self.parse_conjunction()?;
        while self.take_symbol("||") {
            left = join(Condition::Or, left, self.parse_conjunction()?)?;
        }
        Ok(left)
    }

    fn parse_conjunction(&mut self) -> Parsed<Expression> {
        let mut left = self.parse_comparison()?;
        while self.take_symbol("&&") {
            left = join(Condition::And, left, self.parse_comparison()?)?;
        }
        Ok(left)
    }

    fn parse_comparison(&mut self) -> Parsed<Expression> {
        let left = self.parse_unary()?;
        let Some(holds) = self.take_comparison() else {
            return Ok(left);
        };
        let right = self.parse_unary()?;
        let compared = compare(left, holds, right)?;
        match self.take_comparison() {
            Some(_) => Err(ConstraintProblem::Ambiguous),
            None => Ok(Expression::Condition(compared)),
        }
    }

    fn take_comparison(&mut self) -> Option<&'static [Ordering]> {
        use Ordering::{Equal, Greater, Less};
        let operators: [(&'static str, &'static [Ordering]); 6] = [
            ("==", &[Equal]),
            ("!=", &[Less, Greater]),
            ("<=", &[Less, Equal]),
            (">=", &[Greater, Equal]),
            ("<", &[Less]),
            (">", &[Greater]),
        ];
        let mut operators = operators.into_iter();
        operators.find(|(symbol, _)| self.take_symbol(symbol)).map(|(_, holds)| holds)
    }

    fn parse_unary(&mut self) -> Parsed<Expression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ConstraintProblem::TooDeep);
        }
        let parsed = self.parse_operand();
        self.depth -= 1;
        parsed
    }

    fn parse_operand(&mut self) -> Parsed<Expression> {
        if self.take_symbol("!") {
            let condition = self.parse_unary()?.into_condition()?;
            return Ok(Expression::Condition(Condition::Not(Box::new(condition))));
        }
        if self.take_symbol("-") {
            let term = self.parse_unary()?.into_term()?;
            return match term.term_type() {
                TermType::Integer => Ok(Expression::Term(Term::Negated(Box::new(term)))),
                _ => Err(ConstraintProblem::Types),
            };
        }
        if self.take_symbol("(") {
            let inner = self.parse_sequence()?;
            self.expect_symbol(")")?;
            return Ok(inner);
        }
        if self.take_symbol("::") {
            return self.parse_attribute();
        }
        if let Some(Token::Number(number)) = self.peek() {
            let number = *number;
            self.next += 1;
            return Ok(Expression::Term(Term::Literal(number)));
        }
        self.parse_named()
    }

    /// What stands between brackets.
    fn parse_sequence(&mut self) -> Parsed<Expression> {
        let mut left = self.parse_implication()?;
        while self.take_symbol(";") {
            left = join(Condition::And, left, self.parse_implication()?)?;
        }
        Ok(left)
    }

    fn take_name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(ConstraintProblem::Expected("a value")),
        }
    }

    fn parse_attribute(&mut self) -> Parsed<Expression> {
        let name = self.take_name()?;
        if name == "priority" && self.scope.has_priority {
            return Ok(Expression::Term(Term::Priority));
        }
        self.next -= 1;
        Err(ConstraintProblem::UnknownName(name))
    }

    fn parse_named(&mut self) -> Parsed<Expression> {
        let name = self.take_name()?;
        match name.as_str() {
            "true" => return Ok(Expression::Condition(Condition::Constant(true))),
            "false" => return Ok(Expression::Condition(Condition::Constant(false))),
            _ => {}
        }
        if self.take_symbol("(") {
            return self.parse_address(&name).map(|term| Expression::Term(Term::Literal(term)));
        }
        let Some(operand) = self.scope.operand(&name) else {
            self.next -= 1;
            return Err(ConstraintProblem::UnknownName(name));
        };
        if !self.take_symbol("::") {
            return Ok(Expression::Term(Term::Whole(operand)));
        }
        let part = self.take_name()?;
        let Some(known) = parse_part(operand, &part) else {
            self.next -= 1;
            return Err(ConstraintProblem::UnknownPart { name, part });
        };
        Ok(Expression::Term(Term::Part(operand, known)))
    }

    fn parse_address(&mut self, kind: &str) -> Parsed<Integer> {
        let Some(Token::Quoted(text)) = self.peek() else {
            return Err(ConstraintProblem::Expected("a quoted address"));
        };
        let number = match kind {
            "ipv4" => text.parse().ok().map(|address: Ipv4Addr| address.to_bits().into()),
            "ipv6" => text.parse().ok().map(Ipv6Addr::to_bits),
            "mac" => parse_mac(text),
            _ => None,
        };
        let number = number.ok_or_else(|| ConstraintProblem::Address(text.clone()))?;
        self.next += 1;
        self.expect_symbol(")")?;
        Ok(number.into())
    }
}

impl Expression {
    fn into_condition(self) -> Parsed<Condition> {
        match self {
            Self::Condition(condition) => Ok(condition),
            Self::Term(_) => Err(ConstraintProblem::Types),
        }
    }

    fn into_term(self) -> Parsed<Term> {
        match self {
            Self::Condition(_) => Err(ConstraintProblem::Types),
            Self::Term(term) => Ok(term),
        }
    }
}

fn join(
    make: impl Fn(Box<Condition>, Box<Condition>) -> Condition,
    left: Expression,
    right: Expression,
) -> Parsed<Expression> {
    let [left, right] = [left.into_condition()?, right.into_condition()?].map(Box::new);
    Ok(Expression::Condition(make(left, right)))
}

fn compare(left: Expression, holds: &'static [Ordering], right: Expression) -> Parsed<Condition> {
    match (left, right) {
        (Expression::Condition(left), Expression::Condition(right)) => {
            let same = Condition::Same(Box::new(left), Box::new(right));
            match holds {
                [Ordering::Equal] => Ok(same),
                [Ordering::Less, Ordering::Greater] => Ok(Condition::Not(Box::new(same))),
                _ => Err(ConstraintProblem::Types),
            }
        }
        (Expression::Term(left), Expression::Term(right)) => {
            let common = common_type(left.term_type(), right.term_type());
            let common = common.ok_or(ConstraintProblem::Types)?;
            let is_equality =
                matches!(holds, [Ordering::Equal] | [Ordering::Less, Ordering::Greater]);
            let is_ordered =
                !matches!(common, TermType::Match(kind, _) if kind != MatchKind::Exact);
            if !is_ordered && !is_equality {
                return Err(ConstraintProblem::Types);
            }
            Ok(Condition::Compare(Comparison { left, holds, right, common }))
        }
        _ => Err(ConstraintProblem::Types),
    }
}

/// Integers become numbers of a width, and those become matches of just this number.
fn common_type(left: TermType, right: TermType) -> Option<TermType> {
    use TermType::{Bits, Integer, Match};
    match (left, right) {
        (Integer, other) | (other, Integer) => Some(other),
        (Bits(max), Match(kind, other)) | (Match(kind, other), Bits(max)) => {
            (max == other).then_some(Match(kind, max))
        }
        (left, right) => (left == right).then_some(left),
    }
}

fn parse_part(operand: Operand, name: &str) -> Option<FieldPart> {
    match (operand.kind, name) {
        (MatchKind::Range, "low") => Some(FieldPart::Low),
        (MatchKind::Range, "high") => Some(FieldPart::High),
        (MatchKind::Range, _) => None,
        (_, "value") => Some(FieldPart::Value),
        (MatchKind::Ternary | MatchKind::Optional, "mask") => Some(FieldPart::Mask),
        (MatchKind::Lpm, "prefix_length") => Some(FieldPart::PrefixLength),
        _ => None,
    }
}

fn parse_mac(text: &str) -> Option<u128> {
    let bytes: Vec<&str> = text.split(':').collect();
    let is_mac = bytes.len() == 6 && bytes.iter().all(|byte| byte.len() == 2);
    let fold = |bits: u128, byte: &&str| Some(bits << 8 | u128::from_str_radix(byte, 16).ok()?);
    is_mac.then(|| bytes.iter().try_fold(0, fold))?
}
