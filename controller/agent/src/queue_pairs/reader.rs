//! The netlink socket over which the kernel lists queue pairs.
//!
//! Every receive has a deadline, and a dump that is not complete by then is an error: an agent
//! never waits for a kernel that does not answer.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use super::{
    DumpState, NldevError, QueuePair, RdmaDevice, parse_devices, parse_queue_pairs,
    request_devices, request_queue_pairs,
};
use crate::source_port::hashes_both_numbers;

/// Bytes of the largest datagram of a dump.
const DATAGRAM: usize = 64 << 10;
/// Limit of each receive, seconds.
const RECEIVE_SECONDS: i64 = 1;
/// Datagrams of one dump; the kernel sends at most 32 KiB in each.
const MAX_DATAGRAMS: usize = 4_096;

/// Adds what a datagram contains; `u32` is the number of the request.
type DatagramParser<T> = fn(&[u8], u32, &mut DumpState<T>) -> Result<(), NldevError>;

/// A socket to the kernel's RDMA device family.
#[derive(Debug)]
pub struct NldevSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl NldevSocket {
    /// Opens the socket; needs no right.
    ///
    /// # Errors
    /// The kernel has no RDMA, or refuses the socket.
    pub fn open() -> Result<Self, NldevError> {
        let protocol = SockProtocol::NetlinkRDMA;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol);
        let fd = fd.map_err(|errno| match errno {
            Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => NldevError::NoRdma,
            errno => NldevError::Socket(errno.into()),
        })?;
        let limit = TimeVal::new(RECEIVE_SECONDS, 0);
        setsockopt(&fd, sockopt::ReceiveTimeout, &limit).map_err(socket_error)?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM], sequence: 0 })
    }

    /// The RDMA devices of this host, by name.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn read_devices(&mut self) -> Result<Vec<RdmaDevice>, NldevError> {
        let mut devices = self.dump(request_devices, parse_devices)?.items;
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(devices)
    }

    /// The queue pairs of a device. The kernel shows processes of this network namespace only.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn read_queue_pairs(
        &mut self,
        device: &RdmaDevice,
    ) -> Result<DumpState<QueuePair>, NldevError> {
        self.dump(|sequence| request_queue_pairs(device.index, sequence), parse_queue_pairs)
    }

    fn dump<T: Default>(
        &mut self,
        request: impl Fn(u32) -> Vec<u8>,
        parse: DatagramParser<T>,
    ) -> Result<DumpState<T>, NldevError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(self.sequence);
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty()).map_err(socket_error)?;
        let mut found = DumpState::default();
        for _ in 0..MAX_DATAGRAMS {
            let length = self.receive()?;
            parse(&self.buffer[..length], self.sequence, &mut found)?;
            if found.is_complete {
                return Ok(found);
            }
        }
        Err(NldevError::Socket(io::Error::other("the dump does not end")))
    }

    fn receive(&mut self) -> Result<usize, NldevError> {
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(0) => return Err(NldevError::Socket(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => return Ok(length),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(socket_error(errno)),
            }
        }
    }
}

fn socket_error(errno: Errno) -> NldevError {
    NldevError::Socket(errno.into())
}

/// Whether the source ports of a device follow from queue pair numbers, by its driver in sysfs. A
/// device of Soft RoCE has no hardware behind it and names the interface that it uses in `parent`.
pub fn has_known_ports(sys: &Path, device: &str) -> bool {
    let folder = sys.join("class/infiniband").join(device);
    match std::fs::read_link(folder.join("device/driver")) {
        Ok(driver) => {
            driver.file_name().and_then(|name| name.to_str()).is_some_and(hashes_both_numbers)
        }
        Err(_) => folder.join("parent").is_file() && hashes_both_numbers("rdma_rxe"),
    }
}
