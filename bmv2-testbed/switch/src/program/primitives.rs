//! Primitive calls of the JSON compiled to `action`'s primitives.

use std::collections::BTreeMap;

use super::expressions::{Compiler, cut};
use super::headers::{Content, Reference};
use super::objects::Objects;
use super::{FieldListIndex, LoadError, json};
use crate::action::{ElementAssignment, HashCall, LogCall, Primitive};
use crate::expression::{Binary, Cond, Expr, HeaderRef};
use crate::header::Stack;
use crate::phv::Field;

/// What one call becomes: nearly always one primitive; a field over 128 bits takes several.
pub(super) fn compile(
    objects: &Objects<'_>,
    compiler: Compiler<'_>,
    primitive: &json::Primitive,
) -> Result<Vec<Primitive>, LoadError> {
    let call = Call {
        objects,
        compiler,
        primitive,
    };
    match primitive.op.as_str() {
        "assign" | "modify_field" => call.assign(),
        _ => Ok(vec![call.compile()?]),
    }
}

/// One primitive call on its way through the compiler.
struct Call<'a> {
    objects: &'a Objects<'a>,
    compiler: Compiler<'a>,
    primitive: &'a json::Primitive,
}

impl Call<'_> {
    fn compile(&self) -> Result<Primitive, LoadError> {
        Ok(match self.primitive.op.as_str() {
            "assign_VL" => self.copy_varbit()?,
            "assign_header" | "copy_header" => self.copy_header()?,
            "assign_union" => Primitive::CopyUnion {
                to: self.compiler.union_members(self.parameter(0)?)?,
                from: self.compiler.union_members(self.parameter(1)?)?,
            },
            "assign_header_stack" | "assign_union_stack" => {
                Primitive::CopyStack(Box::new((self.stack(1)?.clone(), self.stack(0)?.clone())))
            }
            "push" => Primitive::Push(Box::new((self.stack(0)?.clone(), self.number(1)?))),
            "pop" => Primitive::Pop(Box::new((self.stack(0)?.clone(), self.number(1)?))),
            "add_header" => Primitive::AddHeader(self.header(0)?),
            "remove_header" => Primitive::RemoveHeader(self.header(0)?),
            "mark_to_drop" | "drop" => self.mark_to_drop()?,
            "add"
            | "subtract"
            | "bit_and"
            | "bit_or"
            | "bit_xor"
            | "shift_left"
            | "shift_right"
            | "add_to_field"
            | "subtract_from_field" => self.arithmetic()?,
            "_jump" => Primitive::Jump { to: self.goal(0)? },
            "_jump_if_zero" => Primitive::JumpUnless {
                cond: Cond::NonZero(self.number(0)?),
                to: self.goal(1)?,
            },
            "exit" => Primitive::Exit,
            "no_op" => Primitive::Nothing,
            "log_msg" => self.log()?,
            "assert" | "assume" => Primitive::Assert(self.compiler.truth(self.parameter(0)?)?),
            _ => self.array_or_request()?,
        })
    }

    fn array_or_request(&self) -> Result<Primitive, LoadError> {
        let objects = self.objects;
        Ok(match self.primitive.op.as_str() {
            "modify_field_with_hash_based_offset" => self.hash()?,
            "count" => Primitive::Count {
                array: *self.object(0, "counter array", &objects.counters)?,
                cell: self.number(1)?,
            },
            "execute_meter" => Primitive::Meter {
                array: *self.object(0, "meter array", &objects.meters)?,
                cell: self.number(1)?,
                to: self.field(2)?,
            },
            "register_read" => Primitive::ReadRegister {
                to: self.field(0)?,
                array: *self.object(1, "register array", &objects.registers)?,
                cell: self.number(2)?,
            },
            "register_write" => Primitive::WriteRegister {
                array: *self.object(0, "register array", &objects.registers)?,
                cell: self.number(1)?,
                value: self.number(2)?,
            },
            "modify_field_rng_uniform" => Primitive::Random {
                to: self.field(0)?,
                low: self.number(1)?,
                high: self.number(2)?,
            },
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => Primitive::Clone {
                session: self.number(0)?,
                keep: self.list(1)?,
            },
            "generate_digest" => {
                let id = self.constant(1)?;
                Primitive::Digest(objects.learn_list(id, self.compiler.at)?)
            }
            // List 0 is how simple_switch says "not at all".
            "resubmit" => self
                .list(0)?
                .map_or(Primitive::Nothing, Primitive::Resubmit),
            "recirculate" => self
                .list(0)?
                .map_or(Primitive::Nothing, Primitive::Recirculate),
            "truncate" => Primitive::Truncate(self.number(0)?),
            op => {
                let construct = format!("primitive {op}");
                return Err(LoadError::unsupported(construct, self.compiler.at));
            }
        })
    }

    fn assign(&self) -> Result<Vec<Primitive>, LoadError> {
        let (to, from) = (self.parameter(0)?, self.parameter(1)?);
        if to.kind == "field" {
            return match self
                .objects
                .headers
                .reference(&to.value, self.compiler.at)?
            {
                Reference::Content(Content::Wide(pieces)) => {
                    let values = self.compiler.wide(from, &pieces)?;
                    let pairs = pieces.into_iter().zip(values);
                    Ok(pairs
                        .map(|(to, value)| Primitive::Assign(to, value))
                        .collect())
                }
                _ => {
                    let to = self.field(0)?;
                    Ok(vec![Primitive::Assign(to, cut(self.number(1)?, to.bits))])
                }
            };
        }
        let (index, fields) = self.compiler.element(to)?;
        let value = self.number(1)?;
        Ok(vec![match (&index, &*fields) {
            (Expr::Const(0), [only]) => Primitive::Assign(*only, value),
            _ => Primitive::AssignElement(Box::new(ElementAssignment {
                index,
                fields,
                value,
            })),
        }])
    }

    fn copy_varbit(&self) -> Result<Primitive, LoadError> {
        Ok(Primitive::CopyVarbit {
            to: self.compiler.varbit(self.parameter(0)?)?,
            from: self.compiler.varbit(self.parameter(1)?)?,
        })
    }

    fn copy_header(&self) -> Result<Primitive, LoadError> {
        let (to, from) = (self.header(0)?, self.header(1)?);
        if self.size(&to) != self.size(&from) {
            let problem = "headers of two types are copied";
            return Err(LoadError::malformed(problem, self.compiler.at));
        }
        Ok(Primitive::CopyHeader { from, to })
    }

    fn size(&self, header: &HeaderRef) -> usize {
        let first = match header {
            HeaderRef::Fixed(header) => Some(*header),
            HeaderRef::Indexed(of) => of.1.first().copied(),
        };
        first.map_or(0, |header| {
            self.objects.headers.layouts[header.0 as usize]
                .slots()
                .count()
        })
    }

    fn mark_to_drop(&self) -> Result<Primitive, LoadError> {
        let (headers, at) = (self.objects.headers, self.compiler.at);
        Ok(Primitive::MarkToDrop {
            egress_spec: headers.field("standard_metadata", "egress_spec", at)?,
            multicast: headers.field("standard_metadata", "mcast_grp", at).ok(),
        })
    }

    /// The arithmetic primitives of P4_14.
    fn arithmetic(&self) -> Result<Primitive, LoadError> {
        let op = match self.primitive.op.as_str() {
            "add" | "add_to_field" => Binary::Add,
            "subtract" | "subtract_from_field" => Binary::Subtract,
            "bit_and" => Binary::And,
            "bit_or" => Binary::Or,
            "bit_xor" => Binary::Xor,
            "shift_left" => Binary::ShiftLeft,
            _ => Binary::ShiftRight,
        };
        let operands = match self.primitive.parameters.len() {
            2 => (self.number(0)?, self.number(1)?),
            _ => (self.number(1)?, self.number(2)?),
        };
        Ok(Primitive::Assign(
            self.field(0)?,
            Expr::Binary(op, Box::new(operands)),
        ))
    }

    fn hash(&self) -> Result<Primitive, LoadError> {
        let calculation = self.object(2, "calculation", &self.objects.calculations)?;
        Ok(Primitive::Hash(Box::new(HashCall {
            to: self.field(0)?,
            base: self.number(1)?,
            calculation: calculation.clone(),
            size: self.number(3)?,
        })))
    }

    fn log(&self) -> Result<Primitive, LoadError> {
        let format = self.parameter(0)?.value.as_str().unwrap_or("").to_owned();
        let values = self
            .parameter(1)?
            .value
            .as_array()
            .cloned()
            .unwrap_or_default();
        let value = |value: serde_json::Value| {
            let typed = serde_json::from_value(value);
            let typed = typed.map_err(|error| {
                LoadError::malformed(format!("log_msg: {error}"), self.compiler.at)
            })?;
            self.compiler.number(&typed)
        };
        let values = values.into_iter().map(value).collect::<Result<_, _>>()?;
        Ok(Primitive::Log(Box::new(LogCall { format, values })))
    }

    fn goal(&self, at: usize) -> Result<usize, LoadError> {
        self.constant(at).map(|goal| goal as usize)
    }

    fn list(&self, at: usize) -> Result<Option<FieldListIndex>, LoadError> {
        match self.constant(at)? {
            0 => Ok(None),
            id => self.objects.field_list(id, self.compiler.at).map(Some),
        }
    }

    fn constant(&self, at: usize) -> Result<u32, LoadError> {
        match self.number(at)? {
            Expr::Const(value) => u32::try_from(value).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            let problem = format!("parameter {at} of {} is no constant", self.primitive.op);
            LoadError::malformed(problem, self.compiler.at)
        })
    }

    fn number(&self, at: usize) -> Result<Expr, LoadError> {
        self.compiler.number(self.parameter(at)?)
    }

    fn field(&self, at: usize) -> Result<Field, LoadError> {
        let typed = self.parameter(at)?;
        match typed.kind.as_str() {
            "field" => self.objects.headers.target(&typed.value, self.compiler.at),
            kind => {
                let construct = format!("{} to a {kind}", self.primitive.op);
                Err(LoadError::unsupported(construct, self.compiler.at))
            }
        }
    }

    fn header(&self, at: usize) -> Result<HeaderRef, LoadError> {
        self.compiler.header(self.parameter(at)?)
    }

    fn stack(&self, at: usize) -> Result<&Stack, LoadError> {
        let name = self.parameter(at)?.value.as_str().unwrap_or("");
        self.objects.headers.groups.stack(name, self.compiler.at)
    }

    fn object<'t, T>(
        &self,
        at: usize,
        what: &'static str,
        objects: &'t BTreeMap<&str, T>,
    ) -> Result<&'t T, LoadError> {
        let name = self.parameter(at)?.value.as_str().unwrap_or("");
        objects
            .get(name)
            .ok_or_else(|| LoadError::missing(what, name, self.compiler.at))
    }

    fn parameter(&self, at: usize) -> Result<&json::Typed, LoadError> {
        self.primitive.parameters.get(at).ok_or_else(|| {
            let problem = format!("{} lacks parameter {at}", self.primitive.op);
            LoadError::malformed(problem, self.compiler.at)
        })
    }
}
