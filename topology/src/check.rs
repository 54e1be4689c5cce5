//! Findings about a fabric: errors, probable mistakes and information.
//!
//! A document that reads without error is a fabric; whether it is a good one is reported here, as
//! data. Each rule is a function of the fabric alone and rules do not know each other. The fabric
//! is judged as it is now, so that failed and drained parts show in what can no longer be reached.

mod buffers;
mod devices;
mod interconnects;
mod reachability;
mod tiers;

use crate::fabric::Fabric;
use crate::finding::Finding;

const RULES: [fn(&Fabric) -> Vec<Finding>; 14] = [
    reachability::hosts_without_nics,
    reachability::disconnected_nics,
    reachability::unreachable_leaves,
    devices::shared_identities,
    devices::invalid_ports,
    devices::switches_without_server,
    tiers::unconnected_switches,
    tiers::unused_links,
    tiers::uneven_uplinks,
    tiers::oversubscription_ratios,
    buffers::headroom_demands,
    buffers::unknown_buffers,
    buffers::fifo_hosts,
    interconnects::narrow_pcie_links,
];

/// Everything to be reported about `fabric`: errors first, then warnings, then the rest.
pub fn check_fabric(fabric: &Fabric) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(fabric)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// The names joined, if there are any.
fn join_any(names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| join_names(names))
}

