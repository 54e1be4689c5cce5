//! What a sender leaves to its interface: checksums, and the cutting of long frames.
//!
//! The stack of a host computes neither where its interface offers to (a veth and a TAP always do):
//! the checksum of TCP or UDP is then the sum of the pseudo-header alone, and one frame carries
//! many segments. [`packet_socket`](super::packet_socket) receives both in that state. The decision:
//! they are finished here, as a NIC would, so that a program sees what would be on a wire. Pure.

use crate::run::hash::csum16;

/// Bytes of `struct virtio_net_hdr`, which the kernel puts in front of a frame
/// (`PACKET_VNET_HDR`).
pub(super) const HEADER_BYTES: usize = 10;

/// The checksum is to be finished (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_*`.
const NO_SEGMENTATION: u8 = 0;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
const UDP: u8 = 5;
/// A flag beside these: the sender of TCP supports ECN.
const WITH_ECN: u8 = 0x80;

const ETHERTYPE_OFFSET: usize = 12;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const UDP_HEADER_BYTES: usize = 8;
/// Segments of one frame: the longest frame in the least segments of TCP (48 bytes) has fewer.
const SEGMENT_LIMIT: usize = 2048;
/// The flag of TCP that only the first segment has: CWR.
const FIRST_FLAGS: u8 = 0x80;
/// Those that only the last segment has: FIN and PSH.
const LAST_FLAGS: u8 = 0x09;

/// What of a frame is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Offload {
    /// Nothing.
    #[default]
    Nothing,
    /// A checksum.
    Checksum(ChecksumPlace),
    /// A checksum, and the cutting into segments.
    Segmentation { transport: Transport, checksum: ChecksumPlace, payload_bytes: usize },
    /// Something that is not known here.
    Unknown,
}

/// Where a checksum is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChecksumPlace {
    /// Where the summed bytes begin, from the beginning of the frame: the header of TCP or UDP.
    start: usize,
    /// Where the sum goes, from there.
    offset: usize,
}

/// The protocol whose segments one frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Offload {
    /// Reads a `struct virtio_net_hdr`, in the byte order of the machine.
    pub(super) fn from_header(header: [u8; HEADER_BYTES]) -> Self {
        let [flags, kind, _, _, s0, s1, c0, c1, o0, o1] = header;
        let halfword = |bytes| usize::from(u16::from_ne_bytes(bytes));
        let checksum = ChecksumPlace { start: halfword([c0, c1]), offset: halfword([o0, o1]) };
        let transport = match kind & !WITH_ECN {
            NO_SEGMENTATION if flags & NEEDS_CHECKSUM == 0 => return Self::Nothing,
            NO_SEGMENTATION => return Self::Checksum(checksum),
            TCP_OVER_IPV4 | TCP_OVER_IPV6 => Transport::Tcp,
            UDP => Transport::Udp,
            _ => return Self::Unknown,
        };
        match halfword([s0, s1]) {
            payload_bytes @ 1.. if flags & NEEDS_CHECKSUM != 0 => {
                Self::Segmentation { transport, checksum, payload_bytes }
            }
            _ => Self::Unknown,
        }
    }
}

/// Finishes a checksum; `None` if it is not within the frame.
pub(super) fn finish_checksum(frame: &mut [u8], place: ChecksumPlace) -> Option<()> {
    let sum = csum16(frame.get(place.start..)?);
    // Zero means no checksum in UDP, and is the same number as its complement.
    let sum = if sum == 0 { u16::MAX } else { sum };
    write_halfword(frame, place.start + place.offset, sum)
}

/// The frames that one with many segments stands for, without unfinished checksums; `None` if its
/// headers are not those of the transport.
pub(super) fn cut_segments(
    frame: &[u8],
    transport: Transport,
    place: ChecksumPlace,
    payload_bytes: usize,
) -> Option<Vec<Vec<u8>>> {
    let network = network_header(frame)?;
    let header_end = place.start
        + match transport {
            Transport::Tcp => usize::from(*frame.get(place.start + 12)? >> 4) * 4,
            Transport::Udp => UDP_HEADER_BYTES,
        };
    let (headers, payload) = frame.split_at_checked(header_end)?;
    let whole_bytes = u16::try_from(frame.len() - place.start).ok()?;
    let count = payload.len().div_ceil(payload_bytes);
    if count > SEGMENT_LIMIT {
        return None;
    }
    let cut = |(number, part): (usize, &[u8])| {
        let mut segment = [headers, part].concat();
        let bytes = u16::try_from(segment.len() - place.start).ok()?;
        network.renew(&mut segment, place.start, u16::try_from(number).ok()?)?;
        match transport {
            Transport::Tcp => {
                let sequence = place.start + 4;
                let field = segment.get_mut(sequence..)?.first_chunk_mut::<4>()?;
                let passed = u32::try_from(number * payload_bytes).ok()?;
                *field = u32::from_be_bytes(*field).wrapping_add(passed).to_be_bytes();
                let flags = segment.get_mut(place.start + 13)?;
                *flags &= if number == 0 { u8::MAX } else { !FIRST_FLAGS };
                *flags &= if number + 1 == count { u8::MAX } else { !LAST_FLAGS };
            }
            Transport::Udp => write_halfword(&mut segment, place.start + 4, bytes)?,
        }
        // The sum of the pseudo-header has the length of the whole.
        let pseudo = read_halfword(&segment, place.start + place.offset)?;
        let pseudo = fold_sum(u32::from(pseudo) + u32::from(!whole_bytes) + u32::from(bytes));
        write_halfword(&mut segment, place.start + place.offset, pseudo)?;
        finish_checksum(&mut segment, place)?;
        Some(segment)
    };
    payload.chunks(payload_bytes).enumerate().map(cut).collect()
}

