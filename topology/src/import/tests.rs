//! Files of others, and what is said of those that cannot be read. What our own exports write is
//! read back in the property tests of this crate.

use super::*;
use crate::fabric::Tier;

/// As a person writes a lab: groups, interfaces of a vendor, no speeds and no addresses.
const LAB: &str = "
name: demo
topology:
  kinds: { nokia_srlinux: { image: srl } }
  nodes:
    leaf1: { kind: nokia_srlinux, group: leaf }
    leaf2: { kind: nokia_srlinux, group: leaf }
    spine1: { kind: nokia_srlinux, labels: { crux.tier: spine } }
    a: { kind: linux, group: server }
    b: { kind: linux, labels: { crux.gpus: 4 } }
  links:
    - endpoints: [a:eth1, leaf1:e1-1]
    - endpoints: [a:eth10, leaf2:e1-1]
    - endpoints: [a:eth2, leaf2:e1-2]
    - { type: veth, endpoints: [{ node: b, interface: eth1 }, { node: leaf2, interface: e1-3 }] }
    - { endpoints: [leaf1:e1-49, spine1:e1-1], labels: { crux.gbps: 100 } }
    - endpoints: [leaf2:e1-49, spine1:e2-1]
";

/// `a:0 b:1 gbps` of every cable.
fn cables(fabric: &Fabric) -> Vec<String> {
    let cables = fabric.cables().map(|cable| {
        let link = fabric.link(cable);
        let ends = [link.from, link.to].map(|end| fabric.endpoint_name(end));
        format!("{} {}", ends.join(" "), link.bandwidth.gbps())
    });
    cables.collect()
}

fn left_out(imported: &ImportedFabric) -> Vec<String> {
    imported.left_out.iter().map(ToString::to_string).collect()
}

fn lab(text: &str) -> Result<ImportedFabric, ImportError> {
    import_containerlab(text, &InventoryAssumptions::default())
}

#[test]
fn a_lab_that_says_little_is_completed_and_says_with_what() {
    let ImportedFabric { fabric, assumptions, .. } = lab(LAB).unwrap();
    let links = cables(&fabric);
    let expected = [
        "a:0 leaf1:1 400",
        // eth10 is the last interface; two of spine1 end with 1, so its ports are places.
        "a:2 leaf2:1 400",
        "a:1 leaf2:2 400",
        "b:0 leaf2:3 400",
        "leaf1:49 spine1:1 100",
        "leaf2:49 spine1:2 400",
    ];
    assert_eq!(links, expected);
    let nics: Vec<String> = fabric.nics().iter().map(|nic| nic.ip.to_string()).collect();
    assert_eq!(nics, ["10.0.1.1", "10.0.2.1", "10.0.2.2", "10.0.2.3"]);
    let gpus: Vec<u32> = fabric.hosts().iter().map(|host| host.gpus).collect();
    assert_eq!((fabric.name(), gpus), ("demo", vec![8, 4]));
    let listed = assumptions.join("; ");
    for part in [
        "8 GPUs in each of 1 hosts",
        "5 cables",
        "of 4 NICs",
        "made of the IP addresses of 3 NICs",
        "3 switches",
    ] {
        assert!(listed.contains(part), "{listed}");
    }
}

#[test]
fn an_interface_of_a_host_with_two_cables_is_a_bond_and_with_three_a_mistake() {
    let ports = |text: &str| {
        let imported = lab(text).unwrap();
        (cables(&imported.fabric)[..3].to_vec(), imported.assumptions)
    };
    let bond = LAB.replacen("a:eth10,", "a:eth1,", 1);
    let (links, assumed) = ports(&bond);
    assert_eq!(links, ["a:0 leaf1:1 400", "a:0 leaf2:1 400", "a:1 leaf2:2 400"]);
    assert!(assumed.contains(&"bonds of 1 interface with two cables: a:eth1".to_owned()));
    let error = lab(&bond.replacen("a:eth2,", "a:eth1,", 1)).unwrap_err().to_string();
    let text = "topology.links[2]: a:eth1 already has the cable of topology.links[0] and \
                topology.links[1]; a NIC has one cable, or two as a bond";
    assert!(error.starts_with(text), "{error}");
    // Two interfaces are a bond where the host says so, by their places.
    let stated = LAB.replacen("group: server", "labels: { crux.bonds: '0+2', crux.gpus: 8 }", 1);
    assert_eq!(ports(&stated).0, links);
    for wrong in ["0+9", "0", "a+b", "0+0", "1+0,2+1", "0+2,1+2"] {
        let error = lab(&stated.replacen("0+2", wrong, 1)).unwrap_err().to_string();
        assert!(error.contains("topology.nodes.a: bonds"), "{error}");
    }
}

