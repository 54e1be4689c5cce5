//! The queues of one port: strict priority over one shared rate, and what [`TrafficSettings`] add.
//!
//! The owner enqueues what is to leave a device or an endpoint and dequeues it when the wire is
//! free. Sans I/O: times come in, the time of the next dequeue goes out. A level is served only
//! while all higher ones are empty, and a packet on the wire is never interrupted. Rates count the
//! bytes of the frame alone, without preamble, FCS and gap, as BMv2's counters do. The decision:
//! queued items are of any type, and their length on the wire is given only when they are dequeued,
//! because a switch's egress changes a packet after its queue. Marks by a ramp, shares and pauses
//! are in `scheduler/port_features.rs`; a port without them passes one test for each packet.

mod port_features;

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::run::counter::CounterData;
use crate::time::Nanos;
use crate::traffic::TrafficSettings;
use port_features::PortFeatures;

/// Bits per byte times nanoseconds per second: bytes times this, over bits per second, is time.
const BIT_NANOS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// The queues of one port and the rate they share; `T` is what waits.
#[derive(Debug)]
pub struct PortScheduler<T> {
    queues: Vec<PacketQueue<T>>,
    bits_per_second: u64,
    limits: QueueLimits,
    /// How many wait, over all levels.
    waiting: u32,
    /// When the packet last put on the wire has left.
    free_at: Nanos,
    /// What `free_at` is rounded down by, in nanoseconds over `bits_per_second`.
    remainder: u128,
    /// Marks by a ramp, shares and pauses, once there are any.
    features: Option<Box<PortFeatures>>,
}

/// How much may wait in each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes, the packet itself included; what finds no room is dropped.
    pub bytes: u64,
    /// Bytes before a packet from which on it is marked with ECN's "congestion experienced", if it
    /// can be (RFC 3168); without it nothing is.
    pub mark_from: Option<NonZeroU64>,
}

impl QueueLimits {
    /// So many bytes, and nothing is marked.
    pub fn of_bytes(bytes: u64) -> Self {
        Self { bytes, mark_from: None }
    }
}

/// What one queue has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets that left.
    pub sent: CounterData,
    /// Packets refused because the queue was full.
    pub dropped: CounterData,
    /// Packets that were marked because of what they found waiting.
    pub marked: u64,
    /// What waits now.
    pub depth: CounterData,
    /// The most bytes that have ever waited.
    pub deepest: u64,
    /// How often the level was paused by the neighbour.
    pub pauses: u64,
    /// How long, over the pauses that have ended.
    pub paused_ns: Nanos,
    /// Packets dropped because a pause lasted too long; among `dropped` too.
    pub storm_drops: u64,
}

/// How a packet has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueWait {
    /// Since when.
    pub since: Nanos,
    /// How many packets waited at the port, at all levels, before this one came.
    pub found: u32,
    /// How many wait now that it has gone.
    pub left: u32,
    /// Whether it is marked for the length of its queue.
    pub marked: bool,
}

impl QueueWait {
    /// That of a packet which came to a free port at `now`.
    pub fn no_wait(now: Nanos) -> Self {
        Self { since: now, ..Self::default() }
    }
}

#[derive(Debug)]
struct PacketQueue<T> {
    items: VecDeque<QueuedItem<T>>,
    counts: QueueCounts,
}

#[derive(Debug)]
struct QueuedItem<T> {
    item: T,
    bytes: u64,
    wait: QueueWait,
}

/// Result of [`PortScheduler::dequeue`]: a packet, a time to wait for, or nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum DequeueOutcome<T> {
    /// This is to go next; [`PortScheduler::occupy_wire`] puts it on the wire.
    Next(T, QueueWait),
    /// The wire is busy until then.
    Busy(Nanos),
    /// Nothing waits that is not paused.
    Empty,
}

impl<T> PortScheduler<T> {
    /// Empty queues for levels `0..levels`; the rate must not be 0.
    pub fn new(levels: u8, bits_per_second: u64, limits: QueueLimits) -> Self {
        Self {
            queues: (0..levels.max(1)).map(|_| PacketQueue::new()).collect(),
            bits_per_second: bits_per_second.max(1),
            limits,
            waiting: 0,
            free_at: 0,
            remainder: 0,
            features: None,
        }
    }

