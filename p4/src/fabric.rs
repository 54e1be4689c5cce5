//! Entries of `fabric.p4`, one constructor per table.
//!
//! The controller lowers a plan with these and nothing else. The decision: ranges are types
//! ([`PortNumber`], [`PriorityLevel`], [`Ipv4Prefix`], and non-zero numbers), checked when a value
//! is made, so the constructors themselves cannot fail; and ids are constants that a test compares
//! with P4Info.

mod ids;
mod values;

use std::net::Ipv4Addr;
use std::num::{NonZeroU16, NonZeroU32};

use crate::entry::{
    ActionCall, ActionSpec, EntryKey, RowField, TableEntry, TableId, WeightedAction,
};

pub use ids::{PORT_LEVEL, action, table};
pub use values::{
    FiveTuple, HashSlice, Ipv4Prefix, JobMatch, OutOfRange, PortNumber, PriorityLevel, PuntMatch,
};

/// The EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// The EtherType of link discovery probes: the first that IEEE 802 reserves for local experiments.
pub const ETHERTYPE_PROBE: u16 = 0x88b5;

/// What happens to a packet that an `acl_punt` row matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PuntAction {
    /// It ends here.
    Drop,
    /// It goes to the controller instead of its destination.
    Punt,
}

/// `acl_punt`: packets to send to the controller, or to drop. Greater priorities win.
pub fn acl_punt(matches: &PuntMatch, priority: NonZeroU16, punt: PuntAction) -> TableEntry {
    let id = match punt {
        PuntAction::Drop => action::DROP,
        PuntAction::Punt => action::PUNT,
    };
    let action = ActionCall::new(id, []);
    prioritised_entry(table::ACL_PUNT, matches.match_fields(), priority, action)
}

/// `local_host`: a host of this leaf, the port it is at, and its Ethernet address.
pub fn local_host(host: Ipv4Addr, port: PortNumber, mac: [u8; 6]) -> TableEntry {
    let mac = mac.iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte));
    let action = ActionCall::new(action::TO_HOST, [port.into(), mac]);
    exact_entry(table::LOCAL_HOST, [host.to_bits().into()], action)
}

/// `dst_leaf`: the leaf behind which addresses are. Needs the leaf's [`ecmp_group`].
pub fn dst_leaf(prefix: Ipv4Prefix, leaf: u16) -> TableEntry {
    let action = ActionCall::new(action::SET_DST_LEAF, [leaf.into()]);
    EntryKey::for_row(table::DST_LEAF, prefix.lpm_field(1).into_iter().collect(), 0)
        .with_action(action.into())
}

/// `flow_pin`: one flow's path and job. Needs [`path`] rows with this number, and the job's
/// [`job_qos`] where the flow enters the fabric.
pub fn flow_pin(flow: &FiveTuple, path: u16, job: NonZeroU32) -> TableEntry {
    let action = ActionCall::new(action::PIN, [path.into(), job.get().into()]);
    let key = [
        flow.src.to_bits().into(),
        flow.dst.to_bits().into(),
        flow.protocol.into(),
        flow.sport.into(),
        flow.dport.into(),
    ];
    exact_entry(table::FLOW_PIN, key, action)
}

/// `job_classify`: the job of traffic without a pin. Needs the job's [`job_qos`].
pub fn job_classify(matches: &JobMatch, priority: NonZeroU16, job: NonZeroU32) -> TableEntry {
    let action = ActionCall::new(action::SET_JOB, [job.get().into()]);
    prioritised_entry(table::JOB_CLASSIFY, matches.match_fields(), priority, action)
}

/// `job_qos`: a job's level, and the DSCP that carries it through the fabric.
pub fn job_qos(job: NonZeroU32, level: PriorityLevel) -> TableEntry {
    exact_entry(table::JOB_QOS, [job.get().into()], class_action(level))
}

