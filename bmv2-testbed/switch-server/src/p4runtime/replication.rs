//! Multicast groups and clone sessions: what `Write` and `Read` do with them (P4Runtime §9.5).
//!
//! The ledger keeps each as it was written, with canonical ports; the device keeps what packets need.

use p4rt::entity::Entity;
use p4rt::packet_replication_engine_entry::Type;
use p4rt::replica::PortKind;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;

use super::bytestring;
use super::entity_reader::{EntityReader, ReadResult, wrap_entity};
use super::entity_writer::EntityWriter;
use super::error::RequestFailure;
use switch::Replica;
use switch::SESSION_MASK;
use switch::{CloneSession, ReplicationUpdate};

impl EntityWriter<'_> {
    pub(super) fn write_replication(
        &mut self,
        kind: Kind,
        entry: &p4rt::PacketReplicationEngineEntry,
    ) -> Result<(), RequestFailure> {
        match &entry.r#type {
            Some(Type::MulticastGroupEntry(group)) => self.write_multicast_group(kind, group),
            Some(Type::CloneSessionEntry(session)) => self.write_clone_session(kind, session),
            None => Err(RequestFailure::invalid_argument("the replication entry has no type")),
        }
    }

    fn write_multicast_group(
        &mut self,
        kind: Kind,
        group: &p4rt::MulticastGroupEntry,
    ) -> Result<(), RequestFailure> {
        let id = checked_id(group.multicast_group_id, u16::MAX, "multicast group")?;
        let mut group = group.clone();
        let replicas = decode_replicas(&mut group.replicas)?;
        self.device.write_multicast_group(replication_update(kind), id, replicas)?;
        match kind {
            Kind::Delete => self.metadata.multicast_groups.remove(&id),
            _ => self.metadata.multicast_groups.insert(id, group),
        };
        Ok(())
    }

    fn write_clone_session(
        &mut self,
        kind: Kind,
        session: &p4rt::CloneSessionEntry,
    ) -> Result<(), RequestFailure> {
        let id = checked_id(session.session_id, SESSION_MASK, "clone session")?;
        if session.class_of_service != 0 {
            return Err(RequestFailure::unimplemented("class_of_service of a clone session"));
        }
        let packet_bytes = u32::try_from(session.packet_length_bytes)
            .map_err(|_| RequestFailure::invalid_argument("packet_length_bytes is negative"))?;
        let mut session = session.clone();
        let replicas = decode_replicas(&mut session.replicas)?;
        let decoded = CloneSession { replicas, packet_bytes };
        self.device.write_clone_session(replication_update(kind), id, decoded)?;
        match kind {
            Kind::Delete => self.metadata.clone_sessions.remove(&id),
            _ => self.metadata.clone_sessions.insert(id, session),
        };
        Ok(())
    }
}

impl EntityReader<'_> {
    pub(super) fn read_replication(self, query: &p4rt::PacketReplicationEngineEntry) -> ReadResult {
        let groups = self.metadata.multicast_groups.values().cloned();
        let sessions = self.metadata.clone_sessions.values().cloned();
        let all =
            groups.map(Type::MulticastGroupEntry).chain(sessions.map(Type::CloneSessionEntry));
        Ok(all
            .filter(|found| is_selected(found, query.r#type.as_ref()))
            .map(|found| {
                let entry = p4rt::PacketReplicationEngineEntry { r#type: Some(found) };
                wrap_entity(Entity::PacketReplicationEngineEntry(entry))
            })
            .collect())
    }
}

/// Whether a query selects an object; id 0 selects all objects of its type.
fn is_selected(found: &Type, query: Option<&Type>) -> bool {
    match (found, query) {
        (_, None) => true,
        (Type::MulticastGroupEntry(group), Some(Type::MulticastGroupEntry(query))) => {
            [0, group.multicast_group_id].contains(&query.multicast_group_id)
        }
        (Type::CloneSessionEntry(session), Some(Type::CloneSessionEntry(query))) => {
            [0, session.session_id].contains(&query.session_id)
        }
        _ => false,
    }
}

fn replication_update(kind: Kind) -> ReplicationUpdate {
    match kind {
        Kind::Insert => ReplicationUpdate::Insert,
        Kind::Modify => ReplicationUpdate::Modify,
        _ => ReplicationUpdate::Delete,
    }
}

fn checked_id(id: u32, most: u16, what: &str) -> Result<u16, RequestFailure> {
    let number = u16::try_from(id).ok().filter(|id| (1..=most).contains(id));
    number.ok_or_else(|| {
        RequestFailure::invalid_argument(format!("{what} {id} is not in 1 to {most}"))
    })
}

/// Replicas in the form of the device; their ports are canonical afterwards.
fn decode_replicas(replicas: &mut [p4rt::Replica]) -> Result<Vec<Replica>, RequestFailure> {
    replicas.iter_mut().map(decode_replica).collect()
}

fn decode_replica(replica: &mut p4rt::Replica) -> Result<Replica, RequestFailure> {
    if !replica.backup_replicas.is_empty() {
        return Err(RequestFailure::unimplemented("BackupReplica"));
    }
    #[allow(deprecated)] // Still part of v1.5.
    let port = match &mut replica.port_kind {
        Some(PortKind::EgressPort(port)) => u16::try_from(*port)
            .map_err(|_| RequestFailure::invalid_argument("the port is above 65535"))?,
        Some(PortKind::Port(bytes)) => bytestring::canonicalize_port(bytes)?,
        None => return Err(RequestFailure::invalid_argument("the replica has no port")),
    };
    let instance = u16::try_from(replica.instance)
        .map_err(|_| RequestFailure::invalid_argument("the instance is above 65535"))?;
    Ok(Replica { port, instance })
}
