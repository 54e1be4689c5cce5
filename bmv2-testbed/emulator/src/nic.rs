//! The sending side of one NIC: which connection's packet goes onto the wire next, and when.
//!
//! Connections with something to send take turns, one packet each, and a packet is made only when
//! the wire is free. Answers do not pass here: the host sends them at once, so they wait for at
//! most one packet, as in real NICs. (Behind whole windows of data, hosts that send to each other
//! would stop and go in step: measured, 84 % of the link rate.)

use std::collections::VecDeque;

use topology::Bandwidth;

use crate::transport::Nanos;

/// The sending side of a NIC. Sans-IO: [`Nic::next`] says who may send now, [`Nic::wake_at`] when
/// to ask again.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    picos_per_byte: u64,
    /// When the wire is free again, in picoseconds, so that nothing is lost to rounding.
    free_at_ps: u64,
    waiting: VecDeque<usize>,
    wake_set: bool,
}

const PICOS_PER_NANO: u64 = 1000;

impl Nic {
    /// A NIC on an idle wire.
    pub(crate) fn new(rate: Bandwidth) -> Self {
        Self {
            picos_per_byte: (1e12 / rate.bytes_per_second()).round() as u64,
            free_at_ps: 0,
            waiting: VecDeque::new(),
            wake_set: false,
        }
    }

    /// A connection has something to send; it keeps its turn if it waits already.
    pub(crate) fn wants(&mut self, connection: usize) {
        if !self.waiting.contains(&connection) {
            self.waiting.push_back(connection);
        }
    }

    /// The connection whose turn it is, if the wire is free.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<usize> {
        let is_free = self.free_at_ps < (now + 1) * PICOS_PER_NANO;
        if is_free {
            self.waiting.pop_front()
        } else {
            None
        }
    }

    /// A packet of `bytes` goes onto the wire.
    pub(crate) fn sends(&mut self, bytes: u32, now: Nanos) {
        let begins = self.free_at_ps.max(now * PICOS_PER_NANO);
        self.free_at_ps = begins + u64::from(bytes) * self.picos_per_byte;
    }

    /// When to ask again; none while nobody waits or a wake is set already.
    pub(crate) fn wake_at(&mut self) -> Option<Nanos> {
        let needed = !self.wake_set && !self.waiting.is_empty();
        self.wake_set |= needed;
        needed.then_some(self.free_at_ps / PICOS_PER_NANO)
    }

    /// The wake has come.
    pub(crate) fn woken(&mut self) {
        self.wake_set = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_turns_at_the_rate_of_the_link() {
        let mut nic = Nic::new(Bandwidth::from_gbps(200.0).unwrap());
        [7, 8, 7]
            .into_iter()
            .for_each(|connection| nic.wants(connection));
        let (mut now, mut order) = (0, Vec::new());
        for _ in 0..1000 {
            let connection = nic.next(now).unwrap();
            order.push(connection);
            nic.sends(4154, now);
            nic.wants(connection);
            assert_eq!(nic.next(now), None);
            now = nic.wake_at().unwrap();
            nic.woken();
        }
        assert_eq!(order[..4], [7, 8, 7, 8]);
        assert_eq!(now, 1000 * 4154 * 40 / 1000);
    }

    #[test]
    fn an_idle_wire_owes_nothing() {
        let mut nic = Nic::new(Bandwidth::from_gbps(200.0).unwrap());
        nic.sends(1000, 0);
        nic.wants(1);
        assert_eq!((nic.wake_at(), nic.wake_at()), (Some(40), None));
        assert_eq!(nic.next(500), Some(1));
        nic.sends(1000, 500);
        nic.woken();
        nic.wants(1);
        assert_eq!(nic.wake_at(), Some(540));
    }
}
