//! When switches that are as desired are read again: spot checks and full reads, within a number of
//! entries a second for the whole fabric.
//!
//! In a small fabric every switch is read after each interval. The entries of 500 switches in a
//! large one, read as often, would keep all processors busy and delay repairs. The decision: reads
//! are booked one after the other when the read before has ended, each for the time that its
//! entries take at the permitted rate. Checks and full reads have a rate each, because full reads
//! are booked further ahead. What a switch that leaves had booked is lost.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::SouthboundConfig;

/// The reads of all switches.
#[derive(Clone, Debug)]
pub(crate) struct ReadSchedule {
    pub(super) check_entries: NonZeroUsize,
    checks: ReadBookings,
    full_reads: ReadBookings,
}

impl ReadSchedule {
    pub(crate) fn new(limits: &SouthboundConfig) -> Self {
        let rate = limits.read_rate.get() as f64;
        Self {
            check_entries: limits.check_entries,
            checks: ReadBookings::new(limits.check_interval, rate),
            full_reads: ReadBookings::new(limits.reconcile_interval, rate),
        }
    }

    /// When the next spot check of a switch with so many entries may begin, after one at `ended`.
    pub(super) fn book_check(&self, ended: Instant, entries: usize) -> Instant {
        self.checks.book(ended, entries.min(self.check_entries.get()))
    }

    /// When such a switch may be read whole again.
    pub(super) fn book_full_read(&self, ended: Instant, entries: usize) -> Instant {
        self.full_reads.book(ended, entries)
    }
}

/// Reads of one kind.
#[derive(Clone, Debug)]
struct ReadBookings {
    /// Between two reads of a switch, at least.
    interval: Duration,
    entries_per_second: f64,
    booked_until: Arc<Mutex<Option<Instant>>>,
}

impl ReadBookings {
    fn new(interval: Duration, entries_per_second: f64) -> Self {
        Self { interval, entries_per_second, booked_until: Arc::default() }
    }

    fn book(&self, ended: Instant, entries: usize) -> Instant {
        let earliest = ended + self.interval;
        let lasts = Duration::from_secs_f64(entries as f64 / self.entries_per_second);
        let mut booked_until = self.booked_until.lock().unwrap_or_else(PoisonError::into_inner);
        // A schedule that lies idle does not save up time: reads after a pause are spread as well.
        let begins = booked_until.map_or(earliest, |until| until.max(earliest));
        *booked_until = Some(begins + lasts);
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Books reads of so many entries at 1,000 a second, each after one that ended at such a
    /// millisecond, and compares the milliseconds at which they begin.
    fn check(reads: &[(u64, usize)], expected: &[u64]) {
        let bookings = ReadBookings::new(Duration::from_secs(1), 1_000.0);
        let now = Instant::now();
        let begins = |&(ended, entries): &(u64, usize)| {
            let begins = bookings.book(now + Duration::from_millis(ended), entries);
            (begins - now).as_millis() as u64
        };
        let begins: Vec<u64> = reads.iter().map(begins).collect();
        assert_eq!(begins, expected, "{reads:?}");
    }

    #[test]
    fn few_reads_begin_after_their_interval() {
        check(&[(0, 10), (500, 10), (1_000, 10)], &[1_000, 1_500, 2_000]);
    }

    #[test]
    fn many_reads_begin_one_after_the_other() {
        check(&[(0, 500), (0, 500), (0, 100), (2_000, 1)], &[1_000, 1_500, 2_000, 3_000]);
    }
}
