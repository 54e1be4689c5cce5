//! The parser of the JSON compiled to `parser`'s states.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::expressions::{Compiler, number};
use super::headers::{Content, Reference, plain};
use super::objects::Objects;
use super::{LoadError, Next, ValueSetIndex, ValueSetSpec, json};
use crate::expression::Expr;
use crate::parser::{
    Case, Destination, ErrorCodes, Extraction, KeyPart, Operation, Parser, Source, State, Test,
};

/// Compiles one parser.
pub(super) fn parser(
    declared: &json::Parser,
    errors: &[(String, u32)],
    objects: &Objects<'_>,
) -> Result<Parser, LoadError> {
    let names = declared.parse_states.iter().enumerate();
    let numbers = names
        .map(|(at, state)| (state.name.as_str(), at as u32))
        .collect();
    let states = declared.parse_states.iter().map(|state| {
        let compiler = Compiler {
            headers: objects.headers,
            parameters: &[],
            at: &state.name,
        };
        StateCompiler {
            objects,
            compiler,
            numbers: &numbers,
        }
        .state(state)
    });
    Ok(Parser {
        states: states.collect::<Result<_, _>>()?,
        start: next(&declared.init_state, &numbers, &declared.name)?,
        errors: error_codes(errors),
    })
}

/// The value sets of a program; the parts of a member are those of the key that uses the set.
pub(super) fn value_sets(root: &json::Root, parser: &Parser) -> Vec<ValueSetSpec> {
    let cases = |state: &State, set: ValueSetIndex| {
        let uses = |case: &Case| matches!(case.test, Test::InSet { set: used, .. } if used == set);
        state.cases.iter().any(uses)
    };
    let spec = |(number, declared): (usize, &json::ValueSet)| {
        let set = ValueSetIndex(number as u32);
        let user = parser.states.iter().find(|state| cases(state, set));
        ValueSetSpec {
            name: declared.name.clone(),
            size: declared.max_size,
            bits: user.map_or(Vec::new(), |state| {
                state.key.iter().map(KeyPart::bits).collect()
            }),
        }
    };
    root.parse_vsets.iter().enumerate().map(spec).collect()
}

/// Errors a program does not declare cannot be told apart by it; they get a number of their own.
fn error_codes(declared: &[(String, u32)]) -> ErrorCodes {
    const UNDECLARED: u32 = i32::MAX as u32;
    let code = |name: &str| {
        declared
            .iter()
            .find(|error| error.0 == name)
            .map(|error| error.1)
    };
    ErrorCodes {
        none: code("NoError").unwrap_or(0),
        packet_too_short: code("PacketTooShort").unwrap_or(UNDECLARED),
        parser_timeout: code("ParserTimeout").unwrap_or(UNDECLARED),
        invalid_argument: code("ParserInvalidArgument").unwrap_or(UNDECLARED),
        stack_out_of_bounds: code("StackOutOfBounds").unwrap_or(UNDECLARED),
        header_too_short: code("HeaderTooShort").unwrap_or(UNDECLARED),
    }
}

fn next(name: &Option<String>, numbers: &BTreeMap<&str, u32>, at: &str) -> Result<Next, LoadError> {
    let Some(name) = name else { return Ok(None) };
    match numbers.get(name.as_str()) {
        Some(number) => Ok(Some(*number)),
        None => Err(LoadError::missing("parser state", name, at)),
    }
}

struct StateCompiler<'a> {
    objects: &'a Objects<'a>,
    compiler: Compiler<'a>,
    numbers: &'a BTreeMap<&'a str, u32>,
}

