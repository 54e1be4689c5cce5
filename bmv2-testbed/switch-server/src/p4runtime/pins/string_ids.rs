//! The numbers behind the strings of controllers.
//!
//! Ports have names by configuration. Every other type gives a new string the lowest number that is
//! free, and the empty string is 0. A number is free again once no entry has it; that is found out
//! only when a type has run out of numbers, so deleting costs nothing.

use std::collections::{BTreeMap, BTreeSet};

use p4rt::action_profile_action::WatchKind;
use p4rt::entity::Entity;
use p4rt::field_match::FieldMatchType;
use p4rt::packet_replication_engine_entry::Type as ReplicationType;
use p4rt::replica::PortKind;
use p4rt::table_action::Type as ActionType;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::schema::{CheckedFields, PinsSchema, StringType};
use crate::p4runtime::bytestring::{decode_bytestring, encode_bytestring};
use crate::p4runtime::error::RequestFailure;

/// Numbers by type.
#[derive(Debug, Default)]
pub(super) struct StringIds {
    types: BTreeMap<String, IdTable>,
}

/// The numbers that are in use, by type.
pub(super) type UsedNumbers = BTreeMap<String, BTreeSet<u128>>;

/// The strings of one type.
#[derive(Debug, Default)]
struct IdTable {
    numbers: BTreeMap<String, u128>,
    names: BTreeMap<u128, String>,
}

/// What is done with each string of a message, or with the number that stands for it.
type StringVisit<'a> = dyn FnMut(&StringType, &mut Vec<u8>) -> Result<(), RequestFailure> + 'a;

impl StringIds {
    /// An entity with numbers instead of strings.
    pub(super) fn number_strings(
        &mut self,
        schema: &PinsSchema,
        mut entity: p4rt::Entity,
    ) -> Result<p4rt::Entity, RequestFailure> {
        visit_entity(schema, &mut entity, &mut |kind, bytes| {
            *bytes = self.number(schema, kind, bytes)?;
            Ok(())
        })?;
        Ok(entity)
    }

    /// An entity with strings instead of numbers.
    pub(super) fn name_numbers(
        &self,
        schema: &PinsSchema,
        mut entity: p4rt::Entity,
    ) -> Result<p4rt::Entity, RequestFailure> {
        visit_entity(schema, &mut entity, &mut |kind, bytes| {
            *bytes = self.string(schema, kind, bytes)?;
            Ok(())
        })?;
        Ok(entity)
    }

    /// Forgets the strings whose numbers are not used.
    pub(super) fn retain_used(&mut self, used: &UsedNumbers) {
        for (name, table) in &mut self.types {
            let is_used = |number: &u128| used.get(name).is_some_and(|used| used.contains(number));
            table.names.retain(|number, _| is_used(number));
            table.numbers.retain(|_, number| is_used(number));
        }
    }

    fn number(
        &mut self,
        schema: &PinsSchema,
        kind: &StringType,
        bytes: &[u8],
    ) -> Result<Vec<u8>, RequestFailure> {
        let name = std::str::from_utf8(bytes)
            .map_err(|_| RequestFailure::invalid_argument("the string is not UTF-8"))?;
        let number = match kind {
            StringType::Port => port_number(schema, name)?,
            StringType::Allocated(type_name, bits) => {
                let table = self.types.entry(type_name.clone()).or_default();
                table.number(name, *bits).ok_or_else(|| {
                    let message = format!("no number of {type_name} is free for `{name}`");
                    RequestFailure::new(Code::ResourceExhausted, message)
                })?
            }
        };
        Ok(encode_bytestring(number))
    }

    fn string(
        &self,
        schema: &PinsSchema,
        kind: &StringType,
        bytes: &[u8],
    ) -> Result<Vec<u8>, RequestFailure> {
        let number = decode_bytestring(bytes, 128)?;
        let name = match kind {
            StringType::Port => port_name(schema, number),
            StringType::Allocated(type_name, _) => {
                let table = self.types.get(type_name);
                table.and_then(|table| table.names.get(&number).cloned()).unwrap_or_default()
            }
        };
        Ok(name.into_bytes())
    }
}

impl IdTable {
    /// The number of a string, a new one if it has none; `None` if all are taken.
    fn number(&mut self, name: &str, bits: u32) -> Option<u128> {
        if name.is_empty() {
            return Some(0);
        }
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        // Without gaps the next number follows the count; the search is for those that have some.
        let next = self.names.len() as u128 + 1;
        let free = if self.names.contains_key(&next) {
            (1..).find(|number| !self.names.contains_key(number))?
        } else {
            next
        };
        if 128 - free.leading_zeros() > bits {
            return None;
        }
        self.numbers.insert(name.to_owned(), free);
        self.names.insert(free, name.to_owned());
        Some(free)
    }
}

/// The numbers that entities have in the place of strings.
pub(super) fn used_numbers<'a>(
    schema: &PinsSchema,
    entities: impl Iterator<Item = &'a p4rt::Entity>,
) -> Result<UsedNumbers, RequestFailure> {
    let mut used = UsedNumbers::new();
    for entity in entities {
        visit_entity(schema, &mut entity.clone(), &mut |kind, bytes| {
            if let StringType::Allocated(name, _) = kind {
                used.entry(name.clone()).or_default().insert(decode_bytestring(bytes, 128)?);
            }
            Ok(())
        })?;
    }
    Ok(used)
}

