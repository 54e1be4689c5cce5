//! Expressions of the JSON compiled to `expression`'s trees.
//!
//! The JSON does not say whether an expression is a number or a truth value; its operation does. An
//! operation whose exact operands may not fit the interpreter's numbers is refused here.

mod conditions;
mod constants;
mod masks;
mod references;
mod wide_slices;

use serde_json::Value;

use self::constants::{parse_constant, parse_wide_constant};
pub(super) use self::constants::{parse_hex, parse_unsigned_hex};
pub(super) use self::masks::strip_masks;
use self::references::{UnionRef, any_member_valid};
use super::headers::{FieldContent, FieldReference, HeaderCatalog};
use super::{LoadError, json};
use crate::run::expression::{BinaryOp, BoolExpr, NumberExpr, UnaryOp};
use crate::spec::FieldRef;

/// Compiles expressions in one place of the program.
#[derive(Clone, Copy)]
pub(super) struct ExprCompiler<'a> {
    pub(super) headers: &'a HeaderCatalog,
    /// Widths of the enclosing action's parameters.
    pub(super) parameters: &'a [u32],
    /// The place, for errors.
    pub(super) at: &'a str,
}

/// What a typed value turns out to be.
enum UnwrappedValue {
    Operation(Box<json::OperationDecl>),
    Plain(json::TypedValue),
}

