//! Rules about hosts that cannot talk.

use std::collections::{BTreeMap, BTreeSet};

use super::{hosts_by_plane, join_any, planes_of_switches};
use crate::fabric::{Fabric, Tier};
use crate::finding::Finding;
use crate::ids::{LinkId, SwitchId};
use crate::paths::next_hops;

pub(super) fn hosts_without_nics(fabric: &Fabric) -> Vec<Finding> {
    if fabric.hosts().is_empty() {
        return vec![Finding::error(fabric.name(), "has no hosts")];
    }
    let without = fabric.hosts().iter().filter(|host| host.nics.is_empty());
    without.map(|host| Finding::error(&*host.name, "has no NIC; no host can reach it")).collect()
}

pub(super) fn disconnected_nics(fabric: &Fabric) -> Vec<Finding> {
    let findings = fabric.host_nics().filter_map(|nic| {
        let links = || fabric.ports_of(nic).map(|port| fabric.nic(port).uplink);
        let why = |link: LinkId| {
            let why = if fabric.is_up(link) { "drained" } else { "down" };
            format!("{} is {why}", fabric.link_name(link))
        };
        let lost = links().filter(|link| !fabric.is_usable(*link)).map(why);
        let lost: Vec<String> = lost.collect();
        let (nic, why) = (fabric.nic(nic), lost.join(" and "));
        let host = &*fabric.host(nic.host).name;
        match lost.len() {
            0 => None,
            count if count == links().count() => {
                Some(Finding::error(host, format!("NIC {} is cut off: {why}", nic.index)))
            }
            _ => {
                Some(Finding::warning(host, format!("NIC {} has one port left: {why}", nic.index)))
            }
        }
    });
    findings.collect()
}

/// Leaves that do not reach each other: an error where this keeps hosts apart, a warning where hosts
/// reach each other by other NICs. No cable joins the planes of a fabric, so that is neither.
///
/// One finding for each leaf that is cut off, and one for each other leaf that cannot reach all
/// others.
pub(super) fn unreachable_leaves(fabric: &Fabric) -> Vec<Finding> {
    let unreached = UnreachedLeaves::between_leaves(fabric);
    if unreached.0.is_empty() {
        return Vec::new();
    }
    let (apart, with_other_hosts) = unreached.between_hosts(&leaf_sets(fabric));
    let planes = planes_of_switches(fabric);
    let plane_of = |leaf: &SwitchId| planes[leaf.index()];
    let in_plane = unreached
        .restricted(|from, to| plane_of(from) == plane_of(to) && !apart.contains(from, to));
    let plane_leaves = |of: &SwitchId| {
        leaves_with_nics(fabric).filter(|leaf| plane_of(leaf) == plane_of(of)).count()
    };
    let errors = apart.by_leaf(
        fabric,
        |leaf| !with_other_hosts.contains(leaf),
        |leaf, others| {
            let text = match others {
                None => "its hosts can reach no other leaf".to_owned(),
                Some(others) => format!("its hosts cannot reach those of {others}"),
            };
            Finding::error(leaf, text)
        },
    );
    let is_alone = |leaf: &SwitchId| in_plane.0[leaf].len() + 1 == plane_leaves(leaf);
    let warnings = in_plane.by_leaf(fabric, is_alone, |leaf, others| {
        let text = match others {
            None => "its NICs can reach those of no other leaf; hosts use their other NICs".into(),
            Some(others) => {
                format!("its NICs cannot reach those of {others}; hosts use their other NICs")
            }
        };
        Finding::warning(leaf, text)
    });
    errors.into_iter().chain(warnings).collect()
}

/// Planes that meet in hosts alone, in one line.
pub(super) fn separate_planes(fabric: &Fabric) -> Vec<Finding> {
    let planes = planes_of_switches(fabric);
    let hosts_by_plane = hosts_by_plane(fabric, &planes);
    if hosts_by_plane.len() < 2 {
        return Vec::new();
    }
    let with_nics = fabric.hosts().iter().filter(|host| !host.nics.is_empty()).count();
    let narrow = hosts_by_plane.values().filter(|hosts| hosts.len() < with_nics).count();
    let mut text = format!(
        "its leaves form {} planes that no cable joins; flows between NICs of different planes \
         have no path",
        hosts_by_plane.len()
    );
    if narrow > 0 {
        text.push_str(&format!("; some hosts have no NIC in {narrow} of them"));
    }
    vec![Finding::info(fabric.name(), text)]
}

