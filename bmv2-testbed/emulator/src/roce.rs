//! RoCEv2 packets as real NICs frame them: Ethernet, IPv4, UDP to port 4791, the InfiniBand base
//! transport header (BTH), payload, and the invariant checksum (ICRC).
//!
//! The [`transport`](crate::transport) decides what to send; this module is the packet format.
//! Checksums are real and are verified on receipt, so a switch that damages a packet, or rewrites a
//! field that RoCEv2 does not allow to change on the way, causes a [`PacketError`].

use std::net::Ipv4Addr;

use topology::MacAddress;

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Bytes of payload in a full packet: the largest path MTU of InfiniBand.
pub const MTU: u32 = 4096;
/// Bytes around the payload of a data packet: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
pub const OVERHEAD: u32 = 14 + 20 + 8 + 12 + 4;
/// Packet sequence numbers count modulo 2^24.
pub const PSN_MASK: u32 = 0xFF_FFFF;

const ETHERNET: usize = 14;
const IPV4: usize = ETHERNET + 20;
const UDP: usize = IPV4 + 8;
const BTH: usize = UDP + 12;
const ICRC: usize = 4;
const AETH: usize = 4;
const TTL: u8 = 64;
const PROTO_UDP: u8 = 17;
const DEFAULT_PARTITION: u16 = 0xFFFF;
/// AETH syndrome of an acknowledgement without credit count (InfiniBand §9.7.5.1.2).
const SYNDROME_ACK: u8 = 0b0001_1111;
/// AETH syndrome of a negative acknowledgement: sequence error.
const SYNDROME_SEQUENCE_ERROR: u8 = 0b0110_0000;

/// Source and destination of the packets of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAddresses {
    /// Sender: Ethernet and IPv4 address.
    pub source: (MacAddress, Ipv4Addr),
    /// Receiver; its Ethernet address is rewritten by the switch it is connected to.
    pub destination: (MacAddress, Ipv4Addr),
    /// UDP source port, the entropy that ECMP hashes and that pins match.
    pub udp_src_port: u16,
    /// Queue pair of the receiver, `0..2^24`.
    pub queue_pair: u32,
}

/// The transport part of a packet: data or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketBody {
    /// A part of a message (SEND of a reliable connection).
    Data {
        /// Sequence number, `0..2^24`.
        psn: u32,
        /// Bytes of payload, at most [`MTU`].
        payload: u32,
        /// Whether the message starts here.
        first: bool,
        /// Whether the message ends here.
        last: bool,
    },
    /// Everything up to and including this sequence number has arrived.
    Ack {
        /// The last number that arrived in order.
        psn: u32,
    },
    /// A packet is missing: send again from this sequence number.
    Nak {
        /// The number that was expected.
        psn: u32,
    },
}

/// Why bytes are not a RoCEv2 packet of an emulated host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too short, or a length field disagrees with the length.
    #[error("the packet is truncated, or a length field disagrees with its length")]
    BadLength,
    /// Not IPv4 without options carrying UDP to port 4791.
    #[error("not IPv4 without options with UDP to port 4791")]
    NotRoce,
    /// The IPv4 header checksum is wrong.
    #[error("wrong IPv4 checksum")]
    BadIpChecksum,
    /// The invariant checksum is wrong: a field that must not change was changed.
    #[error("wrong invariant checksum")]
    BadIcrc,
    /// An opcode that emulated hosts do not send.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
}

/// Replaces the content of `bytes` by a packet.
pub fn write_packet(route: &FlowAddresses, body: PacketBody, bytes: &mut Vec<u8>) {
    let (content, _) = content_length(body);
    bytes.clear();
    write_ethernet(bytes, route);
    write_ipv4(bytes, route, BTH - ETHERNET + content + ICRC);
    write_udp(bytes, route, BTH - IPV4 + content + ICRC);
    write_transport_header(route.queue_pair, body, bytes);
    let icrc = invariant_checksum(bytes);
    bytes.extend(icrc.to_le_bytes());
}

/// Replaces the content of `bytes` by the UDP payload of a packet. The kernel writes the headers
/// before it and chooses fields that the ICRC covers, so the checksum covers only the payload.
pub fn write_datagram(queue_pair: u32, body: PacketBody, bytes: &mut Vec<u8>) {
    bytes.clear();
    write_transport_header(queue_pair, body, bytes);
    bytes.extend(crc32fast::hash(bytes).to_le_bytes());
}

/// Queue pair and content of a datagram of [`write_datagram`].
///
/// # Errors
/// The bytes are another datagram, or damaged.
pub fn read_datagram(bytes: &[u8]) -> Result<(u32, PacketBody), PacketError> {
    let body_end = bytes.len().checked_sub(ICRC).ok_or(PacketError::BadLength)?;
    let (covered, checksum) = bytes.split_at(body_end);
    let (header, content) = covered.split_at_checked(BTH - UDP).ok_or(PacketError::BadLength)?;
    if crc32fast::hash(covered).to_le_bytes() != *checksum {
        return Err(PacketError::BadIcrc);
    }
    read_body(header, content).map(|body| (read_u24(header, 5), body))
}

