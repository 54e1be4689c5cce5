//! Inventories of NetBox as people keep them and as NetBox exports them.

use super::*;
use crate::ids::HostId;

/// Two leaves below a spine, with a server at each, and what else a hall has.
const DEVICES: &str = "name,role,site,status,manufacturer\n\
    l1,Leaf Switch,dc,active,x\n\
    l2,leaf-switch,dc,active,x\n\
    s1,Spine,dc,active,x\n\
    g1,GPU Server,dc,active,x\n\
    g2,gpu-server,dc,active,x\n\
    g3,gpu-server,dc,planned,x\n\
    pa,Patch Panel,dc,active,x\n\
    pb,Patch Panel,dc,active,x\n\
    cs,Console Server,dc,active,x\n";
const INTERFACES: &str = "device,name,type,lag,mgmt_only,enabled\n\
    l1,swp1,400gbase-x-qsfp112,,,\n\
    l1,swp2,400gbase-x-osfp,,,\n\
    l1,swp9,1000base-t,,,\n\
    l2,swp1,200gbase-x-qsfp56,,,\n\
    l2,swp2,QSFP-DD (400GE),,,\n\
    l2,swp3,400gbase-x-osfp,,,False\n\
    s1,swp1,infiniband-ndr,,,\n\
    s1,swp2,400gbase-x-osfp,,,\n\
    s1,swp3,400gbase-x-osfp,,,\n\
    s1,swp4,1000base-t,,,\n\
    g1,eth0,200gbase-x-qsfp56,bond0,,\n\
    g1,bond0,lag,,,\n\
    g1,bmc,1000base-t,,True,\n\
    g2,eth0,400gbase-x-osfp,,,\n\
    g2,eth1,400gbase-x-osfp,,,\n";
const CABLES: &str = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,status\n\
    l1,dcim.interface,swp1,g1,dcim.interface,eth0,connected\n\
    g2,dcim.interface,eth0,l2,dcim.interface,swp1,connected\n\
    l1,dcim.interface,swp2,pa,dcim.frontport,F7,connected\n\
    pa,dcim.rearport,R7,pb,dcim.rearport,R7,connected\n\
    s1,dcim.interface,swp1,pb,dcim.frontport,F7,connected\n\
    l2,dcim.interface,swp2,s1,dcim.interface,swp2,\n\
    l2,dcim.interface,swp3,s1,dcim.interface,swp3,connected\n\
    g2,dcim.interface,eth1,l1,dcim.interface,swp9,planned\n\
    g3,dcim.interface,later,l1,dcim.interface,swp9,Decommissioning\n\
    cs,dcim.interface,eth0,s1,dcim.interface,swp4,connected\n\
    g1,dcim.interface,bmc,l1,dcim.interface,swp9,connected\n\
    cs,dcim.consoleserverport,3,l1,dcim.consoleport,con,connected\n\
    pa,dcim.frontport,F8,l2,dcim.interface,swp9,connected\n";
const ADDRESSES: &str = "address,device,interface\n\
    10.7.0.1/24,g1,bond0\n10.7.0.2/24,g2,eth0\nfd00::2/64,g2,eth0\n10.8.0.1/24,g1,bmc\n";

fn read(texts: [&str; 4]) -> Result<ImportedFabric, ImportError> {
    let [devices, interfaces, cables, addresses] = texts;
    let tables = NetboxTables { devices, interfaces, cables, addresses: Some(addresses) };
    import_netbox(&tables, &InventoryAssumptions::default())
}

