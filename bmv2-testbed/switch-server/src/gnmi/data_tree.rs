//! The values that a switch reports, leaf by leaf, from what is known of its ports.
//!
//! Two kinds, because they are sent differently: state changes seldom and is sent when it does,
//! counters change all the time and are sampled.

use p4runtime_proto::gnmi as proto;

use super::path::LeafPath;
use super::qos_maps::{CLASSES, QosMaps, SchedulerType};
use crate::p4runtime::pins::PortNames;
use switch::MarkingRamp;
use switch::{PortReport, PortState};

/// Counters of a queue: packets and bytes that left, then those that found it full, the bytes that
/// wait now, and packets that it marked (the last is of SONiC's `openconfig-qos-ext`).
const QUEUE_COUNTERS: [&str; 6] = [
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/transmit-pkts",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/transmit-octets",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/dropped-pkts",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/dropped-octets",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/avg-queue-len",
    "qos/interfaces/interface[interface-id]/output/queues/queue[name]/state/ecn-marked-pkts",
];

/// Pauses of a priority: those that the neighbour asked for, and those asked of it
/// (`openconfig-qos-ext`).
const PAUSE_COUNTERS: [&str; 2] = [
    "qos/interfaces/interface[interface-id]/pfc/pfc-priorities/pfc-priority[dot1p]/state/\
     statistics/pause-frames-rx",
    "qos/interfaces/interface[interface-id]/pfc/pfc-priorities/pfc-priority[dot1p]/state/\
     statistics/pause-frames-tx",
];

/// A neighbour's name and the port of it; they are sampled, as nothing tells when they change.
const NEIGHBOUR_LEAVES: [&str; 2] = [
    "lldp/interfaces/interface[name]/neighbors/neighbor[id]/state/system-name",
    "lldp/interfaces/interface[name]/neighbors/neighbor[id]/state/port-id",
];

