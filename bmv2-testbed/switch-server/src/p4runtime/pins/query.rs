//! What `Read` answers on a PINS switch: everything of a kind, or nothing.
//!
//! A query with a table, a key, a priority or anything else to select by is UNIMPLEMENTED. Entries
//! of tables that the role does not own are left out, and those of ACL tables carry their counters.

use p4rt::entity::Entity;
use p4runtime_proto::v1 as p4rt;

use super::PinsState;
use super::schema::PinsSchema;
use crate::p4runtime::entity::entity_kind;
use crate::p4runtime::entity_reader::{EntityReader, ReadResult, wrap_entity};
use crate::p4runtime::error::RequestFailure;

impl PinsState {
    /// Everything that a query selects.
    pub(in crate::p4runtime) fn read_entity(
        &self,
        schema: &PinsSchema,
        reader: EntityReader<'_>,
        query: &p4rt::Entity,
        role: &str,
    ) -> ReadResult {
        let everything = match &query.entity {
            Some(Entity::TableEntry(entry)) if is_unfiltered(entry) => all_table_entries(),
            Some(Entity::PacketReplicationEngineEntry(entry)) if is_all_replication(entry) => {
                query.clone()
            }
            Some(Entity::TableEntry(_)) => {
                return Err(RequestFailure::unimplemented("a query that selects table entries"));
            }
            Some(other) => return Err(RequestFailure::unimplemented(entity_kind(other))),
            None => return Err(RequestFailure::invalid_argument("the query has no entity")),
        };
        let found = reader.read_entity(&everything)?.into_iter();
        found
            .filter_map(|entity| schema.visible_entity(entity, role))
            .map(|entity| self.ids.name_numbers(schema, entity))
            .collect()
    }

    /// The state of a pipeline in the strings in which it was written.
    pub(in crate::p4runtime) fn state_updates(
        &self,
        schema: &PinsSchema,
        reader: EntityReader<'_>,
    ) -> Result<Vec<p4rt::Update>, RequestFailure> {
        let updates = reader.state_updates()?.into_iter();
        let named = updates.map(|update| {
            let entity = update.entity.unwrap_or_default();
            let entity = self.ids.name_numbers(schema, entity)?;
            Ok(p4rt::Update { entity: Some(entity), ..update })
        });
        named.collect()
    }
}

impl PinsSchema {
    /// An entity as a role sees it, if it does.
    fn visible_entity(&self, mut entity: p4rt::Entity, role: &str) -> Option<p4rt::Entity> {
        if let Some(Entity::TableEntry(entry)) = &mut entity.entity {
            let table = self.tables.get(&entry.table_id)?;
            if !role.is_empty() && table.role != role {
                return None;
            }
            if !table.is_acl {
                entry.counter_data = None;
            }
        }
        Some(entity)
    }
}

/// The query of all entries with their counters.
pub(super) fn all_table_entries() -> p4rt::Entity {
    wrap_entity(Entity::TableEntry(p4rt::TableEntry {
        counter_data: Some(p4rt::CounterData::default()),
        ..p4rt::TableEntry::default()
    }))
}

fn is_unfiltered(query: &p4rt::TableEntry) -> bool {
    query.table_id == 0
        && query.r#match.is_empty()
        && query.priority == 0
        && query.metadata.is_empty()
        && query.action.is_none()
        && !query.is_default_action
}

fn is_all_replication(query: &p4rt::PacketReplicationEngineEntry) -> bool {
    use p4rt::packet_replication_engine_entry::Type;
    match &query.r#type {
        None => true,
        Some(Type::MulticastGroupEntry(group)) => {
            group.multicast_group_id == 0 && group.replicas.is_empty()
        }
        Some(Type::CloneSessionEntry(session)) => {
            session.session_id == 0 && session.replicas.is_empty()
        }
    }
}
