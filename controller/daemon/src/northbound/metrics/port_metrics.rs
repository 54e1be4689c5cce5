//! Metrics of ports and queues, where switches report over gNMI what they count.
//!
//! Pure. The decision: a counter that a switch does not report has no sample, since none would mean
//! that nothing was lost.

use super::MetricsText;
use crate::gnmi::{InterfaceCounters, QueueCounters};
use crate::northbound::controller_view::ControllerView;

/// Name, help, and the count of one thing that counts.
type CounterMetric<C> = (&'static str, &'static str, fn(&C) -> Option<u64>);

const OF_INTERFACES: [CounterMetric<InterfaceCounters>; 6] = [
    ("crux_interface_received_bytes_total", "Bytes received by a port", |it| it.received_bytes),
    ("crux_interface_sent_bytes_total", "Bytes sent by a port", |it| it.sent_bytes),
    ("crux_interface_received_discards_total", "Packets received by a port and dropped", |it| {
        it.received_discards
    }),
    ("crux_interface_sent_discards_total", "Packets dropped instead of sent by a port", |it| {
        it.sent_discards
    }),
    ("crux_interface_received_errors_total", "Packets that reached a port damaged", |it| {
        it.received_errors
    }),
    ("crux_interface_sent_errors_total", "Packets that a port failed to send", |it| it.sent_errors),
];

const OF_QUEUES: [CounterMetric<QueueCounters>; 5] = [
    ("crux_queue_sent_bytes_total", "Bytes that have left a queue", |queue| queue.sent_bytes),
    ("crux_queue_marked_packets_total", "Packets that a queue has marked with ECN", |queue| {
        queue.marked
    }),
    ("crux_queue_dropped_packets_total", "Packets that a queue has dropped", |queue| queue.dropped),
    (
        "crux_queue_received_pauses_total",
        "Pauses of a level that the neighbour of a port asked for (PFC)",
        |queue| queue.pauses_received,
    ),
    (
        "crux_queue_sent_pauses_total",
        "Pauses of a level that a port asked of its neighbour (PFC)",
        |queue| queue.pauses_sent,
    ),
];

/// What ports and their queues count, where switches report it over gNMI.
pub(super) fn add_ports(text: &mut MetricsText, view: &ControllerView) {
    let fabric = &view.rollout.fabric;
    let (mut interfaces, mut queues) = (Vec::new(), Vec::new());
    for id in fabric.switch_ids() {
        let Some(counters) = view.port_counters.get(&id) else {
            continue;
        };
        let labels = |port: &u32| {
            vec![("switch", fabric.switch(id).name.clone()), ("port", port.to_string())]
        };
        interfaces.extend(counters.interfaces.iter().map(|(port, found)| (labels(port), found)));
        queues.extend(counters.queues.iter().map(|((port, level), found)| {
            ([labels(port), vec![("level", level.to_string())]].concat(), found)
        }));
    }
    add_counters(text, &OF_INTERFACES, &interfaces);
    add_counters(text, &OF_QUEUES, &queues);
}

/// The metrics of all that count them, each with its labels.
fn add_counters<C>(
    text: &mut MetricsText,
    metrics: &[CounterMetric<C>],
    counted: &[(Vec<(&'static str, String)>, &C)],
) {
    for (name, help, value) in metrics {
        let samples = counted
            .iter()
            .filter_map(|(labels, counters)| Some((labels.clone(), value(counters)? as f64)));
        text.add_counter(name, help, samples);
    }
}
