//! Texts as a person has reviewed them (`goldens/`), and trees of larger fabrics.

use super::*;
use crate::document::DocumentFormat;
use crate::fabric::Fabric;
use crate::host_list::expand_host_list;
use crate::spec::parse_fabric;
use crate::wired_fabric::wired_fabric;

const SMALL: &str = "name = \"small\"
[clos]
leaves = 2
spines = 2
hosts_per_leaf = 2
gpus_per_host = 8
host_gbps = 200.0
uplink_gbps = 400.0
";

const DOUBLE_SIDED: &str = include_str!("../../fabrics/crux-double-sided.toml");
const FABRICS: [&str; 4] = [
    include_str!("../../fabrics/lab.toml"),
    include_str!("../../fabrics/crux-testbed.toml"),
    DOUBLE_SIDED,
    include_str!("../../fabrics/crux-clos-173x16.toml"),
];

fn parse(text: &str) -> Fabric {
    parse_fabric(text, DocumentFormat::Toml, "fabric.toml").unwrap()
}

#[test]
fn texts_are_those_that_were_reviewed() {
    let fabric = parse(SMALL);
    let images = ContainerlabImages { switch: "switch:1".into(), host: "host:1".into() };
    let texts = [
        (export_slurm_conf(&fabric), include_str!("goldens/topology.conf")),
        (export_slurm_yaml(&fabric), include_str!("goldens/topology.yaml")),
        (export_kueue(&fabric).unwrap(), include_str!("goldens/kueue.yaml")),
        (export_topograph(&fabric), include_str!("goldens/topograph.yaml")),
        (export_containerlab(&fabric, &images), include_str!("goldens/small.clab.yml")),
        (export_p4utils(&fabric, "fabric.p4"), include_str!("goldens/p4app.json")),
        (export_netbox(&fabric, NetboxTable::Devices), include_str!("goldens/devices.csv")),
        (export_netbox(&fabric, NetboxTable::Interfaces), include_str!("goldens/interfaces.csv")),
        (export_netbox(&fabric, NetboxTable::Cables), include_str!("goldens/cables.csv")),
        (export_netbox(&fabric, NetboxTable::Addresses), include_str!("goldens/addresses.csv")),
    ];
    for (text, golden) in texts {
        assert_eq!(text, golden);
    }
}

#[test]
fn a_container_of_bmv2_waits_for_its_ports_and_publishes_p4runtime() {
    let images =
        ContainerlabImages { switch: "p4lang/behavioral-model".into(), host: "host:1".into() };
    let text = export_containerlab(&parse(SMALL), &images);
    let lab: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
    let leaf = &lab["topology"]["nodes"]["leaf1"];
    let command = leaf["cmd"].as_str().unwrap();
    let flags =
        "exec simple_switch_grpc --no-p4 --device-id 1 -i 1@eth1 -i 2@eth2 -i 3@eth3 -i 4@eth4 ";
    assert!(command.starts_with("sh -c 'for i in eth1 eth2 eth3 eth4; do until"), "{command}");
    assert!(command.contains(flags) && command.ends_with("--priority-queues 8'"), "{command}");
    assert_eq!(leaf["ports"], serde_json::json!(["127.0.0.1:20001:9559"]));
}

#[test]
fn a_switch_of_sonic_serves_the_levels_of_plans_strictly() {
    let fabric = parse(SMALL);
    let ports = SonicPorts { levels: 8, lanes: 8 };
    let fragment = export_sonic_config(&fabric, "leaf1", ports).unwrap();
    assert_eq!(fragment.text, include_str!("goldens/leaf1.config_db.json"));
    assert!(fragment.notes[0].contains("does not say lossless_levels"), "{:?}", fragment.notes);
    let refused = |switch: &str, levels: u8| {
        let ports = SonicPorts { levels, ..ports };
        export_sonic_config(&fabric, switch, ports).unwrap_err().to_string()
    };
    assert_eq!(refused("leaf9", 8), "the fabric has no switch leaf9");
    assert_eq!(refused("leaf1", 9), "9 levels; a port of SONiC has 1 to 8 strict queues");
    let few = export_sonic_config(&fabric, "spine1", SonicPorts { levels: 3, lanes: 4 }).unwrap();
    let few: serde_json::Value = serde_json::from_str(&few.text).unwrap();
    assert_eq!(few["DSCP_TO_TC_MAP"]["crux"]["63"], "2");
    assert_eq!(few["PORT"]["Ethernet4"]["id"], "2");
    assert_eq!(few["QUEUE"].as_object().unwrap().len(), 2 * 3);
}

