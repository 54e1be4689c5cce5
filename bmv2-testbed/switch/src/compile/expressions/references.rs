//! Headers, unions, stack elements and fields that an expression names or computes.
//!
//! What the program fixes is resolved here; only an index that is known at run time stays.

use serde_json::Value;

use super::{ExprCompiler, UnwrappedValue};
use crate::compile::headers::{self, FieldContent, FieldReference, require_plain};
use crate::compile::{LoadError, json};
use crate::ids::{HeaderIndex, StackIndex, VarbitIndex};
use crate::run::expression::{BinaryOp, BoolExpr, HeaderRef, NumberExpr};
use crate::spec::FieldRef;

/// A union known when the program is loaded, or the element of a stack of unions.
pub(super) enum UnionRef {
    Fixed(Vec<HeaderIndex>),
    Indexed(NumberExpr, Vec<Vec<HeaderIndex>>),
}

impl UnionRef {
    /// One of its members.
    fn member_header(&self, number: usize) -> Option<HeaderRef> {
        match self {
            Self::Fixed(members) => members.get(number).copied().map(HeaderRef::Fixed),
            Self::Indexed(index, elements) => {
                let members: Option<Box<[HeaderIndex]>> =
                    elements.iter().map(|element| element.get(number).copied()).collect();
                Some(HeaderRef::Indexed(Box::new((index.clone(), members?))))
            }
        }
    }

    fn member_count(&self) -> usize {
        match self {
            Self::Fixed(members) => members.len(),
            Self::Indexed(_, elements) => elements.first().map_or(0, Vec::len),
        }
    }
}

