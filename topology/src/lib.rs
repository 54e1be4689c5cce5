//! The fabric that everything else plans, lowers and emulates: an immutable graph of hosts,
//! switches and directed links, its equal-cost paths, and the documents it is read from.
//!
//! Pure: no I/O, no clock, no randomness; text and seeds are arguments.

mod fabric;
mod ids;
mod units;

pub use fabric::{Change, Endpoint, Fabric, Host, Link, Nic, Parts, Switch, Tier};
pub use ids::{HostId, LinkId, NicId, Node, SwitchId};
pub use units::{Bandwidth, InvalidMac, Mac};
