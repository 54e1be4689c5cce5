//! Rules about hosts that cannot talk.

use std::collections::BTreeMap;

use super::join_names;
use crate::fabric::{Fabric, Tier};
use crate::finding::Finding;
use crate::ids::SwitchId;
use crate::paths::next_hops;

pub(super) fn hosts_without_nics(fabric: &Fabric) -> Vec<Finding> {
    if fabric.hosts().is_empty() {
        return vec![Finding::error(fabric.name(), "has no hosts")];
    }
    let without = fabric.hosts().iter().filter(|host| host.nics.is_empty());
    without.map(|host| Finding::error(&*host.name, "has no NIC; no host can reach it")).collect()
}

pub(super) fn disconnected_nics(fabric: &Fabric) -> Vec<Finding> {
    let cut_off = fabric.nics().iter().filter(|nic| !fabric.is_usable(nic.uplink));
    cut_off
        .map(|nic| {
            let link = fabric.link_name(nic.uplink);
            let why = if fabric.is_up(nic.uplink) { "drained" } else { "down" };
            let text = format!("NIC {} is cut off: {link} is {why}", nic.index);
            Finding::error(&*fabric.host(nic.host).name, text)
        })
        .collect()
}

/// One finding for each leaf that is cut off, and one for each other leaf that cannot reach all
/// others.
pub(super) fn unreachable_leaves(fabric: &Fabric) -> Vec<Finding> {
    let leaves: Vec<SwitchId> = fabric
        .switches_of_tier(Tier::Leaf)
        .filter(|&leaf| fabric.nics_on(leaf).next().is_some())
        .collect();
    let mut unreached: BTreeMap<SwitchId, Vec<SwitchId>> = BTreeMap::new();
    for &to in &leaves {
        let hops = next_hops(fabric, to);
        for &from in leaves.iter().filter(|&&from| from != to && hops.distance(from).is_none()) {
            unreached.entry(from).or_default().push(to);
        }
    }
    let is_cut_off = |leaf: &SwitchId| {
        unreached.get(leaf).is_some_and(|others| others.len() + 1 == leaves.len())
    };
    unreached
        .iter()
        .filter_map(|(from, others)| {
            let name = &*fabric.switch(*from).name;
            if is_cut_off(from) {
                return Some(Finding::error(name, "its hosts can reach no other leaf"));
            }
            let connected = others.iter().filter(|to| !is_cut_off(to));
            let names: Vec<&str> = connected.map(|&to| &*fabric.switch(to).name).collect();
            let text = format!("its hosts cannot reach those of {}", join_names(&names));
            (!names.is_empty()).then(|| Finding::error(name, text))
        })
        .collect()
}
