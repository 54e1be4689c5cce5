//! What the interfaces of a switch have counted: bytes, discards and errors, both ways.
//!
//! The paths are those of `openconfig-interfaces`. The decision: as for queues, what a switch does
//! not report is not known, which is not the same as none.

use std::collections::BTreeMap;

use p4runtime_proto::gnmi as proto;

use super::leaf_value::leaf_values;

/// What an interface has counted since its switch started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Packets received and dropped although nothing was wrong with them.
    pub received_discards: Option<u64>,
    /// Packets received that were damaged, too long or too short.
    pub received_errors: Option<u64>,
    /// Bytes sent.
    pub sent_bytes: Option<u64>,
    /// Packets dropped instead of sent, because their queue was full.
    pub sent_discards: Option<u64>,
    /// Packets that the interface failed to send.
    pub sent_errors: Option<u64>,
}

/// The counters of a switch's interfaces, by port.
pub type PortInterfaceCounters = BTreeMap<u32, InterfaceCounters>;

/// The counters in a switch's answer, whose interfaces are these ports.
pub(super) fn interfaces_from_notifications(
    ports: &BTreeMap<String, u32>,
    notifications: &[proto::Notification],
) -> PortInterfaceCounters {
    let mut counted = PortInterfaceCounters::new();
    for (steps, text) in leaf_values(notifications) {
        if let [
            ("interfaces", _),
            ("interface", Some(name)),
            ("state", _),
            ("counters", _),
            (leaf, _),
        ] = steps[..]
            && let (Some(port), Ok(count)) = (ports.get(name), text.parse())
        {
            counted.entry(*port).or_default().take_leaf(leaf, count);
        }
    }
    counted.retain(|_, counters| *counters != InterfaceCounters::default());
    counted
}

impl InterfaceCounters {
    fn take_leaf(&mut self, leaf: &str, count: u64) {
        let field = match leaf {
            "in-octets" => &mut self.received_bytes,
            "in-discards" => &mut self.received_discards,
            "in-errors" => &mut self.received_errors,
            "out-octets" => &mut self.sent_bytes,
            "out-discards" => &mut self.sent_discards,
            "out-errors" => &mut self.sent_errors,
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
    fn counters_have_the_port_of_their_interface_and_others_are_left_out() {
        let state = "interfaces/interface[name=Ethernet8]/state";
        let update = vec![
            update(&format!("{state}/counters/in-octets"), "\"700\""),
            update(&format!("{state}/openconfig-interfaces:counters/out-errors"), "3"),
            update(&format!("{state}/counters/in-fcs-errors"), "\"9\""),
            update(&format!("{state}/counters/out-octets"), "\"many\""),
            update("interfaces/interface[name=mgmt]/state/counters/in-octets", "\"1\""),
            update(&format!("{state}/id"), "3"),
        ];
        let notification = proto::Notification { update, ..proto::Notification::default() };
        let expected = InterfaceCounters {
            received_bytes: Some(700),
            sent_errors: Some(3),
            ..InterfaceCounters::default()
        };
        let answer = [notification];
        let found = interfaces_from_notifications(&interface_ports(&answer), &answer);
        assert_eq!(found, BTreeMap::from([(3, expected)]));
    }
}
