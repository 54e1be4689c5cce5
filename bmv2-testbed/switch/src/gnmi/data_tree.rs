//! The values that a switch reports, leaf by leaf, from what is known of its ports.
//!
//! Two kinds, because they are sent differently: state changes seldom and is sent when it does,
//! counters change all the time and are sampled.

use p4runtime_proto::gnmi as proto;

use super::path::LeafPath;
use super::qos_maps::{CLASSES, QosMaps, SchedulerType};
use crate::device::port_report::{PortReport, PortState};
use crate::p4runtime::pins::PortNames;

/// Counters of a queue: packets and bytes that left, then those that found it full.
const QUEUE_COUNTERS: [&str; 4] = [
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/transmit-pkts",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/transmit-octets",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/dropped-pkts",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/dropped-octets",
];

/// What is reported of a device beside the states and counters of its ports.
#[derive(Debug)]
pub(super) struct DataTree {
    names: PortNames,
    qos: QosMaps,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GnmiLeaf {
    pub(super) path: LeafPath,
    pub(super) value: LeafValue,
    pub(super) kind: LeafKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeafValue {
    Text(String),
    Number(u64),
}

/// How a leaf is sent to subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafKind {
    /// When it changes.
    State,
    /// At intervals.
    Counter,
}

impl DataTree {
    pub(super) fn new(names: PortNames, qos: QosMaps) -> Self {
        Self { names, qos }
    }

    /// What changes seldom: ports, their states and the maps of queues.
    pub(super) fn state_leaves(&self, ports: &[(u16, PortState)]) -> Vec<GnmiLeaf> {
        let mut leaves = Vec::new();
        for &(number, state) in ports {
            let name = self.interface_name(number);
            let status = match state {
                PortState::Up => "UP",
                PortState::Down => "DOWN",
                PortState::Absent => "NOT_PRESENT",
            };
            let name = name.as_str();
            let mut add = |path, value| leaves.push(state_leaf(path, &[name], value));
            add("interfaces/interface[name]/state/name", text(name));
            add("interfaces/interface[name]/state/id", number.into());
            add("interfaces/interface[name]/state/admin-status", text("UP"));
            add("interfaces/interface[name]/state/oper-status", text(status));
        }
        self.add_qos_leaves(&mut leaves);
        leaves
    }

    fn add_qos_leaves(&self, leaves: &mut Vec<GnmiLeaf>) {
        const CLASSIFIER: &str = "dscp-to-class";
        const POLICY: &str = "queues";
        for (dscp, class) in self.qos.dscp_to_class.iter().enumerate() {
            let term = dscp.to_string();
            let keys = [CLASSIFIER, &*term];
            let mut add = |path, value| leaves.push(state_leaf(path, &keys, value));
            add(
                "qos/classifiers/classifier[name]/terms/term[id]/conditions/ipv4/state/dscp",
                (dscp as u64).into(),
            );
            add(
                "qos/classifiers/classifier[name]/terms/term[id]/actions/state/target-group",
                text(&class_name(*class)),
            );
        }
        for class in 0..CLASSES {
            let queue = self.qos.class_to_queue[class].to_string();
            let group = class_name(class as u8);
            let path = "qos/forwarding-groups/forwarding-group[name]/state/output-queue";
            leaves.push(state_leaf(path, &[&group], LeafValue::Text(queue)));
        }
        for (queue, scheduler) in self.qos.schedulers.iter().enumerate() {
            let queue = queue.to_string();
            let path = "qos/scheduler-policies/scheduler-policy[name]/schedulers/\
                        scheduler[sequence]/inputs/input[id]/state/queue";
            leaves.push(state_leaf(path, &[POLICY, &queue, &queue], text(&queue)));
            if *scheduler == SchedulerType::Strict {
                let path = "qos/scheduler-policies/scheduler-policy[name]/schedulers/\
                            scheduler[sequence]/state/priority";
                leaves.push(state_leaf(path, &[POLICY, &queue], text("STRICT")));
            }
        }
    }

    /// What changes all the time.
    pub(super) fn counter_leaves(&self, reports: &[PortReport]) -> Vec<GnmiLeaf> {
        let mut leaves = Vec::new();
        for report in reports {
            let name = self.interface_name(report.number);
            let name = name.as_str();
            let sent = |count: fn(&crate::run::counter::CounterData) -> u64| {
                report.queues.iter().map(|queue| count(&queue.sent)).sum::<u64>()
            };
            let dropped: u64 = report.queues.iter().map(|queue| queue.dropped.packets).sum();
            let sent_packets = sent(|data| data.packets).saturating_sub(report.lost);
            let mut add = |path, number: u64| leaves.push(counter_leaf(path, &[name], number));
            add("interfaces/interface[name]/state/counters/in-pkts", report.received.packets);
            add("interfaces/interface[name]/state/counters/in-octets", report.received.bytes);
            add("interfaces/interface[name]/state/counters/in-discards", report.refused);
            add("interfaces/interface[name]/state/counters/out-pkts", sent_packets);
            add("interfaces/interface[name]/state/counters/out-octets", sent(|data| data.bytes));
            add("interfaces/interface[name]/state/counters/out-discards", dropped + report.lost);
            for (queue, counts) in report.queues.iter().enumerate() {
                let queue = queue.to_string();
                let keys = [name, &*queue];
                let counted = [
                    counts.sent.packets,
                    counts.sent.bytes,
                    counts.dropped.packets,
                    counts.dropped.bytes,
                ];
                let paths = QUEUE_COUNTERS.into_iter().zip(counted);
                leaves.extend(paths.map(|(path, number)| counter_leaf(path, &keys, number)));
            }
        }
        leaves
    }

