//! Findings about a fabric: errors, probable mistakes and information.
//!
//! A document that reads without error is a fabric; whether it is a good one is reported here, as
//! data. Each rule is a function of the fabric alone and rules do not know each other. The fabric
//! is judged as it is now, so that failed and drained parts show in what can no longer be reached.

mod bonds;
mod buffers;
mod devices;
mod interconnects;
mod reachability;
mod tiers;

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::Fabric;
use crate::finding::Finding;
use crate::groups::DisjointSets;
use crate::ids::HostId;

const RULES: [fn(&Fabric) -> Vec<Finding>; 18] = [
    reachability::hosts_without_nics,
    reachability::disconnected_nics,
    reachability::unreachable_leaves,
    reachability::separate_planes,
    bonds::single_leaf_bonds,
    bonds::uneven_bonds,
    bonds::bonded_nics,
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

/// The plane of each switch: switches that cables between tiers join, working or not, are one
/// plane. Most fabrics have one.
fn planes_of_switches(fabric: &Fabric) -> Vec<usize> {
    let mut planes = DisjointSets::new(fabric.switches().len());
    for switch in fabric.switch_ids() {
        for link in fabric.up_links(switch) {
            if let Some(above) = fabric.switch_after(*link) {
                planes.join(switch.index(), above.index());
            }
        }
    }
    (0..fabric.switches().len()).map(|switch| planes.find_root(switch)).collect()
}

/// The hosts with a NIC in each plane.
fn hosts_by_plane(fabric: &Fabric, planes: &[usize]) -> BTreeMap<usize, BTreeSet<HostId>> {
    let mut hosts: BTreeMap<usize, BTreeSet<HostId>> = BTreeMap::new();
    for (index, nic) in fabric.nics().iter().enumerate() {
        let plane = planes[fabric.leaf_of(index.into()).index()];
        hosts.entry(plane).or_default().insert(nic.host);
    }
    hosts
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
    use crate::wired_fabric::wired_fabric;

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

    /// What `check_fabric` reports about reachability, planes and uplinks.
    fn reported_wiring(fabric: &Fabric) -> Vec<String> {
        let findings = check_fabric(fabric).into_iter().map(|finding| finding.to_string());
        let others = ["one way", "no p4runtime address"];
        findings.filter(|text| others.iter().all(|other| !text.contains(other))).collect()
    }

    /// Each NIC reaches the NICs of its plane on every host; the second plane is slower.
    fn two_planes(hosts: &str) -> Fabric {
        wired_fabric(
            ["a1 a2 b1 b2", "as1 as2 bs", ""],
            hosts,
            "a1-as1 a1-as2 a2-as1 a2-as2 b1-bs b2-bs",
        )
    }

    #[test]
    fn planes_and_rails_that_meet_in_hosts_are_one_line_of_information() {
        let planes = "info: wired: its leaves form 2 planes that no cable joins; flows between NICs \
                      of different planes have no path";
        assert_eq!(reported_wiring(&two_planes("h1:a1,b1 h2:a2,b2")), [planes]);
        let lone_rails = wired_fabric(["p q r", "", ""], "h1:p,q,r h2:p,q,r h3:p,q,r", "");
        assert_eq!(reported_wiring(&lone_rails), [planes.replace('2', "3")]);
        // The only NIC of h3 reaches one of every host.
        let found = reported_wiring(&two_planes("h1:a1,b1 h2:a2,b2 h3:b2"));
        assert_eq!(found, [format!("{planes}; some hosts have no NIC in 1 of them")]);
        // A leaf whose uplinks are missing is no plane of its own.
        let lone = wired_fabric(["a b1 b2", "s", ""], "h1:a,b1 h2:a,b2 h3:a,b1", "b1-s");
        let found = reported_wiring(&lone);
        assert!(found[0].starts_with("warning: b2: has 0 uplinks"), "{found:?}");
        assert!(found[1].ends_with("; some hosts have no NIC in 2 of them"), "{found:?}");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn hosts_that_share_no_plane_are_an_error() {
        let found = reported_wiring(&two_planes("h1:a1,b1 h2:a2 h3:b2"));
        let errors: Vec<&String> = found.iter().filter(|it| it.starts_with("error")).collect();
        let expected = [
            "error: a2: its hosts cannot reach those of b2",
            "error: b2: its hosts cannot reach those of a2",
        ];
        assert_eq!(errors, expected);
        let alone = reported_wiring(&two_planes("h1:a1 h2:a2 h3:b2"));
        assert_eq!(alone[0], "error: b2: its hosts can reach no other leaf");
        assert_eq!(alone.iter().filter(|it| it.starts_with("error")).count(), 1);
    }

    /// Hosts reach each other over the other plane, which has less capacity than is planned for.
    #[test]
    fn a_broken_plane_is_a_warning() {
        let fabric = two_planes("h1:a1,b1 h2:a2,b2");
        let down = fabric.links_named("b1-bs").into_iter().map(AvailabilityChange::LinkDown);
        let found = reported_wiring(&fabric.with_changes(down));
        let text = "its NICs can reach those of no other leaf; hosts use their other NICs";
        assert_eq!(found[..2], [format!("warning: b1: {text}"), format!("warning: b2: {text}")]);
        assert_eq!(found.len(), 3);
    }
}
