//! The packet replication engine: multicast groups and clone sessions (P4Runtime §9.5).
//!
//! The control API writes it, the traffic manager of `device` reads where copies go.

use std::collections::BTreeMap;

use crate::spec::entry::{ControlError, Replica};

/// Where the copies of a clone session go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneSession {
    /// The copies.
    pub replicas: Vec<Replica>,
    /// The most bytes of a copy that leave; 0 means all.
    pub packet_bytes: u32,
}

/// The groups and sessions of one device.
#[derive(Debug, Default)]
pub(crate) struct ReplicationEngine {
    groups: BTreeMap<u16, Vec<Replica>>,
    sessions: BTreeMap<u16, CloneSession>,
}

impl ReplicationEngine {
    /// The copies of a packet to a group; an unknown group has none.
    pub(crate) fn group(&self, id: u16) -> &[Replica] {
        self.groups.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The session of this number.
    pub(crate) fn session(&self, id: u16) -> Option<&CloneSession> {
        self.sessions.get(&id)
    }

    /// All groups, by number.
    pub(crate) fn groups(&self) -> &BTreeMap<u16, Vec<Replica>> {
        &self.groups
    }

    /// All sessions, by number.
    pub(crate) fn sessions(&self) -> &BTreeMap<u16, CloneSession> {
        &self.sessions
    }

    pub(crate) fn write_group(
        &mut self,
        change: ReplicationUpdate,
        id: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), ControlError> {
        check_distinct(&replicas)?;
        write_object(&mut self.groups, change, id, replicas)
    }

    pub(crate) fn write_session(
        &mut self,
        change: ReplicationUpdate,
        id: u16,
        session: CloneSession,
    ) -> Result<(), ControlError> {
        check_distinct(&session.replicas)?;
        write_object(&mut self.sessions, change, id, session)
    }
}

/// What a write does to a group or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationUpdate {
    /// Adds it.
    Insert,
    /// Replaces it.
    Modify,
    /// Removes it; the content given with it does not matter.
    Delete,
}

fn write_object<T>(
    map: &mut BTreeMap<u16, T>,
    change: ReplicationUpdate,
    id: u16,
    value: T,
) -> Result<(), ControlError> {
    match (change, map.contains_key(&id)) {
        (ReplicationUpdate::Insert, true) => Err(ControlError::AlreadyExists),
        (ReplicationUpdate::Modify | ReplicationUpdate::Delete, false) => {
            Err(ControlError::NotFound)
        }
        (ReplicationUpdate::Delete, true) => {
            map.remove(&id);
            Ok(())
        }
        _ => {
            map.insert(id, value);
            Ok(())
        }
    }
}

/// Refuses a repeated replica: it would send the same packet twice.
fn check_distinct(replicas: &[Replica]) -> Result<(), ControlError> {
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ControlError::RepeatedReplica(pair[0])),
        None => Ok(()),
    }
}