impl PinsSchema {
    /// A packet-out with the numbers of ports.
    pub(crate) fn number_packet_ports(
        &self,
        mut packet: p4rt::PacketOut,
    ) -> Result<p4rt::PacketOut, RequestFailure> {
        for metadata in &mut packet.metadata {
            if self.packet_out_ports.contains(&metadata.metadata_id) {
                let name = std::str::from_utf8(&metadata.value)
                    .map_err(|_| RequestFailure::invalid_argument("the port is not UTF-8"))?;
                metadata.value = encode_bytestring(port_number(self, name)?);
            }
        }
        Ok(packet)
    }

    /// A packet-in with the names of ports; a port without a name has the empty string.
    pub(crate) fn name_packet_ports(&self, mut packet: p4rt::PacketIn) -> p4rt::PacketIn {
        for metadata in &mut packet.metadata {
            if self.packet_ports.contains(&metadata.metadata_id) {
                // Written by the switch itself, so it is a number of few bits.
                let number = decode_bytestring(&metadata.value, 128).unwrap_or_default();
                metadata.value = port_name(self, number).into_bytes();
            }
        }
        packet
    }
}

fn port_number(schema: &PinsSchema, name: &str) -> Result<u128, RequestFailure> {
    let number = schema.port_names.number(name).map(u128::from);
    number.ok_or_else(|| {
        let message = format!("there is no port `{name}`: has it a name or an id?");
        RequestFailure::new(Code::FailedPrecondition, message)
    })
}

fn port_name(schema: &PinsSchema, number: u128) -> String {
    let number = u16::try_from(number).ok();
    number.and_then(|number| schema.port_names.name(number)).unwrap_or_default()
}

fn visit_entity(
    schema: &PinsSchema,
    entity: &mut p4rt::Entity,
    visit: &mut StringVisit<'_>,
) -> Result<(), RequestFailure> {
    match &mut entity.entity {
        Some(Entity::TableEntry(entry)) => visit_table_entry(schema, entry, visit),
        Some(Entity::PacketReplicationEngineEntry(entry)) => {
            let replicas = match &mut entry.r#type {
                Some(ReplicationType::MulticastGroupEntry(group)) => &mut group.replicas,
                Some(ReplicationType::CloneSessionEntry(session)) => &mut session.replicas,
                None => return Ok(()),
            };
            replicas.iter_mut().try_for_each(|replica| match &mut replica.port_kind {
                Some(PortKind::Port(bytes)) => visit(&StringType::Port, bytes),
                _ => Err(RequestFailure::invalid_argument("the port of a replica is a string")),
            })
        }
        _ => Ok(()),
    }
}

fn visit_table_entry(
    schema: &PinsSchema,
    entry: &mut p4rt::TableEntry,
    visit: &mut StringVisit<'_>,
) -> Result<(), RequestFailure> {
    // An unknown table is reported where the entry is decoded.
    let Some(table) = schema.tables.get(&entry.table_id) else {
        return Ok(());
    };
    for field in &mut entry.r#match {
        let Some(kind) = table.checked.strings.get(&field.field_id) else {
            continue;
        };
        let visited = match &mut field.field_match_type {
            Some(FieldMatchType::Exact(exact)) => visit(kind, &mut exact.value),
            Some(FieldMatchType::Optional(optional)) => visit(kind, &mut optional.value),
            _ => Err(RequestFailure::invalid_argument("a string is matched whole")),
        };
        visited.map_err(|failure| {
            failure.in_context(&format!("table {}, match field {}", table.alias, field.field_id))
        })?;
    }
    match entry.action.as_mut().and_then(|action| action.r#type.as_mut()) {
        Some(ActionType::Action(action)) => visit_action(schema, action, visit),
        Some(ActionType::ActionProfileActionSet(set)) => {
            set.action_profile_actions.iter_mut().try_for_each(|choice| {
                // An empty one watches nothing.
                if let Some(WatchKind::WatchPort(port)) = &mut choice.watch_kind
                    && !port.is_empty()
                {
                    let visited = visit(&StringType::Port, port);
                    visited.map_err(|failure| failure.in_context("watch_port"))?;
                }
                let action = choice.action.as_mut();
                action.map_or(Ok(()), |action| visit_action(schema, action, visit))
            })
        }
        _ => Ok(()),
    }
}

fn visit_action(
    schema: &PinsSchema,
    action: &mut p4rt::Action,
    visit: &mut StringVisit<'_>,
) -> Result<(), RequestFailure> {
    let Some(known) = schema.actions.get(&action.action_id) else {
        return Ok(());
    };
    let CheckedFields { strings, .. } = &known.checked;
    for param in &mut action.params {
        if let Some(kind) = strings.get(&param.param_id) {
            visit(kind, &mut param.value).map_err(|failure| {
                failure.in_context(&format!("action {}, parameter {}", known.name, param.param_id))
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_numbers_of_their_own_until_none_is_left() {
        let mut table = IdTable::default();
        assert_eq!(table.number("", 2), Some(0));
        assert_eq!(
            ["a", "b", "a", "c", "d"].map(|name| table.number(name, 2)),
            [Some(1), Some(2), Some(1), Some(3), None]
        );
        let mut ids = StringIds::default();
        ids.types.insert("id_t".into(), table);
        ids.retain_used(&UsedNumbers::from([("id_t".into(), BTreeSet::from([1, 3]))]));
        let table = ids.types.get_mut("id_t").unwrap();
        assert_eq!(
            ["a", "c", "d", "b"].map(|name| table.number(name, 2)),
            [Some(1), Some(3), Some(2), None]
        );
    }
}
