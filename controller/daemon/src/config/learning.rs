//! How unknown flows are learned.

use std::num::NonZeroUsize;
use std::time::Duration;

use p4::codec::DigestTiming;

use super::section::config_section;
use super::{ConfigError, check_field};

/// How long a switch may collect digests before it sends them.
const DIGEST_DELAY: Duration = Duration::from_millis(50);
/// Digests in one list: at 100 bytes each, a message of a few kilobytes.
const DIGESTS_IN_LIST: u16 = 64;
/// A switch waits so many refresh intervals for an acknowledgement, so that it sends no flow twice
/// in one interval.
const ACK_TIMEOUT_INTERVALS: u32 = 2;

config_section! {
    /// Learning of RoCEv2 flows that no job has announced.
    RawLearning => LearningConfig in "learning", check check_learning;

    /// Whether leaves report the RoCEv2 flows of hosts that belong to no job.
    enabled: bool = false => is_enabled: bool,
    /// Flows that are kept of one host port. Further flows of the port are counted and not kept.
    #[schemars(range(min = 1))]
    port_flows_max: usize = 1_024 => port_flows_max: NonZeroUsize,
    /// Flows that are kept of all host ports. Above, the port with the most flows loses the one
    /// that was reported the longest ago.
    #[schemars(range(min = 1))]
    flows_max: usize = 65_536 => flows_max: NonZeroUsize,
    /// Time between two reports of a flow that goes on.
    #[schemars(range(min = 1))]
    refresh_ms: u64 = 10_000 => refresh: Duration,
    /// Time without a report after which a flow is forgotten; at least three `refresh_ms`.
    #[schemars(range(min = 1))]
    expire_ms: u64 = 60_000 => expire_after: Duration,
    /// Queue pairs that are kept of one host. A report of more is refused.
    #[schemars(range(min = 1))]
    host_queue_pairs_max: usize = 8_192 => host_queue_pairs_max: NonZeroUsize,
    /// Queue pairs that are kept of all hosts. Above, the host with the most loses its own for one
    /// with fewer.
    #[schemars(range(min = 1))]
    queue_pairs_max: usize = 131_072 => queue_pairs_max: NonZeroUsize,
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

fn check_learning(raw: &RawLearning) -> Result<(), ConfigError> {
    // A report may be late by one interval where its acknowledgement was lost.
    let enough = raw.expire_ms >= raw.refresh_ms.saturating_mul(3);
    let wanted = "at least three learning.refresh_ms";
    check_field("learning.expire_ms", &raw.expire_ms, wanted, enough)
}
