//! What primitives and control flow refer to by name or id: calculations, arrays, lists of fields.

use std::collections::BTreeMap;

use super::expressions::parse_unsigned_hex;
use super::headers::{FieldContent, FieldReference, HeaderCatalog};
use super::{LoadError, json};
use crate::ids::{FieldListIndex, LearnListIndex, PhvSlot};
use crate::run::hash::{HashAlgorithm, HashCalculation, HashInput};
use crate::spec::LearnList;

/// The objects of a program besides its headers.
pub(super) struct ProgramObjects<'a> {
    pub(super) headers: &'a HeaderCatalog,
    pub(super) calculations: BTreeMap<&'a str, HashCalculation>,
    /// Numbers of the indirect counter arrays, in the JSON's order.
    pub(super) counters: BTreeMap<&'a str, usize>,
    /// Numbers of the indirect meter arrays, likewise.
    pub(super) meters: BTreeMap<&'a str, usize>,
    pub(super) registers: BTreeMap<&'a str, usize>,
    pub(super) value_sets: BTreeMap<&'a str, usize>,
    /// Numbers of the learn lists and field lists by their ids.
    learn_ids: BTreeMap<u32, LearnListIndex>,
    field_list_ids: BTreeMap<u32, FieldListIndex>,
}

impl<'a> ProgramObjects<'a> {
    /// Resolves the calculations and numbers everything else.
    pub(super) fn resolve_objects(
        root: &'a json::ProgramDocument,
        headers: &'a HeaderCatalog,
    ) -> Result<Self, LoadError> {
        let mut calculations = BTreeMap::new();
        for declared in &root.calculations {
            let resolved =
                compile_calculation(&declared.algo, &declared.input, &declared.name, headers)?;
            calculations.insert(declared.name.as_str(), resolved);
        }
        let counters = root.counter_arrays.iter().filter(|array| !array.is_direct);
        let meters = root.meter_arrays.iter().filter(|array| !array.is_direct);
        let learn_ids = root.learn_lists.iter().enumerate();
        let field_list_ids = root.field_lists.iter().enumerate();
        Ok(Self {
            headers,
            calculations,
            counters: number_by_name(counters.map(|array| &array.name)),
            meters: number_by_name(meters.map(|array| &array.name)),
            registers: number_by_name(root.register_arrays.iter().map(|array| &array.name)),
            value_sets: number_by_name(root.parse_vsets.iter().map(|set| &set.name)),
            learn_ids: learn_ids.map(|(at, list)| (list.id, LearnListIndex(at as u32))).collect(),
            field_list_ids: field_list_ids
                .map(|(at, list)| (list.id, FieldListIndex(at as u32)))
                .collect(),
        })
    }

    /// The learn list with this id.
    pub(super) fn learn_list_index(&self, id: u32, at: &str) -> Result<LearnListIndex, LoadError> {
        let found = self.learn_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("learn list", &id.to_string(), at))
    }

    /// The field list with this id.
    pub(super) fn field_list_index(&self, id: u32, at: &str) -> Result<FieldListIndex, LoadError> {
        let found = self.field_list_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("field list", &id.to_string(), at))
    }

    /// What digests carry.
    pub(super) fn learn_lists(
        &self,
        root: &json::ProgramDocument,
    ) -> Result<Vec<LearnList>, LoadError> {
        root.learn_lists.iter().map(|declared| self.learn_list(declared)).collect()
    }

    fn learn_list(&self, declared: &json::FieldListDecl) -> Result<LearnList, LoadError> {
        let fields = declared.elements.iter().map(|element| match element.kind.as_str() {
            "field" => self.headers.writable_field(&element.value, &declared.name),
            kind => Err(unsupported_element(kind, &declared.name)),
        });
        Ok(LearnList { name: declared.name.clone(), fields: fields.collect::<Result<_, _>>()? })
    }

    /// The fields that copies of a packet keep; constants in such a list have no effect.
    pub(super) fn field_lists(
        &self,
        root: &json::ProgramDocument,
    ) -> Result<Vec<Vec<PhvSlot>>, LoadError> {
        root.field_lists.iter().map(|declared| self.field_list(declared)).collect()
    }

    fn field_list(&self, declared: &json::FieldListDecl) -> Result<Vec<PhvSlot>, LoadError> {
        let mut slots = Vec::new();
        for element in &declared.elements {
            match element.kind.as_str() {
                "field" => slots.extend(self.field_slots(&element.value, &declared.name)?),
                "hexstr" => {}
                kind => return Err(unsupported_element(kind, &declared.name)),
            }
        }
        Ok(slots)
    }

    fn field_slots(&self, field: &serde_json::Value, at: &str) -> Result<Vec<PhvSlot>, LoadError> {
        match self.headers.resolve_field(field, at)? {
            FieldReference::Content(FieldContent::Plain(field)) => Ok(vec![field.slot]),
            FieldReference::Content(FieldContent::Wide(pieces)) => {
                Ok(pieces.iter().map(|piece| piece.slot).collect())
            }
            _ => Err(unsupported_element("validity or varbit", at)),
        }
    }
}

fn unsupported_element(kind: &str, at: &str) -> LoadError {
    LoadError::unsupported(format!("a {kind} in a field list"), at)
}

fn number_by_name<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    names.enumerate().map(|(at, name)| (name.as_str(), at)).collect()
}

/// An algorithm with its inputs.
pub(super) fn compile_calculation(
    algorithm: &str,
    inputs: &[json::TypedValue],
    at: &str,
    headers: &HeaderCatalog,
) -> Result<HashCalculation, LoadError> {
    let found = HashAlgorithm::from_name(algorithm);
    let algorithm =
        found.ok_or_else(|| LoadError::unsupported(format!("hash algorithm {algorithm}"), at))?;
    let mut compiled = Vec::new();
    for declared in inputs {
        compiled.extend(hash_inputs(declared, at, headers)?);
    }
    Ok(HashCalculation::new(algorithm, compiled))
}

fn hash_inputs(
    declared: &json::TypedValue,
    at: &str,
    headers: &HeaderCatalog,
) -> Result<Vec<HashInput>, LoadError> {
    let text = declared.value.as_str().unwrap_or("");
    match (declared.kind.as_str(), declared.bitwidth) {
        ("field", _) => match headers.resolve_field(&declared.value, at)? {
            FieldReference::Content(content) => {
                let (header, _) = super::headers::field_names(&declared.value, at)?;
                Ok(content_inputs(&content, headers.find_header(header, at)?.index))
            }
            _ => Err(LoadError::unsupported("hash input $valid$", at)),
        },
        ("header", _) => {
            let header = headers.find_header(text, at)?;
            let fields = header.fields.iter();
            Ok(fields.flat_map(|content| content_inputs(content, header.index)).collect())
        }
        ("hexstr", Some(bits @ 0..=128)) => {
            let value = parse_unsigned_hex(text, bits, at)?;
            Ok(vec![HashInput::Const { value, bits }])
        }
        ("payload", _) => Ok(vec![HashInput::Payload]),
        (kind, _) => Err(LoadError::unsupported(format!("hash input of type {kind}"), at)),
    }
}

fn content_inputs(content: &FieldContent, header: crate::ids::HeaderIndex) -> Vec<HashInput> {
    match content {
        FieldContent::Plain(field) => vec![HashInput::Field(*field)],
        FieldContent::Wide(pieces) => pieces.iter().copied().map(HashInput::Field).collect(),
        FieldContent::Variable(varbit) => vec![HashInput::Varbit { varbit: *varbit, header }],
    }
}
