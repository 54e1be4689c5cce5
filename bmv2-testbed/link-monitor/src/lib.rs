//! States of the machine's interfaces, as the kernel reports them over rtnetlink.
//!
//! An update is a state and not a change, so that one which is lost or repeated does no harm: who
//! receives it compares it with the last one. The switch follows its ports by it, and the
//! controller the cables of a fabric that is emulated on its machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

/// Bytes of the largest datagram of the kernel's answers.
const DATAGRAM: usize = 64 << 10;
/// What may wait for us: interfaces appear by the hundred when a testbed starts.
const KERNEL_BYTES: usize = 1 << 20;

// Layouts of linux/netlink.h and linux/rtnetlink.h, in the byte order of the machine.
/// Length, type, flags, sequence number, sender.
const MESSAGE_HEADER: usize = 16;
/// `ifinfomsg`: family, type, index, flags, change.
const LINK_HEADER: usize = 16;
/// Length and type.
const ATTRIBUTE_HEADER: usize = 4;
/// Messages and attributes begin at multiples of this.
const ALIGNMENT: usize = 4;

/// The kernel's reports of interfaces.
#[derive(Debug)]
pub struct LinkMonitor {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// An interface as the kernel last reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkUpdate {
    /// Its name.
    pub name: String,
    /// The number of this incarnation of the interface.
    pub index: u32,
    /// Whether it can carry packets.
    pub state: LinkState,
}

/// What an interface can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It can carry packets.
    Up,
    /// It has no carrier, or is switched off.
    Down,
    /// The machine has no such interface.
    Absent,
}

impl LinkMonitor {
    /// Subscribes to reports, and requests all interfaces.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let family = AddressFamily::Netlink;
        let fd = socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        let _default = setsockopt(&fd, sockopt::RcvBufForce, &KERNEL_BYTES);
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, libc::RTMGRP_LINK as u32))?;
        let links = Self { fd, buffer: vec![0; DATAGRAM] };
        links.request_links()?;
        Ok(links)
    }

    /// Requests all interfaces; the kernel sends them like updates.
    ///
    /// # Errors
    /// The kernel does not take the request.
    pub fn request_links(&self) -> io::Result<()> {
        let mut message = [0_u8; MESSAGE_HEADER + LINK_HEADER];
        let length = message.len() as u32;
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        message[6..8].copy_from_slice(&flags.to_ne_bytes());
        send(self.fd.as_raw_fd(), &message, MsgFlags::empty())?;
        Ok(())
    }

    /// Waits until the kernel has sent a report, or a signal arrives.
    ///
    /// # Errors
    /// The kernel cannot wait for the socket.
    pub fn wait_readable(&self) -> io::Result<()> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&self.fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        match epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The updates since the last call; requests all interfaces again when some were lost.
    pub fn receive_updates(&mut self) -> Vec<LinkUpdate> {
        let mut updates = Vec::new();
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => parse_datagram(&self.buffer[..length], &mut updates),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    tracing::warn!("updates of interfaces were lost; requesting all of them again");
                    if self.request_links().is_err() {
                        return updates;
                    }
                }
                Err(_) => return updates,
            }
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Appends the updates of a datagram. Updates that are cut short or not about a link are left out.
fn parse_datagram(mut bytes: &[u8], updates: &mut Vec<LinkUpdate>) {
    while let Some(length) = u32_at(bytes, 0).map(|length| length as usize) {
        if length < MESSAGE_HEADER || length > bytes.len() {
            return;
        }
        updates.extend(parse_message(&bytes[..length]));
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
}

fn parse_message(message: &[u8]) -> Option<LinkUpdate> {
    let exists = match u16_at(message, 4)? {
        libc::RTM_NEWLINK => true,
        libc::RTM_DELLINK => false,
        _ => return None,
    };
    let index = u32_at(message, MESSAGE_HEADER + 4)?;
    let flags = u32_at(message, MESSAGE_HEADER + 8)?;
    let name = attribute(message.get(MESSAGE_HEADER + LINK_HEADER..)?, libc::IFLA_IFNAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    // Up by its administrator, and with carrier below.
    let carries = (libc::IFF_UP | libc::IFF_LOWER_UP) as u32;
    let state = if !exists {
        LinkState::Absent
    } else if flags & carries == carries {
        LinkState::Up
    } else {
        LinkState::Down
    };
    Some(LinkUpdate { name: str::from_utf8(name).ok()?.to_owned(), index, state })
}

/// The value of the first attribute of this type.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = u16_at(bytes, 0)? as usize;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        if u16_at(bytes, 2)? == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message about a link, as the kernel lays it out.
    fn message(kind: u16, index: u32, flags: i32, name: &str) -> Vec<u8> {
        let mut body = vec![0_u8; 4];
        body.extend(index.to_ne_bytes());
        body.extend((flags as u32).to_ne_bytes());
        body.extend([0; 4]);
        // An attribute of another type comes first.
        body.extend([8_u16.to_ne_bytes(), libc::IFLA_MTU.to_ne_bytes()].concat());
        body.extend(1500_u32.to_ne_bytes());
        let length = (ATTRIBUTE_HEADER + name.len() + 1) as u16;
        body.extend([length.to_ne_bytes(), libc::IFLA_IFNAME.to_ne_bytes()].concat());
        body.extend(name.bytes().chain([0]));
        let mut bytes = ((MESSAGE_HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Vec<LinkUpdate> {
        let mut updates = Vec::new();
        parse_datagram(bytes, &mut updates);
        updates
    }

    #[test]
    fn a_datagram_has_updates_of_links_among_other_messages() {
        let both = libc::IFF_UP | libc::IFF_LOWER_UP;
        let bytes = [
            message(libc::RTM_NEWLINK, 7, both, "leaf1-eth1"),
            message(libc::RTM_NEWADDR, 7, both, "no link"),
            message(libc::RTM_NEWLINK, 8, libc::IFF_UP, "h1"),
            message(libc::RTM_DELLINK, 9, both, "gone"),
        ]
        .concat();
        let update = |name: &str, index, state| LinkUpdate { name: name.to_owned(), index, state };
        let expect = [
            update("leaf1-eth1", 7, LinkState::Up),
            update("h1", 8, LinkState::Down),
            update("gone", 9, LinkState::Absent),
        ];
        assert_eq!(parse(&bytes), expect);
    }

    /// The kernel of this machine is the peer: it has a loopback interface.
    #[test]
    fn the_kernel_lists_the_interfaces_of_the_machine() {
        let mut links = LinkMonitor::open().unwrap();
        links.wait_readable().unwrap();
        let updates = links.receive_updates();
        assert!(updates.iter().any(|link| link.name == "lo" && link.index == 1), "{updates:?}");
    }

    proptest! {
        /// What is cut short or made up ends the parsing and nothing else.
        #[test]
        fn no_bytes_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..256),
            cut in 0..96_usize,
        ) {
            parse(&bytes);
            let mut bytes = message(libc::RTM_NEWLINK, 1, libc::IFF_UP, "eth0");
            bytes.truncate(cut);
            parse(&bytes);
        }
    }
}
