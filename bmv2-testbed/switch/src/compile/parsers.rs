//! The parser of the JSON compiled to `parser`'s states.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::expressions::{ExprCompiler, parse_hex};
use super::headers::{FieldContent, FieldReference, require_plain};
use super::objects::ProgramObjects;
use super::{LoadError, json};
use crate::ids::ValueSetIndex;
use crate::run::expression::NumberExpr;
use crate::run::parser::{
    ExtractionTarget, HeaderExtraction, Parser, ParserErrorCodes, ParserOperation, ParserState,
    SelectCase, SelectKeyPart, SelectMatch, ValueSource, WideLookahead,
};
use crate::spec::{NextNode, ValueSetSpec};

/// Compiles one parser.
pub(super) fn compile_parser(
    declared: &json::ParserDecl,
    errors: &[(String, u32)],
    objects: &ProgramObjects<'_>,
) -> Result<Parser, LoadError> {
    let names = declared.parse_states.iter().enumerate();
    let numbers = names.map(|(at, state)| (state.name.as_str(), at as u32)).collect();
    let states = declared.parse_states.iter().map(|state| {
        let compiler = ExprCompiler { headers: objects.headers, parameters: &[], at: &state.name };
        StateCompiler { objects, compiler, numbers: &numbers }.compile_state(state)
    });
    Ok(Parser {
        states: states.collect::<Result<_, _>>()?,
        start: next_state(&declared.init_state, &numbers, &declared.name)?,
        errors: error_codes(errors),
    })
}

/// The value sets of a program; the parts of a member are those of the key that uses the set.
pub(super) fn value_set_specs(root: &json::ProgramDocument, parser: &Parser) -> Vec<ValueSetSpec> {
    root.parse_vsets
        .iter()
        .enumerate()
        .map(|(number, declared)| {
            let set = ValueSetIndex(number as u32);
            let user = parser.states.iter().find(|state| uses_value_set(state, set));
            ValueSetSpec {
                name: declared.name.clone(),
                size: declared.max_size,
                bits: user.map_or(Vec::new(), |state| {
                    state.key.iter().map(SelectKeyPart::bits).collect()
                }),
            }
        })
        .collect()
}

fn uses_value_set(state: &ParserState, set: ValueSetIndex) -> bool {
    state
        .cases
        .iter()
        .any(|case| matches!(case.select, SelectMatch::InSet { set: used, .. } if used == set))
}

/// A program cannot distinguish errors that it does not declare; they share a number of their own.
fn error_codes(declared: &[(String, u32)]) -> ParserErrorCodes {
    const UNDECLARED: u32 = i32::MAX as u32;
    let code = |name: &str| declared.iter().find(|error| error.0 == name).map(|error| error.1);
    ParserErrorCodes {
        none: code("NoError").unwrap_or(0),
        packet_too_short: code("PacketTooShort").unwrap_or(UNDECLARED),
        parser_timeout: code("ParserTimeout").unwrap_or(UNDECLARED),
        invalid_argument: code("ParserInvalidArgument").unwrap_or(UNDECLARED),
        stack_out_of_bounds: code("StackOutOfBounds").unwrap_or(UNDECLARED),
        header_too_short: code("HeaderTooShort").unwrap_or(UNDECLARED),
    }
}

fn next_state(
    name: &Option<String>,
    numbers: &BTreeMap<&str, u32>,
    at: &str,
) -> Result<NextNode, LoadError> {
    let Some(name) = name else { return Ok(None) };
    match numbers.get(name.as_str()) {
        Some(number) => Ok(Some(*number)),
        None => Err(LoadError::missing("parser state", name, at)),
    }
}

struct StateCompiler<'a> {
    objects: &'a ProgramObjects<'a>,
    compiler: ExprCompiler<'a>,
    numbers: &'a BTreeMap<&'a str, u32>,
}

