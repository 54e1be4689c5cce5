//! Emulated hosts and training jobs on the in-process fabric, on its virtual clock.
//!
//! Jobs iterate as in the fluid model ([`job`]); their flows are RoCEv2 packets ([`roce`]) carried
//! by a window-limited reliable transport ([`transport`]) from host NICs through real switches. All
//! hosts together are one endpoint ([`HostCluster`]); [`EmulatedTestbed`] joins it to the devices of a
//! [`topology::Fabric`] and runs it; [`EmulationOutcome`] is what the jobs measured of themselves.
//!
//! A [`EmulatedHost`] is one of them by itself, for machines whose packets travel over UDP sockets.
//!
//! The decision behind the crate: everything is sans-IO and virtual. Time is the fabric's, dice are
//! in the arguments, so one seed gives one result on every machine. Only the [`TimeScale`] of sizes and
//! computation, never of link rates or packets, makes a run short.

pub mod job;
pub mod roce;
pub mod transport;

mod cluster;
mod host;
mod nic;
mod outcome;
mod scale;
mod testbed;

pub use cluster::{HostCluster, HostErrorCounts};
pub use host::{EmulatedHost, HostPacket};
pub use outcome::{EmulatedJobOutcome, EmulationOutcome};
pub use scale::TimeScale;
pub use testbed::{EmulatedTestbed, TestbedError, TestbedOptions, transport_settings};
