//! The followers of this controller, as they confirm what they have applied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{FollowerReport, SentUpdates};

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
    /// The last update that it was sent and that was more than a heartbeat.
    sent: u64,
    /// When the latest update was made that it has confirmed while it followed.
    followed_at: Option<Instant>,
}

impl FollowerTable {
    /// Records the report of a follower, which was `sent` these updates.
    pub(crate) fn record_report(
        &self,
        report: FollowerReport,
        sent: &mut SentUpdates,
        now: Instant,
    ) {
        let mut table = self.lock();
        let earlier = table.get(&report.controller).and_then(|entry| entry.followed_at);
        let confirmed = sent.confirm_update(report.applied).max(earlier);
        let followed_at = confirmed.filter(|_| report.follows);
        let sent = sent.last_change();
        let entry = FollowerEntry { received: now, report, sent, followed_at };
        table.insert(report.controller, entry);
    }

    /// Forgets a follower whose stream ended.
    pub fn forget_follower(&self, controller: u32) {
        self.lock().remove(&controller);
    }

    /// Whether a follower has confirmed that it follows, with an update that was made within
    /// `lately`.
    pub fn is_followed(&self, now: Instant, lately: Duration) -> bool {
        let table = self.lock();
        let mut confirmed = table.values().filter_map(|entry| entry.followed_at);
        confirmed.any(|at| now.saturating_duration_since(at) <= lately)
    }

    /// Whether a follower has applied everything that it was sent.
    pub fn has_current_follower(&self) -> bool {
        let table = self.lock();
        table.values().any(|entry| entry.report.applied > 0 && entry.report.applied >= entry.sent)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_from_before_a_pause_do_not_count() {
        let (table, mut sent) = (FollowerTable::default(), SentUpdates::default());
        let (begun, lately) = (Instant::now(), Duration::from_millis(500));
        let report = FollowerReport { controller: 2, applied: 1, follows: true };
        sent.record_update(1, true, begun);
        table.record_report(report, &mut sent, begun);
        assert!(table.is_followed(begun + lately, lately));

        // The process was stopped for 4 s, and the report waited in its socket.
        let resumed = begun + Duration::from_secs(4);
        table.record_report(report, &mut sent, resumed);
        assert!(!table.is_followed(resumed, lately));
        sent.record_update(2, false, resumed);
        table.record_report(FollowerReport { applied: 2, ..report }, &mut sent, resumed);
        assert!(table.is_followed(resumed, lately));
        // A heartbeat is nothing to catch up with.
        table.record_report(report, &mut sent, resumed);
        assert!(table.has_current_follower());

        table.record_report(FollowerReport { follows: false, ..report }, &mut sent, resumed);
        assert!(!table.is_followed(resumed, lately));
    }
}
