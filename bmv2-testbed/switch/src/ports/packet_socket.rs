//! A packet socket (AF_PACKET) on one interface, and the batches in which packets come and go.
//!
//! Frames are exchanged whole, many in one system call, and no call ever blocks. The socket does
//! not receive what this machine itself sends through the interface, so a port receives from its
//! peer only. The safe wrappers are those of the crate `nix`, including its macro for socket
//! options.
//!
//! The kernel takes the outer VLAN tag out of a frame before a packet socket sees it, and reports
//! it beside the frame (`PACKET_AUXDATA`). The tag is put back here, as libpcap does for bmv2. What
//! the sender has left to the interface is reported in front of the frame (`PACKET_VNET_HDR`) and
//! finished by [`offloads`](super::offloads), so that one frame may become many.

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

use super::offloads::{self, Offload};

/// Frames in one system call.
pub(super) const BATCH: usize = 32;
/// The longest frame that is taken: a jumbo frame of 9,600 bytes with its headers.
const FRAME_LIMIT: usize = 9_728;
/// The longest frame that is cut into segments: the longest packet of IP, with its headers.
const UNCUT_LIMIT: usize = 65_568;
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
    /// `PACKET_VNET_HDR`: a header in front of each frame says what of it is unfinished.
    OffloadHeaders,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
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
    frames: Box<[[u8; TAG_BYTES + UNCUT_LIMIT]]>,
    offload_headers: [[u8; offloads::HEADER_BYTES]; BATCH],
    received: [ReceivedFrame; BATCH],
    /// Those that were cut out of longer frames.
    segments: Vec<Vec<u8>>,
    /// What the batch consists of, in order.
    parts: Vec<BatchPart>,
    headers: MultiHeaders<()>,
}

/// One frame of a batch.
#[derive(Clone, Copy, Debug)]
enum BatchPart {
    /// A received frame, by its number.
    Whole(usize),
    /// A segment, by its number.
    Segment(usize),
    /// One that was longer than a frame may be, or that cannot be finished.
    Refused,
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
            frames: vec![[0; TAG_BYTES + UNCUT_LIMIT]; BATCH].into_boxed_slice(),
            offload_headers: [[0; offloads::HEADER_BYTES]; BATCH],
            received: [ReceivedFrame::default(); BATCH],
            segments: Vec::new(),
            parts: Vec::new(),
            headers: MultiHeaders::preallocate(BATCH, Some(cmsg_space!(libc::tpacket_auxdata))),
        }
    }
}

impl FrameBatch {
    /// The first `count` frames; `None` in place of one that was longer than a frame may be, or
    /// that cannot be finished.
    pub fn frames(&self, count: usize) -> impl Iterator<Item = Option<&[u8]>> {
        self.parts.iter().take(count).map(|part| match *part {
            BatchPart::Whole(number) => {
                let ReceivedFrame { length, tag } = self.received[number];
                let start = if tag.is_some() { 0 } else { TAG_BYTES };
                self.frames[number].get(start..TAG_BYTES + length)
            }
            BatchPart::Segment(number) => Some(self.segments[number].as_slice()),
            BatchPart::Refused => None,
        })
    }

    /// Finishes the first `count` received frames and puts their tags back; how many frames they
    /// have become.
    fn finish_frames(&mut self, count: usize) -> usize {
        self.parts.clear();
        self.segments.clear();
        for number in 0..count {
            if self.finish_frame(number).is_none() {
                self.parts.push(BatchPart::Refused);
            }
        }
        self.parts.len()
    }

    /// `None` for a frame that is refused.
    fn finish_frame(&mut self, number: usize) -> Option<()> {
        let ReceivedFrame { length, tag } = self.received[number];
        let buffer = &mut self.frames[number];
        // The kernel counts without the tag.
        let frame = buffer.get_mut(TAG_BYTES..TAG_BYTES + length)?;
        match Offload::from_header(self.offload_headers[number]) {
            Offload::Segmentation { transport, checksum, payload_bytes } => {
                let cut = offloads::cut_segments(frame, transport, checksum, payload_bytes)?;
                let first = self.segments.len();
                self.segments.extend(cut.into_iter().map(|mut segment| {
                    let tag = tag.iter().flatten().copied();
                    segment.splice(TAG_OFFSET..TAG_OFFSET, tag);
                    segment
                }));
                self.parts.extend((first..self.segments.len()).map(BatchPart::Segment));
                return Some(());
            }
            Offload::Unknown => return None,
            _ if length > FRAME_LIMIT => return None,
            Offload::Checksum(place) => offloads::finish_checksum(frame, place)?,
            Offload::Nothing => {}
        }
        if let Some(tag) = tag {
            buffer.copy_within(TAG_BYTES..TAG_BYTES + TAG_OFFSET, 0);
            buffer[TAG_OFFSET..TAG_OFFSET + TAG_BYTES].copy_from_slice(&tag);
        }
        self.parts.push(BatchPart::Whole(number));
        Some(())
    }

    /// A batch in the place of a frame that the kernel could not hand over.
    fn refuse_one(&mut self) -> usize {
        self.parts.clear();
        self.parts.push(BatchPart::Refused);
        self.parts.len()
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
        let length = message.bytes.saturating_sub(offloads::HEADER_BYTES);
        Self { length, tag: tags.next() }
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
    /// The interface does not exist, or this process may not open it.
    pub fn open(interface: &str) -> io::Result<Self> {
        let address = link_address(interface)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        bind(fd.as_raw_fd(), &address)?;
        setsockopt(&fd, IgnoreOutgoing, &true)?;
        setsockopt(&fd, AuxiliaryData, &true)?;
        setsockopt(&fd, OffloadHeaders, &true)?;
        // Refused to a process without CAP_NET_ADMIN, which then has the system's default.
        let _default = setsockopt(&fd, sockopt::RcvBufForce, &KERNEL_BYTES);
        let _default = setsockopt(&fd, sockopt::SndBufForce, &KERNEL_BYTES);
        let socket = Self { fd };
        socket.discard_pending();
        Ok(socket)
    }

    /// Fills the batch with what has arrived; the number of frames that it has become, 0 when there
    /// was nothing.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn receive_batch(&self, batch: &mut FrameBatch) -> io::Result<usize> {
        let FrameBatch { frames, offload_headers, received, headers, .. } = batch;
        let mut buffers = offload_headers.iter_mut().zip(frames.iter_mut());
        let mut slices: [[IoSliceMut<'_>; 2]; BATCH] =
            std::array::from_fn(|_| match buffers.next() {
                Some((header, frame)) => {
                    [IoSliceMut::new(header), IoSliceMut::new(&mut frame[TAG_BYTES..])]
                }
                None => [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])],
            });
        let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
        match recvmmsg(self.fd.as_raw_fd(), headers, &mut slices, flags, None) {
            Ok(messages) => {
                let received = received.iter_mut().zip(messages);
                let count = received
                    .map(|(frame, message)| *frame = ReceivedFrame::from_message(&message))
                    .count();
                Ok(batch.finish_frames(count))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            // The kernel has dropped a frame that no header describes: one with segments inside a
            // tunnel.
            Err(Errno::EINVAL) => Ok(batch.refuse_one()),
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
        // Nothing is left to the interface.
        let finished = [0; offloads::HEADER_BYTES];
        let padded: [[IoSlice<'_>; 2]; BATCH] = std::array::from_fn(|_| {
            let packet = queued.next().map_or(&[] as &[u8], Vec::as_slice);
            [IoSlice::new(&finished), IoSlice::new(packet)]
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
