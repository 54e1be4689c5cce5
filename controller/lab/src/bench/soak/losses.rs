//! Which lost packets a fault explains: those under way between its beginning and its repair.

use std::collections::BTreeMap;

use switch::Nanos;

use super::traffic::{LATE, LostPacket};

/// A time in which packets may get lost, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LossWindow {
    why: &'static str,
    from: Nanos,
    to: Nanos,
}

/// Loss windows, and the packets lost in and outside them.
#[derive(Debug, Default)]
pub(super) struct PacketLosses {
    windows: Vec<LossWindow>,
    explained: BTreeMap<&'static str, u64>,
    unexplained: Vec<Nanos>,
}

impl PacketLosses {
    /// Adds a window in which packets may be lost.
    pub(super) fn add_window(&mut self, why: &'static str, from: Nanos, to: Nanos) {
        self.windows.push(LossWindow { why, from, to });
    }

    /// Attributes lost packets to the window in which they were in flight, if there is one.
    pub(super) fn classify_losses(&mut self, lost: &[LostPacket], now: Nanos) {
        for LostPacket { sent } in lost {
            match self
                .windows
                .iter()
                .find(|window| window.from <= sent + TRIP && *sent <= window.to)
            {
                Some(window) => *self.explained.entry(window.why).or_default() += 1,
                None => self.unexplained.push(*sent),
            }
        }
        // Packets classified later were sent later, so older windows are not needed.
        self.windows.retain(|window| window.to + 4 * LATE > now);
    }

    pub(super) fn explained(&self) -> &BTreeMap<&'static str, u64> {
        &self.explained
    }

    /// When the unexplained losses were sent, in nanoseconds of the fabric.
    pub(super) fn unexplained(&self) -> &[Nanos] {
        &self.unexplained
    }
}

/// The longest flight time of a packet that arrives.
const TRIP: Nanos = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_explains_what_was_under_way_while_it_lasted() {
        let mut losses = PacketLosses::default();
        let (from, to) = (50 * TRIP, 60 * TRIP);
        losses.add_window("cable", from, to);
        let lost = [from - 2 * TRIP, from - TRIP, from, to, to + 1];
        losses.classify_losses(&lost.map(|sent| LostPacket { sent }), to);
        assert_eq!(losses.explained(), &BTreeMap::from([("cable", 3)]));
        assert_eq!(losses.unexplained(), [from - 2 * TRIP, to + 1]);
    }
}
