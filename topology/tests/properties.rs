//! Properties of generated fabrics: documents round trip, changes can be undone, and every
//! equal-cost path is a usable, valley-free, shortest one.

use std::collections::BTreeSet;

use proptest::prelude::*;
use topology::clos::{self, ClosSpec};
use topology::document::{self, DocumentFormat};
use topology::export::{self, ContainerlabImages, FabricTree, NetboxTable, SonicPorts};
use topology::import::{
    self, ImportError, ImportedFabric, InventoryAssumptions, NetboxTables, SonicSwitch,
    TierAssumptions,
};
use topology::{
    AvailabilityChange, BufferDependencyGraph, Fabric, LeafRoutes, LinkId, LinkScheduler, SwitchId,
    Tier, check_fabric, is_valley_free, next_hops, spec,
};

prop_compose! {
    fn clos_specs()(
        shape in (1u32..4, 1u32..4, 1u32..4, 1u32..3),
        speeds in (0.001f64..1e4, 0.001f64..1e4, proptest::option::of(0.001f64..1e4)),
        cores in 0u32..4,
        links in (1u32..3, 1u32..4),
        style in 0u8..6,
        (planes, ipv6, host_strict) in any::<(bool, bool, bool)>(),
    ) -> ClosSpec {
        let (leaves, spines, hosts_per_leaf, pods) = shape;
        let cores = if pods > 1 || planes { cores.max(1) } else { cores };
        let (parallel_uplinks, host_links) = links;
        let (rails, dual_homed) = (style == 1 || style == 4, style == 2);
        let ports_per_nic = if style >= 4 { 2 } else { 1 };
        ClosSpec {
            leaves: if dual_homed || ports_per_nic == 2 { leaves * 2 } else { leaves },
            spines,
            hosts_per_leaf,
            gpus_per_host: 8,
            host_gbps: speeds.0,
            uplink_gbps: speeds.1,
            pods,
            cores: if planes { cores * spines } else { cores },
            core_gbps: speeds.2.filter(|_| cores > 0),
            planes,
            parallel_uplinks,
            host_links: if rails || dual_homed { host_links * 2 } else { host_links },
            rails,
            dual_homed,
            ports_per_nic,
            ipv6,
            host_scheduler: host_strict.then_some(LinkScheduler::HostStrict),
        }
    }
}

fn fabrics() -> impl Strategy<Value = Fabric> {
    clos_specs().prop_map(|spec| clos::build_clos("any", &spec).expect("the numbers agree"))
}

/// Fabrics whose addresses, schedulers and servers are not the generated ones, in part.
fn varied_fabrics() -> impl Strategy<Value = Fabric> {
    (fabrics(), any::<u8>()).prop_map(|(fabric, choice)| {
        let mut document = spec::explicit_document(&fabric);
        if choice & 1 != 0 {
            document.hosts[0].macs[0] = "0a:00:00:00:00:07".to_owned();
            document.hosts[0].gpus = 3;
        }
        if choice & 2 != 0 {
            document.switches[0].p4runtime = None;
            document.switches[0].device_id = 7_000;
        }
        let uplink = document.links.last_mut().filter(|link| !link.a.starts_with('h'));
        if let Some(uplink) = uplink.filter(|_| choice & 4 != 0) {
            uplink.scheduler = Some(LinkScheduler::Fifo);
        }
        if choice & 8 != 0 {
            let ports = fabric.switches().iter().map(|switch| switch.ports.len());
            for (at, (switch, ports)) in document.switches.iter_mut().zip(ports).enumerate() {
                // Names of SONiC and of others, one of them with what separates lists.
                let name = ["Ethernet", "ethernet-1/=", "swp \"1\" "][at % 3];
                let numbers = 1..=ports as u32;
                let named = numbers.map(|port| (format!("{name}{}", 8 * (port - 1)), port));
                switch.port_names = named.collect();
            }
        }
        Fabric::try_from(&document).expect("a document that was changed within its bounds")
    })
}

/// A change to a part that `choice` picks, and the change that undoes it.
fn change(
    fabric: &Fabric,
    kind: u8,
    choice: prop::sample::Index,
) -> (AvailabilityChange, AvailabilityChange) {
    let link = LinkId::from(choice.index(fabric.links().len()));
    let switch = SwitchId::from(choice.index(fabric.switches().len()));
    match kind % 4 {
        0 => (AvailabilityChange::LinkDown(link), AvailabilityChange::LinkUp(link)),
        1 => (AvailabilityChange::DrainLink(link), AvailabilityChange::UndrainLink(link)),
        2 => (AvailabilityChange::SwitchDown(switch), AvailabilityChange::SwitchUp(switch)),
        _ => (AvailabilityChange::DrainSwitch(switch), AvailabilityChange::UndrainSwitch(switch)),
    }
}

