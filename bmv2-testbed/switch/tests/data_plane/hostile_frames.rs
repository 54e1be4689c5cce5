//! Frames as an attacker would send them: valid ones of every kind, changed in every way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::frames::{FLOW6, Ipv6Flow, NeighbourSolicitation, SOLICITATION, arp, roce, roce6};
use crate::support::{FLOW, Flow, finish_header};

/// The NICs have ports, and addresses, by the same numbers from 1 on; more ports have no NIC.
pub(crate) const NICS: u32 = 4;
pub(crate) const PORTS: u16 = 6;

pub(crate) fn address(number: u32) -> u32 {
    0x0a00_0000 | number
}

pub(crate) fn address6(number: u32) -> u128 {
    0xfd00 << 112 | u128::from(number)
}

/// Small pools, so that frames and rows meet.
pub(crate) const SOURCE_PORTS: [u16; 3] = [0xc000, 0xc001, 0xc002];
pub(crate) const PORTS_OF_SERVICES: [u16; 3] = [4791, 4791, 80];
pub(crate) const QUEUE_PAIRS: [u32; 3] = [5, 6, 7];
pub(crate) const PROTOCOLS: [u8; 3] = [17, 17, 6];
/// Acknowledgment, atomic acknowledgment, congestion notification, data.
const OPCODES: [u8; 5] = [0x11, 0x11, 0x12, 0x81, 0x06];
/// Shorter and longer than the longest answer, and the longest that Ethernet carries.
const LENGTHS: [usize; 9] = [64, 74, 94, 95, 96, 97, 98, 200, 8_894];

/// What a host sends.
#[derive(Clone, Debug)]
pub(crate) struct HostileFrame {
    pub(crate) port: u16,
    pub(crate) bytes: Vec<u8>,
}

/// What a frame starts as.
#[derive(Clone, Copy, Debug)]
enum FrameKind {
    Ipv4,
    Ipv6,
    Arp,
    NeighbourSolicitation,
}

/// The numbers of a frame's source and destination and the rest of its flow.
#[derive(Clone, Copy, Debug)]
struct FrameDraft {
    kind: FrameKind,
    ends: (u32, u32),
    ports: (u16, u16),
    protocol: u8,
    opcode: u8,
    dest_qp: u32,
    dscp: u8,
    bytes: usize,
}

/// One change of a valid frame.
#[derive(Clone, Debug)]
enum FrameChange {
    Byte(Index, u8),
    Cut(Index),
    Pad(usize),
    Tag(u16, u16),
    Options(u8),
    Fragment(u16),
    Extension(u8),
    Length(u16),
    /// The header of the CPU port in front.
    PacketOut(u16),
    /// The frame's packet within another one of the same host.
    Within(u8),
    EtherType(u16),
    Source(u32),
    /// The first byte of the network header: version and header length.
    Version(u8),
}

/// Sources of IPv4 that no host has, and one that no host of the fabric has.
const SOURCES: [u32; 6] =
    [0x7f00_0001, 0x0000_0001, 0xe000_0001, 0xf000_0001, u32::MAX, 0x0b00_0001];

pub(crate) fn hostile_frame() -> impl Strategy<Value = HostileFrame> {
    let changes = prop_oneof![2 => Just(Vec::new()), 3 => vec(change(), 1..4)];
    // Most have the checksum of what they are.
    let own_and_finished = (prop::bool::weighted(0.75), prop::bool::weighted(0.75));
    (1..=PORTS, draft(), own_and_finished, changes).prop_map(
        |(port, mut draft, (own, finished), changes)| {
            if own {
                draft.ends.0 = u32::from(port);
            }
            let mut bytes = draft.frame();
            for change in &changes {
                change.apply(&mut bytes);
            }
            if finished && bytes.get(ETHER_TYPE..NETWORK) == Some(&[8, 0]) && bytes.len() > NETWORK
            {
                finish_header(&mut bytes);
            }
            HostileFrame { port, bytes }
        },
    )
}

fn draft() -> impl Strategy<Value = FrameDraft> {
    let kind = prop_oneof![
        6 => Just(FrameKind::Ipv4), 6 => Just(FrameKind::Ipv6), 1 => Just(FrameKind::Arp),
        1 => Just(FrameKind::NeighbourSolicitation),
    ];
    let ends = (1..=u32::from(PORTS), 1..=NICS);
    let ports = (select(&SOURCE_PORTS[..]), select(&PORTS_OF_SERVICES[..]));
    let roce = (select(&OPCODES[..]), select(&QUEUE_PAIRS[..]));
    let rest = (select(&PROTOCOLS[..]), 0_u8..64, select(&LENGTHS[..]));
    (kind, ends, ports, roce, rest).prop_map(|(kind, ends, ports, roce, rest)| FrameDraft {
        kind,
        ends,
        ports,
        protocol: rest.0,
        opcode: roce.0,
        dest_qp: roce.1,
        dscp: rest.1,
        bytes: rest.2,
    })
}

