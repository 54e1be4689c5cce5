//! What is set on the queues of switches for a plan: DSCP, queues, PFC, ECN and schedulers, in the
//! structure and the names of OpenConfig (`openconfig-qos`), which has no PFC: it stands beside.

use serde_json::{Value, json};

use crate::fabric::{Fabric, Link, Switch};
use crate::ids::{LinkId, SwitchId};
use crate::lossless::EcnThresholds;

/// The name of the classifier and of the scheduler policy.
const POLICY_NAME: &str = "crux";

/// A level with the DSCP of its packets. Answers are sent with that of the highest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelMarking {
    /// The level; a higher one is served first.
    pub level: u8,
    /// DSCP of data.
    pub dscp: u8,
    /// DSCP of acknowledgments and congestion notifications.
    pub answer_dscp: u8,
}

/// The queues that a plan assumes at every port of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Levels, ascending.
    levels: Vec<LevelMarking>,
}

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelQueue {
    /// Its level with the DSCP of its packets.
    pub marking: LevelMarking,
    /// Whether PFC protects it.
    pub is_lossless: bool,
}

/// A port with what its rate and its cable ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortQueues {
    /// The link that leaves the switch there.
    pub link: LinkId,
    /// Number of the port.
    pub port: u32,
    /// Headroom of a lossless level, bytes; none where the length of the cable is not known.
    pub headroom_bytes: Option<u64>,
    /// Marking of its queues.
    pub ecn: EcnThresholds,
}

impl QueuePlan {
    /// The queues of these `levels`, ascending.
    pub fn new(levels: impl IntoIterator<Item = LevelMarking>) -> Self {
        let mut levels: Vec<LevelMarking> = levels.into_iter().collect();
        levels.sort_by_key(|marking| marking.level);
        Self { levels }
    }

    /// The queues of a switch, the first served first. Of more levels than the switch has lossless
    /// ones, the highest lose nothing; where it does not say, none loses anything.
    pub fn queues_of(&self, switch: &Switch) -> Vec<LevelQueue> {
        let lossless = switch.queues.lossless_levels.map_or(usize::MAX, usize::from);
        let queues = self.levels.iter().rev().enumerate();
        queues
            .map(|(place, marking)| LevelQueue { marking: *marking, is_lossless: place < lossless })
            .collect()
    }
}

/// The ports of a switch, ascending.
pub fn port_queues(fabric: &Fabric, switch: &Switch) -> Vec<PortQueues> {
    let ports = switch.ports.iter();
    ports
        .map(|(port, link)| PortQueues {
            link: *link,
            port: *port,
            headroom_bytes: fabric.headroom_behind(link.reverse()).map(|headroom| headroom.bytes),
            ecn: EcnThresholds::for_rate(fabric.link(*link).bandwidth),
        })
        .collect()
}

/// The configuration of `switches` for the queues of a plan.
pub fn export_qos(fabric: &Fabric, plan: &QueuePlan, switches: &[SwitchId]) -> Value {
    let switches = switches.iter().map(|id| switch_configuration(fabric, fabric.switch(*id), plan));
    json!({ "fabric": fabric.name(), "switches": switches.collect::<Vec<_>>() })
}

fn switch_configuration(fabric: &Fabric, switch: &Switch, plan: &QueuePlan) -> Value {
    let queues = plan.queues_of(switch);
    let ports = port_queues(fabric, switch);
    let lossless = queues.iter().filter(|queue| queue.is_lossless);
    let priorities: Vec<u8> = lossless.map(|queue| queue.marking.level).collect();
    let mut profiles: Vec<Value> = Vec::new();
    for port in &ports {
        let profile = marking_profile(fabric, port);
        if !profiles.contains(&profile) {
            profiles.push(profile);
        }
    }
    json!({
        "name": switch.name,
        "openconfig-qos:qos": {
            "queues": { "queue": queues.iter().map(queue_configuration).collect::<Vec<_>>() },
            "classifiers": { "classifier": [classifier(&queues)] },
            "forwarding-groups": {
                "forwarding-group": queues.iter().map(forwarding_group).collect::<Vec<_>>(),
            },
            "queue-management-profiles": { "queue-management-profile": profiles },
            "scheduler-policies": { "scheduler-policy": [scheduler_policy(&queues)] },
            "interfaces": {
                "interface": ports
                    .iter()
                    .map(|port| interface(fabric, port, &queues))
                    .collect::<Vec<_>>(),
            },
        },
        "priority-flow-control": {
            "buffer-bytes": switch.queues.buffer_bytes,
            "mtu-bytes": switch.queues.packet_bytes(),
            "priorities": priorities,
            "interface": ports
                .iter()
                .map(|port| json!({
                    "interface-id": port.port.to_string(),
                    "headroom-bytes": port.headroom_bytes,
                }))
                .collect::<Vec<_>>(),
        },
    })
}

fn queue_name(queue: &LevelQueue) -> String {
    format!("level-{}", queue.marking.level)
}

fn queue_configuration(queue: &LevelQueue) -> Value {
    json!({
        "name": queue_name(queue),
        "config": { "name": queue_name(queue), "queue-id": queue.marking.level },
    })
}

