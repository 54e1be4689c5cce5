//! Texts as a person has reviewed them (`goldens/`), and trees of larger fabrics.

use super::*;
use crate::document::DocumentFormat;
use crate::fabric::Fabric;
use crate::host_list::expand_host_list;
use crate::spec::parse_fabric;

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
        (export_kueue(&fabric), include_str!("goldens/kueue.yaml")),
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
fn a_switch_of_sonic_serves_the_levels_of_plans_strictly() {
    let fabric = parse(SMALL);
    let ports = SonicPorts { levels: 8, lanes: 8 };
    let text = export_sonic_config(&fabric, "leaf1", ports).unwrap();
    assert_eq!(text, include_str!("goldens/leaf1.config_db.json"));
    let refused = |switch: &str, levels: u8| {
        let ports = SonicPorts { levels, ..ports };
        export_sonic_config(&fabric, switch, ports).unwrap_err().to_string()
    };
    assert_eq!(refused("leaf9", 8), "the fabric has no switch leaf9");
    assert_eq!(refused("leaf1", 9), "9 levels; a port of SONiC has 1 to 8 strict queues");
    let few = export_sonic_config(&fabric, "spine1", SonicPorts { levels: 3, lanes: 4 }).unwrap();
    let few: serde_json::Value = serde_json::from_str(&few).unwrap();
    assert_eq!(few["DSCP_TO_TC_MAP"]["crux"]["63"], "2");
    assert_eq!(few["PORT"]["Ethernet4"]["id"], "2");
    assert_eq!(few["QUEUE"].as_object().unwrap().len(), 2 * 3);
}

#[test]
fn leaves_with_hosts_in_common_are_one_switch_and_pods_are_joined() {
    let fabric = parse(DOUBLE_SIDED);
    let tree = FabricTree::of_fabric(&fabric);
    assert_eq!(tree.pods.len(), 3);
    assert!(tree.pods.iter().all(|pod| pod.leaves.len() == 1), "{tree:?}");
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
