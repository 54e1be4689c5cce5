//! The embedded switch and the in-process fabric.
//!
//! A P4 device that runs the same compiled artefacts as simple_switch_grpc (BMv2 JSON and p4info),
//! so that everything can be run and tested where no BMv2 is installed. Of our other crates it uses
//! the P4Runtime protobufs alone: it is the independent witness of what the controller wrote.
//!
//! From the outside in: [`Device`] is one switch as a synchronous state machine, packets in and
//! packets out; [`Program`] is what it runs; `control` is the vocabulary of its tables. A
//! [`EmulatedNetworkBuilder`] joins devices and endpoints on a virtual clock, and [`DeviceHandle`] is how
//! the P4Runtime service reaches a device there.

mod action;
mod arrays;
mod control;
mod counter;
mod deparser;
mod device;
mod ecn;
pub mod election;
mod emulated_network;
mod expression;
pub mod faults;
mod hash;
mod header;
mod meter;
mod p4info;
mod parser;
mod phv;
mod pipeline;
pub mod ports;
mod profile;
mod program;
mod replication;
mod scheduler;
pub mod service;
pub mod stf;
mod table;

pub use action::DROP_PORT;
pub use arrays::RegisterSpec;
pub use control::{
    ActionCall, ControlError, GroupId, GroupMember, KeyField, MatchKey, MemberId, TableAction,
};
pub use counter::CounterData;
pub use device::{
    Device, DeviceConfig, DeviceCounts, DeviceOutputs, Digest, Nanos, OutputPacket, QueuedPacket,
};
pub use emulated_network::{
    ClockPace, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkCounts,
    EmulatedNetworkError, EmulatedNetworkHandle, EndpointHandle, EndpointIndex, EndpointOutbox,
    NetworkEndpoint, OwnerStopped, WireCounts, WireEnd, WireIndex, WireSpec, WireState,
};
pub use meter::{MeterConfig, MeterSpec, MeterUnit};
pub use program::{
    ActionIndex, ActionParameter, ActionSpec, CounterIndex, CounterSpec, DefaultMutability,
    DirectMeter, KeySpec, LearnList, LearnListIndex, LoadError, MatchKind, MeterIndex,
    ProfileIndex, ProfileSpec, Program, RegisterIndex, TableIndex, TableSpec, ValueSetIndex,
    ValueSetSpec,
};
pub use replication::{CloneSession, Replica, ReplicationUpdate};
pub use scheduler::{DequeueOutcome, PortScheduler, QueueCounts, QueueLimits, QueueWait};
pub use table::EntryView;
