//! How the controller learns the fabric by itself: which port is cabled to which, and where hosts
//! are.
//!
//! Each switch sends a probe out of each of its ports, and whichever switch receives it tells the
//! controller: that is one direction of a cable. [`probe`] is the frame, [`Observer`] what was
//! heard and is not stale, [`compare()`] how that differs from the document, [`learned`](learned())
//! the document of what was found; `growth` makes that the fabric where no document does. Two
//! shells bring packets: the `scout` beside a running
//! controller, and [`survey`](survey()) once, for a fabric that has none. The decision: each
//! direction of a cable is learned from its own probes. What goes through one way only is seen to,
//! and nothing is concluded from silence before both ends have been listened to for long enough.

mod arp;
mod compare;
mod growth;
mod learned;
mod observer;
pub mod probe;
mod scout;
mod survey;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use topology::{Fabric, Mac, SwitchId};

pub use compare::compare;
pub use learned::{Assumptions, Learned, learned};
pub use observer::Observer;
pub use scout::Discovery;
pub(crate) use scout::{Antenna, Scout, Surroundings};
pub use survey::{Survey, SurveyError, survey};

pub(crate) use arp::ETHERTYPE as ARP;
pub(crate) use probe::ETHERTYPE as PROBE;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The switch.
    pub switch: SwitchId,
    /// Its port.
    pub port: u16,
}

impl End {
    /// Its name, `leaf1:4`.
    pub fn name(self, fabric: &Fabric) -> String {
        format!("{}:{}", fabric.switch(self.switch).name, self.port)
    }
}

/// A host's interface, by what it said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Where it is connected.
    pub at: End,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// What is seen of a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Where probes arrive, by the port that they leave by.
    pub links: BTreeMap<End, End>,
    /// Hosts' interfaces, by their addresses.
    pub stations: BTreeMap<Ipv4Addr, Station>,
}

impl Sight {
    /// The cables: pairs of ports, the lesser first, between which probes get through at least one
    /// way; ascending.
    pub fn cables(&self) -> Vec<(End, End)> {
        let pair = |(&from, &to): (&End, &End)| (from.min(to), from.max(to));
        let mut cables: Vec<_> = self.links.iter().map(pair).collect();
        cables.sort_unstable();
        cables.dedup();
        cables
    }
}
