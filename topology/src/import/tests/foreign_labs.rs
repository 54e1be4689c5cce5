//! Labs and models as people publish them: what is inferred, inherited and left out.

use super::*;

/// Everything that an import left out, one line each.
/// Tiers and hosts by name, in the order of the fabric.
fn roles(fabric: &Fabric) -> String {
    let switches =
        fabric.switches().iter().map(|switch| format!("{} {}", switch.name, switch.tier));
    let hosts = fabric.hosts().iter().map(|host| format!("{} host", host.name));
    switches.chain(hosts).collect::<Vec<_>>().join(", ")
}

/// A Clos without a label or a group, as vendors publish it, with a collector beside it.
const PLAIN: &str = "
name: plain
topology:
  defaults: { kind: arista_ceos }
  kinds: { linux: { image: tools } }
  nodes:
    tor-a:
    tor-b:
    up1: { kind: nokia_srlinux }
    top1: { kind: nokia_srlinux }
    n1: { kind: linux }
    n2: { kind: linux, binds: [a, b] }
    collector: { kind: linux, image: gnmic }
    lan: { kind: bridge }
  links:
    - endpoints: [tor-a:et1, up1:et1]
    - endpoints: [tor-b:et1, up1:et2]
    - endpoints: [up1:et3, top1:et1]
    - endpoints: [n1:eth1, tor-a:et2]
    - endpoints: [n2:eth1, tor-b:et2]
    - endpoints: [n2:eth2, tor-a:et3]
    - endpoints: [tor-b:et9, host:br7]
    - endpoints: [top1:et9, lan:eth4]
    - { type: mgmt-net, endpoint: { node: top1, interface: et8 }, host-interface: m0 }
";

#[test]
fn tiers_and_hosts_of_a_plain_lab_follow_from_its_cables() {
    let imported = lab(PLAIN).unwrap();
    let expected = "tor-a leaf, tor-b leaf, up1 spine, top1 core, n1 host, n2 host";
    assert_eq!(roles(&imported.fabric), expected);
    assert_eq!(imported.fabric.cables().count(), 6);
    let expected = [
        "1 node (kind bridge is no device of a fabric): lan",
        "1 cable (leaves the lab: host): tor-b:et9-host:br7 (topology.links[6])",
        "1 cable (ends at a node that is left out: kind bridge is no device of a fabric): \
         top1:et9-lan:eth4 (topology.links[7])",
        "1 cable (leaves the lab: mgmt-net): top1:et8 (topology.links[8])",
        "1 node (no cable): collector",
        "2 fields (they say nothing of a fabric): binds, links.host-interface",
    ];
    assert_eq!(left_out(&imported), expected);
    let assumed = imported.assumptions.join("; ");
    for part in ["roles by cables of 2 nodes: hosts n1, n2", "core top1; leaf tor-a, tor-b"] {
        assert!(assumed.contains(part), "{assumed}");
    }
}

#[test]
fn groups_kinds_and_defaults_give_to_nodes_in_this_order() {
    let text = "
name: given
topology:
  defaults: { group: lower, labels: { crux.gpus: 2 } }
  kinds:
    box: { labels: { crux.gpus: 4 } }
    sw: { group: upper }
  groups:
    lower: { kind: sw, labels: { crux.tier: leaf } }
    upper: { kind: sw, labels: { crux.tier: spine } }
    many: { kind: box, labels: { crux.gpus: 8 } }
  nodes:
    l1:
    s1: { kind: sw }
    a: { group: many }
    b: { group: many, labels: { crux.gpus: 1 } }
    c: { kind: box, group: cattle }
    d: { kind: linux, group: cattle }
    logs: { kind: linux, group: cattle }
    l2: { kind: router, group: cattle }
  links:
    - endpoints: [l1:eth1, s1:eth1]
    - endpoints: [a:eth1, l1:eth2]
    - endpoints: [b:eth1, l1:eth3]
    - endpoints: [c:eth1, l1:eth4]
    - endpoints: [d:eth1, l2:eth1]
    - endpoints: [l2:eth2, s1:eth2]
";
    let imported = lab(text).unwrap();
    let fabric = &imported.fabric;
    assert_eq!(roles(fabric), "l1 leaf, s1 spine, l2 leaf, a host, b host, c host, d host");
    let gpus: Vec<u32> = fabric.hosts().iter().map(|host| host.gpus).collect();
    assert_eq!(gpus, [8, 1, 4, 2]);
    assert_eq!(left_out(&imported)[0], "1 node (no cable): logs");
}

