//! Changes of the machine's interfaces, as the kernel reports them over rtnetlink.
//!
//! An event says only which interface to look at again: `ports/driver.rs` compares the state with
//! the last one, so a lost or repeated event does no harm.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

use super::PortState;

/// Bytes of the largest datagram of the kernel's answers.
const DATAGRAM: usize = 64 << 10;
/// What may wait for us: interfaces appear by the hundred when a testbed starts.
const KERNEL_BYTES: usize = 1 << 20;

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
    pub state: PortState,
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
    pub(super) fn request_links(&self) -> io::Result<()> {
        let payload = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
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

fn parse_datagram(mut bytes: &[u8], updates: &mut Vec<LinkUpdate>) {
    while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        if let NetlinkPayload::InnerMessage(message) = message.payload {
            updates.extend(parse_message(&message));
        }
        let length = (message.header.length as usize).next_multiple_of(4);
        match bytes.get(length..) {
            Some(rest) if length > 0 && !rest.is_empty() => bytes = rest,
            _ => return,
        }
    }
}

fn parse_message(message: &RouteNetlinkMessage) -> Option<LinkUpdate> {
    let (link, exists) = match message {
        RouteNetlinkMessage::NewLink(link) => (link, true),
        RouteNetlinkMessage::DelLink(link) => (link, false),
        _ => return None,
    };
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    let flags = link.header.flags;
    let state = if !exists {
        PortState::Absent
    } else if flags.contains(LinkFlags::Up | LinkFlags::LowerUp) {
        PortState::Up
    } else {
        PortState::Down
    };
    Some(LinkUpdate { name: name?, index: link.header.index, state })
}
