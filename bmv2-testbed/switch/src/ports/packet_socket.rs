//! A packet socket (AF_PACKET) on one interface, and the batches in which packets come and go.
//!
//! Frames are exchanged whole, many in one system call, and no call ever blocks. The socket does
//! not receive what this machine itself sends through the interface, so a port receives from its
//! peer only. The safe wrappers are those of the crate `nix`, including its macro for socket
//! options.
//!
//! The kernel takes the outer VLAN tag out of a frame before a packet socket sees it, and reports
//! it beside the frame (`PACKET_AUXDATA`). The tag is put back here, as libpcap does for bmv2.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, RecvMsg, SockFlag,
    SockProtocol, SockType, bind, recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::{cmsg_space, setsockopt_impl, sockopt_impl};

/// Frames in one system call.
pub(super) const BATCH: usize = 32;
/// The longest frame that is taken: a jumbo frame of 9,600 bytes with its headers.
const FRAME_LIMIT: usize = 9_728;
/// Bytes of a VLAN tag: room in front of each received frame.
const TAG_BYTES: usize = 4;
/// Where the tag stands in a frame: behind the two Ethernet addresses.
const TAG_OFFSET: usize = 12;
/// What the kernel may hold for one port in either direction, where it allows it: some thousand
/// frames, since a burst of that many arrives while the thread is off the processor.
const KERNEL_BYTES: usize = 4 << 20;

sockopt_impl!(
    /// `PACKET_IGNORE_OUTGOING`: do not show what this machine sends.
    IgnoreOutgoing,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_IGNORE_OUTGOING,
    bool
);

sockopt_impl!(
    /// `PACKET_AUXDATA`: report the VLAN tag that was taken out of a frame.
    AuxiliaryData,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_AUXDATA,
    bool
);

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// What became of the packets that were given to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// It took all of them or refused some for good.
    All,
    /// It takes no more for now.
    Full,
}

/// Buffers for one batch of received frames, shared by all ports of a device.
#[derive(Debug)]
pub struct FrameBatch {
    /// Each frame is received behind the room for its tag.
    frames: Box<[[u8; TAG_BYTES + FRAME_LIMIT]]>,
    received: [ReceivedFrame; BATCH],
    headers: MultiHeaders<()>,
}

/// What the kernel reports of a frame.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedFrame {
    /// Without the tag.
    length: usize,
    /// The tag that was taken out of it.
    tag: Option<[u8; TAG_BYTES]>,
}

impl Default for FrameBatch {
    fn default() -> Self {
        Self {
            frames: vec![[0; TAG_BYTES + FRAME_LIMIT]; BATCH].into_boxed_slice(),
            received: [ReceivedFrame::default(); BATCH],
            headers: MultiHeaders::preallocate(BATCH, Some(cmsg_space!(libc::tpacket_auxdata))),
        }
    }
}

impl FrameBatch {
    /// The first `count` frames; `None` in place of one that was longer than a frame may be.
    pub fn frames(&self, count: usize) -> impl Iterator<Item = Option<&[u8]>> {
        let frames = self.frames.iter().zip(&self.received).take(count);
        frames.map(|(frame, received)| {
            let start = if received.tag.is_some() { 0 } else { TAG_BYTES };
            frame.get(start..TAG_BYTES + received.length)
        })
    }

    /// Puts the tags back into the first `count` frames.
    fn restore_tags(&mut self, count: usize) {
        for (frame, received) in self.frames.iter_mut().zip(&self.received).take(count) {
            if let Some(tag) = received.tag {
                frame.copy_within(TAG_BYTES..TAG_BYTES + TAG_OFFSET, 0);
                frame[TAG_OFFSET..TAG_OFFSET + TAG_BYTES].copy_from_slice(&tag);
            }
        }
    }
}

impl ReceivedFrame {
    fn from_message(message: &RecvMsg<'_, '_, ()>) -> Self {
        let reports = message.cmsgs().ok().into_iter().flatten();
        let mut tags = reports.filter_map(|report| match report {
            ControlMessageOwned::Unknown(report)
                if report.cmsg_header.cmsg_level == libc::SOL_PACKET
                    && report.cmsg_header.cmsg_type == libc::PACKET_AUXDATA =>
            {
                parse_tag(&report.data_bytes)
            }
            _ => None,
        });
        Self { length: message.bytes, tag: tags.next() }
    }
}

