//! A link that a host sends on, to its leaf or between its own parts: which connection's packet
//! goes onto it next, and when.
//!
//! Connections with something to send take turns, one packet each, and a packet is made only when
//! the link is free and the priority of the connection is not paused. Replies bypass this queue:
//! the host sends them at once, so they wait for at most one packet, as in real NICs. (Behind whole
//! windows of data, two hosts that send to each other would stop and start in step: measured, 84 %
//! of the link rate.) In an emulated network they take their time on the link, and wait while their
//! priority is paused ([`HostLinkScheduler::hold_reply`]); on interfaces they do so by themselves.
//!
//! Turns are taken among all connections, or, on a link that is host-strict, among those of the
//! highest priority that has something to send and is not paused.

use std::cmp::Reverse;
use std::collections::VecDeque;

use topology::{Bandwidth, LinkScheduler};

use switch::{LevelPause, Nanos};

use crate::roce::PacketBody;

/// Priorities of 802.1Q, each of which can be paused.
const PRIORITIES: usize = 8;

/// The sending side of a link. Sans-IO: [`HostLinkScheduler::next_connection`] returns the
/// connection that may send now, [`HostLinkScheduler::take_next_wake`] the time of the next call.
#[derive(Clone, Debug)]
pub(crate) struct HostLinkScheduler {
    picos_per_byte: u64,
    /// Whether higher priorities go first.
    serves_levels: bool,
    /// When the link is free again, in picoseconds: rounded to nanoseconds, every packet would add
    /// an error to the rate.
    free_at_ps: u64,
    waiting: VecDeque<WaitingConnection>,
    /// Replies that wait for the end of a pause.
    held: VecDeque<HeldReply>,
    wake_scheduled: bool,
    /// Since when the switch has paused each priority, if the link is that of a NIC.
    paused_since: [Option<Nanos>; PRIORITIES],
    pauses: NicPauses,
}

/// A connection with something to send, and the priority of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitingConnection {
    connection: usize,
    priority: u8,
}

