//! Primitive calls of the JSON compiled to `action`'s primitives.

use std::collections::BTreeMap;

use super::expressions::{ExprCompiler, strip_masks};
use super::headers::{FieldContent, FieldReference};
use super::objects::ProgramObjects;
use super::{LoadError, json};
use crate::ids::FieldListIndex;
use crate::run::action::{ActionPrimitive, ElementAssignment, HashCall, LogCall};
use crate::run::expression::{BinaryOp, BoolExpr, HeaderRef, NumberExpr};
use crate::run::header::HeaderStack;
use crate::spec::FieldRef;

/// What one call becomes: nearly always one primitive; a field over 128 bits takes several.
pub(super) fn compile_primitive(
    objects: &ProgramObjects<'_>,
    compiler: ExprCompiler<'_>,
    primitive: &json::PrimitiveDecl,
) -> Result<Vec<ActionPrimitive>, LoadError> {
    let call = PrimitiveCall { objects, compiler, primitive };
    match primitive.op.as_str() {
        "assign" | "modify_field" => call.compile_assign(),
        _ => Ok(vec![call.compile_single()?]),
    }
}

/// One primitive call on its way through the compiler.
struct PrimitiveCall<'a> {
    objects: &'a ProgramObjects<'a>,
    compiler: ExprCompiler<'a>,
    primitive: &'a json::PrimitiveDecl,
}