/// Choices of what breaks; few or many.
fn breakage() -> impl Strategy<Value = Vec<(u8, prop::sample::Index)>> {
    prop::collection::vec((any::<u8>(), any::<prop::sample::Index>()), 0..12)
}

fn broken(fabric: &Fabric, choices: &[(u8, prop::sample::Index)]) -> Fabric {
    fabric.with_changes(choices.iter().map(|&(kind, choice)| change(fabric, kind, choice).0))
}

/// All valley-free paths over usable links, the slow and plain way: from every switch on the way,
/// up while nothing but up was taken and no cable leads down to the destination, and down.
fn all_paths(fabric: &Fabric, from: SwitchId, to: SwitchId) -> Vec<Vec<LinkId>> {
    let mut found = Vec::new();
    let mut open = vec![(from, Vec::new(), true)];
    while let Some((at, path, climbing)) = open.pop() {
        if at == to {
            found.push(path);
            continue;
        }
        for &link in fabric.switch(at).ports.values().filter(|&&link| fabric.is_usable(link)) {
            let Some(next) = fabric.switch_after(link) else {
                continue;
            };
            let up = fabric.switch(next).tier > fabric.switch(at).tier;
            let is_above =
                fabric.up_links(to).iter().any(|up| fabric.switch_after(*up) == Some(at));
            if !up || (climbing && !is_above) {
                open.push((next, [&path[..], &[link]].concat(), up));
            }
        }
    }
    found.sort();
    found
}

/// The waits between the buffers of `fabrics`, one cabling with different failures: every switch
/// may have the routes of any of them.
fn waits_under_any_mix(fabrics: &[Fabric]) -> BufferDependencyGraph {
    let mut graph = BufferDependencyGraph::default();
    for destination in fabrics[0].destinations() {
        let routes: Vec<_> = fabrics.iter().map(|fabric| next_hops(fabric, *destination)).collect();
        graph.add_routes(&fabrics[0], &routes.iter().collect::<Vec<_>>());
    }
    graph
}

/// Down from one switch to the leaf `over` and up again to another one, or the other way round;
/// none if the leaf has no two switches above it.
fn valley(fabric: &Fabric, over: SwitchId, is_reversed: bool) -> Option<[LinkId; 2]> {
    let ups = fabric.up_links(over);
    let other = ups.iter().find(|up| fabric.switch_after(**up) != fabric.switch_after(ups[0]))?;
    Some(match is_reversed {
        false => [ups[0].reverse(), *other],
        true => [other.reverse(), ups[0]],
    })
}

proptest! {
    // At length: PROPTEST_CASES=10000 cargo test -p topology --test properties buffers
    /// Whatever fails, and whichever switches have been written since, no buffer waits for itself.
    #[test]
    fn buffers_have_no_cycle_under_any_mix_of_routes(
        fabric in fabrics(),
        failures in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>()), 0..4),
    ) {
        let states = (0..=failures.len()).map(|count| broken(&fabric, &failures[..count]));
        let states: Vec<Fabric> = states.collect();
        let graph = waits_under_any_mix(&states);
        prop_assert_eq!(graph.find_cycle().map(|cycle| cycle.name_in(&fabric)), None);
    }

    /// Two valleys over two leaves, in opposite directions between the same two switches, are a
    /// cycle, and one of them is not.
    #[test]
    fn planted_valleys_are_a_cycle_of_buffers(
        spec in clos_specs().prop_filter("two leaves and spines", |spec| {
            spec.leaves > 1 && spec.spines > 1
        }),
        choice in any::<prop::sample::Index>(),
    ) {
        let fabric = clos::build_clos("any", &spec).unwrap();
        let leaves: Vec<SwitchId> = fabric.switches_of_tier(Tier::Leaf).collect();
        let pod = choice.index(spec.pods as usize) * spec.leaves as usize;
        let mut graph = waits_under_any_mix(std::slice::from_ref(&fabric));
        let down_up = valley(&fabric, leaves[pod], false).unwrap();
        let up_down = valley(&fabric, leaves[pod + 1], true).unwrap();
        graph.add_path(&down_up);
        prop_assert_eq!(graph.find_cycle(), None);
        graph.add_path(&up_down);
        let cycle = graph.find_cycle().expect("both valleys wait for each other");
        prop_assert!(cycle.has_turn(down_up[0], down_up[1]));
        prop_assert!(cycle.has_turn(up_down[0], up_down[1]));
        prop_assert!(!is_valley_free(&fabric, &down_up) && !is_valley_free(&fabric, &up_down));
    }
}

