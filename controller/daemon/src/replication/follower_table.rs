//! The followers of this controller, as they confirm what they have applied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::FollowerReport;

/// A follower as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowerStatus {
    /// Its number.
    pub controller: u32,
    /// Updates that it was sent and has not confirmed.
    pub updates_behind: u64,
    /// Milliseconds since it was last heard.
    pub silent_ms: u64,
}

/// Everything that followers have confirmed; cheap to clone, and all clones are one.
#[derive(Clone, Debug, Default)]
pub struct FollowerTable(Arc<Mutex<BTreeMap<u32, FollowerEntry>>>);

#[derive(Clone, Copy, Debug)]
struct FollowerEntry {
    received: Instant,
    report: FollowerReport,
    sent: u64,
}

impl FollowerTable {
    /// Records the report of a follower, which was sent this many updates.
    pub fn record_report(&self, report: FollowerReport, sent: u64, now: Instant) {
        let entry = FollowerEntry { received: now, report, sent };
        self.lock().insert(report.controller, entry);
    }

    /// Forgets a follower whose stream ended.
    pub fn forget_follower(&self, controller: u32) {
        self.lock().remove(&controller);
    }

    /// Whether a follower has confirmed within `lately` that it goes on following.
    pub fn is_followed(&self, now: Instant, lately: Duration) -> bool {
        let table = self.lock();
        table.values().any(|entry| {
            entry.report.follows && now.saturating_duration_since(entry.received) <= lately
        })
    }

    /// Whether a follower has applied everything that it was sent.
    pub fn has_current_follower(&self) -> bool {
        let table = self.lock();
        table.values().any(|entry| entry.report.applied > 0 && entry.report.applied == entry.sent)
    }

    /// The followers by number.
    pub fn list_followers(&self, now: Instant) -> Vec<FollowerStatus> {
        let table = self.lock();
        let rows = table.values().map(|entry| FollowerStatus {
            controller: entry.report.controller,
            updates_behind: entry.sent.saturating_sub(entry.report.applied),
            silent_ms: now.saturating_duration_since(entry.received).as_millis() as u64,
        });
        rows.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, FollowerEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