/// Where the header of IP begins, and which it is.
#[derive(Clone, Copy, Debug)]
struct NetworkHeader {
    start: usize,
    is_ipv4: bool,
}

impl NetworkHeader {
    /// Makes the header that of a segment: its length, and in IPv4 its number and checksum.
    fn renew(self, segment: &mut [u8], end: usize, number: u16) -> Option<()> {
        let start = self.start;
        let bytes = segment.len().checked_sub(start)?;
        if !self.is_ipv4 {
            let behind = bytes.checked_sub(40)?;
            return write_halfword(segment, start + 4, u16::try_from(behind).ok()?);
        }
        write_halfword(segment, start + 2, u16::try_from(bytes).ok()?)?;
        let identification = read_halfword(segment, start + 4)?.wrapping_add(number);
        write_halfword(segment, start + 4, identification)?;
        write_halfword(segment, start + 10, 0)?;
        let sum = csum16(segment.get(start..end)?);
        write_halfword(segment, start + 10, sum)
    }
}

/// Finds the header of IP behind the tags of a frame.
fn network_header(frame: &[u8]) -> Option<NetworkHeader> {
    let mut at = ETHERTYPE_OFFSET;
    while VLAN_TAGS.contains(&read_halfword(frame, at)?) {
        at += 4;
    }
    let ethertype = read_halfword(frame, at)?;
    let start = at + 2;
    let least = if ethertype == IPV4 { 20 } else { 40 };
    let is_known = [IPV4, IPV6].contains(&ethertype) && frame.len() >= start + least;
    is_known.then_some(NetworkHeader { start, is_ipv4: ethertype == IPV4 })
}

