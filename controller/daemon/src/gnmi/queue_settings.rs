//! Whether the queues of a switch lose nothing and mark as `crux fabric export qos` prints it, by
//! what the switch reports.
//!
//! The decision: what a switch does not report is not judged, and neither is PFC where the fabric
//! document states no lossless levels. Other thresholds of marking than the exported ones may be
//! meant, so that they are no more than a hint.

use std::collections::{BTreeMap, BTreeSet};

use p4runtime_proto::gnmi as proto;
use topology::export::{QueuePlan, port_queues};
use topology::{EcnThresholds, Fabric, Finding, SwitchId};

use super::leaf_value::{interface_ports, leaf_values};
use super::queue_maps::queue_number;
use crate::pipelines::fabric::level_markings;

/// What plans assume of the queues of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedQueues {
    /// Levels of plans.
    pub levels: u8,
    /// Levels that lose nothing; none where the fabric document does not say.
    pub lossless: Option<BTreeSet<u8>>,
    /// Marking by port.
    pub marking: BTreeMap<u32, EcnThresholds>,
}

/// What a switch reports of its queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSettings {
    /// The port of each interface.
    ports: BTreeMap<String, u32>,
    profiles: BTreeMap<String, MarkingProfile>,
    /// The profile of each queue, by interface.
    queue_profiles: BTreeMap<(String, u8), String>,
    /// Whether PFC is on, by interface and priority.
    pause_priorities: BTreeMap<(String, u8), bool>,
}

/// Thresholds of a queue management profile, as far as they are reported: bytes and per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct MarkingProfile {
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
    max_percent: Option<u64>,
}

impl ExpectedQueues {
    /// What plans of so many levels assume of a switch of `fabric`.
    pub fn of_switch(fabric: &Fabric, switch: SwitchId, levels: u8) -> Self {
        let switch = fabric.switch(switch);
        let queues = QueuePlan::new(level_markings(levels)).queues_of(switch);
        let lossless = queues.iter().filter(|queue| queue.is_lossless);
        let lossless = lossless.map(|queue| queue.marking.level).collect();
        let ports = port_queues(fabric, switch);
        Self {
            levels,
            lossless: switch.queues.lossless_levels.is_some().then_some(lossless),
            marking: ports.iter().map(|port| (port.port, port.ecn)).collect(),
        }
    }
}

impl QueueSettings {
    /// Takes what a switch has answered.
    pub fn take_notifications(&mut self, notifications: &[proto::Notification]) {
        self.ports.extend(interface_ports(notifications));
        for (steps, text) in leaf_values(notifications) {
            self.take_leaf(&steps, text);
        }
    }

    fn take_leaf(&mut self, steps: &[(&str, Option<&str>)], text: String) {
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        let keys: Vec<&str> = steps.iter().filter_map(|(_, key)| *key).collect();
        match (&names[..], &keys[..]) {
            (["qos", "queue-management-profiles", .., "state", leaf], [name]) => {
                let profile = self.profiles.entry((*name).to_owned()).or_default();
                let field = match *leaf {
                    "min-threshold" => &mut profile.min_bytes,
                    "max-threshold" => &mut profile.max_bytes,
                    "max-drop-probability-percent" => &mut profile.max_percent,
                    _ => return,
                };
                *field = text.parse().ok();
            }
            (["qos", "interfaces", .., "state", "queue-management-profile"], [name, queue]) => {
                if let Some(queue) = queue_number(queue) {
                    self.queue_profiles.insert(((*name).to_owned(), queue), text);
                }
            }
            (["qos", "interfaces", .., "pfc-priority", "state", "enable"], [name, priority]) => {
                if let Some(priority) = queue_number(priority) {
                    self.pause_priorities.insert(((*name).to_owned(), priority), text == "true");
                }
            }
            _ => {}
        }
    }
}

/// What of the reported settings is not as plans assume it.
pub fn check_queue_settings(
    switch: &str,
    reported: &QueueSettings,
    expected: &ExpectedQueues,
) -> Vec<Finding> {
    let mut findings = check_pauses(switch, reported, expected);
    findings.extend(check_marking(switch, reported, expected));
    findings
}

/// One finding for each lossless level without PFC.
fn check_pauses(switch: &str, reported: &QueueSettings, expected: &ExpectedQueues) -> Vec<Finding> {
    let mut lossy: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
    for ((name, priority), is_on) in &reported.pause_priorities {
        let is_lossless =
            expected.lossless.as_ref().is_some_and(|levels| levels.contains(priority));
        if let Some(port) = reported.ports.get(name).filter(|_| is_lossless && !is_on) {
            lossy.entry(*priority).or_default().push(*port);
        }
    }
    let findings = lossy.into_iter().map(|(level, ports)| {
        let text = format!(
            "PFC of priority {level} is off at {}, the fabric document has level {level} lossless; \
             compare with `crux fabric export qos`",
            join_ports(ports)
        );
        Finding::warning(switch, text)
    });
    findings.collect()
}

