//! Entries of `fabric.p4`, one constructor per table.
//!
//! The controller lowers a plan with these and nothing else. The decision: ranges are types
//! ([`PortNumber`], [`PriorityLevel`], [`IpPrefix`], and non-zero numbers), checked when a value
//! is made, so the constructors themselves cannot fail; and ids are constants that a test compares
//! with P4Info.

mod ids;
mod values;

use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU32};

use crate::entry::{
    ActionCall, ActionId, ActionSpec, EntryKey, MeterRates, RowField, TableEntry, TableId,
    WeightedAction,
};

pub use ids::{PORT_LEVEL, REFUSED, ROCE_FLOW_DIGEST, action, table};
pub use values::{
    FlowKey, FlowTransport, HashSlice, IpPrefix, IpVersion, JobMatch, OutOfRange, PairedPackets,
    PinPoint, PortNumber, PriorityLevel, PuntMatch, Refusal,
};
use values::{address_bits, full_mask_field};

/// The EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// The EtherType of link discovery probes: the first that IEEE 802 reserves for local experiments.
pub const ETHERTYPE_PROBE: u16 = 0x88b5;

/// The priority of the row of `punt_rate` for all other ports.
const OTHER_PORTS_PRIORITY: NonZeroU16 = NonZeroU16::MIN;
/// The priority of the rows of single ports.
const PORT_RATE_PRIORITY: NonZeroU16 = OTHER_PORTS_PRIORITY.saturating_add(1);

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
    let table = match matches {
        PuntMatch::Icmpv6(_) => table::ACL_PUNT6,
        _ => table::ACL_PUNT,
    };
    prioritised_entry(table, matches.match_fields(), priority, ActionCall::new(id, []))
}

/// `punt_rate`: how many packets per second a port may send to the controller.
pub fn punt_rate(port: PortNumber, rates: MeterRates) -> TableEntry {
    let fields = vec![full_mask_field(1, port.number(), PortNumber::MAX)];
    limit_punts(fields, PORT_RATE_PRIORITY, rates)
}

/// `punt_rate`: how many packets per second all ports without a row of their own may send together.
pub fn other_ports_punt_rate(rates: MeterRates) -> TableEntry {
    limit_punts(Vec::new(), OTHER_PORTS_PRIORITY, rates)
}

fn limit_punts(fields: Vec<RowField>, priority: NonZeroU16, rates: MeterRates) -> TableEntry {
    let action = ActionCall::new(action::LIMIT_PUNTS, []);
    prioritised_entry(table::PUNT_RATE, fields, priority, action).with_meter(rates)
}

/// `source_guard`: an address that the host at this port may send from.
pub fn source_guard(port: PortNumber, address: IpAddr) -> TableEntry {
    let table = versioned(IpVersion::of(address), table::SOURCE_GUARD, table::SOURCE_GUARD6);
    exact_entry(table, [port.into(), address_bits(address)], ActionCall::new(action::ADMIT, []))
}

/// `host_port`: a port of a NIC, whose sources are compared with [`refuse_source`] and
/// [`allow_source`].
pub fn host_port(port: PortNumber) -> TableEntry {
    let action = ActionCall::new(action::CHECK_SOURCE, []);
    exact_entry(table::HOST_PORT, [port.into()], action)
}

/// `foreign_source`: these addresses are those of hosts elsewhere, and refused as sources that the
/// [`source_guard`] does not list.
pub fn refuse_source(prefix: IpPrefix) -> TableEntry {
    source_row(prefix, action::REFUSE_SOURCE)
}

/// `foreign_source`: these addresses may be sources; longer prefixes may be refused.
pub fn allow_source(prefix: IpPrefix) -> TableEntry {
    source_row(prefix, action::ALLOW_SOURCE)
}

fn source_row(prefix: IpPrefix, id: ActionId) -> TableEntry {
    let table = versioned(prefix.version(), table::FOREIGN_SOURCE, table::FOREIGN_SOURCE6);
    EntryKey::for_row(table, prefix.lpm_field(1).into_iter().collect(), 0)
        .with_action(ActionCall::new(id, []).into())
}

/// `arp_answer` or `nd_answer`: the Ethernet address that the switch gives to hosts that ask for
/// one of these addresses.
pub fn neighbour_answer(prefix: IpPrefix, mac: [u8; 6]) -> TableEntry {
    let version = prefix.version();
    let action = versioned(version, action::ANSWER_ARP, action::ANSWER_ND);
    let table = versioned(version, table::ARP_ANSWER, table::ND_ANSWER);
    EntryKey::for_row(table, prefix.lpm_field(1).into_iter().collect(), 0)
        .with_action(ActionCall::new(action, [mac_bits(mac).into()]).into())
}

