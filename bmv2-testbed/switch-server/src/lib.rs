//! The servers of the embedded switch ([`switch::Device`]): P4Runtime and gNMI.
//!
//! Both reach a device through its [`switch::DeviceHandle`] and know nothing of how it forwards.
//! [`p4runtime`] is the server that controllers program, [`gnmi`] reports ports, queues and
//! neighbours, and [`testing`] has what tests of a switch need: p4c's STF scripts, run on a device
//! through P4Runtime, and scripted faults of a server.

pub mod gnmi;
pub mod p4runtime;
pub mod testing;
