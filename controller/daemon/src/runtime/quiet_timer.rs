//! When the plan in force is made anew from nothing: some time after the last event, and while events
//! never end, within twice that.

use std::time::Duration;

use tokio::time::Instant;

use crate::state::State;

/// The timer.
#[derive(Debug)]
pub(super) struct QuietTimer {
    quiet: Duration,
    /// Events that were applied when it was last looked at.
    inputs: u64,
    due: Option<Instant>,
    /// When it is due at the latest.
    latest: Option<Instant>,
}

impl QuietTimer {
    /// A timer that is not due.
    pub(super) fn new(quiet: Duration) -> Self {
        Self { quiet, inputs: 0, due: None, latest: None }
    }

    /// Looks whether something has happened, or the plan is settled.
    pub(super) fn follow(&mut self, state: &State, now: Instant) {
        if state.is_settled() {
            (self.due, self.latest) = (None, None);
        } else if state.inputs() != self.inputs {
            // Counted from the first event, so that a stream of events cannot postpone the plan for
            // ever.
            let latest = *self.latest.get_or_insert(now + 2 * self.quiet);
            self.due = Some(latest.min(now + self.quiet));
        }
        self.inputs = state.inputs();
    }

    /// When it is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is due; then it is no more, until something happens.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.latest = None;
        }
        is_due
    }
}
