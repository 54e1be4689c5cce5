//! Offloads of interfaces, which would hand a switch packets as they never are on a wire.
//!
//! A veth pair passes packets on with unfinished checksums and merged segments. The kernel's
//! `ethtool` family of generic netlink turns that off, so the program ethtool need not be
//! installed.
//! The decision: what a kernel does not have is refused, which is as good as off.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

/// Features that change packets, by the kernel's names.
const FEATURES: [&str; 6] = [
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];

// Of linux/netlink.h and linux/genetlink.h.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR_MESSAGE: u16 = 2;
const CONTROL_FAMILY: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NESTED: u16 = 0x8000;
const MESSAGE_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;

// Of linux/ethtool_netlink.h.
const FEATURES_SET: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_DEVICE: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Turns the offloads of interfaces of this thread's network namespace off.
///
/// # Errors
/// The kernel has no `ethtool` family of generic netlink (before Linux 5.8).
pub(super) fn turn_off<'a>(interfaces: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let netlink = GenericNetlink::open()?;
    let family = netlink.find_family("ethtool")?;
    for interface in interfaces {
        for feature in FEATURES {
            netlink.request(family, FEATURES_SET, &feature_off(interface, feature))?;
        }
    }
    Ok(())
}

/// A socket of generic netlink.
struct GenericNetlink(OwnedFd);

impl GenericNetlink {
    fn open() -> io::Result<Self> {
        let family = AddressFamily::Netlink;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(family, SockType::Raw, flags, SockProtocol::NetlinkGeneric)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self(fd))
    }

    fn find_family(&self, name: &str) -> io::Result<u16> {
        let reply = self.request(CONTROL_FAMILY, GET_FAMILY, &text_attribute(FAMILY_NAME, name))?;
        let attributes = reply.get(MESSAGE_HEADER + GENERIC_HEADER..).unwrap_or_default();
        let id = find_attribute(attributes, FAMILY_ID).and_then(|value| value.first_chunk());
        id.map(|id| u16::from_ne_bytes(*id))
            .ok_or_else(|| io::Error::other(format!("the kernel has no netlink family {name}")))
    }

    /// Sends a request and waits until the kernel has acknowledged or refused it; the first other
    /// message, or nothing.
    fn request(&self, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        send(self.0.as_raw_fd(), &message(family, command, attributes), MsgFlags::empty())?;
        let mut reply = Vec::new();
        let mut buffer = vec![0; 8 << 10];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some((one, after)) = split_message(rest) {
                if message_type(one) == Some(ERROR_MESSAGE) {
                    return Ok(reply);
                }
                if reply.is_empty() {
                    reply = one.to_vec();
                }
                rest = after;
            }
        }
    }
}

/// Attributes of the request that turns one feature of an interface off: a bit that is named and
/// has no value is cleared.
fn feature_off(interface: &str, feature: &str) -> Vec<u8> {
    let device = text_attribute(HEADER_DEVICE, interface);
    let bit = attribute(BITS_BIT | NESTED, &text_attribute(BIT_NAME, feature));
    let wanted = attribute(FEATURES_WANTED | NESTED, &attribute(BITSET_BITS | NESTED, &bit));
    [attribute(FEATURES_HEADER | NESTED, &device), wanted].concat()
}

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = (MESSAGE_HEADER + GENERIC_HEADER + attributes.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    // Sequence number and port of the sender: one request waits at a time.
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}

fn text_attribute(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), b"\0"].concat())
}

/// An attribute: length, type and value, padded to words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of this type.
fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind & !NESTED == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// The first message of a datagram, and the rest.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let one = bytes.get(..length).filter(|one| one.len() >= MESSAGE_HEADER)?;
    Some((one, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn message_type(message: &[u8]) -> Option<u16> {
    message.get(4..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_padding() {
        let attributes = [text_attribute(7, "abc"), attribute(FAMILY_ID, &[21, 0])].concat();
        assert_eq!(find_attribute(&attributes, FAMILY_ID), Some(&[21, 0][..]));
        assert_eq!(find_attribute(&attributes, 7), Some(&b"abc\0"[..]));
        assert_eq!(find_attribute(&attributes, 9), None);
        assert_eq!(find_attribute(&[4], 9), None);
    }

    #[test]
    fn messages_of_a_datagram_are_split() {
        let two = [message(21, 3, &text_attribute(2, "x")), message(2, 0, &[])].concat();
        let (one, rest) = split_message(&two).unwrap();
        assert_eq!((message_type(one), one.len()), (Some(21), 28));
        let (other, rest) = split_message(rest).unwrap();
        assert_eq!((message_type(other), rest), (Some(2), &[][..]));
        assert_eq!(split_message(rest), None);
        assert_eq!(split_message(&[255, 0, 0, 0, 1]), None);
    }
}
