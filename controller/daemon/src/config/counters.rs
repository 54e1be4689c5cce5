//! How often the switches' own counters are read.

use std::num::NonZeroU32;
use std::time::Duration;

use super::section::config_section;
use super::{ConfigError, check_field};

config_section! {
    /// Readings of the switches' counters.
    RawCounters => CountersConfig in "counters", check check_counters;

    /// Whether the counters are read.
    enabled: bool = false => is_enabled: bool,
    /// Time between two readings of a switch. An iteration needs about ten readings.
    #[schemars(range(min = 1))]
    interval_ms: u64 = 100 => interval: Duration,
    /// Counters read from one switch in a second. More counters take turns.
    #[schemars(range(min = 1))]
    entries_per_second: u32 = 5_000 => entries_per_second: NonZeroU32,
    /// Difference between reports and counters, as a share, from which it is a finding; above 0, at
    /// most 1.
    disagree_min: f64 = 0.2 => disagreement_min: f64,
}

fn check_counters(raw: &RawCounters) -> Result<(), ConfigError> {
    let share = raw.disagree_min > 0.0 && raw.disagree_min <= 1.0;
    check_field("counters.disagree_min", &raw.disagree_min, "above 0, at most 1", share)
}
