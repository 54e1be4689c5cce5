//! Who refers to whom (`@refers_to`): what an entry names must exist, and what is named must stay.
//!
//! The references of every entry are counted when it changes, so that a deletion looks at one
//! count. An entry refers with its key and with its actions; an entry of another table answers
//! with those fields of its key that are referred to.

use std::collections::BTreeMap;

use tonic::Code;

use super::schema::{CheckedFields, PinsSchema, TableReference};
use crate::p4runtime::error::RequestFailure;
use crate::p4runtime::p4info::{PipelineSchema, TableSchema};
use switch::Device;
use switch::{KeyField, MatchKey};

/// Something that is referred to: a table, places in its key, and their values.
pub(super) type ReferredKey = (u32, Vec<(usize, u128)>);

/// How many entries refer to what.
#[derive(Debug, Default)]
pub(super) struct ReferenceCounts {
    counts: BTreeMap<ReferredKey, usize>,
}

/// An action of an entry: its P4Info id and its arguments.
pub(super) type CalledAction = (u32, Vec<u128>);

impl ReferenceCounts {
    /// Exchanges the references of an entry.
    pub(super) fn replace(&mut self, old: &[ReferredKey], new: Vec<ReferredKey>) {
        for key in new {
            *self.counts.entry(key).or_default() += 1;
        }
        for key in old {
            if let Some(count) = self.counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(key);
                }
            }
        }
    }

    /// Whether an entry may go: nothing refers to it, or another entry serves as well.
    pub(super) fn check_deletable(
        &self,
        schema: &PinsSchema,
        table: &TableSchema,
        key: &MatchKey,
        device: &Device,
    ) -> Result<(), RequestFailure> {
        for places in schema.referred.get(&table.id).into_iter().flatten() {
            let Some(values) = key_values(key, places) else {
                continue;
            };
            let count = self.counts.get(&(table.id, values.clone())).copied().unwrap_or_default();
            if count > 0 && !has_entry(device, table, &values, Some(key))? {
                let message = format!("the entry of {} has {count} references", table.name);
                return Err(RequestFailure::invalid_argument(message));
            }
        }
        Ok(())
    }
}

/// What an entry refers to.
pub(super) fn entry_references(
    schema: &PinsSchema,
    table: u32,
    key: &MatchKey,
    actions: &[CalledAction],
) -> Vec<ReferredKey> {
    let mut found = Vec::new();
    if let Some(table) = schema.tables.get(&table) {
        found.extend(referred_keys(&table.checked, |place| field_value(key, place)));
    }
    for (id, arguments) in actions {
        if let Some(action) = schema.actions.get(id) {
            let argument = |place: usize| arguments.get(place).copied();
            found.extend(referred_keys(&action.checked, argument));
        }
    }
    found
}

/// Whether everything exists that an entry refers to.
pub(super) fn check_references(
    references: &[ReferredKey],
    pipeline: &PipelineSchema,
    device: &Device,
) -> Result<(), RequestFailure> {
    for (id, values) in references {
        let Some(table) = pipeline.tables.get(id) else {
            continue;
        };
        if !has_entry(device, table, values, None)? {
            let fields: Vec<&str> =
                values.iter().map(|(place, _)| table.fields[*place].name.as_str()).collect();
            let message = format!(
                "no entry of {} has the {} that is referred to",
                table.name,
                fields.join(" and ")
            );
            return Err(RequestFailure::new(Code::NotFound, message));
        }
    }
    Ok(())
}

fn referred_keys(
    checked: &CheckedFields,
    value: impl Fn(usize) -> Option<u128>,
) -> impl Iterator<Item = ReferredKey> {
    checked.references.iter().filter_map(move |reference: &TableReference| {
        let values = reference.fields.iter().map(|(source, place)| Some((*place, value(*source)?)));
        let values: Vec<_> = values.collect::<Option<_>>()?;
        let is_default = reference.has_default && values.iter().all(|(_, value)| *value == 0);
        (!is_default).then_some((reference.table, values))
    })
}

/// Whether a table has an entry with these values, other than `except`.
fn has_entry(
    device: &Device,
    table: &TableSchema,
    values: &[(usize, u128)],
    except: Option<&MatchKey>,
) -> Result<bool, RequestFailure> {
    let is_whole_key = values.len() == table.fields.len() && !table.takes_priority;
    if is_whole_key {
        let fields = values.iter().map(|(_, value)| KeyField::Exact(*value)).collect();
        let key = MatchKey { fields, priority: 0 };
        return Ok(except != Some(&key) && device.entry(table.index, &key).is_ok());
    }
    let mut entries = device.entries(table.index)?;
    Ok(entries.any(|entry| {
        Some(entry.key) != except
            && values.iter().all(|(place, value)| field_value(entry.key, *place) == Some(*value))
    }))
}

fn key_values(key: &MatchKey, places: &[usize]) -> Option<Vec<(usize, u128)>> {
    places.iter().map(|place| Some((*place, field_value(key, *place)?))).collect()
}

/// The one value that a field matches.
fn field_value(key: &MatchKey, place: usize) -> Option<u128> {
    match key.fields.get(place)? {
        KeyField::Exact(value) | KeyField::Optional(Some(value)) => Some(*value),
        _ => None,
    }
}