#[test]
fn cables_are_those_that_carry_traffic_and_all_others_are_named() {
    // The other end of the panel port F8 is cabled, and swp9 of l2 is in no table.
    let interfaces = format!("{INTERFACES}l2,swp9,1000base-t,,,\n");
    let imported = read([DEVICES, &interfaces, CABLES, ADDRESSES]).unwrap();
    let expected = ["l1:1 g1:0 200", "g2:0 l2:1 200", "l1:2 s1:1 400", "l2:2 s1:2 400"];
    assert_eq!(cables(&imported.fabric), expected);
    let nics: Vec<String> = imported.fabric.nics().iter().map(|nic| nic.ip.to_string()).collect();
    assert_eq!(nics, ["10.7.0.1", "10.7.0.2"]);
    let left_out = left_out(&imported);
    let expected = [
        "1 device (status planned): g3",
        "2 devices (role \"Patch Panel\" is neither a switch nor a host): pa, pb",
        "1 device (role \"Console Server\" is neither a switch nor a host): cs",
        "1 cable (status planned): g2:eth1-l1:swp9 (cables row 9)",
        "1 cable (status decommissioning): g3:later-l1:swp9 (cables row 10)",
        "1 cable (ends at a port of kind consoleserverport): cs:3-l1:con (cables row 13)",
        "1 cable (leads no further than a patch panel): pa:F8-l2:swp9 (cables row 14) as far as pb:R7",
        "1 cable (ends at an interface that is not enabled): l2:swp3-s1:swp3 (cables row 8)",
        "1 cable (ends at a device that is left out): cs:eth0-s1:swp4 (cables row 11)",
        "1 cable (ends at an interface for management): g1:bmc-l1:swp9 (cables row 12)",
        "1 address (its interface has another one before it): fd00::2/64 of g2:eth0",
        "1 address (its interface has no cable of the fabric): 10.8.0.1/24 of g1:bmc",
        "1 field (they say nothing of a fabric): devices.manufacturer (9 times)",
    ];
    assert_eq!(left_out, expected);
    let words = "role \"GPU Server\" is a host, \"Leaf Switch\" is a leaf, \"gpu-server\" is a host, \
                 \"leaf-switch\" is a leaf";
    assert_eq!(imported.assumptions[0], words);
    assert!(imported.assumptions[1].ends_with("2 patch panels: pa, pb"), "{imported:?}");
    assert_eq!(imported.assumptions[2], "4 lanes of InfiniBand at 1 interface");
    let printed = interfaces.replacen("infiniband-ndr", "NDR (100 Gbps)", 1);
    let printed = [DEVICES, &printed, CABLES, ADDRESSES];
    assert_eq!(cables(&read(printed).unwrap().fabric), cables(&imported.fabric));
}

/// What one table is replaced by in the others.
fn changed(table: usize, good: &str, bad: &str) -> [String; 4] {
    let interfaces = format!("{INTERFACES}l2,swp9,1000base-t,,,\n");
    let mut texts = [DEVICES, &interfaces, CABLES, ADDRESSES].map(str::to_owned);
    assert!(texts[table].contains(good), "{good}");
    texts[table] = texts[table].replacen(good, bad, 1);
    texts
}

#[test]
fn the_speed_does_not_depend_on_the_side() {
    let swapped = changed(
        2,
        "l1,dcim.interface,swp1,g1,dcim.interface,eth0",
        "g1,dcim.interface,eth0,l1,dcim.interface,swp1",
    );
    let fabric = read(swapped.each_ref().map(String::as_str)).unwrap().fabric;
    assert_eq!(cables(&fabric)[0], "g1:0 l1:1 200");
}

#[test]
fn a_bond_of_two_cables_is_a_nic_with_two_ports() {
    let mut texts =
        changed(2, "eth1,l1,dcim.interface,swp9,planned", "eth1,l1,dcim.interface,swp9,connected");
    texts[1] = texts[1].replace("g2,eth0,400gbase-x-osfp,,", "g2,eth0,400gbase-x-osfp,bond1,");
    texts[1] = texts[1].replace("g2,eth1,400gbase-x-osfp,,", "g2,eth1,400gbase-x-osfp,bond1,");
    texts[1] += "g2,bond1,lag,,,\n";
    texts[2] = texts[2].replace("g1,dcim.interface,bmc,l1,dcim.interface,swp9,connected\n", "");
    texts[3] = texts[3].replacen("g2,eth0", "g2,bond1", 1);
    let fabric = read(texts.each_ref().map(String::as_str)).unwrap().fabric;
    let expected =
        ["l1:1 g1:0 200", "g2:0 l2:1 200", "l1:2 s1:1 400", "l2:2 s1:2 400", "g2:0 l1:9 1"];
    assert_eq!(cables(&fabric), expected);
    let ports: Vec<_> = fabric.ports_of(fabric.host(HostId(1)).nics[0]).collect();
    assert_eq!(ports.len(), 2);
    let mut three = texts.clone();
    three[1] += "g2,eth2,400gbase-x-osfp,bond1,,\nl2,swp8,400gbase-x-osfp,,,\n";
    three[2] += "g2,dcim.interface,eth2,l2,dcim.interface,swp8,connected\n";
    let error = read(three.each_ref().map(String::as_str)).unwrap_err().to_string();
    let expected = "addresses row 3, interface: g2:bond1 has one address for 3 cables (eth0, eth1, \
                    eth2); a NIC has one cable, or two as a bond";
    assert!(error.starts_with(expected), "{error}");
    texts[3] = texts[3].replacen("g2,bond1", "g2,eth0", 1);
    let error = read(texts.each_ref().map(String::as_str)).unwrap_err().to_string();
    assert!(error.ends_with("eth1 has a cable, but no address: add one"), "{error}");
}