impl StateCompiler<'_> {
    fn compile_state(&self, declared: &json::ParseStateDecl) -> Result<ParserState, LoadError> {
        let key: Vec<SelectKeyPart> = declared
            .transition_key
            .iter()
            .map(|part| self.compile_key_part(part))
            .collect::<Result<_, _>>()?;
        let bits: u32 = key.iter().map(|part| part.bits().next_multiple_of(8)).sum();
        if bits > 128 {
            return Err(LoadError::unsupported(format!("select on {bits} bits"), self.location()));
        }
        let mut operations = Vec::new();
        for operation in &declared.parser_ops {
            // p4c of 2017 wrote such assignments. The field is read-only: bmv2 loads them, and
            // headers stay as they are.
            if !self.sets_validity(operation)? {
                operations.push(self.compile_operation(operation)?);
            }
        }
        let mut state = ParserState { operations, key, cases: Vec::new(), default: None };
        for transition in &declared.transitions {
            let next = next_state(&transition.next_state, self.numbers, self.location())?;
            match (transition.kind.as_deref(), transition.value.as_deref()) {
                // Older compilers write no type, and the value "default".
                (Some("default"), _) | (None, None | Some("default")) => {
                    // Cases after a default are never reached.
                    state.default = next;
                    break;
                }
                (Some("hexstr") | None, Some(value)) => {
                    let mask = self.transition_mask(transition)?;
                    let value = parse_hex(value, self.location())? as u128 & mask;
                    state
                        .cases
                        .push(SelectCase { select: SelectMatch::Masked { value, mask }, next });
                }
                (Some("parse_vset"), Some(name)) => {
                    let set = self.objects.value_sets.get(name);
                    let set =
                        set.ok_or_else(|| LoadError::missing("value set", name, self.location()))?;
                    let set = ValueSetIndex(*set as u32);
                    let mask = self.transition_mask(transition)?;
                    state.cases.push(SelectCase { select: SelectMatch::InSet { set, mask }, next });
                }
                (kind, _) => {
                    let construct = format!("transition of type {}", kind.unwrap_or("default"));
                    return Err(LoadError::unsupported(construct, self.location()));
                }
            }
        }
        Ok(state)
    }

    fn transition_mask(&self, transition: &json::TransitionDecl) -> Result<u128, LoadError> {
        match &transition.mask {
            Some(mask) => Ok(parse_hex(mask, self.location())? as u128),
            None => Ok(u128::MAX),
        }
    }

    fn compile_key_part(&self, part: &json::TypedValue) -> Result<SelectKeyPart, LoadError> {
        match part.kind.as_str() {
            "field" => match self.objects.headers.resolve_field(&part.value, self.location())? {
                FieldReference::Content(content) => {
                    let field = require_plain(&content, &part.value.to_string(), self.location())?;
                    Ok(SelectKeyPart::Field(field.slot, field.bits))
                }
                _ => Err(LoadError::unsupported("select on $valid$", self.location())),
            },
            "stack_field" => {
                let (stack, field) = super::headers::field_names(&part.value, self.location())?;
                let stack = self.objects.headers.groups.find_stack(stack, self.location())?;
                let elements: Vec<_> = stack.elements.iter().flatten().copied().collect();
                let (last, bits) = self.compiler.field_of_last(stack.index, &elements, field)?;
                Ok(SelectKeyPart::Computed(last, bits))
            }
            "union_stack_field" => self.last_union_field(&part.value),
            "lookahead" => {
                let (offset, bits) = self.lookahead_range(&part.value)?;
                Ok(SelectKeyPart::Lookahead { offset, bits })
            }
            kind => Err(LoadError::unsupported(format!("select on a {kind}"), self.location())),
        }
    }

    /// A field of one member of the last union of a stack.
    fn last_union_field(&self, value: &Value) -> Result<SelectKeyPart, LoadError> {
        let names = <(String, String, String)>::deserialize(value);
        let (stack, member, field) =
            names.map_err(|error| LoadError::malformed(error.to_string(), self.location()))?;
        let headers = self.objects.headers;
        let number = headers.groups.member_position(&stack, &member, self.location())?;
        let stack = headers.groups.find_stack(&stack, self.location())?;
        let members: Vec<_> = stack.elements.iter().map(|element| element[number]).collect();
        let (last, bits) = self.compiler.field_of_last(stack.index, &members, &field)?;
        Ok(SelectKeyPart::Computed(last, bits))
    }

    fn offset_and_width(&self, value: &Value) -> Result<(usize, u32), LoadError> {
        let (offset, bits) = <(u32, u32)>::deserialize(value)
            .map_err(|error| LoadError::malformed(error.to_string(), self.location()))?;
        Ok((offset as usize, bits))
    }

    fn lookahead_range(&self, value: &Value) -> Result<(usize, u32), LoadError> {
        match self.offset_and_width(value)? {
            (offset, bits @ 1..=128) => Ok((offset, bits)),
            (_, bits) => {
                Err(LoadError::unsupported(format!("lookahead of {bits} bits"), self.location()))
            }
        }
    }

    fn compile_operation(
        &self,
        declared: &json::ParserOpDecl,
    ) -> Result<ParserOperation, LoadError> {
        match declared.op.as_str() {
            "extract" => self.compile_extract(&self.read_parameter(declared, 0)?, None),
            "extract_VL" => {
                let bits = self.compiler.compile_number(&self.read_parameter(declared, 1)?)?;
                self.compile_extract(&self.read_parameter(declared, 0)?, Some(bits))
            }
            "set" if self.writes_wide_field(declared)? => self.compile_wide_set(declared),
            "set" => {
                let target: json::TypedValue = self.read_parameter(declared, 0)?;
                let field = self.objects.headers.writable_field(&target.value, self.location())?;
                Ok(ParserOperation::Set(
                    field,
                    self.value_source(&self.read_parameter(declared, 1)?)?,
                ))
            }
            "verify" => {
                let cond = self.compiler.compile_condition(&self.read_parameter(declared, 0)?)?;
                Ok(ParserOperation::Verify(
                    cond,
                    self.compiler.compile_number(&self.read_parameter(declared, 1)?)?,
                ))
            }
            "advance" => Ok(ParserOperation::Advance(
                self.compiler.compile_number(&self.read_parameter(declared, 0)?)?,
            )),
            "shift" => {
                let bytes = declared.parameters.first().and_then(Value::as_u64);
                let bytes =
                    bytes.ok_or_else(|| LoadError::malformed("shift by what", self.location()))?;
                Ok(ParserOperation::Advance(NumberExpr::Const(i128::from(bytes) * 8)))
            }
            "primitive" => {
                let primitive: json::PrimitiveDecl = self.read_parameter(declared, 0)?;
                let action = self.objects.compile_body(&[primitive], &[], self.location())?;
                Ok(ParserOperation::Primitive(action))
            }
            op => Err(LoadError::unsupported(format!("parser operation {op}"), self.location())),
        }
    }

    /// An assignment to a field of more than 128 bits.
    fn compile_wide_set(
        &self,
        declared: &json::ParserOpDecl,
    ) -> Result<ParserOperation, LoadError> {
        let value: json::TypedValue = self.read_parameter(declared, 1)?;
        if value.kind == "lookahead" {
            return self.compile_wide_lookahead(declared, &value);
        }
        let (op, parameters) = ("assign".to_owned(), declared.parameters.clone());
        let parameters = parameters.into_iter().map(serde_json::from_value);
        let parameters = parameters
            .collect::<Result<_, _>>()
            .map_err(|error| LoadError::malformed(error.to_string(), self.location()))?;
        let assign = json::PrimitiveDecl { op, parameters };
        let body = self.objects.compile_body(&[assign], &[], self.location())?;
        Ok(ParserOperation::Primitive(body))
    }

    fn compile_wide_lookahead(
        &self,
        declared: &json::ParserOpDecl,
        value: &json::TypedValue,
    ) -> Result<ParserOperation, LoadError> {
        let target: json::TypedValue = self.read_parameter(declared, 0)?;
        let reference = self.objects.headers.resolve_field(&target.value, self.location())?;
        let (offset, bits) = self.offset_and_width(&value.value)?;
        let FieldReference::Content(FieldContent::Wide(pieces)) = reference else {
            return Err(LoadError::malformed("lookahead to no field", self.location()));
        };
        if pieces.iter().map(|piece| piece.bits).sum::<u32>() != bits {
            let problem = format!("lookahead of {bits} bits into a field of another width");
            return Err(LoadError::malformed(problem, self.location()));
        }
        Ok(ParserOperation::SetWide(WideLookahead { offset, bits, pieces }))
    }

    /// Whether an operation assigns to the hidden field `$valid$` of a header.
    fn sets_validity(&self, declared: &json::ParserOpDecl) -> Result<bool, LoadError> {
        if declared.op != "set" {
            return Ok(false);
        }
        let target: json::TypedValue = self.read_parameter(declared, 0)?;
        let reference = self.objects.headers.resolve_field(&target.value, self.location())?;
        Ok(!matches!(reference, FieldReference::Content(_)))
    }

    /// Whether an operation writes to a field of more than 128 bits.
    fn writes_wide_field(&self, declared: &json::ParserOpDecl) -> Result<bool, LoadError> {
        let target: json::TypedValue = self.read_parameter(declared, 0)?;
        let reference = self.objects.headers.resolve_field(&target.value, self.location())?;
        Ok(matches!(reference, FieldReference::Content(FieldContent::Wide(_))))
    }

    fn compile_extract(
        &self,
        what: &json::TypedValue,
        variable_bits: Option<NumberExpr>,
    ) -> Result<ParserOperation, LoadError> {
        let headers = self.objects.headers;
        let to = match (what.kind.as_str(), what.value.as_str()) {
            ("regular", Some(name)) => {
                ExtractionTarget::Header(headers.find_header(name, self.location())?.index)
            }
            ("stack", Some(name)) => {
                let stack = headers.groups.find_stack(name, self.location())?.clone();
                ExtractionTarget::Stack { stack, member: 0 }
            }
            ("union_stack", _) => {
                let (name, member) = super::headers::field_names(&what.value, self.location())?;
                let member = headers.groups.member_position(name, member, self.location())?;
                let stack = headers.groups.find_stack(name, self.location())?.clone();
                ExtractionTarget::Stack { stack, member }
            }
            (kind, _) => {
                let construct = format!("extract to a {kind}");
                return Err(LoadError::unsupported(construct, self.location()));
            }
        };
        Ok(match (to, variable_bits) {
            (ExtractionTarget::Header(header), None) => ParserOperation::Extract(header),
            (to, variable_bits) => {
                ParserOperation::ExtractTo(Box::new(HeaderExtraction { to, variable_bits }))
            }
        })
    }

    fn value_source(&self, typed: &json::TypedValue) -> Result<ValueSource, LoadError> {
        if typed.kind == "lookahead" {
            let (offset, bits) = self.lookahead_range(&typed.value)?;
            return Ok(ValueSource::Lookahead { offset, bits });
        }
        self.compiler.compile_number(typed).map(ValueSource::Expr)
    }

    fn read_parameter<T: serde::de::DeserializeOwned>(
        &self,
        declared: &json::ParserOpDecl,
        at: usize,
    ) -> Result<T, LoadError> {
        let value = declared.parameters.get(at).cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| {
            LoadError::malformed(format!("parameter of {}: {error}", declared.op), self.location())
        })
    }

    fn location(&self) -> &str {
        self.compiler.at
    }
}