/// `local_host`: a host of this leaf, the port it is at, and its Ethernet address.
pub fn local_host(host: IpAddr, port: PortNumber, mac: [u8; 6]) -> TableEntry {
    let table = versioned(IpVersion::of(host), table::LOCAL_HOST, table::LOCAL_HOST6);
    let action = ActionCall::new(action::TO_HOST, [port.into(), mac_bits(mac).into()]);
    exact_entry(table, [address_bits(host)], action)
}

/// `dst_leaf`: the leaf behind which addresses are. Needs the leaf's [`ecmp_group`].
pub fn dst_leaf(prefix: IpPrefix, leaf: u16) -> TableEntry {
    dst_leaf_row(prefix, ActionCall::new(action::SET_DST_LEAF, [leaf.into()]))
}

/// `dst_leaf` for packets from hosts alone: those from other switches are dropped.
pub fn dst_leaf_of_hosts(prefix: IpPrefix, leaf: u16) -> TableEntry {
    dst_leaf_row(prefix, ActionCall::new(action::SET_DST_LEAF_OF_HOSTS, [leaf.into()]))
}

fn dst_leaf_row(prefix: IpPrefix, action: ActionCall) -> TableEntry {
    let table = versioned(prefix.version(), table::DST_LEAF, table::DST_LEAF6);
    EntryKey::for_row(table, prefix.lpm_field(1).into_iter().collect(), 0)
        .with_action(action.into())
}

/// `flow_pin` and its kin: one flow's path and job. Needs [`path`] rows with this number, and the
/// job's [`job_qos`] where the flow enters the fabric. `None` if its addresses are of two versions.
pub fn flow_pin(point: PinPoint, flow: &FlowKey, path: u16, job: NonZeroU32) -> Option<TableEntry> {
    let version = flow.version()?;
    let [src, dst] = [flow.src, flow.dst].map(address_bits);
    // An edge port of IPv6 stands for the source, which the guard has checked.
    let src = match (version, point) {
        (IpVersion::V6, PinPoint::Edge(port)) => port.into(),
        _ => src,
    };
    let sport = flow.sport.into();
    let arguments = [path.into(), job.get().into()];
    let with_job = |id| ActionCall::new(id, arguments);
    let in_transit = || ActionCall::new(action::PIN_TRANSIT, [path.into()]);
    Some(match flow.transport {
        FlowTransport::Port { protocol, dport } => {
            let (table, action) = match (version, point) {
                (IpVersion::V4, _) => (table::FLOW_PIN, with_job(action::PIN)),
                (_, PinPoint::Edge(_)) => (table::FLOW_PIN6, with_job(action::PIN6)),
                (_, PinPoint::Transit) => (table::TRANSIT_PIN6, in_transit()),
            };
            exact_entry(table, [src, dst, protocol.into(), sport, dport.into()], action)
        }
        FlowTransport::QueuePair(queue_pair) => {
            let (table, action) = match (version, point) {
                (IpVersion::V4, _) => (table::QP_PIN, with_job(action::PIN_QP)),
                (_, PinPoint::Edge(_)) => (table::QP_PIN6, with_job(action::PIN6_QP)),
                (_, PinPoint::Transit) => (table::TRANSIT_QP_PIN6, in_transit()),
            };
            exact_entry(table, [src, dst, sport, queue_pair.into()], action)
        }
    })
}

/// `job_pair`: the job of RoCEv2 packets from the NIC at an edge port to another NIC that have no
/// pin. Needs the job's [`job_qos`]. Without a job the row counts, and changes no packet. `None` if
/// the addresses are of two versions.
pub fn job_pair(
    port: PortNumber,
    [src, dst]: [IpAddr; 2],
    job: Option<NonZeroU32>,
) -> Option<TableEntry> {
    let version = IpVersion::of(src);
    let table = versioned(version, table::JOB_PAIR, table::JOB_PAIR6);
    let action = versioned(version, action::SET_PAIR_JOB, action::SET_PAIR_JOB6);
    // The port stands for the source, which the guard has checked.
    let from = versioned(version, address_bits(src), port.into());
    let action = ActionCall::new(action, [job.map_or(0, NonZeroU32::get).into()]);
    (version == IpVersion::of(dst)).then(|| exact_entry(table, [from, address_bits(dst)], action))
}

