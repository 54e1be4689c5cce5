//! Headers, unions, stack elements and fields that an expression names or computes.
//!
//! What the program fixes is resolved here; only an index that is known at run time stays.

use serde_json::Value;

use super::{Compiler, Node};
use crate::expression::{Binary, Cond, Expr, HeaderRef};
use crate::phv::Field;
use crate::program::headers::{self, Content, Reference, plain};
use crate::program::{HeaderIndex, LoadError, StackIndex, VarbitIndex, json};

/// A union known when the program is loaded, or the element of a stack of unions.
pub(super) enum UnionRef {
    Fixed(Vec<HeaderIndex>),
    Indexed(Expr, Vec<Vec<HeaderIndex>>),
}

impl UnionRef {
    /// One of its members.
    fn member(&self, number: usize) -> Option<HeaderRef> {
        match self {
            Self::Fixed(members) => members.get(number).copied().map(HeaderRef::Fixed),
            Self::Indexed(index, elements) => {
                let members: Option<Box<[HeaderIndex]>> = elements
                    .iter()
                    .map(|element| element.get(number).copied())
                    .collect();
                Some(HeaderRef::Indexed(Box::new((index.clone(), members?))))
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Fixed(members) => members.len(),
            Self::Indexed(_, elements) => elements.first().map_or(0, Vec::len),
        }
    }
}

impl Compiler<'_> {
    /// A field of a stack's last element.
    pub(in crate::program) fn last_field(&self, value: &Value) -> Result<Expr, LoadError> {
        let (name, field) = headers::pair(value, self.at)?;
        let stack = self.headers.groups.stack(name, self.at)?;
        let elements: Vec<HeaderIndex> = stack.elements.iter().flatten().copied().collect();
        Ok(self.last_of(stack.index, &elements, field)?.0)
    }

    /// The field of this name in the last of a stack's elements, and its width.
    pub(in crate::program) fn last_of(
        &self,
        stack: StackIndex,
        elements: &[HeaderIndex],
        field: &str,
    ) -> Result<(Expr, u32), LoadError> {
        let last = (Expr::StackCount(stack), Expr::Const(1));
        let last = Expr::Binary(Binary::Subtract, Box::new(last));
        let first = elements
            .first()
            .and_then(|first| self.headers.position(*first, field));
        let position = first.ok_or_else(|| LoadError::missing("field", field, self.at))?;
        let fields = self.fields(elements, position)?;
        let bits = fields.first().map_or(0, |field| field.bits);
        Ok((Expr::Indexed(Box::new((last, fields))), bits))
    }

    /// The field at this position of each of some headers of one type.
    pub(super) fn fields(
        &self,
        of: &[HeaderIndex],
        position: usize,
    ) -> Result<Box<[Field]>, LoadError> {
        let field = |header: &HeaderIndex| {
            let content = self.headers.contents(*header).get(position);
            let name = position.to_string();
            let content = content.ok_or_else(|| LoadError::missing("field", &name, self.at))?;
            plain(content, &name, self.at)
        };
        of.iter().map(field).collect()
    }

    /// A header, whether named or computed.
    pub(in crate::program) fn header(&self, typed: &json::Typed) -> Result<HeaderRef, LoadError> {
        let operation = match self.open(typed)? {
            Node::Plain(plain) if plain.kind == "header" => {
                let name = plain.value.as_str().unwrap_or("");
                return Ok(HeaderRef::Fixed(self.headers.header(name, self.at)?.index));
            }
            Node::Plain(plain) => {
                let construct = format!("a {} as a header", plain.kind);
                return Err(LoadError::unsupported(construct, self.at));
            }
            Node::Operation(operation) => operation,
        };
        match operation.op.as_str() {
            "dereference_stack" | "dereference_header_stack" => {
                let (index, elements) = self.dereference(&operation)?;
                let headers: Box<[HeaderIndex]> = elements.into_iter().flatten().collect();
                Ok(match known(&index, &headers) {
                    Some(header) => HeaderRef::Fixed(header),
                    None => HeaderRef::Indexed(Box::new((index, headers))),
                })
            }
            "access_union_header" => {
                let union = self.union(&self.side(&operation.left)?)?;
                let member = union.member(self.position(&operation.right)?);
                member.ok_or_else(|| LoadError::malformed("no such union member", self.at))
            }
            op => Err(LoadError::unsupported(
                format!("operation {op} as a header"),
                self.at,
            )),
        }
    }

