//! The fabric that everything else plans, lowers and emulates: an immutable graph of hosts,
//! switches and directed links, its equal-cost paths, and the documents it is read from.
//!
//! Pure: no I/O, no clock, no randomness; text and seeds are arguments.

mod check;
pub mod clos;
pub mod document;
mod draft;
pub mod examples;
mod fabric;
mod finding;
mod ids;
pub mod import;
mod paths;
pub mod spec;
mod units;

pub use check::check;
pub use fabric::{Change, Endpoint, Fabric, Host, Link, Nic, Parts, Prefix, Switch, Tier};
pub use finding::{Finding, Severity, one_line};
pub use ids::{HostId, LinkId, NicId, Node, SwitchId};
pub use paths::{Climbs, Descents, Hop, MOST_LINKS, NextHops, Path, equal_cost_paths, next_hops};
pub use units::{Bandwidth, InvalidMac, Mac};
