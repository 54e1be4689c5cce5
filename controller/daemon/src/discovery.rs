//! How the controller learns the fabric by itself: which port is cabled to which, and where hosts
//! are.
//!
//! Each switch sends a probe out of each of its ports, and whichever switch receives it tells the
//! controller: that is one direction of a cable. [`probe`] is the frame, [`TopologyObserver`] what
//! was heard and is not stale, [`compare()`] how that differs from the document,
//! [`learned`](learned()) the document of what was found; `growth` makes that the fabric where no
//! document does. Two shells bring packets: the `scout` beside a running controller, and
//! [`survey`](survey()) once, for a fabric that has none. The decision: each direction of a cable
//! is learned from its own probes. What goes through one way only is seen to, and nothing is
//! concluded from silence before both ends have been listened to for long enough.

mod arp;
mod cabling;
mod learned_fabric;
mod link_discovery;
mod observer;
mod one_shot;
pub mod probe;
mod topology_learner;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use topology::{Fabric, MacAddress, SwitchId};

pub use crate::config::DiscoveryDefaults;
pub use cabling::compare_cabling;
pub use learned_fabric::{LearnedFabric, document_observed_fabric};
pub use link_discovery::DiscoveryReport;
pub(crate) use link_discovery::{DiscoveryInputs, LinkDiscovery};
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
    /// Its name, `leaf1:4`.
    pub fn port_name(self, fabric: &Fabric) -> String {
        format!("{}:{}", fabric.switch(self.switch).name, self.port)
    }
}

/// A host's interface, by what it said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAttachment {
    /// Where it is connected.
    pub at: SwitchPort,
    /// Its Ethernet address.
    pub mac: MacAddress,
}

/// What is seen of a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTopology {
    /// Where probes arrive, by the port that they leave by.
    pub links: BTreeMap<SwitchPort, SwitchPort>,
    /// Hosts' interfaces, by their addresses.
    pub hosts: BTreeMap<Ipv4Addr, HostAttachment>,
}

impl ObservedTopology {
    /// The cables: pairs of ports, the lesser first, between which probes get through at least one
    /// way; ascending.
    pub fn cables(&self) -> Vec<(SwitchPort, SwitchPort)> {
        let pair = |(&from, &to): (&SwitchPort, &SwitchPort)| (from.min(to), from.max(to));
        let mut cables: Vec<_> = self.links.iter().map(pair).collect();
        cables.sort_unstable();
        cables.dedup();
        cables
    }
}
