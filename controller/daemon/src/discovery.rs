//! Link discovery: which port is cabled to which, and where hosts are attached.
//!
//! Each switch sends a probe out of each of its ports, and the switch that receives it punts it to
//! the controller, which proves one direction of a cable. [`probe`] builds and reads the frame,
//! [`TopologyObserver`] keeps what was received and is not stale, [`compare_cabling`] compares it
//! with the document, [`document_observed_fabric`] writes the document of it. Two callers exchange
//! the packets: `link_discovery` beside a running controller, and [`discover_once`] once, for a
//! fabric without a document. The decision: each direction of a cable is learned from its own
//! probes. A link that works in one direction only is detected, and silence proves nothing before
//! both ends have been observed for long enough.

mod attachment_table;
mod cabling;
mod learned_fabric;
mod link_discovery;
mod neighbour_packets;
mod observer;
mod one_shot;
pub mod probe;
mod topology_learner;

use std::collections::BTreeMap;
use std::net::IpAddr;

use topology::{Fabric, LinkEndpoint, MacAddress, SwitchId};

pub use crate::config::DiscoveryDefaults;
pub use cabling::compare_cabling;
pub use learned_fabric::{LearnedFabric, document_observed_fabric};
pub use link_discovery::DiscoveryReport;
pub(crate) use link_discovery::{DiscoveryInputs, LinkDiscovery};
pub use neighbour_packets::parse_sender;
pub use observer::TopologyObserver;
pub use one_shot::{OneShotDiscovery, OneShotError, discover_once};

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchPort {
    /// The switch.
    pub switch: SwitchId,
    /// Its port.
    pub port: u16,
}

impl SwitchPort {
    /// An end of a cable as a port of a switch; a port beyond what switches have is never observed.
    pub(crate) fn at_endpoint(endpoint: LinkEndpoint) -> Option<Self> {
        let switch = endpoint.node.switch()?;
        let port = u16::try_from(endpoint.port).ok()?;
        Some(Self { switch, port })
    }

    /// The name of the port in documents and findings, such as `leaf1:4`.
    pub fn port_name(self, fabric: &Fabric) -> String {
        format!("{}:{}", fabric.switch(self.switch).name, self.port)
    }
}

/// A host's interface, as its own packets describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAttachment {
    /// The port of the switch that it is connected to.
    pub at: SwitchPort,
    /// Its Ethernet address.
    pub mac: MacAddress,
}

/// Links and hosts that were observed in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTopology {
    /// Where probes arrive, by the port that they leave by.
    pub links: BTreeMap<SwitchPort, SwitchPort>,
    /// Hosts' interfaces, by their addresses.
    pub hosts: BTreeMap<IpAddr, HostAttachment>,
}

impl ObservedTopology {
    /// The cables: pairs of ports, the lesser first, between which probes arrive in at least one
    /// direction; ascending.
    pub fn cables(&self) -> Vec<(SwitchPort, SwitchPort)> {
        let links = self.links.iter().map(|(&from, &to)| (from.min(to), from.max(to)));
        let mut cables: Vec<_> = links.collect();
        cables.sort_unstable();
        cables.dedup();
        cables
    }
}
