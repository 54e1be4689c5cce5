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

mod compile;
mod control;
mod device;
mod emulated_network;
pub mod p4runtime;
pub mod ports;
mod run;
mod scheduler;
pub mod testing;

pub use compile::{
    ActionIndex, ActionParameter, ActionSpec, CounterIndex, CounterSpec, DefaultMutability,
    DirectMeter, KeySpec, LearnList, LearnListIndex, LoadError, MatchKind, MeterIndex,
    ProfileIndex, ProfileSpec, Program, RegisterIndex, TableIndex, TableSpec, ValueSetIndex,
    ValueSetSpec,
};
pub use control::{
    ActionCall, ControlError, GroupId, GroupMember, KeyField, MatchKey, MemberId, TableAction,
};
pub use device::replication::{CloneSession, Replica, ReplicationUpdate};
pub use device::{
    Device, DeviceConfig, DeviceCounts, DeviceOutputs, Digest, Nanos, OutputPacket, QueuedPacket,
};
pub use emulated_network::{
    ClockPace, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkCounts,
    EmulatedNetworkError, EmulatedNetworkHandle, EndpointHandle, EndpointIndex, EndpointOutbox,
    NetworkEndpoint, OwnerStopped, WireCounts, WireEnd, WireIndex, WireSpec, WireState,
};
pub use run::action::DROP_PORT;
pub use run::arrays::RegisterSpec;
pub use run::counter::CounterData;
pub use run::meter::{MeterConfig, MeterSpec, MeterUnit};
pub use run::table::EntryView;
pub use scheduler::{DequeueOutcome, PortScheduler, QueueCounts, QueueLimits, QueueWait};
