//! The sending side of one port in real time: queues, the wire they share, and packets that have
//! left it.
//!
//! Sans I/O. Packets wait in the [`PortScheduler`], one is on the wire while its bits last, and
//! those whose last bit has left are `ready` for the interface. When the wire takes a packet, the
//! caller's [`PacketEgress`] runs the device's egress on it. A thread never wakes exactly on time.
//! Therefore a packet that waited starts when the one before it ended, not when the thread noticed
//! that, and a busy port keeps its rate whatever the delay.

use std::collections::VecDeque;

use super::PortShape;
use crate::scheduler::{DequeueOutcome, PortScheduler, QueueCounts, QueueWait};
use crate::time::Nanos;
use crate::traffic::TrafficSettings;

/// Packets that may be ready at once. More stay in the queues, where a higher level overtakes.
pub(super) const READY_LIMIT: usize = 64;

/// How what has waited becomes a packet.
pub(super) trait PacketEgress<T> {
    /// What goes on the wire at `now`, if anything does.
    fn finish_packet(&mut self, item: T, wait: QueueWait, now: Nanos) -> Option<Vec<u8>>;

    /// Takes back what found no room.
    fn discard_packet(&mut self, item: T);
}

/// A packet for a queue.
#[derive(Debug)]
pub(super) struct EgressItem<T> {
    pub(super) item: T,
    pub(super) level: u8,
    /// Bytes that it takes in the queue.
    pub(super) bytes: u64,
}

/// The sending side of one port; `T` is the type of queued items.
#[derive(Debug)]
pub(super) struct PortTransmitter<T> {
    scheduler: PortScheduler<T>,
    /// The packet on the wire, and when its last bit has left.
    on_wire: Option<(Nanos, Vec<u8>)>,
    ready: VecDeque<Vec<u8>>,
}

impl<T> PortTransmitter<T> {
    /// Empty queues for levels `0..levels`.
    pub(super) fn new(levels: u8, shape: PortShape) -> Self {
        let rate = shape.bits_per_second.map_or(u64::MAX, u64::from);
        Self {
            scheduler: PortScheduler::new(levels, rate, shape.queue),
            on_wire: None,
            ready: VecDeque::new(),
        }
    }

    /// Adds marks by ramps and shares.
    pub(super) fn set_traffic(&mut self, settings: &TrafficSettings, stream: u64) {
        self.scheduler.set_traffic(settings, stream);
    }

    /// The queues.
    pub(super) fn scheduler(&mut self) -> &mut PortScheduler<T> {
        &mut self.scheduler
    }

    /// Sends a frame before all others; it takes no time on the wire.
    pub(super) fn send_control(&mut self, frame: Vec<u8>) {
        self.ready.push_front(frame);
    }

    /// Starts the next packet if the wire is idle: a level is no longer paused.
    pub(super) fn resume(&mut self, now: Nanos, exit: &mut impl PacketEgress<T>) {
        if self.on_wire.is_none() {
            self.start_next(now, exit);
        }
    }

    /// Queues a packet; a full queue drops and counts it.
    pub(super) fn enqueue_packet(
        &mut self,
        packet: EgressItem<T>,
        now: Nanos,
        exit: &mut impl PacketEgress<T>,
    ) {
        let EgressItem { item, level, bytes } = packet;
        match self.scheduler.enqueue(level, item, bytes, now) {
            Ok(()) if self.on_wire.is_none() => self.start_next(now, exit),
            Ok(()) => {}
            Err(item) => exit.discard_packet(item),
        }
    }

    /// Time has come to `now`: moves what has left the wire to the ready ones.
    pub(super) fn advance_to(&mut self, now: Nanos, exit: &mut impl PacketEgress<T>) {
        while self.ready.len() < READY_LIMIT {
            match self.on_wire.take() {
                Some((sent_at, packet)) if sent_at <= now => {
                    self.ready.push_back(packet);
                    self.start_next(sent_at, exit);
                }
                waiting => {
                    self.on_wire = waiting;
                    return;
                }
            }
        }
    }

