//! Expressions of the JSON compiled to `expression`'s trees.
//!
//! The JSON does not say whether an expression is a number or a truth value; its operation does. An
//! operation whose exact operands may not fit the interpreter's numbers is refused here.

use serde_json::Value;

use super::headers::{Content, Headers, Reference, plain};
use super::{HeaderIndex, LoadError, StackIndex, VarbitIndex, json};
use crate::expression::{Binary, Compare, Cond, Expr, HeaderPair, HeaderRef, Unary};
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

/// A union known when the program is loaded, or the element of a stack of unions.
enum UnionRef {
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

    /// A field of a stack's last element.
    pub(super) fn last_field(&self, value: &Value) -> Result<Expr, LoadError> {
        let (name, field) = super::headers::pair(value, self.at)?;
        let stack = self.headers.groups.stack(name, self.at)?;
        let elements: Vec<HeaderIndex> = stack.elements.iter().flatten().copied().collect();
        Ok(self.last_of(stack.index, &elements, field)?.0)
    }

    /// The field of this name in the last of a stack's elements, and its width.
    pub(super) fn last_of(
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
    fn fields(&self, of: &[HeaderIndex], position: usize) -> Result<Box<[Field]>, LoadError> {
        let field = |header: &HeaderIndex| {
            let content = self.headers.contents(*header).get(position);
            let name = position.to_string();
            let content = content.ok_or_else(|| LoadError::missing("field", &name, self.at))?;
            plain(content, &name, self.at)
        };
        of.iter().map(field).collect()
    }

    /// A header, whether named or computed.
    pub(super) fn header(&self, typed: &json::Typed) -> Result<HeaderRef, LoadError> {
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

    fn union(&self, typed: &json::Typed) -> Result<UnionRef, LoadError> {
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
    pub(super) fn union_members(
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
    fn dereference(
        &self,
        of: &json::Operation,
    ) -> Result<(Expr, Vec<Vec<HeaderIndex>>), LoadError> {
        let stack = self.side(&of.left)?;
        let name = stack.value.as_str().unwrap_or("");
        let stack = self.headers.groups.stack(name, self.at)?;
        Ok((self.number(&self.side(&of.right)?)?, stack.elements.clone()))
    }

    fn position(&self, value: &Value) -> Result<usize, LoadError> {
        let position = value
            .as_u64()
            .and_then(|position| usize::try_from(position).ok());
        position.ok_or_else(|| LoadError::malformed(format!("{value} is no position"), self.at))
    }

    /// Index and fields behind an `access_field`: one field where all is known.
    pub(super) fn element(&self, typed: &json::Typed) -> Result<(Expr, Box<[Field]>), LoadError> {
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
            "b2d" => Ok(Expr::FromBool(Box::new(self.truth(&right)?))),
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
                Ok(Expr::Binary(op, Box::new((left, right))))
            }
        }
    }

    fn access_field(&self, of: &json::Operation) -> Result<Expr, LoadError> {
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

    fn computed_truth(&self, of: &json::Operation) -> Result<Cond, LoadError> {
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

    fn wide_equality(
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

    /// A variable-length field.
    pub(super) fn varbit(&self, typed: &json::Typed) -> Result<VarbitIndex, LoadError> {
        match self.headers.reference(&typed.value, self.at)? {
            Reference::Content(Content::Variable(varbit)) => Ok(varbit),
            _ => Err(LoadError::malformed(
                "a fixed field in place of a varbit",
                self.at,
            )),
        }
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
            "?" => self.reads_as_truth(&self.side(&of.left)?),
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

/// Whether some member of a union is valid.
fn some_valid(union: &UnionRef) -> Cond {
    let members = (0..union.size()).filter_map(|number| union.member(number));
    let valid = members.map(|member| match member {
        HeaderRef::Fixed(header) => Cond::Valid(header),
        element => Cond::ValidElement(element),
    });
    let any = valid.reduce(|any, member| Cond::Or(Box::new((any, member))));
    any.unwrap_or(Cond::Const(false))
}

fn unless_equal(compare: Compare, same: Cond) -> Cond {
    match compare {
        Compare::Equal => same,
        _ => Cond::Not(Box::new(same)),
    }
}

/// The element that a constant index chooses.
fn known<T: Clone>(index: &Expr, elements: &[T]) -> Option<T> {
    match index {
        Expr::Const(at) => elements.get(usize::try_from(*at).ok()?).cloned(),
        _ => None,
    }
}

/// A constant as an expression.
fn constant(text: &str, at: &str) -> Result<Expr, LoadError> {
    let value = number(text, at)?;
    Ok(if value < 0 && !text.starts_with('-') {
        Expr::Large(value as u128)
    } else {
        Expr::Const(value)
    })
}

/// A constant of any width, cut into pieces like those of a field.
fn wide_constant(text: &str, like: &[Field], at: &str) -> Result<Vec<Expr>, LoadError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mut rest = digits;
    let mut pieces = Vec::new();
    for _ in like.iter().rev() {
        let (left, low) = rest
            .split_at_checked(rest.len().saturating_sub(32))
            .unwrap_or((rest, ""));
        pieces.push(Expr::Const(number(&format!("0{low}"), at)?));
        rest = left;
    }
    pieces.reverse();
    Ok(pieces)
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
