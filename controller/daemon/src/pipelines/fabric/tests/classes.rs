//! Leaves that are reached alike: what stands in the tables, and what failures write.

use p4::{TableUpdate, diff_tables};

use super::*;

/// Six leaves below three spines: more leaves than links to them.
fn six_leaves() -> Fabric {
    let spec = ClosSpec { leaves: 6, spines: 3, hosts_per_leaf: 1, ..ClosSpec::default() };
    clos::build_clos("six leaves", &spec).unwrap()
}

/// What is written to each switch when these cables fail, as people see it.
fn written(fabric: &Fabric, cables: &[LinkId]) -> BTreeMap<String, Vec<String>> {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let failures = cables.iter().map(|cable| AvailabilityChange::LinkDown(*cable));
    let failed = fabric.with_changes(failures);
    let plan = plan(fabric, &[]);
    let [before, after] = [fabric, &failed].map(|fabric| lowered(fabric, &plan));
    let shown = |update: &TableUpdate| p4info.display(update).to_string();
    let of_switch = |switch: SwitchId| {
        let updates = diff_tables(p4info, &after[&switch], &before[&switch]);
        (fabric.switch(switch).name.clone(), updates.iter().map(shown).collect())
    };
    fabric.switch_ids().map(of_switch).collect()
}

/// The cables between leaves and a spine.
fn cables_of(fabric: &Fabric, spine: &str) -> Vec<LinkId> {
    fabric.down_links(fabric.switch_named(spine).unwrap()).to_vec()
}

#[test]
fn leaves_share_a_group_and_each_lost_link_has_one_ready() {
    let fabric = six_leaves();
    let rows = shown(&fabric, &lowered(&fabric, &plan(&fabric, &[])), "leaf1");
    let rows: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|row| ["dst_leaf", "ecmp_group"].iter().any(|table| row.starts_with(table)))
        .collect();
    let expected = [
        "dst_leaf dst=10.0.2.0/24 -> set_dst_leaf(id=2)",
        "dst_leaf dst=10.0.3.0/24 -> set_dst_leaf(id=2)",
        "dst_leaf dst=10.0.4.0/24 -> set_dst_leaf(id=2)",
        "dst_leaf dst=10.0.5.0/24 -> set_dst_leaf(id=2)",
        "dst_leaf dst=10.0.6.0/24 -> set_dst_leaf(id=2)",
        "ecmp_group dst_leaf=2 -> [1xto_ecmp_port(port=2), 1xto_ecmp_port(port=3), \
         1xto_ecmp_port(port=4)]",
        "ecmp_group dst_leaf=3 -> [1xto_ecmp_port(port=3), 1xto_ecmp_port(port=4)]",
        "ecmp_group dst_leaf=4 -> [1xto_ecmp_port(port=2), 1xto_ecmp_port(port=4)]",
        "ecmp_group dst_leaf=5 -> [1xto_ecmp_port(port=2), 1xto_ecmp_port(port=3)]",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_cable_that_fails_elsewhere_is_one_write() {
    let fabric = six_leaves();
    let far = cables_of(&fabric, "spine2")[3];
    let written = written(&fabric, &[far]);
    for leaf in ["leaf1", "leaf2", "leaf3", "leaf5", "leaf6"] {
        let [row] = &written[leaf][..] else {
            panic!("{leaf}: {:?}", written[leaf]);
        };
        assert!(row.starts_with("modify dst_leaf dst=10.0.4.0/24 -> "), "{leaf}: {row}");
    }
    let own = &written["leaf4"];
    let [inserted, modified]: [Vec<&String>; 2] =
        ["insert", "modify"].map(|kind| own.iter().filter(|row| row.starts_with(kind)).collect());
    // The port is down; its place in the classes is taken where they stand.
    assert_eq!(inserted.len(), 2, "{own:?}");
    assert_eq!(inserted.len() + modified.len(), own.len());
    assert!(own.iter().all(|row| !row.contains("dst_leaf dst=")), "{own:?}");
}

#[test]
fn a_spine_that_fails_moves_no_leaf() {
    let fabric = six_leaves();
    let written = written(&fabric, &cables_of(&fabric, "spine2"));
    for (switch, rows) in written.iter().filter(|(switch, _)| switch.starts_with("leaf")) {
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.contains("dst_leaf dst=")));
        assert!(rows.iter().all(|row| !row.starts_with("delete")), "{switch}: {rows:?}");
    }
}

/// What has lost two links has a class of its own, under a second number.
#[test]
fn leaves_that_lost_two_links_share_a_class_of_their_own() {
    let fabric = six_leaves();
    let lost = ["spine1", "spine2"].map(|spine| cables_of(&fabric, spine));
    let written = written(&fabric, &[lost[0][4], lost[1][4], lost[0][5], lost[1][5]]);
    let expected = [
        "insert ecmp_group dst_leaf=11 -> [1xto_ecmp_port(port=4)]",
        "insert path dst_leaf=11 path=2 -> to_uplink(port=4, backup=4)",
        "insert path dst_leaf=11 path=3 -> to_uplink(port=4, backup=4)",
        "insert path dst_leaf=11 path=4 -> to_uplink(port=4, backup=4)",
        "modify dst_leaf dst=10.0.5.0/24 -> set_dst_leaf(id=11)",
        "modify dst_leaf dst=10.0.6.0/24 -> set_dst_leaf(id=11)",
    ];
    assert_eq!(written["leaf1"], expected);
}
