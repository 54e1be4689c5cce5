//! What one switch counts at its ports, and how fast it counts bytes.
//!
//! The decision: a rate is the mean since the reading before. Readings are seconds apart, so a
//! mean over several would describe the past; metrics have the counters for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4runtime_proto::gnmi as proto;
use topology::SwitchId;

use super::backlogged_rates::{BackloggedRates, QueueReading};
use super::interface_counters::{PortInterfaceCounters, interfaces_from_notifications};
use super::leaf_value::interface_ports;
use super::queue_counters::{PortQueueCounters, queues_from_notifications};

/// The counters of all switches that report any.
pub type FabricCounters = Arc<BTreeMap<SwitchId, SwitchCounters>>;

/// What a switch counts at its ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchCounters {
    /// When it was read, in seconds of a clock that all switches share.
    pub read_at: f64,
    /// Seconds since the reading before.
    pub interval: f64,
    /// By port.
    pub interfaces: PortInterfaceCounters,
    /// By port and level.
    pub queues: PortQueueCounters,
    /// Since the reading before.
    pub rates: PortRates,
    /// While packets waited, by port.
    pub backlogged: BTreeMap<u32, BackloggedRates>,
}

/// Bytes per second at the ports of a switch, where it counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortRates {
    /// Received, by port.
    pub received: BTreeMap<u32, f64>,
    /// Sent, by port.
    pub sent: BTreeMap<u32, f64>,
    /// Sent, by port and level.
    pub sent_by_level: BTreeMap<(u32, u8), f64>,
}

impl SwitchCounters {
    /// The counters in a switch's answers, which also say what port each interface is, as they were
    /// at `read_at`; no rates.
    pub(super) fn from_notifications(notifications: &[proto::Notification], read_at: f64) -> Self {
        let ports = interface_ports(notifications);
        Self {
            read_at,
            interfaces: interfaces_from_notifications(&ports, notifications),
            queues: queues_from_notifications(&ports, notifications),
            ..Self::default()
        }
    }

    /// These counters with what follows from an earlier reading: rates, and what they say of ports
    /// after those before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let interval = self.read_at - earlier.read_at;
        let (were, are) = (&earlier.interfaces, &self.interfaces);
        let rates = PortRates {
            received: byte_rates(were, are, interval, |port| port.received_bytes),
            sent: byte_rates(were, are, interval, |port| port.sent_bytes),
            sent_by_level: byte_rates(&earlier.queues, &self.queues, interval, |queue| {
                queue.sent_bytes
            }),
        };
        let before = earlier.queue_readings();
        let mut backlogged = earlier.backlogged;
        for (port, later) in self.queue_readings() {
            if let Some(earlier) = before.get(&port) {
                backlogged.entry(port).or_default().add_time(earlier, &later, interval);
            }
        }
        Self { interval, rates, backlogged, ..self }
    }

    /// The queues of each port together.
    fn queue_readings(&self) -> BTreeMap<u32, QueueReading> {
        let mut ports: BTreeMap<u32, QueueReading> = BTreeMap::new();
        for ((port, _), queue) in &self.queues {
            ports.entry(*port).or_default().add_queue(queue);
        }
        ports
    }
}

/// Bytes per second of what was counted both times. A smaller count means that the switch started
/// anew, so all of it is new.
fn byte_rates<K: Copy + Ord, C>(
    earlier: &BTreeMap<K, C>,
    later: &BTreeMap<K, C>,
    seconds: f64,
    bytes: impl Fn(&C) -> Option<u64>,
) -> BTreeMap<K, f64> {
    let counted = later.iter().filter_map(|(key, counters)| {
        let (was, is) = (earlier.get(key).and_then(&bytes)?, bytes(counters)?);
        Some((*key, is.checked_sub(was).unwrap_or(is) as f64 / seconds))
    });
    if seconds > 0.0 { counted.collect() } else { BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::super::interface_counters::InterfaceCounters;
    use super::super::queue_counters::QueueCounters;
    use super::*;

    fn counters(read_at: f64, received: u64, sent: Option<u64>, level: u64) -> SwitchCounters {
        let port = InterfaceCounters {
            received_bytes: Some(received),
            sent_bytes: sent,
            ..InterfaceCounters::default()
        };
        let queue = QueueCounters { sent_bytes: Some(level), ..QueueCounters::default() };
        SwitchCounters {
            read_at,
            interfaces: BTreeMap::from([(1, port)]),
            queues: BTreeMap::from([((1, 5), queue)]),
            ..SwitchCounters::default()
        }
    }

    #[test]
    fn rates_are_of_what_was_counted_both_times() {
        let first = counters(0.0, 100, None, 1_000);
        let second = counters(10.0, 600, Some(7), 400).since(first);
        let expected = PortRates {
            received: BTreeMap::from([(1, 50.0)]),
            sent: BTreeMap::new(),
            // It has started anew.
            sent_by_level: BTreeMap::from([((1, 5), 40.0)]),
        };
        assert_eq!(second.rates, expected);
        let third = counters(20.0, 600, Some(27), 400).since(second);
        assert_eq!((third.interval, &third.rates.sent), (10.0, &BTreeMap::from([(1, 2.0)])));
        assert_eq!(third.clone().since(third).rates, PortRates::default(), "no time passed");
    }
}
