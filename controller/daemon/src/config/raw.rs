//! The configuration in the form of files, with the default of every field.
//!
//! [`Config`](super::Config) is built from it and checks it. The decision: every field may be left
//! out, so an empty file is a configuration, and printing this type prints every field.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    RawAudit, RawCounters, RawDiscovery, RawEtcd, RawGnmi, RawLearning, RawLiveness, RawNorthbound,
    RawRecorder, RawSai, RawTelemetry, RawTls, RawTraces,
};

/// A configuration as files spell it; every field may be left out. Printed, it is the effective
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Mastership: the identity of this controller among those of the fabric.
    pub election: RawElection,
    /// The state that survives a restart.
    pub store: RawStore,
    /// The audit trail.
    pub audit: RawAudit,
    /// The flight recorder.
    pub recorder: RawRecorder,
    /// etcd, which elects the leader and holds what all controllers share.
    pub etcd: RawEtcd,
    /// Capabilities of the switches.
    pub switches: RawSwitches,
    /// Bounds of queues, in messages.
    pub queues: RawQueues,
    /// Deadlines of the controller, in milliseconds.
    pub deadlines: RawDeadlines,
    /// How the tables of switches are kept at the plan.
    pub reconcile: RawReconcile,
    /// How long an observation of a cable or a switch must last before the controller acts on it.
    pub liveness: RawLiveness,
    /// Discovery of cables and hosts.
    pub discovery: RawDiscovery,
    /// Learning of flows that no job has announced.
    pub learning: RawLearning,
    /// The address for people and programs, and their access.
    pub northbound: RawNorthbound,
    /// Bounds and timing of job reports.
    pub telemetry: RawTelemetry,
    /// Readings of the switches' counters.
    pub counters: RawCounters,
    /// Observation of switches over gNMI.
    pub gnmi: RawGnmi,
    /// The program of switches with SAI P4.
    pub sai: RawSai,
    /// Export of traces over OTLP.
    pub traces: RawTraces,
    /// Bounds of gRPC messages, in bytes.
    pub messages: RawMessages,
    /// TLS towards switches.
    pub tls: RawTls,
}

/// Mastership: the identity of this controller among those of the fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawElection {
    /// The first term to bid in. A controller of a later term wins.
    pub term: u64,
    /// A number that no other controller has. It decides within a term.
    #[schemars(range(min = 1))]
    pub controller: u32,
    /// How long the primary may be disconnected from half of the switches or fewer before this
    /// controller takes over. When it loses more than half, this controller takes over at once.
    #[schemars(range(min = 1))]
    pub grace_ms: u64,
    /// Whether this controller is a cold standby: it leads only when an operator has it lead (`crux
    /// cluster lead`). Without etcd only, which elects a leader by itself.
    pub standby: bool,
}

/// The state that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawStore {
    /// File of the embedded store, created if it does not exist. Without one, jobs, policy and
    /// election term begin anew at every start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// Capabilities of the switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawSwitches {
    /// Priority levels of every switch; if not given, the least that the fabric document says of a
    /// switch, or 8. simple_switch drops packets of a higher level, so a policy with more levels is
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub levels: Option<u8>,
}

/// Bounds of queues, in messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawQueues {
    /// Events that wait for the controller state. Senders wait when it is full.
    #[schemars(range(min = 1))]
    pub events: usize,
    /// Messages that wait for the stream of one switch.
    #[schemars(range(min = 1))]
    pub stream: usize,
}

/// Deadlines of the controller, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawDeadlines {
    /// Opening a connection.
    #[schemars(range(min = 1))]
    pub connect_ms: u64,
    /// One call, and the first response of a switch to a bid.
    #[schemars(range(min = 1))]
    pub rpc_ms: u64,
    /// Silence of a connection after which TCP asks whether the switch is there, in whole seconds;
    /// after twice as much without an answer it counts as disconnected.
    #[schemars(range(min = 1))]
    pub keepalive_ms: u64,
    /// Completion of a drain. A later drain is reported as late and continues.
    #[schemars(range(min = 1))]
    pub drain_ms: u64,
    /// Time without an event after which the plan is made anew from nothing, so that it does not
    /// depend on what was in force before; while events never end, twice that.
    #[schemars(range(min = 1))]
    pub quiet_ms: u64,
    /// Verification of a policy change on all switches. A later change is rolled back.
    #[schemars(range(min = 1))]
    pub verify_ms: u64,
    /// How long the calls to a switch must fail before policy changes no longer wait for it.
    #[schemars(range(min = 1))]
    pub quarantine_ms: u64,
    /// Repair of a failure, after which planning for it begins in parallel.
    #[schemars(range(min = 1))]
    pub repair_ms: u64,
    /// End of all sessions when the controller stops.
    #[schemars(range(min = 1))]
    pub shutdown_ms: u64,
}

