//! The law of all importers: every node, cable and row of a file is in the fabric, or it is left
//! out by name, once.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use topology::Fabric;
use topology::import::{
    self, ImportedFabric, InventoryAssumptions, LeftOut, NetboxTables, SonicSwitch, TierAssumptions,
};

/// What a device is for a person who draws the lab.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Leaf,
    Spine,
    Host,
    /// A container that may be a host, a collector or nothing.
    Open,
    /// Something that is no part of any fabric.
    Other,
}

/// A cable between two devices, or out of the lab.
#[derive(Clone, Copy, Debug)]
enum Cable {
    Between(usize, usize),
    Outside(usize),
    /// Written down, and not there yet.
    Planned(usize, usize),
}

#[derive(Clone, Debug)]
struct Lab {
    parts: Vec<Part>,
    cables: Vec<Cable>,
    /// Whether leaves, spines and hosts say what they are.
    is_stated: bool,
}

impl Lab {
    fn name(&self, device: usize) -> String {
        format!("d{device}")
    }

    fn names(&self) -> Vec<String> {
        (0..self.parts.len()).map(|device| self.name(device)).collect()
    }

    /// An interface of every end that no other cable has.
    fn ends(&self) -> Vec<(String, String)> {
        let mut used: BTreeMap<usize, u32> = BTreeMap::new();
        let mut end = |device: usize| {
            let place = used.entry(device).or_default();
            *place += 1;
            format!("{}:eth{place}", self.name(device))
        };
        let ends = self.cables.iter().enumerate().map(|(at, cable)| match *cable {
            Cable::Between(a, b) | Cable::Planned(a, b) => (end(a), end(b)),
            Cable::Outside(a) => (end(a), format!("host:tap{at}")),
        });
        ends.collect()
    }

    fn containerlab(&self) -> String {
        let mut text = "topology:\n  nodes:\n".to_owned();
        for (device, part) in self.parts.iter().enumerate() {
            let (kind, group) = match part {
                Part::Leaf => ("nokia_srlinux", "leaf"),
                Part::Spine => ("nokia_srlinux", "spine"),
                Part::Host => ("linux", "server"),
                Part::Open => ("linux", "10"),
                Part::Other => ("bridge", "10"),
            };
            let group = if self.is_stated { group } else { "10" };
            let name = self.name(device);
            let _infallible = writeln!(text, "    {name}: {{ kind: {kind}, group: \"{group}\" }}");
        }
        text += "  links:\n";
        for (a, b) in self.ends() {
            let _infallible = writeln!(text, "    - endpoints: [\"{a}\", \"{b}\"]");
        }
        text
    }

    fn p4utils(&self) -> String {
        let of = |wanted: &[Part]| {
            let devices = (0..self.parts.len()).filter(|at| wanted.contains(&self.parts[*at]));
            let devices =
                devices.map(|device| format!("\"{}\": {{\"cmd\": 1}}", self.name(device)));
            devices.collect::<Vec<_>>().join(", ")
        };
        let links = self.cables.iter().filter_map(|cable| match *cable {
            Cable::Between(a, b) => Some(format!("[\"{}\", \"{}\"]", self.name(a), self.name(b))),
            Cable::Outside(_) | Cable::Planned(..) => None,
        });
        format!(
            "{{\"topology\": {{\"hosts\": {{{}}}, \"switches\": {{{}}}, \"links\": [{}]}}}}",
            of(&[Part::Host, Part::Open]),
            of(&[Part::Leaf, Part::Spine, Part::Other]),
            links.collect::<Vec<_>>().join(", ")
        )
    }

    fn is_switch(&self, device: usize) -> bool {
        matches!(self.parts[device], Part::Leaf | Part::Spine)
    }

