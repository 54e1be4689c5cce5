//! Messages of processes on the agent's socket: one line of JSON for each.
//!
//! ```json
//! {"job": {"id": "gpt", "gpus": {"h1": 8}, "collective": {"kind": "all_gather", "bytes": 6e9}}}
//! {"iteration": {"job": "gpt", "seconds": 1.5, "flop": 1.2e15, "communication_seconds": 0.6}}
//! {"end": "gpt"}
//! ```
//!
//! A fourth message, `communicator`, is what the profiler plugin of NCCL has measured.
//!
//! The decision: a job has the form of a jobs document, so that there is one way to write it; and
//! an iteration has durations but no times, so that clocks are never compared.

use api::telemetry as proto;
use planner::JobDocument;
use serde::{Deserialize, Serialize};

/// Maximum bytes of a line: enough for an announcement of some thousand flows.
pub const MAX_LINE: usize = 256 * 1024;

/// The longest period of a slot, seconds.
const MAX_PERIOD: f64 = 1e6;

/// Ranks of a communicator at most.
const MAX_RANKS: u32 = 1 << 20;

/// A message of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessMessage {
    /// A job has started.
    Job(Box<JobDocument>),
    /// An iteration has just ended.
    Iteration(FinishedIteration),
    /// The job of this name has ended.
    End(String),
    /// What a rank of a NCCL communicator has sent.
    Communicator(Box<CommunicatorTraffic>),
}

/// What one rank of a NCCL communicator has sent since its last message. Fields that a later plugin
/// adds are ignored: it may be newer than the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommunicatorTraffic {
    /// Identifier that all ranks of the communicator share.
    pub id: String,
    /// Name that the user gave it.
    pub name: String,
    /// This rank.
    pub rank: u32,
    /// All ranks of the communicator.
    pub ranks: u32,
    /// Hosts that they are on.
    pub host_count: u32,
    /// Process id of the rank.
    pub process: u32,
    /// The job, if the environment of the process names it.
    pub job: Option<String>,
    /// Its hosts, as Slurm writes lists of nodes.
    pub host_list: Option<String>,
    /// Work of one iteration of the whole job, FLOP.
    pub flop_per_iteration: Option<f64>,
    /// Time since the last message.
    pub window_seconds: f64,
    /// Share of that time in which data were sent.
    pub busy_share: f64,
    /// The iteration, if the operations repeat.
    pub iteration: Option<CommunicatorIteration>,
    /// Bytes sent over the network, by rank of the receiver.
    pub peers: Vec<PeerTraffic>,
    /// Operations that were queued.
    pub operations: Vec<OperationTraffic>,
    /// Events that the process has lost since its start.
    pub dropped_events: u64,
    /// Of the bytes to peers, those sent for other processes of this host, which are of none of the
    /// iteration's operations.
    pub foreign_bytes: u64,
    /// Whether the communicator was closed.
    pub is_last: bool,
}

/// An iteration that a communicator repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommunicatorIteration {
    /// How long it takes.
    pub seconds: f64,
    /// What the rank sends in it over the network.
    pub bytes: f64,
    /// Operations that it consists of.
    pub operations: usize,
    /// How many iterations were averaged.
    pub averaged: usize,
    /// Time in which data are sent.
    pub communication_seconds: f64,
}

/// Bytes that a rank sent to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// Rank of the receiver.
    pub rank: u32,
    /// Bytes over the network.
    pub bytes: u64,
}

/// Operations of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationTraffic {
    /// `all_reduce`, `all_gather`, ..., `send`, or `other`.
    pub function: String,
    /// How many were queued.
    pub calls: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
}

/// An iteration that has just ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FinishedIteration {
    /// The job.
    pub job: String,
    /// How long it took.
    pub seconds: f64,
    /// Work done by all GPUs of the job, FLOP.
    pub flop: f64,
    /// Time spent computing.
    pub compute_seconds: f64,
    /// Time spent communicating, whether or not it computed meanwhile.
    pub communication_seconds: f64,
    /// Bytes sent by all its flows together; as announced if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// How long after its slot it began to send, seconds; below zero before it. Left out by a job
    /// without a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_offset_seconds: Option<f64>,
}

/// When a job is to begin to send in each iteration, by the clock of its host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartSlot {
    /// Between two begins, seconds; 0 if the job need not wait any more.
    pub period_seconds: f64,
    /// From a multiple of the period, of Unix time, seconds.
    pub first_send_seconds: f64,
    /// The longest wait in an iteration once the slot is found, seconds.
    pub most_wait_seconds: f64,
}

