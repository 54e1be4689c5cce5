//! Metrics of ports and queues, where switches report over gNMI what they count.
//!
//! Pure. The decision: a counter that a switch does not report has no sample, since none would mean
//! that nothing was lost.

use super::MetricFamily;
use crate::gnmi::{InterfaceCounters, QueueCounters, SwitchCounters};
use crate::northbound::controller_view::ControllerView;

type InterfaceMetric = (&'static str, &'static str, fn(&InterfaceCounters) -> Option<u64>);

const OF_INTERFACES: [InterfaceMetric; 6] = [
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

type QueueMetric = (&'static str, &'static str, fn(&QueueCounters) -> Option<u64>);

const OF_QUEUES: [QueueMetric; 5] = [
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
pub(super) fn port_families(view: &ControllerView) -> Vec<MetricFamily> {
    let fabric = &view.rollout.fabric;
    let known = fabric.switch_ids();
    let switches: Vec<(&str, &SwitchCounters)> = known
        .filter_map(|id| Some((&*fabric.switch(id).name, view.port_counters.get(&id)?)))
        .collect();
    let of_interfaces = OF_INTERFACES.map(|(name, help, value)| {
        let samples = switches.iter().flat_map(|(switch, counters)| {
            let counted = counters.interfaces.iter();
            counted.filter_map(move |(port, interface)| {
                let labels = vec![("switch", (*switch).to_owned()), ("port", port.to_string())];
                Some((labels, value(interface)? as f64))
            })
        });
        MetricFamily { name, kind: "counter", help, samples: samples.collect() }
    });
    let of_queues = OF_QUEUES.map(|(name, help, value)| {
        let samples = switches.iter().flat_map(|(switch, counters)| {
            let counted = counters.queues.iter();
            counted.filter_map(move |((port, level), queue)| {
                let labels = vec![
                    ("switch", (*switch).to_owned()),
                    ("port", port.to_string()),
                    ("level", level.to_string()),
                ];
                Some((labels, value(queue)? as f64))
            })
        });
        MetricFamily { name, kind: "counter", help, samples: samples.collect() }
    });
    of_interfaces.into_iter().chain(of_queues).collect()
}
