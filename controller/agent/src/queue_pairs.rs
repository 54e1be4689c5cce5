//! Queue pairs of this host's RDMA devices, as the kernel's `nldev` netlink family reports them.
//!
//! The program `rdma resource show qp` reads the same dump. Here requests are built and replies
//! parsed by pure functions over bytes; [`reader`] has the socket. Names and numbers of commands
//! and attributes are those of `include/uapi/rdma/rdma_netlink.h`. The decision: an attribute that
//! is unknown or has an unexpected length is left out, because kernels add attributes; a message
//! that is cut off is an error.

pub mod reader;

use netlink_packet_core::{DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NlasIterator};
use serde::Serialize;

/// Netlink message types hold the client in their upper bits: `RDMA_NL_NLDEV` is 5.
const NLDEV_CLIENT: u16 = 5 << 10;
const CMD_GET: u16 = NLDEV_CLIENT | 1;
const CMD_RES_QP_GET: u16 = NLDEV_CLIENT | 10;

const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_RES_QP: u16 = 19;
const ATTR_RES_QP_ENTRY: u16 = 20;
const ATTR_RES_LQPN: u16 = 21;
const ATTR_RES_RQPN: u16 = 22;
const ATTR_RES_TYPE: u16 = 26;
const ATTR_RES_STATE: u16 = 27;
const ATTR_RES_PID: u16 = 28;
const ATTR_RES_KERN_NAME: u16 = 29;

/// Types of messages that every netlink family has.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NETLINK_HEADER: usize = 16;
const NLA_HEADER: usize = 4;

/// Queue pairs that one device may report; further ones are not kept.
pub const MAX_QUEUE_PAIRS: usize = 1 << 16;
/// Devices that are kept; a host has tens at most.
pub const MAX_DEVICES: usize = 1 << 10;

/// An RDMA device of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Number of the device in the kernel, for requests.
    pub index: u32,
    /// Its name, such as `mlx5_0`.
    pub name: String,
}

/// A queue pair of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueuePair {
    /// Port of the device, from 1.
    pub port: Option<u32>,
    /// Its number, unique on the device only.
    pub local_number: u32,
    /// The number of its peer, if it is connected.
    pub remote_number: Option<u32>,
    /// The kind of service.
    pub service: QueuePairService,
    /// Where it is in its life.
    pub state: QueuePairState,
    /// The process that created it; none if it belongs to the kernel.
    pub pid: Option<u32>,
    /// Which part of the kernel it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_owner: Option<String>,
}

/// Service of a queue pair (`enum ib_qp_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePairService {
    /// Reliable connection, which NCCL uses.
    ReliableConnection,
    /// A connection without acknowledgements.
    UnreliableConnection,
    /// Datagrams, to any peer.
    UnreliableDatagram,
    /// Management, or a service that drivers define.
    #[default]
    Other,
}

/// State of a queue pair (`enum ib_qp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePairState {
    /// Created, and not yet configured.
    Reset,
    /// Has a port and access rights.
    Initialized,
    /// Has a peer, and receives.
    ReadyToReceive,
    /// Sends and receives.
    ReadyToSend,
    /// On its way out, or broken.
    Draining,
    /// Refuses all work after a failure.
    Failed,
    /// A state that Linux did not have when this was written.
    #[default]
    Unknown,
}