impl StartSlot {
    /// Whether there is something to wait for, and by numbers that make sense.
    pub fn is_given(&self) -> bool {
        let Self { period_seconds, first_send_seconds, most_wait_seconds } = *self;
        let is_period = period_seconds > 0.0 && period_seconds <= MAX_PERIOD;
        is_period
            && first_send_seconds.is_finite()
            && (0.0..=MAX_PERIOD).contains(&most_wait_seconds)
    }
}

impl From<proto::StartSlot> for StartSlot {
    fn from(slot: proto::StartSlot) -> Self {
        let proto::StartSlot { period_seconds, first_send_seconds, most_wait_seconds } = slot;
        Self { period_seconds, first_send_seconds, most_wait_seconds }
    }
}

/// A reply of the agent: an error, or feedback from the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessReply {
    /// The job; empty for a line that could not be parsed.
    pub job: String,
    /// error, warning or info.
    pub severity: String,
    /// The explanation in one sentence.
    pub text: String,
    /// When the job is to begin to send, if that has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<StartSlot>,
}

/// Parses a line and checks its numbers.
///
/// # Errors
/// The line is not a valid message; the text names the field.
pub fn parse_message(line: &str) -> Result<ProcessMessage, String> {
    let message: ProcessMessage = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match &message {
        ProcessMessage::Iteration(iteration) => iteration.check_numbers().map(|()| message),
        ProcessMessage::Communicator(traffic) => traffic.check_numbers().map(|()| message),
        ProcessMessage::Job(_) | ProcessMessage::End(_) => Ok(message),
    }
}

impl CommunicatorTraffic {
    fn check_numbers(&self) -> Result<(), String> {
        let iteration = self.iteration.unwrap_or_default();
        let numbers = [
            self.window_seconds,
            self.busy_share,
            self.flop_per_iteration.unwrap_or(0.0),
            iteration.seconds,
            iteration.bytes,
            iteration.communication_seconds,
        ];
        let is_valid = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
        let counts = [self.ranks, self.host_count];
        let is_counted = counts.iter().all(|count| (1..=MAX_RANKS).contains(count))
            && self.ranks >= self.host_count;
        match is_valid && is_counted {
            true => Ok(()),
            false => Err(format!(
                "communicator: numbers must be finite and >= 0, ranks and hosts 1 to {MAX_RANKS}, \
                 and no fewer ranks than hosts"
            )),
        }
    }
}

impl FinishedIteration {
    fn check_numbers(&self) -> Result<(), String> {
        let numbers = [
            ("seconds", self.seconds),
            ("flop", self.flop),
            ("compute_seconds", self.compute_seconds),
            ("communication_seconds", self.communication_seconds),
            ("bytes", self.bytes.unwrap_or(0.0)),
        ];
        let wrong = numbers.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0));
        match wrong {
            Some((field, value)) => {
                Err(format!("iteration.{field}: {value} is not a finite number >= 0"))
            }
            None if self.slot_offset_seconds.is_some_and(|offset| !offset.is_finite()) => {
                Err("iteration.slot_offset_seconds: must be finite".to_owned())
            }
            None if self.seconds == 0.0 => Err("iteration.seconds: must be above 0".to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_documentation_are_understood() {
        let job = r#"{"job": {"id": "gpt", "gpus": {"h1": 8, "h2": 8},
            "collective": {"kind": "ring_all_reduce", "bytes": 6.5e9}}}"#;
        assert!(matches!(parse_message(job), Ok(ProcessMessage::Job(job)) if job.id == "gpt"));
        let iteration = r#"{"iteration": {"job": "gpt", "seconds": 1.5, "flop": 1.2e15}}"#;
        assert!(matches!(
            parse_message(iteration),
            Ok(ProcessMessage::Iteration(one)) if one.flop == 1.2e15
        ));
        assert_eq!(parse_message(r#"{"end": "gpt"}"#), Ok(ProcessMessage::End("gpt".into())));
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            (r#"{"start": "gpt"}"#, "unknown variant `start`"),
            (r#"{"iteration": {"job": "a", "flops": 1}}"#, "unknown field `flops`"),
            (r#"{"iteration": {"job": "a"}}"#, "iteration.seconds: must be above 0"),
            (
                r#"{"iteration": {"job": "a", "seconds": 1, "flop": -1}}"#,
                "not a finite number >= 0",
            ),
            ("[", "expected value"),
            (r#"{"communicator": {"id": "7", "ranks": 0, "host_count": 1}}"#, "ranks and hosts 1"),
        ];
        for (line, text) in cases {
            let error = parse_message(line).expect_err(line);
            assert!(error.contains(text), "{line}: {error}");
        }
    }

    proptest! {
        /// No line does any harm.
        #[test]
        fn any_text_is_read_or_refused(line in "\\PC{0,200}", nested in 0_usize..2000) {
            let _either = parse_message(&line);
            let _refused = parse_message(&"[".repeat(nested));
        }
    }
}
