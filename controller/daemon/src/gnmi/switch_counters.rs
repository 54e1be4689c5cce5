//! What one switch counts at its ports, and how fast it counts bytes.
//!
//! The decision: a rate is the mean since the reading before. Readings are seconds apart, so that a
//! mean over several would say what was, and whoever wants one has the counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4runtime_proto::gnmi as proto;
use topology::SwitchId;

use super::interface_counters::{PortInterfaceCounters, interfaces_from_notifications};
use super::leaf_value::interface_ports;
use super::queue_counters::{PortQueueCounters, queues_from_notifications};

/// The counters of all switches that report any.
pub type FabricCounters = Arc<BTreeMap<SwitchId, SwitchCounters>>;

/// What a switch counts at its ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchCounters {
    /// By port.
    pub interfaces: PortInterfaceCounters,
    /// By port and level.
    pub queues: PortQueueCounters,
    /// Since the reading before.
    pub rates: PortRates,
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
    /// The counters in a switch's answers, which also say what port each interface is; no rates.
    pub(super) fn from_notifications(notifications: &[proto::Notification]) -> Self {
        let ports = interface_ports(notifications);
        Self {
            interfaces: interfaces_from_notifications(&ports, notifications),
            queues: queues_from_notifications(&ports, notifications),
            rates: PortRates::default(),
        }
    }

    /// These counters with the rates since an earlier reading, so many seconds before.
    #[must_use]
    pub fn since(self, earlier: &Self, seconds: f64) -> Self {
        let (were, are) = (&earlier.interfaces, &self.interfaces);
        let rates = PortRates {
            received: byte_rates(were, are, seconds, |port| port.received_bytes),
            sent: byte_rates(were, are, seconds, |port| port.sent_bytes),
            sent_by_level: byte_rates(&earlier.queues, &self.queues, seconds, |queue| {
                queue.sent_bytes
            }),
        };
        Self { rates, ..self }
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

    fn counters(received: u64, sent: Option<u64>, level: u64) -> SwitchCounters {
        let port = InterfaceCounters {
            received_bytes: Some(received),
            sent_bytes: sent,
            ..InterfaceCounters::default()
        };
        let queue = QueueCounters { sent_bytes: Some(level), ..QueueCounters::default() };
        SwitchCounters {
            interfaces: BTreeMap::from([(1, port)]),
            queues: BTreeMap::from([((1, 5), queue)]),
            rates: PortRates::default(),
        }
    }

    #[test]
    fn rates_are_of_what_was_counted_both_times() {
        let first = counters(100, None, 1_000);
        let second = counters(600, Some(7), 400).since(&first, 10.0);
        let expected = PortRates {
            received: BTreeMap::from([(1, 50.0)]),
            sent: BTreeMap::new(),
            // It has started anew.
            sent_by_level: BTreeMap::from([((1, 5), 40.0)]),
        };
        assert_eq!(second.rates, expected);
        let third = counters(600, Some(27), 400).since(&second, 10.0);
        assert_eq!(third.rates.sent, BTreeMap::from([(1, 2.0)]));
        assert_eq!(third.clone().since(&third, 0.0).rates, PortRates::default(), "no time passed");
    }
}