fn forwarding_group(queue: &LevelQueue) -> Value {
    let name = queue_name(queue);
    json!({ "name": name, "config": { "name": name, "output-queue": name } })
}

/// DSCP to forwarding groups: the data and the answers of each level.
fn classifier(queues: &[LevelQueue]) -> Value {
    let terms = queues.iter().map(|queue| {
        let dscp_set = [queue.marking.dscp, queue.marking.answer_dscp];
        json!({
            "id": queue_name(queue),
            "conditions": { "ipv4": { "config": { "dscp-set": dscp_set } } },
            "actions": { "config": { "target-group": queue_name(queue) } },
        })
    });
    json!({ "name": POLICY_NAME, "terms": { "term": terms.collect::<Vec<_>>() } })
}

/// Strict priority: the first queue that has something is served.
fn scheduler_policy(queues: &[LevelQueue]) -> Value {
    let schedulers = queues.iter().enumerate().map(|(sequence, queue)| {
        let name = queue_name(queue);
        json!({
            "sequence": sequence,
            "config": { "sequence": sequence, "priority": "STRICT" },
            "inputs": { "input": [{
                "id": name,
                "config": { "id": name, "input-type": "QUEUE", "queue": name },
            }] },
        })
    });
    json!({ "name": POLICY_NAME, "schedulers": { "scheduler": schedulers.collect::<Vec<_>>() } })
}

fn profile_name(link: &Link) -> String {
    format!("ecn-{}g", link.bandwidth.gbps())
}

fn marking_profile(fabric: &Fabric, port: &PortQueues) -> Value {
    let name = profile_name(fabric.link(port.link));
    json!({
        "name": name,
        "wred": { "uniform": { "config": {
            "min-threshold": port.ecn.min_bytes,
            "max-threshold": port.ecn.max_bytes,
            "max-drop-probability-percent": (100.0 * port.ecn.max_probability).round() as u8,
            "enable-ecn": true,
            "drop": false,
        } } },
    })
}

fn interface(fabric: &Fabric, port: &PortQueues, queues: &[LevelQueue]) -> Value {
    let profile = profile_name(fabric.link(port.link));
    let output = queues.iter().map(|queue| {
        let config = json!({ "name": queue_name(queue), "queue-management-profile": profile });
        json!({ "name": queue_name(queue), "config": config })
    });
    json!({
        "interface-id": port.port.to_string(),
        "input": { "classifiers": { "classifier": [{
            "type": "IPV4",
            "config": { "type": "IPV4", "name": POLICY_NAME },
        }] } },
        "output": {
            "queues": { "queue": output.collect::<Vec<_>>() },
            "scheduler-policy": { "config": { "name": POLICY_NAME } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::ClosSpec;
    use crate::lossless::SwitchQueues;
    use crate::spec::{CableDefaults, FabricDocument};

    /// Two levels of which one is lossless, on a leaf with hosts of 200 Gb/s and uplinks of 400.
    #[test]
    fn queues_ports_and_pfc_are_those_of_the_document() {
        let lossless = SwitchQueues { lossless_levels: Some(1), ..SwitchQueues::default() };
        let document = FabricDocument {
            name: "lab".to_owned(),
            clos: Some(ClosSpec::default()),
            switch_defaults: Some(lossless),
            cable_defaults: Some(CableDefaults { host_metres: Some(0.0), switch_metres: None }),
            ..FabricDocument::default()
        };
        let fabric = Fabric::try_from(&document).unwrap();
        let level =
            |level: u8| LevelMarking { level, dscp: level << 3, answer_dscp: level << 3 | 1 };
        let plan = QueuePlan::new([level(0), level(1)]);
        let exported = export_qos(&fabric, &plan, &[SwitchId::from(0)]);
        let leaf = &exported["switches"][0];
        assert_eq!((&exported["fabric"], &leaf["name"]), (&json!("lab"), &json!("leaf1")));
        let pfc = &leaf["priority-flow-control"];
        assert_eq!(pfc["priorities"], json!([1]));
        // 2 * (4,200 + 38) + 84 + 463,360 / 8 without a cable; of unknown length for an uplink.
        let first = json!({ "interface-id": "1", "headroom-bytes": 66_480 });
        assert_eq!(
            (&pfc["interface"][0], &pfc["interface"][3]["headroom-bytes"]),
            (&first, &json!(null))
        );
        let qos = &leaf["openconfig-qos:qos"];
        let terms = &qos["classifiers"]["classifier"][0]["terms"]["term"];
        assert_eq!(terms[0]["conditions"]["ipv4"]["config"]["dscp-set"], json!([8, 9]));
        assert_eq!(terms[1]["actions"]["config"]["target-group"], "level-0");
        let profiles = qos["queue-management-profiles"]["queue-management-profile"].as_array();
        let names = profiles.unwrap().iter().map(|profile| profile["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["ecn-200g", "ecn-400g"]);
        let schedulers = &qos["scheduler-policies"]["scheduler-policy"][0]["schedulers"];
        assert_eq!(schedulers["scheduler"][0]["inputs"]["input"][0]["config"]["queue"], "level-1");
    }
}