impl StateCompiler<'_> {
    fn state(&self, declared: &json::ParseState) -> Result<State, LoadError> {
        let key: Vec<KeyPart> = declared
            .transition_key
            .iter()
            .map(|part| self.key_part(part))
            .collect::<Result<_, _>>()?;
        let bits: u32 = key.iter().map(|part| part.bits().next_multiple_of(8)).sum();
        if bits > 128 {
            return Err(LoadError::unsupported(
                format!("select on {bits} bits"),
                self.at(),
            ));
        }
        let operations = declared.parser_ops.iter().map(|op| self.operation(op));
        let mut state = State {
            operations: operations.collect::<Result<_, _>>()?,
            key,
            cases: Vec::new(),
            default: None,
        };
        for transition in &declared.transitions {
            let next = next(&transition.next_state, self.numbers, self.at())?;
            match (transition.kind.as_deref(), &transition.value) {
                (Some("default") | None, None) => {
                    // Cases after a default are never reached.
                    state.default = next;
                    break;
                }
                (Some("hexstr") | None, Some(value)) => {
                    let mask = self.mask(transition)?;
                    let value = number(value, self.at())? as u128 & mask;
                    state.cases.push(Case {
                        test: Test::Masked { value, mask },
                        next,
                    });
                }
                (Some("parse_vset"), Some(name)) => {
                    let set = self.objects.value_sets.get(name.as_str());
                    let set =
                        set.ok_or_else(|| LoadError::missing("value set", name, self.at()))?;
                    let set = ValueSetIndex(*set as u32);
                    let mask = self.mask(transition)?;
                    state.cases.push(Case {
                        test: Test::InSet { set, mask },
                        next,
                    });
                }
                (kind, _) => {
                    let construct = format!("transition of type {}", kind.unwrap_or("default"));
                    return Err(LoadError::unsupported(construct, self.at()));
                }
            }
        }
        Ok(state)
    }

    fn mask(&self, transition: &json::Transition) -> Result<u128, LoadError> {
        match &transition.mask {
            Some(mask) => Ok(number(mask, self.at())? as u128),
            None => Ok(u128::MAX),
        }
    }

    fn key_part(&self, part: &json::Typed) -> Result<KeyPart, LoadError> {
        match part.kind.as_str() {
            "field" => match self.objects.headers.reference(&part.value, self.at())? {
                Reference::Content(content) => {
                    let field = plain(&content, &part.value.to_string(), self.at())?;
                    Ok(KeyPart::Field(field.slot, field.bits))
                }
                _ => Err(LoadError::unsupported("select on $valid$", self.at())),
            },
            "stack_field" => {
                let (stack, field) = super::headers::pair(&part.value, self.at())?;
                let stack = self.objects.headers.groups.stack(stack, self.at())?;
                let elements: Vec<_> = stack.elements.iter().flatten().copied().collect();
                let (last, bits) = self.compiler.last_of(stack.index, &elements, field)?;
                Ok(KeyPart::Computed(last, bits))
            }
            "union_stack_field" => self.last_union_field(&part.value),
            "lookahead" => {
                let (offset, bits) = self.lookahead(&part.value)?;
                Ok(KeyPart::Lookahead { offset, bits })
            }
            kind => Err(LoadError::unsupported(
                format!("select on a {kind}"),
                self.at(),
            )),
        }
    }

    /// A field of one member of the last union of a stack.
    fn last_union_field(&self, value: &Value) -> Result<KeyPart, LoadError> {
        let names = <(String, String, String)>::deserialize(value);
        let (stack, member, field) =
            names.map_err(|error| LoadError::malformed(error.to_string(), self.at()))?;
        let headers = self.objects.headers;
        let number = headers.groups.member(&stack, &member, self.at())?;
        let stack = headers.groups.stack(&stack, self.at())?;
        let members: Vec<_> = stack
            .elements
            .iter()
            .map(|element| element[number])
            .collect();
        let (last, bits) = self.compiler.last_of(stack.index, &members, &field)?;
        Ok(KeyPart::Computed(last, bits))
    }

    fn lookahead(&self, value: &Value) -> Result<(usize, u32), LoadError> {
        let pair = <(u32, u32)>::deserialize(value);
        match pair.map_err(|error| LoadError::malformed(error.to_string(), self.at()))? {
            (offset, bits @ 1..=128) => Ok((offset as usize, bits)),
            (_, bits) => Err(LoadError::unsupported(
                format!("lookahead of {bits} bits"),
                self.at(),
            )),
        }
    }

    fn operation(&self, declared: &json::ParserOp) -> Result<Operation, LoadError> {
        match declared.op.as_str() {
            "extract" => self.extract(&self.parameter(declared, 0)?, None),
            "extract_VL" => {
                let bits = self.compiler.number(&self.parameter(declared, 1)?)?;
                self.extract(&self.parameter(declared, 0)?, Some(bits))
            }
            "set" if self.is_wide(declared)? => {
                let (op, parameters) = ("assign".to_owned(), declared.parameters.clone());
                let parameters = parameters.into_iter().map(serde_json::from_value);
                let parameters = parameters.collect::<Result<_, _>>();
                let parameters = parameters
                    .map_err(|error| LoadError::malformed(error.to_string(), self.at()))?;
                let assign = json::Primitive { op, parameters };
                Ok(Operation::Primitive(self.objects.body(
                    &[assign],
                    &[],
                    self.at(),
                )?))
            }
            "set" => {
                let target: json::Typed = self.parameter(declared, 0)?;
                let field = self.objects.headers.target(&target.value, self.at())?;
                Ok(Operation::Set(
                    field,
                    self.source(&self.parameter(declared, 1)?)?,
                ))
            }
            "verify" => {
                let cond = self.compiler.truth(&self.parameter(declared, 0)?)?;
                Ok(Operation::Verify(
                    cond,
                    self.compiler.number(&self.parameter(declared, 1)?)?,
                ))
            }
            "advance" => Ok(Operation::Advance(
                self.compiler.number(&self.parameter(declared, 0)?)?,
            )),
            "shift" => {
                let bytes = declared.parameters.first().and_then(Value::as_u64);
                let bytes =
                    bytes.ok_or_else(|| LoadError::malformed("shift by what", self.at()))?;
                Ok(Operation::Advance(Expr::Const(i128::from(bytes) * 8)))
            }
            "primitive" => {
                let primitive: json::Primitive = self.parameter(declared, 0)?;
                let action = self.objects.body(&[primitive], &[], self.at())?;
                Ok(Operation::Primitive(action))
            }
            op => Err(LoadError::unsupported(
                format!("parser operation {op}"),
                self.at(),
            )),
        }
    }

    /// Whether an operation writes to a field of more than 128 bits.
    fn is_wide(&self, declared: &json::ParserOp) -> Result<bool, LoadError> {
        let target: json::Typed = self.parameter(declared, 0)?;
        let reference = self.objects.headers.reference(&target.value, self.at())?;
        Ok(matches!(reference, Reference::Content(Content::Wide(_))))
    }

    fn extract(
        &self,
        what: &json::Typed,
        variable_bits: Option<Expr>,
    ) -> Result<Operation, LoadError> {
        let headers = self.objects.headers;
        let to = match (what.kind.as_str(), what.value.as_str()) {
            ("regular", Some(name)) => Destination::Header(headers.header(name, self.at())?.index),
            ("stack", Some(name)) => {
                let stack = headers.groups.stack(name, self.at())?.clone();
                Destination::Stack { stack, member: 0 }
            }
            ("union_stack", _) => {
                let (name, member) = super::headers::pair(&what.value, self.at())?;
                let member = headers.groups.member(name, member, self.at())?;
                let stack = headers.groups.stack(name, self.at())?.clone();
                Destination::Stack { stack, member }
            }
            (kind, _) => {
                let construct = format!("extract to a {kind}");
                return Err(LoadError::unsupported(construct, self.at()));
            }
        };
        Ok(match (to, variable_bits) {
            (Destination::Header(header), None) => Operation::Extract(header),
            (to, variable_bits) => Operation::ExtractTo(Box::new(Extraction { to, variable_bits })),
        })
    }

    fn source(&self, typed: &json::Typed) -> Result<Source, LoadError> {
        if typed.kind == "lookahead" {
            let (offset, bits) = self.lookahead(&typed.value)?;
            return Ok(Source::Lookahead { offset, bits });
        }
        self.compiler.number(typed).map(Source::Expr)
    }

    fn parameter<T: serde::de::DeserializeOwned>(
        &self,
        declared: &json::ParserOp,
        at: usize,
    ) -> Result<T, LoadError> {
        let value = declared.parameters.get(at).cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| {
            LoadError::malformed(format!("parameter of {}: {error}", declared.op), self.at())
        })
    }

    fn at(&self) -> &str {
        self.compiler.at
    }
}