/// A reply that waits for the end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldReply {
    /// Its connection.
    pub(crate) connection: usize,
    /// What it says.
    pub(crate) body: PacketBody,
    priority: u8,
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
    pub(crate) fn new(rate: Bandwidth, scheduler: LinkScheduler) -> Self {
        Self {
            picos_per_byte: (1e12 / rate.bytes_per_second()).round() as u64,
            serves_levels: scheduler.serves_levels(),
            free_at_ps: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            wake_scheduled: false,
            paused_since: [None; PRIORITIES],
            pauses: NicPauses::default(),
        }
    }

    /// The switch pauses a priority of this link, or ends that.
    pub(crate) fn set_pause(&mut self, priority: u8, pause: LevelPause, now: Nanos) {
        let since = &mut self.paused_since[usize::from(priority) % PRIORITIES];
        match pause {
            LevelPause::Begins if since.is_none() => {
                *since = Some(now);
                self.pauses.count += 1;
            }
            LevelPause::Begins => {}
            LevelPause::Ends => {
                let ended = since.take().map_or(0, |since| now.saturating_sub(since));
                self.pauses.paused_ns += ended;
            }
        }
    }

    /// Whether packets of a priority wait.
    pub(crate) fn is_paused(&self, priority: u8) -> bool {
        self.paused_since[usize::from(priority) % PRIORITIES].is_some()
    }

    pub(crate) fn pauses(&self) -> NicPauses {
        self.pauses
    }

    /// Keeps a reply until the pause of its priority ends. An acknowledgement takes the place of an
    /// earlier one of its connection, which it includes.
    pub(crate) fn hold_reply(&mut self, connection: usize, body: PacketBody, priority: u8) {
        let reply = HeldReply { connection, body, priority };
        let is_ack = |body| matches!(body, PacketBody::Ack { .. });
        let earlier = |held: &&mut HeldReply| {
            held.connection == connection && is_ack(held.body) && is_ack(body)
        };
        match self.held.iter_mut().find(earlier) {
            Some(held) => *held = reply,
            None => self.held.push_back(reply),
        }
    }

    /// The next reply that has waited for the end of a pause.
    pub(crate) fn release_reply(&mut self) -> Option<HeldReply> {
        let free = self.held.iter().position(|held| !self.is_paused(held.priority))?;
        self.held.remove(free)
    }

    /// A connection has something to send with this priority; it keeps its turn if it waits
    /// already.
    pub(crate) fn enqueue_connection(&mut self, connection: usize, priority: u8) {
        let waiting = WaitingConnection { connection, priority };
        if !self.waiting.contains(&waiting) {
            self.waiting.push_back(waiting);
        }
    }

    /// The connection whose turn it is, if the link is free: of those whose priority is not paused.
    pub(crate) fn next_connection(&mut self, now: Nanos) -> Option<usize> {
        // A link that becomes free within this nanosecond counts as free: timers cannot be finer.
        if self.free_at_ps >= (now + 1) * PICOS_PER_NANO {
            return None;
        }
        let waiting = self.waiting.iter().map(|waiting| waiting.priority).enumerate();
        let mut free = waiting.filter(|(_, priority)| !self.is_paused(*priority));
        let (next, _) = match self.serves_levels {
            true => free.max_by_key(|(place, priority)| (*priority, Reverse(*place))),
            false => free.next(),
        }?;
        self.waiting.remove(next).map(|waiting| waiting.connection)
    }

    /// Occupies the link with a packet of `bytes`.
    pub(crate) fn occupy_link(&mut self, bytes: u32, now: Nanos) {
        let begins = self.free_at_ps.max(now * PICOS_PER_NANO);
        self.free_at_ps = begins + u64::from(bytes) * self.picos_per_byte;
    }

    /// The time of the next call; none while no connection waits or a wake-up is scheduled.
    pub(crate) fn take_next_wake(&mut self) -> Option<Nanos> {
        let can_send = self.waiting.iter().any(|waiting| !self.is_paused(waiting.priority));
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

    fn link_of(scheduler: LinkScheduler) -> HostLinkScheduler {
        HostLinkScheduler::new(Bandwidth::from_gbps(200.0).unwrap(), scheduler)
    }

    #[test]
    fn a_host_strict_link_sends_the_highest_priority_that_is_not_paused() {
        let mut nic = link_of(LinkScheduler::HostStrict);
        let waiting = [(1, 2), (2, 5), (3, 5), (4, 7)];
        waiting.into_iter().for_each(|(connection, priority)| {
            nic.enqueue_connection(connection, priority);
        });
        nic.set_pause(7, LevelPause::Begins, 0);
        let order: Vec<usize> = std::iter::from_fn(|| nic.next_connection(0)).collect();
        assert_eq!(order, [2, 3, 1]);
        nic.set_pause(7, LevelPause::Ends, 0);
        assert_eq!(nic.next_connection(0), Some(4));
    }

    #[test]
    fn connections_take_turns_at_the_rate_of_the_link() {
        let mut nic = link_of(LinkScheduler::Fifo);
        [7, 8, 7].into_iter().for_each(|connection| nic.enqueue_connection(connection, 0));
        let (mut now, mut order) = (0, Vec::new());
        for _ in 0..1000 {
            let connection = nic.next_connection(now).unwrap();
            order.push(connection);
            nic.occupy_link(4154, now);
            nic.enqueue_connection(connection, 0);
            assert_eq!(nic.next_connection(now), None);
            now = nic.take_next_wake().unwrap();
            nic.clear_wake();
        }
        assert_eq!(order[..4], [7, 8, 7, 8]);
        assert_eq!(now, 1000 * 4154 * 40 / 1000);
    }

    #[test]
    fn a_paused_priority_sends_nothing_and_the_others_go_on() {
        let mut nic = link_of(LinkScheduler::Fifo);
        nic.enqueue_connection(1, 3);
        nic.set_pause(3, LevelPause::Begins, 10);
        assert_eq!((nic.next_connection(20), nic.take_next_wake()), (None, None));
        nic.set_pause(3, LevelPause::Begins, 30);
        nic.enqueue_connection(2, 4);
        assert_eq!(nic.next_connection(30), Some(2));
        nic.set_pause(3, LevelPause::Ends, 50);
        assert_eq!(nic.next_connection(50), Some(1));
        assert_eq!(nic.pauses(), NicPauses { count: 1, paused_ns: 40 });
    }

    #[test]
    fn replies_wait_for_the_end_of_a_pause_and_the_last_acknowledgement_is_enough() {
        let mut nic = link_of(LinkScheduler::Fifo);
        nic.set_pause(0, LevelPause::Begins, 10);
        let replies = [
            (7, PacketBody::Ack { psn: 15 }),
            (8, PacketBody::Nak { psn: 3 }),
            (7, PacketBody::Ack { psn: 31 }),
        ];
        for (connection, body) in replies {
            nic.hold_reply(connection, body, 0);
        }
        assert_eq!(nic.release_reply(), None);
        nic.set_pause(0, LevelPause::Ends, 20);
        let released = std::iter::from_fn(|| nic.release_reply());
        let released: Vec<_> = released.map(|held| (held.connection, held.body)).collect();
        assert_eq!(released, [replies[2], replies[1]]);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut nic = link_of(LinkScheduler::Fifo);
        nic.occupy_link(1000, 0);
        nic.enqueue_connection(1, 0);
        assert_eq!((nic.take_next_wake(), nic.take_next_wake()), (Some(40), None));
        assert_eq!(nic.next_connection(500), Some(1));
        nic.occupy_link(1000, 500);
        nic.clear_wake();
        nic.enqueue_connection(1, 0);
        assert_eq!(nic.take_next_wake(), Some(540));
    }
}