    /// A file for each switch, and how many ports lead nowhere. Each cable is in the file of its
    /// first end alone, or, if `is_full`, in those of both.
    fn sonic(&self, is_full: bool) -> (Vec<(String, String)>, usize) {
        let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut neighbours: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let switches = (0..self.parts.len()).filter(|at| self.is_switch(*at));
        let switches: Vec<String> = switches.map(|at| self.name(at)).collect();
        let split = |end: &str| -> (String, String) {
            let (device, port) = end.split_once(':').unwrap_or((end, ""));
            (device.to_owned(), port.to_owned())
        };
        for (cable, (a, b)) in self.cables.iter().zip(self.ends()) {
            let (a, b) = (split(&a), split(&b));
            let status = if matches!(cable, Cable::Planned(..)) { "down" } else { "up" };
            let mut is_listed = false;
            for (here, there) in
                [(&a, &b), (&b, &a)].iter().filter(|(here, _)| switches.contains(&here.0))
            {
                let (port, device) = (&here.1, &there.0);
                ports.entry(here.0.clone()).or_default().push(format!(
                    "\"{port}\": {{\"speed\": \"100000\", \"admin_status\": \"{status}\"}}"
                ));
                if is_full || !is_listed {
                    let neighbour = format!(
                        "\"{port}\": {{\"name\": \"{device}\", \"port\": \"{}\"}}",
                        there.1
                    );
                    neighbours.entry(here.0.clone()).or_default().push(neighbour);
                }
                is_listed = true;
            }
        }
        let kinds = self.parts.iter().enumerate().filter_map(|(at, part)| {
            let kind = match part {
                Part::Leaf => "ToRRouter",
                Part::Spine => "LeafRouter",
                Part::Host => "Server",
                Part::Other => "MgmtToRRouter",
                Part::Open => return None,
            };
            let is_listed = self.is_stated || *part == Part::Other;
            is_listed.then(|| format!("\"{}\": {{\"type\": \"{kind}\"}}", self.name(at)))
        });
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let files = switches.iter().map(|switch| {
            let list = |of: &BTreeMap<String, Vec<String>>| {
                of.get(switch).map(|list| list.join(", ")).unwrap_or_default()
            };
            let (ports, neighbours) = (list(&ports), list(&neighbours));
            let spare = format!("{}\"spare\": {{}}", if ports.is_empty() { "" } else { ", " });
            let text = format!(
                "{{\"PORT\": {{{ports}{spare}}}, \"DEVICE_NEIGHBOR\": {{{neighbours}}}, \
                 \"DEVICE_NEIGHBOR_METADATA\": {{{kinds}}}}}"
            );
            (format!("{switch}.json"), text)
        });
        (files.collect(), switches.len())
    }

    /// Devices, interfaces and cables.
    fn netbox(&self) -> [String; 3] {
        let mut devices = "name,role\n".to_owned();
        for (device, part) in self.parts.iter().enumerate() {
            let role = match (part, self.is_stated) {
                (Part::Leaf, true) => "Leaf Switch",
                (Part::Spine, true) => "spine",
                (Part::Leaf | Part::Spine, false) => "Switch",
                (Part::Host, _) => "GPU Server",
                (Part::Open, _) => "Firewall",
                (Part::Other, _) => "Patch Panel",
            };
            let _infallible = writeln!(devices, "{},{role}", self.name(device));
        }
        let mut interfaces = "device,name\n".to_owned();
        let mut cables = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,\
                          side_b_name,status\n"
            .to_owned();
        for (cable, (a, b)) in self.cables.iter().zip(self.ends()) {
            let [a, b] = [a, b].map(|end| {
                end.split_once(':').map(|(device, name)| (device.to_owned(), name.to_owned()))
            });
            let (Some(a), Some(b)) = (a, b) else {
                continue;
            };
            let _infallible = writeln!(interfaces, "{},{}", a.0, a.1);
            let (kind, status) = match cable {
                Cable::Between(..) => ("dcim.interface", "connected"),
                Cable::Planned(..) => ("dcim.interface", "planned"),
                Cable::Outside(_) => ("circuits.circuittermination", ""),
            };
            if kind == "dcim.interface" {
                let _infallible = writeln!(interfaces, "{},{}", b.0, b.1);
            }
            let _infallible =
                writeln!(cables, "{},dcim.interface,{},{},{kind},{},{status}", a.0, a.1, b.0, b.1);
        }
        [devices, interfaces, cables]
    }
}