/// `first`, `first and second`, `first, second and 3 more`.
fn join_names(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [one, two] => format!("{one} and {two}"),
        [one, two, rest @ ..] => format!("{one}, {two} and {} more", rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::{AvailabilityChange, LinkScheduler, Tier};
    use crate::lossless::SwitchQueues;
    use crate::spec::{self, FabricDocument};

    fn lab() -> Fabric {
        clos::build_clos("lab", &ClosSpec::default()).unwrap()
    }

    /// Findings about the lab's document after a change.
    fn changed(change: impl FnOnce(&mut FabricDocument)) -> Vec<String> {
        let mut document = spec::explicit_document(&lab());
        change(&mut document);
        reported(&Fabric::try_from(&document).unwrap())
    }

    fn reported(fabric: &Fabric) -> Vec<String> {
        let findings = check_fabric(fabric);
        let serious = findings.iter().filter(|finding| finding.severity != crate::Severity::Info);
        serious.map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_fabric_has_nothing_but_its_capacity() {
        let findings = check_fabric(&lab());
        let text = "600 Gb/s from below, 800 Gb/s upwards, one way: 0.75 to 1 (the worst leaf)";
        assert_eq!(findings, [crate::Finding::info("leaf1", text)]);
    }

    #[test]
    fn leaves_and_nics_that_are_cut_off_are_errors() {
        let lab = lab();
        let down = |name: &str| lab.links_named(name).into_iter().map(AvailabilityChange::LinkDown);
        let cut_off = lab.with_changes(down("leaf2-spine1").chain(down("leaf2-spine2")));
        assert_eq!(reported(&cut_off), ["error: leaf2: its hosts can reach no other leaf"]);
        let split = lab.with_changes(down("leaf1-spine1").chain(down("leaf2-spine2")));
        let expected = [
            "error: leaf1: its hosts cannot reach those of leaf2",
            "error: leaf2: its hosts cannot reach those of leaf1",
        ];
        assert_eq!(reported(&split), expected);
        let unplugged = lab.with_changes(down("h1-leaf1"));
        assert_eq!(reported(&unplugged), ["error: h1: NIC 0 is cut off: h1:0>leaf1:1 is down"]);
    }

    #[test]
    fn devices_that_are_one_and_the_same_are_found() {
        let same = changed(|lab| {
            lab.switches[1].device_id = 1;
            lab.switches[1].p4runtime = lab.switches[0].p4runtime.clone();
        });
        let text = "error: leaf1 and leaf2: have the same device id at the same p4runtime address";
        assert_eq!(same, [text]);
        let id = changed(|lab| lab.switches[1].device_id = 1);
        assert_eq!(id, ["warning: leaf1 and leaf2: have the same device id, 1"]);
        let address = changed(|lab| lab.switches[1].p4runtime = lab.switches[0].p4runtime.clone());
        let text = "warning: leaf1 and leaf2: have the same p4runtime address, 127.0.0.1:20001";
        assert_eq!(address, [text]);
    }

    #[test]
    fn ports_of_the_controller_and_beyond_the_program_are_errors() {
        let cpu = changed(|lab| lab.links[12].a = "leaf1:255".to_owned());
        assert_eq!(cpu, ["error: leaf1: uses port 255, which leads to the controller"]);
        let high = changed(|lab| lab.links[12].a = "leaf1:511".to_owned());
        assert_eq!(high, ["error: leaf1: uses port 511; the P4 program has ports up to 510"]);
    }

    /// The NICs of a host are at two leaves, each of which is named once.
    #[test]
    fn leaves_that_pause_by_level_are_named_if_their_hosts_are_fifo() {
        let document = crate::examples::example_document("crux-double-sided").unwrap();
        let mut parts = Fabric::try_from(&document).unwrap().parts().clone();
        parts.switches.iter_mut().for_each(|it| it.queues.lossless_levels = Some(2));
        let fabric = Fabric::new(parts);
        let leaves = fabric.switches().iter().filter(|it| it.tier == Tier::Leaf).count();
        let [finding] = &buffers::fifo_hosts(&fabric)[..] else { panic!() };
        let (_, more) = finding.about.split_once(" and ").unwrap();
        assert_eq!(more, format!("{} more", leaves - 2));
        let strict = fabric.with_host_scheduler(LinkScheduler::HostStrict);
        assert_eq!(buffers::fifo_hosts(&strict), []);
    }

    /// Eight ports of 200 and 400 Gb/s, and a buffer of 12 MB, as the switches of DCQCN have.
    #[test]
    fn headroom_that_does_not_fit_is_an_error_with_a_remedy() {
        let with = |levels: u8, buffer_bytes: u64, metres: f64| {
            changed(|lab| {
                let queues = SwitchQueues {
                    lossless_levels: Some(levels),
                    buffer_bytes: Some(buffer_bytes),
                    ..SwitchQueues::default()
                };
                lab.switches[0].queues = Some(queues);
                lab.links.iter_mut().for_each(|link| link.metres = Some(metres));
            })
        };
        assert!(with(2, 64_000_000, 5.0).is_empty());
        let [error] = &with(8, 2_000_000, 5.0)[..] else { panic!() };
        assert_eq!(
            error,
            "error: leaf1: PFC headroom of 8 lossless levels needs 2.7 MB, and the buffer has \
             2.0 MB; have 5 lossless levels; shorter cables alone are not enough, a lower \
             mtu_bytes may be"
        );
        let [error] = &with(2, 3_000_000, 1_000.0)[..] else { panic!() };
        assert!(error.contains("have 1 lossless level, or cables of at most 67 %"), "{error}");
        let [warning] = &with(2, 12_000_000, 5.0)[..] else { panic!() };
        assert!(warning.contains("senders are paused before"), "{warning}");
    }

    #[test]
    fn uneven_and_useless_parts_are_warnings() {
        let fewer = changed(|lab| drop(lab.links.remove(12)));
        let text =
            "warning: leaf1: has 1 uplinks, 400 Gb/s in all; a usual one has 2 uplinks, 800 Gb/s";
        assert_eq!(fewer, [text]);
        let mixed = changed(|lab| lab.links[12].gbps = 100.0);
        let text =
            "warning: leaf1: has 2 uplinks, 500 Gb/s in all; a usual one has 2 uplinks, 800 Gb/s";
        assert_eq!(mixed, [text]);
        let alone = changed(|lab| {
            let spare = spec::SwitchDocument {
                name: "spare".to_owned(),
                device_id: 99,
                ..lab.switches[5].clone()
            };
            lab.switches.push(spec::SwitchDocument { p4runtime: None, ..spare });
        });
        assert_eq!(alone, ["warning: spare: has no links"]);
        let level = changed(|lab| {
            lab.links.push(spec::LinkDocument {
                a: "leaf1:9".into(),
                b: "leaf2:9".into(),
                gbps: 1.0,
                scheduler: None,
                metres: None,
            });
        });
        let text = "warning: leaf1:9>leaf2:9: joins switches of one tier; no path takes it";
        assert_eq!(level, [text]);
    }
}
