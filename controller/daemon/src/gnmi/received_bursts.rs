//! When bursts begin to arrive at a port: a host has computed and sends what it has.
//!
//! Counters say only how much arrived between two readings. The decision: a burst begins at the
//! earlier of the two readings between which the port receives more than a tenth of the most that
//! it has received of late, and has not in the time before. Acknowledgements, a sixtieth of what
//! they acknowledge, are no burst.

use std::collections::VecDeque;

/// Starts that are kept.
const KEPT: usize = 8;

/// A port that receives this share of the most that it has received is in a burst.
const BURST: f64 = 0.1;

/// How much of the most is remembered from one reading to the next: half after 70 of them.
const REMEMBERED: f64 = 0.99;

/// The latest bursts that a port has received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedBursts {
    most: f64,
    is_receiving: bool,
    starts: VecDeque<f64>,
}

impl ReceivedBursts {
    /// Adds the mean rate since a reading at `since`, seconds of any clock.
    pub(super) fn add_rate(&mut self, bytes_per_second: f64, since: f64) {
        self.most = bytes_per_second.max(self.most * REMEMBERED);
        let is_receiving = bytes_per_second > 0.0 && bytes_per_second >= BURST * self.most;
        if is_receiving && !self.is_receiving {
            self.starts.push_back(since);
            let surplus = self.starts.len().saturating_sub(KEPT);
            self.starts.drain(..surplus);
        }
        self.is_receiving = is_receiving;
    }

    /// When they began, ascending.
    pub fn starts(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.starts.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_when_more_arrives_than_acknowledgements() {
        let mut bursts = ReceivedBursts::default();
        let rates = [0.0, 40.0, 100.0, 100.0, 1.6, 1.6, 0.0, 90.0, 100.0, 2.0];
        for (at, rate) in rates.into_iter().enumerate() {
            bursts.add_rate(rate, at as f64);
        }
        assert_eq!(bursts.starts().collect::<Vec<_>>(), [1.0, 7.0]);
    }

    #[test]
    fn the_latest_are_kept() {
        let mut bursts = ReceivedBursts::default();
        for at in 0..40 {
            bursts.add_rate(f64::from(at % 2), f64::from(at));
        }
        assert_eq!(bursts.starts().next_back(), Some(39.0));
        assert_eq!(bursts.starts().count(), KEPT);
    }
}
