//! ARP (RFC 826), as far as it tells where hosts are: reading what they send, and asking for one.
//!
//! The decision: a host is where it says that it is. Whatever ARP packet comes in, its sender is at
//! the port that it came in by; questions are asked in nobody's name (RFC 5227), so that no host
//! learns a wrong address from them.

use std::net::Ipv4Addr;

use crate::pipelines::ETHERTYPE_ARP;
use topology::MacAddress;

/// Ethernet, IPv4, and the lengths of their addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const BROADCAST: [u8; 6] = [0xff; 6];
/// A locally administered address of nobody.
const PROBE_SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Who sent an ARP packet, if it is one and says so.
pub(super) fn parse_sender(frame: &[u8]) -> Option<(Ipv4Addr, MacAddress)> {
    let packet = frame.get(14..42)?;
    if frame[12..14] != ETHERTYPE_ARP.to_be_bytes() || packet[..6] != ETHERNET_IPV4 {
        return None;
    }
    let mac: [u8; 6] = packet[8..14].try_into().ok()?;
    let ip: [u8; 4] = packet[14..18].try_into().ok()?;
    let ip = Ipv4Addr::from(ip);
    (!ip.is_unspecified()).then_some((ip, MacAddress(mac)))
}

/// The question who has this address.
pub(super) fn encode_request(ip: Ipv4Addr) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_read_and_requests_have_none() {
        let ip = Ipv4Addr::new(10, 0, 0, 9);
        let mut frame = encode_request(ip);
        assert_eq!(parse_sender(&frame), None);
        frame[22..28].copy_from_slice(&[2, 0, 10, 0, 0, 9]);
        frame[28..32].copy_from_slice(&ip.octets());
        assert_eq!(parse_sender(&frame), Some((ip, MacAddress([2, 0, 10, 0, 0, 9]))));
        assert_eq!(parse_sender(&frame[..41]), None);
        frame[13] = 0;
        assert_eq!(parse_sender(&frame), None);
    }
}
