//! From words to rules: operators by their strength, weakest first, with types checked on the way.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::lexer::{ConstraintToken, split_words};
use super::{
    BooleanExpression, ComparisonOperator, MatchAmount, MatchPart, NumericOperand, RestrictedName,
    RestrictionClause, all_ones,
};
use switch::MatchKind;

/// How deep brackets and negations may nest: the text comes from a controller.
const DEPTH_LIMIT: usize = 50;

/// What a part of the text stands for.
enum ParsedOperand {
    Rule(BooleanExpression),
    Amount(NumericOperand),
    /// The absolute of a negative number, whose bits depend on what it is compared with.
    Negative(u128),
    /// A whole match that is no plain number.
    Match(usize),
}

struct RuleParser<'a> {
    words: Vec<(usize, ConstraintToken<'a>)>,
    next: usize,
    depth: usize,
    names: &'a [RestrictedName],
}

/// The clauses of a text, separated by `;`.
pub(super) fn parse_clauses(
    text: &str,
    names: &[RestrictedName],
) -> Result<Vec<RestrictionClause>, String> {
    let mut parser = RuleParser { words: split_words(text)?, next: 0, depth: 0, names };
    let mut clauses = Vec::new();
    while let Some(&(start, _)) = parser.words.get(parser.next) {
        let rule = parser.implication()?.into_rule()?;
        let end = parser.words.get(parser.next).map_or(text.len(), |(end, _)| *end);
        let source = without_comments(&text[start..end]);
        clauses.push(RestrictionClause { source, rule });
        if parser.next < parser.words.len() {
            parser.require(";")?;
        }
    }
    Ok(clauses)
}

