//! The ports of NICs, and which of two a host sends from.
//!
//! A host spreads connections over the ports of a NIC by a hash, as the bonds of Linux and of RDMA
//! adapters do: each connection stays at one port for as long as that works. Packets arrive at
//! either.

use std::net::IpAddr;

use topology::{Fabric, NicId};

use crate::roce::FlowAddresses;

/// All ports of all hosts.
#[derive(Debug)]
pub(crate) struct HostPorts {
    /// By id: the other port of a NIC with two, and whether the port works.
    ports: Vec<(Option<NicId>, bool)>,
}

impl HostPorts {
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self { ports: fabric.nics().iter().map(|port| (port.bond, true)).collect() }
    }

    /// The first port of the NIC with this port.
    pub(crate) fn first_of(&self, port: NicId) -> NicId {
        self.ports[port.index()].0.map_or(port, |other| port.min(other))
    }

    /// Whether the NIC with this port has two.
    pub(crate) fn has_two(&self, port: NicId) -> bool {
        self.ports[port.index()].0.is_some()
    }

    /// The port by which a host sends packets with these addresses from a NIC; its first if none
    /// works.
    pub(crate) fn sending_port(&self, nic: NicId, addresses: &FlowAddresses) -> NicId {
        let Some(other) = self.ports[nic.index()].0 else {
            return nic;
        };
        let [first, second] = [nic.min(other), nic.max(other)];
        match [first, second].map(|port| self.ports[port.index()].1) {
            [true, true] if hash_of(addresses) % 2 == 1 => second,
            [false, true] => second,
            _ => first,
        }
    }

    /// A port works, or does not any more.
    pub(crate) fn set_working(&mut self, port: NicId, works: bool) {
        self.ports[port.index()].1 = works;
    }
}

/// FNV-1a over what stays the same in all packets of one direction of a connection.
fn hash_of(addresses: &FlowAddresses) -> u32 {
    let mix = |hash: u32, bytes: &[u8]| {
        bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    };
    let ends = [addresses.source.1, addresses.destination.1];
    let hash = ends.iter().fold(0x811c_9dc5, |hash, address| match address {
        IpAddr::V4(address) => mix(hash, &address.octets()),
        IpAddr::V6(address) => mix(hash, &address.octets()),
    });
    let numbers = [u32::from(addresses.udp_src_port), addresses.queue_pair];
    let hash = numbers.iter().fold(hash, |hash, number| mix(hash, &number.to_be_bytes()));
    hash ^ hash >> 16
}
