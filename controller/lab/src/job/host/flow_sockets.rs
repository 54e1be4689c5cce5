//! The UDP sockets of one host: one for each address and source port that its flows send from, and
//! port 4791 of every NIC.
//!
//! Every datagram says that its sender takes part in ECN, and the kernel says of each that arrives
//! whether a switch has marked it (`IP_RECVTOS`, `IPV6_RECVTCLASS`).

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use emulator::{HostPacket, roce};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use planner::{Flow, Job};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use topology::{Fabric, HostId};

use command_io::CommandError;

/// Packets that can wait for the host; further ones are lost.
const PACKET_QUEUE: usize = 4096;
/// Longer than any datagram of ours.
const DATAGRAM: usize = 8192;
/// The bits of a traffic class that are ECN's (RFC 3168): whether the sender takes part, and the
/// mark.
const ECN_MASK: u8 = 0b11;
const ECN_CAPABLE: u8 = 0b10;
const ECN_MARKED: u8 = 0b11;

/// A datagram, and whether a switch has marked it.
pub(super) struct ReceivedDatagram {
    pub(super) bytes: Vec<u8>,
    pub(super) is_marked: bool,
}

/// A socket for each address and UDP source port that this host sends from.
pub(super) struct FlowSockets {
    sockets: Vec<UdpSocket>,
    /// For each flow that begins or ends here: the socket to send from, and the destination.
    ends: BTreeMap<u32, (usize, SocketAddr)>,
}

impl FlowSockets {
    pub(super) async fn open_sockets(
        fabric: &Fabric,
        jobs: &[Job],
        host: HostId,
    ) -> Result<Self, CommandError> {
        let mut places: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        let mut sockets = Vec::new();
        let mut ends = BTreeMap::new();
        for (number, flow) in (0..).zip(jobs.iter().flat_map(|job| &job.flows)) {
            let Some((from, to)) = flow_addresses(fabric, flow, host) else {
                continue;
            };
            // Acknowledgements have the source port of the flow too, by which switches classify
            // them.
            let port = flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT);
            let from = SocketAddr::from((from, port));
            let place = match places.get(&from) {
                Some(place) => *place,
                None => {
                    sockets.push(bind_socket(from).await?);
                    sockets.len() - 1
                }
            };
            places.insert(from, place);
            ends.insert(number, (place, SocketAddr::from((to, roce::UDP_PORT))));
        }
        Ok(Self { sockets, ends })
    }

    pub(super) fn send_packet(&self, packet: HostPacket, datagram: &[u8]) {
        if let Some((place, to)) = self.ends.get(&packet.flow) {
            let _lost = self.sockets[*place].try_send_to(datagram, *to);
        }
    }
}

/// The addresses of this host's end of a flow and of the other.
fn flow_addresses(fabric: &Fabric, flow: &Flow, host: HostId) -> Option<(IpAddr, IpAddr)> {
    let (src, dst) = (fabric.nic(flow.src), fabric.nic(flow.dst));
    if src.host == host {
        Some((src.ip, dst.ip))
    } else {
        (dst.host == host).then_some((dst.ip, src.ip))
    }
}

/// A socket whose datagrams may be marked, and which says which of those that arrive are.
async fn bind_socket(address: SocketAddr) -> Result<UdpSocket, CommandError> {
    let socket = UdpSocket::bind(address).await;
    let socket = socket.map_err(|error| CommandError::input(address, error))?;
    enable_ecn(&socket, address).map_err(|error| CommandError::input(address, error))?;
    Ok(socket)
}

fn enable_ecn(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => {
            socket.set_tos_v4(u32::from(ECN_CAPABLE))?;
            setsockopt(socket, sockopt::IpRecvTos, &true)?;
        }
        SocketAddr::V6(_) => {
            socket.set_tclass_v6(u32::from(ECN_CAPABLE))?;
            setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
        }
    }
    Ok(())
}

/// Listens on port 4791 of every NIC.
pub(super) async fn receive_packets(
    fabric: &Fabric,
    host: HostId,
) -> Result<mpsc::Receiver<ReceivedDatagram>, CommandError> {
    let (to_host, packets) = mpsc::channel(PACKET_QUEUE);
    for nic in fabric.host(host).nics.iter().map(|nic| fabric.nic(*nic)) {
        let socket = bind_socket(SocketAddr::from((nic.ip, roce::UDP_PORT))).await?;
        let to_host = to_host.clone();
        tokio::spawn(async move {
            loop {
                // An error here is an ICMP response to an earlier packet, which is lost like any
                // other.
                let Ok(datagram) = receive_datagram(&socket).await else {
                    continue;
                };
                if to_host.is_closed() {
                    return;
                }
                let _lost = to_host.try_send(datagram);
            }
        });
    }
    Ok(packets)
}

async fn receive_datagram(socket: &UdpSocket) -> io::Result<ReceivedDatagram> {
    socket.async_io(Interest::READABLE, || read_datagram(socket)).await
}

fn read_datagram(socket: &UdpSocket) -> io::Result<ReceivedDatagram> {
    let mut bytes = vec![0; DATAGRAM];
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let mut control = nix::cmsg_space!(i32);
    let fd = socket.as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut control), flags)?;
    let is_marked = message.cmsgs()?.any(|control| match control {
        ControlMessageOwned::Ipv4Tos(class) => class & ECN_MASK == ECN_MARKED,
        ControlMessageOwned::Ipv6TClass(class) => class as u8 & ECN_MASK == ECN_MARKED,
        _ => false,
    });
    let length = message.bytes;
    bytes.truncate(length);
    Ok(ReceivedDatagram { bytes, is_marked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_says_which_datagrams_are_marked() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().unwrap();
            let (from, to) = (bind_socket(any).await.unwrap(), bind_socket(any).await.unwrap());
            let target = to.local_addr().unwrap();
            for mark in [false, true] {
                let class = u32::from(if mark { ECN_MARKED } else { ECN_CAPABLE });
                match any {
                    SocketAddr::V4(_) => from.set_tos_v4(class).unwrap(),
                    SocketAddr::V6(_) => from.set_tclass_v6(class).unwrap(),
                }
                from.send_to(b"data", target).await.unwrap();
                let datagram = receive_datagram(&to).await.unwrap();
                assert_eq!((&datagram.bytes[..], datagram.is_marked), (&b"data"[..], mark));
            }
        }
    }
}
