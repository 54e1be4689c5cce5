//! The fabric that everything else plans, lowers and emulates: an immutable graph of hosts,
//! switches and directed links, its equal-cost paths, and the documents it is read from.
//!
//! Pure: no I/O, no clock, no randomness; text and seeds are arguments.

pub mod clos;
pub mod document;
mod draft;
mod fabric;
mod finding;
mod ids;
mod paths;
pub mod spec;
mod units;

pub use fabric::{Change, Endpoint, Fabric, Host, Link, Nic, Parts, Switch, Tier};
pub use finding::{Finding, Severity};
pub use ids::{HostId, LinkId, NicId, Node, SwitchId};
pub use paths::{NextHops, equal_cost_paths, next_hops};
pub use units::{Bandwidth, InvalidMac, Mac};