impl PrimitiveCall<'_> {
    fn compile_single(&self) -> Result<ActionPrimitive, LoadError> {
        Ok(match self.primitive.op.as_str() {
            "assign_VL" => self.copy_varbit()?,
            "assign_header" | "copy_header" => self.copy_header()?,
            "assign_union" => ActionPrimitive::CopyUnion {
                to: self.compiler.union_members(self.parameter(0)?)?,
                from: self.compiler.union_members(self.parameter(1)?)?,
            },
            "assign_header_stack" | "assign_union_stack" => ActionPrimitive::CopyStack(Box::new((
                self.stack_operand(1)?.clone(),
                self.stack_operand(0)?.clone(),
            ))),
            "push" => ActionPrimitive::Push(Box::new((
                self.stack_operand(0)?.clone(),
                self.number_operand(1)?,
            ))),
            "pop" => ActionPrimitive::Pop(Box::new((
                self.stack_operand(0)?.clone(),
                self.number_operand(1)?,
            ))),
            "add_header" => ActionPrimitive::AddHeader(self.header_operand(0)?),
            "remove_header" => ActionPrimitive::RemoveHeader(self.header_operand(0)?),
            "mark_to_drop" => {
                let header = self.dropped_header()?;
                self.compile_drop(header, header)?
            }
            "drop" => self.compile_drop("standard_metadata", "intrinsic_metadata")?,
            "add"
            | "subtract"
            | "bit_and"
            | "bit_or"
            | "bit_xor"
            | "shift_left"
            | "shift_right"
            | "add_to_field"
            | "subtract_from_field" => self.compile_arithmetic()?,
            "_jump" => ActionPrimitive::Jump { to: self.jump_target(0)? },
            "_jump_if_zero" => ActionPrimitive::JumpUnless {
                cond: BoolExpr::is_nonzero(self.number_operand(0)?),
                to: self.jump_target(1)?,
            },
            "exit" => ActionPrimitive::Exit,
            "no_op" => ActionPrimitive::Nothing,
            "log_msg" => self.compile_log()?,
            "assert" | "assume" => {
                ActionPrimitive::Assert(self.compiler.compile_condition(self.parameter(0)?)?)
            }
            _ => self.compile_array_or_request()?,
        })
    }

    fn compile_array_or_request(&self) -> Result<ActionPrimitive, LoadError> {
        let objects = self.objects;
        Ok(match self.primitive.op.as_str() {
            "modify_field_with_hash_based_offset" => self.compile_hash()?,
            "count" => ActionPrimitive::Count {
                array: *self.named_object(0, "counter array", &objects.counters)?,
                cell: self.number_operand(1)?,
            },
            "execute_meter" => ActionPrimitive::Meter {
                array: *self.named_object(0, "meter array", &objects.meters)?,
                cell: self.number_operand(1)?,
                to: self.field_operand(2)?,
            },
            "register_read" => ActionPrimitive::ReadRegister {
                to: self.field_operand(0)?,
                array: *self.named_object(1, "register array", &objects.registers)?,
                cell: self.number_operand(2)?,
            },
            "register_write" => ActionPrimitive::WriteRegister {
                array: *self.named_object(0, "register array", &objects.registers)?,
                cell: self.number_operand(1)?,
                value: self.number_operand(2)?,
            },
            "modify_field_rng_uniform" => ActionPrimitive::Random {
                to: self.field_operand(0)?,
                low: self.number_operand(1)?,
                high: self.number_operand(2)?,
            },
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => {
                ActionPrimitive::Clone {
                    session: self.number_operand(0)?,
                    keep: self.field_list(1)?,
                }
            }
            "generate_digest" => {
                let id = self.constant_operand(1)?;
                ActionPrimitive::Digest(objects.learn_list_index(id, self.compiler.at)?)
            }
            // List 0 is how simple_switch says "not at all".
            "resubmit" => {
                self.field_list(0)?.map_or(ActionPrimitive::Nothing, ActionPrimitive::Resubmit)
            }
            "recirculate" => {
                self.field_list(0)?.map_or(ActionPrimitive::Nothing, ActionPrimitive::Recirculate)
            }
            "truncate" => ActionPrimitive::Truncate(self.number_operand(0)?),
            op => {
                let construct = format!("primitive {op}");
                return Err(LoadError::unsupported(construct, self.compiler.at));
            }
        })
    }

    fn compile_assign(&self) -> Result<Vec<ActionPrimitive>, LoadError> {
        let (to, from) = (self.parameter(0)?, self.parameter(1)?);
        if to.kind == "field" {
            return match self.objects.headers.resolve_field(&to.value, self.compiler.at)? {
                FieldReference::Content(FieldContent::Wide(pieces)) => {
                    let values = self.compiler.compile_wide(from, &pieces)?;
                    let pairs = pieces.into_iter().zip(values);
                    Ok(pairs.map(|(to, value)| ActionPrimitive::assignment(to, value)).collect())
                }
                _ => {
                    let to = self.field_operand(0)?;
                    Ok(vec![ActionPrimitive::assignment(
                        to,
                        strip_masks(self.number_operand(1)?, to.bits),
                    )])
                }
            };
        }
        let (index, fields) = self.compiler.assigned_element(to)?;
        let value = self.number_operand(1)?;
        Ok(vec![match (&index, &*fields) {
            (NumberExpr::Const(0), [only]) => ActionPrimitive::assignment(*only, value),
            _ => {
                ActionPrimitive::AssignElement(Box::new(ElementAssignment { index, fields, value }))
            }
        }])
    }

    fn copy_varbit(&self) -> Result<ActionPrimitive, LoadError> {
        Ok(ActionPrimitive::CopyVarbit {
            to: self.compiler.varbit_index(self.parameter(0)?)?,
            from: self.compiler.varbit_index(self.parameter(1)?)?,
        })
    }

    fn copy_header(&self) -> Result<ActionPrimitive, LoadError> {
        let (to, from) = (self.header_operand(0)?, self.header_operand(1)?);
        if self.slot_count(&to) != self.slot_count(&from) {
            let problem = "headers of two types are copied";
            return Err(LoadError::malformed(problem, self.compiler.at));
        }
        Ok(ActionPrimitive::CopyHeader { from, to })
    }

    fn slot_count(&self, header: &HeaderRef) -> usize {
        let first = match header {
            HeaderRef::Fixed(header) => Some(*header),
            HeaderRef::Indexed(of) => of.1.first().copied(),
        };
        first.map_or(0, |header| self.objects.headers.layouts[header.0 as usize].slots().count())
    }

    /// The header that `mark_to_drop` writes to. p4c passes a copy of `standard_metadata` where an
    /// action has an `inout` parameter, and copies it back afterwards.
    fn dropped_header(&self) -> Result<&str, LoadError> {
        let header = match self.primitive.parameters.first() {
            None => return Ok("standard_metadata"),
            Some(typed) if typed.kind == "header" => typed.value.as_str(),
            Some(_) => None,
        };
        header.ok_or_else(|| {
            let problem = "the parameter of mark_to_drop is not a header";
            LoadError::malformed(problem, self.compiler.at)
        })
    }

    /// Sets `egress_spec` of one header and, where there is one, `mcast_grp` of another.
    fn compile_drop(&self, port: &str, group: &str) -> Result<ActionPrimitive, LoadError> {
        let (headers, at) = (self.objects.headers, self.compiler.at);
        Ok(ActionPrimitive::MarkToDrop {
            egress_spec: headers.plain_field(port, "egress_spec", at)?,
            multicast: headers.plain_field(group, "mcast_grp", at).ok(),
        })
    }

    /// The arithmetic primitives of P4_14.
    fn compile_arithmetic(&self) -> Result<ActionPrimitive, LoadError> {
        let op = match self.primitive.op.as_str() {
            "add" | "add_to_field" => BinaryOp::Add,
            "subtract" | "subtract_from_field" => BinaryOp::Subtract,
            "bit_and" => BinaryOp::And,
            "bit_or" => BinaryOp::Or,
            "bit_xor" => BinaryOp::Xor,
            "shift_left" => BinaryOp::ShiftLeft,
            _ => BinaryOp::ShiftRight,
        };
        let operands = match self.primitive.parameters.len() {
            2 => (self.number_operand(0)?, self.number_operand(1)?),
            _ => (self.number_operand(1)?, self.number_operand(2)?),
        };
        Ok(ActionPrimitive::assignment(
            self.field_operand(0)?,
            NumberExpr::Binary(op, Box::new(operands)),
        ))
    }

    fn compile_hash(&self) -> Result<ActionPrimitive, LoadError> {
        let calculation = self.named_object(2, "calculation", &self.objects.calculations)?;
        Ok(ActionPrimitive::Hash(Box::new(HashCall {
            to: self.field_operand(0)?,
            base: self.number_operand(1)?,
            calculation: calculation.clone(),
            size: self.number_operand(3)?,
        })))
    }

    fn compile_log(&self) -> Result<ActionPrimitive, LoadError> {
        let format = self.parameter(0)?.value.as_str().unwrap_or("").to_owned();
        let values = self.parameter(1)?.value.as_array().cloned().unwrap_or_default();
        let values = values
            .into_iter()
            .map(|value| {
                let typed = serde_json::from_value(value);
                let typed = typed.map_err(|error| {
                    LoadError::malformed(format!("log_msg: {error}"), self.compiler.at)
                })?;
                self.compiler.compile_number(&typed)
            })
            .collect::<Result<_, _>>()?;
        Ok(ActionPrimitive::Log(Box::new(LogCall { format, values })))
    }

    fn jump_target(&self, at: usize) -> Result<usize, LoadError> {
        self.constant_operand(at).map(|goal| goal as usize)
    }

    fn field_list(&self, at: usize) -> Result<Option<FieldListIndex>, LoadError> {
        match self.constant_operand(at)? {
            0 => Ok(None),
            id => self.objects.field_list_index(id, self.compiler.at).map(Some),
        }
    }

    fn constant_operand(&self, at: usize) -> Result<u32, LoadError> {
        match self.number_operand(at)? {
            NumberExpr::Const(value) => u32::try_from(value).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            let problem = format!("parameter {at} of {} is not a constant", self.primitive.op);
            LoadError::malformed(problem, self.compiler.at)
        })
    }

    fn number_operand(&self, at: usize) -> Result<NumberExpr, LoadError> {
        self.compiler.compile_number(self.parameter(at)?)
    }

    fn field_operand(&self, at: usize) -> Result<FieldRef, LoadError> {
        let typed = self.parameter(at)?;
        match typed.kind.as_str() {
            "field" => self.objects.headers.writable_field(&typed.value, self.compiler.at),
            kind => {
                let construct = format!("{} to a {kind}", self.primitive.op);
                Err(LoadError::unsupported(construct, self.compiler.at))
            }
        }
    }

    fn header_operand(&self, at: usize) -> Result<HeaderRef, LoadError> {
        self.compiler.header_ref(self.parameter(at)?)
    }

    fn stack_operand(&self, at: usize) -> Result<&HeaderStack, LoadError> {
        let name = self.parameter(at)?.value.as_str().unwrap_or("");
        self.objects.headers.groups.find_stack(name, self.compiler.at)
    }

    fn named_object<'t, T>(
        &self,
        at: usize,
        what: &'static str,
        objects: &'t BTreeMap<&str, T>,
    ) -> Result<&'t T, LoadError> {
        let name = self.parameter(at)?.value.as_str().unwrap_or("");
        objects.get(name).ok_or_else(|| LoadError::missing(what, name, self.compiler.at))
    }

    fn parameter(&self, at: usize) -> Result<&json::TypedValue, LoadError> {
        self.primitive.parameters.get(at).ok_or_else(|| {
            let problem = format!("parameter {at} of {} is missing", self.primitive.op);
            LoadError::malformed(problem, self.compiler.at)
        })
    }
}
