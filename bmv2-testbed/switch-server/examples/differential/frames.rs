//! Frames of a fabric: IPv4, IPv6, ARP and neighbour discovery, tagged or not, right or nearly so.

use crate::chance::Chance;

/// The first 64 bits of a link-local address.
pub(crate) const LINK_LOCAL: u64 = 0xfe80 << 48;

/// Eight addresses in two subnets.
pub(crate) fn address(number: u64) -> u32 {
    0x0a00_0000 | ((number & 4) << 6 | number & 3) as u32
}

pub(crate) fn address6(number: u64) -> u128 {
    0xfd00 << 112 | u128::from((number & 4) << 14 | number & 3)
}

/// Sources that no host has.
const MARTIANS: [u32; 5] = [0, 0x7f00_0001, 0xe000_0001, 0xf000_0001, u32::MAX];

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const LLDP: u16 = 0x88cc;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;
const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;

impl Chance {
    /// A frame, one in eight with one tag or two.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        for _ in 0..2 {
            frame.extend(self.mac());
        }
        if self.one_in(8) {
            let outer = self.pick(&[VLAN, QINQ]).unwrap_or(VLAN);
            frame.extend(outer.to_be_bytes());
            frame.extend([0, self.below(8) as u8]);
            if outer == QINQ {
                frame.extend(VLAN.to_be_bytes());
                frame.extend([0, self.below(8) as u8]);
            }
        }
        let kind = self.pick(&[IPV4, IPV4, IPV4, IPV6, IPV6, IPV6, ARP, LLDP]).unwrap_or(IPV4);
        frame.extend(kind.to_be_bytes());
        match kind {
            IPV4 => self.ipv4(&mut frame),
            IPV6 if self.one_in(4) => self.neighbour(&mut frame),
            IPV6 => self.ipv6(&mut frame),
            ARP => self.arp(&mut frame),
            _ => frame.extend((0..self.below(64)).map(|at| at as u8)),
        }
        frame
    }

    fn mac(&mut self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.below(8) as u8]
    }

    /// A packet of IPv4, one in five with a header that RFC 1812 refuses.
    fn ipv4(&mut self, frame: &mut Vec<u8>) {
        let start = frame.len();
        let flaw = self.below(20);
        let protocol = self.pick(&[UDP, UDP, UDP, TCP, ICMP]).unwrap_or(UDP);
        let transport = self.transport();
        let words = if self.one_in(16) { 5 + self.below(4) as u8 } else { 5 };
        let length = 4 * u16::from(words) + transport.len() as u16;
        let fragment =
            self.pick(&[0x4000, 0x4000, 0x4000, 0x4000, 0x2000, 0x2004]).unwrap_or(0_u16);
        let version = if flaw == 0 { 0x50 } else { 0x40 };
        frame.extend([version | words, self.traffic_class()]);
        let length = match flaw {
            1 => length + 1 + self.below(64) as u16,
            2 => self.below(40) as u16,
            _ => length,
        };
        frame.extend(length.to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([self.pick(&[64, 64, 64, 64, 1, 0]).unwrap_or(64), protocol, 0, 0]);
        let source = match flaw {
            3 => self.pick(&MARTIANS).unwrap_or(0),
            _ => address(self.below(8)),
        };
        frame.extend([source, address(self.below(8))].map(u32::to_be_bytes).concat());
        frame.extend(vec![1; 4 * usize::from(words - 5)]);
        let sum = checksum(&frame[start..]) ^ u16::from(flaw == 4);
        frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(transport);
    }

    fn ipv6(&mut self, frame: &mut Vec<u8>) {
        let next = [UDP, UDP, UDP, UDP, TCP, ICMPV6, FRAGMENT, HOP_BY_HOP];
        let next = self.pick(&next).unwrap_or(UDP);
        let mut payload = self.transport();
        if matches!(next, FRAGMENT | HOP_BY_HOP) {
            drop(payload.splice(..0, [UDP, 0, 0, 0, 0, 0, 0, 0]));
        }
        let hop_limit = self.pick(&[64, 64, 64, 255, 1, 0]).unwrap_or(64);
        let (src, dst) = (address6(self.below(8)), address6(self.below(8)));
        self.ipv6_header(frame, (next, hop_limit, payload.len() as u16));
        frame.extend([src.to_be_bytes(), dst.to_be_bytes()].concat());
        frame.extend(payload);
    }

    fn ipv6_header(&mut self, frame: &mut Vec<u8>, fields: (u8, u8, u16)) {
        let (next, hop_limit, length) = fields;
        let label = self.below(1 << 20) as u32;
        let first = 6 << 28 | u32::from(self.traffic_class()) << 20 | label;
        frame.extend(first.to_be_bytes());
        frame.extend(length.to_be_bytes());
        frame.extend([next, hop_limit]);
    }

    /// DSCP and ECN; most values of DSCP mean a level.
    fn traffic_class(&mut self) -> u8 {
        (self.below(8) << 5 | self.below(2) << 2 | self.below(4)) as u8
    }

    /// Ports, what UDP has besides, and bytes that may be the header of RoCEv2.
    fn transport(&mut self) -> Vec<u8> {
        let payload = self.below(64) as usize;
        let mut bytes = (0xc000 | self.below(4) as u16).to_be_bytes().to_vec();
        bytes.extend(self.pick(&[4791, 4791, 80, 0xc001]).unwrap_or(4791_u16).to_be_bytes());
        bytes.extend((8 + payload as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend([self.below(8) as u8, 0, 0, 0, 0, 0, 0, self.below(4) as u8, 0, 0, 0, 0]);
        bytes.extend((0..payload).map(|_| self.below(4) as u8));
        bytes
    }

    fn arp(&mut self, frame: &mut Vec<u8>) {
        frame.extend([0, 1, 8, 0, 6, 4, 0, self.pick(&[1, 1, 1, 2]).unwrap_or(1)]);
        for _ in 0..2 {
            frame.extend(self.mac());
            let address = address(self.below(8));
            frame.extend(address.to_be_bytes());
        }
        frame.resize(60, 0);
    }

    /// A neighbour solicitation, or what is nearly one.
    fn neighbour(&mut self, frame: &mut Vec<u8>) {
        let kind = self.pick(&[135, 135, 135, 135, 136, 133]).unwrap_or(135_u8);
        let target = address6(self.below(8));
        let src = match self.below(4) {
            0 => u128::from(LINK_LOCAL) << 64 | u128::from(self.below(4)),
            _ => address6(self.below(8)),
        };
        let dst = 0xff02 << 112 | 0x1_ff00_0000 | target & 0xff_ffff;
        let option = self.pick(&[1, 1, 1, 2]).unwrap_or(1_u8);
        let length = self.pick(&[32, 32, 32, 32, 24, 40]).unwrap_or(32_u16);
        let mut message = vec![kind, 0, self.below(256) as u8, self.below(256) as u8, 0, 0, 0, 0];
        message.extend(target.to_be_bytes());
        message.extend([option, 1]);
        message.extend(self.mac());
        message.resize(usize::from(length), 0);
        let hop_limit = self.pick(&[255, 255, 255, 64]).unwrap_or(255);
        self.ipv6_header(frame, (ICMPV6, hop_limit, length));
        frame.extend([src.to_be_bytes(), dst.to_be_bytes()].concat());
        frame.extend(message);
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