impl ExprCompiler<'_> {
    /// An expression with a number as its value.
    pub(super) fn compile_number(&self, typed: &json::TypedValue) -> Result<NumberExpr, LoadError> {
        match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) => self.compile_plain_number(&plain),
            UnwrappedValue::Operation(operation) if self.is_condition(&operation)? => {
                Ok(number_from_bool(self.compile_condition(typed)?))
            }
            UnwrappedValue::Operation(operation) => self.compile_operation(&operation),
        }
    }

    /// An expression with a truth value.
    pub(super) fn compile_condition(
        &self,
        typed: &json::TypedValue,
    ) -> Result<BoolExpr, LoadError> {
        match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) => match (plain.kind.as_str(), &plain.value) {
                ("bool", Value::Bool(value)) => Ok(BoolExpr::Const(*value)),
                _ => Ok(BoolExpr::is_nonzero(self.compile_plain_number(&plain)?)),
            },
            UnwrappedValue::Operation(operation) if self.is_condition(&operation)? => {
                self.compile_logic(&operation)
            }
            UnwrappedValue::Operation(operation) => {
                Ok(BoolExpr::is_nonzero(self.compile_operation(&operation)?))
            }
        }
    }

    /// Unwraps nested `expression` objects down to an operation or a plain value.
    fn unwrap_value(&self, typed: &json::TypedValue) -> Result<UnwrappedValue, LoadError> {
        if typed.kind != "expression" {
            return Ok(UnwrappedValue::Plain(typed.clone()));
        }
        if typed.value.get("op").is_some() {
            return Ok(UnwrappedValue::Operation(Box::new(self.deserialize_value(&typed.value)?)));
        }
        self.unwrap_value(&self.deserialize_value(&typed.value)?)
    }

    fn deserialize_value<T: serde::de::DeserializeOwned>(
        &self,
        value: &Value,
    ) -> Result<T, LoadError> {
        T::deserialize(value).map_err(|error| LoadError::malformed(error.to_string(), self.at))
    }

    fn compile_plain_number(&self, plain: &json::TypedValue) -> Result<NumberExpr, LoadError> {
        match plain.kind.as_str() {
            "field" => match self.headers.resolve_field(&plain.value, self.at)? {
                FieldReference::Valid(header) => {
                    Ok(NumberExpr::FromBool(Box::new(BoolExpr::Valid(header))))
                }
                FieldReference::ValidUnion(members) => {
                    Ok(NumberExpr::FromBool(Box::new(any_member_valid(&UnionRef::Fixed(members)))))
                }
                FieldReference::Content(_) => {
                    self.headers.writable_field(&plain.value, self.at).map(NumberExpr::Field)
                }
            },
            "hexstr" => parse_constant(plain.value.as_str().unwrap_or(""), self.at),
            "bool" => Ok(NumberExpr::Const(i128::from(plain.value.as_bool().unwrap_or(false)))),
            "runtime_data" | "local" => self.action_argument(&plain.value),
            "stack_field" => self.last_element_field(&plain.value),
            kind => Err(LoadError::unsupported(format!("operand of type {kind}"), self.at)),
        }
    }

    fn action_argument(&self, value: &Value) -> Result<NumberExpr, LoadError> {
        let at = value.as_u64().and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| Some(NumberExpr::Argument(at, *self.parameters.get(at)?)));
        found.ok_or_else(|| LoadError::missing("action parameter", &value.to_string(), self.at))
    }

    fn compile_operation(&self, of: &json::OperationDecl) -> Result<NumberExpr, LoadError> {
        if of.op == "?" {
            let cond = self.compile_condition(&self.required_operand(&of.cond)?)?;
            let (yes, no) = (
                self.compile_number(&self.required_operand(&of.left)?)?,
                self.compile_number(&self.required_operand(&of.right)?)?,
            );
            return Ok(NumberExpr::Choose(Box::new((cond, yes, no))));
        }
        if of.op == "access_field" {
            return self.access_field(of);
        }
        if let Some(slice) = self.wide_slice(of)? {
            return Ok(slice);
        }
        let right = self.required_operand(&of.right)?;
        match of.op.as_str() {
            "last_stack_index" | "size_stack" => {
                let name = right.value.as_str().unwrap_or("");
                let count =
                    NumberExpr::StackCount(self.headers.groups.find_stack(name, self.at)?.index);
                Ok(match of.op.as_str() {
                    "size_stack" => count,
                    _ => NumberExpr::Binary(
                        BinaryOp::Subtract,
                        Box::new((count, NumberExpr::Const(1))),
                    ),
                })
            }
            "b2d" => Ok(number_from_bool(self.compile_condition(&right)?)),
            "~" => Ok(NumberExpr::Unary(UnaryOp::Not, Box::new(self.compile_number(&right)?))),
            "two_comp_mod" | "usat_cast" | "sat_cast" => self.compile_cast(of),
            op => {
                let mut op = self.binary_op(op)?;
                let (left, right) = (
                    self.compile_number(&self.required_operand(&of.left)?)?,
                    self.compile_number(&right)?,
                );
                match op {
                    BinaryOp::Divide | BinaryOp::Modulo => {
                        self.refuse_large(&of.op, &[&left, &right])?;
                    }
                    BinaryOp::ShiftRight if left.is_large() => {
                        self.refuse_inexact(&of.op, &[&left])?;
                        op = BinaryOp::ShiftRightLarge;
                    }
                    _ => {}
                }
                Ok(masks::binary_operation(op, left, right))
            }
        }
    }

    fn compile_cast(&self, of: &json::OperationDecl) -> Result<NumberExpr, LoadError> {
        let value = self.compile_number(&self.required_operand(&of.left)?)?;
        let bits = match self.compile_number(&self.required_operand(&of.right)?)? {
            NumberExpr::Const(bits @ 1..=128) => bits as u32,
            _ => return Err(LoadError::malformed(format!("width of {}", of.op), self.at)),
        };
        let op = match of.op.as_str() {
            "two_comp_mod" => UnaryOp::Wrap(bits),
            saturating => {
                self.refuse_large(saturating, &[&value])?;
                if bits > 126 {
                    let construct = format!("{saturating} to {bits} bits");
                    return Err(LoadError::unsupported(construct, self.at));
                }
                if saturating == "usat_cast" {
                    UnaryOp::SaturateUnsigned(bits)
                } else {
                    UnaryOp::SaturateSigned(bits)
                }
            }
        };
        Ok(NumberExpr::Unary(op, Box::new(value)))
    }

    /// The pieces of a wide value, cut as those of the field it is for.
    pub(super) fn compile_wide(
        &self,
        typed: &json::TypedValue,
        like: &[FieldRef],
    ) -> Result<Vec<NumberExpr>, LoadError> {
        match typed.kind.as_str() {
            "field" => match self.headers.resolve_field(&typed.value, self.at)? {
                FieldReference::Content(FieldContent::Wide(pieces))
                    if pieces.len() == like.len() =>
                {
                    Ok(pieces.into_iter().map(NumberExpr::Field).collect())
                }
                _ => Err(LoadError::unsupported("mixing fields over 128 bits", self.at)),
            },
            "hexstr" => parse_wide_constant(typed.value.as_str().unwrap_or(""), like, self.at),
            kind => {
                let construct = format!("a {kind} for a field over 128 bits");
                Err(LoadError::unsupported(construct, self.at))
            }
        }
    }

    fn binary_op(&self, op: &str) -> Result<BinaryOp, LoadError> {
        Ok(match op {
            "+" => BinaryOp::Add,
            "-" => BinaryOp::Subtract,
            "*" => BinaryOp::Multiply,
            "/" => BinaryOp::Divide,
            "%" => BinaryOp::Modulo,
            "&" => BinaryOp::And,
            "|" => BinaryOp::Or,
            "^" => BinaryOp::Xor,
            "<<" => BinaryOp::ShiftLeft,
            ">>" => BinaryOp::ShiftRight,
            op => return Err(LoadError::unsupported(format!("operation {op}"), self.at)),
        })
    }

    /// Refuses operands that do not fit 127 bits and a sign.
    fn refuse_large(&self, op: &str, operands: &[&NumberExpr]) -> Result<(), LoadError> {
        match operands.iter().any(|operand| operand.is_large()) {
            true => {
                let construct = format!("operation {op} on more than 127 bits");
                Err(LoadError::unsupported(construct, self.at))
            }
            false => Ok(()),
        }
    }

    /// Refuses operands that fit neither 128 bits nor 127 and a sign.
    fn refuse_inexact(&self, op: &str, operands: &[&NumberExpr]) -> Result<(), LoadError> {
        if operands.iter().all(|operand| operand.is_exact()) {
            return Ok(());
        }
        Err(LoadError::unsupported(format!("operation {op} on more than 128 bits"), self.at))
    }

    fn required_operand(&self, value: &Value) -> Result<json::TypedValue, LoadError> {
        if value.is_null() {
            return Err(LoadError::malformed("an operand is missing", self.at));
        }
        self.deserialize_value(value)
    }
}

/// 1 for true and 0 for false.
fn number_from_bool(of: BoolExpr) -> NumberExpr {
    match of {
        BoolExpr::Const(value) => NumberExpr::Const(i128::from(value)),
        of => NumberExpr::FromBool(Box::new(of)),
    }
}