/// `roce_answer`: the level of RoCEv2's answers with this opcode of the base transport header.
pub fn roce_answer(opcode: u8, level: PriorityLevel) -> TableEntry {
    exact_entry(table::ROCE_ANSWER, [opcode.into()], class_action(level))
}

/// `fabric_port`: a port towards another switch, where the level comes from DSCP.
pub fn fabric_port(port: PortNumber) -> TableEntry {
    let action = ActionCall::new(action::TRUST_DSCP, []);
    exact_entry(table::FABRIC_PORT, [port.into()], action)
}

/// `dscp_level`: the level that its DSCP stands for.
pub fn dscp_level(level: PriorityLevel) -> TableEntry {
    let action = ActionCall::new(action::SET_LEVEL, [level.into()]);
    exact_entry(table::DSCP_LEVEL, [level.dscp().into()], action)
}

/// `path`: the uplink of a numbered path to a leaf, and the one to use while that is down.
pub fn path(leaf: u16, path: u16, uplink: PortNumber, backup: PortNumber) -> TableEntry {
    let action = ActionCall::new(action::TO_UPLINK, [uplink.into(), backup.into()]);
    exact_entry(table::PATH, [leaf.into(), path.into()], action)
}

/// `port_down`: paths do not use this port.
pub fn port_down(port: PortNumber) -> TableEntry {
    let action = ActionCall::new(action::MARK_DOWN, []);
    exact_entry(table::PORT_DOWN, [port.into()], action)
}

/// `backup_down`: paths do not use this port as a backup.
pub fn backup_down(port: PortNumber) -> TableEntry {
    let action = ActionCall::new(action::MARK_DOWN, []);
    exact_entry(table::BACKUP_DOWN, [port.into()], action)
}

/// `ecmp_group`: the ports over which unpinned traffic to a leaf spreads evenly. An empty group
/// would kill some switches; `None`.
pub fn ecmp_group(leaf: u16, ports: impl IntoIterator<Item = PortNumber>) -> Option<TableEntry> {
    let mut ports = ports
        .into_iter()
        .map(|port| WeightedAction {
            call: ActionCall::new(action::TO_ECMP_PORT, [port.into()]),
            weight: 1,
            watch_port: None,
        })
        .peekable();
    ports.peek()?;
    let group = ActionSpec::one_shot(ports);
    let key = vec![RowField::exact(1, leaf)];
    Some(EntryKey::for_row(table::ECMP_GROUP, key, 0).with_action(group))
}

/// `switch_salt`: what this switch mixes into its hash, so that no two choose alike, and the bits
/// of the hash that it goes by, so that what it chooses says nothing about the next tier's choice.
/// The program's own salt is 0.
pub fn switch_salt(salt: NonZeroU32, slice: HashSlice) -> TableEntry {
    let action = ActionCall::new(action::SET_SALT, [salt.get().into(), slice.into()]);
    EntryKey::for_default(table::SWITCH_SALT).with_action(action.into())
}

/// The cell of counter [`PORT_LEVEL`] that counts what left by `port` at `level`.
pub fn port_level_index(port: PortNumber, level: PriorityLevel) -> u32 {
    u32::from(port.number()) << PriorityLevel::BITS | u32::from(level.number())
}

/// Gives a packet its level, and the DSCP that carries it.
fn class_action(level: PriorityLevel) -> ActionCall {
    ActionCall::new(action::SET_CLASS, [level.into(), level.dscp().into()])
}

/// A row whose match fields are exact and numbered from 1.
fn exact_entry<const N: usize>(table: TableId, key: [u128; N], action: ActionCall) -> TableEntry {
    let fields = (1..).zip(key).map(|(id, value)| RowField::exact(id, value));
    EntryKey::for_row(table, fields.collect(), 0).with_action(action.into())
}

fn prioritised_entry(
    table: TableId,
    fields: Vec<RowField>,
    priority: NonZeroU16,
    action: ActionCall,
) -> TableEntry {
    EntryKey::for_row(table, fields, priority.get().into()).with_action(action.into())
}

#[cfg(test)]
pub(crate) mod tests;
