//! The sending side of one port in real time: queues, the wire they share, and what has left it.
//!
//! Sans I/O. Packets wait in the [`Scheduler`], one is on the wire while its bits last, and those
//! whose last bit has left are `ready` for the interface. A packet is finished, which runs a
//! device's egress, when the wire takes it: the caller says how, as an [`Exit`]. A thread never
//! wakes exactly on time; so a packet that waited starts when the one before it ended, not when
//! that was noticed, and a busy port keeps its rate whatever the delay.

use std::collections::VecDeque;

use super::Shape;
use crate::device::Nanos;
use crate::scheduler::{Dequeued, QueueCounts, Scheduler, Wait};

/// Packets that may be ready at once. More stay in the queues, where a higher level overtakes.
pub(super) const READY_LIMIT: usize = 64;

/// How what has waited becomes a packet.
pub(super) trait Exit<T> {
    /// What goes on the wire at `now`, if anything does.
    fn finish(&mut self, item: T, wait: Wait, now: Nanos) -> Option<Vec<u8>>;

    /// Takes back what found no room.
    fn discard(&mut self, item: T);
}

/// The sending side of one port; `T` is what waits.
#[derive(Debug)]
pub(super) struct Line<T> {
    scheduler: Scheduler<T>,
    /// The packet on the wire, and when its last bit has left.
    on_wire: Option<(Nanos, Vec<u8>)>,
    ready: VecDeque<Vec<u8>>,
}

impl<T> Line<T> {
    /// Empty queues for levels `0..levels`.
    pub(super) fn new(levels: u8, shape: Shape) -> Self {
        let rate = shape.bits_per_second.map_or(u64::MAX, u64::from);
        Self {
            scheduler: Scheduler::new(levels, rate, shape.queue),
            on_wire: None,
            ready: VecDeque::new(),
        }
    }

    /// Takes a packet of so many bytes that is to leave; a full queue drops and counts it.
    pub(super) fn enqueue(
        &mut self,
        level: u8,
        (item, bytes): (T, u64),
        now: Nanos,
        exit: &mut impl Exit<T>,
    ) {
        match self.scheduler.enqueue(level, item, bytes, now) {
            Ok(()) if self.on_wire.is_none() => self.start(now, exit),
            Ok(()) => {}
            Err(item) => exit.discard(item),
        }
    }

    /// Time has come to `now`: moves what has left the wire to the ready ones.
    pub(super) fn advance(&mut self, now: Nanos, exit: &mut impl Exit<T>) {
        while self.ready.len() < READY_LIMIT {
            match self.on_wire.take() {
                Some((sent_at, packet)) if sent_at <= now => {
                    self.ready.push_back(packet);
                    self.start(sent_at, exit);
                }
                waiting => {
                    self.on_wire = waiting;
                    return;
                }
            }
        }
    }

    /// When [`Line::advance`] has something to do; none while nothing is on the wire or the
    /// interface takes nothing.
    pub(super) fn due(&self) -> Option<Nanos> {
        let has_room = self.ready.len() < READY_LIMIT;
        let on_wire = self.on_wire.as_ref().filter(|_| has_room);
        on_wire.map(|(sent_at, _)| *sent_at)
    }

    /// Packets that have left the wire, in order; the port takes them out as they are sent.
    pub(super) fn ready(&mut self) -> &mut VecDeque<Vec<u8>> {
        &mut self.ready
    }

    /// Whether something has left the wire and not the port.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What each level has seen, from level 0.
    pub(super) fn counts(&self) -> impl Iterator<Item = QueueCounts> {
        self.scheduler.counts()
    }

    fn start(&mut self, at: Nanos, exit: &mut impl Exit<T>) {
        while let Dequeued::Next(item, wait) = self.scheduler.dequeue(at) {
            if let Some(packet) = exit.finish(item, wait, at) {
                let sent_at = self.scheduler.occupy(packet.len(), at);
                self.on_wire = Some((sent_at, packet));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::scheduler::QueueLimits;

    const MICROSECOND: Nanos = 1_000;

    /// A packet of 125 bytes for each mark below 250; nothing for others, as if egress dropped it.
    struct Plain;

    impl Exit<u8> for Plain {
        fn finish(&mut self, mark: u8, _wait: Wait, _now: Nanos) -> Option<Vec<u8>> {
            (mark < 250).then(|| vec![mark; 125])
        }

        fn discard(&mut self, _mark: u8) {}
    }

    /// Two levels; a packet of 125 bytes takes a microsecond.
    fn line() -> Line<u8> {
        let shape = Shape {
            bits_per_second: NonZeroU64::new(1_000_000_000),
            queue: QueueLimits::bytes(10_000),
        };
        Line::new(2, shape)
    }

    fn marks(line: &mut Line<u8>) -> Vec<u8> {
        line.ready().drain(..).map(|packet| packet[0]).collect()
    }

    #[test]
    fn a_late_look_loses_no_rate_and_a_higher_level_overtakes() {
        let mut line = line();
        for mark in 1..=3 {
            line.enqueue(0, (mark, 125), 0, &mut Plain);
        }
        line.enqueue(1, (9, 125), 100, &mut Plain);
        assert_eq!(line.due(), Some(MICROSECOND));
        line.advance(MICROSECOND - 1, &mut Plain);
        assert_eq!(marks(&mut line), [] as [u8; 0]);
        // Looked at 700 ns late: the next two still end at 2 and 3 microseconds.
        line.advance(1_700, &mut Plain);
        assert_eq!((marks(&mut line), line.due()), (vec![1], Some(2_000)));
        line.advance(3_000, &mut Plain);
        assert_eq!((marks(&mut line), line.due()), (vec![9, 2], Some(4_000)));
        line.advance(9_000, &mut Plain);
        assert_eq!((marks(&mut line), line.due()), (vec![3], None));
    }

    #[test]
    fn an_idle_wire_starts_when_a_packet_comes() {
        let mut line = line();
        line.enqueue(0, (1, 125), 5_000, &mut Plain);
        assert_eq!(line.due(), Some(6_000));
    }

    #[test]
    fn what_an_interface_does_not_take_stays_in_the_queues() {
        let mut line = Line::new(2, Shape::default());
        for mark in 0..100 {
            line.enqueue(0, (mark, 125), 0, &mut Plain);
        }
        line.advance(0, &mut Plain);
        assert_eq!((line.ready().len(), line.due()), (READY_LIMIT, None));
        line.enqueue(1, (200, 125), 0, &mut Plain);
        line.ready().clear();
        line.advance(0, &mut Plain);
        // One of level 0 was on the wire already.
        assert_eq!(marks(&mut line)[..3], [64, 200, 65]);
    }

    #[test]
    fn what_egress_drops_takes_no_time_on_the_wire() {
        let mut line = line();
        for mark in [1, 250, 2] {
            line.enqueue(0, (mark, 125), 0, &mut Plain);
        }
        line.advance(2 * MICROSECOND, &mut Plain);
        assert_eq!(marks(&mut line), [1, 2]);
    }
}