fn write_transport_header(queue_pair: u32, body: PacketBody, bytes: &mut Vec<u8>) {
    let (operation, psn) = opcode_and_psn(body);
    let (content, pad) = content_length(body);
    bytes.push(operation);
    bytes.push(pad << 4);
    bytes.extend(DEFAULT_PARTITION.to_be_bytes());
    bytes.extend((queue_pair & PSN_MASK).to_be_bytes());
    bytes.extend((psn & PSN_MASK).to_be_bytes());
    match body {
        PacketBody::Data { .. } => bytes.resize(bytes.len() + content, 0),
        PacketBody::Ack { .. } => bytes.extend([SYNDROME_ACK, 0, 0, 0]),
        PacketBody::Nak { .. } => bytes.extend([SYNDROME_SEQUENCE_ERROR, 0, 0, 0]),
    }
}

/// Queue pair and content of a whole, undamaged packet; an error for anything else. Bytes after the
/// IPv4 packet (Ethernet padding) are ignored.
pub fn read_packet(bytes: &[u8]) -> Result<(u32, PacketBody), PacketError> {
    let header = bytes.get(..BTH).ok_or(PacketError::BadLength)?;
    let is_roce = header[12..15] == [0x08, 0x00, 0x45] && header[23] == PROTO_UDP;
    if !is_roce || read_u16(header, IPV4 + 2) != UDP_PORT {
        return Err(PacketError::NotRoce);
    }
    let end = ETHERNET + usize::from(read_u16(header, ETHERNET + 2));
    let body_end = end.checked_sub(ICRC).ok_or(PacketError::BadLength)?;
    let udp_length = usize::from(read_u16(header, IPV4 + 4));
    if end > bytes.len() || body_end < BTH || udp_length != end - IPV4 {
        return Err(PacketError::BadLength);
    }
    if ones_complement_sum(&header[ETHERNET..IPV4]) != 0xFFFF {
        return Err(PacketError::BadIpChecksum);
    }
    if invariant_checksum(&bytes[..body_end]).to_le_bytes() != bytes[body_end..end] {
        return Err(PacketError::BadIcrc);
    }
    read_body(&header[UDP..], &bytes[BTH..body_end]).map(|body| (read_u24(header, UDP + 5), body))
}

/// Decodes a base transport header and the content after it.
fn read_body(header: &[u8], content: &[u8]) -> Result<PacketBody, PacketError> {
    let psn = read_u24(header, 9);
    let (first, last) = match header[0] {
        0x00 => (true, false),
        0x01 => (false, false),
        0x02 => (false, true),
        0x04 => (true, true),
        0x11 => {
            return match content.first() {
                Some(&SYNDROME_ACK) => Ok(PacketBody::Ack { psn }),
                Some(&SYNDROME_SEQUENCE_ERROR) => Ok(PacketBody::Nak { psn }),
                _ => Err(PacketError::UnknownOpcode(0x11)),
            };
        }
        other => return Err(PacketError::UnknownOpcode(other)),
    };
    let pad = usize::from(header[1] >> 4 & 0b11);
    let unpadded = content.len().checked_sub(pad).ok_or(PacketError::BadLength)?;
    let payload = u32::try_from(unpadded).map_err(|_| PacketError::BadLength)?;
    Ok(PacketBody::Data { psn, payload, first, last })
}

/// Opcode of the BTH (reliable connection) and sequence number.
fn opcode_and_psn(body: PacketBody) -> (u8, u32) {
    match body {
        PacketBody::Data { psn, first, last, .. } => {
            let send = match (first, last) {
                (true, false) => 0x00,
                (false, false) => 0x01,
                (false, true) => 0x02,
                (true, true) => 0x04,
            };
            (send, psn)
        }
        PacketBody::Ack { psn } | PacketBody::Nak { psn } => (0x11, psn),
    }
}

/// Bytes between BTH and ICRC, and how many of them pad the payload to a multiple of four.
fn content_length(body: PacketBody) -> (usize, u8) {
    match body {
        PacketBody::Data { payload, .. } => {
            let payload = payload.min(MTU) as usize;
            let padded = payload.next_multiple_of(4);
            (padded, (padded - payload) as u8)
        }
        PacketBody::Ack { .. } | PacketBody::Nak { .. } => (AETH, 0),
    }
}

fn write_ethernet(bytes: &mut Vec<u8>, route: &FlowAddresses) {
    bytes.extend(route.destination.0.0);
    bytes.extend(route.source.0.0);
    bytes.extend([0x08, 0x00]);
}

