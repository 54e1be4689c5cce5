//! Actions, calculations and checksums of the JSON compiled to what `action` and `hash` run.

use std::collections::BTreeMap;

use super::expressions::{Compiler, unsigned};
use super::headers::{Header, Headers};
use super::{ActionSpec, LoadError, Parameter, json};
use crate::action::{Action, Primitive};
use crate::deparser::Checksum;
use crate::expression::{Cond, Expr};
use crate::hash::{Algorithm, Calculation, Input};

/// What primitives refer to by name.
pub(super) struct Objects<'a> {
    pub(super) headers: &'a Headers,
    pub(super) calculations: BTreeMap<&'a str, Calculation>,
    /// Numbers of the indirect counter arrays.
    pub(super) counters: BTreeMap<&'a str, usize>,
}

impl<'a> Objects<'a> {
    /// Resolves the calculations; counters are numbered in the JSON's order.
    pub(super) fn resolve(root: &'a json::Root, headers: &'a Headers) -> Result<Self, LoadError> {
        let mut calculations = BTreeMap::new();
        for declared in &root.calculations {
            let resolved = calculation(&declared.algo, &declared.input, &declared.name, headers)?;
            calculations.insert(declared.name.as_str(), resolved);
        }
        let indirect = root.counter_arrays.iter().filter(|array| !array.is_direct);
        let counters = indirect
            .enumerate()
            .map(|(at, array)| (array.name.as_str(), at))
            .collect();
        Ok(Self {
            headers,
            calculations,
            counters,
        })
    }

    /// An action's body.
    pub(super) fn action(&self, declared: &json::Action) -> Result<Action, LoadError> {
        let parameters: Vec<u32> = declared.runtime_data.iter().map(|p| p.bitwidth).collect();
        self.body(&declared.primitives, &parameters, &declared.name)
    }

    /// A list of primitives, wherever it stands.
    pub(super) fn body(
        &self,
        primitives: &[json::Primitive],
        parameters: &[u32],
        at: &str,
    ) -> Result<Action, LoadError> {
        let compiler = Compiler {
            headers: self.headers,
            parameters,
            at,
        };
        let mut action = Action::default();
        for (number, primitive) in primitives.iter().enumerate() {
            let call = Call {
                objects: self,
                compiler,
                primitive,
            };
            let compiled = call.compile()?;
            if let Primitive::Jump { to } | Primitive::JumpUnless { to, .. } = compiled
                && to <= number
            {
                return Err(LoadError::malformed("a jump backwards", at));
            }
            action.primitives.push(compiled);
        }
        Ok(action)
    }

    /// A checksum with its condition.
    pub(super) fn checksum(&self, declared: &json::Checksum) -> Result<Checksum, LoadError> {
        let at = &declared.name;
        let (header, field) = &declared.target;
        let calculation = self.calculations.get(declared.calculation.as_str());
        let compiler = Compiler {
            headers: self.headers,
            parameters: &[],
            at,
        };
        Ok(Checksum {
            field: self.headers.field(header, field, at)?,
            calculation: calculation
                .ok_or_else(|| LoadError::missing("calculation", &declared.calculation, at))?
                .clone(),
            condition: declared
                .if_cond
                .as_ref()
                .map(|cond| compiler.truth(cond))
                .transpose()?,
        })
    }
}

/// An action as the control plane sees it.
pub(super) fn action_spec(declared: &json::Action) -> Result<ActionSpec, LoadError> {
    let parameter = |data: &json::RuntimeData| match data.bitwidth {
        bits @ 1..=128 => Ok(Parameter {
            name: data.name.clone(),
            bits,
        }),
        bits => {
            let at = format!("{}.{}", declared.name, data.name);
            Err(LoadError::unsupported(
                format!("parameter of {bits} bits"),
                &at,
            ))
        }
    };
    let parameters = declared
        .runtime_data
        .iter()
        .map(parameter)
        .collect::<Result<_, _>>()?;
    Ok(ActionSpec {
        name: declared.name.clone(),
        parameters,
    })
}