/// `job_classify`: the job of traffic without a pin. Needs the job's [`job_qos`]. `None` if a
/// network is not of the version that is matched.
pub fn job_classify(
    matches: &JobMatch,
    priority: NonZeroU16,
    job: NonZeroU32,
) -> Option<TableEntry> {
    let version = matches.version;
    let mut networks = [matches.src, matches.dst].into_iter().flatten();
    if networks.any(|network| network.version() != version) {
        return None;
    }
    let table = versioned(version, table::JOB_CLASSIFY, table::JOB_CLASSIFY6);
    let action = versioned(version, action::SET_JOB, action::SET_JOB6);
    let action = ActionCall::new(action, [job.get().into()]);
    Some(prioritised_entry(table, matches.match_fields(), priority, action))
}

/// `job_qos`: a job's level, and the DSCP that carries it through the fabric.
pub fn job_qos(job: NonZeroU32, level: PriorityLevel) -> TableEntry {
    exact_entry(table::JOB_QOS, [job.get().into()], class_action(level))
}

/// `roce_answer`: the level of RoCEv2's answers with this opcode of the base transport header.
pub fn roce_answer(opcode: u8, level: PriorityLevel) -> TableEntry {
    let arguments = [level.into(), level.answer_dscp().into()];
    exact_entry(table::ROCE_ANSWER, [opcode.into()], ActionCall::new(action::SET_ANSWER, arguments))
}

/// `answer_rate`: how many bytes per second of answers the host at this port may send above jobs.
pub fn answer_rate(port: PortNumber, rates: MeterRates) -> TableEntry {
    port_meter(table::ANSWER_RATE, action::LIMIT_ANSWERS, port, rates)
}

/// `answer_share`: how many bytes per second of answers leave by this port above jobs.
pub fn answer_share(port: PortNumber, rates: MeterRates) -> TableEntry {
    port_meter(table::ANSWER_SHARE, action::LIMIT_ANSWER_SHARE, port, rates)
}

/// `roce_learn`: how many packets per second of unknown RoCEv2 connections of this port's host
/// become digests.
pub fn roce_learn(port: PortNumber, rates: MeterRates) -> TableEntry {
    port_meter(table::ROCE_LEARN, action::LEARN, port, rates)
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

/// `dscp_level`: the level of the answers that carry its DSCP for answers.
pub fn answer_dscp_level(level: PriorityLevel) -> TableEntry {
    let action = ActionCall::new(action::SET_ANSWER_LEVEL, [level.into()]);
    exact_entry(table::DSCP_LEVEL, [level.answer_dscp().into()], action)
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

/// `spraying`: RoCEv2 packets without a pin take the members of a group in turn, by their number. Each
/// tier steps by another stride: with equal ones a spine, which sees every so many packets of a
/// connection, would send them all over one link.
pub fn spraying(slice: HashSlice) -> TableEntry {
    let action = ActionCall::new(action::SPRAY, [slice.stride().into()]);
    EntryKey::for_default(table::SPRAYING).with_action(action.into())
}

/// The cell of counter [`PORT_LEVEL`] that counts what left by `port` at `level`.
pub fn port_level_index(port: PortNumber, level: PriorityLevel) -> u32 {
    u32::from(port.number()) << PriorityLevel::BITS | u32::from(level.number())
}

/// The cell of counter [`REFUSED`] that counts what came in by `port` and was refused for a reason.
pub fn refusal_index(port: PortNumber, refusal: Refusal) -> u32 {
    u32::from(port.number()) << Refusal::BITS | refusal as u32
}

/// Gives a packet its level, and the DSCP that carries it.
fn class_action(level: PriorityLevel) -> ActionCall {
    ActionCall::new(action::SET_CLASS, [level.into(), level.dscp().into()])
}

/// A row that meters the packets of one port.
fn port_meter(table: TableId, id: ActionId, port: PortNumber, rates: MeterRates) -> TableEntry {
    exact_entry(table, [port.into()], ActionCall::new(id, [])).with_meter(rates)
}

/// The table or action of an IP version.
fn versioned<T>(version: IpVersion, v4: T, v6: T) -> T {
    match version {
        IpVersion::V4 => v4,
        IpVersion::V6 => v6,
    }
}

fn mac_bits(mac: [u8; 6]) -> u128 {
    mac.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
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