/// The fragment of leaf1 of `SMALL` with `queues` and perhaps a length of cables.
fn lossless_fragment(queues: &str, levels: u8) -> (serde_json::Value, Vec<String>) {
    let fabric = parse(&format!("{SMALL}[switch_defaults]\n{queues}\n"));
    let ports = SonicPorts { levels, lanes: 8 };
    let SonicFragment { text, notes } = export_sonic_config(&fabric, "leaf1", ports).unwrap();
    (serde_json::from_str(&text).unwrap(), notes)
}

#[test]
fn lossless_levels_of_sonic_are_whole() {
    let cables = "lossless_levels = 2\n[cable_defaults]\nhost_metres = 2.5";
    let (fragment, notes) = lossless_fragment(cables, 8);
    let port = &fragment["PORT_QOS_MAP"]["Ethernet0"];
    for (field, expect) in [
        ("pfc_enable", "6,7"),
        ("tc_to_pg_map", "crux"),
        ("pfc_to_queue_map", "crux"),
        ("dscp_to_tc_map", "crux"),
        ("tc_to_queue_map", "crux"),
    ] {
        assert_eq!(port[field], expect, "{field}");
    }
    let groups = &fragment["TC_TO_PRIORITY_GROUP_MAP"]["crux"];
    assert_eq!((&groups["5"], &groups["6"], &groups["7"]), (&"0".into(), &"6".into(), &"7".into()));
    let priorities = serde_json::json!({ "6": "6", "7": "7" });
    assert_eq!(fragment["MAP_PFC_PRIORITY_TO_QUEUE"]["crux"], priorities);
    // Port 1 leads to a host of 200 Gb/s, port 3 to a spine of 400.
    let queue = &fragment["QUEUE"]["Ethernet0|7"];
    let whole = serde_json::json!({ "scheduler": "crux.strict", "wred_profile": "crux.ecn-200g" });
    assert_eq!(queue, &whole);
    assert_eq!(fragment["QUEUE"]["Ethernet0|5"], serde_json::json!({ "scheduler": "crux.strict" }));
    let profile = &fragment["WRED_PROFILE"]["crux.ecn-400g"];
    // Kmin of 4 kB for each Gb/s, Kmax four times that, Pmax of 0.2: HPCC, section 5.1.
    for (field, expect) in [
        ("ecn", "ecn_all"),
        ("green_min_threshold", "1600000"),
        ("green_max_threshold", "6400000"),
        ("green_drop_probability", "20"),
        ("wred_red_enable", "true"),
    ] {
        assert_eq!(profile[field], expect, "{field}");
    }
    let buffers = &fragment["BUFFER_QUEUE"];
    assert_eq!(buffers["Ethernet16|6"]["profile"], "egress_lossless_profile");
    assert_eq!(buffers["Ethernet16|5"]["profile"], "egress_lossy_profile");
    assert_eq!(fragment["BUFFER_PG"]["Ethernet16|0"]["profile"], "ingress_lossy_profile");
    let lengths = serde_json::json!({ "AZURE": { "Ethernet0": "3m", "Ethernet8": "3m" } });
    assert_eq!(fragment["CABLE_LENGTH"], lengths);
    assert!(notes[0].ends_with("gives no metres for Ethernet16, Ethernet24"), "{notes:?}");
    assert!(notes[1].starts_with("levels 6, 7 are lossless: PFC"), "{notes:?}");
    // Without lossy levels and lengths there is nothing to say of them.
    let (all, _) = lossless_fragment("lossless_levels = 8", 2);
    assert_eq!(all["PORT_QOS_MAP"]["Ethernet24"]["pfc_enable"], "0,1");
    assert_eq!((&all["BUFFER_PG"], &all["CABLE_LENGTH"]), (&().into(), &().into()));
}

