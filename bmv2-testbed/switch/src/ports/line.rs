//! The sending side of one port in real time: queues, the wire they share, and what has left it.
//!
//! Sans I/O. Packets wait in the [`Scheduler`], one is on the wire while its bits last, and those
//! whose last bit has left are `ready` for the interface. A thread never wakes exactly on time; so
//! a packet that waited starts when the one before it ended, not when that was noticed, and a busy
//! port keeps its rate whatever the delay.

use std::collections::VecDeque;

use super::Shape;
use crate::device::Nanos;
use crate::scheduler::{Dequeued, QueueCounts, Scheduler};

/// Packets that may be ready at once. More stay in the queues, where a higher level overtakes.
pub(super) const READY_LIMIT: usize = 64;

/// The sending side of one port.
#[derive(Debug)]
pub(super) struct Line {
    scheduler: Scheduler,
    /// The packet on the wire, and when its last bit has left.
    on_wire: Option<(Nanos, Vec<u8>)>,
    ready: VecDeque<Vec<u8>>,
}

impl Line {
    /// Empty queues for levels `0..levels`.
    pub(super) fn new(levels: u8, shape: Shape) -> Self {
        let rate = shape.bits_per_second.map_or(u64::MAX, u64::from);
        Self {
            scheduler: Scheduler::new(levels, rate, shape.queue_bytes),
            on_wire: None,
            ready: VecDeque::new(),
        }
    }

    /// Takes a packet that left the device at `now`, or gives it back: its queue is full and has
    /// counted it.
    pub(super) fn enqueue(
        &mut self,
        level: u8,
        packet: Vec<u8>,
        now: Nanos,
    ) -> Result<(), Vec<u8>> {
        self.scheduler.enqueue(level, packet)?;
        if self.on_wire.is_none() {
            self.start(now);
        }
        Ok(())
    }

    /// Time has come to `now`: moves what has left the wire to the ready ones.
    pub(super) fn advance(&mut self, now: Nanos) {
        while self.ready.len() < READY_LIMIT {
            match self.on_wire.take() {
                Some((sent_at, packet)) if sent_at <= now => {
                    self.ready.push_back(packet);
                    self.start(sent_at);
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

    fn start(&mut self, at: Nanos) {
        if let Dequeued::Packet { packet, sent_at } = self.scheduler.dequeue(at) {
            self.on_wire = Some((sent_at, packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const MICROSECOND: Nanos = 1_000;

    /// Two levels; a packet of 125 bytes takes a microsecond.
    fn line() -> Line {
        let shape = Shape {
            bits_per_second: NonZeroU64::new(1_000_000_000),
            queue_bytes: 10_000,
        };
        Line::new(2, shape)
    }

    fn packet(mark: u8) -> Vec<u8> {
        vec![mark; 125]
    }

    fn marks(line: &mut Line) -> Vec<u8> {
        line.ready().drain(..).map(|packet| packet[0]).collect()
    }

    #[test]
    fn a_late_look_loses_no_rate_and_a_higher_level_overtakes() {
        let mut line = line();
        for mark in 1..=3 {
            line.enqueue(0, packet(mark), 0).unwrap();
        }
        line.enqueue(1, packet(9), 100).unwrap();
        assert_eq!(line.due(), Some(MICROSECOND));
        line.advance(MICROSECOND - 1);
        assert_eq!(marks(&mut line), [] as [u8; 0]);
        // Looked at 700 ns late: the next two still end at 2 and 3 microseconds.
        line.advance(1_700);
        assert_eq!((marks(&mut line), line.due()), (vec![1], Some(2_000)));
        line.advance(3_000);
        assert_eq!((marks(&mut line), line.due()), (vec![9, 2], Some(4_000)));
        line.advance(9_000);
        assert_eq!((marks(&mut line), line.due()), (vec![3], None));
    }

    #[test]
    fn an_idle_wire_starts_when_a_packet_comes() {
        let mut line = line();
        line.enqueue(0, packet(1), 5_000).unwrap();
        assert_eq!(line.due(), Some(6_000));
    }

    #[test]
    fn what_an_interface_does_not_take_stays_in_the_queues() {
        let mut line = Line::new(2, Shape::default());
        for mark in 0..100 {
            line.enqueue(0, packet(mark), 0).unwrap();
        }
        line.advance(0);
        assert_eq!((line.ready().len(), line.due()), (READY_LIMIT, None));
        line.enqueue(1, packet(200), 0).unwrap();
        line.ready().clear();
        line.advance(0);
        // One of level 0 was on the wire already.
        assert_eq!(marks(&mut line)[..3], [64, 200, 65]);
    }
}
