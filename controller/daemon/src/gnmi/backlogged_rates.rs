//! How fast a port sends while packets wait for it.
//!
//! A port that has packets to send sends as fast as its link carries them, whatever jobs do. Two
//! readings do not say whether it had: a queue that is filled in bursts may be empty in between,
//! such as that of the data whose acknowledgements wait behind a slow link. Then each time between
//! two readings has another rate. The decision: a link delivers what its port has sent in several
//! times in a row, at both ends of each of which packets waited, if their rates agree; and no
//! longer once it sends faster.

use std::collections::VecDeque;

use super::queue_counters::QueueCounters;

/// Times in a row that say what a link delivers. In 21 cases of `crux bench slow-links --seed 1`,
/// at most two in a row agreed on a link that was not slow, and 14 or more on each that was. The
/// opposite direction of a slow link may still agree, as docs/telemetry.md says.
const NEEDED: usize = 6;

/// Rates agree that differ by this share of the fastest: readings are taken some milliseconds early
/// or late, and count whole packets.
const AGREEMENT: f64 = 0.1;

/// Bytes that must wait: four packets of 4,096 bytes and headers, so more than what comes and goes
/// on a link that is used in part.
const WAITING_MIN: u64 = 4 * 4_160;

/// How fast a port sends at the latest times in a row at which packets waited for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackloggedRates {
    /// Bytes per second, and the seconds between the two readings.
    times: VecDeque<(f64, f64)>,
    delivered: Option<DeliveredRate>,
}

/// What a port delivers at most, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeliveredRate {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The most seconds between two readings of which the rate is the mean.
    pub longest_seconds: f64,
}

impl BackloggedRates {
    /// Adds the time between two readings of the queues of a port.
    pub(super) fn add_time(&mut self, earlier: &QueueReading, later: &QueueReading, seconds: f64) {
        let Some(bytes) = later.sent_bytes.checked_sub(earlier.sent_bytes) else {
            // The switch has started anew, perhaps with another cable.
            *self = Self::default();
            return;
        };
        if seconds <= 0.0 {
            return;
        }
        let rate = bytes as f64 / seconds;
        self.delivered.take_if(|had| rate * (1.0 - AGREEMENT) > had.bytes_per_second);
        if !(earlier.waits() && later.waits() && earlier.pauses == later.pauses) {
            self.times.clear();
            return;
        }
        self.times.truncate(NEEDED - 1);
        self.times.push_front((rate, seconds));
        self.delivered = self.agreed_rate().or(self.delivered);
    }

    /// What the times in a row agree on, if they are enough.
    fn agreed_rate(&self) -> Option<DeliveredRate> {
        let rates = || self.times.iter().map(|(rate, _)| *rate);
        let (fastest, slowest) = (rates().fold(0.0, f64::max), rates().fold(f64::MAX, f64::min));
        let longest = self.times.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let agree = self.times.len() == NEEDED && slowest >= fastest * (1.0 - AGREEMENT);
        agree.then_some(DeliveredRate { bytes_per_second: fastest, longest_seconds: longest })
    }

    /// What the port delivers; none before packets have waited for long enough, or once it was
    /// faster.
    pub fn delivered_rate(&self) -> Option<DeliveredRate> {
        self.delivered
    }
}

/// The queues of one port together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueReading {
    sent_bytes: u64,
    waiting_bytes: u64,
    pauses: u64,
}

impl QueueReading {
    /// Adds one level.
    pub(super) fn add_queue(&mut self, queue: &QueueCounters) {
        self.sent_bytes = self.sent_bytes.saturating_add(queue.sent_bytes.unwrap_or(0));
        self.waiting_bytes = self.waiting_bytes.saturating_add(queue.waiting_bytes.unwrap_or(0));
        self.pauses = self.pauses.saturating_add(queue.pauses_received.unwrap_or(0));
    }

    fn waits(&self) -> bool {
        self.waiting_bytes >= WAITING_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port that has sent so many megabytes, with so many packets waiting.
    fn reading(megabytes: u64, packets: u64, pauses: u64) -> QueueReading {
        let queue = QueueCounters {
            sent_bytes: Some(megabytes * 1_000_000),
            waiting_bytes: Some(packets * 4_160),
            pauses_received: Some(pauses),
            ..QueueCounters::default()
        };
        let mut port = QueueReading::default();
        port.add_queue(&queue);
        port
    }

    fn rates_of(readings: &[QueueReading]) -> BackloggedRates {
        let mut rates = BackloggedRates::default();
        for pair in readings.windows(2) {
            rates.add_time(&pair[0], &pair[1], 0.5);
        }
        rates
    }

    fn delivered(readings: &[QueueReading]) -> Option<f64> {
        let delivered = rates_of(readings).delivered_rate();
        delivered.map(|rate| rate.bytes_per_second / 2e6)
    }

    #[test]
    fn times_in_a_row_in_which_packets_waited_say_what_is_delivered() {
        let waiting = |sent| reading(sent, 9, 0);
        let steady = [0, 100, 200, 300, 400, 500];
        assert_eq!(delivered(&steady.map(waiting)), None, "five times");
        assert_eq!(delivered(&[0, 100, 200, 305, 400, 500, 600].map(waiting)), Some(105.0));
        let emptied = [0, 100, 200, 280, 380, 480, 580];
        assert_eq!(delivered(&emptied.map(waiting)), None, "a fifth less was sent in one");
        let slower_since = [0, 200, 400, 500, 600, 700, 800, 900, 1_000];
        assert_eq!(delivered(&slower_since.map(waiting)), Some(100.0));
    }

    /// The rates of a port whose acknowledgements waited behind a slow link, in the 46th case of
    /// seed 1 of the bench: it delivers twice as much.
    #[test]
    fn bursts_agree_on_nothing() {
        let rates = [415, 435, 652, 664, 439, 435, 326, 390];
        let sent = rates.iter().scan(0, |sum, rate| {
            *sum += rate;
            Some(*sum)
        });
        let readings: Vec<QueueReading> = sent.map(|sent| reading(sent, 9, 0)).collect();
        assert_eq!(delivered(&readings), None);
    }

    #[test]
    fn what_was_delivered_holds_until_the_port_is_faster() {
        let mut readings =
            [0, 100, 200, 300, 400, 500, 600].map(|sent| reading(sent, 9, 0)).to_vec();
        readings.extend([reading(650, 0, 0), reading(650, 9, 0), reading(690, 9, 0)]);
        assert_eq!(delivered(&readings), Some(100.0), "bursts are slower");
        readings.push(reading(850, 0, 0));
        assert_eq!(delivered(&readings), None, "160 in one time");
    }

    #[test]
    fn times_without_packets_with_pauses_or_across_a_restart_do_not_count() {
        let steady = [0, 10, 20, 30, 40, 50, 60, 70];
        assert_eq!(delivered(&steady.map(|sent| reading(sent, 3, 0))), None);
        assert_eq!(delivered(&steady.map(|sent| reading(sent, 9, sent))), None, "paused");
        let interrupted = steady.map(|sent| reading(sent, if sent == 40 { 0 } else { 9 }, 0));
        assert_eq!(delivered(&interrupted), None, "in a row");
        let restarted = [0, 10, 20, 30, 40, 50, 60, 5, 15].map(|sent| reading(sent, 9, 0));
        assert_eq!(delivered(&restarted), None);
    }
}