/// A clause in one line.
fn without_comments(source: &str) -> String {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(line).trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

impl RuleParser<'_> {
    fn take(&mut self, mark: &'static str) -> bool {
        let found =
            matches!(self.words.get(self.next), Some((_, ConstraintToken::Mark(m))) if *m == mark);
        self.next += usize::from(found);
        found
    }

    fn require(&mut self, mark: &'static str) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(format!("`{mark}` is needed")) }
    }

    fn implication(&mut self) -> Result<ParsedOperand, String> {
        let left = self.disjunction()?;
        if !self.take("->") {
            return Ok(left);
        }
        let (premise, conclusion) = (left.into_rule()?, self.disjunction()?.into_rule()?);
        if self.take("->") {
            return Err("brackets are needed around an implication".to_owned());
        }
        let rule = BooleanExpression::Either(
            Box::new(BooleanExpression::Not(Box::new(premise))),
            Box::new(conclusion),
        );
        Ok(ParsedOperand::Rule(rule))
    }

    fn disjunction(&mut self) -> Result<ParsedOperand, String> {
        let mut left = self.conjunction()?;
        while self.take("||") {
            let right = self.conjunction()?.into_rule()?;
            left = ParsedOperand::Rule(BooleanExpression::Either(
                Box::new(left.into_rule()?),
                Box::new(right),
            ));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<ParsedOperand, String> {
        let mut left = self.relation()?;
        while self.take("&&") {
            let right = self.relation()?.into_rule()?;
            left = ParsedOperand::Rule(BooleanExpression::Both(
                Box::new(left.into_rule()?),
                Box::new(right),
            ));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<ParsedOperand, String> {
        const RELATIONS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
        let left = self.operand()?;
        let Some(mark) = RELATIONS.into_iter().find(|mark| self.take(mark)) else {
            return Ok(left);
        };
        let right = self.operand()?;
        if RELATIONS.into_iter().any(|mark| self.take(mark)) {
            return Err("brackets are needed around a comparison".to_owned());
        }
        let (left, right) = (self.widen(left, &right)?, right);
        let right = self.widen(right, &left)?;
        let rule = match mark {
            "==" => equal(left, right)?,
            "!=" => BooleanExpression::Not(Box::new(equal(left, right)?)),
            "<" => ordered(left, ComparisonOperator::Less, right)?,
            "<=" => ordered(left, ComparisonOperator::LessOrEqual, right)?,
            ">" => ordered(right, ComparisonOperator::Less, left)?,
            _ => ordered(right, ComparisonOperator::LessOrEqual, left)?,
        };
        Ok(ParsedOperand::Rule(rule))
    }

    /// A negative number as one of as many bits as the field beside it has: -1 is all ones.
    fn widen(
        &self,
        operand: ParsedOperand,
        beside: &ParsedOperand,
    ) -> Result<ParsedOperand, String> {
        let ParsedOperand::Negative(absolute) = operand else {
            return Ok(operand);
        };
        let (ParsedOperand::Amount(NumericOperand::Part(place, _)) | ParsedOperand::Match(place)) =
            beside
        else {
            return Err("a negative number needs a field beside it".to_owned());
        };
        let number = absolute.wrapping_neg() & all_ones(self.names[*place].bits);
        Ok(ParsedOperand::Amount(NumericOperand::Literal(number)))
    }

    fn operand(&mut self) -> Result<ParsedOperand, String> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err("brackets nest too deep".to_owned());
        }
        let phrase = self.nested_operand();
        self.depth -= 1;
        phrase
    }

    fn nested_operand(&mut self) -> Result<ParsedOperand, String> {
        if self.take("!") {
            return Ok(ParsedOperand::Rule(BooleanExpression::Not(Box::new(
                self.operand()?.into_rule()?,
            ))));
        }
        if self.take("-") {
            let Some((_, ConstraintToken::Number(absolute))) = self.words.get(self.next) else {
                return Err("a number is needed after `-`".to_owned());
            };
            self.next += 1;
            return Ok(ParsedOperand::Negative(*absolute));
        }
        if self.take("(") {
            let inner = self.implication()?;
            self.require(")")?;
            return Ok(inner);
        }
        if self.take("::") {
            return match self.take_name()? {
                "priority" => Ok(ParsedOperand::Amount(NumericOperand::Priority)),
                other => Err(format!("there is no attribute `{other}`")),
            };
        }
        let word = self.words.get(self.next).map(|(_, word)| word.clone());
        match word {
            Some(ConstraintToken::Number(number)) => {
                self.next += 1;
                Ok(ParsedOperand::Amount(NumericOperand::Literal(number)))
            }
            Some(ConstraintToken::Name("true")) => self.constant(true),
            Some(ConstraintToken::Name("false")) => self.constant(false),
            Some(ConstraintToken::Name("ipv4" | "ipv6" | "mac")) => self.address(),
            Some(ConstraintToken::Name(_)) => self.field(),
            _ => Err("a value is needed".to_owned()),
        }
    }

    fn constant(&mut self, value: bool) -> Result<ParsedOperand, String> {
        self.next += 1;
        Ok(ParsedOperand::Rule(BooleanExpression::Always(value)))
    }

    fn take_name(&mut self) -> Result<&str, String> {
        self.next += 1;
        match self.words.get(self.next - 1) {
            Some((_, ConstraintToken::Name(name))) => Ok(name),
            _ => Err("a name is needed".to_owned()),
        }
    }

    /// `ipv4('10.0.0.1')`, `ipv6('::1')` or `mac('02:00:00:00:00:01')`.
    fn address(&mut self) -> Result<ParsedOperand, String> {
        let kind = self.take_name()?.to_owned();
        self.require("(")?;
        let Some((_, ConstraintToken::Quoted(text))) = self.words.get(self.next) else {
            return Err("an address in quotes is needed".to_owned());
        };
        let number = match kind.as_str() {
            "ipv4" => text.parse::<Ipv4Addr>().ok().map(|ip| u128::from(u32::from(ip))),
            "ipv6" => text.parse::<Ipv6Addr>().ok().map(u128::from),
            _ => parse_mac(text),
        };
        let number = number.ok_or_else(|| format!("`{text}` is no address"))?;
        self.next += 1;
        self.require(")")?;
        Ok(ParsedOperand::Amount(NumericOperand::Literal(number)))
    }

    /// A field, or a part of one.
    fn field(&mut self) -> Result<ParsedOperand, String> {
        let name = self.take_name()?.to_owned();
        let place = self.names.iter().position(|known| known.name == name);
        let place = place.ok_or_else(|| format!("nothing is called `{name}`"))?;
        let kind = self.names[place].kind;
        if !self.take("::") {
            return Ok(match kind {
                MatchKind::Exact => {
                    ParsedOperand::Amount(NumericOperand::Part(place, MatchPart::Value))
                }
                _ => ParsedOperand::Match(place),
            });
        }
        let part = self.take_name()?.to_owned();
        let part = match (part.as_str(), kind) {
            ("low", MatchKind::Range) => MatchPart::Low,
            ("high", MatchKind::Range) => MatchPart::High,
            ("mask", MatchKind::Ternary | MatchKind::Optional) => MatchPart::Mask,
            ("prefix_length", MatchKind::Lpm) => MatchPart::PrefixLength,
            ("value", MatchKind::Range) => return Err(format!("`{name}` has no value")),
            ("value", _) => MatchPart::Value,
            (other, _) => return Err(format!("`{name}` has no {other}")),
        };
        Ok(ParsedOperand::Amount(NumericOperand::Part(place, part)))
    }
}

impl ParsedOperand {
    fn into_rule(self) -> Result<BooleanExpression, String> {
        match self {
            Self::Rule(rule) => Ok(rule),
            Self::Amount(_) | Self::Negative(_) | Self::Match(_) => {
                Err("a condition is needed, not a number".to_owned())
            }
        }
    }
}

fn equal(left: ParsedOperand, right: ParsedOperand) -> Result<BooleanExpression, String> {
    Ok(match (left, right) {
        (ParsedOperand::Rule(left), ParsedOperand::Rule(right)) => {
            BooleanExpression::Agree(Box::new(left), Box::new(right))
        }
        (ParsedOperand::Amount(left), ParsedOperand::Amount(right)) => {
            BooleanExpression::Relation(left, ComparisonOperator::Equal, right)
        }
        (ParsedOperand::Match(place), ParsedOperand::Amount(amount))
        | (ParsedOperand::Amount(amount), ParsedOperand::Match(place)) => {
            BooleanExpression::SameMatch(place, MatchAmount::Value(amount))
        }
        (ParsedOperand::Match(left), ParsedOperand::Match(right)) => {
            BooleanExpression::SameMatch(left, MatchAmount::Match(right))
        }
        _ => return Err("a condition and a number cannot be compared".to_owned()),
    })
}

fn ordered(
    left: ParsedOperand,
    comparator: ComparisonOperator,
    right: ParsedOperand,
) -> Result<BooleanExpression, String> {
    match (left, right) {
        (ParsedOperand::Amount(left), ParsedOperand::Amount(right)) => {
            Ok(BooleanExpression::Relation(left, comparator, right))
        }
        _ => Err("only == and != compare whole matches and conditions".to_owned()),
    }
}

fn parse_mac(text: &str) -> Option<u128> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    let number = bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
    (bytes.len() == 6).then_some(number)
}