/// A Clos whose leaves all have a host, and what else a lab has.
fn labs() -> impl Strategy<Value = Lab> {
    let shape = (1usize..4, 1usize..3, 1usize..4, 0usize..3, 0usize..3);
    let noise = prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 0..8);
    (shape, noise, any::<bool>()).prop_map(
        |((leaves, spines, hosts, open, other), noise, is_stated)| {
            let counts = [
                (Part::Leaf, leaves),
                (Part::Spine, spines),
                (Part::Host, hosts * leaves),
                (Part::Open, open),
                (Part::Other, other),
            ];
            let parts: Vec<Part> = counts
                .iter()
                .flat_map(|(part, count)| std::iter::repeat_n(*part, *count))
                .collect();
            let of = |wanted: Part| -> Vec<usize> {
                (0..parts.len()).filter(|at| parts[*at] == wanted).collect()
            };
            let mut cables = Vec::new();
            for (place, host) in of(Part::Host).into_iter().enumerate() {
                cables.push(Cable::Between(host, place % leaves));
            }
            for leaf in of(Part::Leaf) {
                cables.extend(of(Part::Spine).into_iter().map(|spine| Cable::Between(leaf, spine)));
            }
            for (kind, choice) in noise {
                let leaf = choice.index(leaves);
                let spine = leaves + choice.index(spines);
                let pick = |part: Part| {
                    let found = of(part);
                    (!found.is_empty()).then(|| found[choice.index(found.len())])
                };
                cables.extend(match kind {
                    0 => Some(Cable::Outside(leaf)),
                    1 => pick(Part::Open).map(|open| Cable::Between(open, spine)),
                    2 => pick(Part::Other).map(|other| Cable::Between(leaf, other)),
                    3 => pick(Part::Open).map(|open| Cable::Between(leaf, open)),
                    _ => Some(Cable::Planned(leaf, spine)),
                });
            }
            Lab { parts, cables, is_stated }
        },
    )
}

/// Switches, each below an earlier one but the first, and the hosts of each.
#[derive(Clone, Debug)]
struct Tree {
    parents: Vec<usize>,
    hosts: Vec<Vec<String>>,
    /// Hosts of no switch.
    alone: usize,
}

const SMALL_PODS: TierAssumptions = TierAssumptions {
    spines: 1,
    cores: 1,
    gpus_per_host: 8,
    host_links: 1,
    rails: false,
    host_gbps: 200.0,
    uplink_gbps: 400.0,
    core_gbps: 400.0,
};

fn trees() -> impl Strategy<Value = Tree> {
    let parents = prop::collection::vec(any::<prop::sample::Index>(), 1..10);
    let hosts = prop::collection::vec(0usize..3, 10);
    (parents, hosts, 0usize..3).prop_map(|(parents, hosts, alone)| {
        let parents: Vec<usize> =
            parents.iter().enumerate().map(|(at, parent)| parent.index(at + 1)).collect();
        let last = parents.len();
        let count = |at: usize| if at == last { 1 } else { hosts[at] };
        let hosts =
            (0..=last).map(|at| (0..count(at)).map(|host| format!("n{at}-{host}")).collect());
        Tree { parents, hosts: hosts.collect(), alone }
    })
}

impl Tree {
    fn below(&self, at: usize) -> Vec<String> {
        let below = (1..self.hosts.len()).filter(|of| self.parents[of - 1] == at);
        below.map(|of| format!("t{of}")).collect()
    }

    fn lone(&self) -> Vec<String> {
        (0..self.alone).map(|host| format!("lone{host}")).collect()
    }

    fn model(&self) -> String {
        let switches = self.hosts.iter().enumerate().map(|(at, hosts)| {
            let (below, hosts) = (self.below(at).join(", "), hosts.join(", "));
            format!("  t{at}: {{ switches: [{below}], nodes: [{hosts}] }}\n")
        });
        let lone = self.lone();
        let nodes = self.hosts.iter().flatten().chain(&lone);
        let nodes = nodes.map(|node| format!("  {node}: {{}}\n"));
        format!("switches:\n{}nodes:\n{}", switches.collect::<String>(), nodes.collect::<String>())
    }

