//! The embedded switch and the emulated network.
//!
//! A P4 device that runs the same compiled artefacts as simple_switch_grpc (BMv2 JSON and p4info),
//! so that everything can be run and tested where no BMv2 is installed. It uses nothing of the
//! controller: it checks independently what the controller wrote. Its servers are the crate
//! `switch-server`, so that only what packets go through is compiled at full speed.
//!
//! A module uses only modules named before it in this list: `ids`, `spec` (what a program declares)
//! and `time`; `run` (what happens to a packet); `compile` (JSON to [`Program`]), `traffic` (marks,
//! shares, buffer and pauses) and `scheduler`; `device` ([`Device`], one switch as a synchronous
//! state machine); `emulated_network` (devices and endpoints on a virtual clock) and `ports` (a
//! device on the machine's interfaces).

mod compile;
mod device;
mod emulated_network;
mod ids;
mod lldp;
mod port_names;
pub mod ports;
mod run;
mod scheduler;
mod spec;
mod time;
mod traffic;

pub use compile::LoadError;
pub use device::handle::{DeviceHandle, OwnerStopped};
pub use device::port_report::{PortReport, PortState, PortStates};
pub use device::replication::{CloneSession, ReplicationUpdate};
pub use device::{
    Device, DeviceConfig, DeviceCounts, DeviceOutputs, Digest, OutputPacket, QueuedPacket,
};
pub use emulated_network::{
    ClockPace, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkCounts, EmulatedNetworkError,
    EmulatedNetworkHandle, EndpointHandle, EndpointIndex, EndpointOutbox, NetworkEndpoint,
    NicPause, WireCounts, WireDirectionIndex, WireEnd, WireIndex, WireSpec, WireState,
};
pub use ids::{
    ActionIndex, CounterIndex, GroupId, LearnListIndex, MemberId, MeterIndex, ProfileIndex,
    RegisterIndex, TableIndex, ValueSetIndex,
};
pub use lldp::{LldpIdentity, LldpNeighbour};
pub use port_names::{PortNameError, PortNames};
pub use run::action::{DROP_PORT, SESSION_MASK};
pub use run::counter::CounterData;
pub use run::meter::MeterConfig;
pub use run::program::{ObjectNames, Program};
pub use run::table::EntryView;
pub use scheduler::{
    DequeueOutcome, LevelPause, PortScheduler, QueueCounts, QueueLimits, QueueWait,
};
pub use spec::entry::{
    ActionCall, ControlError, GroupMember, KeyField, MatchKey, Replica, TableAction,
};
pub use spec::{
    ActionParameter, ActionSpec, CounterSpec, DefaultMutability, DirectMeter, KeySpec, LearnList,
    MatchKind, MeterSpec, MeterUnit, ProfileSpec, RegisterSpec, TableSpec, ValueSetSpec, bit_mask,
};
pub use time::Nanos;
pub use traffic::{
    BufferCounts, BufferSettings, LevelShares, MarkingPoint, MarkingRamp, MarkingSlope, PauseFrame,
    PauseFrameError, TrafficSettings, headroom_bytes,
};