#[test]
fn a_mistake_in_a_lab_is_named_by_its_field_with_a_remedy() {
    for (good, bad, expected) in [
        ("crux.tier: spine", "crux.tier: top", "nodes.spine1: crux.tier \"top\" is unknown"),
        ("group: leaf", "group: [x]", "topology.nodes.leaf1: "),
        ("spine1:e2-1", "spin1:e2-1", "did you mean spine1?"),
        ("[leaf2:e1-49, spine1:e2-1]", "[leaf2:e1-49]", "topology.links[5]: 1 endpoints"),
        (
            "a:eth1,",
            "a-eth1,",
            "topology.links[0]: \"a-eth1\" is no endpoint: write node:interface",
        ),
        ("a:eth1,", "a:eth0,", "topology.links[0]: a:eth0 belongs to containerlab: use eth1"),
        ("type: veth", "type: wire", "topology.links[3]: a link of type wire is unknown"),
        (
            "[leaf2:e1-49,",
            "[leaf1:e1-1,",
            "topology.links[5]: leaf1:e1-1 already has the cable of topology.links[0]",
        ),
        ("  links:", "links:", "links: stands beside topology"),
        ("  links:", "  link:", "topology.link: unknown key; did you mean links?"),
        ("  links:", "  {{ range }}:", "this is a template: render it first"),
        ("crux.gbps: 100", "crux.gbps: fast", "topology.links[4]: \"fast\" is no speed"),
        ("crux.gbps: 100", "crux.gbps: -1", "topology.links[4]: must be a number above 0"),
        ("crux.gbps: 100", "crux.scheduler: x", "topology.links[4]: \"x\" is no scheduler: use"),
        (
            "crux.gpus: 4",
            "crux.gpu: 4",
            "topology.nodes.b: crux.gpu is unknown here; did you mean crux.gpus?",
        ),
        ("crux.gbps: 100", "crux.gbit: 100", "topology.links[4]: crux.gbit is unknown here"),
        ("crux.gpus: 4", "crux.gpus: many", "topology.nodes.b: gpus \"many\" is not a whole"),
        ("leaf1:e1-1]", "b:eth2]", "topology.links[0]: connects a and b; hosts connect to leaves"),
        ("topology:", "topologie:", "missing field `topology`"),
    ] {
        assert!(LAB.contains(good), "{good}");
        let error = lab(&LAB.replacen(good, bad, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

const DEVICES: &str = "Name,Role,Site\nh1,Server,dc1\nleaf1,ToR,dc1\npdu,Power,dc1\n";
const INTERFACES: &str = "device,name,type,speed\nh1,ib0,other,200000000\n\
     leaf1,Ethernet1/1,400gbase-x-qsfpdd,\n\
     leaf1,mgmt,other,\npdu,1,other,\n";
const CABLES: &str = "side_a_device,side_a_name,side_b_device,side_b_name\n\
     h1,ib0,leaf1,Ethernet1/1\npdu,1,leaf1,mgmt\n";
const ADDRESSES: &str = "address,device,interface\n192.168.0.7/24,h1,ib0\n";

#[test]
fn an_inventory_of_others_is_read_without_what_is_no_fabric() {
    let tables = NetboxTables {
        devices: DEVICES,
        interfaces: INTERFACES,
        cables: CABLES,
        addresses: Some(ADDRESSES),
    };
    let imported = import_netbox(&tables, &InventoryAssumptions::default()).unwrap();
    let fabric = imported.fabric;
    assert_eq!((fabric.name(), fabric.hosts().len(), fabric.switches().len()), ("dc1", 1, 1));
    assert_eq!(fabric.nics()[0].ip.to_string(), "192.168.0.7");
    assert_eq!(fabric.links().len(), 2);
    assert_eq!(fabric.links()[0].bandwidth.gbps(), 200.0);
    assert_eq!(fabric.switches_of_tier(Tier::Leaf).count(), 1);
}

#[test]
fn a_mistake_in_an_inventory_is_named_by_table_row_and_column() {
    let texts = [DEVICES, INTERFACES, CABLES, ADDRESSES];
    for (table, good, bad, expected) in [
        (0, "Name,", "Host,", "devices line 1: the header has no column name"),
        (0, "leaf1,ToR", "leaf 1,ToR", "devices row 3: \"leaf 1\" is not a name"),
        (1, "200000000", "200G", "interfaces row 2, speed: \"200G\" is no speed: write kb/s"),
        (1, "leaf1,mgmt", "h1,ib0", "interfaces row 4, name: the device has another"),
        (2, "h1,ib0,", "h1,ib1,", "cables row 2, side_a_name: h1 has no interface \"ib1\""),
        (2, "h1,ib0,", "h9,ib0,", "cables row 2, side_a_name: h9 has no interface \"ib0\""),
        (3, "192.168.0.7/24", "192.168.0/24", "devices row 2: \"192.168.0\" is no IP address"),
        (2, "side_a_device", "termination_a_id", "export the view of NetBox's cables with"),
    ] {
        let mut texts = texts.map(str::to_owned);
        assert!(texts[table].contains(good), "{good}");
        texts[table] = texts[table].replacen(good, bad, 1);
        let [devices, interfaces, cables, addresses] = &texts;
        let tables = NetboxTables { devices, interfaces, cables, addresses: Some(addresses) };
        let error = import_netbox(&tables, &InventoryAssumptions::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{bad}: {error}");
    }
}

const MODEL: &str = "
switches:
  core: { switches: [rack2, s1] }
  s1: { switches: [rack1] }
  rack1: { nodes: ['n[1-2]'] }
  rack2: { nodes: [n3], location: hall 2 }
nodes: { n1: {}, n2: { type: dgx }, n3: {} }
";

#[test]
fn a_model_is_a_tree_of_leaves_and_pods() {
    let read = |text: &str| import_topograph(text, &TierAssumptions::default());
    let fabric = read(MODEL).unwrap().fabric;
    let hosts: Vec<&str> = fabric.hosts().iter().map(|host| &*host.name).collect();
    assert_eq!(hosts, ["n3", "n1", "n2"]);
    let tree = crate::export::FabricTree::of_fabric(&fabric);
    assert_eq!(tree.pods().count(), 2);
    let apart = read(&MODEL.replacen("[rack2, s1]", "[rack2]", 1)).unwrap().assumptions;
    assert!(apart[3].starts_with("the cores join what is below 2 switches"), "{apart:?}");
    for (good, bad, expected) in [
        ("[rack1]", "[rack9]", "switches.s1.switches: no switch is named rack9"),
        ("[rack1]", "[rack1, rack2]", "switches.s1.switches: rack2 is also below core"),
        ("[n3]", "[n9]", "switches.rack2.nodes: n9 is not in nodes; add it"),
        ("[n3]", "[n1]", "switches.rack2.nodes: n1 is below another leaf"),
        ("n[1-2]", "n[1-", "switches.rack1.nodes: invalid host list"),
        ("n[1-2]", "n[1-90]", "switches.rack1.nodes: n4 is not in nodes"),
        ("switches:\n", "switch:\n", "switches: missing; a model lists its switches"),
        ("[n3]", "[n3], switches: [core]", "core is below itself (core > rack2 > core)"),
        ("[n3]", "[n3], switches: [rack2]", "switches.rack2.switches: rack2 is also below core"),
    ] {
        assert!(MODEL.contains(good), "{good}");
        let error = read(&MODEL.replacen(good, bad, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

/// Two switches of 60 nodes, as a unit of a cluster with eight NICs in each node has them.
const UNITS: &str = "
switches:
  top: { switches: [unit1, unit2] }
  unit1: { nodes: ['n[01-60]'] }
  unit2: { nodes: ['n[61-68]'] }
";

#[test]
fn rails_divide_what_one_leaf_cannot_hold() {
    let read = |host_links, spines, rails| {
        let assumed = TierAssumptions { host_links, spines, rails, ..TierAssumptions::default() };
        import_topograph(UNITS, &assumed)
    };
    let fabric = read(8, 16, true).unwrap().fabric;
    let leaves = |host: usize| -> Vec<String> {
        let leaves = fabric.hosts()[host].nics.iter().map(|nic| fabric.leaf_of(*nic));
        leaves.map(|leaf| fabric.switch(leaf).name.clone()).collect()
    };
    for (host, unit) in [(0, "unit1"), (59, "unit1"), (60, "unit2")] {
        let expected: Vec<String> = (0..8).map(|rail| format!("{unit}-rail{rail}")).collect();
        assert_eq!(leaves(host), expected);
    }
    let serious = crate::check_fabric(&fabric);
    assert!(serious.iter().all(|finding| finding.severity == crate::Severity::Info));
    // One leaf has 480 NICs and 16 uplinks on its 509 ports.
    assert_eq!(read(8, 16, false).unwrap().fabric.switches_of_tier(Tier::Leaf).count(), 2);
    let full = read(8, 64, false).unwrap_err().to_string();
    let expected = "switches.unit1.nodes: 60 hosts with 8 NICs each, all on one leaf; a leaf has \
                    509 ports, 64 of them to spines, so 55 hosts fit: give --rails";
    assert!(full.starts_with(expected), "{full}");
    let full = read(8, 450, true).unwrap_err().to_string();
    assert!(full.ends_with("so 59 hosts fit: divide the switch"), "{full}");
    let error = read(u32::MAX, 16, true).unwrap_err().to_string();
    assert!(error.starts_with("host_links: makes 8589934590 leaves"), "{error}");
}

/// As the P4 tutorials have it: ports in the names of ends, no tiers, a delay behind a link.
const TUTORIAL: &str = r#"{
  "hosts": {
    "h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["route add default"]},
    "h2": {"ip": "10.0.2.2/24", "mac": "08:00:00:00:02:22"}
  },
  "switches": {"s1": {"runtime_json": "s1.json"}, "s2": {}, "s3": {}, "s4": {}},
  "links": [["h1", "s1-p1"], ["h2", "s2-p1", "0", 0.5], ["s1-p3", "s3-p1"], ["s2-p3", "s3-p2"],
            ["s3-p9", "s4-p1"]]
}"#;

fn app(text: &str) -> Result<ImportedFabric, ImportError> {
    import_p4utils(text, &InventoryAssumptions::default())
}

#[test]
fn a_topology_of_the_tutorials_has_its_tiers_from_its_hosts() {
    let ImportedFabric { fabric, assumptions, .. } = app(TUTORIAL).unwrap();
    let tiers: Vec<Tier> = fabric.switches().iter().map(|switch| switch.tier).collect();
    assert_eq!(tiers, [Tier::Leaf, Tier::Leaf, Tier::Spine, Tier::Core]);
    let names: Vec<String> = fabric.cables().map(|cable| fabric.link_name(cable)).collect();
    assert_eq!(names, ["h1:0>s1:1", "h2:0>s2:1", "s1:3>s3:1", "s2:3>s3:2", "s3:9>s4:1"]);
    assert_eq!(fabric.nics()[0].ip.to_string(), "10.0.1.1");
    assert_eq!(fabric.nics()[0].mac.to_string(), "08:00:00:00:01:11");
    let tiers = "tiers by where hosts are of 4 switches: core s4; leaf s1, s2; spine s3";
    assert!(assumptions.contains(&tiers.to_owned()), "{assumptions:?}");
    let gbps: Vec<f64> = fabric.cables().map(|cable| fabric.link(cable).bandwidth.gbps()).collect();
    // The fourth entry of a link is its rate in Mbit/s.
    assert_eq!(gbps, [400.0, 0.0005, 400.0, 400.0, 400.0]);
}

#[test]
fn a_topology_of_p4_utils_has_rates_and_free_ports() {
    let text = r#"{"p4_src": "x.p4", "topology": {
        "assignment_strategy": "l2",
        "hosts": {"h1": {}, "h2": {}},
        "switches": {"s1": {}, "s2": {"crux.tier": "spine"}},
        "links": [["h1", "s1", {"bw": 100}], ["s1", "h2", {"port1": 1}], ["s1", "s2"]]
    }}"#;
    let fabric = app(text).unwrap().fabric;
    let names: Vec<String> = fabric.cables().map(|cable| fabric.link_name(cable)).collect();
    assert_eq!(names, ["h1:0>s1:2", "s1:1>h2:0", "s1:3>s2:1"]);
    let gbps: Vec<f64> = fabric.cables().map(|cable| fabric.link(cable).bandwidth.gbps()).collect();
    assert_eq!(gbps, [0.1, 400.0, 400.0]);
    assert_eq!(fabric.nics()[0].ip.to_string(), "10.0.1.1");
}

#[test]
fn what_p4_utils_cannot_mean_is_named() {
    for (from, to, expected) in [
        ("\"s1-p3\"", "\"s9-p3\"", "topology.links[2]: \"s9-p3\" is neither among hosts"),
        ("[\"h1\", \"s1-p1\"]", "[\"h1\"]", "topology.links[0]: a link has the names of two nodes"),
        ("\"s2\": {}", "\"s2\": {\"crux.tier\": \"top\"}", "crux.tier \"top\" is unknown"),
        ("10.0.1.1/24", "10.0.1.x", "topology.hosts.h1"),
    ] {
        assert!(TUTORIAL.contains(from), "{from}");
        let error = app(&TUTORIAL.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

mod foreign_labs;
mod foreign_switches;
mod foreign_tables;
mod foreign_trees;