fn write_ipv4(bytes: &mut Vec<u8>, route: &FlowAddresses, length: usize) {
    let start = bytes.len();
    bytes.extend([0x45, 0]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, TTL, PROTO_UDP, 0, 0]);
    bytes.extend(route.source.1.octets());
    bytes.extend(route.destination.1.octets());
    let checksum = !ones_complement_sum(&bytes[start..]);
    bytes[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
}

/// The UDP checksum stays 0 (none): RoCEv2 leaves integrity to the ICRC.
fn write_udp(bytes: &mut Vec<u8>, route: &FlowAddresses, length: usize) {
    bytes.extend(route.udp_src_port.to_be_bytes());
    bytes.extend(UDP_PORT.to_be_bytes());
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0]);
}

/// CRC-32 over a dummy local route header of ones and the packet from IPv4 on, with the fields
/// that may change on the way (traffic class, TTL, both checksums, congestion marks) read as ones
/// (InfiniBand annex A17, RoCEv2).
fn invariant_checksum(packet: &[u8]) -> u32 {
    let mut masked = [0xFF; 8 + BTH - ETHERNET];
    masked[8..].copy_from_slice(&packet[ETHERNET..BTH]);
    let (ip, udp, bth) = (8, 8 + IPV4 - ETHERNET, 8 + UDP - ETHERNET);
    for variant in [ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4] {
        masked[variant] = 0xFF;
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&masked);
    crc.update(&packet[BTH..]);
    crc.finalize()
}

fn ones_complement_sum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(read_u16(pair, 0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    ((folded & 0xFFFF) + (folded >> 16)) as u16
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_u24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> FlowAddresses {
        FlowAddresses {
            source: (MacAddress([2, 0, 10, 0, 1, 1]), Ipv4Addr::new(10, 0, 1, 1)),
            destination: (MacAddress([2, 0, 10, 0, 2, 1]), Ipv4Addr::new(10, 0, 2, 1)),
            udp_src_port: 0xC123,
            queue_pair: 0x12_3456,
        }
    }

    fn written(body: PacketBody) -> Vec<u8> {
        let mut bytes = vec![1, 2, 3];
        write_packet(&route(), body, &mut bytes);
        bytes
    }

    #[test]
    fn every_body_round_trips() {
        let data = |payload, first, last| PacketBody::Data { psn: PSN_MASK, payload, first, last };
        let bodies = [
            data(MTU, true, false),
            data(MTU, false, false),
            data(1, false, true),
            data(4095, true, true),
            PacketBody::Ack { psn: 7 },
            PacketBody::Nak { psn: 8 },
        ];
        for body in bodies {
            assert_eq!(read_packet(&written(body)), Ok((0x12_3456, body)));
            let mut datagram = vec![7];
            write_datagram(0x12_3456, body, &mut datagram);
            assert_eq!(read_datagram(&datagram), Ok((0x12_3456, body)));
            datagram[3] ^= 1;
            assert_eq!(read_datagram(&datagram), Err(PacketError::BadIcrc));
            assert!(read_datagram(&datagram[..15]).is_err());
        }
    }

    #[test]
    fn only_fields_that_may_change_can_be_rewritten() {
        let sent = written(PacketBody::Ack { psn: 1 });
        let changed = |at: usize| {
            let mut bytes = sent.clone();
            bytes[at] ^= 0x20;
            bytes[24..26].fill(0);
            let checksum = !ones_complement_sum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
            read_packet(&bytes).map(|_| ())
        };
        let (mac, dscp, ttl, source, port, psn) = (0, 15, 22, 29, 34, 53);
        for at in [mac, dscp, ttl] {
            assert_eq!(changed(at), Ok(()), "byte {at}");
        }
        for at in [source, port, psn] {
            assert_eq!(changed(at), Err(PacketError::BadIcrc), "byte {at}");
        }
    }

    #[test]
    fn damaged_packets_do_not_panic() {
        let sent = written(PacketBody::Ack { psn: 1 });
        for length in 0..sent.len() {
            assert!(read_packet(&sent[..length]).is_err());
        }
        for at in 0..sent.len() {
            for value in 0..=255 {
                let mut bytes = sent.clone();
                bytes[at] = value;
                let _ = read_packet(&bytes);
            }
        }
    }

    /// A congestion notification captured on a ConnectX-4 Lx (in the tests of scapy's RoCE layer).
    #[test]
    fn the_invariant_checksum_is_that_of_real_hardware() {
        let words = "e41d2dab2bc27cfe90643b32080045c2003c718c40004011\
                     91610a0011010a001201000012b7002800008100ffff4000\
                     0118000000000000000000000000000000000000000082fd002a";
        let byte = |at: usize| u8::from_str_radix(&words[at..at + 2], 16).unwrap();
        let packet: Vec<u8> = (0..words.len()).step_by(2).map(byte).collect();
        let (covered, icrc) = packet.split_at(packet.len() - ICRC);
        assert_eq!(invariant_checksum(covered).to_le_bytes(), *icrc);
    }
}
