//! Explicit congestion notification (RFC 3168): what a long queue writes on packets that leave it.
//!
//! The mark is put on finished packets, behind egress, as a queue in hardware does; so it needs
//! nothing of the program. A packet of a sender that does not take part stays as it is.

const ETHER_TYPE: std::ops::Range<usize> = 12..14;
const IPV4: &[u8] = &[0x08, 0x00];
const IPV6: &[u8] = &[0x86, 0xdd];
/// The byte that holds the two bits, in either version of IP.
const TRAFFIC_CLASS: usize = 15;
const IPV4_CHECKSUM: std::ops::Range<usize> = 24..26;
/// Where the two bits are in the byte of IPv6.
const IPV6_BITS: u8 = 0x30;
/// Both bits set are "congestion experienced"; none set is a sender that does not take part.
const IPV4_BITS: u8 = 0x03;

/// Marks a packet of IP whose sender takes part.
pub(crate) fn mark_congestion(packet: &mut [u8]) {
    match packet.get(ETHER_TYPE) {
        // A packet that is too short for its checksum is left alone: with a mark and no correction
        // the next router would drop it.
        Some(IPV4) if packet.len() >= IPV4_CHECKSUM.end => mark_ipv4(packet),
        Some(IPV6) => {
            if let Some(byte) = packet.get_mut(TRAFFIC_CLASS) {
                *byte = marked_byte(*byte, IPV6_BITS);
            }
        }
        _ => {}
    }
}

fn mark_ipv4(packet: &mut [u8]) {
    let before = packet[TRAFFIC_CLASS];
    let after = marked_byte(before, IPV4_BITS);
    packet[TRAFFIC_CLASS] = after;
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m'); the byte is the low one of its word.
    let old = u16::from_be_bytes([packet[IPV4_CHECKSUM.start], packet[IPV4_CHECKSUM.start + 1]]);
    let sum = u32::from(!old) + u32::from(!u16::from(before)) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    // Twice, because the first fold can carry once more.
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[IPV4_CHECKSUM].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

fn marked_byte(byte: u8, bits: u8) -> u8 {
    match byte & bits {
        // Not-ECT: the sender would not understand a mark.
        0 => byte,
        _ => byte | bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet and an IPv4 header, with the checksum of a traffic class.
    fn ipv4(traffic_class: u8) -> Vec<u8> {
        let mut packet = vec![0; 34];
        packet[ETHER_TYPE].copy_from_slice(IPV4);
        packet[14..18].copy_from_slice(&[0x45, traffic_class, 0, 20]);
        packet[22..34].copy_from_slice(&[64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
        let words = packet[14..].chunks(2);
        let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        packet[IPV4_CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn a_marked_packet_has_the_checksum_of_its_new_header() {
        for (before, after) in [(0xe0, 0xe0), (0xe1, 0xe3), (0xe2, 0xe3), (0xe3, 0xe3)] {
            let mut packet = ipv4(before);
            mark_congestion(&mut packet);
            assert_eq!(packet, ipv4(after), "{before:#x}");
        }
    }

    #[test]
    fn packets_without_ip_or_cut_short_are_unchanged() {
        for length in 0..34 {
            let mut packet = ipv4(1)[..length].to_vec();
            let before = packet.clone();
            mark_congestion(&mut packet);
            assert_eq!(packet == before, length < IPV4_CHECKSUM.end);
        }
        let mut version_6 = vec![0; 16];
        version_6[ETHER_TYPE].copy_from_slice(IPV6);
        version_6[TRAFFIC_CLASS] = 0x20;
        mark_congestion(&mut version_6);
        assert_eq!(version_6[TRAFFIC_CLASS], 0x30);
    }
}
