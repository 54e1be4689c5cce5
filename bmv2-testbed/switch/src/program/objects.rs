//! What primitives and control flow refer to by name or id: calculations, arrays, lists of fields.

use std::collections::BTreeMap;

use super::expressions::unsigned;
use super::headers::{Content, Headers, Reference};
use super::{FieldListIndex, LearnList, LearnListIndex, LoadError, json};
use crate::hash::{Algorithm, Calculation, Input};
use crate::phv::{Field, Slot};

/// The objects of a program besides its headers.
pub(super) struct Objects<'a> {
    pub(super) headers: &'a Headers,
    pub(super) calculations: BTreeMap<&'a str, Calculation>,
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

impl<'a> Objects<'a> {
    /// Resolves the calculations and numbers everything else.
    pub(super) fn resolve(root: &'a json::Root, headers: &'a Headers) -> Result<Self, LoadError> {
        let mut calculations = BTreeMap::new();
        for declared in &root.calculations {
            let resolved = calculation(&declared.algo, &declared.input, &declared.name, headers)?;
            calculations.insert(declared.name.as_str(), resolved);
        }
        let counters = root.counter_arrays.iter().filter(|array| !array.is_direct);
        let meters = root.meter_arrays.iter().filter(|array| !array.is_direct);
        let learn_ids = root.learn_lists.iter().enumerate();
        let field_list_ids = root.field_lists.iter().enumerate();
        Ok(Self {
            headers,
            calculations,
            counters: numbered(counters.map(|array| &array.name)),
            meters: numbered(meters.map(|array| &array.name)),
            registers: numbered(root.register_arrays.iter().map(|array| &array.name)),
            value_sets: numbered(root.parse_vsets.iter().map(|set| &set.name)),
            learn_ids: learn_ids
                .map(|(at, list)| (list.id, LearnListIndex(at as u32)))
                .collect(),
            field_list_ids: field_list_ids
                .map(|(at, list)| (list.id, FieldListIndex(at as u32)))
                .collect(),
        })
    }

    /// The learn list with this id.
    pub(super) fn learn_list(&self, id: u32, at: &str) -> Result<LearnListIndex, LoadError> {
        let found = self.learn_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("learn list", &id.to_string(), at))
    }

    /// The field list with this id.
    pub(super) fn field_list(&self, id: u32, at: &str) -> Result<FieldListIndex, LoadError> {
        let found = self.field_list_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("field list", &id.to_string(), at))
    }

    /// What digests carry.
    pub(super) fn learn_lists(&self, root: &json::Root) -> Result<Vec<LearnList>, LoadError> {
        let list = |declared: &json::FieldList| {
            let elements = declared.elements.iter();
            let fields = elements.map(|element| match element.kind.as_str() {
                "field" => self.headers.target(&element.value, &declared.name),
                kind => Err(unsupported_element(kind, &declared.name)),
            });
            let fields: Vec<Field> = fields.collect::<Result<_, _>>()?;
            Ok(LearnList {
                name: declared.name.clone(),
                fields,
            })
        };
        root.learn_lists.iter().map(list).collect()
    }

    /// What copies of a packet keep; constants in such a list say nothing.
    pub(super) fn field_lists(&self, root: &json::Root) -> Result<Vec<Vec<Slot>>, LoadError> {
        let list = |declared: &json::FieldList| {
            let mut slots = Vec::new();
            for element in &declared.elements {
                match element.kind.as_str() {
                    "field" => slots.extend(self.slots(&element.value, &declared.name)?),
                    "hexstr" => {}
                    kind => return Err(unsupported_element(kind, &declared.name)),
                }
            }
            Ok(slots)
        };
        root.field_lists.iter().map(list).collect()
    }

    fn slots(&self, field: &serde_json::Value, at: &str) -> Result<Vec<Slot>, LoadError> {
        match self.headers.reference(field, at)? {
            Reference::Content(Content::Plain(field)) => Ok(vec![field.slot]),
            Reference::Content(Content::Wide(pieces)) => {
                Ok(pieces.iter().map(|piece| piece.slot).collect())
            }
            _ => Err(unsupported_element("validity or varbit", at)),
        }
    }
}

fn unsupported_element(kind: &str, at: &str) -> LoadError {
    LoadError::unsupported(format!("a {kind} in a field list"), at)
}

fn numbered<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    names
        .enumerate()
        .map(|(at, name)| (name.as_str(), at))
        .collect()
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
    for declared in inputs {
        calculation.inputs.extend(input(declared, at, headers)?);
    }
    Ok(calculation)
}

fn input(declared: &json::Typed, at: &str, headers: &Headers) -> Result<Vec<Input>, LoadError> {
    let text = declared.value.as_str().unwrap_or("");
    match (declared.kind.as_str(), declared.bitwidth) {
        ("field", _) => match headers.reference(&declared.value, at)? {
            Reference::Content(content) => {
                let (header, _) = super::headers::pair(&declared.value, at)?;
                Ok(content_inputs(&content, headers.header(header, at)?.index))
            }
            _ => Err(LoadError::unsupported("hash input $valid$", at)),
        },
        ("header", _) => {
            let header = headers.header(text, at)?;
            let fields = header.fields.iter();
            Ok(fields
                .flat_map(|content| content_inputs(content, header.index))
                .collect())
        }
        ("hexstr", Some(bits @ 0..=128)) => {
            let value = unsigned(text, bits, at)?;
            Ok(vec![Input::Const { value, bits }])
        }
        ("payload", _) => Ok(vec![Input::Payload]),
        (kind, _) => Err(LoadError::unsupported(
            format!("hash input of type {kind}"),
            at,
        )),
    }
}

fn content_inputs(content: &Content, header: super::HeaderIndex) -> Vec<Input> {
    match content {
        Content::Plain(field) => vec![Input::Field(*field)],
        Content::Wide(pieces) => pieces.iter().copied().map(Input::Field).collect(),
        Content::Variable(varbit) => vec![Input::Varbit {
            varbit: *varbit,
            header,
        }],
    }
}
