//! What the queues of a switch have counted, by port and level: bytes, marks, drops and pauses.
//!
//! P4Runtime has no counters of queues. OpenConfig has drops, and SONiC's models beside it
//! (`openconfig-qos-ext`) have marks and pause frames. The decision: what a switch does not report
//! is not known, which is not the same as none.

use std::collections::BTreeMap;

use p4runtime_proto::gnmi as proto;

use super::leaf_value::leaf_values;
use super::queue_maps::queue_number;

/// What one level of a port has counted since its switch started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Bytes sent.
    pub sent_bytes: Option<u64>,
    /// Bytes that wait now: a gauge.
    pub waiting_bytes: Option<u64>,
    /// Packets marked with ECN.
    pub marked: Option<u64>,
    /// Packets dropped.
    pub dropped: Option<u64>,
    /// Pauses of this level that the neighbour asked for.
    pub pauses_received: Option<u64>,
    /// Pauses of this level that were asked of the neighbour.
    pub pauses_sent: Option<u64>,
}

/// The counters of a switch's queues, by port and level.
pub type PortQueueCounters = BTreeMap<(u32, u8), QueueCounters>;

/// The counters in a switch's answer, whose interfaces are these ports.
pub(super) fn queues_from_notifications(
    ports: &BTreeMap<String, u32>,
    notifications: &[proto::Notification],
) -> PortQueueCounters {
    let mut counted = PortQueueCounters::new();
    for (steps, text) in leaf_values(notifications) {
        if let [("qos", _), ("interfaces", _), ("interface", Some(name)), .., (leaf, _)] = steps[..]
        {
            let key = steps.iter().rev().find_map(|(_, key)| *key);
            let level = key.and_then(queue_number);
            if let (Some(port), Some(level), Ok(count)) = (ports.get(name), level, text.parse()) {
                counted.entry((*port, level)).or_default().take_leaf(leaf, count);
            }
        }
    }
    counted.retain(|_, counters| *counters != QueueCounters::default());
    counted
}

impl QueueCounters {
    fn take_leaf(&mut self, leaf: &str, count: u64) {
        let field = match leaf {
            "transmit-octets" => &mut self.sent_bytes,
            "avg-queue-len" => &mut self.waiting_bytes,
            "ecn-marked-pkts" => &mut self.marked,
            "dropped-pkts" => &mut self.dropped,
            "pause-frames-rx" => &mut self.pauses_received,
            "pause-frames-tx" => &mut self.pauses_sent,
            _ => return,
        };
        *field = Some(count);
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf_value::{interface_ports, tests::update};
    use super::*;

    #[test]
    fn counters_have_the_port_of_their_interface_whatever_comes_first() {
        let queue =
            "qos/interfaces/interface[interface-id=Ethernet8]/output/queues/queue[name=UC5]";
        let pause = "openconfig-qos:qos/interfaces/interface[interface-id=Ethernet8]/pfc/\
                     pfc-priorities/pfc-priority[dot1p=5]/state/statistics";
        let unknown =
            "qos/interfaces/interface[interface-id=Ethernet9]/output/queues/queue[name=1]";
        let update = vec![
            update(&format!("{queue}/state/ecn-marked-pkts"), "\"12\""),
            update(&format!("{queue}/state/transmit-pkts"), "\"99\""),
            update(&format!("{pause}/pause-frames-rx"), "\"3\""),
            update(&format!("{unknown}/state/dropped-pkts"), "\"7\""),
            update("interfaces/interface[name=Ethernet8]/state/id", "3"),
        ];
        let notification = proto::Notification { update, ..proto::Notification::default() };
        let answer = [notification];
        let found = queues_from_notifications(&interface_ports(&answer), &answer);
        let expected = QueueCounters {
            marked: Some(12),
            pauses_received: Some(3),
            ..QueueCounters::default()
        };
        assert_eq!(found, BTreeMap::from([((3, 5), expected)]));
    }
}