    fn model_with_blocks(&self) -> String {
        let switches = (0..self.hosts.len())
            .map(|at| format!("  t{at}: {{ switches: [{}] }}\n", self.below(at).join(", ")));
        let lone = self.lone();
        let blocks = self.hosts.iter().enumerate().filter(|(_, hosts)| !hosts.is_empty());
        let blocks = blocks
            .map(|(at, hosts)| format!("  - {{ switch: t{at}, nodes: [{}] }}\n", hosts.join(", ")));
        let alone = (!lone.is_empty()).then(|| format!("  - nodes: [{}]\n", lone.join(", ")));
        let blocks: String = blocks.chain(alone).collect();
        format!("switches:\n{}blocks:\n{blocks}", switches.collect::<String>())
    }

    fn slurm_conf(&self) -> String {
        let lines = self.hosts.iter().enumerate().map(|(at, hosts)| {
            let list = |key: &str, names: &[String]| match names {
                [] => String::new(),
                names => format!(" {key}={}", names.join(",")),
            };
            let (below, hosts) = (list("Switches", &self.below(at)), list("Nodes", hosts));
            format!("SwitchName=t{at}{below}{hosts} # t{at}\n")
        });
        lines.collect()
    }

    fn slurm_yaml(&self) -> String {
        let switches = self.hosts.iter().enumerate().map(|(at, hosts)| {
            let (below, hosts) = (self.below(at).join(","), hosts.join(","));
            format!("      - {{ switch: t{at}, children: '{below}', nodes: '{hosts}' }}\n")
        });
        format!("- topology: a\n  tree:\n    switches:\n{}", switches.collect::<String>())
    }

    /// Every host and every switch is in the fabric or named.
    fn check(&self, text: &str, imported: Result<ImportedFabric, String>, lone: &[String]) {
        let imported = imported.unwrap_or_else(|error| panic!("{error}: {text}"));
        let found = imported.fabric.hosts().iter().map(|host| host.name.as_str());
        let mut found: Vec<&str> = found.chain(named(&imported.left_out, "node")).collect();
        let mut expected: Vec<&str> =
            self.hosts.iter().flatten().chain(lone).map(String::as_str).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let assumed = imported.assumptions.join(" ").replace([',', ':'], " ");
        for switch in (0..self.hosts.len()).map(|at| format!("t{at}")) {
            let is_leaf = imported.fabric.switch_named(&switch).is_some();
            let is_assumed = assumed.split(' ').any(|word| word == switch);
            let is_out = named(&imported.left_out, "switch").contains(&switch.as_str());
            assert!(is_leaf || is_assumed || is_out, "{switch}: {text} {imported:?}");
        }
    }
}

fn named<'a>(left_out: &'a [LeftOut], noun: &str) -> Vec<&'a str> {
    let parts = left_out.iter().filter(|part| part.noun == noun);
    parts.flat_map(|part| part.names.iter().map(String::as_str)).collect()
}

/// Every device is in the fabric or named, once, and so is every cable.
fn check(imported: &ImportedFabric, noun: &str, devices: &[String], cables: usize) {
    let ImportedFabric { fabric, left_out, .. } = imported;
    let switches = fabric.switches().iter().map(|switch| switch.name.as_str());
    let hosts = fabric.hosts().iter().map(|host| host.name.as_str());
    let mut found: Vec<&str> = switches.chain(hosts).chain(named(left_out, noun)).collect();
    found.sort_unstable();
    let mut expected: Vec<&str> = devices.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "{left_out:?}");
    assert_eq!(fabric.cables().count() + named(left_out, "cable").len(), cables, "{left_out:?}");
}

/// How many hosts a fabric has, which must not be none: a test of nothing would pass.
fn hosts_of(fabric: &Fabric) -> usize {
    fabric.hosts().len()
}