/// An algorithm with its inputs.
pub(super) fn calculation(
    algorithm: &str,
    inputs: &[json::Typed],
    at: &str,
    headers: &Headers,
) -> Result<Calculation, LoadError> {
    let found = Algorithm::named(algorithm);
    let algorithm =
        found.ok_or_else(|| LoadError::unsupported(format!("hash algorithm {algorithm}"), at))?;
    let mut calculation = Calculation {
        algorithm,
        inputs: Vec::new(),
    };
    for input in inputs {
        let text = input.value.as_str().unwrap_or("");
        match (input.kind.as_str(), input.bitwidth) {
            ("field", _) => {
                calculation
                    .inputs
                    .push(Input::Field(headers.target(&input.value, at)?));
            }
            ("header", _) => {
                let fields = &headers.header(text, at)?.fields;
                calculation
                    .inputs
                    .extend(fields.iter().copied().map(Input::Field));
            }
            ("hexstr", Some(bits @ 0..=128)) => {
                let value = unsigned(text, bits, at)?;
                calculation.inputs.push(Input::Const { value, bits });
            }
            ("payload", _) => calculation.inputs.push(Input::Payload),
            (kind, _) => {
                return Err(LoadError::unsupported(
                    format!("hash input of type {kind}"),
                    at,
                ));
            }
        }
    }
    Ok(calculation)
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
            "assign" | "modify_field" => self.assign()?,
            "assign_header" | "copy_header" => self.copy_header()?,
            "add_header" => {
                let Header { layout, fields, .. } = self.header(0)?;
                let (header, bytes) = (layout.header, layout.bytes as u32);
                Primitive::AddHeader {
                    header,
                    bytes,
                    fields: fields.clone(),
                }
            }
            "remove_header" => {
                let layout = &self.header(0)?.layout;
                Primitive::RemoveHeader {
                    header: layout.header,
                    bytes: layout.bytes as u32,
                }
            }
            "mark_to_drop" | "drop" => self.mark_to_drop()?,
            "modify_field_with_hash_based_offset" => self.hash()?,
            "count" => {
                let array = self.object(0, "counter array", &self.objects.counters)?;
                Primitive::Count {
                    array: *array,
                    cell: self.number(1)?,
                }
            }
            "_jump" => Primitive::Jump { to: self.jump(0)? },
            "_jump_if_zero" => Primitive::JumpUnless {
                cond: Cond::NonZero(self.number(0)?),
                to: self.jump(1)?,
            },
            "exit" => Primitive::Exit,
            op => {
                return Err(LoadError::unsupported(
                    format!("primitive {op}"),
                    self.compiler.at,
                ));
            }
        })
    }

    fn assign(&self) -> Result<Primitive, LoadError> {
        let target = self.parameter(0)?;
        if target.kind != "field" {
            let construct = format!("assignment to a {}", target.kind);
            return Err(LoadError::unsupported(construct, self.compiler.at));
        }
        let field = self
            .objects
            .headers
            .target(&target.value, self.compiler.at)?;
        Ok(Primitive::Assign(field, self.number(1)?))
    }

    fn copy_header(&self) -> Result<Primitive, LoadError> {
        let (to, from) = (self.header(0)?, self.header(1)?);
        if from.fields.len() != to.fields.len() {
            return Err(LoadError::malformed(
                "headers of two types are copied",
                self.compiler.at,
            ));
        }
        let fields = from
            .fields
            .iter()
            .copied()
            .zip(to.fields.iter().copied())
            .collect();
        Ok(Primitive::CopyHeader {
            from: from.layout.header,
            to: to.layout.header,
            fields,
        })
    }

    fn mark_to_drop(&self) -> Result<Primitive, LoadError> {
        let (headers, at) = (self.objects.headers, self.compiler.at);
        let egress_spec = headers.field("standard_metadata", "egress_spec", at)?;
        let multicast = headers.field("standard_metadata", "mcast_grp", at).ok();
        Ok(Primitive::MarkToDrop {
            egress_spec,
            multicast,
        })
    }

    fn hash(&self) -> Result<Primitive, LoadError> {
        let to = self
            .objects
            .headers
            .target(&self.parameter(0)?.value, self.compiler.at)?;
        let calculation = self
            .object(2, "calculation", &self.objects.calculations)?
            .clone();
        Ok(Primitive::Hash {
            to,
            base: self.number(1)?,
            calculation,
            size: self.number(3)?,
        })
    }

    fn jump(&self, at: usize) -> Result<usize, LoadError> {
        match self.number(at)? {
            Expr::Const(to) => usize::try_from(to).ok(),
            _ => None,
        }
        .ok_or_else(|| LoadError::malformed("a jump to nowhere", self.compiler.at))
    }

    fn number(&self, at: usize) -> Result<Expr, LoadError> {
        self.compiler.number(self.parameter(at)?)
    }

    fn header(&self, at: usize) -> Result<&Header, LoadError> {
        let typed = self.parameter(at)?;
        match (typed.kind.as_str(), typed.value.as_str()) {
            ("header", Some(name)) => self.objects.headers.header(name, self.compiler.at),
            (kind, _) => {
                let construct = format!("{} of a {kind}", self.primitive.op);
                Err(LoadError::unsupported(construct, self.compiler.at))
            }
        }
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
