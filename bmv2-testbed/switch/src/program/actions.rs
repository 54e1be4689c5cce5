//! Actions and checksums of the JSON compiled to what `action` runs.

use super::expressions::Compiler;
use super::objects::Objects;
use super::{ActionSpec, LoadError, Parameter, json, primitives};
use crate::action::{Action, Primitive};
use crate::deparser::Checksum;

impl Objects<'_> {
    /// An action's body.
    pub(super) fn action(&self, declared: &json::Action) -> Result<Action, LoadError> {
        let parameters: Vec<u32> = declared.runtime_data.iter().map(|p| p.bitwidth).collect();
        self.body(&declared.primitives, &parameters, &declared.name)
    }

    /// A list of primitives, wherever it stands. A primitive that becomes several moves the goals
    /// of the jumps over it.
    pub(super) fn body(
        &self,
        declared: &[json::Primitive],
        parameters: &[u32],
        at: &str,
    ) -> Result<Action, LoadError> {
        let compiler = Compiler {
            headers: self.headers,
            parameters,
            at,
        };
        let mut starts = Vec::with_capacity(declared.len() + 1);
        let mut primitives = Vec::new();
        for primitive in declared {
            starts.push(primitives.len());
            primitives.extend(primitives::compile(self, compiler, primitive)?);
        }
        starts.push(primitives.len());
        for primitive in &mut primitives {
            if let Primitive::Jump { to } | Primitive::JumpUnless { to, .. } = primitive {
                let start = starts.get(*to);
                *to = *start.ok_or_else(|| LoadError::malformed("a jump to nowhere", at))?;
            }
        }
        Ok(Action { primitives })
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
        let condition = declared.if_cond.as_ref().map(|cond| compiler.truth(cond));
        Ok(Checksum {
            field: self.headers.field(header, field, at)?,
            calculation: calculation
                .ok_or_else(|| LoadError::missing("calculation", &declared.calculation, at))?
                .clone(),
            condition: condition.transpose()?,
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
    let parameters = declared.runtime_data.iter().map(parameter);
    Ok(ActionSpec {
        name: declared.name.clone(),
        parameters: parameters.collect::<Result<_, _>>()?,
    })
}
