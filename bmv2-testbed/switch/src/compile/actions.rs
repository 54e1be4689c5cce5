//! Actions and checksums of the JSON compiled to what `action` runs.

use super::expressions::ExprCompiler;
use super::objects::ProgramObjects;
use super::{LoadError, json, primitives};
use crate::run::action::{ActionPrimitive, CompiledAction};
use crate::run::deparser::ChecksumField;
use crate::spec::{ActionParameter, ActionSpec};

impl ProgramObjects<'_> {
    /// An action's body.
    pub(super) fn compile_action(
        &self,
        declared: &json::ActionDecl,
    ) -> Result<CompiledAction, LoadError> {
        let parameters: Vec<u32> = declared.runtime_data.iter().map(|p| p.bitwidth).collect();
        self.compile_body(&declared.primitives, &parameters, &declared.name)
    }

    /// A list of primitives, wherever it stands. A primitive that becomes several moves the goals
    /// of the jumps over it.
    pub(super) fn compile_body(
        &self,
        declared: &[json::PrimitiveDecl],
        parameters: &[u32],
        at: &str,
    ) -> Result<CompiledAction, LoadError> {
        let compiler = ExprCompiler { headers: self.headers, parameters, at };
        let mut starts = Vec::with_capacity(declared.len() + 1);
        let mut primitives = Vec::new();
        for primitive in declared {
            starts.push(primitives.len());
            primitives.extend(primitives::compile_primitive(self, compiler, primitive)?);
        }
        starts.push(primitives.len());
        for primitive in &mut primitives {
            if let ActionPrimitive::Jump { to } | ActionPrimitive::JumpUnless { to, .. } = primitive
            {
                let start = starts.get(*to);
                *to = *start.ok_or_else(|| LoadError::malformed("a jump to nowhere", at))?;
            }
        }
        Ok(CompiledAction { primitives: primitives.into() })
    }

    /// A checksum with its condition.
    pub(super) fn compile_checksum(
        &self,
        declared: &json::ChecksumDecl,
    ) -> Result<ChecksumField, LoadError> {
        let at = &declared.name;
        let (header, field) = &declared.target;
        let calculation = self.calculations.get(declared.calculation.as_str());
        let compiler = ExprCompiler { headers: self.headers, parameters: &[], at };
        let condition = declared.if_cond.as_ref().map(|cond| compiler.compile_condition(cond));
        Ok(ChecksumField {
            field: self.headers.plain_field(header, field, at)?,
            calculation: calculation
                .ok_or_else(|| LoadError::missing("calculation", &declared.calculation, at))?
                .clone(),
            condition: condition.transpose()?,
        })
    }
}

/// An action as the control plane sees it.
pub(super) fn action_spec(declared: &json::ActionDecl) -> Result<ActionSpec, LoadError> {
    let parameters = declared.runtime_data.iter().map(|data| match data.bitwidth {
        bits @ 1..=128 => Ok(ActionParameter { name: data.name.clone(), bits }),
        bits => {
            let at = format!("{}.{}", declared.name, data.name);
            Err(LoadError::unsupported(format!("parameter of {bits} bits"), &at))
        }
    });
    Ok(ActionSpec {
        name: declared.name.clone(),
        parameters: parameters.collect::<Result<_, _>>()?,
    })
}
