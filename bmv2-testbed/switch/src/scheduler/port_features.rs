//! Marks by a ramp, shares beside strict priority, and pauses, of one port.

use super::{LevelPause, PacketQueue, QueueCounts, QueuedItem};
use crate::time::Nanos;
use crate::traffic::marking::MarkingDraws;
use crate::traffic::shares::ShareCredit;
use crate::traffic::{MarkingPoint, MarkingRamp, TrafficSettings};

/// The settings and the state of one port's levels.
#[derive(Debug)]
pub(super) struct PortFeatures {
    levels: Vec<LevelFeatures>,
    marking_point: MarkingPoint,
    draws: MarkingDraws,
}

#[derive(Debug)]
struct LevelFeatures {
    ramp: Option<MarkingRamp>,
    credit: ShareCredit,
    pause: PauseState,
    /// Pauses so far.
    pauses: u64,
}

/// Whether a level may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseState {
    Running,
    Paused {
        since: Nanos,
    },
    /// It has been paused for too long: it is emptied and takes nothing.
    Broken {
        since: Nanos,
    },
}

impl PortFeatures {
    pub(super) fn new(
        levels: usize,
        bits_per_second: u64,
        settings: &TrafficSettings,
        stream: u64,
    ) -> Self {
        let features = |level| LevelFeatures {
            ramp: settings.ramp(level, bits_per_second),
            credit: ShareCredit::new(
                settings.shares.as_ref().map_or(0.0, |shares| shares.of_level(level)),
            ),
            pause: PauseState::Running,
            pauses: 0,
        };
        let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream;
        Self {
            levels: (0..levels).map(features).collect(),
            marking_point: settings.marking_point,
            draws: MarkingDraws::new(seed),
        }
    }

    /// Whether a packet that finds so many bytes at its level when it comes is marked for that.
    pub(super) fn marks_arrival(&mut self, level: u8, queued: u64) -> bool {
        self.marking_point == MarkingPoint::Enqueue && self.marks(usize::from(level), queued)
    }

    fn marks(&mut self, level: usize, queued: u64) -> bool {
        let ramp = self.levels[level].ramp;
        ramp.is_some_and(|ramp| self.draws.marks(&ramp, queued))
    }

    /// Whether a level drops what comes, because its pause does not end.
    pub(super) fn discards(&self, level: u8) -> bool {
        matches!(self.levels[usize::from(level)].pause, PauseState::Broken { .. })
    }

    pub(super) fn has_eligible<T>(&self, queues: &[PacketQueue<T>]) -> bool {
        let mut levels = self.levels.iter().zip(queues);
        levels.any(|(level, queue)| level.is_running() && !queue.items.is_empty())
    }

    /// Takes out the first packet of the highest level that is owed one, or else of the highest
    /// that has one.
    pub(super) fn pop_item<T>(&mut self, queues: &mut [PacketQueue<T>]) -> Option<QueuedItem<T>> {
        let chosen = self.choose_level(queues)?;
        let mut item = queues[chosen].pop_item()?;
        if self.marking_point == MarkingPoint::Dequeue && !item.wait.marked {
            item.wait.marked = self.marks(chosen, queues[chosen].counts.depth.bytes);
            queues[chosen].counts.marked += u64::from(item.wait.marked);
        }
        for (level, queue) in self.levels.iter_mut().zip(queues.iter()) {
            match queue.items.is_empty() {
                true => level.credit.reset(),
                false if level.is_running() => level.credit.earn(item.bytes),
                false => {}
            }
        }
        self.levels[chosen].credit.spend(item.bytes);
        Some(item)
    }

    fn choose_level<T>(&self, queues: &[PacketQueue<T>]) -> Option<usize> {
        let first_bytes = |level: usize| {
            let first = queues[level].items.front().filter(|_| self.levels[level].is_running());
            first.map(|item| item.bytes)
        };
        let from_the_highest = || (0..queues.len()).rev();
        let owed = from_the_highest().find(|level| {
            first_bytes(*level).is_some_and(|bytes| self.levels[*level].credit.covers(bytes))
        });
        owed.or_else(|| from_the_highest().find(|level| first_bytes(*level).is_some()))
    }

    /// Begins or ends a pause and counts it; the number of the pause.
    pub(super) fn set_pause(
        &mut self,
        level: usize,
        pause: LevelPause,
        now: Nanos,
        counts: &mut QueueCounts,
    ) -> u64 {
        let features = &mut self.levels[level];
        match (pause, features.pause) {
            (LevelPause::Begins, PauseState::Running) => {
                features.pause = PauseState::Paused { since: now };
                features.pauses += 1;
                counts.pauses += 1;
            }
            (LevelPause::Ends, PauseState::Paused { since } | PauseState::Broken { since }) => {
                features.pause = PauseState::Running;
                counts.paused_ns += now.saturating_sub(since);
            }
            _ => {}
        }
        features.pauses
    }

    /// Whether a level is still in the pause of this number, which it then breaks.
    pub(super) fn break_pause(&mut self, level: usize, number: u64) -> bool {
        let features = &mut self.levels[level];
        let PauseState::Paused { since } = features.pause else {
            return false;
        };
        let is_same = features.pauses == number;
        if is_same {
            features.pause = PauseState::Broken { since };
        }
        is_same
    }
}

impl LevelFeatures {
    fn is_running(&self) -> bool {
        self.pause == PauseState::Running
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DequeueOutcome, PortScheduler, QueueLimits};
    use super::*;
    use crate::traffic::LevelShares;