proptest! {
    #[test]
    fn documents_round_trip(fabric in fabrics()) {
        for format in [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json] {
            let text = document::print_document(&spec::explicit_document(&fabric), format).unwrap();
            prop_assert_eq!(&spec::parse_fabric(&text, format, "any").unwrap(), &fabric);
        }
    }

    #[test]
    fn generated_documents_round_trip(spec in clos_specs()) {
        let generated = spec::FabricDocument {
            name: "any".to_owned(),
            clos: Some(spec),
            ..spec::FabricDocument::default()
        };
        let text = document::print_document(&generated, DocumentFormat::Toml).unwrap();
        let read = document::parse_document(&text, DocumentFormat::Toml, "any");
        let read: spec::FabricDocument = read.unwrap();
        prop_assert_eq!(read, generated);
    }

    #[test]
    fn a_change_undone_never_was(fabric in fabrics(), choices in breakage()) {
        // Only the first change of each part: undoing a repetition would undo the first as well.
        let changes: BTreeSet<_> =
            choices.iter().map(|&(kind, choice)| change(&fabric, kind, choice)).collect();
        let broken = fabric.with_changes(changes.iter().map(|&(change, _)| change));
        prop_assert_eq!(broken == fabric, changes.is_empty());
        let mended = broken.with_changes(changes.iter().map(|&(_, inverse)| inverse));
        prop_assert_eq!(mended, fabric);
    }

    #[test]
    fn equal_cost_paths_are_exactly_the_shortest_valley_free_ones(
        fabric in fabrics(),
        choices in breakage(),
    ) {
        let fabric = broken(&fabric, &choices);
        for to in fabric.switches_of_tier(Tier::Leaf) {
            let hops = next_hops(&fabric, to);
            for from in fabric.switches_of_tier(Tier::Leaf).filter(|&from| from != to) {
                let all = all_paths(&fabric, from, to);
                let shortest = all.iter().map(Vec::len).min();
                let expected: Vec<_> =
                    all.into_iter().filter(|path| Some(path.len()) == shortest).collect();
                prop_assert_eq!(hops.paths_from(&fabric, from), expected);
            }
        }
    }

    #[test]
    fn routes_that_follow_failures_are_those_of_the_fabric(
        fabric in fabrics(),
        steps in prop::collection::vec(breakage(), 1..5),
    ) {
        let mut routes = LeafRoutes::new(&fabric);
        for choices in steps {
            let broken = broken(&fabric, &choices);
            let before = routes.clone();
            let mut changes = routes.follow(&broken).into_iter().peekable();
            for (place, leaf) in routes.destinations().iter().enumerate() {
                let hops = next_hops(&broken, *leaf);
                let mut changed = BTreeSet::new();
                while let Some(change) = changes.next_if(|change| change.leaf == place) {
                    prop_assert!(changed.insert(change.switch), "twice");
                }
                for switch in broken.switch_ids() {
                    let now = routes.hops(switch, place);
                    prop_assert_eq!(now.map(|hops| hops.distance()), hops.distance(switch));
                    let links = now.map_or(&[][..], |hops| hops.links());
                    prop_assert_eq!(links, hops.links_at(switch));
                    let is_changed = now != before.hops(switch, place);
                    prop_assert_eq!(changed.contains(&switch), is_changed);
                }
            }
            prop_assert!(changes.next().is_none());
        }
    }

    #[test]
    fn checks_judge_any_fabric_the_same_twice(fabric in fabrics(), choices in breakage()) {
        let fabric = broken(&fabric, &choices);
        prop_assert_eq!(check_fabric(&fabric), check_fabric(&fabric));
    }

    #[test]
    fn exports_that_say_everything_are_imported_as_they_were(fabric in varied_fabrics()) {
        let assumptions = InventoryAssumptions::default();
        let images = ContainerlabImages { switch: "s".into(), host: "h".into() };
        let text = export::export_containerlab(&fabric, &images);
        let imported = import::import_containerlab(&text, &assumptions).expect("what is exported");
        prop_assert_eq!(&imported.fabric, &fabric);
        prop_assert!(imported.assumptions.is_empty(), "{:?}", imported.assumptions);
        prop_assert!(imported.left_out.iter().all(|it| it.noun == "field"), "{:?}", imported.left_out);
        let text = export::export_p4utils(&fabric, "fabric.p4");
        let imported = import::import_p4utils(&text, &assumptions).expect("what is exported");
        prop_assert_eq!(&imported.fabric, &fabric);
        prop_assert!(imported.assumptions.is_empty(), "{:?}", imported.assumptions);
        let table = |table| export::export_netbox(&fabric, table);
        let [devices, interfaces, cables, addresses] = [
            NetboxTable::Devices, NetboxTable::Interfaces, NetboxTable::Cables,
            NetboxTable::Addresses,
        ].map(table);
        let tables = NetboxTables {
            devices: &devices, interfaces: &interfaces, cables: &cables,
            addresses: Some(&addresses),
        };
        let imported = import::import_netbox(&tables, &assumptions).expect("what is exported");
        prop_assert_eq!(&imported.fabric, &fabric);
        prop_assert!(imported.assumptions.is_empty(), "{:?}", imported.assumptions);
    }

    #[test]
    fn trees_of_schedulers_keep_who_is_near_to_whom(fabric in fabrics()) {
        let assumptions = TierAssumptions { spines: 2, host_links: 1, ..Default::default() };
        let tree = FabricTree::of_fabric(&fabric);
        type Export = fn(&Fabric) -> String;
        type Import = fn(&str, &TierAssumptions) -> Result<ImportedFabric, ImportError>;
        let formats: [(Export, Import); 3] = [
            (export::export_topograph, import::import_topograph),
            (export::export_slurm_conf, import::import_slurm_conf),
            (export::export_slurm_yaml, import::import_slurm_yaml),
        ];
        for (export, import) in formats {
            let text = export(&fabric);
            let imported = import(&text, &assumptions).expect("what is exported");
            prop_assert_eq!(&FabricTree::of_fabric(&imported.fabric), &tree);
            let again = export(&imported.fabric);
            // The name of the fabric is that of the format.
            let again = again.replace("topology: slurm", "topology: any");
            prop_assert_eq!(again.replace("# Fabric slurm,", "# Fabric any,"), text);
        }
    }

    #[test]
    fn configurations_of_all_switches_of_sonic_are_the_fabric(fabric in varied_fabrics()) {
        let ports = SonicPorts { levels: 8, lanes: 8 };
        let configuration = |fabric: &Fabric, switch: &str| {
            export::export_sonic_config(fabric, switch, ports).expect("names of SONiC or none").text
        };
        // Names of SONiC, or none of SONiC.
        let of_ports = |switch: SwitchId| {
            let names = fabric.switch(switch).port_names.values();
            names.filter(|name| name.starts_with("Ethernet")).count()
        };
        let is_named = |switch| [0, fabric.switch(switch).ports.len()].contains(&of_ports(switch));
        prop_assume!(fabric.switch_ids().all(is_named));
        let switches = fabric.switches().iter().map(|switch| {
            let text = configuration(&fabric, &switch.name);
            SonicSwitch::parse(&format!("{}.json", switch.name), &text).expect("what is exported")
        });
        let switches: Vec<SonicSwitch> = switches.collect();
        let imported = import::import_sonic(&switches, &InventoryAssumptions::default());
        let imported = imported.expect("what is exported");
        let cables = |fabric: &Fabric| -> BTreeSet<BTreeSet<String>> {
            let ends = fabric.cables().map(|cable| fabric.link(cable)).map(|link| {
                [link.from, link.to].map(|end| fabric.endpoint_name(end)).into_iter().collect()
            });
            ends.collect()
        };
        prop_assert_eq!(cables(&imported.fabric), cables(&fabric));
        for switch in fabric.switches() {
            let again = imported.fabric.switch_named(&switch.name).expect("it has cables");
            prop_assert_eq!(imported.fabric.switch(again).tier, switch.tier);
            let text = configuration(&imported.fabric, &switch.name);
            prop_assert_eq!(text, configuration(&fabric, &switch.name));
        }
        prop_assert!(imported.left_out.iter().all(|it| it.noun == "field"), "{:?}", imported.left_out);
    }
}
