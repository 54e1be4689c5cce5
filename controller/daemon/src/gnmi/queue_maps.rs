//! Whether a switch serves each level in the queue of that level, by what it reports.
//!
//! A packet's DSCP has a class (`/qos/classifiers`), a class has a queue (`/qos/forwarding-groups`)
//! and a queue has a scheduler (`/qos/scheduler-policies`). The decision: only the whole way from
//! DSCP to queue counts, since classes may have any names; a finding names the queue found, the
//! one expected and the tables of SONiC's configuration to change.

use std::collections::{BTreeMap, BTreeSet};

use p4runtime_proto::gnmi as proto;
use topology::Finding;

use super::leaf_value::{identity_name, leaf_values};

/// DSCP values from one level to the next.
const DSCP_PER_LEVEL: u8 = 8;

/// The maps of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMaps {
    /// The class of each DSCP.
    pub dscp_classes: BTreeMap<u8, String>,
    /// The queue of each class.
    pub class_queues: BTreeMap<String, u8>,
    /// Queues that are served before all queues below them.
    pub strict_queues: BTreeSet<u8>,
}

/// The parts of a term or a scheduler, which come one by one.
#[derive(Debug, Default)]
struct MapParts {
    term_dscp: BTreeMap<String, u8>,
    term_class: BTreeMap<String, String>,
    scheduler_queue: BTreeMap<String, u8>,
    strict_schedulers: BTreeSet<String>,
}

impl QueueMaps {
    /// The maps in a switch's answer.
    pub fn from_notifications(notifications: &[proto::Notification]) -> Self {
        let mut maps = Self::default();
        let mut parts = MapParts::default();
        for (steps, text) in leaf_values(notifications) {
            let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
            let keys: Vec<&str> = steps.iter().filter_map(|(_, key)| *key).collect();
            maps.take_leaf(&names, &keys, &text);
            parts.take_leaf(&names, &keys, &text);
        }
        for (term, dscp) in parts.term_dscp {
            if let Some(class) = parts.term_class.get(&term) {
                maps.dscp_classes.insert(dscp, class.clone());
            }
        }
        let queues = parts.strict_schedulers.iter();
        let queues = queues.filter_map(|scheduler| parts.scheduler_queue.get(scheduler));
        maps.strict_queues.extend(queues);
        maps
    }

    fn take_leaf(&mut self, names: &[&str], keys: &[&str], text: &str) {
        if let (["qos", "forwarding-groups", .., "output-queue"], [class]) = (names, keys)
            && let Some(queue) = queue_number(text)
        {
            self.class_queues.insert((*class).to_owned(), queue);
        }
    }

    /// The queue of a DSCP.
    fn queue(&self, dscp: u8) -> Option<u8> {
        self.class_queues.get(self.dscp_classes.get(&dscp)?).copied()
    }
}

impl MapParts {
    fn take_leaf(&mut self, names: &[&str], keys: &[&str], text: &str) {
        // Lists within lists: what belongs together has the same outer keys.
        let place = keys.iter().take(2).copied().collect::<Vec<_>>().join("/");
        match names {
            ["qos", "classifiers", .., "state", "dscp"] => {
                if let Ok(dscp) = text.parse() {
                    self.term_dscp.insert(place, dscp);
                }
            }
            ["qos", "classifiers", .., "state", "target-group"] => {
                self.term_class.insert(place, text.to_owned());
            }
            ["qos", "scheduler-policies", .., "state", "queue"] => {
                if let Some(queue) = queue_number(text) {
                    self.scheduler_queue.insert(place, queue);
                }
            }
            ["qos", "scheduler-policies", .., "state", "priority"]
                if identity_name(text) == "STRICT" =>
            {
                self.strict_schedulers.insert(place);
            }
            _ => {}
        }
    }
}

/// The number of a queue: `5`, `UC5` and `Ethernet8:5` are queue 5.
pub(super) fn queue_number(name: &str) -> Option<u8> {
    let digits = name.rfind(|c: char| !c.is_ascii_digit()).map_or(name, |end| &name[end + 1..]);
    digits.parse().ok()
}

/// What is wrong with the maps of a switch, for the levels of a plan: one finding for each level
/// and queue that its packets take wrongly, and one for each queue that is not served strictly.
///
/// The DSCP of a level is eight times the level; answers have the DSCP after that of the highest.
pub fn check_queue_maps(switch: &str, maps: &QueueMaps, levels: u8) -> Vec<Finding> {
    let mut findings = Vec::new();
    for level in 0..levels {
        let own = level * DSCP_PER_LEVEL;
        let answers = (level + 1 == levels).then_some(own + 1);
        let mut found: BTreeMap<Option<u8>, Vec<u8>> = BTreeMap::new();
        for dscp in std::iter::once(own).chain(answers) {
            found.entry(maps.queue(dscp)).or_default().push(dscp);
        }
        found.remove(&Some(level));
        for (queue, dscps) in found {
            findings.push(wrong_queue(switch, level, &dscps, queue));
        }
        if !maps.strict_queues.contains(&level) {
            let text = format!(
                "queue {level} is not served strictly, level {level} expects that; \
                 set the type of its SCHEDULER to STRICT"
            );
            findings.push(Finding::error(switch, text));
        }
    }
    findings
}

