//! Rules about switches as devices: who they are, where their servers are, which ports they have.

use std::collections::BTreeMap;

use super::{join_any, join_names};
use crate::draft::{CPU_PORT, MAX_PORT};
use crate::fabric::{Fabric, Switch};
use crate::finding::Finding;

/// Two switches with one device id at one address are one device; sharing either alone confuses.
pub(super) fn shared_identities(fabric: &Fabric) -> Vec<Finding> {
    let both =
        switches_sharing(fabric, |switch| Some((switch.device_id, switch.p4runtime.as_deref()?)));
    let device = switches_sharing(fabric, |switch| Some(switch.device_id));
    let server = switches_sharing(fabric, |switch| switch.p4runtime.as_deref());
    let same = both.values().map(|names| {
        Finding::error(join_names(names), "have the same device id at the same p4runtime address")
    });
    let same_device = device.iter().filter(|(_, names)| !both.values().any(|same| same == *names));
    let same_device = same_device.map(|(id, names)| {
        Finding::warning(join_names(names), format!("have the same device id, {id}"))
    });
    let same_server = server.iter().filter(|(_, names)| !both.values().any(|same| same == *names));
    let same_server = same_server.map(|(address, names)| {
        Finding::warning(join_names(names), format!("have the same p4runtime address, {address}"))
    });
    same.chain(same_device).chain(same_server).collect()
}

/// The names of the switches that share a key, for each key that is shared.
fn switches_sharing<'a, K: Ord>(
    fabric: &'a Fabric,
    key: impl Fn(&'a Switch) -> Option<K>,
) -> BTreeMap<K, Vec<&'a str>> {
    let mut names: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for switch in fabric.switches() {
        if let Some(key) = key(switch) {
            names.entry(key).or_default().push(&switch.name);
        }
    }
    names.retain(|_, names| names.len() > 1);
    names
}

pub(super) fn invalid_ports(fabric: &Fabric) -> Vec<Finding> {
    let cpu = fabric.switches().iter().filter(|switch| switch.ports.contains_key(&CPU_PORT));
    let cpu = cpu.map(|switch| {
        let text = format!("uses port {CPU_PORT}, which leads to the controller");
        Finding::error(&*switch.name, text)
    });
    let high = fabric.switches().iter().filter_map(|switch| {
        let (&port, _) = switch.ports.last_key_value().filter(|&(&port, _)| port > MAX_PORT)?;
        let text = format!("uses port {port}; the P4 program has ports up to {MAX_PORT}");
        Some(Finding::error(&*switch.name, text))
    });
    cpu.chain(high).collect()
}

pub(super) fn switches_without_server(fabric: &Fabric) -> Vec<Finding> {
    let without = fabric.switches().iter().filter(|switch| switch.p4runtime.is_none());
    let names: Vec<&str> = without.map(|switch| &*switch.name).collect();
    let finding = |names| Finding::info(names, "no p4runtime address; can only be planned for");
    join_any(&names).map(finding).into_iter().collect()
}