#[test]
fn ports_of_sonic_keep_the_names_of_the_document() {
    let fabric = |names: &str| {
        let text = serde_json::to_string(&crate::spec::explicit_document(&parse(SMALL))).unwrap();
        let named = text.replacen(
            "\"device_id\":1,",
            &format!("\"device_id\":1,\"port_names\":{names},"),
            1,
        );
        parse_fabric(&named, DocumentFormat::Json, "fabric.json").unwrap()
    };
    let export = |names: &str| {
        export_sonic_config(&fabric(names), "leaf1", SonicPorts { levels: 8, lanes: 8 })
    };
    let ports = |fragment: &SonicFragment| -> Vec<(String, String)> {
        let fragment: serde_json::Value = serde_json::from_str(&fragment.text).unwrap();
        let ports = fragment["PORT"].as_object().unwrap().iter();
        ports.map(|(name, port)| (name.clone(), port["id"].as_str().unwrap().to_owned())).collect()
    };
    let pairs = |pairs: [(&str, &str); 4]| pairs.map(|(a, b)| (a.to_owned(), b.to_owned()));
    let named = export(r#"{"Ethernet0":1,"Ethernet2":2,"Ethernet256":3,"Ethernet260":4}"#).unwrap();
    let expected =
        pairs([("Ethernet0", "1"), ("Ethernet2", "2"), ("Ethernet256", "3"), ("Ethernet260", "4")]);
    assert_eq!(ports(&named), expected);
    let other = export(r#"{"swp1":1,"swp2":2,"swp3":3,"swp4":4}"#).unwrap();
    let expected =
        pairs([("Ethernet0", "1"), ("Ethernet16", "3"), ("Ethernet24", "4"), ("Ethernet8", "2")]);
    assert_eq!(ports(&other), expected);
    assert!(other.notes[0].starts_with("ports of leaf1 have no names of SONiC"), "{other:?}");
    let refused = |names: &str| export(names).unwrap_err().to_string();
    let half = refused(r#"{"Ethernet0":1}"#);
    assert!(half.starts_with("leaf1: port 2 has no name, and other ports have names"), "{half}");
    let mixed = refused(r#"{"Ethernet0":1,"swp2":2}"#);
    assert!(mixed.starts_with("leaf1: port 2 is \"swp2\", and other ports"), "{mixed}");
}

#[test]
fn leaves_with_hosts_in_common_are_one_switch_and_pods_are_joined() {
    let fabric = parse(DOUBLE_SIDED);
    let tree = FabricTree::of_fabric(&fabric);
    assert_eq!(tree.pods().count(), 3);
    assert!(tree.pods().all(|pod| pod.leaves.len() == 1), "{tree:?}");
    let text = export_slurm_conf(&fabric);
    assert!(text.ends_with("SwitchName=fabric Switches=pod[1-3]\n"), "{text}");
}

/// Slurm refuses a topology in which a host is missing or named twice.
#[test]
fn every_host_is_in_exactly_one_group() {
    for fabric in FABRICS.map(parse) {
        let conf = export_slurm_conf(&fabric);
        let lists = conf.lines().filter_map(|line| line.split_once(" Nodes="));
        let mut listed: Vec<String> =
            lists.flat_map(|(_, list)| expand_host_list(list).unwrap()).collect();
        listed.sort();
        let mut hosts: Vec<&str> = fabric.hosts().iter().map(|host| &host.name[..]).collect();
        hosts.sort_unstable();
        assert_eq!(listed, hosts, "{}", fabric.name());
    }
}

/// The hosts of each part.
fn parts(fabric: &Fabric) -> Vec<String> {
    let tree = FabricTree::of_fabric(fabric);
    let hosts = |part: &FabricPart| -> Vec<String> {
        let leaves = part.pods.iter().flat_map(|pod| &pod.leaves);
        leaves.flat_map(|leaf| leaf.hosts.clone()).collect()
    };
    tree.parts.iter().map(|part| hosts(part).join(" ")).collect()
}

/// Two clusters of two pods each, in one document.
fn two_clusters() -> Fabric {
    wired_fabric(
        ["el1 el2 wl1 wl2", "es1 es2 ws1 ws2", "ec wc"],
        "e1:el1 w1:wl1 e2:el2 w2:wl2",
        "el1-es1 el2-es2 wl1-ws1 wl2-ws2 es1-ec es2-ec ws1-wc ws2-wc",
    )
}

#[test]
fn hosts_of_one_part_reach_each_other() {
    assert_eq!(parts(&two_clusters()), ["e1 e2", "w1 w2"]);
    // GPU hosts of two clusters reach the same storage, and paths do not descend to climb again.
    let storage = wired_fabric(
        ["al bl sl", "as bs", ""],
        "store:sl a1:al a2:al b1:bl",
        "al-as bl-bs sl-as sl-bs",
    );
    assert_eq!(parts(&storage), ["a1 a2 store", "b1"]);
    // No switch joins the fabrics of which m has a NIC each.
    let bridged = wired_fabric(["al bl", "", ""], "a:al m:al,bl b:bl", "");
    assert_eq!(parts(&bridged), ["a m", "b"]);
    // Rails meet in hosts alone, and all hosts are on all rails.
    let rails = wired_fabric(
        ["p1 p2 q1 q2", "ps qs", ""],
        "a:p1,q1 b:p1,q1 c:p2,q2",
        "p1-ps p2-ps q1-qs q2-qs",
    );
    assert_eq!(parts(&rails), ["a b c"]);
    assert_eq!(parts(&wired_fabric(["p q r", "", ""], "a:p,q,r b:r,q,p", "")), ["a b"]);
    // Any two leaves have a spine in common, and no spine is above all of them.
    let mesh = wired_fabric(
        ["al bl cl", "s1 s2 s3", ""],
        "a:al b:bl c:cl",
        "al-s1 al-s2 bl-s2 bl-s3 cl-s1 cl-s3",
    );
    assert_eq!(parts(&mesh), ["a b c"]);
}

#[test]
fn parts_that_do_not_reach_each_other_have_no_common_root() {
    let fabric = two_clusters();
    let conf = export_slurm_conf(&fabric);
    let joins: Vec<&str> = conf.lines().filter(|line| line.contains("Switches=pod")).collect();
    let expected = ["SwitchName=fabric1 Switches=pod[1-2]", "SwitchName=fabric2 Switches=pod[3-4]"];
    assert_eq!(joins, expected);
    for text in [export_slurm_yaml(&fabric), export_topograph(&fabric)] {
        assert!(text.contains("fabric1") && text.contains("fabric2"), "{text}");
        assert!(!text.contains("pod[1-4]") && !text.contains("fabric:"), "{text}");
    }
    let kueue = export_kueue(&fabric).unwrap();
    let flavors: Vec<&str> =
        kueue.split("---").filter(|it| it.contains("ResourceFlavor")).collect();
    let [east, west] = flavors[..] else { panic!("{kueue}") };
    assert!(east.contains("name: wired-fabric1") && west.contains("name: wired-fabric2"));
    assert_eq!(kueue.matches("crux.fabric/part: fabric1").count(), 1 + 2);
    assert!(!export_kueue(&parse(SMALL)).unwrap().contains("crux.fabric/part"));
}

/// topograph 1.0 refuses a model whose blocks have no nodes or name a switch that is nowhere, or in
/// which a switch has two parents.
#[test]
fn models_hold_the_rules_of_topograph() {
    for fabric in FABRICS.map(parse).into_iter().chain([two_clusters()]) {
        let model: serde_yaml_ng::Value =
            serde_yaml_ng::from_str(&export_topograph(&fabric)).unwrap();
        let texts = |value: &serde_yaml_ng::Value| -> Vec<String> {
            let list = value.as_sequence().cloned().unwrap_or_default();
            list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let switches = model["switches"].as_mapping().unwrap();
        let below: Vec<String> =
            switches.values().flat_map(|switch| texts(&switch["switches"])).collect();
        let once: std::collections::BTreeSet<&String> = below.iter().collect();
        assert_eq!(once.len(), below.len(), "a switch has one parent");
        let mut nodes = Vec::new();
        for block in model["blocks"].as_sequence().unwrap() {
            let own = texts(&block["nodes"]);
            assert!(!own.is_empty());
            nodes.extend(own);
            assert!(below.iter().any(|switch| switch == block["switch"].as_str().unwrap()));
        }
        nodes.sort();
        let mut hosts: Vec<&str> = fabric.hosts().iter().map(|host| &host.name[..]).collect();
        hosts.sort_unstable();
        assert_eq!(nodes, hosts);
    }
}

#[test]
fn names_of_pods_avoid_those_of_leaves() {
    let conf = export_slurm_conf(&wired_fabric(["pod1 pod2 fabric", "s", ""], "a:pod1 b:pod2", ""));
    let names: Vec<&str> = conf.lines().filter_map(|line| line.split(' ').next()).skip(1).collect();
    assert_eq!(
        names.len(),
        names.iter().collect::<std::collections::BTreeSet<_>>().len(),
        "{conf}"
    );
    assert!(conf.contains("SwitchName=pod1 Nodes=a"), "{conf}");
}

/// The values of labels that the two hosts of a fabric with these names of leaves and hosts get.
fn labelled(leaves: [&str; 3], hosts: [&str; 2]) -> Result<Vec<String>, KueueExportError> {
    let [a, b, c] = leaves;
    let hosts = format!("{}:{a},{b} {}:{c}", hosts[0], hosts[1]);
    let cables = format!("{a}/s {b}/s {c}/s").replace('/', "-");
    let text = export_kueue(&wired_fabric([&leaves.join(" "), "s", ""], &hosts, &cables))?;
    let labels = text.lines().filter_map(|line| line.trim().strip_prefix("fabric.topograph.run/"));
    let values = labels.filter_map(|line| line.split_once(": ")).map(|(_, value)| value.to_owned());
    Ok(values.collect())
}

/// Kubernetes refuses a label of more than 63 characters, or with a dot or dash at an end.
#[test]
fn labels_and_names_are_those_that_kubernetes_takes() {
    let short = ["rack1", "rack2", "rack3"];
    let values = labelled(short, ["n1", "n2"]).unwrap();
    assert_eq!(values, ["rack1-rack2", "pod1", "rack3", "pod1"]);
    let long = ["row07_rack31_tor_of_rail_0", "row07_rack31_tor_of_rail_1", "x"];
    assert_eq!(labelled(long, ["n1", "n2"]).unwrap()[0], long[..2].join("-"));
    let longer = long.map(|name| format!("{name}.hall4.example"));
    let names = [&*longer[0], &longer[1], "_x."];
    let values = labelled(names, ["n1", "n2"]).unwrap();
    // As topograph shortens them: x and FNV-1a of 64 bits.
    assert_eq!([&*values[0], &values[2]], ["x64b693502da10e47", "xb941831a0cd1ba04"]);
    let nodes = export_kueue(&wired_fabric(["l", "", ""], "GPU-1.Hall4:l", "")).unwrap();
    assert!(nodes.contains("name: gpu-1.hall4\n"), "{nodes}");
    for name in ["gpu_1", "-gpu", "gpu-", "gpu..1", "gpu.-1"] {
        let refused = labelled(short, [name, "n2"]).unwrap_err();
        assert_eq!(refused, KueueExportError::NodeName(name.to_owned()));
        assert!(refused.to_string().starts_with(&format!("host {name}: ")));
    }
    let same = labelled(short, ["GPU1", "gpu1"]).unwrap_err().to_string();
    assert!(same.starts_with("hosts GPU1 and gpu1: both would be the node gpu1;"), "{same}");
}

#[test]
fn names_of_fabrics_become_names_of_objects_that_differ() {
    let named = |name: &str| {
        let text = SMALL.replacen("small", name, 1);
        let kueue = export_kueue(&parse(&text)).unwrap();
        let name = kueue.lines().find_map(|line| line.trim().strip_prefix("name: "));
        name.unwrap().to_owned()
    };
    assert_eq!(named("hall-4"), "hall-4");
    let long = "a".repeat(64);
    let names = ["Hall 4", "hall_4", "HALL 4", &long, &long[..63], "-", "_"].map(named);
    assert!(names[0].starts_with("hall-4-x"), "{names:?}");
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
    assert!(names.iter().all(|name| name.len() <= 63 && !name.starts_with('-')), "{names:?}");
}
