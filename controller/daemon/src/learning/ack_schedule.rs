//! Acknowledgements that wait for their time.
//!
//! Sans-IO: times are arguments. The decision: an acknowledgement lets the switch report the same
//! flows again, so the delay is the interval between two reports. One that finds no room is left
//! out, as the switch then goes on after its own timeout.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Acknowledgements in the order in which they are due.
#[derive(Clone, Debug)]
pub struct AckSchedule<A> {
    delay: Duration,
    capacity: usize,
    waiting: VecDeque<(Instant, A)>,
}

impl<A> AckSchedule<A> {
    /// A schedule that delays up to `capacity` acknowledgements by `delay`.
    pub fn new(delay: Duration, capacity: usize) -> Self {
        Self { delay, capacity, waiting: VecDeque::new() }
    }

    /// Adds an acknowledgement of what was received at `now`.
    pub fn add_ack(&mut self, ack: A, now: Instant) {
        if self.waiting.len() < self.capacity {
            self.waiting.push_back((now + self.delay, ack));
        }
    }

    /// The acknowledgements that are due at `now`.
    pub fn take_due_acks(&mut self, now: Instant) -> Vec<A> {
        let due = self.waiting.partition_point(|(at, _)| *at <= now);
        self.waiting.drain(..due).map(|(_, ack)| ack).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_due_in_order_and_bounded() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let mut schedule = AckSchedule::new(10 * second, 2);
        schedule.add_ack(1, now);
        schedule.add_ack(2, now + second);
        schedule.add_ack(3, now + second);
        assert!(schedule.take_due_acks(now + 9 * second).is_empty());
        assert_eq!(schedule.take_due_acks(now + 10 * second), [1]);
        schedule.add_ack(4, now + 10 * second);
        assert_eq!(schedule.take_due_acks(now + 60 * second), [2, 4]);
    }
}