    /// Adds marks by ramps and shares; `stream` tells the random streams of ports apart.
    pub fn set_traffic(&mut self, settings: &TrafficSettings, stream: u64) {
        let features = PortFeatures::new(self.queues.len(), self.bits_per_second, settings, stream);
        self.features = Some(Box::new(features));
    }

    /// Sends at another rate from the next packet on, as a link does that has lost lanes; ramps of
    /// marks stay as they are. The rate must not be 0.
    pub fn set_rate(&mut self, bits_per_second: u64) {
        self.bits_per_second = bits_per_second.max(1);
        self.remainder = 0;
    }

    /// Puts a packet of so many bytes into its level's queue, or counts the drop and gives it back.
    /// Levels beyond the highest go to the highest.
    ///
    /// # Errors
    ///
    /// The packet itself, when the queue has no room for it.
    pub fn enqueue(&mut self, level: u8, item: T, bytes: u64, now: Nanos) -> Result<(), T> {
        let highest = self.queues.len() - 1;
        let queue = &mut self.queues[usize::from(level).min(highest)];
        if queue.counts.depth.bytes + bytes > self.limits.bytes {
            queue.counts.dropped.add_packet(bytes);
            return Err(item);
        }
        let threshold = self.limits.mark_from.map_or(u64::MAX, u64::from);
        let depth = queue.counts.depth.bytes;
        let mut marked = depth >= threshold;
        if let Some(features) = &mut self.features {
            if features.discards(level.min(highest as u8)) {
                queue.counts.storm_drops += 1;
                queue.counts.dropped.add_packet(bytes);
                return Err(item);
            }
            marked |= features.marks_arrival(level.min(highest as u8), depth);
        }
        let wait = QueueWait { since: now, found: self.waiting, left: 0, marked };
        self.waiting += 1;
        queue.push_item(QueuedItem { item, bytes, wait });
        Ok(())
    }

    /// Takes out the first packet of the highest level that has one, if the wire is free.
    pub fn dequeue(&mut self, now: Nanos) -> DequeueOutcome<T> {
        if self.is_empty() {
            return DequeueOutcome::Empty;
        }
        if now < self.free_at {
            return DequeueOutcome::Busy(self.free_at);
        }
        let first = match &mut self.features {
            // Strict priority: queues are in ascending order of level, the highest goes first.
            None => self.queues.iter_mut().rev().find_map(PacketQueue::pop_item),
            Some(features) => features.pop_item(&mut self.queues),
        };
        match first {
            None => DequeueOutcome::Empty,
            Some(QueuedItem { item, wait, .. }) => {
                self.waiting -= 1;
                let left = self.waiting;
                DequeueOutcome::Next(item, QueueWait { left, ..wait })
            }
        }
    }

