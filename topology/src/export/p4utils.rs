//! A topology in the JSON of p4-utils (`p4app.json`).
//!
//! The decision: what p4-utils has no field for is in keys that begin with `crux.`, which it hands
//! to its nodes and which change nothing there, so that the file can be imported again.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::facts::{self, Fact};
use crate::fabric::Fabric;

/// The largest rate that Mininet gives to a cable, Mbit/s; it ignores others, with an error for each.
const MOST_MBPS: f64 = 1_000.0;

/// The whole file.
#[derive(Serialize)]
struct ExportedApp<'a> {
    p4_src: &'a str,
    cli: bool,
    #[serde(rename = "crux.name")]
    name: &'a str,
    topology: ExportedTopology,
}

/// Nodes and links.
#[derive(Serialize)]
struct ExportedTopology {
    assignment_strategy: &'static str,
    links: Vec<Value>,
    hosts: NamedNodes,
    switches: NamedNodes,
}

/// Nodes in the order of the fabric, which JSON text keeps and a map would not.
struct NamedNodes(Vec<(String, Map<String, Value>)>);

impl Serialize for NamedNodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, node)| (name, node)))
    }
}

/// The text of a `p4app.json`; `program` is the P4 source that its switches run.
pub fn export_p4utils(fabric: &Fabric, program: &str) -> String {
    let switches = fabric.switches().iter().map(|switch| {
        let tier = (facts::TIER, switch.tier.to_string());
        let facts = std::iter::once(tier).chain(facts::switch_facts(switch));
        let facts = facts.chain(facts::port_names_fact(switch));
        (switch.name.clone(), own_keys(facts))
    });
    let hosts = fabric.hosts().iter().map(|host| {
        let mut facts = facts::host_facts(fabric, host);
        facts.push(facts::address_fact(fabric, host));
        let mut node = own_keys(facts.into_iter());
        // p4-utils gives addresses to the first interface of a host alone.
        if let Some(nic) = host.nics.first().map(|nic| fabric.nic(*nic)) {
            let bits = if nic.ip.is_ipv4() { 24 } else { 64 };
            node.insert("ip".to_owned(), format!("{}/{bits}", nic.ip).into());
            node.insert("mac".to_owned(), nic.mac.to_string().into());
        }
        (host.name.clone(), node)
    });
    let links = facts::unusual_schedulers(fabric).into_iter().map(|(cable, scheduler)| {
        let link = fabric.link(cable);
        let gbps = link.bandwidth.gbps();
        let speed = (facts::GBPS, gbps.to_string());
        let mut own = own_keys(std::iter::once(speed).chain(scheduler));
        if gbps * 1e3 <= MOST_MBPS {
            own.insert("bw".to_owned(), (gbps * 1e3).into());
        }
        own.insert("port1".to_owned(), fabric.port_number(cable).into());
        own.insert("port2".to_owned(), fabric.port_number(cable.reverse()).into());
        json!([fabric.node_name(link.from.node), fabric.node_name(link.to.node), own])
    });
    let document = ExportedApp {
        p4_src: program,
        cli: true,
        name: fabric.name(),
        topology: ExportedTopology {
            assignment_strategy: "manual",
            links: links.collect(),
            hosts: NamedNodes(hosts.collect()),
            switches: NamedNodes(switches.collect()),
        },
    };
    serde_json::to_string_pretty(&document).expect("names are text") + "\n"
}

fn own_keys(facts: impl Iterator<Item = Fact>) -> Map<String, Value> {
    let key = |(name, value): Fact| (format!("{}{name}", facts::LABEL_PREFIX), value.into());
    facts.map(key).collect()
}
