//! How long an observation of a cable or a switch must last before the controller acts on it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, RetryBackoff, backoff_config, positive_duration};

/// How long an observation must last before it is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivenessTimeouts {
    /// Time before a failed part counts as working again: at first, and at most.
    pub hold_down: RetryBackoff,
    /// Time before a switch that does not answer counts as failed.
    pub switch_silence: Duration,
    /// Time before a part that works again is used although not all switches hold it.
    pub return_limit: Duration,
}

/// How long an observation of a cable or a switch must last before the controller acts on it, in
/// milliseconds. A cable that is down is acted on at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLiveness {
    /// Time before a failed part counts as working. It doubles with every relapse up to
    /// `hold_down_longest_ms`.
    #[schemars(range(min = 1))]
    pub hold_down_ms: u64,
    /// Longest hold-down, and the quiet time after which relapses are forgotten; at least
    /// `hold_down_ms`.
    #[schemars(range(min = 1))]
    pub hold_down_longest_ms: u64,
    /// Time before a switch that does not respond counts as failed. Traffic then avoids it, though
    /// it may still forward. Where half of the switches are silent, none counts as failed.
    #[schemars(range(min = 1))]
    pub switch_silence_ms: u64,
    /// A part that works again is used once every switch is verified to know of it, and at the
    /// latest after this time. Packets may then be lost at a switch that does not.
    #[schemars(range(min = 1))]
    pub return_ms: u64,
}

impl Default for RawLiveness {
    fn default() -> Self {
        Self {
            hold_down_ms: 1_000,
            hold_down_longest_ms: 60_000,
            switch_silence_ms: 3_000,
            return_ms: 1_000,
        }
    }
}

impl TryFrom<&RawLiveness> for LivenessTimeouts {
    type Error = ConfigError;

    fn try_from(raw: &RawLiveness) -> Result<Self, ConfigError> {
        let names = [
            "liveness.hold_down_ms",
            "liveness.hold_down_longest_ms",
            "at least liveness.hold_down_ms",
        ];
        Ok(Self {
            hold_down: backoff_config(names, [raw.hold_down_ms, raw.hold_down_longest_ms])?,
            switch_silence: positive_duration("liveness.switch_silence_ms", raw.switch_silence_ms)?,
            return_limit: positive_duration("liveness.return_ms", raw.return_ms)?,
        })
    }
}