fn fold_sum(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

fn read_halfword(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn write_halfword(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TCP_CHECKSUM: usize = 16;
    const UDP_CHECKSUM: usize = 6;

    /// A frame as a stack hands it to an interface that offers everything: the checksum is the sum
    /// of the pseudo-header.
    fn unfinished(transport: Transport, is_ipv4: bool, payload: &[u8]) -> (Vec<u8>, ChecksumPlace) {
        let mut head = vec![2; 12];
        let (protocol, mut header, offset) = match transport {
            Transport::Tcp => (6, vec![0x11; 20], TCP_CHECKSUM),
            Transport::Udp => (17, vec![0x11; 8], UDP_CHECKSUM),
        };
        if transport == Transport::Tcp {
            // Five words; CWR, PSH, ACK and FIN.
            header[12..14].copy_from_slice(&[0x50, 0x99]);
        }
        let bytes = (header.len() + payload.len()) as u16;
        let addresses = [7; 32];
        let addresses = if is_ipv4 { &addresses[..8] } else { &addresses[..] };
        if is_ipv4 {
            head.extend([0x08, 0x00, 0x45, 0]);
            head.extend((20 + bytes).to_be_bytes());
            head.extend([0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
        } else {
            head.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            head.extend(bytes.to_be_bytes());
            head.extend([protocol, 64]);
        }
        head.extend(addresses);
        let pseudo = [addresses, &[0, protocol], &bytes.to_be_bytes()].concat();
        header[offset..offset + 2].copy_from_slice(&(!csum16(&pseudo)).to_be_bytes());
        let place = ChecksumPlace { start: head.len(), offset };
        ([head, header, payload.to_vec()].concat(), place)
    }

    /// Whether the checksums of a frame are right, by adding everything that they cover.
    fn is_finished(frame: &[u8], transport: Transport, is_ipv4: bool) -> bool {
        let start = if is_ipv4 { 34 } else { 54 };
        let addresses = if is_ipv4 { &frame[26..34] } else { &frame[22..54] };
        let protocol = if transport == Transport::Tcp { 6 } else { 17 };
        let bytes = ((frame.len() - start) as u16).to_be_bytes();
        let covered = [addresses, &[0, protocol], &bytes, &frame[start..]].concat();
        csum16(&covered) == 0 && (!is_ipv4 || csum16(&frame[14..34]) == 0)
    }

    #[test]
    fn the_header_of_the_kernel_says_what_is_unfinished() {
        let header = |flags, kind, size: u16| {
            let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            header[4..6].copy_from_slice(&size.to_ne_bytes());
            header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
            header[8..10].copy_from_slice(&16_u16.to_ne_bytes());
            Offload::from_header(header)
        };
        let checksum = ChecksumPlace { start: 34, offset: 16 };
        let segments =
            |transport| Offload::Segmentation { transport, checksum, payload_bytes: 1448 };
        assert_eq!(header(0, 0, 0), Offload::Nothing);
        // The checksum has been verified.
        assert_eq!(header(2, 0, 0), Offload::Nothing);
        assert_eq!(header(1, 0, 0), Offload::Checksum(checksum));
        for kind in [1, 4, 0x81, 0x84] {
            assert_eq!(header(1, kind, 1448), segments(Transport::Tcp), "{kind}");
        }
        assert_eq!(header(1, 5, 1448), segments(Transport::Udp));
        // Fragments of UDP, a size of nothing, and segments without a checksum to finish.
        for unknown in [header(1, 3, 1448), header(1, 1, 0), header(0, 1, 1448)] {
            assert_eq!(unknown, Offload::Unknown);
        }
    }

    #[test]
    fn segments_have_the_flags_and_numbers_that_a_nic_gives_them() {
        let (frame, place) = unfinished(Transport::Tcp, true, &[9; 250]);
        let segments = cut_segments(&frame, Transport::Tcp, place, 100).unwrap();
        let seen: Vec<_> = segments
            .iter()
            .map(|segment| {
                let sequence = u32::from_be_bytes(*segment[38..].first_chunk().unwrap());
                (
                    segment.len() - 54,
                    read_halfword(segment, 18),
                    sequence - 0x1111_1111,
                    segment[47],
                )
            })
            .collect();
        let expected =
            [(100, Some(0xffff), 0, 0x90), (100, Some(0), 100, 0x10), (50, Some(1), 200, 0x19)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn headers_that_are_not_what_they_should_be_cut_nothing() {
        let (frame, place) = unfinished(Transport::Tcp, true, &[9; 250]);
        let mut other = frame.clone();
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(cut_segments(&other, Transport::Tcp, place, 100), None);
        assert_eq!(cut_segments(&frame[..40], Transport::Tcp, place, 100), None);
        let beyond = ChecksumPlace { start: 900, ..place };
        assert_eq!(cut_segments(&frame, Transport::Udp, beyond, 100), None);
        assert_eq!(finish_checksum(&mut frame.clone(), beyond), None);
    }

    fn transports() -> impl Strategy<Value = Transport> {
        prop_oneof![Just(Transport::Tcp), Just(Transport::Udp)]
    }

    proptest! {
        #[test]
        fn checksums_are_right_once_they_are_finished(
            transport in transports(), is_ipv4: bool,
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let (mut frame, place) = unfinished(transport, is_ipv4, &payload);
            finish_checksum(&mut frame, place).unwrap();
            // The header of IPv4 is finished by the stack, which this one is not.
            if is_ipv4 {
                let sum = csum16(&frame[14..34]);
                write_halfword(&mut frame, 24, sum).unwrap();
            }
            prop_assert!(is_finished(&frame, transport, is_ipv4));
        }

        #[test]
        fn segments_are_whole_frames_with_the_same_payload(
            transport in transports(), is_ipv4: bool, size in 1_usize..200,
            payload in prop::collection::vec(any::<u8>(), 1..2000),
        ) {
            let (frame, place) = unfinished(transport, is_ipv4, &payload);
            let segments = cut_segments(&frame, transport, place, size).unwrap();
            prop_assert_eq!(segments.len(), payload.len().div_ceil(size));
            let header_end = frame.len() - payload.len();
            prop_assert_eq!(segments.iter().flat_map(|segment| segment[header_end..].to_vec())
                .collect::<Vec<u8>>(), payload);
            for segment in &segments {
                prop_assert!(is_finished(segment, transport, is_ipv4));
                prop_assert!(segment.len() - header_end <= size);
            }
        }

        #[test]
        fn no_header_of_a_sender_panics(
            header: [u8; HEADER_BYTES], frame in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            match Offload::from_header(header) {
                Offload::Checksum(place) => drop(finish_checksum(&mut frame.clone(), place)),
                Offload::Segmentation { transport, checksum, payload_bytes } => {
                    drop(cut_segments(&frame, transport, checksum, payload_bytes));
                }
                Offload::Nothing | Offload::Unknown => {}
            }
        }
    }
}
