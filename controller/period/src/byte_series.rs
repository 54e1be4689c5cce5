//! Counters read now and then, as bytes in equal intervals.
//!
//! Readers of counters are late at times, so a series takes what was counted between two readings
//! to have flowed evenly between them. It holds the latest intervals only.

use std::collections::VecDeque;

/// Bytes sent in each of the latest intervals, the oldest first.
#[derive(Clone, Debug)]
pub struct ByteSeries {
    interval_seconds: f64,
    capacity: usize,
    complete: VecDeque<f64>,
    /// Bytes of the interval that is not over yet.
    open: f64,
    last: Option<CounterSample>,
}

#[derive(Clone, Copy, Debug)]
struct CounterSample {
    at_seconds: f64,
    counter: u64,
}

impl ByteSeries {
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
    pub fn record_counter(&mut self, at_seconds: f64, counter: u64) {
        let reading = CounterSample { at_seconds, counter };
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
        self.spread_rate((counter - last.counter) as f64 / elapsed, last.at_seconds, at_seconds);
    }

    /// The complete intervals, in bytes.
    pub fn interval_bytes(&self) -> Vec<f64> {
        self.complete.iter().copied().collect()
    }

    /// Seconds of one interval.
    pub fn interval_seconds(&self) -> f64 {
        self.interval_seconds
    }

    /// What repeats in it; see [`estimate_period`](crate::estimate_period).
    pub fn period(&self) -> Option<crate::IterationPeriod> {
        crate::estimate_period(&self.interval_bytes(), self.interval_seconds)
    }

    /// `rate` bytes/s from `from` to `to`.
    fn spread_rate(&mut self, rate: f64, from: f64, to: f64) {
        let number = |at: f64| (at / self.interval_seconds).floor();
        let (first, last) = (number(from), number(to));
        let mut start = from;
        for interval in 0..(last - first) as u64 {
            let end = (first + 1.0 + interval as f64) * self.interval_seconds;
            let bytes = self.open + rate * (end - start).max(0.0);
            self.close_interval(bytes);
            start = end;
        }
        self.open += rate * (to - start).max(0.0);
    }

    fn close_interval(&mut self, bytes: f64) {
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
    fn bytes_between_two_readings_are_spread_evenly() {
        let mut series = ByteSeries::new(1.0, 8);
        series.record_counter(0.0, 1000);
        series.record_counter(2.5, 1250);
        series.record_counter(4.0, 1250);
        assert_eq!(series.interval_bytes(), [100.0, 100.0, 50.0, 0.0]);
    }

    #[test]
    fn a_counter_that_fell_and_a_long_silence_begin_anew() {
        let mut series = ByteSeries::new(1.0, 4);
        series.record_counter(0.0, 1000);
        series.record_counter(2.0, 1200);
        series.record_counter(3.0, 7);
        assert!(series.interval_bytes().is_empty());
        series.record_counter(5.0, 27);
        assert_eq!(series.interval_bytes(), [10.0, 10.0]);
        series.record_counter(50.0, 1027);
        assert!(series.interval_bytes().is_empty());
    }

    proptest! {
        /// No byte is lost or made, whenever the counter is read, and old intervals make room.
        #[test]
        fn bytes_are_conserved(
            readings in prop::collection::vec((1_u32..500, 0_u64..1_000_000), 1..60)
        ) {
            let mut series = ByteSeries::new(0.1, 1 << 16);
            let (mut now, mut sent) = (0.0, 0_u64);
            series.record_counter(now, sent);
            for (milliseconds, bytes) in readings {
                now += f64::from(milliseconds) / 1e3;
                sent += bytes;
                series.record_counter(now, sent);
            }
            let counted: f64 = series.interval_bytes().iter().sum::<f64>() + series.open;
            prop_assert!((counted - sent as f64).abs() <= 1e-6 * (sent as f64).max(1.0));
            prop_assert_eq!(series.interval_bytes().len(), (now / 0.1).floor() as usize);
        }
    }
}
