//! Topologies in JSON of p4-utils (`p4app.json`) and of the P4 tutorials (`topology.json`).
//!
//! Both list hosts, switches and links; p4-utils has them under `topology`, with routers and the
//! defaults of links. An end of a link is the name of a node, or `s1-p3` for port 3. p4-utils
//! states ports, rates and addresses in an object behind the ends; the tutorials have a delay and a
//! rate there. Neither knows tiers: they follow from where hosts are ([`roles`](super::roles)),
//! unless a switch has the key `crux.tier`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use super::containerlab::plain_text;
use super::inventory::{
    CableEnd, DeviceRole, Inventory, InventoryAssumptions, ListedCable, ListedDevice,
    MissingAddress, field_error,
};
use super::left_out::ImportNotes;
use super::roles::stated_tier;
use super::{ImportError, ImportedFabric};
use crate::export::facts;

/// Either kind of file.
#[derive(Deserialize)]
struct AppFile {
    #[serde(default, rename = "crux.name")]
    name: Option<String>,
    topology: Option<AppTopology>,
    #[serde(flatten)]
    own: AppTopology,
}

/// Nodes and links.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AppTopology {
    hosts: Mapping,
    switches: Mapping,
    routers: Mapping,
    links: Vec<Vec<Value>>,
    default: Mapping,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// An end of a link, with what is stated of its interface.
struct LinkEnd {
    node: String,
    port: Option<u32>,
    interface: Option<String>,
    address: Option<String>,
    mac: Option<String>,
}

/// A link before ports are given to the ends that state none.
struct DraftLink {
    field: String,
    ends: [LinkEnd; 2],
    facts: BTreeMap<String, String>,
}

/// Keys of links that are read; 1 or 2, for an end, follows all but the first.
const LINK_KEYS: [&str; 5] = ["bw", "port", "intfName", "addr", "params"];

/// The fabric of a topology of p4-utils or of the P4 tutorials.
///
/// # Errors
/// The text is no such file, or its nodes and links are no fabric; the error names the field.
pub fn import_p4utils(
    text: &str,
    assumptions: &InventoryAssumptions,
) -> Result<ImportedFabric, ImportError> {
    let file: AppFile = serde_yaml_ng::from_str(text).map_err(|error| {
        let is_template = text.contains("\": \"<") || text.contains("{{");
        let hint = "; this is a template: write values in the place of what it describes";
        let problem = error.to_string() + if is_template { hint } else { "" };
        field_error("topology of p4-utils", problem)
    })?;
    let mut notes = ImportNotes::default();
    let topology = match file.topology {
        Some(topology) => {
            file.own.other.keys().for_each(|key| notes.count_unused_field(key));
            topology
        }
        None => file.own,
    };
    topology.other.keys().for_each(|key| notes.count_unused_field(format!("topology.{key}")));
    let default = Value::Mapping(topology.default.clone());
    count_unused_keys(&default, &LINK_KEYS, "topology.default.", &mut notes);
    let names = |nodes: &Mapping| nodes.keys().map(plain_text).collect::<BTreeSet<String>>();
    let nodes = [names(&topology.hosts), names(&topology.switches), names(&topology.routers)];
    let mut links = Vec::new();
    for (index, link) in topology.links.iter().enumerate() {
        let field = format!("topology.links[{index}]");
        links.push(read_link(field, link, &topology.default, &nodes, &mut notes)?);
    }
    let mut devices = Vec::new();
    let switches = topology.switches.into_iter().map(|switch| ("switches", switch));
    let routers = topology.routers.into_iter().map(|router| ("routers", router));
    for (kind, (name, node)) in switches.chain(routers) {
        let field = format!("topology.{kind}.{}", plain_text(&name));
        count_unused_keys(&node, &[], &format!("{kind}."), &mut notes);
        let facts = own_facts(&node);
        let role = DeviceRole::Switch(stated_tier(&field, &facts)?);
        devices.push(listed_device(plain_text(&name), field, role, facts));
    }
    let mut first_addresses = BTreeMap::new();
    for (name, node) in topology.hosts {
        let name = plain_text(&name);
        count_unused_keys(&node, &["ip", "mac"], "hosts.", &mut notes);
        first_addresses.insert(name.clone(), [stated_text(&node, "ip"), stated_text(&node, "mac")]);
        let field = format!("topology.hosts.{name}");
        devices.push(listed_device(name, field, DeviceRole::Host, own_facts(&node)));
    }
    let mut inventory = Inventory {
        name: file.name,
        usual_name: "lab",
        device_noun: "node",
        fact_prefix: Some(facts::LABEL_PREFIX),
        tier_remedy: "key crux.tier (leaf, spine or core)",
        devices_field: "topology.hosts".to_owned(),
        devices,
        cables: Vec::new(),
        missing_address: MissingAddress::Generate,
        generated_port_name: |port| format!("eth{port}"),
        notes,
    };
    add_links(&mut inventory, links, first_addresses);
    inventory.into_fabric(assumptions)
}

