//! A link that a host sends on, to its leaf or between its own parts: which connection's packet
//! goes onto it next, and when.
//!
//! Connections with something to send take turns, one packet each, and a packet is made only when
//! the link is free. Replies bypass this queue: the host sends them at once, so they wait for at
//! most one packet, as in real NICs. (Behind whole windows of data, two hosts that send to each
//! other would stop and start in step: measured, 84 % of the link rate.)

use std::collections::VecDeque;

use topology::Bandwidth;

use switch::Nanos;

/// The sending side of a link. Sans-IO: [`HostLinkScheduler::next_connection`] returns the
/// connection that may send now, [`HostLinkScheduler::take_next_wake`] the time of the next call.
#[derive(Clone, Debug)]
pub(crate) struct HostLinkScheduler {
    picos_per_byte: u64,
    /// When the link is free again, in picoseconds: rounded to nanoseconds, every packet would add
    /// an error to the rate.
    free_at_ps: u64,
    waiting: VecDeque<usize>,
    wake_scheduled: bool,
    /// Since when the switch has paused it, if it is that of a NIC.
    paused_since: Option<Nanos>,
    pauses: NicPauses,
}

/// Pauses of a NIC by its switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicPauses {
    /// How many.
    pub(crate) count: u64,
    /// How long, over those that have ended.
    pub(crate) paused_ns: Nanos,
}

const PICOS_PER_NANO: u64 = 1000;

impl HostLinkScheduler {
    /// An idle link.
    pub(crate) fn new(rate: Bandwidth) -> Self {
        Self {
            picos_per_byte: (1e12 / rate.bytes_per_second()).round() as u64,
            free_at_ps: 0,
            waiting: VecDeque::new(),
            wake_scheduled: false,
            paused_since: None,
            pauses: NicPauses::default(),
        }
    }

    /// The switch pauses data of this link.
    pub(crate) fn begin_pause(&mut self, now: Nanos) {
        if self.paused_since.is_none() {
            self.paused_since = Some(now);
            self.pauses.count += 1;
        }
    }

    /// The pause is over.
    pub(crate) fn end_pause(&mut self, now: Nanos) {
        if let Some(since) = self.paused_since.take() {
            self.pauses.paused_ns += now.saturating_sub(since);
        }
    }

    pub(crate) fn pauses(&self) -> NicPauses {
        self.pauses
    }

    /// A connection has something to send; it keeps its turn if it waits already.
    pub(crate) fn enqueue_connection(&mut self, connection: usize) {
        if !self.waiting.contains(&connection) {
            self.waiting.push_back(connection);
        }
    }

    /// The connection whose turn it is, if the link is free and not paused.
    pub(crate) fn next_connection(&mut self, now: Nanos) -> Option<usize> {
        // A link that becomes free within this nanosecond counts as free: timers cannot be finer.
        let is_free = self.free_at_ps < (now + 1) * PICOS_PER_NANO;
        if is_free && self.paused_since.is_none() { self.waiting.pop_front() } else { None }
    }

    /// Occupies the link with a packet of `bytes`.
    pub(crate) fn occupy_link(&mut self, bytes: u32, now: Nanos) {
        let begins = self.free_at_ps.max(now * PICOS_PER_NANO);
        self.free_at_ps = begins + u64::from(bytes) * self.picos_per_byte;
    }

    /// The time of the next call; none while no connection waits or a wake-up is scheduled.
    pub(crate) fn take_next_wake(&mut self) -> Option<Nanos> {
        let can_send = !self.waiting.is_empty() && self.paused_since.is_none();
        let needed = !self.wake_scheduled && can_send;
        self.wake_scheduled |= needed;
        needed.then_some(self.free_at_ps / PICOS_PER_NANO)
    }

    /// The scheduled wake-up has happened.
    pub(crate) fn clear_wake(&mut self) {
        self.wake_scheduled = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_turns_at_the_rate_of_the_link() {
        let mut nic = HostLinkScheduler::new(Bandwidth::from_gbps(200.0).unwrap());
        [7, 8, 7].into_iter().for_each(|connection| nic.enqueue_connection(connection));
        let (mut now, mut order) = (0, Vec::new());
        for _ in 0..1000 {
            let connection = nic.next_connection(now).unwrap();
            order.push(connection);
            nic.occupy_link(4154, now);
            nic.enqueue_connection(connection);
            assert_eq!(nic.next_connection(now), None);
            now = nic.take_next_wake().unwrap();
            nic.clear_wake();
        }
        assert_eq!(order[..4], [7, 8, 7, 8]);
        assert_eq!(now, 1000 * 4154 * 40 / 1000);
    }

    #[test]
    fn a_paused_nic_sends_nothing_and_wakes_nobody() {
        let mut nic = HostLinkScheduler::new(Bandwidth::from_gbps(200.0).unwrap());
        nic.enqueue_connection(1);
        nic.begin_pause(10);
        assert_eq!((nic.next_connection(20), nic.take_next_wake()), (None, None));
        nic.begin_pause(30);
        nic.end_pause(50);
        assert_eq!(nic.next_connection(50), Some(1));
        assert_eq!(nic.pauses(), NicPauses { count: 1, paused_ns: 40 });
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut nic = HostLinkScheduler::new(Bandwidth::from_gbps(200.0).unwrap());
        nic.occupy_link(1000, 0);
        nic.enqueue_connection(1);
        assert_eq!((nic.take_next_wake(), nic.take_next_wake()), (Some(40), None));
        assert_eq!(nic.next_connection(500), Some(1));
        nic.occupy_link(1000, 500);
        nic.clear_wake();
        nic.enqueue_connection(1);
        assert_eq!(nic.take_next_wake(), Some(540));
    }
}
