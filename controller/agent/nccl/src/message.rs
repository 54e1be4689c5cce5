//! Lines of JSON about communicators, as the agent reads them (`agent::process_message`).

use serde::Serialize;

use crate::operation::NcclFunction;

/// Traffic of one rank in a communicator since the last message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommunicatorMessage {
    /// Identifier that all ranks share, hexadecimal.
    pub id: String,
    /// Name given by the user, or empty.
    pub name: String,
    /// This rank.
    pub rank: u32,
    /// All ranks.
    pub ranks: u32,
    /// Hosts that they are on.
    pub host_count: u32,
    /// Process id.
    pub process: u32,
    /// What the environment of the process says of its job.
    #[serde(flatten)]
    pub job: JobEnvironment,
    /// Time since the last message.
    pub window_seconds: f64,
    /// Share of that time in which data were sent.
    pub busy_share: f64,
    /// The iteration, if operations repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<IterationMessage>,
    /// Bytes sent to each peer over the network.
    pub peers: Vec<PeerMessage>,
    /// Operations that were queued.
    pub operations: Vec<OperationMessage>,
    /// Events of this process that were lost since it started.
    pub dropped_events: u64,
    /// Of the bytes to peers, those sent for other processes of this host (PXN), which are of none of
    /// the iteration's operations.
    pub foreign_bytes: u64,
    /// Whether the communicator was closed.
    pub is_last: bool,
}

/// The average of the latest iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IterationMessage {
    /// How long it takes.
    pub seconds: f64,
    /// What this rank sends in it over the network.
    pub bytes: f64,
    /// Operations that it consists of.
    pub operations: usize,
    /// How many iterations were averaged.
    pub averaged: usize,
    /// Time in which data are sent.
    pub communication_seconds: f64,
}

/// Bytes sent to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerMessage {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Bytes sent.
    pub bytes: u64,
}

/// Operations of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OperationMessage {
    /// What they do.
    pub function: NcclFunction,
    /// How many were queued.
    pub calls: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
}

/// Variables by which a job names itself; each may be absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobEnvironment {
    /// `CRUX_JOB`, else `slurm-` and `SLURM_JOB_ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// `CRUX_HOSTS`, else `SLURM_JOB_NODELIST`: its hosts, as Slurm writes lists of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_list: Option<String>,
    /// `CRUX_FLOP_PER_ITERATION`: work of all its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flop_per_iteration: Option<f64>,
}

impl JobEnvironment {
    /// Reads the variables by name with `read`.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Self {
        let slurm_job = || read("SLURM_JOB_ID").map(|number| format!("slurm-{number}"));
        let flop = read("CRUX_FLOP_PER_ITERATION").and_then(|text| text.parse::<f64>().ok());
        Self {
            job: read("CRUX_JOB").or_else(slurm_job),
            host_list: read("CRUX_HOSTS").or_else(|| read("SLURM_JOB_NODELIST")),
            flop_per_iteration: flop.filter(|flop| flop.is_finite() && *flop >= 0.0),
        }
    }
}

/// The line of a message, without its end.
pub(crate) fn message_line(message: &CommunicatorMessage) -> String {
    let line = serde_json::json!({ "communicator": message });
    line.to_string()
}