/// One finding for all ports whose queues mark alike, and otherwise than exported.
fn check_marking(
    switch: &str,
    reported: &QueueSettings,
    expected: &ExpectedQueues,
) -> Vec<Finding> {
    let mut others: BTreeMap<(MarkingProfile, MarkingProfile), BTreeSet<u32>> = BTreeMap::new();
    for ((name, queue), profile) in &reported.queue_profiles {
        let known = (reported.ports.get(name), reported.profiles.get(profile));
        let (Some(port), Some(profile)) = known else {
            continue;
        };
        let wanted = expected.marking.get(port).filter(|_| *queue < expected.levels);
        if let Some(wanted) = wanted.map(MarkingProfile::from).filter(|wanted| wanted != profile) {
            others.entry((*profile, wanted)).or_default().insert(*port);
        }
    }
    let findings = others.into_iter().map(|((found, wanted), ports)| {
        let ports = join_ports(ports);
        let text = format!("queues of {ports} mark {found}; `crux fabric export qos` has {wanted}");
        Finding::info(switch, text)
    });
    findings.collect()
}

impl From<&EcnThresholds> for MarkingProfile {
    fn from(thresholds: &EcnThresholds) -> Self {
        Self {
            min_bytes: Some(thresholds.min_bytes),
            max_bytes: Some(thresholds.max_bytes),
            max_percent: Some((thresholds.max_probability * 100.0).round() as u64),
        }
    }
}

impl std::fmt::Display for MarkingProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |it| it.to_string());
        let [min, max, percent] = [self.min_bytes, self.max_bytes, self.max_percent].map(text);
        write!(f, "from {min} to {max} bytes with up to {percent} %")
    }
}

fn join_ports(ports: impl IntoIterator<Item = u32>) -> String {
    let numbers: Vec<String> = ports.into_iter().map(|port| port.to_string()).collect();
    let noun = if numbers.len() == 1 { "port" } else { "ports" };
    format!("{noun} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: MarkingProfile =
        MarkingProfile { min_bytes: Some(100), max_bytes: Some(400), max_percent: Some(20) };

    fn expected() -> ExpectedQueues {
        let ecn = EcnThresholds { min_bytes: 100, max_bytes: 400, max_probability: 0.2 };
        ExpectedQueues {
            levels: 4,
            lossless: Some(BTreeSet::from([2, 3])),
            marking: BTreeMap::from([(1, ecn), (2, ecn)]),
        }
    }

    /// Two ports that are set as expected.
    fn reported() -> QueueSettings {
        let names = [("Ethernet0", 1), ("Ethernet4", 2)];
        let queues = || names.iter().flat_map(|(name, _)| (0..8).map(|queue| (*name, queue)));
        QueueSettings {
            ports: names.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect(),
            profiles: BTreeMap::from([("ecn".to_owned(), MARKS)]),
            queue_profiles: queues()
                .map(|(name, queue)| ((name.to_owned(), queue), "ecn".to_owned()))
                .collect(),
            pause_priorities: queues()
                .map(|(name, queue)| ((name.to_owned(), queue), (2..4).contains(&queue)))
                .collect(),
        }
    }

    fn texts(reported: &QueueSettings, expected: &ExpectedQueues) -> Vec<String> {
        let findings = check_queue_settings("leaf1", reported, expected);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn settings_as_exported_have_no_finding() {
        assert!(texts(&reported(), &expected()).is_empty());
        assert!(texts(&QueueSettings::default(), &expected()).is_empty());
    }

    #[test]
    fn a_lossless_level_without_pauses_is_a_warning() {
        let mut settings = reported();
        for name in ["Ethernet0", "Ethernet4"] {
            settings.pause_priorities.insert((name.to_owned(), 3), false);
        }
        let [text] = &texts(&settings, &expected())[..] else { panic!("one finding") };
        assert!(
            text.starts_with("warning: leaf1: PFC of priority 3 is off at ports 1, 2"),
            "{text}"
        );
        let unknown = ExpectedQueues { lossless: None, ..expected() };
        assert!(texts(&settings, &unknown).is_empty());
    }

    #[test]
    fn other_marks_are_a_hint() {
        let mut settings = reported();
        let deeper = MarkingProfile { max_bytes: Some(800), ..MARKS };
        settings.profiles.insert("deep".to_owned(), deeper);
        for queue in [1, 7] {
            settings.queue_profiles.insert(("Ethernet4".to_owned(), queue), "deep".to_owned());
        }
        let [text] = &texts(&settings, &expected())[..] else { panic!("one finding") };
        let expected = "info: leaf1: queues of port 2 mark from 100 to 800 bytes with up to 20 %; \
                        `crux fabric export qos` has from 100 to 400 bytes with up to 20 %";
        assert_eq!(text, expected);
    }
}
