//! From words to rules: operators by their strength, weakest first, with types checked on the way.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::lexer::{Word, split_words};
use super::{Amount, Comparator, MatchAmount, MatchPart, RestrictedName, RestrictionClause, Rule};
use crate::spec::MatchKind;

/// How deep brackets and negations may nest: the text comes from a controller.
const DEPTH_LIMIT: usize = 50;

/// What a part of the text stands for.
enum Phrase {
    Rule(Rule),
    Amount(Amount),
    /// A whole match that is no plain number.
    Match(usize),
}

struct RuleParser<'a> {
    words: Vec<(usize, Word<'a>)>,
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
        let found = matches!(self.words.get(self.next), Some((_, Word::Mark(m))) if *m == mark);
        self.next += usize::from(found);
        found
    }

    fn require(&mut self, mark: &'static str) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(format!("`{mark}` is needed")) }
    }

    fn implication(&mut self) -> Result<Phrase, String> {
        let left = self.disjunction()?;
        if !self.take("->") {
            return Ok(left);
        }
        let (premise, conclusion) = (left.into_rule()?, self.disjunction()?.into_rule()?);
        if self.take("->") {
            return Err("brackets are needed around an implication".to_owned());
        }
        let rule = Rule::Either(Box::new(Rule::Not(Box::new(premise))), Box::new(conclusion));
        Ok(Phrase::Rule(rule))
    }

    fn disjunction(&mut self) -> Result<Phrase, String> {
        let mut left = self.conjunction()?;
        while self.take("||") {
            let right = self.conjunction()?.into_rule()?;
            left = Phrase::Rule(Rule::Either(Box::new(left.into_rule()?), Box::new(right)));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Phrase, String> {
        let mut left = self.relation()?;
        while self.take("&&") {
            let right = self.relation()?.into_rule()?;
            left = Phrase::Rule(Rule::Both(Box::new(left.into_rule()?), Box::new(right)));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<Phrase, String> {
        const RELATIONS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
        let left = self.operand()?;
        let Some(mark) = RELATIONS.into_iter().find(|mark| self.take(mark)) else {
            return Ok(left);
        };
        let right = self.operand()?;
        if RELATIONS.into_iter().any(|mark| self.take(mark)) {
            return Err("brackets are needed around a comparison".to_owned());
        }
        let rule = match mark {
            "==" => equal(left, right)?,
            "!=" => Rule::Not(Box::new(equal(left, right)?)),
            "<" => ordered(left, Comparator::Less, right)?,
            "<=" => ordered(left, Comparator::LessOrEqual, right)?,
            ">" => ordered(right, Comparator::Less, left)?,
            _ => ordered(right, Comparator::LessOrEqual, left)?,
        };
        Ok(Phrase::Rule(rule))
    }

    fn operand(&mut self) -> Result<Phrase, String> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err("brackets nest too deep".to_owned());
        }
        let phrase = self.nested_operand();
        self.depth -= 1;
        phrase
    }

    fn nested_operand(&mut self) -> Result<Phrase, String> {
        if self.take("!") {
            return Ok(Phrase::Rule(Rule::Not(Box::new(self.operand()?.into_rule()?))));
        }
        if self.take("(") {
            let inner = self.implication()?;
            self.require(")")?;
            return Ok(inner);
        }
        if self.take("::") {
            return match self.take_name()? {
                "priority" => Ok(Phrase::Amount(Amount::Priority)),
                other => Err(format!("there is no attribute `{other}`")),
            };
        }
        let word = self.words.get(self.next).map(|(_, word)| word.clone());
        match word {
            Some(Word::Number(number)) => {
                self.next += 1;
                Ok(Phrase::Amount(Amount::Literal(number)))
            }
            Some(Word::Name("true")) => self.constant(true),
            Some(Word::Name("false")) => self.constant(false),
            Some(Word::Name("ipv4" | "ipv6" | "mac")) => self.address(),
            Some(Word::Name(_)) => self.field(),
            _ => Err("a value is needed".to_owned()),
        }
    }

    fn constant(&mut self, value: bool) -> Result<Phrase, String> {
        self.next += 1;
        Ok(Phrase::Rule(Rule::Always(value)))
    }

    fn take_name(&mut self) -> Result<&str, String> {
        self.next += 1;
        match self.words.get(self.next - 1) {
            Some((_, Word::Name(name))) => Ok(name),
            _ => Err("a name is needed".to_owned()),
        }
    }

    /// `ipv4('10.0.0.1')`, `ipv6('::1')` or `mac('02:00:00:00:00:01')`.
    fn address(&mut self) -> Result<Phrase, String> {
        let kind = self.take_name()?.to_owned();
        self.require("(")?;
        let Some((_, Word::Quoted(text))) = self.words.get(self.next) else {
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
        Ok(Phrase::Amount(Amount::Literal(number)))
    }

    /// A field, or a part of one.
    fn field(&mut self) -> Result<Phrase, String> {
        let name = self.take_name()?.to_owned();
        let place = self.names.iter().position(|known| known.name == name);
        let place = place.ok_or_else(|| format!("nothing is called `{name}`"))?;
        let kind = self.names[place].kind;
        if !self.take("::") {
            return Ok(match kind {
                MatchKind::Exact => Phrase::Amount(Amount::Part(place, MatchPart::Value)),
                _ => Phrase::Match(place),
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
        Ok(Phrase::Amount(Amount::Part(place, part)))
    }
}

impl Phrase {
    fn into_rule(self) -> Result<Rule, String> {
        match self {
            Self::Rule(rule) => Ok(rule),
            Self::Amount(_) | Self::Match(_) => {
                Err("a condition is needed, not a number".to_owned())
            }
        }
    }
}

fn equal(left: Phrase, right: Phrase) -> Result<Rule, String> {
    Ok(match (left, right) {
        (Phrase::Rule(left), Phrase::Rule(right)) => Rule::Agree(Box::new(left), Box::new(right)),
        (Phrase::Amount(left), Phrase::Amount(right)) => {
            Rule::Relation(left, Comparator::Equal, right)
        }
        (Phrase::Match(place), Phrase::Amount(amount))
        | (Phrase::Amount(amount), Phrase::Match(place)) => {
            Rule::SameMatch(place, MatchAmount::Value(amount))
        }
        (Phrase::Match(left), Phrase::Match(right)) => {
            Rule::SameMatch(left, MatchAmount::Match(right))
        }
        _ => return Err("a condition and a number cannot be compared".to_owned()),
    })
}

fn ordered(left: Phrase, comparator: Comparator, right: Phrase) -> Result<Rule, String> {
    match (left, right) {
        (Phrase::Amount(left), Phrase::Amount(right)) => {
            Ok(Rule::Relation(left, comparator, right))
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