    const PACKET: u64 = 1_000;

    /// A port of 8 Gbit/s, on which a packet of 1,000 bytes takes a microsecond.
    fn port(settings: &TrafficSettings) -> PortScheduler<u8> {
        let mut port = PortScheduler::new(3, 8_000_000_000, QueueLimits::of_bytes(1 << 30));
        port.set_traffic(settings, 0);
        port
    }

    /// Sends so many packets from queues that never run empty; how many of each level.
    fn send_backlogged(port: &mut PortScheduler<u8>, packets: usize) -> [usize; 3] {
        let mut sent = [0; 3];
        // Two of each, as a queue that runs empty is owed nothing.
        for level in [0, 1, 2, 0, 1, 2] {
            port.enqueue(level, level, PACKET, 0).unwrap();
        }
        for _ in 0..packets {
            let now = port.free_at();
            let DequeueOutcome::Next(level, _) = port.dequeue(now) else {
                panic!("nothing to send");
            };
            sent[usize::from(level)] += 1;
            port.occupy_wire(PACKET as usize, now);
            port.enqueue(level, level, PACKET, now).unwrap();
        }
        sent
    }

    #[test]
    fn lower_levels_get_their_share_and_no_more() {
        let shares = LevelShares::new(vec![0.1, 0.2]);
        let settings = TrafficSettings { shares, ..TrafficSettings::default() };
        let sent = send_backlogged(&mut port(&settings), 10_000);
        for (sent, expected) in sent.into_iter().zip([1_000, 2_000, 7_000]) {
            assert!(sent.abs_diff(expected) <= 10, "{sent} of {expected}");
        }
        assert_eq!(send_backlogged(&mut port(&TrafficSettings::default()), 100), [0, 0, 100]);
    }

    /// Behind 500 bytes everything is marked: when they come, the last two of four packets; when
    /// they leave, the first two.
    #[test]
    fn packets_are_marked_when_they_come_or_when_they_leave() {
        let ramp = MarkingRamp { kmin_bytes: 500, kmax_bytes: 500, pmax: 1.0 };
        let marked = |marking_point| {
            let marking = vec![Some(ramp); 3];
            let mut port = port(&TrafficSettings { marking, marking_point, ..Default::default() });
            for item in 0..4 {
                port.enqueue(1, item, 300, 0).unwrap();
            }
            let mut marked = Vec::new();
            while let DequeueOutcome::Next(item, wait) = port.dequeue(port.free_at()) {
                port.occupy_wire(300, port.free_at());
                marked.extend(wait.marked.then_some(item));
            }
            (marked, port.queue_counts().nth(1).unwrap().marked)
        };
        assert_eq!(marked(MarkingPoint::Enqueue), (vec![2, 3], 2));
        assert_eq!(marked(MarkingPoint::Dequeue), (vec![0, 1], 2));
    }

    #[test]
    fn a_share_that_nobody_uses_goes_to_the_others() {
        let shares = LevelShares::new(vec![0.5]);
        let settings = TrafficSettings { shares, ..TrafficSettings::default() };
        let mut port = port(&settings);
        for level in [2, 2, 2, 0] {
            port.enqueue(level, level, PACKET, 0).unwrap();
        }
        let mut order = Vec::new();
        while let DequeueOutcome::Next(level, _) = port.dequeue(port.free_at()) {
            port.occupy_wire(PACKET as usize, port.free_at());
            order.push(level);
        }
        // Level 0 is owed a packet after two others.
        assert_eq!(order, [2, 2, 0, 2]);
    }

    #[test]
    fn a_paused_level_waits_and_the_others_go_on() {
        let mut port = port(&TrafficSettings::default());
        for level in [0, 2] {
            port.enqueue(level, level, PACKET, 0).unwrap();
        }
        port.set_pause(2, LevelPause::Begins, 100);
        assert!(matches!(port.dequeue(100), DequeueOutcome::Next(0, _)));
        assert_eq!((port.dequeue(100), port.has_eligible()), (DequeueOutcome::Empty, false));
        assert!(!port.is_empty());
        // A second request to pause changes nothing.
        port.set_pause(2, LevelPause::Begins, 200);
        port.set_pause(2, LevelPause::Ends, 350);
        assert!(matches!(port.dequeue(350), DequeueOutcome::Next(2, _)));
        let counts = port.queue_counts().nth(2).unwrap();
        assert_eq!((counts.pauses, counts.paused_ns), (1, 250));
    }

    #[test]
    fn a_pause_that_does_not_end_is_broken() {
        let mut port = port(&TrafficSettings::default());
        let first = port.set_pause(1, LevelPause::Begins, 0);
        port.set_pause(1, LevelPause::Ends, 10);
        let second = port.set_pause(1, LevelPause::Begins, 20);
        assert!(port.break_pause(1, second).is_empty(), "nothing waits");
        for item in [1, 1] {
            port.enqueue(1, item, PACKET, 30).unwrap();
        }
        assert!(port.break_pause(1, first).is_empty());
        assert_eq!(port.break_pause(1, second), [1, 1]);
        assert_eq!(port.enqueue(1, 1, PACKET, 40), Err(1));
        port.set_pause(1, LevelPause::Ends, 50);
        assert_eq!(port.enqueue(1, 1, PACKET, 60), Ok(()));
        let counts = port.queue_counts().nth(1).unwrap();
        assert_eq!((counts.storm_drops, counts.dropped.packets), (3, 3));
        assert_eq!((counts.depth.packets, port.is_empty()), (1, false));
    }
}
