//! Entries of `fabric.p4`, one constructor per table.
//!
//! The controller lowers a plan with these and nothing else. The decision: ranges are types
//! ([`Port`], [`Level`], [`Prefix`], and non-zero numbers), checked when a value is made, so the
//! constructors themselves cannot fail; and ids are constants that a test compares with P4Info.

mod ids;
mod values;

use std::net::Ipv4Addr;
use std::num::{NonZeroU16, NonZeroU32};

use crate::entry::{ActionCall, ActionSpec, EntryKey, Field, TableEntry, TableId, WeightedAction};

pub use ids::{PORT_LEVEL, action, table};
pub use values::{Flow, HashSlice, JobMatch, Level, OutOfRange, Port, Prefix, PuntMatch};

/// What happens to a packet that an `acl_punt` row matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Punt {
    /// It ends here.
    Drop,
    /// It goes to the controller instead of its destination.
    Punt,
}

/// `acl_punt`: what the controller wants to see, or to keep out. Greater priorities win.
pub fn acl_punt(matches: &PuntMatch, priority: NonZeroU16, punt: Punt) -> TableEntry {
    let id = match punt {
        Punt::Drop => action::DROP,
        Punt::Punt => action::PUNT,
    };
    let action = ActionCall::new(id, []);
    prioritised(table::ACL_PUNT, matches.fields(), priority, action)
}

/// `local_host`: a host of this leaf, the port it is at, and its Ethernet address.
pub fn local_host(host: Ipv4Addr, port: Port, mac: [u8; 6]) -> TableEntry {
    let mac = mac.iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte));
    let action = ActionCall::new(action::TO_HOST, [port.into(), mac]);
    exact(table::LOCAL_HOST, [host.to_bits().into()], action)
}

/// `dst_leaf`: the leaf behind which addresses are. Needs the leaf's [`ecmp_group`].
pub fn dst_leaf(prefix: Prefix, leaf: u16) -> TableEntry {
    let action = ActionCall::new(action::SET_DST_LEAF, [leaf.into()]);
    EntryKey::row(table::DST_LEAF, prefix.lpm(1).into_iter().collect(), 0).with(action.into())
}

/// `flow_pin`: one flow's path and job. Needs [`path`] rows with this number, and the job's
/// [`job_qos`] where the flow enters the fabric.
pub fn flow_pin(flow: &Flow, path: u16, job: NonZeroU32) -> TableEntry {
    let action = ActionCall::new(action::PIN, [path.into(), job.get().into()]);
    let key = [
        flow.src.to_bits().into(),
        flow.dst.to_bits().into(),
        flow.protocol.into(),
        flow.sport.into(),
        flow.dport.into(),
    ];
    exact(table::FLOW_PIN, key, action)
}

/// `job_classify`: the job of traffic without a pin. Needs the job's [`job_qos`].
pub fn job_classify(matches: &JobMatch, priority: NonZeroU16, job: NonZeroU32) -> TableEntry {
    let action = ActionCall::new(action::SET_JOB, [job.get().into()]);
    prioritised(table::JOB_CLASSIFY, matches.fields(), priority, action)
}

/// `job_qos`: a job's level, and the DSCP that carries it through the fabric.
pub fn job_qos(job: NonZeroU32, level: Level) -> TableEntry {
    exact(table::JOB_QOS, [job.get().into()], class(level))
}

/// `roce_answer`: the level of RoCEv2's answers with this opcode of the base transport header.
pub fn roce_answer(opcode: u8, level: Level) -> TableEntry {
    exact(table::ROCE_ANSWER, [opcode.into()], class(level))
}

/// `fabric_port`: a port towards another switch, where the level comes from DSCP.
pub fn fabric_port(port: Port) -> TableEntry {
    let action = ActionCall::new(action::TRUST_DSCP, []);
    exact(table::FABRIC_PORT, [port.into()], action)
}

/// `dscp_level`: the level that its DSCP stands for.
pub fn dscp_level(level: Level) -> TableEntry {
    let action = ActionCall::new(action::SET_LEVEL, [level.into()]);
    exact(table::DSCP_LEVEL, [level.dscp().into()], action)
}

/// `path`: the uplink of a numbered path to a leaf, and the one to use while that is down.
pub fn path(leaf: u16, path: u16, uplink: Port, backup: Port) -> TableEntry {
    let action = ActionCall::new(action::TO_UPLINK, [uplink.into(), backup.into()]);
    exact(table::PATH, [leaf.into(), path.into()], action)
}

/// `port_down`: paths do not use this port.
pub fn port_down(port: Port) -> TableEntry {
    let action = ActionCall::new(action::MARK_DOWN, []);
    exact(table::PORT_DOWN, [port.into()], action)
}

/// `backup_down`: paths do not use this port as a backup.
pub fn backup_down(port: Port) -> TableEntry {
    let action = ActionCall::new(action::MARK_DOWN, []);
    exact(table::BACKUP_DOWN, [port.into()], action)
}

/// `ecmp_group`: the ports over which unpinned traffic to a leaf spreads evenly. An empty group
/// would kill some switches; `None`.
pub fn ecmp_group(leaf: u16, ports: impl IntoIterator<Item = Port>) -> Option<TableEntry> {
    let weighted = |port: Port| WeightedAction {
        call: ActionCall::new(action::TO_ECMP_PORT, [port.into()]),
        weight: 1,
        watch_port: None,
    };
    let mut ports = ports.into_iter().map(weighted).peekable();
    ports.peek()?;
    let group = ActionSpec::one_shot(ports);
    let key = vec![Field::exact(1, leaf)];
    Some(EntryKey::row(table::ECMP_GROUP, key, 0).with(group))
}

/// `switch_salt`: what this switch mixes into its hash, so that no two choose alike, and the bits
/// of the hash that it goes by, so that what it chooses says nothing about the next tier's choice.
/// The program's own salt is 0.
pub fn switch_salt(salt: NonZeroU32, slice: HashSlice) -> TableEntry {
    let action = ActionCall::new(action::SET_SALT, [salt.get().into(), slice.into()]);
    EntryKey::default_of(table::SWITCH_SALT).with(action.into())
}

/// The cell of counter [`PORT_LEVEL`] that counts what left by `port` at `level`.
pub fn port_level_index(port: Port, level: Level) -> u32 {
    u32::from(port.number()) << Level::BITS | u32::from(level.number())
}

/// Gives a packet its level, and the DSCP that carries it.
fn class(level: Level) -> ActionCall {
    ActionCall::new(action::SET_CLASS, [level.into(), level.dscp().into()])
}

/// A row whose match fields are exact and numbered from 1.
fn exact<const N: usize>(table: TableId, key: [u128; N], action: ActionCall) -> TableEntry {
    let fields = (1..).zip(key).map(|(id, value)| Field::exact(id, value));
    EntryKey::row(table, fields.collect(), 0).with(action.into())
}

fn prioritised(
    table: TableId,
    fields: Vec<Field>,
    priority: NonZeroU16,
    action: ActionCall,
) -> TableEntry {
    EntryKey::row(table, fields, priority.get().into()).with(action.into())
}

#[cfg(test)]
pub(crate) mod tests;