    pub(super) fn union(&self, typed: &json::Typed) -> Result<UnionRef, LoadError> {
        match self.open(typed)? {
            Node::Plain(plain) if plain.kind == "header_union" => {
                let name = plain.value.as_str().unwrap_or("");
                let members = self.headers.groups.union(name);
                let members = members.ok_or_else(|| LoadError::missing("union", name, self.at))?;
                Ok(UnionRef::Fixed(members.to_vec()))
            }
            Node::Operation(operation) if operation.op == "dereference_union_stack" => {
                let (index, elements) = self.dereference(&operation)?;
                Ok(match known(&index, &elements) {
                    Some(members) => UnionRef::Fixed(members),
                    None => UnionRef::Indexed(index, elements),
                })
            }
            _ => Err(LoadError::unsupported("a computed header union", self.at)),
        }
    }

    /// The members of a union that is known by name.
    pub(in crate::program) fn union_members(
        &self,
        typed: &json::Typed,
    ) -> Result<Box<[HeaderIndex]>, LoadError> {
        match self.union(typed)? {
            UnionRef::Fixed(members) => Ok(members.into()),
            UnionRef::Indexed(..) => Err(LoadError::unsupported(
                "assignment of a computed header union",
                self.at,
            )),
        }
    }

    /// Index and elements of a stack access.
    pub(super) fn dereference(
        &self,
        of: &json::Operation,
    ) -> Result<(Expr, Vec<Vec<HeaderIndex>>), LoadError> {
        let stack = self.side(&of.left)?;
        let name = stack.value.as_str().unwrap_or("");
        let stack = self.headers.groups.stack(name, self.at)?;
        Ok((self.number(&self.side(&of.right)?)?, stack.elements.clone()))
    }

    pub(super) fn position(&self, value: &Value) -> Result<usize, LoadError> {
        let position = value
            .as_u64()
            .and_then(|position| usize::try_from(position).ok());
        position.ok_or_else(|| LoadError::malformed(format!("{value} is no position"), self.at))
    }

    /// Index and fields behind an `access_field`: one field where all is known.
    pub(in crate::program) fn element(
        &self,
        typed: &json::Typed,
    ) -> Result<(Expr, Box<[Field]>), LoadError> {
        let Node::Operation(of) = self.open(typed)? else {
            return Err(LoadError::unsupported(
                format!("writing to a {}", typed.kind),
                self.at,
            ));
        };
        if of.op != "access_field" {
            return Err(LoadError::unsupported(
                format!("writing to {}", of.op),
                self.at,
            ));
        }
        let position = self.position(&of.right)?;
        Ok(match self.header(&self.side(&of.left)?)? {
            HeaderRef::Fixed(header) => (Expr::Const(0), self.fields(&[header], position)?),
            HeaderRef::Indexed(of) => {
                let fields = self.fields(&of.1, position)?;
                (of.0, fields)
            }
        })
    }

    pub(super) fn access_field(&self, of: &json::Operation) -> Result<Expr, LoadError> {
        let value = serde_json::json!({ "op": of.op, "left": of.left, "right": of.right });
        let whole = json::Typed {
            kind: "expression".to_owned(),
            value,
            bitwidth: None,
        };
        let (index, fields) = self.element(&whole)?;
        Ok(match known(&index, &fields) {
            Some(field) => Expr::Field(field),
            None => Expr::Indexed(Box::new((index, fields))),
        })
    }

    /// A variable-length field.
    pub(in crate::program) fn varbit(&self, typed: &json::Typed) -> Result<VarbitIndex, LoadError> {
        match self.headers.reference(&typed.value, self.at)? {
            Reference::Content(Content::Variable(varbit)) => Ok(varbit),
            _ => Err(LoadError::malformed(
                "a fixed field in place of a varbit",
                self.at,
            )),
        }
    }
}

/// Whether some member of a union is valid.
pub(super) fn some_valid(union: &UnionRef) -> Cond {
    let members = (0..union.size()).filter_map(|number| union.member(number));
    let valid = members.map(|member| match member {
        HeaderRef::Fixed(header) => Cond::Valid(header),
        element => Cond::ValidElement(element),
    });
    let any = valid.reduce(|any, member| Cond::Or(Box::new((any, member))));
    any.unwrap_or(Cond::Const(false))
}

/// The element that a constant index chooses.
fn known<T: Clone>(index: &Expr, elements: &[T]) -> Option<T> {
    match index {
        Expr::Const(at) => elements.get(usize::try_from(*at).ok()?).cloned(),
        _ => None,
    }
}
