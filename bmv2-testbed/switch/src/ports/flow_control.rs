//! The shared buffer of a device on interfaces, and frames of IEEE 802.1Qbb to and from them.
//!
//! Sans I/O. [`FlowControl`] has the accounts of the device and says which pauses to send;
//! [`PortPauses`] knows how long a port's levels are paused by its neighbour. A pause ends by
//! itself after the quanta that its frame names, so one that goes on is repeated.

use super::PortShape;
use crate::device::QueuedPacket;
use crate::scheduler::LevelPause;
use crate::time::Nanos;
use crate::traffic::pause_frame::quanta_nanos;
use crate::traffic::shared_buffer::{BufferAdmission, PriorityGroup, SharedBuffer};
use crate::traffic::{BufferCounts, PauseFrame, TrafficSettings};

/// The rate of a port that has none of its own: its quanta last as long as those of 10 Gb/s.
const UNSHAPED_RATE: u64 = 10_000_000_000;
/// The longest pause that a frame can ask for.
const MOST_QUANTA: u16 = u16::MAX;
/// How long the neighbour's program may take to react, for the headroom.
const REACTION_NS: Nanos = 100_000;
/// Levels that a frame can name.
const LEVELS: usize = 8;

/// The rate at which a port's quanta count.
pub(super) fn quanta_rate(shape: PortShape) -> u64 {
    shape.bits_per_second.map_or(UNSHAPED_RATE, u64::from)
}

/// The buffer of a device and the pauses that it asks for.
#[derive(Debug)]
pub(super) struct FlowControl {
    settings: TrafficSettings,
    buffer: Option<SharedBuffer>,
    /// Pauses to send, in order.
    pending: Vec<(PriorityGroup, LevelPause)>,
    /// When pauses that go on are repeated.
    refresh_at: Option<Nanos>,
    refresh_ns: Nanos,
}

impl FlowControl {
    pub(super) fn new(settings: &TrafficSettings) -> Self {
        Self {
            settings: settings.clone(),
            buffer: settings.buffer.map(SharedBuffer::new),
            pending: Vec::new(),
            refresh_at: None,
            refresh_ns: Nanos::MAX,
        }
    }

    pub(super) fn settings(&self) -> &TrafficSettings {
        &self.settings
    }

    /// Whether frames of flow control are sent and obeyed.
    pub(super) fn is_lossless(&self) -> bool {
        self.buffer.is_some()
    }

    pub(super) fn buffer_counts(&self) -> Option<BufferCounts> {
        self.buffer.as_ref().map(|buffer| buffer.counts().clone())
    }

    pub(super) fn add_port(&mut self, port: u16, shape: PortShape) {
        let rate = quanta_rate(shape);
        self.refresh_ns = self.refresh_ns.min(quanta_nanos(MOST_QUANTA, rate) / 4);
        if let Some(buffer) = &mut self.buffer {
            buffer.add_port(port, rate, REACTION_NS);
        }
    }

    /// Whether a packet may join a queue of so many bytes; a pause that it causes is pending.
    pub(super) fn admit(&mut self, departure: &QueuedPacket, queued: u64) -> bool {
        let Some(buffer) = &mut self.buffer else {
            return true;
        };
        let group = departure.group;
        match buffer.admit(group, queued, departure.queued_bytes()) {
            BufferAdmission::Admitted => true,
            BufferAdmission::Refused => false,
            BufferAdmission::AdmittedWithPause => {
                self.pending.push((group, LevelPause::Begins));
                true
            }
        }
    }

    /// Gives back the room of a packet that leaves its queue; a pause that ends by that is pending.
    pub(super) fn release(&mut self, departure: &QueuedPacket) {
        if let Some(buffer) = &mut self.buffer
            && buffer.release(departure.group, departure.queued_bytes())
        {
            self.pending.push((departure.group, LevelPause::Ends));
        }
    }

    /// The frames to send at `now`, with their ports.
    pub(super) fn take_frames(&mut self, now: Nanos) -> Vec<(u16, PauseFrame)> {
        self.repeat_pauses(now);
        let pending = self.pending.drain(..);
        let frames: Vec<_> = pending
            .map(|(group, pause)| {
                let quanta = if pause == LevelPause::Begins { MOST_QUANTA } else { 0 };
                let [high, low] = group.port().to_be_bytes();
                let frame =
                    PauseFrame::for_level([2, 0, 0, 0, high, low], group.priority(), quanta);
                (group.port(), frame)
            })
            .collect();
        if let (None, Some(buffer)) = (self.refresh_at, &self.buffer)
            && buffer.paused_groups().next().is_some()
        {
            self.refresh_at = Some(now + self.refresh_ns);
        }
        frames
    }

    /// When [`FlowControl::take_frames`] has something, if nothing else happens.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.refresh_at
    }

    fn repeat_pauses(&mut self, now: Nanos) {
        if self.refresh_at.is_none_or(|at| at > now) {
            return;
        }
        self.refresh_at = None;
        let paused = self.buffer.iter().flat_map(SharedBuffer::paused_groups);
        self.pending.extend(paused.map(|group| (group, LevelPause::Begins)));
    }
}

/// Until when a neighbour pauses the levels of a port.
#[derive(Debug, Default)]
pub(super) struct PortPauses {
    until: [Option<Nanos>; LEVELS],
    /// When a pause is broken, and its number.
    limits: [Option<(Nanos, u64)>; LEVELS],
}

impl PortPauses {
    /// A level is paused until then, by the pause of this number.
    pub(super) fn begin(&mut self, level: u8, until: Nanos, limit: Option<(Nanos, u64)>) {
        let level = usize::from(level);
        self.until[level] = Some(until);
        let is_new =
            self.limits[level].map(|(_, number)| number) != limit.map(|(_, number)| number);
        if is_new {
            self.limits[level] = limit;
        }
    }

    /// A level is no longer paused.
    pub(super) fn end(&mut self, level: u8) {
        (self.until[usize::from(level)], self.limits[usize::from(level)]) = (None, None);
    }

    /// Levels whose pauses have ended by `now`.
    pub(super) fn ended(&self, now: Nanos) -> Vec<u8> {
        let levels = (0..).zip(&self.until);
        levels.filter(|(_, until)| until.is_some_and(|at| at <= now)).map(|(l, _)| l).collect()
    }

    /// Takes out levels whose pauses have reached their limit by `now`, with their numbers.
    pub(super) fn take_broken(&mut self, now: Nanos) -> Vec<(u8, u64)> {
        let levels = (0..).zip(&mut self.limits);
        levels
            .filter_map(|(level, limit)| {
                let (_, number) = limit.take_if(|(at, _)| *at <= now)?;
                Some((level, number))
            })
            .collect()
    }

    /// When something here is due.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let limits = self.limits.iter().flatten().map(|(at, _)| *at);
        self.until.iter().flatten().copied().chain(limits).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_pause_lasts_longer_and_keeps_its_limit() {
        let mut pauses = PortPauses::default();
        pauses.begin(3, 100, Some((500, 1)));
        pauses.begin(3, 400, Some((900, 1)));
        assert_eq!((pauses.ended(399), pauses.ended(400)), (vec![], vec![3]));
        assert_eq!(pauses.next_deadline(), Some(400));
        assert_eq!((pauses.take_broken(499), pauses.take_broken(500)), (vec![], vec![(3, 1)]));
        pauses.end(3);
        assert_eq!(pauses.next_deadline(), None);
    }
}
