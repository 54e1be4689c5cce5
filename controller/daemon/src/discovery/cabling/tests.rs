//! Every kind of difference by name, and that any cabling is described without a remainder.

use super::super::HostAttachment;
use super::*;
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};

/// Two leaves with a host each, two spines: leaf1:1-h1, leaf1:2-spine1:1, leaf1:3-spine2:1, …
fn fabric() -> Fabric {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 1, ..ClosSpec::default() };
    clos::build_clos("lab", &spec).unwrap()
}

fn named(fabric: &Fabric, name: &str) -> SwitchPort {
    let (switch, port) = name.split_once(':').unwrap();
    SwitchPort { switch: fabric.switch_named(switch).unwrap(), port: port.parse().unwrap() }
}

/// The cables that are seen when all is as documented.
fn intended(fabric: &Fabric) -> BTreeMap<SwitchPort, SwitchPort> {
    let links = fabric.links().iter();
    links
        .filter_map(|link| {
            Some((SwitchPort::at_endpoint(link.from)?, SwitchPort::at_endpoint(link.to)?))
        })
        .collect()
}

fn all(fabric: &Fabric) -> BTreeSet<SwitchId> {
    fabric.switch_ids().collect()
}

/// The findings when these directions are not there and these are.
fn check(gone: &[&str], there: &[(&str, &str)], expected: &[&str]) {
    let fabric = fabric();
    let mut links = intended(&fabric);
    for name in gone {
        assert!(links.remove(&named(&fabric, name)).is_some(), "{name}");
    }
    for (from, to) in there {
        links.insert(named(&fabric, from), named(&fabric, to));
    }
    let observed = ObservedTopology { links, ..ObservedTopology::default() };
    let findings = compare_cabling(&fabric, &observed, &all(&fabric));
    let texts = findings.iter().map(|f| format!("{} {}", f.about, f.text));
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}

/// The name of the port of a switch, by the switch that it leads to.
fn port(from: &str, to: &str) -> String {
    let fabric = fabric();
    let link = fabric.links_named(&format!("{from}-{to}"))[0];
    fabric.endpoint_name(fabric.link(link).from)
}

#[test]
fn differences_name_both_ends() {
    let a1 = port("leaf1", "spine1");
    let [b1, b2] = ["spine1", "spine2"].map(|spine| port("leaf2", spine));
    let [s1a, s1b] = ["leaf1", "leaf2"].map(|leaf| port("spine1", leaf));
    let s2b = port("spine2", "leaf2");
    check(&[], &[], &[]);
    let missing = format!("{a1}-{s1a} missing: nothing gets through");
    check(&[&a1, &s1a], &[], &[&missing]);
    let one_way = format!("{a1}-{s1a} one-way: from {s1a} to {a1} and not back");
    check(&[&a1], &[], &[&one_way]);
    let extra = "leaf1:60-spine1:60 extra: no document has this cable";
    check(&[], &[("leaf1:60", "spine1:60"), ("spine1:60", "leaf1:60")], &[extra]);
    // The two cables of the second leaf change places.
    let crossed = [
        format!("{b1}-{s2b} crossed: the document connects {b1} to {s1b} and {s2b} to {b2}"),
        format!("{b2}-{s1b} crossed: the document connects {b2} to {s2b} and {s1b} to {b1}"),
    ];
    let there = [(&b1, &s2b), (&s2b, &b1), (&b2, &s1b), (&s1b, &b2)];
    let there = there.map(|(from, to)| (from.as_str(), to.as_str()));
    let crossed: Vec<&str> = crossed.iter().map(String::as_str).collect();
    check(&[], &there, &crossed);
    // A host's port that leads to a switch.
    let moved =
        format!("leaf1:1-{s1a} crossed: the document connects leaf1:1 to h1:0 and {s1a} to {a1}");
    check(&[&a1], &[("leaf1:1", &s1a), (&s1a, "leaf1:1")], &[&moved]);
}

#[test]
fn silence_of_unwatched_switches_is_no_finding() {
    let fabric = fabric();
    let some = [SwitchId(0), SwitchId(1)].into();
    assert_eq!(compare_cabling(&fabric, &ObservedTopology::default(), &some), []);
    assert_eq!(compare_cabling(&fabric, &ObservedTopology::default(), &all(&fabric)).len(), 4);
}

#[test]
fn hosts_are_compared_by_their_addresses() {
    let fabric = fabric();
    let mac = fabric.nic(0.into()).mac;
    let station = |name: &str| HostAttachment { at: named(&fabric, name), mac };
    let known = fabric.nic(0.into()).ip;
    let unknown = "192.0.2.7".parse().unwrap();
    let mut observed =
        ObservedTopology { links: intended(&fabric), hosts: [(known, station("leaf1:1"))].into() };
    assert_eq!(compare_cabling(&fabric, &observed, &all(&fabric)), []);
    observed.hosts = [(known, station("leaf2:9")), (unknown, station("leaf1:8"))].into();
    let found = compare_cabling(&fabric, &observed, &all(&fabric));
    let texts: Vec<String> = found.iter().map(|f| format!("{} {}", f.about, f.text)).collect();
    assert_eq!(texts[0], "h1:0-leaf2:9 crossed: the document connects it to leaf1:1");
    assert_eq!(texts[1], format!("leaf1:8 extra: a host with 192.0.2.7 and {mac}"));
}

proptest! {
    /// Whatever ports are cabled together: each seen cable that the document lacks is told, once,
    /// and nothing else is but wanted cables at ports where nothing is seen.
    #[test]
    fn every_cabling_is_described_completely(ends in Just(all_ends()).prop_shuffle()) {
        let fabric = fabric();
        let pairs = ends.chunks(2).map(|pair| (pair[0], pair[1]));
        let links = pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        let observed = ObservedTopology { links, ..ObservedTopology::default() };
        let wanted = intended(&fabric);
        let other = |(a, b): &(SwitchPort, SwitchPort)| wanted.get(a) != Some(b);
        let expected = observed.cables().iter().filter(|cable| other(cable)).count();
        let found = compare_cabling(&fabric, &observed, &all(&fabric));
        prop_assert_eq!(found.len(), expected, "{:?}", found);
    }
}

/// All ports of the fabric that are cabled to switches.
fn all_ends() -> Vec<SwitchPort> {
    intended(&fabric()).into_keys().collect()
}