fn wrong_queue(switch: &str, level: u8, dscps: &[u8], queue: Option<u8>) -> Finding {
    let names: Vec<String> = dscps.iter().map(u8::to_string).collect();
    let verb = if dscps.len() == 1 { "maps" } else { "map" };
    let found = queue.map_or_else(|| "no queue".to_owned(), |queue| format!("queue {queue}"));
    let text = format!(
        "DSCP {} {verb} to {found}, level {level} expects queue {level}; \
         set DSCP_TO_TC_MAP and TC_TO_QUEUE_MAP",
        names.join(" and ")
    );
    Finding::error(switch, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class selectors, one queue for each class, strict.
    fn right_maps() -> QueueMaps {
        QueueMaps {
            dscp_classes: (0..64).map(|dscp| (dscp, format!("class-{}", dscp / 8))).collect(),
            class_queues: (0..8).map(|class| (format!("class-{class}"), class)).collect(),
            strict_queues: (0..8).collect(),
        }
    }

    #[test]
    fn right_maps_have_no_finding() {
        assert_eq!(check_queue_maps("leaf1", &right_maps(), 8), []);
        // Other names of classes are as right, and so is what no level uses.
        let mut renamed = right_maps();
        renamed.dscp_classes.insert(40, "gold".to_owned());
        renamed.class_queues.insert("gold".to_owned(), 5);
        renamed.dscp_classes.insert(42, "class-0".to_owned());
        assert_eq!(check_queue_maps("leaf1", &renamed, 8), []);
        let mut fewer = right_maps();
        fewer.strict_queues = (0..4).collect();
        assert_eq!(check_queue_maps("leaf1", &fewer, 4), []);
    }

    /// A change of the maps, and the beginning of the only finding about it.
    type WrongMap = (Box<dyn Fn(&mut QueueMaps)>, String);

    fn wrong_maps() -> Vec<WrongMap> {
        let mut wrong: Vec<WrongMap> = Vec::new();
        // Eight: a DSCP in another class.
        for level in 0..8_u8 {
            let class = (level + 3) % 8;
            let change = move |maps: &mut QueueMaps| {
                maps.dscp_classes.insert(level * 8, format!("class-{class}"));
            };
            let text = format!(
                "DSCP {} maps to queue {class}, level {level} expects queue {level}; set ",
                level * 8
            );
            wrong.push((Box::new(change), text));
        }
        // Eight: a queue without strict priority.
        for level in 0..8_u8 {
            let change = move |maps: &mut QueueMaps| {
                maps.strict_queues.remove(&level);
            };
            let text = format!("queue {level} is not served strictly, level {level} expects that");
            wrong.push((Box::new(change), text));
        }
        type MapFault = fn(&mut QueueMaps);
        let others: [(MapFault, &str); 4] = [
            (
                |maps| {
                    maps.class_queues.insert("class-2".to_owned(), 6);
                },
                "DSCP 16 maps to queue 6, level 2 expects queue 2; set ",
            ),
            (
                |maps| {
                    maps.class_queues.insert("class-7".to_owned(), 0);
                },
                "DSCP 56 and 57 map to queue 0, level 7 expects queue 7; set ",
            ),
            (
                |maps| {
                    maps.dscp_classes.remove(&24);
                },
                "DSCP 24 maps to no queue, level 3 expects queue 3; set ",
            ),
            (
                |maps| {
                    maps.dscp_classes.insert(57, "class-1".to_owned());
                },
                "DSCP 57 maps to queue 1, level 7 expects queue 7; set ",
            ),
        ];
        wrong.extend(
            others.map(|(change, text)| -> WrongMap { (Box::new(change), text.to_owned()) }),
        );
        wrong
    }

    #[test]
    fn each_of_twenty_wrong_maps_is_named() {
        let wrong = wrong_maps();
        assert_eq!(wrong.len(), 20);
        for (change, text) in wrong {
            let mut maps = right_maps();
            change(&mut maps);
            let findings = check_queue_maps("leaf1", &maps, 8);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
            assert!(findings[0].text.starts_with(&text), "{text}: {findings:?}");
            assert_eq!(findings[0].about, "leaf1");
        }
    }

    #[test]
    fn queues_have_the_number_at_the_end_of_their_name() {
        for (name, number) in
            [("5", Some(5)), ("UC5", Some(5)), ("Ethernet8:5", Some(5)), ("cpu", None), ("", None)]
        {
            assert_eq!(queue_number(name), number, "{name}");
        }
    }
}