/// The name of the only profile by which queues mark.
const MARKING_PROFILE: &str = "ecn";

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
    Flag(bool),
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
            let name = self.names.interface_name(number);
            let status = match state {
                PortState::Up => "UP",
                PortState::Down => "DOWN",
                PortState::Absent => "NOT_PRESENT",
            };
            let name = name.as_str();
            let mut add = |path, value| leaves.push(state_leaf(path, &[name], value));
            add("interfaces/interface[name]/state/name", text(name));
            add("interfaces/interface[name]/state/id", number.into());
            // As Stratum has it; finsy takes the numbers of ports from here.
            add("interfaces/interface[name]/state/ifindex", number.into());
            add("interfaces/interface[name]/state/admin-status", text("UP"));
            add("interfaces/interface[name]/state/oper-status", text(status));
            self.add_queue_settings(name, &mut leaves);
        }
        self.add_qos_leaves(&mut leaves);
        self.add_marking_profile(&mut leaves);
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

    /// How the queues of a port mark and whether they pause, if there is such a thing.
    fn add_queue_settings(&self, interface: &str, leaves: &mut Vec<GnmiLeaf>) {
        for queue in 0..CLASSES {
            let number = queue.to_string();
            let keys = [interface, &*number];
            if self.qos.marking.is_some() {
                let path = "qos/interfaces/interface[interface-id]/output/queues/queue[name]/\
                            state/queue-management-profile";
                leaves.push(state_leaf(path, &keys, text(MARKING_PROFILE)));
            }
            if self.qos.lossless != 0 {
                let path = "qos/interfaces/interface[interface-id]/pfc/pfc-priorities/\
                            pfc-priority[dot1p]/state/enable";
                let is_lossless = self.qos.lossless >> queue & 1 == 1;
                leaves.push(state_leaf(path, &keys, LeafValue::Flag(is_lossless)));
            }
        }
    }

    fn add_marking_profile(&self, leaves: &mut Vec<GnmiLeaf>) {
        let Some(MarkingRamp { kmin_bytes, kmax_bytes, pmax }) = self.qos.marking else {
            return;
        };
        let mut add = |path, value| leaves.push(state_leaf(path, &[MARKING_PROFILE], value));
        add(
            "qos/queue-management-profiles/queue-management-profile[name]/wred/uniform/state/\
             min-threshold",
            kmin_bytes.into(),
        );
        add(
            "qos/queue-management-profiles/queue-management-profile[name]/wred/uniform/state/\
             max-threshold",
            kmax_bytes.into(),
        );
        add(
            "qos/queue-management-profiles/queue-management-profile[name]/wred/uniform/state/\
             max-drop-probability-percent",
            ((pmax * 100.0).round() as u64).into(),
        );
        add(
            "qos/queue-management-profiles/queue-management-profile[name]/wred/uniform/state/\
             enable-ecn",
            LeafValue::Flag(true),
        );
    }

    /// Who is at the other ends of ports.
    pub(super) fn neighbour_leaves(&self, reports: &[PortReport]) -> Vec<GnmiLeaf> {
        let mut leaves = Vec::new();
        for report in reports {
            let Some(neighbour) = &report.neighbour else {
                continue;
            };
            let name = self.names.interface_name(report.number);
            let keys = [name.as_str(), "1"];
            let values = [&neighbour.system, &neighbour.port].map(|value| text(value));
            leaves.extend(NEIGHBOUR_LEAVES.into_iter().zip(values).map(|(path, value)| GnmiLeaf {
                path: LeafPath::new(path, &keys),
                value,
                kind: LeafKind::Counter,
            }));
        }
        leaves
    }

    /// What changes all the time.
    pub(super) fn counter_leaves(&self, reports: &[PortReport]) -> Vec<GnmiLeaf> {
        let mut leaves = Vec::new();
        for report in reports {
            let name = self.names.interface_name(report.number);
            let name = name.as_str();
            let sent = |count: fn(&switch::CounterData) -> u64| {
                report.queues.iter().map(|queue| count(&queue.sent)).sum::<u64>()
            };
            let dropped: u64 = report.queues.iter().map(|queue| queue.dropped.packets).sum();
            let sent_packets = sent(|data| data.packets).saturating_sub(report.lost);
            let mut add = |path, number: u64| leaves.push(counter_leaf(path, &[name], number));
            add("interfaces/interface[name]/state/counters/in-pkts", report.received.packets);
            add("interfaces/interface[name]/state/counters/in-octets", report.received.bytes);
            add("interfaces/interface[name]/state/counters/in-errors", report.refused);
            add("interfaces/interface[name]/state/counters/out-pkts", sent_packets);
            add("interfaces/interface[name]/state/counters/out-octets", sent(|data| data.bytes));
            add("interfaces/interface[name]/state/counters/out-discards", dropped);
            add("interfaces/interface[name]/state/counters/out-errors", report.lost);
            for (level, counts) in report.queues.iter().enumerate() {
                let queue = level.to_string();
                let keys = [name, &*queue];
                let counted = [
                    counts.sent.packets,
                    counts.sent.bytes,
                    counts.dropped.packets,
                    counts.dropped.bytes,
                    counts.depth.bytes,
                    counts.marked,
                ];
                let paths = QUEUE_COUNTERS.into_iter().zip(counted);
                leaves.extend(paths.map(|(path, number)| counter_leaf(path, &keys, number)));
                let requested = report.pauses_requested.get(level).copied().unwrap_or(0);
                let paths = PAUSE_COUNTERS.into_iter().zip([counts.pauses, requested]);
                leaves.extend(paths.map(|(path, number)| counter_leaf(path, &keys, number)));
            }
        }
        leaves
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
            (Self::Flag(is_set), proto::Encoding::JsonIetf) => {
                Value::JsonIetfVal(is_set.to_string().into_bytes())
            }
            (Self::Flag(is_set), proto::Encoding::Json) => {
                Value::JsonVal(is_set.to_string().into_bytes())
            }
            (Self::Flag(is_set), _) => Value::BoolVal(*is_set),
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
    use switch::CounterData;
    use switch::QueueCounts;

    fn leaf_text(leaf: &GnmiLeaf) -> String {
        let steps = leaf.path.0.iter().map(|step| match &step.key {
            Some((key, value)) => format!("/{}[{key}={value}]", step.name),
            None => format!("/{}", step.name),
        });
        match &leaf.value {
            LeafValue::Text(text) => format!("{}: {text}", steps.collect::<String>()),
            LeafValue::Number(number) => format!("{}: {number}", steps.collect::<String>()),
            LeafValue::Flag(is_set) => format!("{}: {is_set}", steps.collect::<String>()),
        }
    }

    #[test]
    fn ports_queues_and_maps_have_the_paths_of_openconfig() {
        let names = PortNames::new([(1, "Ethernet0".to_owned())]).unwrap();
        let marking = MarkingRamp { kmin_bytes: 100, kmax_bytes: 400, pmax: 0.2 };
        let qos = QosMaps { marking: Some(marking), lossless: 0b100, ..QosMaps::default() };
        let tree = DataTree::new(names, qos);
        let counts = QueueCounts {
            sent: CounterData { packets: 5, bytes: 500 },
            dropped: CounterData { packets: 2, bytes: 200 },
            marked: 4,
            pauses: 8,
            ..QueueCounts::default()
        };
        let report = PortReport {
            number: 1,
            state: PortState::Down,
            received: CounterData { packets: 7, bytes: 700 },
            refused: 1,
            lost: 3,
            queues: vec![QueueCounts::default(), counts],
            neighbour: None,
            pauses_requested: vec![0, 6],
        };
        let mut leaves = tree.state_leaves(&[(1, PortState::Down), (9, PortState::Up)]);
        leaves.extend(tree.counter_leaves(&[report]));
        let found: Vec<String> = leaves.iter().map(leaf_text).collect();
        for expected in [
            "/interfaces/interface[name=Ethernet0]/state/oper-status: DOWN",
            "/interfaces/interface[name=Ethernet0]/state/id: 1",
            "/interfaces/interface[name=Ethernet0]/state/ifindex: 1",
            "/interfaces/interface[name=Ethernet9]/state/oper-status: UP",
            "/interfaces/interface[name=Ethernet0]/state/counters/in-octets: 700",
            "/interfaces/interface[name=Ethernet0]/state/counters/out-pkts: 2",
            "/interfaces/interface[name=Ethernet0]/state/counters/in-errors: 1",
            "/interfaces/interface[name=Ethernet0]/state/counters/out-discards: 2",
            "/interfaces/interface[name=Ethernet0]/state/counters/out-errors: 3",
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues/queue[name=1]/state/\
             transmit-pkts: 5",
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues/queue[name=1]/state/\
             dropped-octets: 200",
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues/queue[name=1]/state/\
             ecn-marked-pkts: 4",
            "/qos/interfaces/interface[interface-id=Ethernet0]/pfc/pfc-priorities/\
             pfc-priority[dot1p=1]/state/statistics/pause-frames-rx: 8",
            "/qos/interfaces/interface[interface-id=Ethernet0]/pfc/pfc-priorities/\
             pfc-priority[dot1p=1]/state/statistics/pause-frames-tx: 6",
            "/qos/classifiers/classifier[name=dscp-to-class]/terms/term[id=40]/actions/state/\
             target-group: class-5",
            "/qos/forwarding-groups/forwarding-group[name=class-5]/state/output-queue: 5",
            "/qos/scheduler-policies/scheduler-policy[name=queues]/schedulers/\
             scheduler[sequence=5]/state/priority: STRICT",
            "/qos/queue-management-profiles/queue-management-profile[name=ecn]/wred/uniform/state/\
             max-threshold: 400",
            "/qos/interfaces/interface[interface-id=Ethernet9]/pfc/pfc-priorities/\
             pfc-priority[dot1p=2]/state/enable: true",
            "/qos/interfaces/interface[interface-id=Ethernet9]/pfc/pfc-priorities/\
             pfc-priority[dot1p=3]/state/enable: false",
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
