//! Cables as the switches' LLDP has them, compared with the document.
//!
//! Needs no packet of the controller and no row in a table, so it works where probes do not: on a
//! switch that another program runs, or before there is a pipeline. The decision: what LLDP says is
//! compared and never acted on. A neighbour that is silent proves nothing, because LLDP may be off.

use std::collections::{BTreeMap, BTreeSet};

use p4runtime_proto::gnmi as proto;
use topology::{Fabric, Finding, SwitchId};

use super::leaf_value::{interface_ports, leaf_values};
use crate::discovery::{ObservedTopology, SwitchPort, compare_cabling};

/// What a switch says of its interfaces: their ports, and who is at their other ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LldpTable {
    /// The P4Runtime ids of interfaces, which are the ports of the document.
    ports: BTreeMap<String, u32>,
    /// The neighbour's name and its interface, by interface here.
    neighbours: BTreeMap<String, (String, String)>,
}

impl LldpTable {
    /// Reads answers about `/interfaces` and `/lldp`.
    pub fn from_notifications(notifications: &[proto::Notification]) -> Self {
        let ports = interface_ports(notifications);
        let mut table = Self { ports, neighbours: BTreeMap::new() };
        for (steps, text) in leaf_values(notifications) {
            if let [("lldp", _), _, (_, Some(name)), ("neighbors", _), _, ("state", _), (leaf, _)] =
                steps[..]
            {
                let (system, port) = table.neighbours.entry(name.to_owned()).or_default();
                match leaf {
                    "system-name" => *system = text,
                    "port-id" => *port = text,
                    _ => {}
                }
            }
        }
        table
    }

    /// The port of an interface: by name, or by its number where the switch calls it so.
    fn port_of(&self, interface: &str) -> Option<u16> {
        let known = self.ports.get(interface).copied();
        u16::try_from(known.or_else(|| interface.parse().ok())?).ok()
    }
}

/// How the cables that LLDP has seen differ from those of the document. Neighbours that are no
/// switches of the fabric, and interfaces that nobody has named, say nothing.
pub fn check_neighbours(fabric: &Fabric, tables: &BTreeMap<SwitchId, LldpTable>) -> Vec<Finding> {
    let mut seen = ObservedTopology::default();
    for (&switch, table) in tables {
        for (interface, (system, port)) in &table.neighbours {
            // Systems announce their whole name, documents have the first part of it.
            let host_name = system.split('.').next().unwrap_or(system);
            let other = fabric.switch_named(system).or_else(|| fabric.switch_named(host_name));
            let far = other.and_then(|other| {
                let port = tables.get(&other)?.port_of(port)?;
                Some(SwitchPort { switch: other, port })
            });
            if let (Some(port), Some(far)) = (table.port_of(interface), far) {
                let here = SwitchPort { switch, port };
                seen.links.extend([(here, far), (far, here)]);
            }
        }
    }
    let findings = compare_cabling(fabric, &seen, &BTreeSet::new()).into_iter();
    let marked =
        findings.map(|finding| Finding { text: format!("{} (LLDP)", finding.text), ..finding });
    marked.collect()
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::super::leaf_value::tests::update;
    use super::*;

    /// A switch whose interface `EthernetN` is port N, with one neighbour.
    fn table(port: u32, system: &str, far: &str) -> LldpTable {
        let neighbour = format!(
            "openconfig-lldp:lldp/interfaces/interface[name=Ethernet{port}]/neighbors/\
             neighbor[id=1]/state"
        );
        let update = vec![
            update(
                &format!("interfaces/interface[name=Ethernet{port}]/state/id"),
                &port.to_string(),
            ),
            update(&format!("{neighbour}/system-name"), &format!("{system:?}")),
            update(&format!("{neighbour}/port-id"), &format!("{far:?}")),
            update(&format!("{neighbour}/ttl"), "120"),
        ];
        let notification = proto::Notification { update, ..proto::Notification::default() };
        LldpTable::from_notifications(&[notification])
    }

    #[test]
    fn only_cables_that_are_elsewhere_are_findings() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let [leaf, spine] = ["leaf1", "spine1"].map(|name| fabric.switch_named(name).unwrap());
        let link = fabric.link(fabric.links_named("leaf1-spine1")[0]);
        let (near, far) = (link.from.port, link.to.port);
        let check = |system: &str, port: &str| {
            let back = table(far, "elsewhere", "eth0");
            let tables = BTreeMap::from([(leaf, table(near, system, port)), (spine, back)]);
            let found = check_neighbours(&fabric, &tables).into_iter();
            found.map(|finding| finding.text).collect::<Vec<_>>()
        };
        let far_name = format!("Ethernet{far}");
        for (system, port) in [
            ("spine1", far_name.as_str()),
            ("spine1.fabric.example", &far_name),
            ("spine1", &far.to_string()),
            ("h7", "eth0"),
            ("spine1", "unnamed"),
            ("", ""),
        ] {
            assert_eq!(check(system, port), Vec::<String>::new(), "{system} {port}");
        }
        let crossed = check("spine1", "Ethernet77");
        assert!(crossed.is_empty(), "an interface that the spine does not report: {crossed:?}");
        let crossed = check("spine1", "77");
        let [text] = &crossed[..] else { panic!("{crossed:?}") };
        assert!(text.starts_with("crossed: the document connects leaf1:"), "{text}");
        assert!(text.ends_with("(LLDP)"), "{text}");
    }
}