    /// Puts so many bytes on the wire, which must be free; when the last bit has left.
    pub fn occupy_wire(&mut self, bytes: usize, now: Nanos) -> Nanos {
        // The fraction of a nanosecond carries over to a packet that follows at once, so that the
        // rate is exact over many packets; an idle wire starts anew.
        if now > self.free_at {
            self.remainder = 0;
        }
        let rate = u128::from(self.bits_per_second);
        let work = bytes as u128 * BIT_NANOS_PER_BYTE + self.remainder;
        self.remainder = work % rate;
        self.free_at = now.saturating_add(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.free_at
    }

    /// The rate that all levels share.
    pub fn bits_per_second(&self) -> u64 {
        self.bits_per_second
    }

    /// When the wire is free again.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Whether all queues are empty.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether something waits that may go once the wire is free.
    pub fn has_eligible(&self) -> bool {
        match &self.features {
            None => self.waiting > 0,
            Some(features) => features.has_eligible(&self.queues),
        }
    }

    /// Bytes that wait at a level.
    pub fn queued_bytes(&self, level: u8) -> u64 {
        let highest = self.queues.len() - 1;
        self.queues[usize::from(level).min(highest)].counts.depth.bytes
    }

    /// Counts a packet that the owner refuses for this port.
    pub fn count_refused(&mut self, level: u8, bytes: u64) {
        let highest = self.queues.len() - 1;
        self.queues[usize::from(level).min(highest)].counts.dropped.add_packet(bytes);
    }

    /// The neighbour pauses a level from `now` on, or ends that; the number of the pause that
    /// begins or goes on.
    pub fn set_pause(&mut self, level: u8, pause: LevelPause, now: Nanos) -> u64 {
        let levels = self.queues.len();
        let features = self.features.get_or_insert_with(|| {
            Box::new(PortFeatures::new(
                levels,
                self.bits_per_second,
                &TrafficSettings::default(),
                0,
            ))
        });
        let level = usize::from(level).min(levels - 1);
        features.set_pause(level, pause, now, &mut self.queues[level].counts)
    }

    /// Empties a level that has been in the pause of this number ever since, if packets wait, and
    /// drops what comes until it ends: what the owner is to discard.
    pub fn break_pause(&mut self, level: u8, number: u64) -> Vec<T> {
        let level = usize::from(level).min(self.queues.len() - 1);
        let queue = &mut self.queues[level];
        let waits = !queue.items.is_empty();
        let is_stuck = |features: &mut PortFeatures| features.break_pause(level, number);
        if !waits || !self.features.as_deref_mut().is_some_and(is_stuck) {
            return Vec::new();
        }
        let dropped: Vec<QueuedItem<T>> = queue.items.drain(..).collect();
        self.waiting -= dropped.len() as u32;
        queue.counts.dropped.packets += queue.counts.depth.packets;
        queue.counts.dropped.bytes += queue.counts.depth.bytes;
        queue.counts.storm_drops += dropped.len() as u64;
        queue.counts.depth = CounterData::default();
        dropped.into_iter().map(|waiting| waiting.item).collect()
    }

    /// What each level has seen, from level 0.
    pub fn queue_counts(&self) -> impl Iterator<Item = QueueCounts> {
        self.queues.iter().map(|queue| queue.counts)
    }
}

/// Whether a neighbour holds a level back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LevelPause {
    /// It does (XOFF).
    Begins,
    /// It no longer does (XON).
    Ends,
}

impl<T> PacketQueue<T> {
    fn new() -> Self {
        Self { items: VecDeque::new(), counts: QueueCounts::default() }
    }

    fn push_item(&mut self, waiting: QueuedItem<T>) {
        let counts = &mut self.counts;
        counts.marked += u64::from(waiting.wait.marked);
        counts.depth.add_packet(waiting.bytes);
        counts.deepest = counts.deepest.max(counts.depth.bytes);
        self.items.push_back(waiting);
    }

