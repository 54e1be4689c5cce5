//! RoCEv2 packets as real NICs frame them: Ethernet, IPv4 or IPv6, UDP to port 4791, the InfiniBand
//! base transport header (BTH), payload, and the invariant checksum (ICRC).
//!
//! The [`transport`](crate::transport) decides what to send; this module is the packet format.
//! Checksums are real and are verified on receipt, so a switch that damages a packet, or rewrites a
//! field that RoCEv2 does not allow to change on the way, causes a [`PacketError`].

use std::net::IpAddr;

use topology::MacAddress;

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;

/// The first of the UDP source ports that senders choose from.
pub const FIRST_SOURCE_PORT: u16 = 0xC000;
/// Bytes of payload in a full packet: the largest path MTU of InfiniBand.
pub const MTU: u32 = 4096;
/// Bytes around the payload of a data packet over IPv4: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC
/// 4.
pub const OVERHEAD: u32 = 14 + 20 + 8 + 12 + 4;
/// DSCP of congestion notifications, whose class is not that of data (NVIDIA, *DCQCN CC
/// parameters*: `cnp_dscp`).
pub const NOTIFICATION_DSCP: u8 = 48;
/// Packet sequence numbers count modulo 2^24.
pub const PSN_MASK: u32 = 0xFF_FFFF;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const ICRC: usize = 4;
const AETH: usize = 4;
/// Reserved bytes of a congestion notification (InfiniBand annex A17.9.3).
const CNP_CONTENT: usize = 16;
/// Opcode of a congestion notification.
const OPCODE_CNP: u8 = 0x81;
/// Backward congestion, in the byte before the queue pair.
const BECN: u32 = 0x4000_0000;
/// The two bits of ECN in a traffic class: none, a sender that takes part, and congestion (RFC
/// 3168).
const ECN_BITS: u8 = 0b11;
const ECN_CAPABLE: u8 = 0b10;
const TTL: u8 = 64;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const PROTO_UDP: u8 = 17;
const DEFAULT_PARTITION: u16 = 0xFFFF;
/// AETH syndrome of an acknowledgement without credit count (InfiniBand §9.7.5.1.2).
const SYNDROME_ACK: u8 = 0b0001_1111;
/// AETH syndrome of a negative acknowledgement: sequence error.
const SYNDROME_SEQUENCE_ERROR: u8 = 0b0110_0000;

/// Source and destination of the packets of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAddresses {
    /// Sender: Ethernet and IP address.
    pub source: (MacAddress, IpAddr),
    /// Receiver; its Ethernet address is rewritten by the switch it is connected to.
    pub destination: (MacAddress, IpAddr),
    /// UDP source port, the entropy that ECMP hashes and that pins match.
    pub udp_src_port: u16,
    /// Queue pair of the receiver, `0..2^24`.
    pub queue_pair: u32,
    /// Whether switches may mark the packets (ECN) or leave them as they are.
    pub marking: CongestionMarking,
    /// The class of the packets, `0..64`.
    pub dscp: u8,
}

/// Whether a sender takes part in explicit congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionMarking {
    /// It does not.
    #[default]
    Off,
    /// It does: packets carry ECT(0).
    Capable,
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
    /// A packet arrived marked: send slower (a congestion notification packet, CNP).
    CongestionNotification,
}

/// Why bytes are not a RoCEv2 packet of an emulated host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too short, or a length field disagrees with the length.
    #[error("the packet is truncated, or a length field disagrees with its length")]
    BadLength,
    /// Not IPv4 without options or IPv6 without extensions, carrying UDP to port 4791.
    #[error("not plain IPv4 or IPv6 with UDP to port 4791")]
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

/// The priority of 802.1Q that a class has: its class selector.
pub fn priority_of_dscp(dscp: u8) -> u8 {
    dscp >> 3 & 7
}

/// Bytes around the payload of a data packet from this address.
pub fn overhead_from(source: IpAddr) -> u32 {
    if source.is_ipv4() { OVERHEAD } else { OVERHEAD + (IPV6 - IPV4) as u32 }
}

/// Replaces the content of `bytes` by a packet.
pub fn write_packet(route: &FlowAddresses, body: PacketBody, bytes: &mut Vec<u8>) {
    let (content, _) = content_length(body);
    bytes.clear();
    write_ethernet(bytes, route);
    let datagram = UDP + BTH + content + ICRC;
    let ip_header = write_ip(bytes, route, datagram);
    write_udp(bytes, route, datagram);
    write_transport_header(route.queue_pair, body, bytes);
    let icrc = invariant_checksum(&bytes[ETHERNET..], ip_header);
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
    let (header, content) = covered.split_at_checked(BTH).ok_or(PacketError::BadLength)?;
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
    let congestion = if operation == OPCODE_CNP { BECN } else { 0 };
    bytes.extend((queue_pair & PSN_MASK | congestion).to_be_bytes());
    bytes.extend((psn & PSN_MASK).to_be_bytes());
    match body {
        PacketBody::Data { .. } => bytes.resize(bytes.len() + content, 0),
        PacketBody::Ack { .. } => bytes.extend([SYNDROME_ACK, 0, 0, 0]),
        PacketBody::Nak { .. } => bytes.extend([SYNDROME_SEQUENCE_ERROR, 0, 0, 0]),
        PacketBody::CongestionNotification => bytes.extend([0; CNP_CONTENT]),
    }
}

