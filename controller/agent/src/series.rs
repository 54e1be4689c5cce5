//! Counters read now and then, as bytes in equal intervals.
//!
//! Readers of counters are late at times, so a series takes what was counted between two readings
//! to have flowed evenly between them. It holds the latest intervals only.

use std::collections::VecDeque;

/// Bytes sent in each of the latest intervals, the oldest first.
#[derive(Clone, Debug)]
pub struct Series {
    interval_seconds: f64,
    capacity: usize,
    complete: VecDeque<f64>,
    /// Bytes of the interval that is not over yet.
    open: f64,
    last: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at_seconds: f64,
    counter: u64,
}

impl Series {
    /// A series of at most `capacity` intervals of `interval_seconds` (> 0) each.
    pub fn new(interval_seconds: f64, capacity: usize) -> Self {
        Self {
            interval_seconds,
            capacity,
            complete: VecDeque::with_capacity(capacity),
            open: 0.0,
            last: None,
        }
    }

    /// Takes a reading of a counter of bytes at `at_seconds` of a clock that never goes back. A
    /// counter that fell was reset, and a clock that stood still says nothing: such a reading only
    /// begins anew. After a gap longer than the series nothing of before is left.
    pub fn read(&mut self, at_seconds: f64, counter: u64) {
        let reading = Reading {
            at_seconds,
            counter,
        };
        let Some(last) = self.last.replace(reading) else {
            return;
        };
        let elapsed = at_seconds - last.at_seconds;
        let span = self.interval_seconds * self.capacity as f64;
        if counter < last.counter || !(elapsed > 0.0 && elapsed <= span) {
            self.complete.clear();
            self.open = 0.0;
            return;
        }
        self.spread(
            (counter - last.counter) as f64 / elapsed,
            last.at_seconds,
            at_seconds,
        );
    }

    /// The complete intervals, in bytes.
    pub fn bytes(&self) -> Vec<f64> {
        self.complete.iter().copied().collect()
    }

    /// Seconds of one interval.
    pub fn interval_seconds(&self) -> f64 {
        self.interval_seconds
    }

    /// What repeats in it; see [`period::estimate`](crate::period::estimate).
    pub fn period(&self) -> Option<crate::Period> {
        crate::period::estimate(&self.bytes(), self.interval_seconds)
    }

    /// `rate` bytes/s from `from` to `to`.
    fn spread(&mut self, rate: f64, from: f64, to: f64) {
        let number = |at: f64| (at / self.interval_seconds).floor();
        let (first, last) = (number(from), number(to));
        let mut start = from;
        for interval in 0..(last - first) as u64 {
            let end = (first + 1.0 + interval as f64) * self.interval_seconds;
            let bytes = self.open + rate * (end - start).max(0.0);
            self.close(bytes);
            start = end;
        }
        self.open += rate * (to - start).max(0.0);
    }

    fn close(&mut self, bytes: f64) {
        if self.complete.len() == self.capacity {
            self.complete.pop_front();
        }
        self.complete.push_back(bytes);
        self.open = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_between_two_readings_flowed_evenly() {
        let mut series = Series::new(1.0, 8);
        series.read(0.0, 1000);
        series.read(2.5, 1250);
        series.read(4.0, 1250);
        assert_eq!(series.bytes(), [100.0, 100.0, 50.0, 0.0]);
    }

    #[test]
    fn a_counter_that_fell_and_a_long_silence_begin_anew() {
        let mut series = Series::new(1.0, 4);
        series.read(0.0, 1000);
        series.read(2.0, 1200);
        series.read(3.0, 7);
        assert!(series.bytes().is_empty());
        series.read(5.0, 27);
        assert_eq!(series.bytes(), [10.0, 10.0]);
        series.read(50.0, 1027);
        assert!(series.bytes().is_empty());
    }

    proptest! {
        /// No byte is lost or made, whenever the counter is read, and old intervals make room.
        #[test]
        fn bytes_are_conserved(
            readings in prop::collection::vec((1_u32..500, 0_u64..1_000_000), 1..60)
        ) {
            let mut series = Series::new(0.1, 1 << 16);
            let (mut now, mut sent) = (0.0, 0_u64);
            series.read(now, sent);
            for (milliseconds, bytes) in readings {
                now += f64::from(milliseconds) / 1e3;
                sent += bytes;
                series.read(now, sent);
            }
            let counted: f64 = series.bytes().iter().sum::<f64>() + series.open;
            prop_assert!((counted - sent as f64).abs() <= 1e-6 * (sent as f64).max(1.0));
            prop_assert_eq!(series.bytes().len(), (now / 0.1).floor() as usize);
        }
    }
}
