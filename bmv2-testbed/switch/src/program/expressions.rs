//! Expressions of the JSON compiled to `expression`'s trees.
//!
//! The JSON does not say whether an expression is a number or a truth value; its operation does. An
//! operation whose exact operands may not fit the interpreter's numbers is refused here.

use serde_json::Value;

use super::headers::{Headers, Reference};
use super::{LoadError, json};
use crate::expression::{Binary, Compare, Cond, Expr, Unary};

/// Compiles expressions in one place of the program.
#[derive(Clone, Copy)]
pub(super) struct Compiler<'a> {
    pub(super) headers: &'a Headers,
    /// Widths of the enclosing action's parameters.
    pub(super) parameters: &'a [u32],
    /// The place, for errors.
    pub(super) at: &'a str,
}

/// What a typed value turns out to be.
enum Node {
    Operation(Box<json::Operation>),
    Plain(json::Typed),
}

impl Compiler<'_> {
    /// An expression with a number as its value.
    pub(super) fn number(&self, typed: &json::Typed) -> Result<Expr, LoadError> {
        match self.open(typed)? {
            Node::Plain(plain) => self.plain_number(&plain),
            Node::Operation(operation) if self.is_truth(&operation)? => {
                Ok(Expr::FromBool(Box::new(self.truth(typed)?)))
            }
            Node::Operation(operation) => self.computed_number(&operation),
        }
    }

    /// An expression with a truth value.
    pub(super) fn truth(&self, typed: &json::Typed) -> Result<Cond, LoadError> {
        match self.open(typed)? {
            Node::Plain(plain) => match (plain.kind.as_str(), &plain.value) {
                ("bool", Value::Bool(value)) => Ok(Cond::Const(*value)),
                _ => Ok(Cond::NonZero(self.plain_number(&plain)?)),
            },
            Node::Operation(operation) => self.computed_truth(&operation),
        }
    }

    /// Unwraps nested `expression` objects down to an operation or a plain value.
    fn open(&self, typed: &json::Typed) -> Result<Node, LoadError> {
        if typed.kind != "expression" {
            return Ok(Node::Plain(typed.clone()));
        }
        if typed.value.get("op").is_some() {
            return Ok(Node::Operation(Box::new(self.read(&typed.value)?)));
        }
        self.open(&self.read(&typed.value)?)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, value: &Value) -> Result<T, LoadError> {
        T::deserialize(value).map_err(|error| LoadError::malformed(error.to_string(), self.at))
    }

    fn plain_number(&self, plain: &json::Typed) -> Result<Expr, LoadError> {
        match plain.kind.as_str() {
            "field" => Ok(match self.headers.reference(&plain.value, self.at)? {
                Reference::Field(field) => Expr::Field(field),
                Reference::Valid(header) => Expr::FromBool(Box::new(Cond::Valid(header))),
            }),
            "hexstr" => Ok(Expr::Const(number(
                plain.value.as_str().unwrap_or(""),
                self.at,
            )?)),
            "bool" => Ok(Expr::Const(i128::from(
                plain.value.as_bool().unwrap_or(false),
            ))),
            "runtime_data" | "local" => self.argument(&plain.value),
            kind => Err(LoadError::unsupported(
                format!("operand of type {kind}"),
                self.at,
            )),
        }
    }

    fn argument(&self, value: &Value) -> Result<Expr, LoadError> {
        let at = value.as_u64().and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| Some(Expr::Argument(at, *self.parameters.get(at)?)));
        found.ok_or_else(|| LoadError::missing("action parameter", &value.to_string(), self.at))
    }

    fn computed_number(&self, of: &json::Operation) -> Result<Expr, LoadError> {
        if of.op == "?" {
            let cond = self.truth(self.side(&of.cond)?)?;
            let (yes, no) = (
                self.number(self.side(&of.left)?)?,
                self.number(self.side(&of.right)?)?,
            );
            return Ok(Expr::Choose(Box::new((cond, yes, no))));
        }
        let right = self.side(&of.right)?;
        match of.op.as_str() {
            "b2d" => Ok(Expr::FromBool(Box::new(self.truth(right)?))),
            "~" => Ok(Expr::Unary(Unary::Not, Box::new(self.number(right)?))),
            "two_comp_mod" | "usat_cast" | "sat_cast" => self.cast(of),
            op => {
                let op = self.binary(op)?;
                let (left, right) = (self.number(self.side(&of.left)?)?, self.number(right)?);
                if op.needs_exact_operands() {
                    self.check_exact(&of.op, &[&left, &right])?;
                }
                Ok(Expr::Binary(op, Box::new((left, right))))
            }
        }
    }

    fn cast(&self, of: &json::Operation) -> Result<Expr, LoadError> {
        let value = self.number(self.side(&of.left)?)?;
        let bits = match self.number(self.side(&of.right)?)? {
            Expr::Const(bits @ 1..=128) => bits as u32,
            _ => return Err(LoadError::malformed(format!("width of {}", of.op), self.at)),
        };
        let op = match of.op.as_str() {
            "two_comp_mod" => Unary::Wrap(bits),
            saturating => {
                self.check_exact(saturating, &[&value])?;
                if bits > 126 {
                    let construct = format!("{saturating} to {bits} bits");
                    return Err(LoadError::unsupported(construct, self.at));
                }
                if saturating == "usat_cast" {
                    Unary::SaturateUnsigned(bits)
                } else {
                    Unary::SaturateSigned(bits)
                }
            }
        };
        Ok(Expr::Unary(op, Box::new(value)))
    }

    fn computed_truth(&self, of: &json::Operation) -> Result<Cond, LoadError> {
        let right = self.side(&of.right)?;
        let pair = || Ok::<_, LoadError>((self.truth(self.side(&of.left)?)?, self.truth(right)?));
        match of.op.as_str() {
            "d2b" => self.nonzero(right),
            "not" => Ok(Cond::Not(Box::new(self.truth(right)?))),
            "and" => Ok(Cond::And(Box::new(pair()?))),
            "or" => Ok(Cond::Or(Box::new(pair()?))),
            "valid" => {
                let name = right.value.as_str().unwrap_or("");
                Ok(Cond::Valid(
                    self.headers.header(name, self.at)?.layout.header,
                ))
            }
            "?" => {
                let cond = self.truth(self.side(&of.cond)?)?;
                let (yes, no) = pair()?;
                Ok(Cond::Choose(Box::new((cond, yes, no))))
            }
            op => self.comparison(op, self.side(&of.left)?, right),
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
        if self.reads_as_truth(left)? {
            let same = Cond::Same(Box::new((self.truth(left)?, self.truth(right)?)));
            return Ok(if compare == Compare::Equal {
                same
            } else {
                Cond::Not(Box::new(same))
            });
        }
        let (left, right) = (self.number(left)?, self.number(right)?);
        if !matches!(compare, Compare::Equal | Compare::NotEqual) {
            self.check_exact(op, &[&left, &right])?;
        }
        Ok(match (compare, &left, &right) {
            (Compare::Equal, Expr::Field(field), Expr::Const(value)) => {
                Cond::FieldIs(*field, *value)
            }
            _ => Cond::Compare(compare, Box::new((left, right))),
        })
    }

    fn reads_as_truth(&self, typed: &json::Typed) -> Result<bool, LoadError> {
        match self.open(typed)? {
            Node::Plain(plain) => Ok(plain.kind == "bool"),
            Node::Operation(operation) => self.is_truth(&operation),
        }
    }

    fn is_truth(&self, of: &json::Operation) -> Result<bool, LoadError> {
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
            "?" => self.reads_as_truth(self.side(&of.left)?),
            op => Ok(TRUTHS.contains(&op)),
        }
    }

    fn binary(&self, op: &str) -> Result<Binary, LoadError> {
        Ok(match op {
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "%" => Binary::Modulo,
            "&" => Binary::And,
            "|" => Binary::Or,
            "^" => Binary::Xor,
            "<<" => Binary::ShiftLeft,
            ">>" => Binary::ShiftRight,
            op => return Err(LoadError::unsupported(format!("operation {op}"), self.at)),
        })
    }

    fn check_exact(&self, op: &str, operands: &[&Expr]) -> Result<(), LoadError> {
        if operands.iter().all(|operand| operand.bits().is_some()) {
            return Ok(());
        }
        Err(LoadError::unsupported(
            format!("operation {op} on more than 127 bits"),
            self.at,
        ))
    }

    fn side<'t>(&self, typed: &'t Option<json::Typed>) -> Result<&'t json::Typed, LoadError> {
        typed
            .as_ref()
            .ok_or_else(|| LoadError::malformed("an operand is missing", self.at))
    }
}

/// A hexadecimal constant, possibly negative, of at most 128 bits.
pub(super) fn number(text: &str, at: &str) -> Result<i128, LoadError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let digits = digits
        .strip_prefix("0x")
        .unwrap_or(digits)
        .trim_start_matches('0');
    if digits.len() > 32 {
        return Err(LoadError::unsupported("constant of more than 128 bits", at));
    }
    let value = match digits {
        "" if !text.is_empty() => Ok(0),
        digits => u128::from_str_radix(digits, 16),
    };
    let value = value.map_err(|_| LoadError::malformed(format!("{text:?} is no number"), at))?;
    let value = value as i128;
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// A hexadecimal constant that is not negative and fits `bits` bits.
pub(super) fn unsigned(text: &str, bits: u32, at: &str) -> Result<u128, LoadError> {
    let value = number(text, at)? as u128;
    if text.starts_with('-') || value & !crate::phv::mask(bits) != 0 {
        return Err(LoadError::malformed(
            format!("{text} does not fit {bits} bits"),
            at,
        ));
    }
    Ok(value)
}
