//! When jobs that can wait begin to send: the start shifts of the plan, as instants of Unix time
//! that each host finds on its own clock, and what follows when a job does not keep them.
//!
//! Pure. The decision: a job is asked again only when its slot changes or it is announced anew, and
//! one that misses its slot for [`MISSED_FOR`] is planned as one that cannot wait, until it is
//! announced again: the slots of the others are of no use beside it.

use std::time::Duration;

use planner::{JobId, StartShift};
use tokio::time::Instant;
use topology::Finding;

use super::{ReportWindow, ReporterId, job_finding};

/// How long a job may miss its slot, from when it was asked.
pub(super) const MISSED_FOR: Duration = Duration::from_secs(60);

/// A job that begins to send further from its slot, as a share of the period, misses it.
const MISSED_SHARE: f64 = 0.1;

/// When a job begins to send in each iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StartSlot {
    /// Between two begins, seconds.
    pub(crate) period_seconds: f64,
    /// From a multiple of the period, of Unix time, seconds.
    pub(crate) first_send_seconds: f64,
    /// The longest wait in an iteration, seconds.
    pub(crate) most_wait_seconds: f64,
}

impl StartSlot {
    /// The slot of a job that begins to send `send_after` seconds after an iteration.
    pub(super) fn new(shift: StartShift, send_after: f64) -> Self {
        let StartShift { seconds, period_seconds, most_wait_seconds } = shift;
        let first_send_seconds = (seconds + send_after).rem_euclid(period_seconds);
        Self { period_seconds, first_send_seconds, most_wait_seconds }
    }
}

/// Another slot of a job, or none any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SlotChange {
    /// The stream that reports the job.
    pub(crate) to: ReporterId,
    pub(crate) job: JobId,
    pub(crate) slot: Option<StartSlot>,
}

impl SlotChange {
    /// What the reporter is told.
    pub(crate) fn finding(&self) -> Finding {
        let text = match &self.slot {
            Some(StartSlot { period_seconds, first_send_seconds, .. }) => format!(
                "begins to send {first_send_seconds:.4} s after each multiple of \
                 {period_seconds:.4} s of Unix time: jobs of nearly the same period take turns"
            ),
            None => "need not wait any more".to_owned(),
        };
        job_finding(self.job.as_str(), Finding::info, text)
    }
}

/// How a job keeps its slot.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotKeeping {
    slot: Option<StartSlot>,
    /// Since when it has missed it.
    missed_since: Option<Instant>,
}

impl SlotKeeping {
    /// The job is to keep this slot, or none; whether it was to keep another one before.
    pub(super) fn set_slot(&mut self, slot: Option<StartSlot>, now: Instant) -> bool {
        let is_new = self.slot != slot;
        if is_new {
            *self = Self { slot, missed_since: slot.map(|_| now) };
        }
        is_new
    }

    /// Whether a window shows that the job has missed its slot for too long. A job without a slot
    /// misses none, and one that is asked to begin once and not to wait may drift.
    pub(super) fn is_missed(&mut self, window: &ReportWindow, now: Instant) -> bool {
        let Some(slot) = self.slot.filter(|slot| slot.most_wait_seconds > 0.0) else {
            return false;
        };
        let is_kept = window
            .slot_offset_seconds
            .is_some_and(|offset| offset.abs() <= MISSED_SHARE * slot.period_seconds);
        if is_kept {
            self.missed_since = None;
            return false;
        }
        let since = *self.missed_since.get_or_insert(now);
        now.saturating_duration_since(since) >= MISSED_FOR
    }
}

/// The finding about a job that misses its slot.
pub(super) fn missed_finding(job: &str) -> Finding {
    let text = format!(
        "missed its slot for {} s; planned as one that cannot wait until it is announced again",
        MISSED_FOR.as_secs()
    );
    job_finding(job, Finding::warning, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_when_the_job_sends() {
        let shift = StartShift { seconds: 0.75, period_seconds: 1.0, most_wait_seconds: 0.1 };
        assert_eq!(StartSlot::new(shift, 0.5).first_send_seconds, 0.25);
    }

    #[test]
    fn a_job_that_misses_its_slot_for_long_is_found_and_one_that_is_late_once_is_not() {
        let now = Instant::now();
        let slot =
            StartSlot { period_seconds: 1.0, first_send_seconds: 0.0, most_wait_seconds: 0.1 };
        let window = |offset| ReportWindow { slot_offset_seconds: offset, ..Default::default() };
        let mut keeping = SlotKeeping::default();
        assert!(!keeping.is_missed(&window(None), now + 2 * MISSED_FOR), "it has none");
        assert!(keeping.set_slot(Some(slot), now) && !keeping.set_slot(Some(slot), now));
        assert!(!keeping.is_missed(&window(Some(0.4)), now + MISSED_FOR / 2));
        assert!(!keeping.is_missed(&window(Some(0.02)), now + MISSED_FOR));
        let late = now + 2 * MISSED_FOR;
        assert!(!keeping.is_missed(&window(Some(0.4)), late), "it kept it until now");
        // A job that does not report its offset does not keep its slot.
        assert!(keeping.is_missed(&window(None), late + MISSED_FOR));
        keeping.set_slot(Some(StartSlot { most_wait_seconds: 0.0, ..slot }), now);
        assert!(!keeping.is_missed(&window(None), late + MISSED_FOR));
    }
}