/// How the tables of switches are kept at the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawReconcile {
    /// Time between two full reconciles of a switch that is as desired.
    #[schemars(range(min = 1))]
    pub interval_ms: u64,
    /// Time between two spot checks of a switch that is as desired: its program and
    /// tables in turn.
    #[schemars(range(min = 1))]
    pub check_interval_ms: u64,
    /// Entries that a spot check reads at most. A switch with fewer is read whole in every check.
    #[schemars(range(min = 1))]
    pub check_entries: usize,
    /// Entries that spot checks of all switches together read in a second, and full reconciles as
    /// well. In a large fabric, switches are read less often than the intervals say.
    #[schemars(range(min = 1))]
    pub read_entries_per_second: usize,
    /// Backoff before the first retry of a connection or of refused entries. It doubles up to
    /// `retry_longest_ms`.
    #[schemars(range(min = 1))]
    pub retry_first_ms: u64,
    /// Longest backoff; at least `retry_first_ms`.
    #[schemars(range(min = 1))]
    pub retry_longest_ms: u64,
    /// Updates in one write request.
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// Write requests in flight on one switch.
    #[schemars(range(min = 1))]
    pub outstanding: usize,
    /// Switches that are read as a whole at once. During a takeover the first are written before
    /// the last are read.
    #[schemars(range(min = 1))]
    pub readers: usize,
    /// How long a switch that is slow to read delays the next, and one that is slow to answer
    /// writes what is read back of others.
    #[schemars(range(min = 1))]
    pub turn_ms: u64,
    /// What happens to entries that no controller of ours wrote.
    pub foreign: ForeignEntryPolicy,
    /// What happens to a program of another kind than the fabric document has for the switch.
    pub other_programs: OtherPrograms,
}

/// What happens to a program of another kind than the fabric document has for the switch, with or
/// without a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtherPrograms {
    /// It stays, and the controller neither bids for the switch nor writes to it.
    #[default]
    Keep,
    /// It is replaced, and its entries are gone.
    Replace,
}

/// What happens to entries that no controller of ours wrote. Entries of ours that they replace or
/// hide are restored in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForeignEntryPolicy {
    /// They are deleted: the switch holds the planned entries only.
    #[default]
    Delete,
    /// They are kept.
    Keep,
    /// They are kept and reported as a finding.
    Report,
}

/// Bounds of gRPC messages, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawMessages {
    /// All responses of one read together. A switch that sends more is disconnected.
    #[schemars(range(min = 4194304))]
    pub read_max: usize,
    /// Largest response; messages of the stream have at most 256 KiB. bmv2 returns a read of
    /// 100,000 entries in one message of 3.9 MB.
    #[schemars(range(min = 4194304))]
    pub receive_max: usize,
    /// Largest headers. They carry a batch's errors.
    #[schemars(range(min = 4194304))]
    pub headers_max: u32,
}

impl Default for RawElection {
    fn default() -> Self {
        Self { term: 1, controller: 1, grace_ms: 1_000, standby: false }
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
            quiet_ms: 10_000,
            verify_ms: 30_000,
            quarantine_ms: 5_000,
            repair_ms: 50,
            shutdown_ms: 5_000,
        }
    }
}

impl Default for RawReconcile {
    fn default() -> Self {
        Self {
            interval_ms: 10_000,
            check_interval_ms: 1_000,
            check_entries: 500,
            read_entries_per_second: 50_000,
            retry_first_ms: 50,
            retry_longest_ms: 5_000,
            batch: 500,
            outstanding: 4,
            readers: 4,
            turn_ms: 20,
            foreign: ForeignEntryPolicy::default(),
            other_programs: OtherPrograms::default(),
        }
    }
}

impl Default for RawMessages {
    fn default() -> Self {
        Self { read_max: 16 << 20, receive_max: 16 << 20, headers_max: 8 << 20 }
    }
}
