//! How unknown flows are learned.

use std::num::NonZeroUsize;
use std::time::Duration;

use p4::codec::DigestTiming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count, positive_duration};

/// How long a switch may collect digests before it sends them.
const DIGEST_DELAY: Duration = Duration::from_millis(50);
/// Digests in one list: at 100 bytes each, a message of a few kilobytes.
const DIGESTS_IN_LIST: u16 = 64;
/// A switch waits so many refresh intervals for an acknowledgement, so that it sends no flow twice
/// in one interval.
const ACK_TIMEOUT_INTERVALS: u32 = 2;

/// How unknown flows are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearningConfig {
    /// Whether switches report unknown flows.
    pub is_enabled: bool,
    /// Flows that are kept of one host port.
    pub port_flows_max: NonZeroUsize,
    /// Flows that are kept of all ports.
    pub flows_max: NonZeroUsize,
    /// How often a switch reports a flow that goes on.
    pub refresh: Duration,
    /// After so long without a report, a flow is forgotten.
    pub expire_after: Duration,
    /// Queue pairs that are kept of one host.
    pub host_queue_pairs_max: NonZeroUsize,
    /// Queue pairs that are kept of all hosts.
    pub queue_pairs_max: NonZeroUsize,
}

/// Learning of RoCEv2 flows that no job has announced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLearning {
    /// Whether leaves report the RoCEv2 flows of hosts that belong to no job.
    pub enabled: bool,
    /// Flows that are kept of one host port. Further flows of the port are counted and not kept.
    #[schemars(range(min = 1))]
    pub port_flows_max: usize,
    /// Flows that are kept of all host ports. Above, the port with the most flows loses the one
    /// that was reported the longest ago.
    #[schemars(range(min = 1))]
    pub flows_max: usize,
    /// Time between two reports of a flow that goes on.
    #[schemars(range(min = 1))]
    pub refresh_ms: u64,
    /// Time without a report after which a flow is forgotten; at least three `refresh_ms`.
    #[schemars(range(min = 1))]
    pub expire_ms: u64,
    /// Queue pairs that are kept of one host. A report of more is refused.
    #[schemars(range(min = 1))]
    pub host_queue_pairs_max: usize,
    /// Queue pairs that are kept of all hosts. Above, the host with the most loses its own for one
    /// with fewer.
    #[schemars(range(min = 1))]
    pub queue_pairs_max: usize,
}

impl Default for RawLearning {
    fn default() -> Self {
        Self {
            enabled: false,
            port_flows_max: 1_024,
            flows_max: 65_536,
            refresh_ms: 10_000,
            expire_ms: 60_000,
            host_queue_pairs_max: 8_192,
            queue_pairs_max: 131_072,
        }
    }
}

impl LearningConfig {
    /// When switches send digests.
    pub fn digest_timing(&self) -> DigestTiming {
        DigestTiming {
            max_delay: DIGEST_DELAY,
            max_list_size: DIGESTS_IN_LIST,
            ack_timeout: self.refresh.saturating_mul(ACK_TIMEOUT_INTERVALS),
        }
    }
}

impl TryFrom<&RawLearning> for LearningConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawLearning) -> Result<Self, ConfigError> {
        // A report may be late by one interval where its acknowledgement was lost.
        let enough = raw.expire_ms >= raw.refresh_ms.saturating_mul(3);
        let wanted = "at least three learning.refresh_ms";
        check_field("learning.expire_ms", &raw.expire_ms, wanted, enough)?;
        Ok(Self {
            is_enabled: raw.enabled,
            port_flows_max: positive_count("learning.port_flows_max", raw.port_flows_max)?,
            flows_max: positive_count("learning.flows_max", raw.flows_max)?,
            refresh: positive_duration("learning.refresh_ms", raw.refresh_ms)?,
            expire_after: positive_duration("learning.expire_ms", raw.expire_ms)?,
            host_queue_pairs_max: positive_count(
                "learning.host_queue_pairs_max",
                raw.host_queue_pairs_max,
            )?,
            queue_pairs_max: positive_count("learning.queue_pairs_max", raw.queue_pairs_max)?,
        })
    }
}