fn leaves_with_nics(fabric: &Fabric) -> impl Iterator<Item = SwitchId> + '_ {
    fabric.switches_of_tier(Tier::Leaf).filter(|leaf| fabric.nics_on(*leaf).next().is_some())
}

/// The leaves of the NICs of hosts, each set once.
fn leaf_sets(fabric: &Fabric) -> BTreeSet<BTreeSet<SwitchId>> {
    let nics = fabric.hosts().iter().map(|host| host.nics.iter());
    let sets = nics.map(|nics| nics.flat_map(|nic| fabric.leaves_of(*nic).leaves()).collect());
    sets.filter(|leaves: &BTreeSet<SwitchId>| !leaves.is_empty()).collect()
}

/// By leaf, the leaves that packets from it cannot reach; leaves that reach all are left out.
#[derive(Default)]
struct UnreachedLeaves(BTreeMap<SwitchId, BTreeSet<SwitchId>>);

impl UnreachedLeaves {
    /// Of leaves with NICs, over links that are usable now.
    fn between_leaves(fabric: &Fabric) -> Self {
        let leaves: Vec<SwitchId> = leaves_with_nics(fabric).collect();
        let mut unreached = Self::default();
        for &to in &leaves {
            let hops = next_hops(fabric, to);
            let missed = leaves.iter().filter(|from| hops.distance(**from).is_none());
            for from in missed.filter(|from| **from != to) {
                unreached.0.entry(*from).or_default().insert(to);
            }
        }
        unreached
    }

    /// Between hosts none of whose leaves reach each other; and the leaves of which some host
    /// reaches hosts of other leaves.
    fn between_hosts(&self, hosts: &BTreeSet<BTreeSet<SwitchId>>) -> (Self, BTreeSet<SwitchId>) {
        let mut apart = Self::default();
        let mut with_other_hosts = BTreeSet::new();
        for from in hosts {
            for to in hosts {
                let reaches = |a| to.iter().any(|b| !self.contains(a, b));
                if from.iter().any(reaches) {
                    with_other_hosts.extend(from.difference(to));
                } else {
                    from.iter().for_each(|leaf| apart.0.entry(*leaf).or_default().extend(to));
                }
            }
        }
        (apart, with_other_hosts)
    }

    fn restricted(&self, keeps: impl Fn(&SwitchId, &SwitchId) -> bool) -> Self {
        let kept = self.0.iter().map(|(from, to)| {
            (*from, to.iter().copied().filter(|to| keeps(from, to)).collect::<BTreeSet<_>>())
        });
        Self(kept.filter(|(_, to)| !to.is_empty()).collect())
    }

    fn contains(&self, from: &SwitchId, to: &SwitchId) -> bool {
        self.0.get(from).is_some_and(|unreached| unreached.contains(to))
    }

    /// A finding for each leaf by its name: with no others where it is cut off, else with those it
    /// cannot reach that are not cut off themselves, if any.
    fn by_leaf(
        &self,
        fabric: &Fabric,
        is_cut_off: impl Fn(&SwitchId) -> bool,
        finding: impl Fn(&str, Option<String>) -> Finding,
    ) -> Vec<Finding> {
        let name = |leaf: &SwitchId| &*fabric.switch(*leaf).name;
        let connected = |leaf: &&SwitchId| !(self.0.contains_key(*leaf) && is_cut_off(leaf));
        let of_leaf = |(from, to): (&SwitchId, &BTreeSet<SwitchId>)| {
            if is_cut_off(from) {
                return Some(finding(name(from), None));
            }
            let others: Vec<&str> = to.iter().filter(connected).map(name).collect();
            join_any(&others).map(|others| finding(name(from), Some(others)))
        };
        self.0.iter().filter_map(of_leaf).collect()
    }
}
