//! The configuration as files spell it, with the default of every field.
//!
//! [`Config`](super::Config) is made from it and checks it. The decision: every field may be left
//! out, so an empty file is a configuration, and printing this type is printing all of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    MAX_LEVELS, RawCounters, RawDiscovery, RawEtcd, RawLiveness, RawNorthbound, RawRecorder,
    RawTelemetry, RawTls, RawTraces,
};

/// A configuration as files spell it; every field may be left out. Printed, it is the effective
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Who this controller is among those of the fabric.
    pub election: RawElection,
    /// What outlives the controller.
    pub store: RawStore,
    /// Where inputs and writes are recorded, to be run again.
    pub recorder: RawRecorder,
    /// etcd, which says who of several controllers leads and holds what they share.
    pub etcd: RawEtcd,
    /// What the switches can do.
    pub switches: RawSwitches,
    /// Bounds of queues, in messages.
    pub queues: RawQueues,
    /// The longest that anything is waited for, in milliseconds.
    pub deadlines: RawDeadlines,
    /// How tables are kept at the plan.
    pub reconcile: RawReconcile,
    /// How long what is seen of cables and switches must last to be believed.
    pub liveness: RawLiveness,
    /// How cables and hosts are found.
    pub discovery: RawDiscovery,
    /// Where people and programs are served.
    pub northbound: RawNorthbound,
    /// How jobs may tell of themselves.
    pub telemetry: RawTelemetry,
    /// How often the switches' own counters are read.
    pub counters: RawCounters,
    /// Where traces of changes go.
    pub traces: RawTraces,
    /// Bounds of gRPC messages, in bytes.
    pub messages: RawMessages,
    /// How connections to switches are secured.
    pub tls: RawTls,
}

/// Who this controller is among those of the fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawElection {
    /// The first term to bid in; a controller of a later term wins.
    pub term: u64,
    /// A number that no other controller has; decides within a term.
    pub controller: u32,
    /// How long the primary may be away from half of the switches or fewer before this controller
    /// takes over, in milliseconds. When it leaves more of them, this one takes over at once.
    pub grace_ms: u64,
}

/// What outlives the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawStore {
    /// File of the embedded store, which is made if it is not there. Without one, jobs, policy and
    /// election term begin anew with every start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// What the switches can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawSwitches {
    /// Classes that every switch serves. A packet of a higher one is dropped by simple_switch, so a
    /// policy with more levels is refused.
    pub levels: u8,
}

/// Bounds of queues, in messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawQueues {
    /// Events that wait for the state; senders wait beyond it.
    pub events: usize,
    /// Messages that wait to be sent on the stream of one switch.
    pub stream: usize,
}

/// The longest that anything is waited for, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawDeadlines {
    /// Opening a connection.
    pub connect_ms: u64,
    /// One call, and the switch's first word on a bid.
    pub rpc_ms: u64,
    /// A switch that says nothing for this long on an idle connection is taken for gone.
    pub keepalive_ms: u64,
    /// A drain being complete; after that it is told to be late, and goes on.
    pub drain_ms: u64,
    /// All switches holding a change of policy; after that it is taken back.
    pub verify_ms: u64,
    /// Switches going around a failure, before the plan for it is begun beside them.
    pub repair_ms: u64,
    /// All sessions ending when the controller stops.
    pub shutdown_ms: u64,
}

/// How tables are kept at the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawReconcile {
    /// Between two passes over a switch that is as it should be.
    pub interval_ms: u64,
    /// Before the first retry, whether of a connection or of refused entries; doubles up to the
    /// longest.
    pub retry_first_ms: u64,
    /// Between retries at most.
    pub retry_longest_ms: u64,
    /// Updates in one write.
    pub batch: usize,
    /// Writes that may be under way at once on one switch.
    pub outstanding: usize,
    /// Switches that are read whole at once; while one takes over, the first are written to before
    /// the last are read.
    pub readers: usize,
    /// How long a switch that is slow to be read keeps others waiting for that, at most.
    pub turn_ms: u64,
    /// What becomes of entries that no controller of ours wrote: `delete`, `keep` or `report`.
    pub foreign: ForeignEntryPolicy,
}

/// What becomes of entries that no controller of ours wrote. What they replace or hide of ours is
/// restored in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignEntryPolicy {
    /// They go: the switch holds what is planned and nothing else.
    #[default]
    Delete,
    /// They stay.
    Keep,
    /// They stay, and a finding says so.
    Report,
}

/// Bounds of gRPC messages, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawMessages {
    /// The largest answer; bmv2 answers a read of 100,000 entries in one message of 3.9 MB.
    pub receive_max: usize,
    /// The largest headers; a batch's errors travel in them.
    pub headers_max: u32,
}

impl Default for RawElection {
    fn default() -> Self {
        Self { term: 1, controller: 1, grace_ms: 1_000 }
    }
}

impl Default for RawSwitches {
    fn default() -> Self {
        Self { levels: MAX_LEVELS }
    }
}

impl Default for RawQueues {
    fn default() -> Self {
        Self { events: 256, stream: 64 }
    }
}

impl Default for RawDeadlines {
    fn default() -> Self {
        Self {
            connect_ms: 2_000,
            rpc_ms: 5_000,
            keepalive_ms: 5_000,
            drain_ms: 10_000,
            verify_ms: 30_000,
            repair_ms: 50,
            shutdown_ms: 5_000,
        }
    }
}

impl Default for RawReconcile {
    fn default() -> Self {
        Self {
            interval_ms: 10_000,
            retry_first_ms: 50,
            retry_longest_ms: 5_000,
            batch: 500,
            outstanding: 4,
            readers: 4,
            turn_ms: 20,
            foreign: ForeignEntryPolicy::default(),
        }
    }
}

impl Default for RawMessages {
    fn default() -> Self {
        Self { receive_max: 64 << 20, headers_max: 8 << 20 }
    }
}