/// What the replies to one request contain so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpState<T> {
    /// What was reported, in the order of the kernel.
    pub items: Vec<T>,
    /// Whether the kernel has sent its last message.
    pub is_complete: bool,
    /// How many were left out because of the limits of this module.
    pub dropped: usize,
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NldevError {
    /// The kernel has no RDMA.
    #[error("this kernel has no InfiniBand subsystem, so there are no queue pairs to read")]
    NoRdma,
    /// The socket failed.
    #[error("cannot read queue pairs over netlink")]
    Socket(#[source] std::io::Error),
    /// The kernel refused the request.
    #[error("the kernel refused to list queue pairs")]
    Refused(#[source] std::io::Error),
    /// A message is cut off.
    #[error("invalid netlink message: {0}")]
    Message(DecodeError),
}

/// A request for all devices.
pub fn request_devices(sequence: u32) -> Vec<u8> {
    request_bytes(CMD_GET, sequence, &[])
}

/// A request for all queue pairs of a device.
pub fn request_queue_pairs(device: u32, sequence: u32) -> Vec<u8> {
    let mut attribute = Vec::with_capacity(NLA_HEADER + 4);
    attribute.extend((NLA_HEADER as u16 + 4).to_ne_bytes());
    attribute.extend(ATTR_DEV_INDEX.to_ne_bytes());
    attribute.extend(device.to_ne_bytes());
    request_bytes(CMD_RES_QP_GET, sequence, &attribute)
}

fn request_bytes(command: u16, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    let length = NETLINK_HEADER + attributes.len();
    let mut bytes = vec![0; length];
    let mut header = NetlinkBuffer::new(&mut bytes[..]);
    header.set_length(length as u32);
    header.set_message_type(command);
    header.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    header.set_sequence_number(sequence);
    header.set_port_number(0);
    bytes[NETLINK_HEADER..].copy_from_slice(attributes);
    bytes
}

/// Adds the devices in a datagram to `found`.
///
/// # Errors
/// A message is cut off, or the kernel refused the request.
pub fn parse_devices(
    datagram: &[u8],
    sequence: u32,
    found: &mut DumpState<RdmaDevice>,
) -> Result<(), NldevError> {
    for_each_reply(datagram, CMD_GET, sequence, found, |payload, found| {
        let (mut index, mut name) = (None, None);
        for attribute in NlasIterator::new(payload) {
            let attribute = attribute.map_err(NldevError::Message)?;
            match attribute.kind() {
                ATTR_DEV_INDEX => index = number(attribute.value()),
                ATTR_DEV_NAME => name = text(attribute.value()),
                _ => {}
            }
        }
        if let Some((index, name)) = index.zip(name) {
            found.add(RdmaDevice { index, name }, MAX_DEVICES);
        }
        Ok(())
    })
}

/// Adds the queue pairs in a datagram to `found`.
///
/// # Errors
/// A message is cut off, or the kernel refused the request.
pub fn parse_queue_pairs(
    datagram: &[u8],
    sequence: u32,
    found: &mut DumpState<QueuePair>,
) -> Result<(), NldevError> {
    for_each_reply(datagram, CMD_RES_QP_GET, sequence, found, |payload, found| {
        for attribute in NlasIterator::new(payload) {
            let attribute = attribute.map_err(NldevError::Message)?;
            if attribute.kind() != ATTR_RES_QP {
                continue;
            }
            for entry in NlasIterator::new(attribute.value()) {
                let entry = entry.map_err(NldevError::Message)?;
                if entry.kind() == ATTR_RES_QP_ENTRY {
                    let pair = parse_entry(entry.value())?;
                    pair.into_iter().for_each(|pair| found.add(pair, MAX_QUEUE_PAIRS));
                }
            }
        }
        Ok(())
    })
}

impl<T> DumpState<T> {
    fn add(&mut self, item: T, limit: usize) {
        match self.items.len() < limit {
            true => self.items.push(item),
            false => self.dropped += 1,
        }
    }
}

/// A queue pair; none without a number.
fn parse_entry(bytes: &[u8]) -> Result<Option<QueuePair>, NldevError> {
    let (mut pair, mut local) = (QueuePair::default(), None);
    for attribute in NlasIterator::new(bytes) {
        let attribute = attribute.map_err(NldevError::Message)?;
        let value = attribute.value();
        match attribute.kind() {
            ATTR_PORT_INDEX => pair.port = number(value),
            ATTR_RES_LQPN => local = number(value),
            ATTR_RES_RQPN => pair.remote_number = number(value),
            ATTR_RES_TYPE => pair.service = service(value),
            ATTR_RES_STATE => pair.state = state(value),
            ATTR_RES_PID => pair.pid = number(value),
            ATTR_RES_KERN_NAME => pair.kernel_owner = text(value),
            _ => {}
        }
    }
    Ok(local.map(|local_number| QueuePair { local_number, ..pair }))
}

/// Calls `parse` with the payload of each reply to the request `sequence`.
fn for_each_reply<T>(
    mut datagram: &[u8],
    command: u16,
    sequence: u32,
    found: &mut DumpState<T>,
    parse: impl Fn(&[u8], &mut DumpState<T>) -> Result<(), NldevError>,
) -> Result<(), NldevError> {
    while !datagram.is_empty() {
        let message = NetlinkBuffer::new_checked(datagram).map_err(NldevError::Message)?;
        let length = (message.length() as usize).next_multiple_of(4);
        if message.sequence_number() == sequence {
            match message.message_type() {
                NLMSG_DONE => found.is_complete = true,
                NLMSG_ERROR => check_error(message.payload())?,
                kind if kind == command => parse(message.payload(), found)?,
                _ => {}
            }
        }
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(())
}

/// An error message starts with an errno below 0; 0 is an acknowledgement.
fn check_error(payload: &[u8]) -> Result<(), NldevError> {
    let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    match code {
        0 => Ok(()),
        code => Err(NldevError::Refused(std::io::Error::from_raw_os_error(code.saturating_neg()))),
    }
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Text ends with a zero byte.
fn text(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

fn service(value: &[u8]) -> QueuePairService {
    match value {
        [2] => QueuePairService::ReliableConnection,
        [3] => QueuePairService::UnreliableConnection,
        [4] => QueuePairService::UnreliableDatagram,
        _ => QueuePairService::Other,
    }
}

fn state(value: &[u8]) -> QueuePairState {
    match value {
        [0] => QueuePairState::Reset,
        [1] => QueuePairState::Initialized,
        [2] => QueuePairState::ReadyToReceive,
        [3] => QueuePairState::ReadyToSend,
        [4 | 5] => QueuePairState::Draining,
        [6] => QueuePairState::Failed,
        _ => QueuePairState::Unknown,
    }
}

#[cfg(test)]
mod tests;