impl ExprCompiler<'_> {
    /// A field of a stack's last element.
    pub(in crate::compile) fn last_element_field(
        &self,
        value: &Value,
    ) -> Result<NumberExpr, LoadError> {
        let (name, field) = headers::field_names(value, self.at)?;
        let stack = self.headers.groups.find_stack(name, self.at)?;
        let elements: Vec<HeaderIndex> = stack.elements.iter().flatten().copied().collect();
        Ok(self.field_of_last(stack.index, &elements, field)?.0)
    }

    /// The field of this name in the last of a stack's elements, and its width.
    pub(in crate::compile) fn field_of_last(
        &self,
        stack: StackIndex,
        elements: &[HeaderIndex],
        field: &str,
    ) -> Result<(NumberExpr, u32), LoadError> {
        let last = last_position(stack);
        let first = elements.first().and_then(|first| self.headers.field_position(*first, field));
        let position = first.ok_or_else(|| LoadError::missing("field", field, self.at))?;
        let fields = self.element_fields(elements, position)?;
        let bits = fields.first().map_or(0, |field| field.bits);
        Ok((NumberExpr::Indexed(Box::new((last, fields))), bits))
    }

    /// The field at this position of each of some headers of one type.
    pub(super) fn element_fields(
        &self,
        of: &[HeaderIndex],
        position: usize,
    ) -> Result<Box<[FieldRef]>, LoadError> {
        of.iter()
            .map(|header| {
                let content = self.headers.field_contents(*header).get(position);
                let name = position.to_string();
                let content = content.ok_or_else(|| LoadError::missing("field", &name, self.at))?;
                require_plain(content, &name, self.at)
            })
            .collect()
    }

    /// A header, whether named or computed.
    pub(in crate::compile) fn header_ref(
        &self,
        typed: &json::TypedValue,
    ) -> Result<HeaderRef, LoadError> {
        let operation = match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) if plain.kind == "header" => {
                let name = plain.value.as_str().unwrap_or("");
                return Ok(HeaderRef::Fixed(self.headers.find_header(name, self.at)?.index));
            }
            UnwrappedValue::Plain(plain) if plain.kind == "stack_field" => {
                return self.last_element(&plain.value);
            }
            UnwrappedValue::Plain(plain) => {
                let construct = format!("a {} as a header", plain.kind);
                return Err(LoadError::unsupported(construct, self.at));
            }
            UnwrappedValue::Operation(operation) => operation,
        };
        match operation.op.as_str() {
            "dereference_stack" | "dereference_header_stack" => {
                let (index, elements) = self.stack_element(&operation)?;
                let headers: Box<[HeaderIndex]> = elements.into_iter().flatten().collect();
                Ok(match constant_element(&index, &headers) {
                    Some(header) => HeaderRef::Fixed(header),
                    None => HeaderRef::Indexed(Box::new((index, headers))),
                })
            }
            "access_union_header" => {
                let union = self.union_ref(&self.required_operand(&operation.left)?)?;
                let member = union.member_header(self.member_position(&operation.right)?);
                member.ok_or_else(|| LoadError::malformed("no such union member", self.at))
            }
            op => Err(LoadError::unsupported(format!("operation {op} as a header"), self.at)),
        }
    }

    /// `stack.last`, which p4c writes as the pair of the stack and "last".
    fn last_element(&self, value: &Value) -> Result<HeaderRef, LoadError> {
        let (name, last) = headers::field_names(value, self.at)?;
        if last != "last" {
            return Err(LoadError::malformed(format!("{value} is not a header"), self.at));
        }
        let stack = self.headers.groups.find_stack(name, self.at)?;
        let elements: Box<[HeaderIndex]> = stack.elements.iter().flatten().copied().collect();
        Ok(HeaderRef::Indexed(Box::new((last_position(stack.index), elements))))
    }

    pub(super) fn union_ref(&self, typed: &json::TypedValue) -> Result<UnionRef, LoadError> {
        match self.unwrap_value(typed)? {
            UnwrappedValue::Plain(plain) if plain.kind == "header_union" => {
                let name = plain.value.as_str().unwrap_or("");
                let members = self.headers.groups.find_union(name);
                let members = members.ok_or_else(|| LoadError::missing("union", name, self.at))?;
                Ok(UnionRef::Fixed(members.to_vec()))
            }
            UnwrappedValue::Operation(operation) if operation.op == "dereference_union_stack" => {
                let (index, elements) = self.stack_element(&operation)?;
                Ok(match constant_element(&index, &elements) {
                    Some(members) => UnionRef::Fixed(members),
                    None => UnionRef::Indexed(index, elements),
                })
            }
            _ => Err(LoadError::unsupported("a computed header union", self.at)),
        }
    }

    /// The members of a union that is known by name.
    pub(in crate::compile) fn union_members(
        &self,
        typed: &json::TypedValue,
    ) -> Result<Box<[HeaderIndex]>, LoadError> {
        match self.union_ref(typed)? {
            UnionRef::Fixed(members) => Ok(members.into()),
            UnionRef::Indexed(..) => {
                Err(LoadError::unsupported("assignment of a computed header union", self.at))
            }
        }
    }

    /// Index and elements of a stack access.
    pub(super) fn stack_element(
        &self,
        of: &json::OperationDecl,
    ) -> Result<(NumberExpr, Vec<Vec<HeaderIndex>>), LoadError> {
        let stack = self.required_operand(&of.left)?;
        let name = stack.value.as_str().unwrap_or("");
        let stack = self.headers.groups.find_stack(name, self.at)?;
        Ok((self.compile_number(&self.required_operand(&of.right)?)?, stack.elements.clone()))
    }

    pub(super) fn member_position(&self, value: &Value) -> Result<usize, LoadError> {
        let position = value.as_u64().and_then(|position| usize::try_from(position).ok());
        position.ok_or_else(|| LoadError::malformed(format!("{value} is not a position"), self.at))
    }

    /// Index and fields behind an `access_field`: one field where all is known.
    pub(in crate::compile) fn assigned_element(
        &self,
        typed: &json::TypedValue,
    ) -> Result<(NumberExpr, Box<[FieldRef]>), LoadError> {
        let UnwrappedValue::Operation(of) = self.unwrap_value(typed)? else {
            return Err(LoadError::unsupported(format!("writing to a {}", typed.kind), self.at));
        };
        if of.op != "access_field" {
            return Err(LoadError::unsupported(format!("writing to {}", of.op), self.at));
        }
        let position = self.member_position(&of.right)?;
        Ok(match self.header_ref(&self.required_operand(&of.left)?)? {
            HeaderRef::Fixed(header) => {
                (NumberExpr::Const(0), self.element_fields(&[header], position)?)
            }
            HeaderRef::Indexed(of) => {
                let fields = self.element_fields(&of.1, position)?;
                (of.0, fields)
            }
        })
    }

    pub(super) fn access_field(&self, of: &json::OperationDecl) -> Result<NumberExpr, LoadError> {
        let value = serde_json::json!({ "op": of.op, "left": of.left, "right": of.right });
        let whole = json::TypedValue { kind: "expression".to_owned(), value, bitwidth: None };
        let (index, fields) = self.assigned_element(&whole)?;
        Ok(match constant_element(&index, &fields) {
            Some(field) => NumberExpr::Field(field),
            None => NumberExpr::Indexed(Box::new((index, fields))),
        })
    }

    /// A variable-length field.
    pub(in crate::compile) fn varbit_index(
        &self,
        typed: &json::TypedValue,
    ) -> Result<VarbitIndex, LoadError> {
        match self.headers.resolve_field(&typed.value, self.at)? {
            FieldReference::Content(FieldContent::Variable(varbit)) => Ok(varbit),
            _ => Err(LoadError::malformed("a fixed field in place of a varbit", self.at)),
        }
    }
}

/// The position of a stack's last element.
fn last_position(stack: StackIndex) -> NumberExpr {
    let operands = (NumberExpr::StackCount(stack), NumberExpr::Const(1));
    NumberExpr::Binary(BinaryOp::Subtract, Box::new(operands))
}

/// Whether some member of a union is valid.
pub(super) fn any_member_valid(union: &UnionRef) -> BoolExpr {
    let members = (0..union.member_count()).filter_map(|number| union.member_header(number));
    let valid = members.map(|member| match member {
        HeaderRef::Fixed(header) => BoolExpr::Valid(header),
        element => BoolExpr::ValidElement(element),
    });
    let any = valid.reduce(|any, member| BoolExpr::Or(Box::new((any, member))));
    any.unwrap_or(BoolExpr::Const(false))
}

/// The element that a constant index chooses.
fn constant_element<T: Clone>(index: &NumberExpr, elements: &[T]) -> Option<T> {
    match index {
        NumberExpr::Const(at) => elements.get(usize::try_from(*at).ok()?).cloned(),
        _ => None,
    }
}