    /// When [`PortTransmitter::advance_to`] has something to do; none while nothing is on the wire
    /// or the interface takes nothing.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let has_room = self.ready.len() < READY_LIMIT;
        let on_wire = self.on_wire.as_ref().filter(|_| has_room);
        on_wire.map(|(sent_at, _)| *sent_at)
    }

    /// Packets that have left the wire, in order; the port takes them out as they are sent.
    pub(super) fn ready_packets(&mut self) -> &mut VecDeque<Vec<u8>> {
        &mut self.ready
    }

    /// Whether something has left the wire and not the port.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What each level has seen, from level 0.
    pub(super) fn queue_counts(&self) -> impl Iterator<Item = QueueCounts> {
        self.scheduler.queue_counts()
    }

    fn start_next(&mut self, at: Nanos, exit: &mut impl PacketEgress<T>) {
        while let DequeueOutcome::Next(item, wait) = self.scheduler.dequeue(at) {
            if let Some(packet) = exit.finish_packet(item, wait, at) {
                let sent_at = self.scheduler.occupy_wire(packet.len(), at);
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

    impl PacketEgress<u8> for Plain {
        fn finish_packet(&mut self, mark: u8, _wait: QueueWait, _now: Nanos) -> Option<Vec<u8>> {
            (mark < 250).then(|| vec![mark; 125])
        }

        fn discard_packet(&mut self, _mark: u8) {}
    }

    /// Two levels; a packet of 125 bytes takes a microsecond.
    fn transmitter() -> PortTransmitter<u8> {
        let shape = PortShape {
            bits_per_second: NonZeroU64::new(1_000_000_000),
            queue: QueueLimits::of_bytes(10_000),
        };
        PortTransmitter::new(2, shape)
    }

    fn packet(level: u8, item: u8) -> EgressItem<u8> {
        EgressItem { item, level, bytes: 125 }
    }

    fn marks(line: &mut PortTransmitter<u8>) -> Vec<u8> {
        line.ready_packets().drain(..).map(|packet| packet[0]).collect()
    }

    #[test]
    fn a_late_wake_up_loses_no_rate_and_a_higher_level_overtakes() {
        let mut line = transmitter();
        for mark in 1..=3 {
            line.enqueue_packet(packet(0, mark), 0, &mut Plain);
        }
        line.enqueue_packet(packet(1, 9), 100, &mut Plain);
        assert_eq!(line.next_deadline(), Some(MICROSECOND));
        line.advance_to(MICROSECOND - 1, &mut Plain);
        assert_eq!(marks(&mut line), [] as [u8; 0]);
        // 700 ns late: the next two still end at 2 and 3 microseconds.
        line.advance_to(1_700, &mut Plain);
        assert_eq!((marks(&mut line), line.next_deadline()), (vec![1], Some(2_000)));
        line.advance_to(3_000, &mut Plain);
        assert_eq!((marks(&mut line), line.next_deadline()), (vec![9, 2], Some(4_000)));
        line.advance_to(9_000, &mut Plain);
        assert_eq!((marks(&mut line), line.next_deadline()), (vec![3], None));
    }

    #[test]
    fn an_idle_wire_starts_when_a_packet_comes() {
        let mut line = transmitter();
        line.enqueue_packet(packet(0, 1), 5_000, &mut Plain);
        assert_eq!(line.next_deadline(), Some(6_000));
    }

    #[test]
    fn packets_that_an_interface_refuses_stay_in_the_queues() {
        let mut line = PortTransmitter::new(2, PortShape::default());
        for mark in 0..100 {
            line.enqueue_packet(packet(0, mark), 0, &mut Plain);
        }
        line.advance_to(0, &mut Plain);
        assert_eq!((line.ready_packets().len(), line.next_deadline()), (READY_LIMIT, None));
        line.enqueue_packet(packet(1, 200), 0, &mut Plain);
        line.ready_packets().clear();
        line.advance_to(0, &mut Plain);
        // One of level 0 was on the wire already.
        assert_eq!(marks(&mut line)[..3], [64, 200, 65]);
    }

    #[test]
    fn packets_dropped_at_egress_take_no_time_on_the_wire() {
        let mut line = transmitter();
        for mark in [1, 250, 2] {
            line.enqueue_packet(packet(0, mark), 0, &mut Plain);
        }
        line.advance_to(2 * MICROSECOND, &mut Plain);
        assert_eq!(marks(&mut line), [1, 2]);
    }
}
