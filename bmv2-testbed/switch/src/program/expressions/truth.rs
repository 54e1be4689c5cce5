//! Truth values: logic, validity and comparison, of numbers as of whole headers.

use super::references::some_valid;
use super::{Compiler, Node};
use crate::expression::{Compare, Cond, Expr, HeaderPair, HeaderRef};
use crate::phv::Field;
use crate::program::headers::{Content, Reference};
use crate::program::{HeaderIndex, LoadError, json};

impl Compiler<'_> {
    pub(super) fn computed_truth(&self, of: &json::Operation) -> Result<Cond, LoadError> {
        let right = self.side(&of.right)?;
        let pair = || Ok::<_, LoadError>((self.truth(&self.side(&of.left)?)?, self.truth(&right)?));
        match of.op.as_str() {
            "d2b" => self.nonzero(&right),
            "not" => Ok(Cond::Not(Box::new(self.truth(&right)?))),
            "and" => Ok(Cond::And(Box::new(pair()?))),
            "or" => Ok(Cond::Or(Box::new(pair()?))),
            "valid" => Ok(match self.header(&right)? {
                HeaderRef::Fixed(header) => Cond::Valid(header),
                element => Cond::ValidElement(element),
            }),
            "valid_union" => Ok(some_valid(&self.union(&right)?)),
            "?" => {
                let cond = self.truth(&self.side(&of.cond)?)?;
                let (yes, no) = pair()?;
                Ok(Cond::Choose(Box::new((cond, yes, no))))
            }
            op => self.comparison(op, &self.side(&of.left)?, &right),
        }
    }

    /// `d2b` of a validity bit is the validity itself.
    fn nonzero(&self, typed: &json::Typed) -> Result<Cond, LoadError> {
        Ok(match self.number(typed)? {
            Expr::FromBool(cond) => *cond,
            number => Cond::NonZero(number),
        })
    }

    fn comparison(
        &self,
        op: &str,
        left: &json::Typed,
        right: &json::Typed,
    ) -> Result<Cond, LoadError> {
        let compare = match op {
            "==" => Compare::Equal,
            "!=" => Compare::NotEqual,
            "<" => Compare::Less,
            "<=" => Compare::LessOrEqual,
            ">" => Compare::Greater,
            ">=" => Compare::GreaterOrEqual,
            op => return Err(LoadError::unsupported(format!("operation {op}"), self.at)),
        };
        if let Some(same) = self.whole_comparison(left, right)? {
            return Ok(unless_equal(compare, same));
        }
        if self.reads_as_truth(left)? {
            let same = Cond::Same(Box::new((self.truth(left)?, self.truth(right)?)));
            return Ok(unless_equal(compare, same));
        }
        let (left, right) = (self.number(left)?, self.number(right)?);
        if !matches!(compare, Compare::Equal | Compare::NotEqual) {
            self.check_exact(op, &[&left, &right])?;
        }
        Ok(match (compare, &left, &right) {
            (Compare::Equal, Expr::Field(field), Expr::Const(value)) => {
                Cond::FieldIs(*field, *value)
            }
            _ if left.is_large() || right.is_large() => {
                self.large_comparison(op, compare, left, right)?
            }
            _ => Cond::Compare(compare, Box::new((left, right))),
        })
    }

    /// Numbers of 128 bits are compared without a sign, so neither may have one.
    fn large_comparison(
        &self,
        op: &str,
        compare: Compare,
        left: Expr,
        right: Expr,
    ) -> Result<Cond, LoadError> {
        let signed = !left.is_unsigned() || !right.is_unsigned();
        match compare {
            Compare::Equal | Compare::NotEqual => {
                Ok(Cond::Compare(compare, Box::new((left, right))))
            }
            _ if signed => {
                let construct = format!("operation {op} of a signed and a 128-bit number");
                Err(LoadError::unsupported(construct, self.at))
            }
            _ => Ok(Cond::CompareLarge(compare, Box::new((left, right)))),
        }
    }

    /// Equality of headers, of unions, or of fields of more than 128 bits; none for anything else.
    fn whole_comparison(
        &self,
        left: &json::Typed,
        right: &json::Typed,
    ) -> Result<Option<Cond>, LoadError> {
        match left.kind.as_str() {
            "header" => {
                let (left, right) = (self.header(left)?, self.header(right)?);
                let (HeaderRef::Fixed(left), HeaderRef::Fixed(right)) = (left, right) else {
                    let construct = "comparison with a computed header";
                    return Err(LoadError::unsupported(construct, self.at));
                };
                Ok(Some(Cond::SomeEqual(vec![self.pair(left, right)?])))
            }
            "header_union" => {
                let (left, right) = (self.union_members(left)?, self.union_members(right)?);
                let pairs = left
                    .iter()
                    .zip(&right)
                    .map(|(left, right)| self.pair(*left, *right));
                Ok(Some(Cond::SomeEqual(pairs.collect::<Result<_, _>>()?)))
            }
            "field" => match self.headers.reference(&left.value, self.at)? {
                Reference::Content(Content::Wide(pieces)) => self.wide_equality(&pieces, right),
                Reference::Content(Content::Variable(varbit)) => {
                    let other = self.varbit(right)?;
                    Ok(Some(Cond::SameVarbits(varbit, other)))
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    pub(super) fn wide_equality(
        &self,
        pieces: &[Field],
        right: &json::Typed,
    ) -> Result<Option<Cond>, LoadError> {
        let others = self.wide(right, pieces)?;
        let fields = pieces.iter().copied().map(Expr::Field);
        let same = fields
            .zip(others)
            .map(|pair| Cond::Compare(Compare::Equal, pair.into()));
        Ok(same.reduce(|all, piece| Cond::And(Box::new((all, piece)))))
    }

    fn pair(&self, left: HeaderIndex, right: HeaderIndex) -> Result<HeaderPair, LoadError> {
        let layouts = &self.headers.layouts;
        let (a, b) = (&layouts[left.0 as usize], &layouts[right.0 as usize]);
        if a.slots().count() != b.slots().count() {
            return Err(LoadError::malformed(
                "headers of two types are compared",
                self.at,
            ));
        }
        let varbits = a.variable.as_ref().zip(b.variable.as_ref());
        Ok(HeaderPair {
            headers: (left, right),
            slots: a.slots().zip(b.slots()).collect(),
            varbits: varbits.map(|(a, b)| (a.varbit, b.varbit)),
        })
    }

    pub(super) fn reads_as_truth(&self, typed: &json::Typed) -> Result<bool, LoadError> {
        match self.open(typed)? {
            Node::Plain(plain) => Ok(plain.kind == "bool"),
            Node::Operation(operation) => self.is_truth(&operation),
        }
    }

    pub(super) fn is_truth(&self, of: &json::Operation) -> Result<bool, LoadError> {
        const TRUTHS: [&str; 12] = [
            "d2b",
            "not",
            "and",
            "or",
            "valid",
            "valid_union",
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
        ];
        match of.op.as_str() {
            "?" => self.reads_as_truth(&self.side(&of.left)?),
            op => Ok(TRUTHS.contains(&op)),
        }
    }
}

fn unless_equal(compare: Compare, same: Cond) -> Cond {
    match compare {
        Compare::Equal => same,
        _ => Cond::Not(Box::new(same)),
    }
}