#[test]
fn routers_in_containers_differ_from_hosts_by_cables_and_images() {
    let routers = |spine: &str| {
        format!(
            "
topology:
  nodes:
    r1: {{ kind: linux }}
    r2: {{ kind: linux }}
    top: {{ kind: linux{spine} }}
    pc1: {{ kind: linux }}
    pc2: {{ kind: linux }}
  links:
    - endpoints: [r1:eth1, top:eth1]
    - endpoints: [r2:eth1, top:eth2]
    - endpoints: [pc1:eth1, r1:eth2]
    - endpoints: [pc2:eth1, r2:eth2]
"
        )
    };
    for spine in ["", ", image: quay.example/FRR:10"] {
        let imported = lab(&routers(spine)).unwrap();
        assert_eq!(
            roles(&imported.fabric),
            "r1 leaf, r2 leaf, top spine, pc1 host, pc2 host",
            "{:?}",
            imported.assumptions
        );
    }
}

#[test]
fn a_lab_that_is_no_fabric_is_refused_with_the_reason() {
    for (nodes, links, expected) in [
        (
            "{ a: { kind: srl }, b: { kind: srl } }",
            "[{ endpoints: [a:e1, b:e1] }]",
            "topology.nodes: no host has a cable to a switch, so nothing says which of a, b are leaves",
        ),
        (
            "{ a: { kind: linux }, b: { kind: linux } }",
            "[{ endpoints: [a:e1, b:e1] }]",
            "topology.nodes.a: cables do not say whether it is a switch or a host: add the label \
             crux.tier (leaf, spine or core), or crux.gpus with the GPUs of a host; so for a, b",
        ),
        (
            "{ a: { kind: linux } }",
            "[]",
            "topology.nodes: no node is a switch with a cable of the fabric; left out: 1 node (no \
             cable): a",
        ),
    ] {
        let text = format!("topology:\n  nodes: {nodes}\n  links: {links}\n");
        let error = lab(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn addresses_and_parts_of_a_lab_are_used() {
    let text = "
topology:
  nodes:
    sw-a: { kind: nokia_srsim }
    sw-1: { kind: nokia_srsim, network-mode: 'container:sw-a' }
    n1: { kind: linux }
    n2: { kind: linux, network-mode: none }
  links:
    - { endpoints: [n1:eth1, sw-1:1/1/c1/1], ipv4: [10.9.0.1/31, ''] }
    - type: veth
      endpoints:
        - { node: n2, interface: eth0, ipv4: 10.9.0.3/31, mac: 02:00:00:00:00:09, vars: { a: 1 } }
        - { node: sw-1, interface: 1/1/c2/1 }
    - endpoints: [n2:eth1, sw-a:1/1/c3/1]
";
    let imported = lab(text).unwrap();
    let nics: Vec<String> = imported.fabric.nics().iter().map(|nic| nic.ip.to_string()).collect();
    assert_eq!(nics, ["10.9.0.1", "10.9.0.3", "10.0.1.1"]);
    assert_eq!(imported.fabric.nics()[1].mac.to_string(), "02:00:00:00:00:09");
    let leaf = &imported.fabric.switches()[0];
    let names: Vec<&str> = leaf.port_names.values().map(String::as_str).collect();
    assert_eq!((&*leaf.name, names), ("sw-a", vec!["1/1/c1/1", "1/1/c2/1", "1/1/c3/1"]));
    let part = "1 node (part of sw-a (network-mode)): sw-1";
    assert_eq!(left_out(&imported)[0], part);
}

#[test]
fn ports_numbered_in_order_are_reported_and_keep_their_names() {
    let text = "
topology:
  nodes: { l1: { group: leaf }, l2: { group: leaf }, s1: { group: spine }, a: { group: host } }
  links:
    - endpoints: [a:eth1, l1:Ethernet0]
    - endpoints: [l1:Ethernet8, s1:ethernet-1/1/1]
    - endpoints: [l2:Ethernet8, s1:ethernet-1/2/1]
";
    let imported = lab(text).unwrap();
    let names: Vec<_> = imported.fabric.switches().iter().map(|it| it.port_names.clone()).collect();
    let named = |pairs: &[(u32, &str)]| -> std::collections::BTreeMap<u32, String> {
        pairs.iter().map(|(port, name)| (*port, (*name).to_owned())).collect()
    };
    assert_eq!(names[0], named(&[(1, "Ethernet0"), (2, "Ethernet8")]));
    assert_eq!(names[1], named(&[(8, "Ethernet8")]));
    assert_eq!(names[2], named(&[(1, "ethernet-1/1/1"), (2, "ethernet-1/2/1")]));
    let expected = "ports by the order of their interfaces, whose numbers repeat or are none of 1 to \
                510, on 2 switches: l1, s1";
    assert_eq!(imported.assumptions[..2], ["the name lab", expected]);
}

#[test]
fn a_collector_at_a_spine_is_no_host() {
    let text = "
topology:
  nodes:
    l1: { group: leaf }
    s1: { group: spine }
    a: { group: server }
    logs: { kind: linux }
  links:
    - endpoints: [a:eth1, l1:eth1]
    - endpoints: [l1:eth2, s1:eth1]
    - endpoints: [logs:eth1, s1:eth2]
";
    let imported = lab(text).unwrap();
    assert_eq!(roles(&imported.fabric), "l1 leaf, s1 spine, a host");
    let expected = [
        "1 cable (joins a host to a switch that is no leaf): logs:eth1-s1:eth2 (topology.links[2])",
        "1 node (no cable to a leaf): logs",
    ];
    assert_eq!(left_out(&imported), expected);
    let stated = text.replacen("kind: linux", "group: server", 1);
    let error = lab(&stated).unwrap_err().to_string();
    assert_eq!(error, "topology.links[2]: connects logs and s1; hosts connect to leaves");
}

#[test]
fn links_of_p4_utils_have_the_defaults_of_the_topology() {
    let text = r#"{"cli": true, "topology": {
        "default": {"bw": 40, "delay": 5},
        "hosts": {"h1": {"defaultRoute": "via r1"}, "h2": {}},
        "switches": {"s1": {}, "s2": {"cli_input": "a"}},
        "routers": {"r1": {"ospfd": true}},
        "links": [
            ["h1", "s1", {"bw": 20, "params1": {"ip": "1.0.0.2/24"}, "addr1": "02:00:00:00:00:07"}],
            ["h2", "s2"], ["s1", "r1", {"intfName1": "up", "loss": 1}], ["s2", "r1"]]
    }}"#;
    let imported = app(text).unwrap();
    let fabric = &imported.fabric;
    assert_eq!(roles(fabric), "s1 leaf, s2 leaf, r1 spine, h1 host, h2 host");
    let gbps: Vec<f64> = fabric.cables().map(|cable| fabric.link(cable).bandwidth.gbps()).collect();
    assert_eq!(gbps, [0.02, 0.04, 0.04, 0.04]);
    let nic = &fabric.nics()[0];
    assert_eq!(
        (nic.ip.to_string(), nic.mac.to_string()),
        ("1.0.0.2".into(), "02:00:00:00:00:07".into())
    );
    assert_eq!(fabric.switches()[0].port_names[&2], "up");
    let fields = "6 fields (they say nothing of a fabric): cli, hosts.defaultRoute, links.loss, \
                  routers.ospfd, switches.cli_input, topology.default.delay";
    assert_eq!(left_out(&imported), [fields]);
    let error = app(&text.replacen("\"bw\": 20", "\"bw\": \"fast\"", 1)).unwrap_err().to_string();
    assert!(error.starts_with("topology.links[0]: bw \"fast\" is no rate"), "{error}");
}

/// A model of topograph 1.0: leaves are named by the switches above them and by blocks alone.
const BLOCKS: &str = "
switches:
  root: { labels: { region: west }, switches: [agg1, agg2] }
  agg1: { switches: [rack1, rack2] }
  agg2: { switches: [rack3, spare] }
blocks:
  - { switch: rack1, nodes: ['gpu[01-03]'] }
  - { switch: rack2, nodes: [11, gpu12], annotations: { domain: nvl1 } }
  - { switch: rack1, nodes: [gpu04] }
  - { switch: rack3, nodes: [gpu21] }
  - { nodes: ['lone[1-2]'] }
";

#[test]
fn blocks_of_a_model_attach_nodes_to_switches() {
    let read = |text: &str| import_topograph(text, &TierAssumptions::default());
    let imported = read(BLOCKS).unwrap();
    let tree = crate::export::FabricTree::of_fabric(&imported.fabric);
    let leaves: Vec<String> =
        tree.leaf_groups().map(|leaf| format!("{}: {}", leaf.name, leaf.hosts.join(" "))).collect();
    assert_eq!(leaves, ["rack1: gpu01 gpu02 gpu03 gpu04", "rack2: 11 gpu12", "rack3: gpu21"]);
    assert_eq!(tree.pods().count(), 2);
    let expected = [
        "2 nodes (its block names no switch): lone1, lone2",
        "1 switch (no nodes are below it): spare",
        "2 fields (they say nothing of a fabric): blocks.annotations, switches.labels",
    ];
    assert_eq!(left_out(&imported), expected);
    let assumed = imported.assumptions.join("; ");
    for part in ["each of 2 pods: agg1, agg2", "stand for what is above pods: root"] {
        assert!(assumed.contains(part), "{assumed}");
    }
    for (good, bad, expected) in [
        (
            "switch: rack3",
            "switch: rack4",
            "blocks[3].switch: no switch is named rack4; did you mean",
        ),
        ("[gpu21]", "[]", "blocks[3].nodes: a block has at least one node"),
        ("[gpu21]", "[gpu01]", "blocks[3].nodes: gpu01 is below another leaf"),
        ("[rack3, spare]", "[rack3, root]", "root is below itself (root > agg2 > root)"),
        ("[rack3, spare]", "[rack3, rack1]", "rack1 is also below agg1"),
    ] {
        assert!(BLOCKS.contains(good), "{good}");
        let error = read(&BLOCKS.replacen(good, bad, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
}
