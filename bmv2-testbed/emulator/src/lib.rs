//! Emulated hosts and training jobs on the emulated network, on its virtual clock.
//!
//! Jobs iterate as in the fluid model ([`job`]). Their flows are RoCEv2 packets ([`roce`]) carried
//! by a reliable transport ([`transport`]), with the congestion control of NICs ([`dcqcn`]) or
//! limited by a window alone, from host NICs through real switches. All hosts together are one
//! endpoint ([`HostCluster`]). [`EmulatedTestbed`] connects it to the
//! devices of a [`topology::Fabric`] and runs it; [`EmulationOutcome`] holds the iteration times
//! that result.
//!
//! An [`EmulatedHost`] is a single host, for machines whose packets travel over UDP sockets.
//!
//! The decision behind the crate: everything is sans-IO and virtual. Time comes from the emulated
//! network and random numbers from the arguments, so one seed gives one result on every machine.
//! Only the [`TimeScale`] of sizes and computation shortens a run; link rates and packets stay
//! real.

pub mod dcqcn;
pub mod job;
pub mod roce;
pub mod transport;

mod cluster;
mod connection;
mod host;
mod host_hops;
mod host_link;
mod host_ports;
mod host_settings;
mod options;
mod outcome;
mod scale;
mod testbed;

pub use cluster::{HostCluster, HostCongestionCounts, HostErrorCounts, LostConnection};
pub use connection::{CongestionControl, HostSettings};
pub use host::{EmulatedHost, HostPacket};
pub use host_settings::host_settings;
pub use options::{DcqcnOptions, HostTransport, RetrySettings, SwitchQueues, TestbedOptions};
pub use outcome::{EmulatedJobOutcome, EmulationOutcome, MeasuredIterations};
pub use scale::TimeScale;
pub use testbed::{EmulatedTestbed, TestbedError};
