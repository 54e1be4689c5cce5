//! What is observed of switches over gNMI.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, positive_duration};

/// What is observed of switches over gNMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GnmiConfig {
    /// Whether switches with a gNMI address are observed.
    pub is_enabled: bool,
    /// Time between two checks of the maps of queues of a switch.
    pub queue_check_interval: Duration,
    /// Time between two readings of the counters of the ports and queues of a switch.
    pub counter_interval: Duration,
}

/// Observation of switches over gNMI, where the fabric document has the address of their server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawGnmi {
    /// Whether the states of ports are followed and the maps of queues are checked.
    pub enabled: bool,
    /// Time between two checks of the maps from DSCP to queues of a switch.
    #[schemars(range(min = 1))]
    pub queue_check_ms: u64,
    /// Time between two readings of what the ports and queues of a switch count.
    #[schemars(range(min = 1))]
    pub counter_ms: u64,
}

impl Default for RawGnmi {
    fn default() -> Self {
        Self { enabled: true, queue_check_ms: 60_000, counter_ms: 10_000 }
    }
}

impl TryFrom<&RawGnmi> for GnmiConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawGnmi) -> Result<Self, ConfigError> {
        let interval = positive_duration("gnmi.queue_check_ms", raw.queue_check_ms)?;
        let counter_interval = positive_duration("gnmi.counter_ms", raw.counter_ms)?;
        Ok(Self { is_enabled: raw.enabled, queue_check_interval: interval, counter_interval })
    }
}