/// The tag in a `struct tpacket_auxdata`, if the kernel took one out of the frame: the status is
/// its first word, the tag control information and the protocol are its last two halfwords, all in
/// the byte order of the machine.
fn parse_tag(auxdata: &[u8]) -> Option<[u8; TAG_BYTES]> {
    let halfword = |at: usize| Some(u16::from_ne_bytes(*auxdata.get(at..)?.first_chunk()?));
    let status = u32::from_ne_bytes(*auxdata.first_chunk()?);
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_protocol = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_protocol { halfword(18)? } else { libc::ETH_P_8021Q as u16 };
    let [p0, p1] = protocol.to_be_bytes();
    let [c0, c1] = halfword(16)?.to_be_bytes();
    Some([p0, p1, c0, c1])
}

impl PacketSocket {
    /// Opens the interface of that name.
    ///
    /// # Errors
    /// There is none, or this process may not.
    pub fn open(interface: &str) -> io::Result<Self> {
        let address = link_address(interface)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        bind(fd.as_raw_fd(), &address)?;
        setsockopt(&fd, IgnoreOutgoing, &true)?;
        setsockopt(&fd, AuxiliaryData, &true)?;
        // Refused to a process without CAP_NET_ADMIN, which then has the system's default.
        let _default = setsockopt(&fd, sockopt::RcvBufForce, &KERNEL_BYTES);
        let _default = setsockopt(&fd, sockopt::SndBufForce, &KERNEL_BYTES);
        let socket = Self { fd };
        socket.discard_pending();
        Ok(socket)
    }

    /// Fills the batch with what has arrived; the number of frames, 0 when there was nothing.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn receive_batch(&self, batch: &mut FrameBatch) -> io::Result<usize> {
        let FrameBatch { frames, received, headers } = batch;
        let mut buffers = frames.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| match buffers.next() {
                Some(frame) => [IoSliceMut::new(&mut frame[TAG_BYTES..])],
                None => [IoSliceMut::new(&mut [])],
            });
        let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
        match recvmmsg(self.fd.as_raw_fd(), headers, &mut slices, flags, None) {
            Ok(messages) => {
                let received = received.iter_mut().zip(messages);
                let count = received
                    .map(|(frame, message)| *frame = ReceivedFrame::from_message(&message))
                    .count();
                batch.restore_tags(count);
                Ok(count)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives packets to the interface, in order; those that are sent go to `sent`, those that it
    /// refuses for good to `refused`.
    pub fn send_packets(
        &self,
        packets: &mut VecDeque<Vec<u8>>,
        sent: &mut Vec<Vec<u8>>,
        refused: &mut Vec<Vec<u8>>,
    ) -> SendStatus {
        while !packets.is_empty() {
            match self.send_batch(packets) {
                Ok(count) => sent.extend(packets.drain(..count)),
                Err(Errno::EAGAIN) => return SendStatus::Full,
                Err(Errno::EINTR) => {}
                Err(_) => refused.extend(packets.pop_front()),
            }
        }
        SendStatus::All
    }

    fn send_batch(&self, packets: &VecDeque<Vec<u8>>) -> Result<usize, Errno> {
        let mut queued = packets.iter();
        let padded: [[IoSlice<'_>; 1]; BATCH] = std::array::from_fn(|_| {
            let packet = queued.next().map_or(&[] as &[u8], Vec::as_slice);
            [IoSlice::new(packet)]
        });
        let slices = &padded[..packets.len().min(BATCH)];
        let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
        let nowhere = [None; BATCH];
        let fd = self.fd.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        sendmmsg(fd, &mut headers, slices, nowhere, [], flags).map(Iterator::count)
    }

    /// Discards what arrived between opening and binding, when the socket receives from every
    /// interface.
    fn discard_pending(&self) {
        let mut batch = FrameBatch::default();
        while self.receive_batch(&mut batch).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn link_address(interface: &str) -> io::Result<LinkAddr> {
    if_nametoindex(interface).map_err(|errno| match errno {
        Errno::ENODEV | Errno::ENXIO => {
            io::Error::new(io::ErrorKind::NotFound, "there is no such interface")
        }
        other => other.into(),
    })?;
    let mut interfaces = getifaddrs()?.filter(|found| found.interface_name == interface);
    let address = interfaces.find_map(|found| found.address?.as_link_addr().copied());
    // A TUN interface carries no Ethernet frames; a TAP interface does.
    let problem = "the interface has no Ethernet address; a port needs an Ethernet interface";
    address.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, problem))
}
