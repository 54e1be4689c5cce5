//! Truth values: logic, validity and comparison, of numbers as of whole headers.

use super::references::any_member_valid;
use super::{ExprCompiler, UnwrappedValue};
use crate::compile::headers::{FieldContent, FieldReference};
use crate::compile::{LoadError, json};
use crate::ids::HeaderIndex;
use crate::run::expression::{BoolExpr, CompareOp, HeaderPair, HeaderRef, NumberExpr};
use crate::spec::FieldRef;

impl ExprCompiler<'_> {
    pub(super) fn compile_logic(&self, of: &json::OperationDecl) -> Result<BoolExpr, LoadError> {
        let right = self.required_operand(&of.right)?;
        let pair = || {
            Ok::<_, LoadError>((
                self.compile_condition(&self.required_operand(&of.left)?)?,
                self.compile_condition(&right)?,
            ))
        };
        match of.op.as_str() {
            "d2b" => self.nonzero_condition(&right),
            "not" => Ok(self.compile_condition(&right)?.negated()),
            "and" => Ok(BoolExpr::And(Box::new(pair()?))),
            "or" => Ok(BoolExpr::Or(Box::new(pair()?))),
            "valid" => Ok(match self.header_ref(&right)? {
                HeaderRef::Fixed(header) => BoolExpr::Valid(header),
                element => BoolExpr::ValidElement(element),
            }),
            "valid_union" => Ok(any_member_valid(&self.union_ref(&right)?)),
            "?" => {
                let cond = self.compile_condition(&self.required_operand(&of.cond)?)?;
                let (yes, no) = pair()?;
                Ok(BoolExpr::Choose(Box::new((cond, yes, no))))
            }
            op => self.compile_comparison(op, &self.required_operand(&of.left)?, &right),
        }
    }

    /// `d2b` of a validity bit is the validity itself.
    fn nonzero_condition(&self, typed: &json::TypedValue) -> Result<BoolExpr, LoadError> {
        Ok(match self.compile_number(typed)? {
            NumberExpr::FromBool(cond) => *cond,
            number => BoolExpr::is_nonzero(number),
        })
    }

    fn compile_comparison(
        &self,
        op: &str,
        left: &json::TypedValue,
        right: &json::TypedValue,
    ) -> Result<BoolExpr, LoadError> {
        let compare = match op {
            "==" => CompareOp::Equal,
            "!=" => CompareOp::NotEqual,
            "<" => CompareOp::Less,
            "<=" => CompareOp::LessOrEqual,
            ">" => CompareOp::Greater,
            ">=" => CompareOp::GreaterOrEqual,
            op => return Err(LoadError::unsupported(format!("operation {op}"), self.at)),
        };
        if let Some(same) = self.aggregate_comparison(left, right)? {
            return Ok(equality_condition(compare, same));
        }
        if self.is_condition_value(left)? {
            let same = BoolExpr::SameTruth(Box::new((
                self.compile_condition(left)?,
                self.compile_condition(right)?,
            )));
            return Ok(equality_condition(compare, same));
        }
        let (left, right) = (self.compile_number(left)?, self.compile_number(right)?);
        if !matches!(compare, CompareOp::Equal | CompareOp::NotEqual) {
            self.refuse_inexact(op, &[&left, &right])?;
        }
        Ok(match (compare, &left, &right) {
            (
                CompareOp::Equal | CompareOp::NotEqual,
                NumberExpr::Field(field),
                NumberExpr::Const(value),
            ) => equality_condition(compare, BoolExpr::field_equals(*field, *value)),
            _ if left.is_large() || right.is_large() => {
                self.large_comparison(op, compare, left, right)?
            }
            _ => BoolExpr::Compare(compare, Box::new((left, right))),
        })
    }

    /// Numbers of 128 bits are compared without a sign, so neither may have one.
    fn large_comparison(
        &self,
        op: &str,
        compare: CompareOp,
        left: NumberExpr,
        right: NumberExpr,
    ) -> Result<BoolExpr, LoadError> {
        let signed = !left.is_unsigned() || !right.is_unsigned();
        match compare {
            CompareOp::Equal | CompareOp::NotEqual => {
                Ok(BoolExpr::Compare(compare, Box::new((left, right))))
            }
            _ if signed => {
                let construct = format!("operation {op} of a signed and a 128-bit number");
                Err(LoadError::unsupported(construct, self.at))
            }
            _ => Ok(BoolExpr::CompareLarge(compare, Box::new((left, right)))),
        }
    }

    /// Equality of headers, of unions, or of fields of more than 128 bits; none for anything else.
    fn aggregate_comparison(
        &self,
        left: &json::TypedValue,
        right: &json::TypedValue,
    ) -> Result<Option<BoolExpr>, LoadError> {
        match left.kind.as_str() {
            "header" => {
                let (left, right) = (self.header_ref(left)?, self.header_ref(right)?);
                let (HeaderRef::Fixed(left), HeaderRef::Fixed(right)) = (left, right) else {
                    let construct = "comparison with a computed header";
                    return Err(LoadError::unsupported(construct, self.at));
                };
                Ok(Some(BoolExpr::AnyPairEqual(vec![self.header_pair(left, right)?])))
            }
            "header_union" => {
                let (left, right) = (self.union_members(left)?, self.union_members(right)?);
                let pairs =
                    left.iter().zip(&right).map(|(left, right)| self.header_pair(*left, *right));
                Ok(Some(BoolExpr::AnyPairEqual(pairs.collect::<Result<_, _>>()?)))
            }
            "field" => match self.headers.resolve_field(&left.value, self.at)? {
                FieldReference::Content(FieldContent::Wide(pieces)) => {
                    self.wide_equality(&pieces, right)
                }
                FieldReference::Content(FieldContent::Variable(varbit)) => {
                    let other = self.varbit_index(right)?;
                    Ok(Some(BoolExpr::SameVarbits(varbit, other)))
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    pub(super) fn wide_equality(
        &self,
        pieces: &[FieldRef],
        right: &json::TypedValue,
    ) -> Result<Option<BoolExpr>, LoadError> {
        let others = self.compile_wide(right, pieces)?;
        let fields = pieces.iter().copied().map(NumberExpr::Field);
        let same = fields.zip(others).map(|pair| BoolExpr::Compare(CompareOp::Equal, pair.into()));
        Ok(same.reduce(|all, piece| BoolExpr::And(Box::new((all, piece)))))
    }

    fn header_pair(&self, left: HeaderIndex, right: HeaderIndex) -> Result<HeaderPair, LoadError> {
        let layouts = &self.headers.layouts;
        let (a, b) = (&layouts[left.0 as usize], &layouts[right.0 as usize]);
        if a.slots().count() != b.slots().count() {
            return Err(LoadError::malformed("headers of two types are compared", self.at));
        }
        let varbits = a.variable.as_ref().zip(b.variable.as_ref());
        Ok(HeaderPair {
            headers: (left, right),
            slots: a.slots().zip(b.slots()).collect(),
            varbits: varbits.map(|(a, b)| (a.varbit, b.varbit)),
        })
    }

    pub(super) fn is_condition_value(&self, typed: &json::TypedValue) -> Result<bool, LoadError> {
        match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) => Ok(plain.kind == "bool"),
            UnwrappedValue::Operation(operation) => self.is_condition(&operation),
        }
    }

    pub(super) fn is_condition(&self, of: &json::OperationDecl) -> Result<bool, LoadError> {
        const TRUTHS: [&str; 12] =
            ["d2b", "not", "and", "or", "valid", "valid_union", "==", "!=", "<", "<=", ">", ">="];
        match of.op.as_str() {
            "?" => self.is_condition_value(&self.required_operand(&of.left)?),
            op => Ok(TRUTHS.contains(&op)),
        }
    }
}

fn equality_condition(compare: CompareOp, same: BoolExpr) -> BoolExpr {
    match compare {
        CompareOp::Equal => same,
        _ => same.negated(),
    }
}