proptest! {
    #[test]
    fn nodes_and_links_of_containerlab_are_used_or_named(lab in labs()) {
        let imported = import::import_containerlab(&lab.containerlab(), &Default::default());
        let imported = imported.map_err(|error| TestCaseError::fail(format!("{error}: {lab:?}")))?;
        check(&imported, "node", &lab.names(), lab.cables.len());
        prop_assert!(hosts_of(&imported.fabric) > 0);
    }

    #[test]
    fn nodes_and_links_of_p4_utils_are_used_or_named(mut lab in labs()) {
        // Its hosts are stated, so a host at a spine is a mistake there.
        let is_open = |at: &usize| lab.parts[*at] == Part::Open;
        let parts = lab.parts.clone();
        lab.cables.retain(|cable| match cable {
            Cable::Between(a, b) => parts[*a] != Part::Open || parts[*b] == Part::Leaf,
            _ => false,
        });
        prop_assume!((0..lab.parts.len()).filter(is_open).count() < 3);
        let imported = import::import_p4utils(&lab.p4utils(), &InventoryAssumptions::default());
        let imported = imported.map_err(|error| TestCaseError::fail(format!("{error}: {lab:?}")))?;
        check(&imported, "node", &lab.names(), lab.cables.len());
        prop_assert!(named(&imported.left_out, "field").iter().any(|field| field.contains("cmd")));
        prop_assert!(hosts_of(&imported.fabric) > 0);
    }

    #[test]
    fn devices_and_cables_of_netbox_are_used_or_named(lab in labs()) {
        let [devices, interfaces, cables] = &lab.netbox();
        let tables = NetboxTables { devices, interfaces, cables, addresses: None };
        let imported = import::import_netbox(&tables, &InventoryAssumptions::default());
        let imported = imported.map_err(|error| TestCaseError::fail(format!("{error}: {lab:?}")))?;
        check(&imported, "device", &lab.names(), lab.cables.len());
        prop_assert!(hosts_of(&imported.fabric) > 0);
    }

    #[test]
    fn switches_and_nodes_of_models_of_topograph_are_used_or_named(tree in trees()) {
        for text in [tree.model(), tree.model_with_blocks()] {
            let imported = import::import_topograph(&text, &SMALL_PODS);
            tree.check(&text, imported.map_err(|error| error.to_string()), &tree.lone());
        }
    }

    #[test]
    fn switches_and_nodes_of_slurm_are_used_or_named(tree in trees()) {
        let imported = import::import_slurm_conf(&tree.slurm_conf(), &SMALL_PODS);
        tree.check(&tree.slurm_conf(), imported.map_err(|error| error.to_string()), &[]);
        let imported = import::import_slurm_yaml(&tree.slurm_yaml(), &SMALL_PODS);
        tree.check(&tree.slurm_yaml(), imported.map_err(|error| error.to_string()), &[]);
    }

    #[test]
    fn devices_cables_and_ports_of_sonic_are_used_or_named(lab in labs(), is_full in any::<bool>()) {
        let (files, spare) = lab.sonic(is_full);
        let switches: Vec<SonicSwitch> =
            files.iter().map(|(name, text)| SonicSwitch::parse(name, text).unwrap()).collect();
        let imported = import::import_sonic(&switches, &InventoryAssumptions::default());
        let imported = imported.map_err(|error| TestCaseError::fail(format!("{error}: {files:?}")))?;
        // What stands on its own is in no file.
        let cabled = |at: &usize| lab.cables.iter().any(|cable| match cable {
            Cable::Between(a, b) | Cable::Planned(a, b) => a == at || b == at,
            Cable::Outside(_) => false,
        });
        let listed = (0..lab.parts.len()).filter(|at| lab.is_switch(*at) || cabled(at));
        let mut listed: Vec<String> = listed.map(|at| lab.name(at)).collect();
        listed.extend(lab.cables.iter().any(|cable| matches!(cable, Cable::Outside(_))).then(|| "host".to_owned()));
        check(&imported, "device", &listed, lab.cables.len());
        prop_assert_eq!(named(&imported.left_out, "port").len(), spare);
        prop_assert!(hosts_of(&imported.fabric) > 0);
    }

    #[test]
    fn rows_of_lingjun_are_used_or_named(rows in prop::collection::vec((0u8..4, 0u8..40), 1..60)) {
        let lines = rows.iter().map(|(kind, host)| match kind {
            0 => format!("h{host},G,P\n"),
            1 => format!("h {host},G,P,S\n"),
            _ => format!("h{host},G,P{},S\n", host % 3),
        });
        let text: String = std::iter::once("ip,DSW,PSW,ASW\nlast,G,P,S\n".to_owned()).chain(lines).collect();
        let imported = import::import_lingjun(&text, &TierAssumptions::default()).unwrap();
        let rows_named = named(&imported.left_out, "row").len();
        prop_assert_eq!(imported.fabric.hosts().len() + rows_named, rows.len() + 1);
    }
}