/// Queue pair and content of a whole, undamaged packet; an error for anything else. Bytes after the
/// IP packet (Ethernet padding) are ignored.
pub fn read_packet(bytes: &[u8]) -> Result<(u32, PacketBody), PacketError> {
    let packet = bytes.get(ETHERNET..).ok_or(PacketError::BadLength)?;
    let (ip_header, length) = read_ip(read_u16(bytes, 12), packet)?;
    let body_start = ip_header + UDP + BTH;
    let body_end = length.checked_sub(ICRC).ok_or(PacketError::BadLength)?;
    if length > packet.len() || body_end < body_start {
        return Err(PacketError::BadLength);
    }
    if read_u16(packet, ip_header + 2) != UDP_PORT {
        return Err(PacketError::NotRoce);
    }
    if usize::from(read_u16(packet, ip_header + 4)) != length - ip_header {
        return Err(PacketError::BadLength);
    }
    if invariant_checksum(&packet[..body_end], ip_header).to_le_bytes() != packet[body_end..length]
    {
        return Err(PacketError::BadIcrc);
    }
    let transport = &packet[ip_header + UDP..];
    let body = read_body(transport, &packet[body_start..body_end])?;
    Ok((read_u24(transport, 5), body))
}

/// Whether a switch has marked a packet: "congestion experienced" in its traffic class.
pub fn is_marked(bytes: &[u8]) -> bool {
    match bytes.get(12..16) {
        Some([0x08, 0x00, _, traffic_class]) => traffic_class & ECN_BITS == ECN_BITS,
        Some([0x86, 0xDD, _, class_and_label]) => class_and_label >> 4 & ECN_BITS == ECN_BITS,
        _ => false,
    }
}

/// Length of the IP header, and of the packet with it.
fn read_ip(ether_type: u16, packet: &[u8]) -> Result<(usize, usize), PacketError> {
    match (ether_type, packet.first()) {
        (ETHERTYPE_IPV4, Some(0x45)) => {
            let header = packet.get(..IPV4).ok_or(PacketError::BadLength)?;
            if header[9] != PROTO_UDP {
                return Err(PacketError::NotRoce);
            }
            if ones_complement_sum(header) != 0xFFFF {
                return Err(PacketError::BadIpChecksum);
            }
            Ok((IPV4, usize::from(read_u16(header, 2))))
        }
        (ETHERTYPE_IPV6, Some(0x60..=0x6F)) => {
            let header = packet.get(..IPV6).ok_or(PacketError::BadLength)?;
            if header[6] != PROTO_UDP {
                return Err(PacketError::NotRoce);
            }
            Ok((IPV6, IPV6 + usize::from(read_u16(header, 4))))
        }
        (_, None) => Err(PacketError::BadLength),
        _ => Err(PacketError::NotRoce),
    }
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
        OPCODE_CNP if content.len() == CNP_CONTENT => {
            return Ok(PacketBody::CongestionNotification);
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
        PacketBody::CongestionNotification => (OPCODE_CNP, 0),
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
        PacketBody::CongestionNotification => (CNP_CONTENT, 0),
    }
}

fn write_ethernet(bytes: &mut Vec<u8>, route: &FlowAddresses) {
    bytes.extend(route.destination.0.0);
    bytes.extend(route.source.0.0);
    let ether_type = if route.source.1.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    bytes.extend(ether_type.to_be_bytes());
}

