//! A packet socket (AF_PACKET) on one interface, and the batches in which packets come and go.
//!
//! Frames are exchanged whole, many in one system call, and no call ever blocks. The socket does
//! not receive what this machine itself sends through the interface, so a port receives from its
//! peer only. The safe wrappers are those of the crate `nix`, including its macro for socket
//! options.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind,
    recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};

/// Frames in one system call.
pub(super) const BATCH: usize = 32;
/// The longest frame that is taken: a jumbo frame of 9,600 bytes with its headers.
const FRAME_LIMIT: usize = 9_728;
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
    frames: Box<[[u8; FRAME_LIMIT]]>,
    lengths: [usize; BATCH],
    headers: MultiHeaders<()>,
}

impl Default for FrameBatch {
    fn default() -> Self {
        Self {
            frames: vec![[0; FRAME_LIMIT]; BATCH].into_boxed_slice(),
            lengths: [0; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }
}

impl FrameBatch {
    /// The first `count` frames; `None` in place of one that was longer than a frame may be.
    pub fn frames(&self, count: usize) -> impl Iterator<Item = Option<&[u8]>> {
        let frames = self.frames.iter().zip(self.lengths).take(count);
        frames.map(|(frame, length)| frame.get(..length))
    }
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
        let FrameBatch { frames, lengths, headers } = batch;
        let mut buffers = frames.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| match buffers.next() {
                Some(frame) => [IoSliceMut::new(frame)],
                None => [IoSliceMut::new(&mut [])],
            });
        let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
        match recvmmsg(self.fd.as_raw_fd(), headers, &mut slices, flags, None) {
            Ok(messages) => {
                let received = lengths.iter_mut().zip(messages);
                Ok(received.map(|(length, message)| *length = message.bytes).count())
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
    let mut interfaces = getifaddrs()?.filter(|found| found.interface_name == interface);
    let address = interfaces.find_map(|found| found.address?.as_link_addr().copied());
    address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such interface"))
}
