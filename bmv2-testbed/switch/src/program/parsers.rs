//! The parser of the JSON compiled to `parser`'s states.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::actions::Objects;
use super::expressions::{Compiler, number};
use super::headers::Reference;
use super::{LoadError, Next, json};
use crate::expression::Expr;
use crate::parser::{Case, ErrorCodes, KeyPart, Operation, Parser, Source, State};

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
                    state.cases.push(self.case(value, &transition.mask, next)?);
                }
                (kind, _) => {
                    let construct = format!("transition of type {}", kind.unwrap_or("default"));
                    return Err(LoadError::unsupported(construct, self.at()));
                }
            }
        }
        Ok(state)
    }

    fn case(&self, value: &str, mask: &Option<String>, next: Next) -> Result<Case, LoadError> {
        let mask = match mask {
            Some(mask) => number(mask, self.at())? as u128,
            None => u128::MAX,
        };
        Ok(Case {
            value: number(value, self.at())? as u128 & mask,
            mask,
            next,
        })
    }

    fn key_part(&self, part: &json::Typed) -> Result<KeyPart, LoadError> {
        match part.kind.as_str() {
            "field" => match self.objects.headers.reference(&part.value, self.at())? {
                Reference::Field(field) => Ok(KeyPart::Field(field.slot, field.bits)),
                Reference::Valid(_) => Err(LoadError::unsupported("select on $valid$", self.at())),
            },
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
            "extract" => self.extract(&self.typed(declared, 0)?),
            "set" => {
                let target = self.typed(declared, 0)?;
                let field = self.objects.headers.target(&target.value, self.at())?;
                Ok(Operation::Set(
                    field,
                    self.source(&self.typed(declared, 1)?)?,
                ))
            }
            "verify" => {
                let cond = self.compiler.truth(&self.typed(declared, 0)?)?;
                Ok(Operation::Verify(
                    cond,
                    self.compiler.number(&self.typed(declared, 1)?)?,
                ))
            }
            "advance" => Ok(Operation::Advance(
                self.compiler.number(&self.typed(declared, 0)?)?,
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

    fn extract(&self, what: &json::Typed) -> Result<Operation, LoadError> {
        match (what.kind.as_str(), what.value.as_str()) {
            ("regular", Some(name)) => {
                let header = self.objects.headers.header(name, self.at())?;
                Ok(Operation::Extract(header.layout.clone()))
            }
            (kind, _) => Err(LoadError::unsupported(
                format!("extract to a {kind}"),
                self.at(),
            )),
        }
    }

    fn source(&self, typed: &json::Typed) -> Result<Source, LoadError> {
        if typed.kind == "lookahead" {
            let (offset, bits) = self.lookahead(&typed.value)?;
            return Ok(Source::Lookahead { offset, bits });
        }
        self.compiler.number(typed).map(Source::Expr)
    }

    fn typed(&self, declared: &json::ParserOp, at: usize) -> Result<json::Typed, LoadError> {
        self.parameter(declared, at)
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
