//! Topologies of Slurm as people keep them.

use super::*;

/// The leaves of the tree with their hosts, pods divided by a bar.
fn tree(imported: &ImportedFabric) -> String {
    let tree = crate::export::FabricTree::of_fabric(&imported.fabric);
    let pods = tree.pods().map(|pod| {
        let leaves = pod.leaves.iter();
        let leaves = leaves.map(|leaf| format!("{}: {}", leaf.name, leaf.hosts.join(" ")));
        leaves.collect::<Vec<_>>().join(", ")
    });
    pods.collect::<Vec<_>>().join(" | ")
}

fn conf(text: &str) -> Result<ImportedFabric, ImportError> {
    import_slurm_conf(text, &TierAssumptions::default())
}

fn yaml(text: &str) -> Result<ImportedFabric, ImportError> {
    import_slurm_yaml(text, &TierAssumptions::default())
}

/// Small letters, spaces, comments and a line that goes on, as Slurm takes them.
const CONF: &str = "
# row 4
SwitchName=top Switches=agg[1-2] LinkSpeed=400
switchname=agg1 switches=rack1,rack2   # two racks
SwitchName = agg2 Switches = rack3
SwitchName=rack1 Nodes=gpu[01-02],\\
    login
SwitchName=rack2 Nodes=\"gpu[11-12]\"
SwitchName=rack3 Nodes=gpu21
SwitchName=spare
include more.conf
";

#[test]
fn a_topology_of_slurm_is_a_tree_of_leaves_and_pods() {
    let imported = conf(CONF).unwrap();
    let expected = "rack1: gpu01 gpu02 login, rack2: gpu11 gpu12 | rack3: gpu21";
    assert_eq!(tree(&imported), expected);
    let expected = [
        "1 line (it includes another file): 11 (include more.conf)",
        "1 switch (no nodes are below it): spare",
        "1 field (they say nothing of a fabric): linkspeed",
    ];
    assert_eq!(left_out(&imported), expected);
    let assumed = imported.assumptions.join("; ");
    for part in ["each of 2 pods: agg1, agg2", "stand for what is above pods: top", "name slurm"] {
        assert!(assumed.contains(part), "{assumed}");
    }
    for (good, bad, expected) in [
        ("rack1,rack2", "rack1,rack9", "line 4, Switches: no switch is named rack9; did you mean"),
        ("rack1,rack2", "rack1,rack3", "line 5, Switches: rack3 is also below agg1"),
        ("Nodes=gpu21", "Nodes=gpu12", "line 9, Nodes: gpu12 is below another leaf as well"),
        ("Nodes=gpu21", "Nodes=gpu[21", "line 9, Nodes: invalid host list"),
        ("Nodes=gpu21", "Nodes=ALL", "line 9, Nodes: ALL does not say which"),
        ("Nodes=gpu21", "Switches=top", "line 3, Switches: top is below itself"),
        ("SwitchName=spare", "spare", "line 10: \"spare\" is no NAME=VALUE"),
        ("SwitchName=spare", "SwitchName=top", "line 10: another switch is named top"),
        ("SwitchName=spare", "SwitchName=a/b", "line 10: \"a/b\" is not a name"),
        ("SwitchName=spare", "SwitchName=a Nodes=b nodes=c", "line 10: nodes stands there twice"),
    ] {
        assert!(CONF.contains(good), "{good}");
        let error = conf(&CONF.replacen(good, bad, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let error = conf("SwitchName=a\n").unwrap_err().to_string();
    assert_eq!(error, "switches: no switch has nodes: list the hosts below leaves");
}

#[test]
fn what_scontrol_shows_is_read() {
    let shown = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n\
        SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n3\n\
        SwitchName=pod1 Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[1-2]\n";
    let imported = conf(shown).unwrap();
    assert_eq!(tree(&imported), "leaf1: n1 n2, leaf2: n3");
    let expected = "2 fields (they say nothing of a fabric): level (3 times), linkspeed (3 times)";
    assert_eq!(left_out(&imported), [expected]);
}

#[test]
fn leaves_that_nothing_joins_are_joined_and_listed_so() {
    let imported = conf("SwitchName=s0 Nodes=a[1-2]\nSwitchName=s1 Nodes=b[1-2]\n").unwrap();
    assert_eq!(tree(&imported), "s0: a1 a2 | s1: b1 b2");
    let expected = "the cores join what is below 2 switches, which the file does not join";
    assert!(imported.assumptions.contains(&expected.to_owned()), "{:?}", imported.assumptions);
    let blocks = conf("BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n");
    let blocks = blocks.unwrap();
    assert_eq!(tree(&blocks), "b1: n1 n2 n3 n4 | b2: n5 n6 n7 n8");
    assert_eq!(blocks.assumptions[0], "each block is a leaf: b1, b2");
    assert_eq!(left_out(&blocks), ["1 field (they say nothing of a fabric): blocksizes"]);
}

const YAML: &str = "
- topology: old
  tree: { switches: [{ switch: x, nodes: y }] }
- topology: gpu
  cluster_default: true
  tree:
    switches:
      - { switch: top, children: 'leaf[1-2]' }
      - { switch: leaf1, nodes: 'n[1-2]' }
      - { switch: leaf2, nodes: [n3, 4], note: new }
- { topology: rest, flat: true }
- { topology: nvl, block: { block_sizes: [2], blocks: [{ block: b, nodes: 'n[1-2]' }] } }
";

#[test]
fn the_default_topology_of_the_cluster_is_read_and_the_others_are_named() {
    let imported = yaml(YAML).unwrap();
    assert_eq!(tree(&imported), "leaf1: n1 n2, leaf2: n3 4");
    let other = "another topology is the default of the cluster, or stands before";
    let expected = [
        format!("2 topologies ({other}): old, nvl"),
        "1 topology (no tree and no blocks): rest".to_owned(),
        "1 field (they say nothing of a fabric): note".to_owned(),
    ];
    assert_eq!(left_out(&imported), expected);
    let first = yaml(&YAML.replacen("  cluster_default: true\n", "", 1)).unwrap();
    assert_eq!(tree(&first), "x: y");
    let block =
        "- { topology: nvl, block: { block_sizes: [2], blocks: [{ block: b, nodes: 'n[1-2]' }] } }";
    let block = yaml(block).unwrap();
    assert_eq!(tree(&block), "b: n1 n2");
    assert_eq!(left_out(&block), ["1 field (they say nothing of a fabric): block_sizes"]);
    for (text, expected) in [
        ("- { topology: a, flat: true }", "no topology has a tree or blocks"),
        ("SwitchName=a Nodes=b", "topology.yaml of Slurm: "),
    ] {
        let error = yaml(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let error = yaml(&YAML.replacen("leaf[1-2]", "leaf[1-3]", 1)).unwrap_err().to_string();
    assert!(
        error.starts_with("[1].tree.switches[0].children: no switch is named leaf3"),
        "{error}"
    );
}
