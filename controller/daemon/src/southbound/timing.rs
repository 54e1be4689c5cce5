//! How long a change took, from its event to the last verified switch.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use topology::SwitchId;

use super::{DesiredTables, DesiredTimestamps, SwitchStatus};

/// From the event to the last switch, on the controller's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeTiming {
    /// The generation that was verified: the one asked for or a later one.
    pub generation: u64,
    /// The event arrived, the plan was made, and it was lowered.
    pub timestamps: DesiredTimestamps,
    /// The first write was sent, if it took any.
    pub first_write: Option<Instant>,
    /// The last switch had answered its last write; when the tables were lowered, if none was
    /// written to. From here on packets go as planned, if the switches tell the truth.
    pub written: Instant,
    /// The last switch was seen to hold its tables.
    pub verified: Instant,
}

impl ChangeTiming {
    /// That of what is desired, as far as the sessions have come.
    pub(crate) fn new(desired: &DesiredTables, lines: &BTreeMap<SwitchId, SwitchStatus>) -> Self {
        let verified = lines.values().filter_map(|line| line.verified);
        let lowered = desired.timestamps.lowered;
        let answers = verified.clone().filter_map(|verified| verified.last_answer);
        Self {
            generation: desired.generation,
            timestamps: desired.timestamps,
            first_write: verified.clone().filter_map(|verified| verified.first_write).min(),
            // A switch whose tables did not change has no answer, and held them when they were
            // lowered.
            written: answers.max().unwrap_or(lowered),
            verified: verified.map(|verified| verified.at).max().unwrap_or(lowered),
        }
    }

    /// From the event to the last verified switch.
    pub fn total_duration(&self) -> Duration {
        self.verified - self.timestamps.origin.received
    }
}
