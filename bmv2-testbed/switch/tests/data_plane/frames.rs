//! Frames of IPv6, ARP and neighbour discovery, and what is read out of them.

use switch::KeyField;

use crate::support::{Flow, finish_header, internet_checksum};

pub(crate) const HERE6: u128 = 0xfd00 << 112 | 0x11;
pub(crate) const THERE6: u128 = 0xfd00 << 112 | 0x2_0011;
/// The address of `HERE6`'s NIC that it uses before it has another.
pub(crate) const LINK_LOCAL: u128 = 0xfe80 << 112 | 0x11;

pub(crate) const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// What the leaf answers with.
pub(crate) const LEAF_MAC: u128 = 0x02ff_0000_0001;
pub(crate) const LEAF_MAC_BYTES: [u8; 6] = [0x02, 0xff, 0, 0, 0, 1];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const BTH_AT: usize = 42;
const BTH6_AT: usize = 62;

/// A UDP flow of IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv6Flow {
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
}

pub(crate) const FLOW6: Ipv6Flow = Ipv6Flow {
    src: HERE6,
    dst: THERE6,
    sport: 0xc001,
    dport: 4791,
    traffic_class: 0,
    flow_label: 0,
    hop_limit: 64,
};

impl Ipv6Flow {
    /// A packet of the flow, `bytes` long in all (at least 62).
    pub(crate) fn packet(self, bytes: usize) -> Vec<u8> {
        let length = (bytes - 54) as u16;
        let mut udp = Vec::new();
        udp.extend(self.sport.to_be_bytes());
        udp.extend(self.dport.to_be_bytes());
        udp.extend(length.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend((62..bytes).map(|at| at as u8));
        self.carry(UDP, &udp)
    }

    /// The packet with these bytes after its IPv6 header.
    pub(crate) fn carry(self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x02, 0, 0, 0, 0, 2];
        packet.extend(HOST_MAC);
        packet.extend([0x86, 0xdd]);
        let words = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        packet.extend(words.to_be_bytes());
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next_header, self.hop_limit]);
        packet.extend(self.src.to_be_bytes());
        packet.extend(self.dst.to_be_bytes());
        packet.extend(payload);
        packet
    }

    /// The key of its row in `flow_pin6` at a port.
    pub(crate) fn edge_key(self, port: u128) -> [KeyField; 5] {
        self.key_from(port)
    }

    /// The key of its row in `transit_pin6`.
    pub(crate) fn transit_key(self) -> [KeyField; 5] {
        self.key_from(self.src)
    }

    fn key_from(self, first: u128) -> [KeyField; 5] {
        let ports = [u128::from(self.sport), u128::from(self.dport)];
        [first, self.dst, u128::from(UDP), ports[0], ports[1]].map(KeyField::Exact)
    }
}

/// An IPv4 packet of RoCEv2 with this opcode and destination queue pair, `bytes` long in all.
pub(crate) fn roce(flow: Flow, opcode: u8, dest_qp: u32, bytes: usize) -> Vec<u8> {
    with_bth(flow.packet(bytes), BTH_AT, opcode, dest_qp)
}

/// The same over IPv6.
pub(crate) fn roce6(flow: Ipv6Flow, opcode: u8, dest_qp: u32, bytes: usize) -> Vec<u8> {
    with_bth(flow.packet(bytes), BTH6_AT, opcode, dest_qp)
}

fn with_bth(mut packet: Vec<u8>, at: usize, opcode: u8, dest_qp: u32) -> Vec<u8> {
    packet[at] = opcode;
    packet[at + 5..at + 8].copy_from_slice(&dest_qp.to_be_bytes()[1..]);
    packet
}

/// A TCP packet of IPv4 with the same addresses and ports.
pub(crate) fn tcp(flow: Flow, bytes: usize) -> Vec<u8> {
    let mut packet = flow.packet(bytes);
    packet[23] = TCP;
    finish_header(&mut packet);
    packet
}

/// An ARP packet of the host with `HOST_MAC`.
pub(crate) fn arp(operation: u8, sender: u32, target: u32) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend(HOST_MAC);
    packet.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation]);
    packet.extend(HOST_MAC);
    packet.extend(sender.to_be_bytes());
    packet.extend([0; 6]);
    packet.extend(target.to_be_bytes());
    // Ethernet pads to 60 bytes.
    packet.resize(60, 0);
    packet
}

/// A neighbour solicitation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeighbourSolicitation {
    pub(crate) src: u128,
    pub(crate) target: u128,
    pub(crate) hop_limit: u8,
    pub(crate) option: u8,
}

pub(crate) const SOLICITATION: NeighbourSolicitation =
    NeighbourSolicitation { src: HERE6, target: THERE6, hop_limit: 255, option: 1 };

impl NeighbourSolicitation {
    /// To the solicited-node multicast address of its target, from `HOST_MAC`.
    pub(crate) fn packet(self) -> Vec<u8> {
        let dst = 0xff02 << 112 | 0x1_ff00_0000 | self.target & 0xff_ffff;
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend(self.target.to_be_bytes());
        message.extend([self.option, 1]);
        message.extend(HOST_MAC);
        let sum = icmpv6_checksum(self.src, dst, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let flow = Ipv6Flow { src: self.src, dst, hop_limit: self.hop_limit, ..FLOW6 };
        flow.carry(ICMPV6, &message)
    }
}

/// RFC 4443 §2.3: over the pseudo header of IPv6 and the message.
pub(crate) fn icmpv6_checksum(src: u128, dst: u128, message: &[u8]) -> u16 {
    let mut bytes = src.to_be_bytes().to_vec();
    bytes.extend(dst.to_be_bytes());
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, ICMPV6]);
    bytes.extend(message);
    internet_checksum(&bytes)
}

/// The DSCP of an IPv4 or IPv6 packet.
pub(crate) fn dscp_of(packet: &[u8]) -> u8 {
    match packet[12..14] {
        [0x86, 0xdd] => (packet[14] & 0xf) << 2 | packet[15] >> 6,
        _ => packet[15] >> 2,
    }
}
