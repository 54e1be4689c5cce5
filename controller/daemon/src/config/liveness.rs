//! How long an observation of a cable or a switch must last before the controller acts on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigError, RetryBackoff, backoff_config, positive_duration};

/// How long an observation must last to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivenessTimeouts {
    /// Before something that failed counts as working again: at first, and at most.
    pub hold_down: RetryBackoff,
    /// Before a switch that does not answer counts as failed.
    pub switch_silence: Duration,
    /// Before what works again is used although not all switches are seen to know of it.
    pub return_limit: Duration,
}

/// How long what is seen of cables and switches must last to be believed, in milliseconds. That a
/// cable is down is believed at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawLiveness {
    /// Before what has failed counts as working again; doubles with every relapse, up to the
    /// longest.
    pub hold_down_ms: u64,
    /// The longest such wait, and the calm after which relapses are forgotten.
    pub hold_down_longest_ms: u64,
    /// Before a switch that does not answer counts as failed. Traffic goes around it from then on,
    /// though it may still forward; where half of the switches are silent, none counts as failed.
    pub switch_silence_ms: u64,
    /// What works again is used once every switch is seen to know of it, and at the latest after so
    /// long, though packets may then get lost at a switch that does not.
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
