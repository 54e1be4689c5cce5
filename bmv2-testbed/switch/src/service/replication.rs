//! Multicast groups and clone sessions: what `Write` and `Read` do with them (P4Runtime §9.5).
//!
//! The ledger keeps each as it was written; the device keeps what packets need.

use p4rt::entity::Entity;
use p4rt::packet_replication_engine_entry::Type;
use p4rt::replica::PortKind;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;

use super::bytestring;
use super::error::Failure;
use super::read::{Entities, Reader, entity};
use super::write::Writer;
use crate::action::SESSION_MASK;
use crate::replication::{Change, CloneSession, Replica};

impl Writer<'_> {
    pub(super) fn replication(
        &mut self,
        kind: Kind,
        entry: &p4rt::PacketReplicationEngineEntry,
    ) -> Result<(), Failure> {
        match &entry.r#type {
            Some(Type::MulticastGroupEntry(group)) => self.multicast_group(kind, group),
            Some(Type::CloneSessionEntry(session)) => self.clone_session(kind, session),
            None => Err(Failure::invalid("the replication entry has no type")),
        }
    }

    fn multicast_group(
        &mut self,
        kind: Kind,
        group: &p4rt::MulticastGroupEntry,
    ) -> Result<(), Failure> {
        let id = number(group.multicast_group_id, u16::MAX, "multicast group")?;
        let replicas = decode_replicas(&group.replicas)?;
        self.device.write_group(change(kind), id, replicas)?;
        match kind {
            Kind::Delete => self.ledger.multicast.remove(&id),
            _ => self.ledger.multicast.insert(id, group.clone()),
        };
        Ok(())
    }

    fn clone_session(
        &mut self,
        kind: Kind,
        session: &p4rt::CloneSessionEntry,
    ) -> Result<(), Failure> {
        let id = number(session.session_id, SESSION_MASK, "clone session")?;
        if session.class_of_service != 0 {
            return Err(Failure::unimplemented(
                "class_of_service of a clone session",
            ));
        }
        let packet_bytes = u32::try_from(session.packet_length_bytes)
            .map_err(|_| Failure::invalid("packet_length_bytes is negative"))?;
        let replicas = decode_replicas(&session.replicas)?;
        let decoded = CloneSession {
            replicas,
            packet_bytes,
        };
        self.device.write_clone_session(change(kind), id, decoded)?;
        match kind {
            Kind::Delete => self.ledger.sessions.remove(&id),
            _ => self.ledger.sessions.insert(id, session.clone()),
        };
        Ok(())
    }
}

impl Reader<'_> {
    pub(super) fn replication(self, query: &p4rt::PacketReplicationEngineEntry) -> Entities {
        let wrap = |of: Type| {
            let entry = p4rt::PacketReplicationEngineEntry { r#type: Some(of) };
            entity(Entity::PacketReplicationEngineEntry(entry))
        };
        let groups = |wanted: u32| {
            let all = self.ledger.multicast.values();
            let chosen = all.filter(move |group| wanted == 0 || group.multicast_group_id == wanted);
            chosen.cloned().map(Type::MulticastGroupEntry)
        };
        let sessions = |wanted: u32| {
            let all = self.ledger.sessions.values();
            let chosen = all.filter(move |session| wanted == 0 || session.session_id == wanted);
            chosen.cloned().map(Type::CloneSessionEntry)
        };
        Ok(match &query.r#type {
            Some(Type::MulticastGroupEntry(query)) => {
                groups(query.multicast_group_id).map(wrap).collect()
            }
            Some(Type::CloneSessionEntry(query)) => sessions(query.session_id).map(wrap).collect(),
            None => groups(0).chain(sessions(0)).map(wrap).collect(),
        })
    }
}

fn change(kind: Kind) -> Change {
    match kind {
        Kind::Insert => Change::Insert,
        Kind::Modify => Change::Modify,
        _ => Change::Delete,
    }
}

fn number(id: u32, most: u16, what: &str) -> Result<u16, Failure> {
    let number = u16::try_from(id).ok().filter(|id| (1..=most).contains(id));
    number.ok_or_else(|| Failure::invalid(format!("{what} {id} is not in 1 to {most}")))
}

fn decode_replicas(replicas: &[p4rt::Replica]) -> Result<Vec<Replica>, Failure> {
    replicas.iter().map(decode_replica).collect()
}

fn decode_replica(replica: &p4rt::Replica) -> Result<Replica, Failure> {
    if !replica.backup_replicas.is_empty() {
        return Err(Failure::unimplemented("BackupReplica"));
    }
    #[allow(deprecated)] // Still part of v1.5.
    let port = match &replica.port_kind {
        Some(PortKind::EgressPort(port)) => {
            u16::try_from(*port).map_err(|_| Failure::invalid("the port is above 65535"))?
        }
        Some(PortKind::Port(bytes)) => bytestring::decode(bytes, 16)? as u16,
        None => return Err(Failure::invalid("the replica has no port")),
    };
    let instance = u16::try_from(replica.instance)
        .map_err(|_| Failure::invalid("the instance is above 65535"))?;
    Ok(Replica { port, instance })
}