fn listed_device(
    name: String,
    field: String,
    role: DeviceRole,
    facts: BTreeMap<String, String>,
) -> ListedDevice {
    let is_complete = facts.contains_key(facts::TIER) || facts.contains_key(facts::GPUS);
    let (addresses, macs) = (BTreeMap::new(), BTreeMap::new());
    ListedDevice { name, field, role, is_complete, facts, addresses, macs, bonds: BTreeMap::new() }
}

/// A link; its own options come before the defaults of the topology.
fn read_link(
    field: String,
    link: &[Value],
    defaults: &Mapping,
    nodes: &[BTreeSet<String>],
    notes: &mut ImportNotes,
) -> Result<DraftLink, ImportError> {
    let [one, other, rest @ ..] = link else {
        return Err(field_error(field, "a link has the names of two nodes"));
    };
    let mut options = defaults.clone();
    for own in rest.iter().filter(|value| value.is_mapping()) {
        count_unused_keys(own, &LINK_KEYS, "links.", notes);
        options.extend(own.as_mapping().cloned().unwrap_or_default());
    }
    // The tutorials: a delay, then a rate.
    let plain: Vec<&Value> = rest.iter().filter(|value| !value.is_mapping()).collect();
    if !plain.is_empty() {
        notes.count_unused_field("links.delay");
    }
    if let [_, megabits, further @ ..] = &plain[..] {
        options.insert("bw".into(), (*megabits).clone());
        further.iter().for_each(|_| notes.count_unused_field("links[4]"));
    }
    let options = Value::Mapping(options);
    let end = |value: &Value, number: u8| -> Result<LinkEnd, ImportError> {
        let stated = |key: &str| options.get(format!("{key}{number}"));
        let end =
            read_end(&plain_text(value), nodes).map_err(|problem| field_error(&field, problem))?;
        let parameters = stated("params").cloned().unwrap_or_default();
        Ok(LinkEnd {
            port: end.port.or_else(|| stated("port")?.as_u64()?.try_into().ok()),
            interface: stated("intfName").map(plain_text).filter(|name| !name.is_empty()),
            address: stated_text(&parameters, "ip"),
            mac: stated("addr").map(plain_text).filter(|mac| !mac.is_empty()),
            ..end
        })
    };
    let ends = [end(one, 1)?, end(other, 2)?];
    let mut facts = own_facts(&options);
    if let Some(rate) = options.get("bw").filter(|_| !facts.contains_key(facts::GBPS)) {
        let text = plain_text(rate);
        let megabits: Option<f64> = text.parse().ok();
        let megabits = megabits.ok_or_else(|| {
            field_error(&field, format!("bw {text:?} is no rate: write a number of Mbit/s"))
        })?;
        facts.insert(facts::GBPS.to_owned(), (megabits / 1e3).to_string());
    }
    Ok(DraftLink { field, ends, facts })
}

