//! What a session may log and receive: a switch that misbehaves must not fill the log or keep the
//! controller busy.
//!
//! Sans-IO: time is an argument. The decision: lines are limited by cause, so that a flood of one
//! kind hides no other, and the next line of that kind says how many were left out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines of one cause within [`LOG_WINDOW`].
const LINES_PER_WINDOW: u32 = 5;

/// Within this time the lines of a cause are counted together.
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Messages about mastership, and errors, that a stream may carry in a second. A controller causes
/// at most one by a bid, and few bids are made.
const STREAM_MESSAGES_PER_SECOND: u32 = 200;

/// The longest text of a switch that is kept.
const TEXT_BYTES: usize = 512;

/// Limits the lines of one session, by cause.
#[derive(Clone, Debug, Default)]
struct LineLimiter {
    causes: BTreeMap<&'static str, LineWindow>,
}

/// The lines of a cause in its present window.
#[derive(Clone, Copy, Debug)]
struct LineWindow {
    begun: Instant,
    lines: u32,
    omitted: u64,
}

impl LineLimiter {
    /// Whether a line may be logged, and if so how many of its cause were omitted before it.
    fn admit_line(&mut self, cause: &'static str, now: Instant) -> Option<u64> {
        let fresh = LineWindow { begun: now, lines: 0, omitted: 0 };
        let window = self.causes.entry(cause).or_insert(fresh);
        let mut omitted = 0;
        if now.duration_since(window.begun) >= LOG_WINDOW {
            omitted = window.omitted;
            *window = fresh;
        }
        window.lines = window.lines.saturating_add(1);
        if window.lines > LINES_PER_WINDOW {
            window.omitted += 1;
            return None;
        }
        Some(omitted)
    }
}

/// The limiter of one session, for both halves of it: what receives and what reconciles. They are
/// polled by one task, so nobody ever waits for the lock; it is there because both keep a handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionLog(Arc<Mutex<LineLimiter>>);

impl SessionLog {
    /// Logs a line unless its cause has had enough of them; `write` gets the number of lines that
    /// were omitted before it, if any were.
    pub(crate) fn log_limited(&self, cause: &'static str, write: impl FnOnce(Option<u64>)) {
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = limiter.admit_line(cause, Instant::now());
        // Released before the line is written, which may wait for standard error.
        drop(limiter);
        if let Some(omitted) = admitted {
            write((omitted > 0).then_some(omitted));
        }
    }
}

/// Counts what a stream carries beside packets and digests, which have queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamBudget {
    begun: Instant,
    messages: u32,
}

impl StreamBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, messages: 0 }
    }

    /// Whether one more message is within the budget.
    pub(super) fn admit_message(&mut self, now: Instant) -> bool {
        if now.duration_since(self.begun) >= Duration::from_secs(1) {
            *self = Self::new(now);
        }
        self.messages = self.messages.saturating_add(1);
        self.messages <= STREAM_MESSAGES_PER_SECOND
    }
}

/// Failures in a row after a connection that lasted so long. Only one that outlived the longest
/// backoff makes those before it forgotten: a switch that answers and dies at once is not well.
pub(super) fn failures_after(before: u32, lasted: Duration, longest_backoff: Duration) -> u32 {
    if lasted > longest_backoff { 1 } else { before.saturating_add(1) }
}

/// A text of a switch, shortened to what a person reads.
pub(super) fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(TEXT_BYTES) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_few_lines_and_the_next_says_what_was_omitted() {
        let now = Instant::now();
        let mut limiter = LineLimiter::default();
        let admitted = (0..1_000).filter_map(|_| limiter.admit_line("flood", now)).count();
        assert_eq!(admitted as u32, LINES_PER_WINDOW);
        assert_eq!(limiter.admit_line("other", now), Some(0));
        let omitted = u64::from(1_000 - LINES_PER_WINDOW);
        assert_eq!(limiter.admit_line("flood", now + LOG_WINDOW), Some(omitted));
        assert_eq!(limiter.admit_line("flood", now + LOG_WINDOW), Some(0));
    }

    #[test]
    fn stream_has_a_budget_for_each_second() {
        let now = Instant::now();
        let mut budget = StreamBudget::new(now);
        let admitted = (0..1_000).filter(|_| budget.admit_message(now)).count();
        assert_eq!(admitted as u32, STREAM_MESSAGES_PER_SECOND);
        assert!(budget.admit_message(now + Duration::from_secs(1)));
    }

    #[test]
    fn backoff_remembers_connections_that_die_at_once() {
        let longest = Duration::from_secs(5);
        assert_eq!(failures_after(7, Duration::from_millis(3), longest), 8);
        assert_eq!(failures_after(7, 2 * longest, longest), 1);
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shorten_text("short"), "short");
        assert!(shorten_text(&"ä".repeat(1 << 20)).len() < 2 * TEXT_BYTES + 40);
    }
}
