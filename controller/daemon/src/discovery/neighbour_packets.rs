//! ARP (RFC 826) and neighbour discovery (RFC 4861): who sent a packet, and how to ask for a host.
//!
//! Requests have no sender (RFC 5227, and the form of duplicate address detection in RFC 4862), so
//! that no host learns a wrong address from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pipelines::ETHERTYPE_ARP;
use topology::MacAddress;

/// Ethernet, IPv4, and the lengths of their addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const BROADCAST: [u8; 6] = [0xff; 6];
/// A locally administered address of nobody.
const PROBE_SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0];

const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Neighbour discovery never passes a router: RFC 4861 §7.1 discards any other hop limit.
const HOP_LIMIT: u8 = 255;
/// ICMPv6 header, flags and target.
const ND_BYTES: u16 = 24;
const SOLICITED_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);

/// Who sent an ARP or neighbour discovery packet, if it is one and says so. Link-local addresses
/// are left out: they are not routed.
pub fn parse_sender(frame: &[u8]) -> Option<(IpAddr, MacAddress)> {
    let ether_type = frame.get(12..14)?;
    if ether_type == ETHERTYPE_ARP.to_be_bytes() {
        parse_arp_sender(frame.get(14..42)?)
    } else if ether_type == ETHERTYPE_IPV6.to_be_bytes() {
        let mac: [u8; 6] = frame[6..12].try_into().ok()?;
        Some((parse_nd_sender(frame.get(14..78)?)?.into(), MacAddress(mac)))
    } else {
        None
    }
}

fn parse_arp_sender(packet: &[u8]) -> Option<(IpAddr, MacAddress)> {
    if packet[..6] != ETHERNET_IPV4 {
        return None;
    }
    let mac: [u8; 6] = packet[8..14].try_into().ok()?;
    let ip: [u8; 4] = packet[14..18].try_into().ok()?;
    let ip = Ipv4Addr::from(ip);
    let is_routed = !(ip.is_unspecified() || ip.is_link_local() || ip.is_multicast());
    is_routed.then_some((ip.into(), MacAddress(mac)))
}

/// The source of a solicitation, or the target of an advertisement.
fn parse_nd_sender(packet: &[u8]) -> Option<Ipv6Addr> {
    let is_discovery = packet[0] >> 4 == 6 && packet[6] == ICMPV6 && packet[7] == HOP_LIMIT;
    let address = match packet[40] {
        SOLICITATION => &packet[8..24],
        ADVERTISEMENT => &packet[48..64],
        _ => return None,
    };
    let address: [u8; 16] = address.try_into().ok()?;
    let ip = Ipv6Addr::from(address);
    let is_routed = !(ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast());
    (is_discovery && is_routed).then_some(ip)
}

/// The question who has this address.
pub(super) fn encode_request(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => encode_arp_request(ip),
        IpAddr::V6(ip) => encode_solicitation(ip),
    }
}

fn encode_arp_request(ip: Ipv4Addr) -> Vec<u8> {
    let parts: [&[u8]; 9] = [
        &BROADCAST,
        &PROBE_SOURCE,
        &ETHERTYPE_ARP.to_be_bytes(),
        &ETHERNET_IPV4,
        &REQUEST,
        &PROBE_SOURCE,
        &[0; 4],
        &[0; 6],
        &ip.octets(),
    ];
    let mut frame = parts.concat();
    frame.resize(60, 0);
    frame
}

fn encode_solicitation(target: Ipv6Addr) -> Vec<u8> {
    let group = Ipv6Addr::from_bits(SOLICITED_NODES.to_bits() | (target.to_bits() & 0xff_ffff));
    let [.., a, b, c, d] = group.octets();
    let mut message = [0; ND_BYTES as usize];
    message[0] = SOLICITATION;
    message[8..].copy_from_slice(&target.octets());
    let checksum = icmpv6_checksum(Ipv6Addr::UNSPECIFIED, group, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let parts: [&[u8]; 9] = [
        &[0x33, 0x33, a, b, c, d],
        &PROBE_SOURCE,
        &ETHERTYPE_IPV6.to_be_bytes(),
        &[0x60, 0, 0, 0],
        &ND_BYTES.to_be_bytes(),
        &[ICMPV6, HOP_LIMIT],
        &Ipv6Addr::UNSPECIFIED.octets(),
        &group.octets(),
        &message,
    ];
    parts.concat()
}

/// The checksum of an ICMPv6 message whose own checksum is zero (RFC 4443 §2.3).
fn icmpv6_checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> u16 {
    let addresses = src.segments().into_iter().chain(dst.segments());
    let words = message.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let constant = [message.len() as u16, ICMPV6.into()];
    let sum: u32 = addresses.chain(words).chain(constant).map(u32::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 10, 0, 0, 9];

    #[test]
    fn senders_are_read_and_requests_have_none() {
        let ip = Ipv4Addr::new(10, 0, 0, 9);
        let mut frame = encode_request(ip.into());
        assert_eq!(parse_sender(&frame), None);
        frame[22..28].copy_from_slice(&MAC);
        frame[28..32].copy_from_slice(&ip.octets());
        assert_eq!(parse_sender(&frame), Some((ip.into(), MacAddress(MAC))));
        assert_eq!(parse_sender(&frame[..41]), None);
        frame[28..32].copy_from_slice(&[169, 254, 0, 1]);
        assert_eq!(parse_sender(&frame), None);
        frame[13] = 0;
        assert_eq!(parse_sender(&frame), None);
    }

    #[test]
    fn senders_of_neighbour_discovery_are_read() {
        let ip: Ipv6Addr = "fd00:0:0:1::9".parse().unwrap();
        let mut frame = encode_request(ip.into());
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 9]);
        assert_eq!(parse_sender(&frame), None);
        frame[6..12].copy_from_slice(&MAC);
        frame[22..38].copy_from_slice(&ip.octets());
        assert_eq!(parse_sender(&frame), Some((ip.into(), MacAddress(MAC))));
        // The advertisement that answers names the address as its target.
        frame[22..38].fill(0xee);
        frame[54] = ADVERTISEMENT;
        assert_eq!(parse_sender(&frame), Some((ip.into(), MacAddress(MAC))));
        assert_eq!(parse_sender(&frame[..77]), None);
        frame[21] = 64;
        assert_eq!(parse_sender(&frame), None);
    }

    #[test]
    fn a_solicitation_sums_to_ones() {
        let target: Ipv6Addr = "fd00::1".parse().unwrap();
        let frame = encode_solicitation(target);
        let words = frame[14..].chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        // Addresses and message, with length and protocol of the pseudo-header.
        let covered = words.skip(4).map(u32::from).sum::<u32>() + 24 + 58;
        assert_eq!((covered & 0xffff) + (covered >> 16), 0xffff);
    }
}
