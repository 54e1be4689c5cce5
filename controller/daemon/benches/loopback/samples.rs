//! Times of the same thing, and what is printed of them.

use std::time::Duration;

/// Times, in the order they were taken.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn extend(&mut self, samples: impl IntoIterator<Item = Duration>) {
        self.0.extend(samples);
    }

    /// Prints how they are spread, in milliseconds.
    pub(crate) fn print(&self, what: &str) {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        // The nearest rank: the smallest sample that so many hundredths do not exceed.
        let percentile = |hundredths: usize| {
            let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
            sorted.get(rank - 1).map_or(f64::NAN, |at| at.as_secs_f64() * 1e3)
        };
        let [least, p50, p99, most] = [0, 50, 99, 100].map(percentile);
        let count = sorted.len();
        println!(
            "{what:<64} n {count:>4}  ms: min {least:>7.2}  p50 {p50:>7.2}  p99 {p99:>7.2}  \
             max {most:>7.2}"
        );
    }
}
