//! Emulated hosts and training jobs on the emulated network, on its virtual clock.
//!
//! Jobs iterate as in the fluid model ([`job`]). Their flows are RoCEv2 packets ([`roce`]) carried
//! by a window-limited reliable transport ([`transport`]) from host NICs through real switches. All
//! hosts together are one endpoint ([`HostCluster`]). [`EmulatedTestbed`] connects it to the
//! devices of a [`topology::Fabric`] and runs it; [`EmulationOutcome`] holds the iteration times
//! that result.
//!
//! An [`EmulatedHost`] is a single host, for machines whose packets travel over UDP sockets.
//!
//! The decision behind the crate: everything is sans-IO and virtual. Time comes from the emulated
//! network and random numbers from the arguments, so one seed gives one result on every machine.
//! Only the [`TimeScale`] of sizes and computation shortens a run; link rates and packets stay
//! real.

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
pub use outcome::{EmulatedJobOutcome, EmulationOutcome, MeasuredIterations};
pub use scale::TimeScale;
pub use testbed::{EmulatedTestbed, TestbedError, TestbedOptions, transport_settings};