/// A node by its name, or a port of it as `s1-p3`.
fn read_end(text: &str, nodes: &[BTreeSet<String>]) -> Result<LinkEnd, String> {
    let is_node = |name: &str| nodes.iter().any(|known| known.contains(name));
    let end = |node: &str, port| LinkEnd {
        node: node.to_owned(),
        port,
        interface: None,
        address: None,
        mac: None,
    };
    if is_node(text) {
        return Ok(end(text, None));
    }
    let split = text.rsplit_once("-p").filter(|(node, _)| is_node(node));
    match split.and_then(|(node, port)| Some((node, port.parse().ok()?))) {
        Some((node, port)) => Ok(end(node, Some(port))),
        None => Err(format!("{text:?} is neither among hosts nor among switches")),
    }
}

/// Adds the cables. An end without a port has the lowest number that its node has left; the address
/// of a host is that of its first interface.
fn add_links(
    inventory: &mut Inventory,
    links: Vec<DraftLink>,
    mut first_addresses: BTreeMap<String, [Option<String>; 2]>,
) {
    let places: BTreeMap<String, usize> =
        (0..).zip(&inventory.devices).map(|(at, device)| (device.name.clone(), at)).collect();
    let mut taken: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for end in links.iter().flat_map(|link| &link.ends) {
        taken.entry(end.node.clone()).or_default().extend(end.port);
    }
    let first_ports: BTreeMap<String, Option<u32>> =
        taken.iter().map(|(node, ports)| (node.clone(), ports.first().copied())).collect();
    for DraftLink { field, ends, facts } in links {
        let ends = ends.map(|end| {
            let own = taken.entry(end.node.clone()).or_default();
            let port = end.port.unwrap_or_else(|| {
                (1..).find(|port| !own.contains(port)).expect("there are more numbers than links")
            });
            own.insert(port);
            let interface = end.interface.unwrap_or_else(|| format!("eth{port}"));
            let device = &mut inventory.devices[places[&end.node]];
            let is_first = first_ports[&end.node].is_none_or(|first| first == port);
            let first = is_first.then(|| first_addresses.remove(&end.node)).flatten();
            let [ip, mac] = first.unwrap_or_default();
            // Our own exports list the addresses of all NICs.
            if let Some(address) = end.address.or(ip).filter(|_| !device.states(facts::IPS)) {
                let ip = address.split('/').next().unwrap_or_default().to_owned();
                device.addresses.insert(interface.clone(), ip);
            }
            if let Some(mac) = end.mac.or(mac).filter(|_| !device.states(facts::IPS)) {
                device.macs.insert(interface.clone(), mac);
            }
            CableEnd { device: end.node, interface, port: Some(port) }
        });
        let [a, b] = &ends;
        if a.device == b.device {
            let name = format!("{a}-{b} ({field})");
            inventory.notes.leave_out("cable", "joins a node to itself", name);
            continue;
        }
        inventory.cables.push(ListedCable { field, ends, facts });
    }
}

/// Keys that begin with `crux.`, without that.
fn own_facts(node: &Value) -> BTreeMap<String, String> {
    let keys = node.as_mapping().into_iter().flatten();
    let own = keys.filter_map(|(name, value)| {
        Some((name.as_str()?.strip_prefix(facts::LABEL_PREFIX)?.to_owned(), plain_text(value)))
    });
    own.collect()
}

/// Counts keys that are neither ours nor among `used`, which may have a number behind them.
fn count_unused_keys(node: &Value, used: &[&str], place: &str, notes: &mut ImportNotes) {
    let keys = node.as_mapping().into_iter().flat_map(|keys| keys.keys()).map(plain_text);
    for key in keys.filter(|key| !key.starts_with(facts::LABEL_PREFIX)) {
        if !used.contains(&key.trim_end_matches(['1', '2'])) {
            notes.count_unused_field(format!("{place}{key}"));
        }
    }
}

fn stated_text(node: &Value, key: &str) -> Option<String> {
    node.get(key).map(plain_text).filter(|text| !text.is_empty())
}
