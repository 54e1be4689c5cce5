//! Rules about the shape of the Clos: who connects to whom, and with how much.

use std::collections::BTreeMap;

use super::{hosts_by_plane, planes_of_switches};
use crate::fabric::{Fabric, Tier};
use crate::finding::Finding;
use crate::ids::{FabricNode, SwitchId};

pub(super) fn unconnected_switches(fabric: &Fabric) -> Vec<Finding> {
    fabric
        .switch_ids()
        .filter_map(|id| {
            let problem = missing_connection(fabric, id)?;
            Some(Finding::warning(&*fabric.switch(id).name, problem))
        })
        .collect()
}

fn missing_connection(fabric: &Fabric, id: SwitchId) -> Option<&'static str> {
    let switch = fabric.switch(id);
    if switch.ports.is_empty() {
        Some("has no links")
    } else if switch.tier == Tier::Leaf && fabric.nics_on(id).next().is_none() {
        Some("has no hosts")
    } else if switch.tier != Tier::Leaf && fabric.down_links(id).is_empty() {
        Some("connects to no switch below it")
    } else {
        None
    }
}

pub(super) fn unused_links(fabric: &Fabric) -> Vec<Finding> {
    let tier = |node: FabricNode| node.switch().map(|id| fabric.switch(id).tier);
    let links = fabric.cables().filter(|cable| {
        let link = fabric.link(*cable);
        tier(link.from.node).is_some() && tier(link.from.node) == tier(link.to.node)
    });
    let text = "joins switches of one tier; no path takes it";
    links.map(|link| Finding::warning(fabric.link_name(link), text)).collect()
}

/// Uplinks of a switch: how many, how fast the slowest and the fastest are, how much together, in
/// thousandths of a Gb/s so that they can be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UplinkCapacity {
    count: usize,
    slowest: u64,
    fastest: u64,
    total: u64,
}

impl std::fmt::Display for UplinkCapacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} uplinks, {} Gb/s", self.count, self.total as f64 / 1e3)
    }
}

/// ECMP shares flows evenly: a switch with less uplink than its peers, or with uplinks of several
/// speeds, is a bottleneck that the others do not have.
///
/// A plane that all hosts are in may have other uplinks than the next one. One with NICs of some
/// hosts only may be the result of a missing cable, so its switches are compared with all others.
pub(super) fn uneven_uplinks(fabric: &Fabric) -> Vec<Finding> {
    let planes = planes_of_switches(fabric);
    let with_nics = fabric.hosts().iter().filter(|host| !host.nics.is_empty()).count();
    let mut whole = hosts_by_plane(fabric, &planes);
    whole.retain(|_, hosts| hosts.len() == with_nics);
    let mut peers: BTreeMap<(Tier, Option<usize>), Vec<SwitchId>> = BTreeMap::new();
    for tier in [Tier::Leaf, Tier::Spine] {
        for switch in fabric.switches_of_tier(tier) {
            let plane = Some(planes[switch.index()]).filter(|plane| whole.contains_key(plane));
            peers.entry((tier, plane)).or_default().push(switch);
        }
    }
    peers.into_values().flat_map(|switches| uneven_among(fabric, switches)).collect()
}

fn uneven_among(fabric: &Fabric, switches: Vec<SwitchId>) -> Vec<Finding> {
    let uplinks = switches.into_iter().map(|id| (id, UplinkCapacity::of_switch(fabric, id)));
    let uplinks: Vec<(SwitchId, UplinkCapacity)> = uplinks.collect();
    let mut frequency: BTreeMap<UplinkCapacity, usize> = BTreeMap::new();
    for (_, uplinks) in &uplinks {
        *frequency.entry(*uplinks).or_default() += 1;
    }
    let Some((usual, _)) = frequency.into_iter().max_by_key(|&(_, times)| times) else {
        return Vec::new();
    };
    uplinks
        .into_iter()
        .filter_map(|(id, found)| {
            let text = if found != usual {
                format!("has {found} in all; a usual one has {usual}")
            } else if found.slowest != found.fastest {
                "has uplinks of several speeds; equal-cost routing shares flows evenly".to_owned()
            } else {
                return None;
            };
            Some(Finding::warning(&*fabric.switch(id).name, text))
        })
        .collect()
}

impl UplinkCapacity {
    fn of_switch(fabric: &Fabric, id: SwitchId) -> Self {
        let mbps: Vec<u64> = fabric
            .up_links(id)
            .iter()
            .map(|&link| (fabric.link(link).bandwidth.gbps() * 1e3).round() as u64)
            .collect();
        Self {
            count: mbps.len(),
            slowest: mbps.iter().copied().min().unwrap_or(0),
            fastest: mbps.iter().copied().max().unwrap_or(0),
            total: mbps.iter().copied().fold(0, u64::saturating_add),
        }
    }
}

/// How much can enter a switch from below for each unit that can leave it upwards, one way.
pub(super) fn oversubscription_ratios(fabric: &Fabric) -> Vec<Finding> {
    [Tier::Leaf, Tier::Spine]
        .into_iter()
        .filter_map(|tier| oversubscription_of_tier(fabric, tier))
        .collect()
}

/// The switch of a tier with the least uplink bandwidth for its downlink bandwidth.
fn oversubscription_of_tier(fabric: &Fabric, tier: Tier) -> Option<Finding> {
    let with_uplinks = fabric.switches_of_tier(tier).filter(|&id| !fabric.up_links(id).is_empty());
    let loads = with_uplinks.map(|id| (id, gbps_below(fabric, id), gbps_above(fabric, id)));
    // Of several equal switches, `min_by` returns the first.
    let (id, below, above) =
        loads.min_by(|(_, b1, a1), (_, b2, a2)| (a1 / b1).total_cmp(&(a2 / b2)))?;
    let text = format!(
        "{below} Gb/s from below, {above} Gb/s upwards, one way: {:.2} to 1 (the worst {tier})",
        below / above
    );
    Some(Finding::info(&*fabric.switch(id).name, text))
}

fn gbps_above(fabric: &Fabric, id: SwitchId) -> f64 {
    fabric.up_links(id).iter().map(|&link| fabric.link(link).bandwidth.gbps()).sum()
}

fn gbps_below(fabric: &Fabric, id: SwitchId) -> f64 {
    let all: f64 =
        fabric.switch(id).ports.values().map(|&link| fabric.link(link).bandwidth.gbps()).sum();
    all - gbps_above(fabric, id)
}