fn change() -> impl Strategy<Value = FrameChange> {
    prop_oneof![
        6 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| FrameChange::Byte(at, value)),
        2 => any::<Index>().prop_map(FrameChange::Cut),
        1 => (1_usize..40).prop_map(FrameChange::Pad),
        2 => (select(&[0x8100_u16, 0x88a8][..]), any::<u16>())
            .prop_map(|(kind, tag)| FrameChange::Tag(kind, tag)),
        1 => (1_u8..11).prop_map(FrameChange::Options),
        1 => any::<u16>().prop_map(FrameChange::Fragment),
        2 => select(&[0_u8, 43, 44, 60, 51][..]).prop_map(FrameChange::Extension),
        2 => prop_oneof![select(&[0_u16, 48, 60, 82][..]), any::<u16>()]
            .prop_map(FrameChange::Length),
        1 => any::<u16>().prop_map(FrameChange::PacketOut),
        1 => select(&[4_u8, 41][..]).prop_map(FrameChange::Within),
        1 => select(&[0x0800_u16, 0x86dd, 0x0806, 0x88cc, 0x8847][..])
            .prop_map(FrameChange::EtherType),
        1 => select(&SOURCES[..]).prop_map(FrameChange::Source),
        1 => select(&[0x00_u8, 0x44, 0x46, 0x4f, 0x55, 0x65][..]).prop_map(FrameChange::Version),
    ]
}

impl FrameDraft {
    fn frame(self) -> Vec<u8> {
        let (src, dst) = self.ends;
        let (sport, dport) = self.ports;
        match self.kind {
            FrameKind::Ipv4 => {
                let (src, dst) = (address(src), address(dst));
                let flow = Flow { src, dst, sport, dport, dscp: self.dscp, ..FLOW };
                let mut frame = roce(flow, self.opcode, self.dest_qp, self.bytes);
                frame[23] = self.protocol;
                finish_header(&mut frame);
                frame
            }
            FrameKind::Ipv6 => {
                let (src, dst) = (address6(src), address6(dst));
                let traffic_class = self.dscp << 2;
                let flow = Ipv6Flow { src, dst, sport, dport, traffic_class, ..FLOW6 };
                let mut frame = roce6(flow, self.opcode, self.dest_qp, self.bytes.max(74));
                frame[20] = self.protocol;
                frame
            }
            FrameKind::Arp => arp(1, address(src), address(dst)),
            FrameKind::NeighbourSolicitation => {
                let (src, target) = (address6(src), address6(dst));
                NeighbourSolicitation { src, target, ..SOLICITATION }.packet()
            }
        }
    }
}

/// Where a frame has the type of what Ethernet carries, and where that begins.
const ETHER_TYPE: usize = 12;
const NETWORK: usize = 14;

impl FrameChange {
    /// Changes the frame, or leaves it if it is too short or of another kind.
    fn apply(&self, frame: &mut Vec<u8>) {
        let is_ipv6 = frame.get(ETHER_TYPE) == Some(&0x86);
        match *self {
            Self::Byte(at, value) if !frame.is_empty() => {
                // Mostly in the headers.
                let at = at.index(frame.len().min(80));
                frame[at] = value;
            }
            Self::Cut(at) if !frame.is_empty() => frame.truncate(at.index(frame.len().min(120))),
            Self::Pad(more) => frame.extend(std::iter::repeat_n(0x5a, more)),
            Self::PacketOut(header) => drop(frame.splice(..0, header.to_be_bytes())),
            _ if frame.len() < NETWORK + 40 => {}
            Self::Tag(kind, tag) => {
                let tag = [kind.to_be_bytes(), tag.to_be_bytes()].concat();
                drop(frame.splice(ETHER_TYPE..ETHER_TYPE, tag));
            }
            Self::Options(words) => {
                frame[NETWORK] = 0x45 + words;
                let end = NETWORK + 20;
                drop(frame.splice(end..end, vec![1; usize::from(words) * 4]));
            }
            Self::Fragment(flags) => frame[20..22].copy_from_slice(&flags.to_be_bytes()),
            Self::Extension(kind) => {
                let next = std::mem::replace(&mut frame[20], kind);
                let end = NETWORK + 40;
                drop(frame.splice(end..end, [next, 0, 0, 0, 0, 0, 0, 0]));
            }
            Self::Length(length) => {
                let at = if is_ipv6 { 18 } else { 16 };
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            Self::Within(protocol) => {
                let (length, at) = if is_ipv6 { (40, 20) } else { (20, 23) };
                let mut outer = frame[NETWORK..NETWORK + length].to_vec();
                outer[at - NETWORK] = protocol;
                drop(frame.splice(NETWORK..NETWORK, outer));
            }
            Self::EtherType(kind) => {
                frame[ETHER_TYPE..NETWORK].copy_from_slice(&kind.to_be_bytes());
            }
            Self::Source(source) => frame[26..30].copy_from_slice(&source.to_be_bytes()),
            Self::Version(byte) => frame[NETWORK] = byte,
            Self::Byte(..) | Self::Cut(_) => {}
        }
    }
}
