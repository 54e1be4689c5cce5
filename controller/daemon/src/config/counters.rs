//! How often the switches' own counters are read.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_duration, positive_rate};

/// How often the switches' own counters are read.
#[derive(Clone, Debug, PartialEq)]
pub struct CountersConfig {
    /// Whether counters are read.
    pub is_enabled: bool,
    /// Time between two readings of a switch.
    pub interval: Duration,
    /// Counters read of one switch in a second.
    pub entries_per_second: NonZeroU32,
    /// The share by which reports and counters may differ.
    pub disagreement_min: f64,
}

/// Readings of the switches' counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawCounters {
    /// Whether the counters are read.
    pub enabled: bool,
    /// Time between two readings of a switch. An iteration needs about ten readings.
    #[schemars(range(min = 1))]
    pub interval_ms: u64,
    /// Counters read from one switch in a second. More counters take turns.
    #[schemars(range(min = 1))]
    pub entries_per_second: u32,
    /// Difference between reports and counters, as a share, from which it is a finding; above 0, at
    /// most 1.
    pub disagree_min: f64,
}

impl Default for RawCounters {
    fn default() -> Self {
        Self { enabled: false, interval_ms: 100, entries_per_second: 5_000, disagree_min: 0.2 }
    }
}

impl TryFrom<&RawCounters> for CountersConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawCounters) -> Result<Self, ConfigError> {
        let share = raw.disagree_min > 0.0 && raw.disagree_min <= 1.0;
        let wanted = "above 0, at most 1";
        check_field("counters.disagree_min", &raw.disagree_min, wanted, share)?;
        let budget = positive_rate("counters.entries_per_second", raw.entries_per_second)?;
        Ok(Self {
            is_enabled: raw.enabled,
            interval: positive_duration("counters.interval_ms", raw.interval_ms)?,
            entries_per_second: budget,
            disagreement_min: raw.disagree_min,
        })
    }
}