#[test]
fn the_exported_view_of_cables_is_read_and_ids_alone_are_not() {
    let exported = "Label,Device A,Termination A,Device B,Termination B,Status,Length\n\
        x,l1,swp1,g1,eth0,Connected,3\n\
        ,g2,eth0,l2,swp1,Connected,\u{2014}\n\
        ,l1,swp2,pa,7,Connected,\n\
        ,pa,7,s1,swp1,Connected,\n\
        ,l2,swp2,s1,swp2,Connected,\n\
        ,l2,swp3,s1,swp3,Planned,\n\
        ,g1,PSU 1,cs,Outlet 3,Connected,\n\
        ,s1,swp3,g1,\"eth0, eth1\",Connected,\n";
    let imported = read([DEVICES, INTERFACES, exported, ADDRESSES]).unwrap();
    let reasons: Vec<&str> = imported.left_out.iter().map(|it| it.reason.as_str()).collect();
    for reason in ["ends at a port that is no interface of the table", "several ends on one side"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
    let expected = ["l1:1 g1:0 200", "g2:0 l2:1 200", "l1:2 s1:1 400", "l2:2 s1:2 400"];
    assert_eq!(cables(&imported.fabric), expected);
    let ids =
        "id,termination_a_type,termination_a_id,termination_b_type,termination_b_id\n1,a,1,b,2\n";
    let error = read([DEVICES, INTERFACES, ids, ADDRESSES]).unwrap_err().to_string();
    assert!(error.contains("with the columns Device A, Termination A"), "{error}");
}

/// A trunk joins the only rear ports of two panels.
#[test]
fn a_trunk_leads_to_the_front_port_of_the_same_number() {
    let cables_of = |far: [&str; 2]| {
        format!(
            "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name\n\
             l1,dcim.interface,swp1,g1,dcim.interface,eth0\n\
             g2,dcim.interface,eth0,l2,dcim.interface,swp1\n\
             l1,dcim.interface,swp2,pa,dcim.frontport,Front 1\n\
             l2,dcim.interface,swp2,pa,dcim.frontport,Front 2\n\
             pa,dcim.rearport,MPO,pb,dcim.rearport,MPO\n\
             pb,dcim.frontport,Front {},s1,dcim.interface,swp1\n\
             pb,dcim.frontport,Front {},s1,dcim.interface,swp2\n",
            far[0], far[1]
        )
    };
    let straight = read([DEVICES, INTERFACES, &cables_of(["1", "2"]), ADDRESSES]).unwrap();
    assert_eq!(cables(&straight.fabric)[2..], ["l1:2 s1:1 400", "l2:2 s1:2 400"]);
    let crossed = read([DEVICES, INTERFACES, &cables_of(["2", "1"]), ADDRESSES]).unwrap();
    assert_eq!(cables(&crossed.fabric)[2..], ["l1:2 s1:2 400", "l2:2 s1:1 400"]);
    let open = read([DEVICES, INTERFACES, &cables_of(["1", "3"]), ADDRESSES]).unwrap();
    assert_eq!(cables(&open.fabric)[2..], ["l1:2 s1:1 400"]);
    let left_out: Vec<&str> = open.left_out.iter().map(|it| it.reason.as_str()).collect();
    assert!(left_out.contains(&"leads no further than a patch panel"), "{left_out:?}");
}

/// A lane is the number in the name of a port of SONiC, and the first one is 0.
#[test]
fn names_of_ports_reach_the_configuration_of_the_switch() {
    let named = |text: &str| {
        let text = text.replace("swp1", "Ethernet0").replace("swp2", "Ethernet4");
        text.replace("swp3", "Ethernet260").replace("swp9", "Ethernet8")
    };
    let texts = [DEVICES, INTERFACES, CABLES, ADDRESSES].map(named);
    let mut cables: Vec<&str> = texts[2].lines().collect();
    cables.pop();
    let texts = [&texts[0], &texts[1], &cables.join("\n"), &texts[3]];
    let fabric = read(texts.map(String::as_str)).unwrap().fabric;
    let ports = crate::export::SonicPorts { levels: 8, lanes: 8 };
    for (switch, expected) in [
        ("l1", [("Ethernet0", "1"), ("Ethernet4", "2")]),
        ("s1", [("Ethernet0", "1"), ("Ethernet4", "2")]),
    ] {
        let fragment = crate::export::export_sonic_config(&fabric, switch, ports).unwrap();
        let fragment: serde_json::Value = serde_json::from_str(&fragment.text).unwrap();
        let found = fragment["PORT"].as_object().unwrap().iter();
        let found: Vec<_> =
            found.map(|(name, port)| (&name[..], port["id"].as_str().unwrap())).collect();
        assert_eq!(found, expected, "{switch}");
    }
    let table = |table| crate::export::export_netbox(&fabric, table);
    assert!(table(NetboxTable::Cables).contains("s1,dcim.interface,Ethernet4"));
    let again = read([
        &table(NetboxTable::Devices),
        &table(NetboxTable::Interfaces),
        &table(NetboxTable::Cables),
        &table(NetboxTable::Addresses),
    ]);
    assert_eq!(again.unwrap().fabric, fabric);
}