/// Writes the header before a datagram of `length` bytes and returns its own length.
fn write_ip(bytes: &mut Vec<u8>, route: &FlowAddresses, length: usize) -> usize {
    let start = bytes.len();
    let addresses = [route.source.1, route.destination.1];
    let congestion = match route.marking {
        CongestionMarking::Off => 0,
        CongestionMarking::Capable => ECN_CAPABLE,
    };
    let traffic_class = route.dscp << 2 | congestion;
    if addresses[0].is_ipv4() {
        bytes.extend([0x45, traffic_class]);
        bytes.extend(((IPV4 + length) as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, TTL, PROTO_UDP, 0, 0]);
    } else {
        bytes.extend([0x60 | traffic_class >> 4, traffic_class << 4, 0, 0]);
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([PROTO_UDP, TTL]);
    }
    for address in addresses {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    if addresses[0].is_ipv4() {
        let checksum = !ones_complement_sum(&bytes[start..]);
        bytes[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes.len() - start
}

/// The UDP checksum stays 0 (none), over IPv6 too: RoCEv2 leaves integrity to the ICRC.
fn write_udp(bytes: &mut Vec<u8>, route: &FlowAddresses, length: usize) {
    bytes.extend(route.udp_src_port.to_be_bytes());
    bytes.extend(UDP_PORT.to_be_bytes());
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0]);
}

/// CRC-32 over a dummy local route header of ones and the packet from its IP header on, with the
/// fields that may change on the way read as ones: traffic class, flow label, TTL or hop limit,
/// both checksums, congestion marks (InfiniBand annex A17, RoCEv2).
fn invariant_checksum(packet: &[u8], ip_header: usize) -> u32 {
    let headers = ip_header + UDP + BTH;
    let mut masked = [0xFF; 8 + IPV6 + UDP + BTH];
    masked[8..8 + headers].copy_from_slice(&packet[..headers]);
    let (ip, udp) = (8, 8 + ip_header);
    if ip_header == IPV4 {
        for variant in [ip + 1, ip + 8, ip + 10, ip + 11] {
            masked[variant] = 0xFF;
        }
    } else {
        masked[ip] |= 0x0F;
        for variant in [ip + 1, ip + 2, ip + 3, ip + 7] {
            masked[variant] = 0xFF;
        }
    }
    for variant in [udp + 6, udp + 7, udp + UDP + 4] {
        masked[variant] = 0xFF;
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&masked[..8 + headers]);
    crc.update(&packet[headers..]);
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

    /// The same route over both versions.
    fn routes() -> [FlowAddresses; 2] {
        let route = |src: &str, dst: &str| FlowAddresses {
            source: (MacAddress([2, 0, 10, 0, 1, 1]), src.parse().unwrap()),
            destination: (MacAddress([2, 0, 10, 0, 2, 1]), dst.parse().unwrap()),
            udp_src_port: 0xC123,
            queue_pair: 0x12_3456,
            marking: CongestionMarking::Off,
            dscp: 0,
        };
        [route("10.0.1.1", "10.0.2.1"), route("fd00:0:0:1::1", "fd00:0:0:2::1")]
    }

    fn written(body: PacketBody) -> [Vec<u8>; 2] {
        routes().map(|route| {
            let mut bytes = vec![1, 2, 3];
            write_packet(&route, body, &mut bytes);
            bytes
        })
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
            PacketBody::CongestionNotification,
        ];
        for body in bodies {
            for packet in written(body) {
                assert_eq!(read_packet(&packet), Ok((0x12_3456, body)));
            }
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
        let [ipv4, ipv6] = written(PacketBody::Ack { psn: 1 });
        let changed = |sent: &[u8], at: usize| {
            let mut bytes = sent.to_vec();
            bytes[at] ^= 0x20;
            if sent.len() == ipv4.len() {
                bytes[24..26].fill(0);
                let checksum = !ones_complement_sum(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            read_packet(&bytes).map(|_| ())
        };
        // Ethernet address, DSCP, flow label, TTL or hop limit; then source, port, sequence number.
        for (sent, free, fixed) in
            [(&ipv4, vec![0, 15, 22], [29, 34, 53]), (&ipv6, vec![0, 15, 16, 21], [37, 54, 73])]
        {
            for at in free {
                assert_eq!(changed(sent, at), Ok(()), "byte {at}");
            }
            for at in fixed {
                assert_eq!(changed(sent, at), Err(PacketError::BadIcrc), "byte {at}");
            }
        }
    }

    #[test]
    fn marks_of_switches_are_read_and_change_no_checksum() {
        for route in routes() {
            let route = FlowAddresses { marking: CongestionMarking::Capable, ..route };
            let mut packet = Vec::new();
            write_packet(&route, PacketBody::Ack { psn: 1 }, &mut packet);
            assert!(!is_marked(&packet));
            let is_ipv4 = route.source.1.is_ipv4();
            packet[15] |= if is_ipv4 { 0b11 } else { 0b11_0000 };
            if is_ipv4 {
                packet[24..26].fill(0);
                let checksum = !ones_complement_sum(&packet[14..34]);
                packet[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            assert!(is_marked(&packet));
            assert_eq!(read_packet(&packet), Ok((0x12_3456, PacketBody::Ack { psn: 1 })));
        }
    }

    #[test]
    fn damaged_packets_do_not_panic() {
        for sent in written(PacketBody::Ack { psn: 1 }) {
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
        assert_eq!(invariant_checksum(&covered[ETHERNET..], IPV4).to_le_bytes(), *icrc);
        assert_eq!(read_packet(&packet), Ok((0x118, PacketBody::CongestionNotification)));
    }
}
