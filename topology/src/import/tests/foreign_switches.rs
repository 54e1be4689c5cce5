//! Configurations of SONiC as switches have them.

use super::*;

fn read(files: &[(&str, &str)]) -> Result<ImportedFabric, ImportError> {
    let switches = files.iter().map(|(name, text)| SonicSwitch::parse(name, text));
    let switches: Vec<SonicSwitch> = switches.collect::<Result<_, _>>()?;
    import_sonic(&switches, &InventoryAssumptions::default())
}

const TOR: &str = r#"{
  "DEVICE_METADATA": { "localhost": { "hostname": "t0-a", "type": "ToRRouter", "hwsku": "x" } },
  "PORT": {
    "Ethernet0": { "speed": "100000", "lanes": "1,2,3,4", "admin_status": "up" },
    "Ethernet4": { "speed": "100000", "lanes": "5,6,7,8" },
    "Ethernet8": { "speed": "400000", "lanes": "9" },
    "Ethernet12": { "speed": "400000", "admin_status": "down" },
    "Ethernet16": { "speed": "400000" }
  },
  "DEVICE_NEIGHBOR": {
    "Ethernet0": { "name": "gpu1", "port": "mlx5_0" },
    "Ethernet4": { "name": "gpu2", "port": "mlx5_0" },
    "Ethernet8": { "name": "t1-a", "port": "Ethernet256" },
    "Ethernet12": { "name": "t1-b", "port": "Ethernet4" },
    "Ethernet20": { "name": "m0", "port": "eth1" }
  },
  "DEVICE_NEIGHBOR_METADATA": {
    "gpu1": { "type": "Server" },
    "t1-a": { "type": "LeafRouter", "mgmt_addr": "192.0.2.1" },
    "m0": { "type": "MgmtToRRouter" }
  },
  "BGP_NEIGHBOR": { "192.0.2.9": { "asn": "1" } }
}"#;

/// The other end of one of its cables, in the form of a dump of the database.
const SPINE: &str = r#"{
  "PORT|Ethernet256": { "type": "hash", "value": { "speed": "200000", "id": "7" } },
  "DEVICE_NEIGHBOR|t0-a": { "local_port": "Ethernet256", "port": "Ethernet8", "lo_addr": null },
  "BUFFER_PG|Ethernet256|3-4": { "profile": "x" }
}"#;

#[test]
fn neighbours_of_sonic_are_cables_and_a_cable_that_both_ends_list_is_one() {
    let imported = read(&[("a.json", TOR), ("t1-a.config_db.json", SPINE)]).unwrap();
    let fabric = &imported.fabric;
    // Numbers of the ports of t0-a begin with 0, so they are in order; the id of t1-a counts.
    let expected = ["t0-a:1 gpu1:0 100", "t0-a:2 gpu2:0 100", "t0-a:3 t1-a:7 200"];
    assert_eq!(cables(fabric), expected);
    let tiers: Vec<Tier> = fabric.switches().iter().map(|switch| switch.tier).collect();
    assert_eq!(tiers, [Tier::Leaf, Tier::Spine]);
    assert_eq!(fabric.switches()[0].port_names[&3], "Ethernet8");
    assert_eq!(fabric.switches()[1].port_names[&7], "Ethernet256");
    let expected = [
        "1 device (type mgmttorrouter is no device of a fabric): m0",
        "1 cable (ends at a port with admin_status down): t0-a:Ethernet12-t1-b:Ethernet4 (t0-a: \
         DEVICE_NEIGHBOR|Ethernet12)",
        "1 cable (ends at a device that is left out): t0-a:Ethernet20-m0:eth1 (t0-a: \
         DEVICE_NEIGHBOR|Ethernet20)",
        "1 port (no neighbour in DEVICE_NEIGHBOR): t0-a:Ethernet16",
        "1 device (no cable): t1-b",
        "6 fields (they say nothing of a fabric): BGP_NEIGHBOR, BUFFER_PG, DEVICE_METADATA.hwsku, \
         DEVICE_NEIGHBOR.lo_addr, DEVICE_NEIGHBOR_METADATA.mgmt_addr, PORT.lanes (3 times)",
    ];
    assert_eq!(left_out(&imported), expected);
    let assumed = imported.assumptions.join("; ");
    for part in [
        "the names of files for those of switches: t1-a",
        "\"LeafRouter\" is a spine, \"ToRRouter\" is a leaf",
        "roles by cables of 1 device: hosts gpu2",
    ] {
        assert!(assumed.contains(part), "{assumed}");
    }
}

#[test]
fn types_without_a_leaf_do_not_count() {
    // Every image of SONiC begins as a LeafRouter.
    let text = |name: &str, neighbours: &str| {
        format!(
            r#"{{ "DEVICE_METADATA": {{ "localhost": {{ "hostname": "{name}", "type": "LeafRouter" }} }},
                 "DEVICE_NEIGHBOR": {{ {neighbours} }} }}"#
        )
    };
    let leaf = text("l", r#""Ethernet0": { "name": "h" }, "Ethernet4": { "name": "s" }"#);
    let spine = text("s", r#""Ethernet0": { "name": "l", "port": "Ethernet4" }"#);
    let imported = read(&[("1.json", &leaf), ("2.json", &spine)]).unwrap();
    let tiers: Vec<Tier> = imported.fabric.switches().iter().map(|switch| switch.tier).collect();
    assert_eq!(tiers, [Tier::Leaf, Tier::Spine]);
    assert_eq!(cables(&imported.fabric), ["l:1 h:0 400", "l:2 s:1 400"]);
    let assumed = imported.assumptions.join("; ");
    for part in [
        "types of switches do not count, since none is a ToRRouter",
        "ports in order of 1 neighbours whose port no file names",
    ] {
        assert!(assumed.contains(part), "{assumed}");
    }
}

#[test]
fn a_mistake_in_a_configuration_is_named_by_table_and_key() {
    for (good, bad, expected) in [
        ("\"speed\": \"100000\"", "\"speed\": \"fast\"", "PORT|Ethernet0 speed: \"fast\" is no"),
        ("\"name\": \"gpu1\", ", "", "DEVICE_NEIGHBOR|Ethernet0 name: missing"),
        ("\"hostname\": \"t0-a\"", "\"hostname\": \"t1-a\"", "t1-a: several files are of this"),
        ("{\n", "[", "configuration of SONiC: "),
    ] {
        assert!(TOR.contains(good), "{good}");
        let text = TOR.replacen(good, bad, 1);
        let error = read(&[("a.json", &text), ("t1-a.json", SPINE)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
    // Neighbours of one port at two switches are a bond of that port.
    let text = TOR.replacen("\"gpu2\", \"port\": \"mlx5_0\"", "\"gpu1\", \"port\": \"mlx5_0\"", 1);
    let fabric = read(&[("a.json", &text), ("t1-a.json", SPINE)]).unwrap().fabric;
    assert_eq!(cables(&fabric)[..2], ["t0-a:1 gpu1:0 100", "t0-a:2 gpu1:0 100"]);
    let error = read(&[("config_db.json", "{}")]).unwrap_err().to_string();
    assert!(error.starts_with("DEVICE_METADATA|localhost hostname: missing"), "{error}");
    let error = read(&[("a.json", "{}")]).unwrap_err().to_string();
    assert_eq!(
        error,
        "DEVICE_NEIGHBOR: no device is a switch with a cable of the fabric; left out: 1 device (no \
         cable): a"
    );
}