    fn interface_name(&self, number: u16) -> String {
        let configured = self.names.configured_name(number).map(str::to_owned);
        configured.unwrap_or_else(|| format!("Ethernet{number}"))
    }
}

impl GnmiLeaf {
    pub(super) fn to_update(&self, encoding: proto::Encoding) -> proto::Update {
        proto::Update {
            path: Some(self.path.to_proto()),
            val: Some(self.value.to_proto(encoding)),
            ..proto::Update::default()
        }
    }
}

impl LeafValue {
    /// The value in an encoding. RFC 7951 writes numbers of 64 bits as strings.
    fn to_proto(&self, encoding: proto::Encoding) -> proto::TypedValue {
        use proto::typed_value::Value;
        let value = match (self, encoding) {
            (Self::Text(text), proto::Encoding::JsonIetf) => Value::JsonIetfVal(json_text(text)),
            (Self::Text(text), proto::Encoding::Json) => Value::JsonVal(json_text(text)),
            (Self::Text(text), _) => Value::StringVal(text.clone()),
            (Self::Number(number), proto::Encoding::JsonIetf) => {
                Value::JsonIetfVal(json_text(&number.to_string()))
            }
            (Self::Number(number), proto::Encoding::Json) => {
                Value::JsonVal(number.to_string().into_bytes())
            }
            (Self::Number(number), _) => Value::UintVal(*number),
        };
        proto::TypedValue { value: Some(value) }
    }
}

impl From<u64> for LeafValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for LeafValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

fn text(text: &str) -> LeafValue {
    LeafValue::Text(text.to_owned())
}

fn json_text(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

fn class_name(class: u8) -> String {
    format!("class-{class}")
}

fn state_leaf(path: &'static str, keys: &[&str], value: LeafValue) -> GnmiLeaf {
    GnmiLeaf { path: LeafPath::new(path, keys), value, kind: LeafKind::State }
}

fn counter_leaf(path: &'static str, keys: &[&str], number: u64) -> GnmiLeaf {
    let value = LeafValue::Number(number);
    GnmiLeaf { path: LeafPath::new(path, keys), value, kind: LeafKind::Counter }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::counter::CounterData;
    use crate::scheduler::QueueCounts;

    fn leaf_text(leaf: &GnmiLeaf) -> String {
        let steps = leaf.path.0.iter().map(|step| match &step.key {
            Some((key, value)) => format!("/{}[{key}={value}]", step.name),
            None => format!("/{}", step.name),
        });
        match &leaf.value {
            LeafValue::Text(text) => format!("{}: {text}", steps.collect::<String>()),
            LeafValue::Number(number) => format!("{}: {number}", steps.collect::<String>()),
        }
    }

    #[test]
    fn ports_queues_and_maps_have_the_paths_of_openconfig() {
        let names = PortNames::new([(1, "Ethernet0".to_owned())]).unwrap();
        let tree = DataTree::new(names, QosMaps::default());
        let counts = QueueCounts {
            sent: CounterData { packets: 5, bytes: 500 },
            dropped: CounterData { packets: 2, bytes: 200 },
            ..QueueCounts::default()
        };
        let report = PortReport {
            number: 1,
            state: PortState::Down,
            received: CounterData { packets: 7, bytes: 700 },
            refused: 1,
            lost: 3,
            queues: vec![QueueCounts::default(), counts],
        };
        let mut leaves = tree.state_leaves(&[(1, PortState::Down), (9, PortState::Up)]);
        leaves.extend(tree.counter_leaves(&[report]));
        let found: Vec<String> = leaves.iter().map(leaf_text).collect();
        for expected in [
            "/interfaces/interface[name=Ethernet0]/state/oper-status: DOWN",
            "/interfaces/interface[name=Ethernet0]/state/id: 1",
            "/interfaces/interface[name=Ethernet9]/state/oper-status: UP",
            "/interfaces/interface[name=Ethernet0]/state/counters/in-octets: 700",
            "/interfaces/interface[name=Ethernet0]/state/counters/out-pkts: 2",
            "/interfaces/interface[name=Ethernet0]/state/counters/out-discards: 5",
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues/queue[name=1]/state/\
             transmit-pkts: 5",
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues/queue[name=1]/state/\
             dropped-octets: 200",
            "/qos/classifiers/classifier[name=dscp-to-class]/terms/term[id=40]/actions/state/\
             target-group: class-5",
            "/qos/forwarding-groups/forwarding-group[name=class-5]/state/output-queue: 5",
            "/qos/scheduler-policies/scheduler-policy[name=queues]/schedulers/\
             scheduler[sequence=5]/state/priority: STRICT",
        ] {
            assert!(found.iter().any(|leaf| leaf == expected), "{expected} in {found:#?}");
        }
    }

    #[test]
    fn values_are_written_in_the_encoding_that_was_asked_for() {
        use proto::typed_value::Value;
        let value = |value: LeafValue, encoding| value.to_proto(encoding).value.unwrap();
        let (json, ietf) = (proto::Encoding::Json, proto::Encoding::JsonIetf);
        assert_eq!(value(7_u64.into(), json), Value::JsonVal(b"7".to_vec()));
        assert_eq!(value(7_u64.into(), ietf), Value::JsonIetfVal(b"\"7\"".to_vec()));
        assert_eq!(value(7_u64.into(), proto::Encoding::Proto), Value::UintVal(7));
        assert_eq!(value(text("a\"b"), ietf), Value::JsonIetfVal(b"\"a\\\"b\"".to_vec()));
    }
}
