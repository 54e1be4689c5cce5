//! The latest events, and positions to continue reading from.
//!
//! The decision: readers have no queues. A reader has a position, and one that falls behind the
//! oldest event gets the number of missed events; so any number of slow readers costs no memory.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::{EventKind, OperatorEvent};
use crate::policy_history::UnixMs;

/// The latest events of one run of a controller.
#[derive(Debug)]
pub struct EventRing {
    run: u64,
    /// The sequence number of the next event.
    next: u64,
    size: usize,
    kept: VecDeque<OperatorEvent>,
}

/// How far a reader has read: everything up to `sequence` of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventPosition {
    /// The run, by when it started in milliseconds of Unix time; the present one by default.
    pub run: Option<u64>,
    /// The last sequence number that was read; 0 before any.
    pub sequence: u64,
}

/// The events after a position.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The run of the controller, by when it started in milliseconds of Unix time.
    pub run: u64,
    /// How many events after the position are no longer kept; 0 also where the position is of
    /// another run, whose events are not known.
    pub missed: u64,
    /// The last sequence number, to continue from.
    pub latest: u64,
    /// The events, the earliest first.
    pub events: Vec<OperatorEvent>,
}

impl EventRing {
    /// A ring that keeps the latest `size` events, at least one.
    pub fn new(run: u64, size: usize) -> Self {
        Self { run, next: 1, size: size.max(1), kept: VecDeque::new() }
    }

    /// Appends events that were observed at `now`.
    pub fn push(&mut self, now: UnixMs, kinds: impl IntoIterator<Item = EventKind>) {
        for kind in kinds {
            if self.kept.len() == self.size {
                self.kept.pop_front();
            }
            self.kept.push_back(OperatorEvent::new(self.next, now, kind));
            self.next += 1;
        }
    }

    /// The events after a position, at most `limit`. A position of another run, or one that this
    /// run has not reached, is before everything.
    pub fn events_since(&self, position: EventPosition, limit: usize) -> EventPage {
        let is_ours =
            position.run.is_none_or(|run| run == self.run) && position.sequence < self.next;
        let read = if is_ours { position.sequence } else { 0 };
        let oldest = self.next - self.kept.len() as u64;
        let read_of_kept = usize::try_from((read + 1).saturating_sub(oldest));
        let unread = self.kept.iter().skip(read_of_kept.unwrap_or(usize::MAX));
        let events: Vec<_> = unread.take(limit).cloned().collect();
        let missed = if is_ours { oldest.saturating_sub(read + 1) } else { 0 };
        let latest = events.last().map_or(self.next - 1, |last| last.sequence);
        EventPage { run: self.run, missed, latest, events }
    }
}

impl EventPage {
    /// The position after this page.
    pub fn end_position(&self) -> EventPosition {
        EventPosition { run: Some(self.run), sequence: self.latest }
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run {
            Some(run) => write!(f, "{run}.{}", self.sequence),
            None => write!(f, "{}", self.sequence),
        }
    }
}

impl FromStr for EventPosition {
    type Err = String;

    /// Reads `SEQUENCE` or `RUN.SEQUENCE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (run, sequence) = match text.split_once('.') {
            Some((run, sequence)) => (Some(run), sequence),
            None => (None, text),
        };
        match (run.map(str::parse).transpose(), sequence.parse()) {
            (Ok(run), Ok(sequence)) => Ok(Self { run, sequence }),
            _ => Err(format!("invalid position `{text}`: write a sequence number, as 42")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(job: u64) -> EventKind {
        EventKind::JobLeft { job: job.to_string() }
    }

    /// Sequence numbers that are read, and how many were missed.
    fn read(ring: &EventRing, position: &str, limit: usize) -> (Vec<u64>, u64) {
        let page = ring.events_since(position.parse().unwrap(), limit);
        let numbers = page.events.iter().map(|event| event.sequence);
        (numbers.collect(), page.missed)
    }

    #[test]
    fn slow_readers_learn_the_count_and_positions_resume() {
        let mut ring = EventRing::new(7, 3);
        assert_eq!(read(&ring, "0", 9), (vec![], 0));
        ring.push(0, (1..=2).map(left));
        assert_eq!(read(&ring, "0", 9), (vec![1, 2], 0));
        assert_eq!(read(&ring, "7.1", 9), (vec![2], 0));
        ring.push(0, (3..=5).map(left));
        assert_eq!(read(&ring, "0", 9), (vec![3, 4, 5], 2));
        assert_eq!(read(&ring, "2", 2), (vec![3, 4], 0));
        assert_eq!(read(&ring, "5", 9), (vec![], 0));
        assert_eq!(read(&ring, "6.5", 9), (vec![3, 4, 5], 0), "another run");
        assert_eq!(read(&ring, "99", 9), (vec![3, 4, 5], 0), "not reached yet");
    }

    #[test]
    fn positions_parse_as_they_print() {
        for text in ["42", "1763767000123.42"] {
            assert_eq!(text.parse::<EventPosition>().unwrap().to_string(), text);
        }
        for wrong in ["", "x", "1.", ".1", "-1"] {
            assert!(wrong.parse::<EventPosition>().is_err(), "{wrong}");
        }
    }
}
