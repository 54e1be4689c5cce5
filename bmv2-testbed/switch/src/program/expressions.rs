//! Expressions of the JSON compiled to `expression`'s trees.
//!
//! The JSON does not say whether an expression is a number or a truth value; its operation does. An
//! operation whose exact operands may not fit the interpreter's numbers is refused here.

mod constants;
mod masks;
mod references;
mod truth;

use serde_json::Value;

use self::constants::{constant, wide_constant};
pub(super) use self::constants::{number, unsigned};
pub(super) use self::masks::cut;
use self::references::{UnionRef, some_valid};
use super::headers::{Content, Headers, Reference};
use super::{LoadError, json};
use crate::expression::{Binary, Cond, Expr, Unary};
use crate::phv::Field;

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
                Ok(from_truth(self.truth(typed)?))
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
            Node::Operation(operation) if self.is_truth(&operation)? => {
                self.computed_truth(&operation)
            }
            Node::Operation(operation) => Ok(Cond::NonZero(self.computed_number(&operation)?)),
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
            "field" => match self.headers.reference(&plain.value, self.at)? {
                Reference::Valid(header) => Ok(Expr::FromBool(Box::new(Cond::Valid(header)))),
                Reference::ValidUnion(members) => Ok(Expr::FromBool(Box::new(some_valid(
                    &UnionRef::Fixed(members),
                )))),
                Reference::Content(_) => {
                    self.headers.target(&plain.value, self.at).map(Expr::Field)
                }
            },
            "hexstr" => constant(plain.value.as_str().unwrap_or(""), self.at),
            "bool" => Ok(Expr::Const(i128::from(
                plain.value.as_bool().unwrap_or(false),
            ))),
            "runtime_data" | "local" => self.argument(&plain.value),
            "stack_field" => self.last_field(&plain.value),
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
            let cond = self.truth(&self.side(&of.cond)?)?;
            let (yes, no) = (
                self.number(&self.side(&of.left)?)?,
                self.number(&self.side(&of.right)?)?,
            );
            return Ok(Expr::Choose(Box::new((cond, yes, no))));
        }
        if of.op == "access_field" {
            return self.access_field(of);
        }
        let right = self.side(&of.right)?;
        match of.op.as_str() {
            "last_stack_index" | "size_stack" => {
                let name = right.value.as_str().unwrap_or("");
                let count = Expr::StackCount(self.headers.groups.stack(name, self.at)?.index);
                Ok(match of.op.as_str() {
                    "size_stack" => count,
                    _ => Expr::Binary(Binary::Subtract, Box::new((count, Expr::Const(1)))),
                })
            }
            "b2d" => Ok(from_truth(self.truth(&right)?)),
            "~" => Ok(Expr::Unary(Unary::Not, Box::new(self.number(&right)?))),
            "two_comp_mod" | "usat_cast" | "sat_cast" => self.cast(of),
            op => {
                let mut op = self.binary(op)?;
                let (left, right) = (self.number(&self.side(&of.left)?)?, self.number(&right)?);
                match op {
                    Binary::Divide | Binary::Modulo => {
                        self.check_small(&of.op, &[&left, &right])?;
                    }
                    Binary::ShiftRight if left.is_large() => {
                        self.check_exact(&of.op, &[&left])?;
                        op = Binary::ShiftRightLarge;
                    }
                    _ => {}
                }
                Ok(masks::operation(op, left, right))
            }
        }
    }

    fn cast(&self, of: &json::Operation) -> Result<Expr, LoadError> {
        let value = self.number(&self.side(&of.left)?)?;
        let bits = match self.number(&self.side(&of.right)?)? {
            Expr::Const(bits @ 1..=128) => bits as u32,
            _ => return Err(LoadError::malformed(format!("width of {}", of.op), self.at)),
        };
        let op = match of.op.as_str() {
            "two_comp_mod" => Unary::Wrap(bits),
            saturating => {
                self.check_small(saturating, &[&value])?;
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

    /// The pieces of a wide value, cut as those of the field it is for.
    pub(super) fn wide(&self, typed: &json::Typed, like: &[Field]) -> Result<Vec<Expr>, LoadError> {
        match typed.kind.as_str() {
            "field" => match self.headers.reference(&typed.value, self.at)? {
                Reference::Content(Content::Wide(pieces)) if pieces.len() == like.len() => {
                    Ok(pieces.into_iter().map(Expr::Field).collect())
                }
                _ => Err(LoadError::unsupported(
                    "mixing fields over 128 bits",
                    self.at,
                )),
            },
            "hexstr" => wide_constant(typed.value.as_str().unwrap_or(""), like, self.at),
            kind => {
                let construct = format!("a {kind} for a field over 128 bits");
                Err(LoadError::unsupported(construct, self.at))
            }
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

    /// Refuses operands that do not fit 127 bits and a sign.
    fn check_small(&self, op: &str, operands: &[&Expr]) -> Result<(), LoadError> {
        match operands.iter().any(|operand| operand.is_large()) {
            true => {
                let construct = format!("operation {op} on more than 127 bits");
                Err(LoadError::unsupported(construct, self.at))
            }
            false => Ok(()),
        }
    }

    /// Refuses operands that fit neither 128 bits nor 127 and a sign.
    fn check_exact(&self, op: &str, operands: &[&Expr]) -> Result<(), LoadError> {
        if operands.iter().all(|operand| operand.is_exact()) {
            return Ok(());
        }
        Err(LoadError::unsupported(
            format!("operation {op} on more than 128 bits"),
            self.at,
        ))
    }

    fn side(&self, value: &Value) -> Result<json::Typed, LoadError> {
        if value.is_null() {
            return Err(LoadError::malformed("an operand is missing", self.at));
        }
        self.read(value)
    }
}

/// 1 for true and 0 for false.
fn from_truth(of: Cond) -> Expr {
    match of {
        Cond::Const(value) => Expr::Const(i128::from(value)),
        of => Expr::FromBool(Box::new(of)),
    }
}
