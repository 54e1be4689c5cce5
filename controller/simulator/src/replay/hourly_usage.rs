//! What GPUs did, hour by hour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// Means over one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HourlyUsage {
    /// GPUs that jobs had.
    pub held_gpus: f64,
    /// GPUs that computed.
    pub busy_gpus: f64,
    /// Jobs that waited for GPUs.
    pub waiting_jobs: f64,
}

/// What is true between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ClusterUsage {
    pub(super) held_gpus: f64,
    pub(super) busy_gpus: f64,
    pub(super) waiting_jobs: f64,
}

/// GPU seconds and job seconds by hour, from the first arrival on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct UsageHistory {
    means: Vec<HourlyUsage>,
}

/// Hours that are kept apart, some two years; what comes later counts for the last.
const MOST_HOURS: usize = 2 * 8_766;

impl UsageHistory {
    /// Records the usage between two times, in seconds.
    pub(super) fn record_usage(&mut self, from: f64, until: f64, level: ClusterUsage) {
        let mut at = from;
        while at < until {
            let hour = ((at / HOUR) as usize).min(MOST_HOURS);
            let end = match hour {
                MOST_HOURS => until,
                hour => until.min((hour + 1) as f64 * HOUR),
            };
            self.add_share(hour, (end - at).max(0.0) / HOUR, level);
            // Rounding may make `end` equal to `at`; without a step the loop would not end.
            at = end.max(at.next_up());
        }
    }

    fn add_share(&mut self, hour: usize, share: f64, level: ClusterUsage) {
        if self.means.len() <= hour {
            self.means.resize(hour + 1, HourlyUsage::default());
        }
        let sums = &mut self.means[hour];
        sums.held_gpus += level.held_gpus * share;
        sums.busy_gpus += level.busy_gpus * share;
        sums.waiting_jobs += level.waiting_jobs * share;
    }

    /// Means by hour.
    pub(super) fn hourly_means(&self) -> &[HourlyUsage] {
        &self.means
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_counts_in_every_hour_that_it_lasts() {
        let mut hours = UsageHistory::default();
        let level = ClusterUsage { held_gpus: 8.0, busy_gpus: 4.0, waiting_jobs: 1.0 };
        hours.record_usage(1_800.0, 9_000.0, level);
        let held: Vec<f64> = hours.hourly_means().iter().map(|hour| hour.held_gpus).collect();
        assert_eq!(held, [4.0, 8.0, 4.0]);
        assert!((hours.hourly_means()[1].busy_gpus - 4.0).abs() < 1e-12);
    }
}
