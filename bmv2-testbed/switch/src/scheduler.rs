//! The queues of one port: strict priority over one shared rate.
//!
//! The fabric puts packets in as they leave a device or an endpoint and takes them out when the
//! wire is free. Sans I/O: time comes in, the time of the next chance goes out. A level is served
//! only while all higher ones are empty, and a packet on the wire is never interrupted. Rates are
//! those of the frame's bytes alone; preamble, FCS and gap are not counted, as in BMv2's counters.

use std::collections::VecDeque;

use crate::counter::Count;
use crate::device::Nanos;

/// Bits per byte times nanoseconds per second: bytes times this, over bits per second, is time.
const BIT_NANOS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// The queues of one port and the rate they share.
#[derive(Debug)]
pub struct Scheduler {
    queues: Vec<Queue>,
    bits_per_second: u64,
    /// Bytes that may wait in each queue.
    queue_bytes: u64,
    /// When the packet last taken out has left.
    free_at: Nanos,
    /// What `free_at` is rounded down by, in nanoseconds over `bits_per_second`.
    remainder: u128,
}

/// What one queue has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets that left.
    pub sent: Count,
    /// Packets refused because the queue was full.
    pub dropped: Count,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    bytes: u64,
    counts: QueueCounts,
}

/// What [`Scheduler::dequeue`] finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Dequeued {
    /// This packet starts now and its last bit leaves at `sent_at`.
    Packet {
        /// The packet.
        packet: Vec<u8>,
        /// When it has left.
        sent_at: Nanos,
    },
    /// The wire is busy until then.
    Busy(Nanos),
    /// Nothing waits.
    Empty,
}

impl Scheduler {
    /// Empty queues for levels `0..levels`; the rate must not be 0.
    pub fn new(levels: u8, bits_per_second: u64, queue_bytes: u64) -> Self {
        Self {
            queues: (0..levels.max(1)).map(|_| Queue::default()).collect(),
            bits_per_second: bits_per_second.max(1),
            queue_bytes,
            free_at: 0,
            remainder: 0,
        }
    }

    /// Puts a packet into its level's queue, or counts the drop and gives the packet back. Levels
    /// beyond the highest go to the highest.
    ///
    /// # Errors
    ///
    /// The packet itself, when the queue has no room for it.
    pub fn enqueue(&mut self, level: u8, packet: Vec<u8>) -> Result<(), Vec<u8>> {
        let highest = self.queues.len() - 1;
        let queue = &mut self.queues[usize::from(level).min(highest)];
        let bytes = packet.len() as u64;
        if queue.bytes + bytes > self.queue_bytes {
            queue.counts.dropped.add_packet(bytes);
            return Err(packet);
        }
        queue.bytes += bytes;
        queue.packets.push_back(packet);
        Ok(())
    }

    /// Takes out the first packet of the highest level that has one, if the wire is free.
    pub fn dequeue(&mut self, now: Nanos) -> Dequeued {
        if self.is_empty() {
            return Dequeued::Empty;
        }
        if now < self.free_at {
            return Dequeued::Busy(self.free_at);
        }
        let Some(packet) = self.queues.iter_mut().rev().find_map(Queue::take) else {
            return Dequeued::Empty;
        };
        if now > self.free_at {
            self.remainder = 0;
        }
        let rate = u128::from(self.bits_per_second);
        let work = packet.len() as u128 * BIT_NANOS_PER_BYTE + self.remainder;
        self.remainder = work % rate;
        self.free_at = now.saturating_add(u64::try_from(work / rate).unwrap_or(u64::MAX));
        Dequeued::Packet {
            packet,
            sent_at: self.free_at,
        }
    }

    /// When the wire is free again.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.packets.is_empty())
    }

    /// What each level has seen, from level 0.
    pub fn counts(&self) -> impl Iterator<Item = QueueCounts> {
        self.queues.iter().map(|queue| queue.counts)
    }
}

impl Queue {
    fn take(&mut self) -> Option<Vec<u8>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.len() as u64;
        self.counts.sent.add_packet(packet.len() as u64);
        Some(packet)
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
        let mut port = Scheduler::new(3, 10_000_000, 20 * PACKET as u64);
        // A packet of 10 kbit every 10 ms / rate, level by level, in the order of time.
        let mut arrivals: Vec<(Nanos, u8)> = Vec::new();
        for (level, rate) in offered.iter().enumerate() {
            let packets = rate * 100 * 10;
            arrivals.extend((0..packets).map(|n| (n * SECOND / (rate * 100), level as u8)));
        }
        arrivals.sort_unstable();
        for (now, level) in arrivals {
            drain(&mut port, now);
            let _full = port.enqueue(level, vec![0; PACKET]);
        }
        drain(&mut port, 10 * SECOND);
        let got: Vec<f64> = port
            .counts()
            .map(|c| c.sent.bytes as f64 * 8.0 / 10e6)
            .collect();
        for (level, (got, ideal)) in got.iter().zip(ideal).enumerate() {
            assert!(
                (got - ideal).abs() <= 0.2,
                "level {level}: {got} Mbit/s, ideal {ideal}"
            );
        }
        let total: f64 = got.iter().sum();
        assert!((total - 10.0).abs() <= 0.2, "total {total}");
    }

    fn drain(port: &mut Scheduler, now: Nanos) {
        while port.free_at() <= now && port.dequeue(port.free_at()) != Dequeued::Empty {}
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
        let mut port = Scheduler::new(1, 3_000_000_000, 1_000);
        for _ in 0..3 {
            port.enqueue(0, vec![0; 100]).unwrap();
        }
        let mut left = Vec::new();
        while let Dequeued::Packet { sent_at, .. } = port.dequeue(port.free_at()) {
            left.push(sent_at);
        }
        assert_eq!(left, [266, 533, 800]);
    }

    #[test]
    fn a_full_queue_refuses_and_counts_per_level() {
        let mut port = Scheduler::new(2, 1_000, 250);
        assert_eq!(port.enqueue(0, vec![0; 200]), Ok(()));
        assert_eq!(port.enqueue(0, vec![1; 100]), Err(vec![1; 100]));
        assert_eq!(port.enqueue(1, vec![2; 100]), Ok(()));
        assert!(matches!(port.dequeue(5), Dequeued::Packet { packet, .. } if packet[0] == 2));
        assert_eq!(port.dequeue(6), Dequeued::Busy(5 + 800_000_000));
        let dropped: Vec<u64> = port.counts().map(|counts| counts.dropped.packets).collect();
        assert_eq!(dropped, [1, 0]);
    }
}