    fn pop_item(&mut self) -> Option<QueuedItem<T>> {
        let waiting = self.items.pop_front()?;
        let counts = &mut self.counts;
        counts.depth.packets -= 1;
        counts.depth.bytes -= waiting.bytes;
        counts.sent.add_packet(waiting.bytes);
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const PACKET: usize = 1250;

    /// Offers constant rates (Mbit/s, level 0 first) to a 10 Mbit/s port for ten seconds and
    /// compares what leaves (Mbit/s) with the fluid ideal.
    fn check_shares(offered: [u64; 3], ideal: [f64; 3]) {
        let mut port = PortScheduler::new(3, 10_000_000, QueueLimits::of_bytes(20 * PACKET as u64));
        // A packet of 10 kbit every 10 ms / rate, level by level, in the order of time.
        let mut arrivals: Vec<(Nanos, u8)> = Vec::new();
        for (level, rate) in offered.iter().enumerate() {
            let packets = rate * 100 * 10;
            arrivals.extend((0..packets).map(|n| (n * SECOND / (rate * 100), level as u8)));
        }
        arrivals.sort_unstable();
        for (now, level) in arrivals {
            drain(&mut port, now);
            let _full = port.enqueue(level, (), PACKET as u64, now);
        }
        drain(&mut port, 10 * SECOND);
        let got: Vec<f64> = port.queue_counts().map(|c| c.sent.bytes as f64 * 8.0 / 10e6).collect();
        for (level, (got, ideal)) in got.iter().zip(ideal).enumerate() {
            assert!((got - ideal).abs() <= 0.2, "level {level}: {got} Mbit/s, ideal {ideal}");
        }
        let total: f64 = got.iter().sum();
        assert!((total - 10.0).abs() <= 0.2, "total {total}");
    }

    /// Whatever has its chance by `now`, each as soon as the wire is free.
    fn drain(port: &mut PortScheduler<()>, now: Nanos) {
        while port.free_at() <= now {
            let at = port.free_at();
            match port.dequeue(at) {
                DequeueOutcome::Next(..) => port.occupy_wire(PACKET, at),
                _ => return,
            };
        }
    }

    #[test]
    fn strict_priority_shares_follow_the_fluid_ideal() {
        check_shares([8, 8, 8], [0.0, 2.0, 8.0]);
        check_shares([20, 20, 20], [0.0, 0.0, 10.0]);
        check_shares([8, 6, 3], [1.0, 6.0, 3.0]);
    }

    #[test]
    fn a_packet_takes_its_bits_over_the_rate_without_drift() {
        // 3 Gbit/s: 100 bytes take 266 2/3 ns; three packets take 800 ns exactly.
        let mut port = PortScheduler::new(1, 3_000_000_000, QueueLimits::of_bytes(1_000));
        for _ in 0..3 {
            port.enqueue(0, (), 100, 0).unwrap();
        }
        let mut left = Vec::new();
        while let DequeueOutcome::Next((), _) = port.dequeue(port.free_at()) {
            left.push(port.occupy_wire(100, port.free_at()));
        }
        assert_eq!(left, [266, 533, 800]);
    }

    #[test]
    fn a_full_queue_refuses_and_counts_per_level() {
        let mut port = PortScheduler::new(2, 1_000, QueueLimits::of_bytes(250));
        assert_eq!(port.enqueue(0, 'a', 200, 0), Ok(()));
        assert_eq!(port.enqueue(0, 'b', 100, 0), Err('b'));
        assert_eq!(port.enqueue(1, 'c', 100, 0), Ok(()));
        assert!(matches!(port.dequeue(5), DequeueOutcome::Next('c', _)));
        assert_eq!(port.occupy_wire(100, 5), 5 + 800_000_000);
        assert_eq!(port.dequeue(6), DequeueOutcome::Busy(5 + 800_000_000));
        let dropped: Vec<u64> = port.queue_counts().map(|counts| counts.dropped.packets).collect();
        assert_eq!(dropped, [1, 0]);
        let depth: Vec<u64> = port.queue_counts().map(|counts| counts.depth.bytes).collect();
        assert_eq!(depth, [200, 0]);
    }

    #[test]
    fn a_packet_learns_how_it_waited_and_is_marked_behind_the_threshold() {
        let limits = QueueLimits { bytes: 1_000, mark_from: NonZeroU64::new(200) };
        let mut port = PortScheduler::new(2, 8_000_000_000, limits);
        for (at, item) in ['a', 'b', 'c'].into_iter().enumerate() {
            port.enqueue(0, item, 100, at as Nanos).unwrap();
        }
        port.enqueue(1, 'd', 100, 3).unwrap();
        let mut seen = Vec::new();
        while let DequeueOutcome::Next(item, wait) = port.dequeue(port.free_at().max(9)) {
            port.occupy_wire(100, port.free_at().max(9));
            seen.push((item, wait.since, wait.found, wait.left, wait.marked));
        }
        let waited = [
            ('d', 3, 3, 3, false),
            ('a', 0, 0, 2, false),
            ('b', 1, 1, 1, false),
            ('c', 2, 2, 0, true),
        ];
        assert_eq!(seen, waited);
        let marks: Vec<_> = port.queue_counts().map(|c| (c.marked, c.deepest)).collect();
        assert_eq!(marks, [(1, 300), (0, 100)]);
    }
}
