//! The fabric that everything else plans, lowers and emulates: an immutable graph of hosts,
//! switches and directed links, its equal-cost paths, and the documents it is read from.
//!
//! Pure: no I/O, no clock, no randomness; text and seeds are arguments.

mod buffer_dependencies;
mod check;
pub mod clos;
pub mod document;
mod draft;
pub mod examples;
pub mod export;
mod fabric;
mod finding;
pub mod groups;
pub mod host_list;
mod ids;
pub mod import;
mod interconnect;
mod leaf_routes;
mod lossless;
mod lost_paths;
mod natural_name;
mod paths;
mod server_address;
pub mod spec;
mod units;
#[cfg(test)]
mod wired_fabric;

pub use buffer_dependencies::{BufferCycle, BufferDependencyGraph, is_valley_free};
pub use check::check_fabric;
pub use fabric::{
    AddressPrefix, AvailabilityChange, Destination, Fabric, FabricParts, Forwarding, Host,
    HostPart, IntraHostLink, Link, LinkEndpoint, LinkScheduler, Nic, PipelineKind, Switch, Tier,
};
pub use finding::{Finding, Severity, count_noun, error_chain, one_line};
pub use ids::{FabricNode, HostId, LinkId, NicId, SwitchId};
pub use interconnect::{HostInterconnect, NvlinkDomain, PcieSwitch};
pub use leaf_routes::{LeafHops, LeafRoutes, RouteChange};
pub use lossless::{BufferDemand, EcnThresholds, PfcHeadroom, SwitchQueues};
pub use lost_paths::LostPaths;
pub use natural_name::NaturalName;
pub use paths::{
    DownwardHops, LinkPath, MAX_PATH_LINKS, NextHops, SwitchHop, UpwardHops, equal_cost_paths,
    next_hops, paths_between_nics,
};
pub use server_address::ServerAddress;
pub use units::{Bandwidth, InvalidMacAddress, MacAddress};
