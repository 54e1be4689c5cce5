//! When the updates of one stream to a follower were made.
//!
//! A report holds as of the update that it confirms, not as of its arrival: a leader whose process
//! was stopped finds reports from before in its socket, and whoever sent them may have followed
//! another leader since.

use std::collections::VecDeque;

use tokio::time::Instant;

/// Updates whose times are remembered; of more that wait for a confirmation, the latest.
const REMEMBERED: usize = 256;

/// What one follower was sent, and what it has confirmed.
#[derive(Debug, Default)]
pub(crate) struct SentUpdates {
    /// Number and time of the updates since the one confirmed last, ascending.
    made: VecDeque<(u64, Instant)>,
    /// The last update that was more than a heartbeat.
    last_change: u64,
}

impl SentUpdates {
    /// Records an update that is about to be sent, and whether it is more than a heartbeat.
    pub(crate) fn record_update(&mut self, number: u64, is_change: bool, now: Instant) {
        if self.made.len() == REMEMBERED {
            self.made.pop_front();
        }
        self.made.push_back((number, now));
        if is_change {
            self.last_change = number;
        }
    }

    /// When the update was made that a follower confirms; none for one that is not known.
    pub(crate) fn confirm_update(&mut self, number: u64) -> Option<Instant> {
        while self.made.front().is_some_and(|(earlier, _)| *earlier < number) {
            self.made.pop_front();
        }
        self.made.front().filter(|(made, _)| *made == number).map(|(_, at)| *at)
    }

    /// The number of the last update that was more than a heartbeat.
    pub(crate) fn last_change(&self) -> u64 {
        self.last_change
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_confirmation_is_as_old_as_what_it_confirms() {
        let begun = Instant::now();
        let at = |number: u64| begun + Duration::from_secs(number);
        let mut sent = SentUpdates::default();
        (1..=3).for_each(|number| sent.record_update(number, number < 3, at(number)));
        assert_eq!(sent.last_change(), 2);
        assert_eq!(sent.confirm_update(2), Some(at(2)));
        // Again, as reports are repeated.
        assert_eq!(sent.confirm_update(2), Some(at(2)));
        assert_eq!(sent.confirm_update(1), None);
        assert_eq!(sent.confirm_update(4), None);
    }

    #[test]
    fn what_a_silent_follower_was_sent_is_bounded() {
        let now = Instant::now();
        let mut sent = SentUpdates::default();
        (1..=10_000).for_each(|number| sent.record_update(number, true, now));
        assert_eq!(sent.made.len(), REMEMBERED);
        assert_eq!(sent.confirm_update(10_000), Some(now));
    }
}
